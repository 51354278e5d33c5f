#!/usr/bin/env python3
"""vitrine bench serve: against `vitrine serve`, and against scripted servers that misbehave."""
import atexit, json, os, re, signal, socket, socketserver, subprocess, tempfile, threading, time

from tap import *

SERVER = {}


def url():
    """A server with random weights, started once."""
    if not SERVER:
        p = start("serve", *FAST, "-m", DUMMY, "--port", "0")
        atexit.register(p.kill)
        text = b""
        while not (m := re.search(rb"(http://\S+:\d+) serves", text)):
            piece = os.read(p.stderr.fileno(), 4096)
            assert piece, "the server ended: " + text.decode("utf-8", "replace")
            text += piece
        threading.Thread(target=lambda: p.stderr.read(), daemon=True).start()
        SERVER["url"] = m.group(1).decode()
    return SERVER["url"]


def bench(*args, code=0, **kw):
    r = run("bench", "serve", "--json", "-q", *args, **kw)
    assert r.code == code, f"{args}: exit {r.code}: {r.log} {r.text[:2000]}"
    return r.json


# ---- a scripted server: the model's name in the request says how it behaves ----

EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(obj):
    return chunk(b"data: " + (obj if isinstance(obj, bytes) else json.dumps(obj).encode()) + b"\n\n")


def word(text, reason=None):
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]})


USAGE = event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 40, "total_tokens": 49,
                                        "prompt_tokens_details": {"cached_tokens": 4}}})
GOOD = EVENTS + word("") + word("a") + word("b") + word("c", "stop") + USAGE + event(b"[DONE]") + LAST


def plain(status, body, extra=b""):
    return b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s" % (status, extra, len(body), body)


BEHAVIOUR = {
    "good": [GOOD],
    "no-usage": [EVENTS + word("a") + word("b", "stop") + event(b"[DONE]") + LAST],
    "no-done": [EVENTS + word("a") + word("b", "stop") + LAST],
    "slow": [EVENTS + word("a"), 0.05, word("b"), 0.05, word("c", "stop") + USAGE + event(b"[DONE]") + LAST],
    "dribble": [bytes([b]) for b in GOOD],
    "cut": [EVENTS + word("a") + word("b"), None],
    "ended-early": [EVENTS + word("a") + LAST],
    "error-in-stream": [EVENTS + word("a") + event({"error": {"message": "out of pages", "type": "server_error"}}) + LAST],
    "500": [plain(500, b'{"error":{"message":"broken on purpose"}}')],
    "503-html": [plain(503, b"<html>busy</html>")],
    "closes": [GOOD, None],                                          # without having said so
    "says-close": [GOOD.replace(b"200 OK\r\n", b"200 OK\r\nConnection: close\r\n"), None],
    "garbage": [b"\x16\x03\x01 this is no HTTP\r\n\r\n", None],
    "two-lengths": [plain(200, b"{}", b"Content-Length: 2\r\n")],
    "not-json": [EVENTS + event(b"{'choices': 1}") + LAST],
    "no-stream": [plain(200, b'{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}')],
    "endless-header": [b"HTTP/1.1 200 OK\r\nA: " + b"x" * 200000],
    "nothing": [None],
    "hangs": [EVENTS + word("a"), "hang"],
}


class Scripted(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads, allow_reuse_address, request_queue_size = True, True, 256

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen, self.lock, self.connections, self.stopped = [], threading.Lock(), 0, threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()
        atexit.register(self.stopped.set)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        pass  # clients may leave


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        with self.server.lock:
            self.server.connections += 1
        while line := self.rfile.readline():
            headers = {}
            while (h := self.rfile.readline().strip()):
                name, _, value = h.partition(b":")
                headers[name.lower().decode()] = value.strip().decode()
            if line.startswith(b"GET /v1/models"):
                self.wfile.write(plain(200, b'{"data":[{"id":"good"},{"id":"cut"}]}'))
                continue
            body = json.loads(self.rfile.read(int(headers["content-length"])))
            with self.server.lock:
                self.server.seen.append((line.split()[1].decode(), headers, body))
            for step in BEHAVIOUR[body["model"]]:
                if step is None:
                    return
                elif step == "hang":
                    self.server.stopped.wait()
                    return
                elif isinstance(step, float):
                    time.sleep(step)
                else:
                    self.wfile.write(step)


def against(model, *args, code=0, num="6", **kw):
    s = Scripted()
    return s, bench("--url", s.url, "--model", model, "--num", num, "--concurrency", "3", "--input", "5", "--output",
                    "4", *args, code=code, **kw)


def test_counts_are_those_of_the_usage():
    s, r = against("good")
    same((r["completed"], r["failed"], r["tokens_by"], r["output_tokens"], r["prompt_tokens"], r["cached_tokens"]),
         (6, 0, "usage", 240, 54, 24))
    same((r["ttft_ms"]["n"], r["itl_ms"]["n"], r["tpot_ms"]["n"]), (6, 12, 6))
    same(s.connections, 3)  # they are kept


def test_without_usage_pieces_are_counted_and_it_says_so():
    for model in ("no-usage", "no-done"):
        _, r = against(model)
        same((r["completed"], r["tokens_by"], r["output_tokens"], r["prompt_tokens"]), (6, "pieces", 12, None))


def test_gaps_are_those_that_the_server_made():
    """A busy machine may show the client a piece late, and then the next gap is shorter than the server made it."""
    def as_made():
        _, r = against("slow", "--slo", "itl=49.9")
        assert r["completed"] == 6 and r["e2e_ms"]["p50"] >= 99, r
        return r["itl_ms"]["p50"] >= 49 and r["good"] == 0
    wait_until(as_made, "gaps as long as the server made them")


def test_an_answer_byte_by_byte_is_the_same():
    _, r = against("dribble", num="2")
    same((r["completed"], r["output_tokens"], r["itl_ms"]["n"]), (2, 80, 4))


def test_failures_are_told_by_kind():
    for model, kind in {"cut": "cut", "ended-early": "cut", "error-in-stream": "reported", "500": "http", "503-html": "http",
                        "garbage": "format", "two-lengths": "format", "not-json": "format", "no-stream": "format",
                        "endless-header": "format", "nothing": "cut"}.items():
        _, r = against(model, code=1)
        same((model, r["completed"], r["errors"]), (model, 0, {kind: 6}))


def test_the_servers_reason_is_told():
    s = Scripted()
    r = run("bench", "serve", "--url", s.url, "--model", "500", "--num", "2", "--input", "5")
    same(r.code, 1)
    assert "2 requests failed: 2 http" in r.text and "status 500: broken on purpose" in r.text, r.text


def test_a_kept_connection_that_the_server_closes_loses_no_request():
    s, r = against("closes", num="40")
    same((r["completed"], r["failed"]), (40, 0))
    same(s.connections, r["connections"])
    s, r = against("says-close", num="10")
    same((r["completed"], r["connections"], r["sent_again"]), (10, 10, 0))


def test_a_server_that_hangs_is_given_up():
    _, r = against("hangs", "--timeout", "0.3", code=1)
    same(r["errors"], {"timeout": 6})


def test_nobody_listens():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        r = bench("--url", f"http://127.0.0.1:{s.getsockname()[1]}", "--model", "x", "--num", "3", code=1)
    same(r["errors"], {"connect": 3})


def test_interrupt_prints_what_there_is():
    s = Scripted()
    p = start("bench", "serve", "--json", "-q", "--url", s.url, "--model", "hangs", "--num", "9", "--concurrency", "3")
    wait_until(lambda: len(s.seen) == 3, "three requests")
    p.send_signal(signal.SIGINT)
    out, _ = p.communicate(timeout=LIMIT_S)
    same(p.returncode, 130)
    r = json.loads(out)
    same((r["interrupted"], r["unfinished"], r["completed"], r["planned"]), (True, 3, 0, 9))


def test_model_key_and_prefix_are_sent():
    s = Scripted()
    bench("--url", s.url + "/v1", "--num", "4", "--input", "6", "--output", "4:9", "--shared-prefix", "20", "--groups", "2",
          "--api-key-env", "SOME_KEY", "--temperature", "0.5", "--ignore-eos", env={"SOME_KEY": "secret"})
    paths = {p for p, _, _ in s.seen}
    same(paths, {"/v1/chat/completions"})
    assert all(h["authorization"] == "Bearer secret" for _, h, _ in s.seen)
    bodies = [b for _, _, b in s.seen]
    assert all(b["model"] == "good" and b["stream"] and b["ignore_eos"] and b["temperature"] == 0.5 for b in bodies)
    assert all(4 <= b["max_tokens"] <= 9 for b in bodies)
    same(len({b["messages"][0]["content"] for b in bodies}), 2)
    assert all(b["messages"][0]["role"] == "system" and len(b["messages"][0]["content"].split()) == 20 for b in bodies)
    same(len({b["messages"][1]["content"] for b in bodies}), 4)
    fails(2, "--api-key-env: the variable NO_KEY is not set", "bench", "serve", "--api-key-env", "NO_KEY", "--url", s.url)


def test_turns_send_all_turns_before():
    s, _ = against("good", "--turns", "3", num="2")
    chats = [b["messages"] for _, _, b in s.seen if len(b["messages"]) == 5]
    same(len(chats), 2)
    for m in chats:
        same([x["role"] for x in m], ["user", "assistant", "user", "assistant", "user"])
        same([m[1]["content"], m[3]["content"]], ["abc", "abc"])
        assert any(b["messages"] == m[:3] for _, _, b in s.seen)


def test_ids_and_lengths_file():
    s = Scripted()
    with tempfile.NamedTemporaryFile("w", suffix=".lengths") as f:
        f.write("# in out\n5 3\n8 2\n")
        f.flush()
        bench("--url", s.url, "--api", "completions", "--ids", "--vocab", "50", "--lengths", f.name)
    got = sorted((len(b["prompt"]), b["max_tokens"], max(b["prompt"]) < 50) for _, _, b in s.seen)
    same(got, [(5, 3, True), (8, 2, True)])


def test_trace_and_dataset():
    s = Scripted()
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "trace.jsonl")
        with open(path, "w") as f:
            for i in range(3):
                f.write(json.dumps({"timestamp": 10 * i, "input_length": 600, "output_length": 7, "hash_ids": [1, 2 + i]}) + "\n")
        r = bench("--url", s.url, "--trace", path, "--jsonl", path + ".out", "--speed", "2")
        same(r["completed"], 3)
        texts = [b["messages"][0]["content"].split() for _, _, b in s.seen]
        same(len({tuple(t[:512]) for t in texts}), 1)
        same(len({tuple(t) for t in texts}), 3)
        lines = [json.loads(l) for l in open(path + ".out")]
        same([round(l["due_ms"]) for l in lines], [0, 5, 10])
        s.seen.clear()
        path = os.path.join(d, "chats.json")
        with open(path, "w") as f:
            json.dump([{"conversations": [{"from": "human", "value": "Hello?"}, {"from": "gpt", "value": "Hi, how are you?"}]}], f)
        bench("--url", s.url, "--dataset", path)
        same([(b["messages"], b["max_tokens"]) for _, _, b in s.seen], [([{"role": "user", "content": "Hello?"}], 4)])


def test_an_open_loop_begins_at_the_seeds_times():
    due = []
    for _ in range(2):
        s = Scripted()
        with tempfile.TemporaryDirectory() as d:
            path, report = os.path.join(d, "lines"), os.path.join(d, "report.json")
            r = bench("--url", s.url, "--num", "20", "--rate", "200", "--jsonl", path, "-o", report, "--input", "5")
            same(json.load(open(report)), r)
            lines = [json.loads(l) for l in open(path)]
        same(r["completed"], 20)
        assert all(l["sent_ms"] >= l["due_ms"] - 0.001 for l in lines)
        due.append([l["due_ms"] for l in lines])
    same(due[0], due[1])
    assert due[0] == sorted(due[0]) and due[0][0] == 0 and due[0][-1] > 0


def test_wrong_usage_is_named():
    for args, needle in [(["--url", "https://a"], "https is not there"), (["--url", "http://"], "expected http://HOST:PORT"),
                         (["--ids"], "--api completions"), (["--slo", "fast=1"], "--slo: 'fast=1' found"),
                         (["--rate", "3", "--trace", "x"], "--rate: not with --trace"),
                         (["--lengths", "a", "--dataset", "b"], "give one of them")]:
        r = run("bench", "serve", *args)
        assert r.code in (1, 2) and needle in r.log, (args, r.log)


def test_vitrine_serve_whole_and_streamed():
    for extra in ([], ["--no-stream"], ["--api", "completions", "--ids", "--vocab", "500"]):
        r = bench("--url", url(), "--num", "4", "--concurrency", "2", "--input", "5", "--output", "3", "--ignore-eos", *extra)
        same((r["completed"], r["tokens_by"], r["output_tokens"]), (4, "usage", 12))


def test_the_second_turn_computes_little_more_than_what_is_new():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "lines")
        r = bench("--url", url(), "--num", "2", "--concurrency", "1", "--turns", "2", "--input", "20", "--output", "3",
                  "--ignore-eos", "--jsonl", path)
        lines = [json.loads(l) for l in open(path)]
    same(r["completed"], 4)
    for first, second in zip(lines[0::2], lines[1::2]):
        same((first["turn"], second["turn"]), (0, 1))
        # all of the first prompt but the last, incomplete page and the opening of the answer
        assert second["cached_tokens"] >= first["prompt_tokens"] - 32, (first, second)
    assert r["turns"][1]["computed_tokens"] < r["turns"][1]["prompt_tokens"] / 2 + 32


if __name__ == "__main__":
    main(globals())
