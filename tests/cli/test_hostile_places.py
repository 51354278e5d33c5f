#!/usr/bin/env python3
"""Files at places that others prepared: results with escapes and HTML in them, links where a lab writes, a note that names
somebody else's server, FIFOs where files are read, names of files, and what a measured server says of itself."""
import atexit, http.server, os, re, shutil, socket, subprocess, threading, time

import tiny_model
from served import folder
from tap import *

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
GOLDEN = os.path.join(ROOT, "tests", "golden", "labs")
TRACKS = ["sglang", "mini-sglang", "flashinfer", "experiments"]
OSC, CSI, C1 = "\x1b]0;owned\x07", "\x1b[31m", "\u009b31m"
HTML = "<script>x</script><img src=x onerror=y> &lt; ![p](http://evil.example/p) `"
CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")


def read(path):
    with open(path, "rb") as f:
        return f.read()


# ---- results ----

def spoil(value, key=""):
    """Every text of a result with escapes and HTML behind it, but for those that decide what is read."""
    if isinstance(value, dict):
        return {k: v if k in ("schema", "track", "lab", "verdict", "grade", "state", "unit") else spoil(v, k)
                for k, v in value.items()}
    if isinstance(value, list):
        return [spoil(v, key) for v in value]
    if not isinstance(value, str):
        return value
    return value + OSC + CSI + C1 + HTML + ("\n```\n" + HTML if key == "drawing" else "\n# title\n")


def spoiled():
    root = os.path.join(folder(), "labs")
    shutil.copytree(GOLDEN, root, ignore=shutil.ignore_patterns("reports"))
    for track in TRACKS:
        at = os.path.join(root, track, "results", "golden")
        for name in os.listdir(at):
            path = os.path.join(at, name)
            text = read(path).decode()
            with open(path, "w", encoding="utf-8") as f:
                f.write(json.dumps(spoil(json.loads(text))) if name.endswith(".json")
                        else re.sub(r"$", OSC + "`<script>|", text, flags=re.M))
    return root


def outside_of_code(page):
    """The page without code blocks and code spans, in which HTML is text."""
    lines, fence = [], None
    for line in page.split("\n"):
        mark = re.match(r" {0,3}(`{3,})", line)
        if fence is None and mark:
            fence = mark.group(1)
        elif fence and mark and len(mark.group(1)) >= len(fence) and line.strip() == mark.group(1):
            fence = None
        elif fence is None:
            lines.append(line)
    assert fence is None, "a code block is not closed"
    return "\n".join(lines)


def test_results_put_no_escape_and_no_html_into_pages():
    root = spoiled()
    for track in TRACKS:
        ok("lab", track, "report", "--results", root, "--machine", "golden")
        at = os.path.join(root, track, "reports", "golden")
        for name in os.listdir(at):
            page = read(os.path.join(at, name))
            assert not CONTROL.search(page), f"{track}/{name}: {CONTROL.search(page)}"
            html = name.endswith(".html")  # in which a link of markdown is text
            plain = page.decode() if html else outside_of_code(page.decode())
            for sign in ("<script", "<img", *(('="http://evil',) if html else ("](http://evil", "\n# title"))):
                assert sign not in plain, f"{track}/{name}: {sign}: {plain[plain.find(sign) - 200:][:300]!r}"


def test_results_put_no_escape_onto_the_terminal():
    root = spoiled()
    for words in (["knobs"], ["status"], [], *[[t] for t in TRACKS]):
        r = ok("lab", *words, "--results", root, "--machine", "golden")
        assert not CONTROL.search(r.out), (words, CONTROL.search(r.out))
    assert "<script" not in outside_of_code(read(os.path.join(root, "knobs.md")).decode())


# ---- links ----

def test_a_lab_writes_through_no_link():
    root = folder()
    results = os.path.join(root, "labs", "mini-sglang", "results", "local")
    os.makedirs(results)
    victim = os.path.join(root, "victim")
    with open(victim, "w") as f:
        f.write("mine")
    link = os.path.join(results, "environment.json")
    os.symlink(victim, link)
    run("lab", "mini-sglang", "00", "--quick", "--no-predict", "-q", "--results", os.path.join(root, "labs"))
    same(read(victim), b"mine")
    assert os.path.isfile(link) and not os.path.islink(link), "the lab's own file is not there"


def test_a_servers_log_goes_through_no_link():
    root = folder()
    results = os.path.join(root, "labs", "experiments", "results", "local")
    os.makedirs(results)
    victim, log = os.path.join(root, "victim"), os.path.join(results, "server.log")
    with open(victim, "w") as f:
        f.write("mine")
    for make, what in ((os.symlink, "symbolic link"), (os.link, "2 names")):
        make(victim, log)
        r = run("lab", "experiments", "2", "--quick", "--no-predict", "-q", "-m", DUMMY, "--results",
                os.path.join(root, "labs"))
        assert r.code != 0 and what in r.log and "server.log" in r.log, r.log
        same(read(victim), b"mine")
        os.unlink(log)


# ---- other people's servers ----

def identity(pid):
    """What tells a process from a later one of its number: its start in ticks and the boot."""
    with open(f"/proc/{pid}/stat") as f:
        start_ticks = int(f.read().rsplit(")", 1)[1].split()[19])
    with open("/proc/sys/kernel/random/boot_id") as f:
        return {"start_ticks": start_ticks, "boot_id": f.read().strip()}


def named_server():
    """A server whose command line is as that of one that a lab starts: it begins with "vitrine serve" and names its port."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    made = tiny_model.make(os.path.join(folder(), "tiny"), tiny_model.CHATML, context=tiny_model.CONTEXT)
    p = subprocess.Popen(["vitrine", "serve", "-m", made, "--port", str(port), "--kv-memory", "4M"], executable=BIN,
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=clean_env())
    atexit.register(p.kill)
    while b"serves" not in (line := p.stderr.readline()):
        assert line, "the server ended"
    threading.Thread(target=p.stderr.read, daemon=True).start()
    return p, port


def test_stop_ends_no_server_but_the_one_that_was_left():
    server, port = named_server()
    root = os.path.join(folder(), "labs")
    results = os.path.join(root, "experiments", "results", "local")
    note = os.path.join(results, "server.json")
    os.makedirs(results)
    own = {"pid": server.pid, "port": port, "url": f"http://127.0.0.1:{port}", "model": "m", **identity(server.pid)}
    foreign = [{k: v for k, v in own.items() if k not in ("start_ticks", "boot_id")}, {**own, "port": port - 1},
               {**own, "port": 1, "url": "http://127.0.0.1:1"}, {**own, "boot_id": "0" * 36},
               {**own, "start_ticks": own["start_ticks"] - 1}, {**own, "pid": os.getpid()}, {**own, "pid": -1},
               {**own, "pid": 2**40}, {**own, "pid": str(server.pid)}, []]
    for left in foreign:
        with open(note, "w") as f:
            json.dump(left, f)
        r = fails(2, "left no server running", "lab", "experiments", "1", "--stop", "-q", "--results", root)
        time.sleep(0.05)
        assert server.poll() is None, f"ended by {left}"
    with open(note, "w") as f:
        json.dump(own, f)
    ok("lab", "experiments", "1", "--stop", "-q", "--results", root)
    same(server.wait(LIMIT_S), 0, "how the server ended")
    assert not os.path.exists(note)


# ---- FIFOs ----

def fifo():
    path = os.path.join(folder(), "fifo")
    os.mkfifo(path)
    return path


def test_fifos_in_place_of_files_are_refused():
    p = fifo()
    golden = os.path.join(folder(), "story.json")
    with open(golden, "w") as f:
        f.write("{}")
    for args in (["story", "show", p], ["story", "diff", p, golden], ["story", "diff", golden, p],
                 ["bench", "serve", "--url", "http://127.0.0.1:1", "--trace", p],
                 ["run", "-m", DUMMY, "--batch", p, "-o", golden + "l"],
                 ["serve", "-m", DUMMY, "--port", "0", "--api-key-file", p],
                 ["serve", "-m", DUMMY, "--port", "0", "--tls-cert", p, "--tls-key", p]):
        r = run(*args)
        assert r.code not in (0, 130) and "named pipe" in r.log and p in r.log, (args, r.code, r.log)


def test_fifos_among_results_are_refused():
    root = os.path.join(folder(), "labs")
    shutil.copytree(GOLDEN, root, ignore=shutil.ignore_patterns("reports"))
    at = os.path.join(root, "experiments", "results", "golden")
    for name in ("2_baseline_benchmark.json", "kernel_summary.txt"):
        path = os.path.join(at, name)
        if os.path.exists(path):
            os.unlink(path)
        os.mkfifo(path)
        r = run("lab", "experiments", "report", "--results", root, "--machine", "golden")
        assert r.code == 1 and "named pipe" in r.log and name in r.log, r.log
        if name.endswith(".json"):
            assert "cannot be read" in ok("lab", "experiments", "--results", root, "--machine", "golden").text
        os.unlink(path)


def test_pipes_that_the_shell_opened_are_read():
    story = os.path.join(folder(), "s.json")
    ok("run", *FAST, *model(), "-n", "2", f"--story={story}", "hi")
    want = ok("story", "show", story).text
    got = subprocess.run(["bash", "-c", f'"{BIN}" story show <(cat "{story}"); cat "{story}" | "{BIN}" story show /dev/stdin'],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_env(), timeout=LIMIT_S)
    assert got.returncode == 0, got.stderr
    same(got.stdout.decode(), want + want)


# ---- names ----

def test_list_shows_names_of_files_without_their_escapes():
    cache = folder()
    os.mkdir(os.path.join(cache, "models"))
    with open(os.path.join(cache, "models", "x" + OSC + CSI + ".gguf"), "wb") as f:
        f.write(b"GGUF")
    r = ok("list", env={"VITRINE_CACHE": cache})
    assert "unreadable" in r.text and not CONTROL.search(r.out), r.out
    listed = ok("list", "--json", env={"VITRINE_CACHE": cache}).json["models"]
    assert any(OSC in m["path"] for m in listed), listed


class Liar(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.say({"data": [{"id": "m" + OSC + CSI + C1}]})

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.say({"error": {"message": "no" + OSC + CSI + C1}}, 400)

    def say(self, value, status=200):
        body = json.dumps(value, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def test_bench_serve_shows_what_a_server_says_without_its_escapes():
    s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Liar)
    threading.Thread(target=s.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{s.server_address[1]}"
    r = run("bench", "serve", "--url", url, "--num", "2", "--concurrency", "1", "--input", "4", "--output", "2")
    assert r.out and not CONTROL.search(r.out + r.err), r.out + r.err
    s.shutdown()


main(globals())
