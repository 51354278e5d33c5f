#!/usr/bin/env python3
"""From a number of `vitrine serve` to what happened: stories in every form, each gap between tokens, exemplars in metrics,
profiles, and the log of steps."""
import re, sys, tempfile, time

from served import *
from tap import *

ONE = {}


def server():
    if "s" not in ONE:
        ONE["folder"] = folder()
        ONE["s"] = Server("--story-dir", ONE["folder"])
    return ONE["s"]


def complete(s, tokens=5, headers=None, **more):
    a = s.post("/v1/completions", {"prompt": "abc", "max_tokens": tokens, "ignore_eos": True, **more}, headers=headers or {})
    same(a.status, 200)
    return a


# ---- forms ----

def test_a_story_comes_in_every_form_that_export_writes():
    s = server()
    story = complete(s).json["timings"]["story"]
    a = s.get(f"/story/{story}?format=json")
    with tempfile.NamedTemporaryFile(suffix=".json") as f:
        f.write(a.body)
        f.flush()
        exported = {form: ok("story", "export", f.name, "--to", form).out for form in ("html", "chrome", "speedscope", "folded", "pftrace")}
    types = {"html": "text/html; charset=utf-8", "folded": "text/plain; charset=utf-8", "pftrace": "application/octet-stream"}
    for form, file in exported.items():
        a = s.get(f"/story/{story}?format={form}")
        same((a.status, a.headers["Content-Type"]), (200, types.get(form, "application/json")), form)
        assert len(a.body) > 100 and a.body[:1] == file[:1], form
    assert exported["html"].startswith(b"<!doctype html>"), exported["html"][:40]
    json.loads(s.get(f"/story/{story}?format=chrome").body)
    json.loads(s.get(f"/story/{story}?format=speedscope").body)


def test_a_browser_gets_a_page():
    s = server()
    story = complete(s).json["timings"]["story"]
    a = s.get(f"/story/{story}", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    same((a.status, a.headers["Content-Type"]), (200, "text/html; charset=utf-8"))
    same(s.get(f"/story/{story}", headers={"Accept": "*/*"}).headers["Content-Type"], "application/json")
    a = s.get(f"/story/{story}?format=pdf")
    same(a.status, 400)
    assert "json, text, html" in a.error["message"], a.error


# ---- each gap ----

def test_each_gap_between_tokens_is_told_where_it_is_asked_for():
    s = server()
    assert "itl_ms" not in complete(s).json["timings"]
    assert "itl_ms" not in complete(s, headers={"X-Vitrine-Story": "0"}).json["timings"]
    ask = {"X-Vitrine-Story": "1"}
    t = complete(s, 9, ask).json["timings"]
    same(len(t["itl_ms"]), 8)
    assert abs(sum(t["itl_ms"]) - t["predicted_ms"]) < 0.01, t
    assert t["queue_ms"] >= 0 and t["chunks"] == 1 and "cache_n" in t, t
    t = complete(s, 4, ask, n=3).json["timings"]
    same([len(gaps) for gaps in t["itl_ms"]], [3, 3, 3])
    last = [e for e in complete(s, 6, ask, stream=True).events if e != "[DONE]"][-1]
    same(len(last["timings"]["itl_ms"]), 5)
    same(complete(s, 1, ask).json["timings"]["itl_ms"], [])


# ---- exemplars ----

OPEN = {"Accept": "application/openmetrics-text;version=1.0.0"}


def exemplars(s, name):
    """[(bound, labels, value)] of a histogram's buckets, as OpenMetrics has them."""
    text = s.get("/metrics", headers=OPEN).body.decode()
    found = re.findall(rf'^vitrine:{name}_bucket{{le="([^"]+)"}} \d+ # {{([^}}]*)}} (\S+) (\d+\.\d+)$', text, re.M)
    return [(float(bound), dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value), float(at)) for bound, labels, value, at in found]


def test_a_bucket_names_the_story_of_one_of_its_requests():
    s = server()
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    t = complete(s, 7, {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}).json["timings"]
    for name in ("time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_latency_seconds", "queue_seconds"):
        of_it = [e for e in exemplars(s, name) if e[1]["story"] == str(t["story"])]
        assert of_it, (name, exemplars(s, name))
        for bound, labels, value, at in of_it:
            same(labels["trace_id"], trace)
            assert value <= bound, (name, bound, value)
            assert abs(at - time.time()) < LIMIT_S, at
    (bound, labels, value, at), = [e for e in exemplars(s, "time_to_first_token_seconds") if e[1]["story"] == str(t["story"])]
    assert abs(value * 1e3 - t["ttft_ms"]) < 0.001, (value, t)
    same(s.get(f"/story/{labels['story']}").status, 200)
    assert b" # {" not in s.get("/metrics").body, "Prometheus's own form has no exemplars"


def test_exemplars_are_read_by_prometheus_client():
    sys.path.append("/usr/lib/python3/dist-packages")
    try:
        from prometheus_client.openmetrics.parser import text_string_to_metric_families
    except ImportError:
        skip("prometheus_client is not installed (Debian: python3-prometheus-client)")
    finally:
        sys.path.pop()
    s = server()
    complete(s)
    with_story = [x for f in text_string_to_metric_families(s.get("/metrics", headers=OPEN).body.decode()) for x in f.samples if x.exemplar]
    assert with_story and all(x.exemplar.labels["story"].isdigit() for x in with_story), with_story


# ---- profiles ----

def test_a_profile_is_a_story_of_the_steps_between_its_ends():
    s = server()
    before = complete(s, 8).json["timings"]["story"]
    assert s.good("/start_profile", {}).json["success"]
    same(s.post("/start_profile", {}).status, 400, "a second one")
    within = [complete(s, 6).json["timings"]["story"] for _ in range(2)]
    a = s.call("POST", "/stop_profile")  # without a body, as some clients do
    same(a.status, 200, a.body)
    file = a.json["file"]
    same(os.path.dirname(file), ONE["folder"])
    with open(file, encoding="utf-8") as f:
        story = json.load(f)
    same(story["schema"], "vitrine.story")
    same(story["requests"]["columns"]["id"], within)
    same(len(story["steps"]["columns"]["id"]), 12)
    whole = s.get("/story/0").json
    assert before in whole["requests"]["columns"]["id"] and len(whole["steps"]["columns"]["id"]) >= 20
    ok("story", "show", file)
    same(s.post("/stop_profile", {}).status, 400, "none runs")


def test_a_profile_without_steps_says_so():
    s = server()
    s.good("/start_profile", {})
    files = sorted(os.listdir(ONE["folder"]))
    a = s.post("/stop_profile", {})
    same((a.status, a.error["message"]), (400, "no file was written: no step has begun since then"))
    same(sorted(os.listdir(ONE["folder"])), files)
    same(s.post("/stop_profile", {}).status, 400, "it has ended all the same")


def test_fields_of_profiles_are_refused_by_name():
    s = server()
    for path in ("/start_profile", "/stop_profile"):
        a = s.post(path, {"output_dir": "/etc"})
        same((a.status, a.error["param"]), (400, "output_dir"))
        same(s.call("POST", path, b"[]").status, 400)
    same(s.post("/stop_profile", {}).status, 400, "none was begun")


# ---- the log of steps ----

def test_steps_are_logged_a_line_each():
    path = os.path.join(folder(), "steps.jsonl")
    for run in (1, 2):  # the second appends
        s = Server("--log-steps", path)
        t = complete(s, 10, {"X-Vitrine-Story": "1"}).json["timings"]
        s.stop()
        with open(path, encoding="utf-8") as f:
            lines = [json.loads(line) for line in f]
        lines = lines[10 * (run - 1):]
        same(len(lines), 10)
        same([x["step"] for x in lines], list(range(lines[0]["step"], lines[0]["step"] + 10)))
        same([x["decodes"] for x in lines], [0] + [1] * 9)
        same([x["tokens"] for x in lines], [t["prompt_n"]] + [1] * 9)
        same({x["sequences"] for x in lines}, {1})
        for x in lines:
            assert abs(x["began"] - time.time()) < LIMIT_S and 0 < x["device_ms"] < 1e3 * LIMIT_S, x
            assert min(x[k] for k in ("schedule_ms", "prepare_ms", "sample_ms", "publish_ms")) >= 0, x
            assert x["pages_used"] + x["pages_cached"] + x["pages_free"] > 0, x
        # the tokens came as far apart as the steps that made them
        ends = [x["began"] * 1e3 + x["device_ms"] for x in lines]
        for gap, (a, b) in zip(t["itl_ms"], zip(ends, ends[1:])):
            assert abs(gap - (b - a)) < 0.1, (gap, b - a)
    same(os.stat(path).st_mode & 0o777, 0o600)


def test_a_log_of_steps_that_cannot_be_opened_is_an_error():
    d = folder()
    fails(1, ["log-steps", d], "serve", "-m", server().model, "--port", "0", "--log-steps", d)
    pipe = os.path.join(d, "pipe")
    os.mkfifo(pipe)
    fails(1, ["log-steps", pipe], "serve", "-m", server().model, "--port", "0", "--log-steps", pipe)


def test_the_server_ends_as_it_should():
    server().stop()


main(globals())
