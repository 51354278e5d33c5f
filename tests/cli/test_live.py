#!/usr/bin/env python3
"""The live page's files, /live, and `vitrine top`. What the page looks like in a browser: tests/clients/test_page.py."""
import atexit, fcntl, http.client, http.server, json, os, pty, re, signal, struct, subprocess, tempfile, termios, threading

from tap import *

SERVER = {}
ADMIN = {"Authorization": "Bearer admin"}
USER = {"Authorization": "Bearer user"}


def serve(*args, env=None):
    """Starts a server and returns (process, what its line says it listens on)."""
    p = start("serve", *FAST, "-m", DUMMY, *args, env=env)
    atexit.register(p.kill)
    text = b""
    while not (m := re.search(rb"(https?://\S+:\d+|unix:\S+) serves", text)):
        piece = os.read(p.stderr.fileno(), 4096)
        assert piece, "the server ended: " + text.decode("utf-8", "replace")
        text += piece
    threading.Thread(target=lambda: p.stderr.read(), daemon=True).start()  # so that it never waits for us
    return p, m.group(1).decode()


def port():
    if not SERVER:
        SERVER["process"], url = serve("--port", "0", env={"VITRINE_API_KEY": "user", "VITRINE_ADMIN_KEY": "admin"})
        SERVER["port"] = int(url.rsplit(":", 1)[1])
    return SERVER["port"]


def get(path, headers={}, at=None):
    c = http.client.HTTPConnection("127.0.0.1", at or port(), timeout=LIMIT_S)
    c.request("GET", path, headers=headers)
    return c, c.getresponse()


def look(answer):
    """The next look of a stream of events."""
    while True:
        line = answer.readline()
        assert line, "the stream ended"
        if line.startswith(b"data: ") and b'"busy"' not in line[:14]:
            return json.loads(line[6:])


def test_page_is_open_and_allows_nothing_from_elsewhere():
    """GET / and its files need no key; every file that the page names is there."""
    c, r = get("/")
    text = r.read().decode()
    same((r.status, r.getheader("Content-Type")), (200, "text/html; charset=utf-8"))
    rules = dict(rule.strip().split(" ", 1) for rule in r.getheader("Content-Security-Policy").split(";"))
    same(rules["default-src"], "'none'")
    same(rules["script-src"], "'self'")
    same(rules["style-src"], "'self'")
    same(rules["frame-ancestors"], "'none'")
    same(r.getheader("X-Content-Type-Options"), "nosniff")
    same(r.getheader("Referrer-Policy"), "no-referrer")
    assert "<style" not in text and " style=" not in text and not re.search(r"\son\w+=", text), "inline style or script"
    assert "http:" not in text and "https:" not in text, "an address elsewhere"
    named = set(re.findall(r'(?:src|href)="([^"]+)"', text))
    script = get("/page.js")[1].read().decode()
    named |= {n[2:] for n in re.findall(r'from "([^"]+)"', script)}
    same(named, {"page.css", "page.js", "draw.js", "timeline.js", "icon.svg"})
    kinds = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
    for name in named:
        c, r = get("/" + name)
        body = r.read()
        same((r.status, r.getheader("Content-Type")), (200, kinds[name.split(".")[1]]), name)
        same(body, open("src/server/page/" + name, "rb").read(), name)


def test_scripts_are_javascript():
    """node --check of the modules, where there is node."""
    for name in ("page.js", "draw.js", "timeline.js"):
        with tempfile.TemporaryDirectory() as d:
            module = os.path.join(d, name.replace(".js", ".mjs"))
            with open(module, "w", encoding="utf-8") as f:
                f.write(open("src/server/page/" + name, encoding="utf-8").read())
            try:
                p = subprocess.run(["node", "--check", module], capture_output=True, text=True)
            except FileNotFoundError:
                skip("there is no node")
            same((p.returncode, p.stderr), (0, ""))


def test_live_needs_an_administrators_key():
    """No key, a user's key, an administrator's."""
    for headers, status in (({}, 401), (USER, 401), (ADMIN, 200)):
        c, r = get("/live", headers)
        same(r.status, status)
        c.sock.close() if status == 200 and c.sock else c.close()


def test_live_tells_a_request_and_no_text():
    """Looks before and after a completion: counts, pages, steps, and not a word of it."""
    c, r = get("/live", ADMIN)
    same(r.getheader("Content-Type"), "text/event-stream; charset=utf-8")
    first = look(r)
    same((first["engine"]["max_context"], first["pages"]["free"]), (512, first["pages"]["all"]))
    k = http.client.HTTPConnection("127.0.0.1", port(), timeout=LIMIT_S)
    k.request("POST", "/v1/completions", json.dumps({"prompt": "secret word " * 20, "max_tokens": 9, "ignore_eos": True}),
              {**USER, "Content-Type": "application/json"})
    done = k.getresponse()
    story = done.getheader("X-Story-Id")
    same(done.status, 200, done.read())
    seen, host = [], []
    while True:
        raw = json.dumps(d := look(r))
        seen += d["steps"]
        host += d["host"]
        assert "secret" not in raw
        if d["now"]["length"] == 1:
            break
    same(d["now"]["output_tokens"], 9)
    same(sum(s["decodes"] for s in seen), 8)
    same({s["of"][0] for s in seen}, {int(story)})
    ends = [s["at_ms"] + s["ms"] for s in seen]
    assert all(a["at_ms"] >= end - 0.02 for a, end in zip(seen[1:], ends)) and ends[-1] <= d["at_ms"], (ends, d["at_ms"])
    same({part for part in host[0::3]}, {0, 1, 2, 3})
    assert all(0 <= at <= d["at_ms"] for at in host[1::3]) and all(ms >= 0 for ms in host[2::3]), host
    same((d["pages"]["used"], sum(d["pages"]["cells"][1::4])), (0, d["pages"]["cached"]))
    same(d["tree"]["pages"], d["pages"]["cached"])
    same((d["ttft"]["n"], sum(d["ttft"]["bins"])), (1, 1))
    same([s > 0 for s in d["ttft"]["stories"]], [n > 0 for n in d["ttft"]["bins"]])
    same(d["itl"]["n"], 8)
    assert 0 <= d["held_share"] < 1
    k.close(), c.close()


def test_watchers_are_bounded():
    """Eight watch; a ninth is told to come back; one leaves, and its place is free."""
    open_ = []

    def free():
        c, r = get("/live", ADMIN)
        if r.status == 200:
            open_.append((c, r))
        return r.status == 200
    for _ in range(8):  # the server may not have seen yet that those of the tests before have left
        wait_until(free, "a place for a watcher")
        look(open_[-1][1])
    c, r = get("/live", ADMIN)
    same(r.status, 503)
    assert b"watch" in r.read()
    first, answer = open_.pop()
    answer.close(), first.close()
    wait_until(free, "a place of a watcher that left")
    for c, r in open_:
        r.close(), c.close()


def test_watchers_do_not_hold_up_the_end():
    """SIGTERM: the streams end whole, and so does the server, with status 0."""
    p, url = serve("--port", "0")
    c, r = get("/live", at=int(url.rsplit(":", 1)[1]))
    look(r)
    p.terminate()
    rest = r.read()  # raises where the last chunk is missing
    same(p.wait(LIMIT_S), 0, "exit status")
    assert rest.endswith(b"\n"), rest


# ---- top ----

def sample():
    """A look at an engine that never was."""
    def rates(n):
        return [(i * 7) % n for i in range(120)]
    steps = [{"id": i, "ms": 8.5 + i % 5, "tokens": 3 + (500 if i % 20 == 0 else 0), "decodes": 3, "seqs": 4,
              "of": [1, 1, 30]} for i in range(1, 141)]
    run = [{"request": 7 + i, "sample": 0, "prompt": 1104, "computed": 512 * i, "cached": 96 * i, "output": 40 * i,
            "most": 128, "pages": 71 + i} for i in range(3)]
    queue = [{"request": 20, "sample": 0, "tokens": 1200, "waits_s": 2.25, "why": "batch full"},
             {"request": 21, "sample": 0, "tokens": 88, "waits_s": 0.5, "why": "behind"}]
    return {"engine": {"model": "a-model\x1b[31m", "version": "0.1.0", "device": "cuda", "uptime_s": 3725.4,
                       "max_running": 3, "step_tokens": 512, "max_context": 8192},
            "now": {"running": 3, "waiting": 2, "output_per_s": 1234.5, "prefill_per_s": 20480, "requests": 30,
                    "steps": 140, "output_tokens": 1, "prefill_tokens": 2, "retracted": 0, "faults": 0, "stopped": 20,
                    "length": 3, "aborted": 2, "failed": 0},
            "pages": {"all": 6144, "used": 1500, "cached": 2000, "free": 2644, "tokens": 16, "per_cell": 13, "cells": []},
            "tree": {"lookup_tokens": 20000, "hit_tokens": 15000, "evicted_pages": 12, "pages": 2000, "runs": 40, "shown": []},
            "running": run, "queue": queue, "steps": steps,
            "ttft": {"n": 30, "p50_ms": 120.4, "p90_ms": 480, "p99_ms": 1900.9, "bins": []},
            "itl": {"n": 0, "p50_ms": None, "p90_ms": None, "p99_ms": None, "bins": []},
            "rates": {"output": rates(13), "prefill": rates(5)}, "held_ms": 0.1, "held_share": 0.0004}


class Canned(http.server.BaseHTTPRequestHandler):
    """Answers /live with one look, cut into chunks of 100 bytes."""
    protocol_version = "HTTP/1.1"
    asked = []

    def do_GET(self):
        Canned.asked.append((self.path, self.headers.get("Authorization")))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        data = b'data: {"busy":{"step_s":1.5}}\n\ndata: ' + json.dumps(sample(), ensure_ascii=False).encode() + b"\n\n"
        for i in range(0, len(data), 100):
            piece = data[i:i + 100]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *args):
        pass


def canned():
    s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Canned)
    s.daemon_threads = True
    threading.Thread(target=s.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{s.server_address[1]}"


def test_top_prints_a_frame_as_it_was():
    """At 80 and 100 columns, against tests/golden/text/top_*.txt (VITRINE_UPDATE_GOLDEN=1 writes them anew)."""
    url = canned()
    for width in (80, 100):
        text = ok("top", "--url", url, "--once", "--width", str(width), env={"VITRINE_ADMIN_KEY": "k1,k2"}).text
        path = f"tests/golden/text/top_{width}.txt"
        if os.environ.get("VITRINE_UPDATE_GOLDEN"):
            open(path, "w", encoding="utf-8").write(text)
        same(text, open(path, encoding="utf-8").read(), path)
        assert max(len(line) for line in text.split("\n")) <= width and "\x1b" not in text
    same(Canned.asked[-1], ("/live", "Bearer k1"))


def test_top_of_a_server_with_keys():
    """A frame with the administrator's key; a sentence without."""
    url = f"http://127.0.0.1:{port()}"
    assert "KV pages" in ok("top", "--url", url, env={"VITRINE_ADMIN_KEY": "admin"}).text
    fails(1, ["401", "administrator"], "top", "--url", url)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "key")
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
            f.write("admin\n")
        assert "KV pages" in ok("top", "--url", url, "--admin-key-file", path).text


def test_top_on_a_terminal():
    """Frames on the alternate screen that follow the terminal's size; q ends it and puts the screen back."""
    env = clean_env({"VITRINE_ADMIN_KEY": "admin", "TERM": "xterm"})
    url = f"http://127.0.0.1:{port()}"
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(BIN, [BIN, "top", "--url", url], env)
    said = b""

    def read_until(what):
        nonlocal said
        while what not in said:
            said += os.read(fd, 65536)

    try:
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        read_until(b"prefixes")
        assert said.startswith(b"\x1b[?1049h\x1b[?25l")
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 60, 0, 0))
        frame = said
        while b"prefixes" in frame:  # frames of the former size may still come
            said = said[said.rindex(b"\x1b[H") + 3:] if b"\x1b[J" not in said else b""
            read_until(b"\x1b[Jq quits")
            frame = said[:said.index(b"\x1b[J")]
        assert frame.count(b"\r\n") <= 9, frame
        os.write(fd, b"q")
        read_until(b"\x1b[?25h\x1b[?1049l")
        status = os.waitpid(pid, 0)[1]
        pid = 0
        same(os.waitstatus_to_exitcode(status), 0)
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(fd)


def test_top_over_a_unix_socket():
    """--url unix:PATH."""
    with tempfile.TemporaryDirectory() as d:
        p, where = serve("--uds", os.path.join(d, "s"))
        assert "KV pages" in ok("top", "--url", where, "--once").text
        p.terminate()
        same(p.wait(LIMIT_S), 0, "exit status")


def test_top_says_what_is_wrong():
    """No server, TLS, an address that is none, a server that is another one."""
    fails(1, ["127.0.0.1", "refused"], "top", "--url", "http://127.0.0.1:1")
    fails(1, ["https"], "top", "--url", "https://127.0.0.1:1")
    fails(1, ["127.0.0.1", "refused"], "top", "--url", "http://127.0.0.1:1/base")
    fails(2, ["expected"], "top", "--url", "http://127.0.0.1:1/a b")
    fails(2, ["port"], "top", "--url", "http://127.0.0.1:x")
    s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=s.serve_forever, daemon=True).start()
    with open(os.devnull, "w") as quiet:
        import sys
        before, sys.stderr = sys.stderr, quiet
        try:
            fails(1, ["501", "vitrine serve"], "top", "--url", f"http://127.0.0.1:{s.server_address[1]}")
        finally:
            sys.stderr = before
    s.shutdown()


main(globals())
