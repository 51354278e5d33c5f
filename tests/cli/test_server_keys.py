#!/usr/bin/env python3
"""Keys of a server: when they are asked for, what they open, and what one key's user learns of another's."""
import select

from served import *
from tap import *

ALICE, BOB, ADMIN = ({"Authorization": f"Bearer {name}-key"} for name in ("alice", "bob", "admin"))
USERS = {"VITRINE_API_KEY": "alice-key,bob-key"}


def key_file(*lines):
    path = os.path.join(folder(), "keys")
    with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
        f.write("".join(line + "\n" for line in lines))
    return path


def first_answer(s, text):
    """All that the server says to a request whose body never comes, until it closes the connection."""
    with s.connect() as c:
        c.sendall(text)
        return b"".join(iter(lambda: c.recv(65536), b"")).decode()


def head(path, *headers, method="POST", length=8 << 20):
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {length}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


# ---- before a body is read ----

def test_nothing_of_a_body_is_read_for_who_may_not_ask():
    """A key, a route, a method and a site that are wrong are answered when the head is whole, without "100 Continue"."""
    s = Server(env={"VITRINE_API_KEY": "alice-key", "VITRINE_ADMIN_KEY": "admin-key"})
    key, expect, chunked = "X-API-Key: alice-key", "Expect: 100-continue", "Transfer-Encoding: chunked"
    for more in ((), (expect,)):
        for text, status in ((head("/v1/completions", *more), 401), (head("/v1/completions", "X-API-Key: no", *more), 401),
                             (head("/flush_cache", key, *more), 401), (head("/none", key, *more), 404), (head("/health", *more), 405),
                             (head("/v1/completions", key, "Origin: http://evil.example", *more), 403),
                             (head("/v1/completions", key, *more, method="GET"), 405)):
            answer = first_answer(s, text)
            assert answer.startswith(f"HTTP/1.1 {status} ") and "\r\nConnection: close\r\n" in answer, (text, answer)
            assert '"error"' in answer and "\r\nX-Request-Id: " in answer, answer
    endless = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n"
    assert first_answer(s, endless + b"x" * 100000).startswith("HTTP/1.1 401 ")
    with s.connect() as c:
        body = b'{"prompt": "a", "max_tokens": 1}'
        c.sendall(head("/v1/completions", key, expect, length=len(body)))
        same(c.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
        c.sendall(body)
        assert c.recv(65536).startswith(b"HTTP/1.1 200 ")
    wait_until(lambda: s.log.count(b"status=401") >= 7, "refusals are logged as other requests are")
    s.stop()


def test_bodies_that_are_read_have_a_total():
    """64 of the largest size; the next one is 503, while small requests are served. What is given up comes back."""
    s = Server("--max-body", "64K")
    slow = [s.connect() for _ in range(100)]
    for c in slow:
        c.sendall(head("/v1/completions", length=65536) + b" " * 60000)
    room = 64 * 65536 // 60000
    wait_until(lambda: len(select.select(slow, [], [], 0.1)[0]) >= len(slow) - room, "those beyond the total are answered")
    refused = select.select(slow, [], [], 0)[0]
    same(len(refused), len(slow) - room)
    for c in refused:
        answer = c.recv(65536)
        assert answer.startswith(b"HTTP/1.1 503 ") and b"\r\nRetry-After: " in answer and b'"error"' in answer, answer
    s.alive()
    for c in slow:
        c.close()
    large = {"prompt": "a", "max_tokens": 1, "user": "x" * 65000}
    wait_until(lambda: s.post("/v1/completions", large).status == 200, "the room is free again")
    for _ in range(200):  # nothing of a request that was answered is counted on
        s.good("/v1/completions", large)
    s.stop()


# ---- keys that are none ----

def test_a_variable_that_holds_no_key_does_not_open_the_server():
    for name in ("VITRINE_API_KEY", "VITRINE_ADMIN_KEY"):
        for value in ("", " ", ",", " , ,\t"):
            fails(2, [f"{name} is set but holds no key", "unset it"], "serve", "-m", DUMMY, "--port", "0", env={name: value})
    s = Server(env={"VITRINE_API_KEY": "#secret"})  # '#' begins a comment in files alone
    same([s.get("/v1/models", headers=h).status for h in ({}, {"X-API-Key": "#secret"})], [401, 200])
    s.stop()
    fails(1, "holds no key", "serve", "-m", DUMMY, "--port", "0", "--api-key-file", key_file("#secret", "  # more", ""))
    fails(2, "the name of a key file is empty", "serve", "-m", DUMMY, "--port", "0", "--api-key-file", "")
    s = Server("--api-key-file", key_file("#comment", " alice-key "), env={"VITRINE_API_KEY": "alice-key"})
    same([s.get("/story", headers=h).status for h in (BOB, ALICE)], [401, 200], "one key, told twice, is one key")
    s.stop()


def test_keys_that_no_header_can_hold_and_too_many_are_refused():
    for value in ("a\x01b", "a\tb", "a b", "\x7f", "clé"):
        fails(1, "a key holds a character that is not printable ASCII", "serve", "-m", DUMMY, "--port", "0",
              env={"VITRINE_API_KEY": value})
    fails(1, "more than 1024 keys", "serve", "-m", DUMMY, "--port", "0", "--api-key-file", key_file(*(f"key-{i}" for i in range(1025))))


def test_a_server_for_every_network_without_a_key_says_so():
    s = Server("--host", "0.0.0.0")
    wait_until(lambda: b"warning: everybody who reaches 0.0.0.0 may use this server" in s.log, "the warning")
    assert b"--api-key-file" in s.log
    s.stop()
    for args, env in (((), None), (("--host", "0.0.0.0"), {"VITRINE_API_KEY": "a"})):
        s = Server(*args, env=env)
        s.stop()
        assert b"warning" not in s.log, s.log


# ---- users among themselves ----

def busy(s, key, name):
    """A stream that goes on until somebody ends it."""
    c = s.connect()
    body = json.dumps({"prompt": "abc", "max_tokens": 3000, "ignore_eos": True, "stream": True}).encode()
    c.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: {key['Authorization']}\r\nX-Request-Id: {name}\r\n"
              f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    assert c.recv(100).startswith(b"HTTP/1.1 200 ")
    return c


def end_of(c):
    data = b"".join(iter(lambda: c.recv(65536), b""))
    c.close()
    return data


def test_users_of_several_keys_are_strangers():
    """Stories, the live view, flush and abort tell of and end others' requests: with several keys they need an administrator's."""
    s = Server(env=USERS)
    for method, path, body in (("GET", "/story", None), ("GET", "/story/0", None), ("GET", "/story/1", None), ("GET", "/live", None),
                               ("POST", "/flush_cache", {}), ("POST", "/start_profile", {}), ("POST", "/abort_request", {"abort_all": True})):
        a = s.call(method, path, body, headers=BOB)
        same(a.status, 403, path)
        assert "--admin-key-file" in a.error["message"], a.error
        same(s.call(method, path, body).status, 401, path)
    s.stop()
    s = Server(env={"VITRINE_API_KEY": "alice-key"})
    same([s.get("/story", headers=ALICE).status, s.post("/flush_cache", {}, headers=ALICE).status], [200, 200], "the only key")
    s.stop()


def test_a_user_ends_his_own_requests_and_nobody_elses():
    for admins in ({}, {"VITRINE_ADMIN_KEY": "admin-key"}):
        s = Server(env={**USERS, **admins}, context=4096)
        aborts = lambda key, name: s.post("/abort_request", {"rid": name}, headers=key).json["aborted"]
        c = busy(s, ALICE, "of-alice")
        same([aborts(BOB, "of-alice"), aborts(BOB, "none")], [0, 0], "and no word of whether there is one")
        same(aborts(ALICE, "of-alice"), 1)
        assert b'"finish_reason":"abort"' in end_of(c)
        if admins:
            c = busy(s, ALICE, "again")
            same(aborts(ADMIN, "again"), 1)
            assert b'"finish_reason":"abort"' in end_of(c)
        s.stop()
    s = Server(env={"VITRINE_ADMIN_KEY": "admin-key"})
    same(s.post("/abort_request", {"rid": "x"}).status, 401, "without users' keys nobody knows whose it is")
    s.stop()


# ---- the prefix cache ----

def cached(s, key, prompt, **fields):
    a = s.good("/v1/completions", {"prompt": prompt, "max_tokens": 1, **fields}, headers=key)
    return a.json["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_no_key_learns_what_another_asked_from_the_cache():
    s = Server(env={**USERS, "VITRINE_ADMIN_KEY": "admin-key"})
    prompt = "The same secret beginning. " * 8
    same(cached(s, ALICE, prompt), 0)
    assert cached(s, ALICE, prompt) > 100, "her own"
    same([cached(s, BOB, prompt), cached(s, ADMIN, prompt)], [0, 0])
    # a salt of the client's goes on telling apart, up to its full length, and cannot be another key's
    for salt in ("x", "0:", "1:", "y" * 128):
        same(cached(s, ALICE, prompt, cache_salt=salt), 0, salt)
        assert cached(s, ALICE, prompt, cache_salt=salt) > 100, salt
        same(cached(s, BOB, prompt, cache_salt=salt), 0, salt)
    s.stop()
    s = Server(env=USERS)  # two keys are enough to be kept apart
    same([cached(s, ALICE, prompt), cached(s, BOB, prompt)], [0, 0])
    s.stop()
    for args, env in ((("--share-prefixes",), USERS), ((), {"VITRINE_API_KEY": "alice-key"})):
        s = Server(*args, env=env)
        same(cached(s, ALICE, prompt), 0)
        assert cached(s, BOB if args else ALICE, prompt) > 100
        s.stop()


def test_a_key_is_the_whole_key_and_nothing_else():
    s = Server(env=USERS)
    for key in ("a", "alice-ke", "alice-key2", "ALICE-KEY", "alice-key,bob-key", "alice-key" + "x" * 5000):
        same(s.get("/v1/models", headers={"X-API-Key": key}).status, 401, key[:20])
    same(s.get("/v1/models", headers=ALICE).status, 200)
    s.stop()


main(globals())
