#!/usr/bin/env python3
"""Stories that `vitrine serve` writes into files: of requests beyond a limit of --slo, and upon SIGUSR2.

A limit of a microsecond stands for a slow request: every request misses it, however fast the machine is. A limit of 900,000 ms is one
that none misses."""
import glob, re, stat

from served import *
from tap import *

ASK = {"prompt": "abc", "max_tokens": 3, "ignore_eos": True}


def place(*args, **kw):
    d = os.path.join(folder(), "stories")
    return Server("--story-dir", d, *args, **kw), d


def files(d, kind):
    return sorted(glob.glob(os.path.join(d, kind + "-*.json")))


def counts(s):
    """{'ttft': 1, ..., 'written': 1, ...}"""
    text = s.get("/metrics").body.decode()
    return {k: int(float(v)) for k, v in re.findall(r'^vitrine:(?:slo_missed|story_files)_total\{\w+="(\w+)"\} (\S+)$', text, re.M)}


def line(s, *needles):
    """The one line of the log that holds all of these, once it is there."""
    found = lambda: [l for l in s.log.decode("utf-8", "replace").split("\n")[:-1] if all(n in l for n in needles)]
    wait_until(found, f"a line with {needles}")
    same(len(found()), 1, f"lines with {needles}")
    return found()[0]


def test_a_request_beyond_a_limit_has_its_story_written():
    s, d = place("--slo", "ttft=0.001,e2e=900000")
    answer = s.good("/v1/completions", ASK, headers={"X-Request-Id": "slow-one"}).json
    told = line(s, "id=slow-one", "finish=length")
    assert " missed=ttft " in told and f" story_file={d}/missed-{s.process.pid}-1.json" in told, told
    wait_until(lambda: counts(s)["written"] == 1, "the file")
    path, = files(d, "missed")
    assert path in told
    story = json.load(open(path))
    same((story["schema"], story["request"]["id"], story["request"]["completion_tokens"]), ("vitrine.story", answer["timings"]["story"], 3))
    same([stat.S_IMODE(os.stat(p).st_mode) for p in (path, d)], [0o600, 0o700])
    same(counts(s), {"ttft": 1, "itl": 0, "tpot": 0, "e2e": 0, "written": 1, "failed": 0, "skipped": 0})
    ok("story", "show", path)
    # too soon for another: counted, and no file
    s.good("/v1/completions", ASK, headers={"X-Request-Id": "slow-two"})
    told = line(s, "id=slow-two", "finish=length")
    assert " missed=ttft " in told and "story_file" not in told, told
    same(counts(s), {"ttft": 2, "itl": 0, "tpot": 0, "e2e": 0, "written": 1, "failed": 0, "skipped": 1})
    same(files(d, "missed"), [path])
    s.stop()


def test_every_limit_is_looked_at():
    s, _ = place("--slo", "itl=0.001,tpot=0.001,e2e=0.001", "--log-requests", "json")
    s.good("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "n": 2, "max_tokens": 3, "ignore_eos": True},
           headers={"X-Request-Id": "both"})
    told = json.loads(line(s, '"both"'))
    same(told["missed"], "itl,tpot,e2e")
    wait_until(lambda: os.path.exists(told["story_file"]), "the file")
    # one token has no gap; a request that is refused has no time at all
    s.good("/v1/completions", {**ASK, "max_tokens": 1}, headers={"X-Request-Id": "one-token"})
    same(json.loads(line(s, '"one-token"'))["missed"], "e2e")
    same(s.post("/v1/completions", {"prompt": []}, headers={"X-Request-Id": "refused"}).status, 400)
    assert "missed" not in json.loads(line(s, '"refused"'))
    same({k: v for k, v in counts(s).items() if k in ("ttft", "itl", "tpot", "e2e")}, {"ttft": 0, "itl": 1, "tpot": 1, "e2e": 2})
    s.stop()


def test_a_client_that_leaves_too_late_has_missed_its_limit():
    s, d = place("--slo", "e2e=0.001")
    c = s.connect()
    body = json.dumps({**ASK, "max_tokens": 400, "stream": True}).encode()
    c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    assert c.recv(100)
    c.close()
    assert "missed=e2e" in line(s, "finish=abort")
    wait_until(lambda: files(d, "missed"), "the file")
    s.stop()


def test_requests_within_the_limits_leave_no_trace():
    s, d = place("--slo", "ttft=900000,itl=900000,tpot=900000,e2e=900000")
    s.good("/v1/completions", ASK, headers={"X-Request-Id": "quick"})
    assert "missed" not in line(s, "id=quick")
    same(set(counts(s).values()), {0})
    same(os.listdir(d), [])
    s.stop()
    s, d = place()
    s.good("/v1/completions", ASK)
    same(counts(s), {"written": 0, "failed": 0, "skipped": 0})
    assert not os.path.exists(d)
    s.stop()


def test_sigusr2_writes_the_last_steps():
    s, d = place()
    s.good("/v1/completions", ASK)
    ok("story", "dump", str(s.process.pid))
    wait_until(lambda: b"the last steps are in " in s.log, "the line")
    path, = files(d, "story")
    assert f"vitrine: the last steps are in {path}" in s.log.decode()
    story = json.load(open(path))
    same((story["schema"], story["request"]), ("vitrine.story", None))
    assert story["steps"]["count"] >= 3, story["steps"]["count"]
    same(stat.S_IMODE(os.stat(path).st_mode), 0o600)
    ok("story", "dump", str(s.process.pid))
    wait_until(lambda: len(files(d, "story")) == 2, "another, at once")
    s.alive()
    s.stop()


def test_sigusr2_while_requests_run_stops_none():
    s, d = place()
    c = s.connect()
    body = json.dumps({**ASK, "max_tokens": 400, "stream": True}).encode()
    c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    data = c.recv(100)
    for _ in range(3):
        ok("story", "dump", str(s.process.pid))
    while piece := c.recv(65536):
        data += piece
    assert data.rstrip().endswith(b"[DONE]\n\n\r\n0") and b'"finish_reason":"length"' in data, data[-300:]
    wait_until(lambda: files(d, "story"), "a file")
    s.stop()


def test_a_file_is_written_without_measuring_the_machine():
    """Which would take the engine's cores for seconds. The roofs are measured before the server listens."""
    cache = folder()
    s, d = place("--slo", "ttft=0.001", env={"VITRINE_CACHE": cache})
    known = lambda: {f.split("-")[0] for f in os.listdir(cache) if f.endswith(".json")}
    same(known(), {"roofs"})
    story = s.good("/v1/completions", ASK).json["timings"]["story"]
    wait_until(lambda: counts(s)["written"] == 1, "the file")
    ok("story", "dump", str(s.process.pid))
    wait_until(lambda: counts(s)["written"] == 2, "the other file")
    same(known(), {"roofs"})
    same(s.get(f"/story/{story}").status, 200)
    same(known(), {"roofs"})
    s.stop()


def test_a_folder_that_cannot_be_written_is_told():
    s, d = place("--slo", "ttft=0.001")
    os.rmdir(d)
    open(d, "w").close()
    s.good("/v1/completions", ASK, headers={"X-Request-Id": "slow"})
    told = line(s, "no story was written")
    assert told.startswith("vitrine: request slow missed ttft, no story was written: ") and d in told, told
    same(counts(s)["failed"], 1)
    s.alive()
    s.stop()
    fails(1, d, "serve", "-m", s.model, "--slo", "ttft=5", "--story-dir", d + "/below", "--kv-memory", "4M")


def test_limits_that_are_none_are_refused():
    for text in ("", "ttft", "ttft=", "ttft=0", "ttft=-1", "ttft=nan", "fast=1", "ttft=1;itl=2"):
        fails(2, "--slo: ", "serve", "--slo", text)


main(globals())
