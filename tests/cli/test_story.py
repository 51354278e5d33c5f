#!/usr/bin/env python3
"""Stories: their sums, their tags, their two forms."""
import json, math, os, tempfile

from tap import *


def story(*args):
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "s.json")
        r = ok("run", f"--story={path}", "--quiet", *FAST, *model(), *args)
        shown = ok("story", "show", path)
        return json.load(open(path)), shown.text, r


def value(x):
    return x["value"]


def hold_to_schema(s):
    """Every story is valid by docs/story-1.schema.json."""
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        skip("python3-jsonschema is not installed")
    schema = json.load(open("docs/story-1.schema.json"))
    Draft202012Validator.check_schema(schema)
    wrong = [f"{e.json_path}: {e.message[:160]}" for e in Draft202012Validator(schema).iter_errors(s)]
    same(wrong, [])


def test_story_is_valid_by_its_schema():
    s, _, _ = story("-n", "6", "--ignore-eos", COUNT)
    hold_to_schema(s)
    for key in ("steps", "phases", "tiers", "machine"):
        broken = {k: v for k, v in s.items() if k != key}
        try:
            hold_to_schema(broken)
        except AssertionError:
            continue
        raise AssertionError(f"a story without {key} passes")


def test_story_has_every_step_and_its_calls():
    s, _, _ = story("-n", "6", "--ignore-eos", COUNT)
    steps, calls = s["steps"], s["calls"]
    for part in (steps, calls):
        same({len(v) for v in part["columns"].values()}, {part["count"]})
        same(part["why"], None)
    same(steps["count"], sum(p["steps"] for p in s["phases"]))
    same(steps["columns"]["prefill"], [1] + [0] * 5)
    same(calls["count"] + calls["left_out"], sum(steps["columns"]["calls"]))
    device_ms = sum(value(p["device_ms"]) for p in s["phases"])
    assert math.isclose(sum(steps["columns"]["ms"]), device_ms, rel_tol=1e-3), device_ms
    c = calls["columns"]
    for step, ms in zip(steps["columns"]["id"], steps["columns"]["ms"]):
        us = [t for i, t in zip(c["step"], c["us"]) if i == step]
        assert not us or sum(us) <= ms * 1e3 * 1.001 + 1, (step, sum(us), ms)
    assert all(0 <= i < len(calls["labels"]) for i in c["label"])


def test_story_adds_up():
    s, _, _ = story("-n", "24", "--ignore-eos", COUNT)
    same((s["schema"], s["version"]), ("vitrine.story", 1))
    q = s["request"]
    parts = sum(value(q[k]) for k in ("queue_ms", "steps_ms", "waits_ms", "tail_ms"))
    assert math.isclose(parts, value(q["total_ms"]), abs_tol=1e-3), (parts, q["total_ms"])
    same([p["name"] for p in s["phases"]], ["prefill", "decode"])
    same(q["completion_tokens"], 24)
    same(len(q["itl_ms"]["values"]), 23)
    for p in s["phases"]:
        same(p["timed_steps"], p["steps"])
        ops = sum(value(o["time_us"]) for o in p["ops"])
        assert math.isclose(ops, value(p["ops_us"]), rel_tol=1e-3), p["name"]
        outside = 1 - value(p["ops_us"]) / value(p["step_us"])
        assert math.isclose(value(p["unexplained"]), outside, abs_tol=1e-3), (p["name"], p["unexplained"], outside)
        told = any(f["rule"] == "time.unexplained" and f["evidence"]["phase"] == p["name"] for f in s["findings"])
        if abs(abs(outside) - 0.02) > 1e-3:  # the amount depends on the machine; whether it is reported does not
            same(told, abs(outside) > 0.02, (p["name"], outside))
        assert math.isclose(sum(value(o["share"]) for o in p["ops"]), 1, abs_tol=1e-3)
    same(s["phases"][1]["tokens"], 23)


def test_story_names_the_context_of_timed_steps():
    s, shown, _ = story("-n", "5", "--ignore-eos", COUNT)
    d = s["phases"][1]
    same((d["timed_kv_first"], d["timed_kv_last"]), (d["kv_first"], d["kv_last"]), "all steps are timed")
    d["timed_steps"], d["timed_kv_first"] = 2, d["kv_last"] - 1
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "s.json")
        json.dump(s, open(path, "w"))
        assert f"[mean of 2, context {d['kv_last'] - 1} to {d['kv_last']}]" in ok("story", "show", path).text


def test_story_says_nothing_of_speed_for_few_tokens():
    few, _, _ = story("-n", "3", "--ignore-eos", COUNT)
    assert "then one every" not in few["headline"] and few["headline"].startswith("First token after"), few["headline"]
    more, _, _ = story("-n", "4", "--ignore-eos", COUNT)
    assert "then one every" in more["headline"], more["headline"]


def test_story_bytes_are_those_of_explain():
    s, _, _ = story("-n", "3", "--ignore-eos", "--tokens", ",".join(["7"] * 40))
    e = ok("explain", "--json", "--prompt", "40", *model()).json
    story_bytes = {o["kind"]: o["expected_bytes"]["weights"] for o in s["phases"][0]["ops"]}
    explain_bytes = {c["name"]: c["read_bytes"]["weights"] + c["write_bytes"]["weights"] for c in e["calls"]}
    for kind, n in story_bytes.items():
        assert math.isclose(n, explain_bytes[kind], abs_tol=1), (kind, n, explain_bytes[kind])


def test_story_show_tells_what_run_tells():
    s, shown, r = story("-n", "6", "--ignore-eos", COUNT)
    same(r.err, b"", "stderr of --quiet with a file")
    assert max(map(len, shown.split("\n"))) <= 100, [l for l in shown.split("\n") if len(l) > 100]
    assert "\033" not in shown
    for word in ("REQUEST 1", "TIME", "PREFILL", "TRANSITION", "DECODE", "ONE DECODE STEP", "MEMORY", "THREADS", "FINDINGS",
                 "NOT MEASURED", "OBSERVER", "hotspot"):
        assert word in shown, word
    for f in s["findings"]:
        assert f["rule"] and f["threshold"] and f["evidence"] and f["text"]
        assert f["rule"] in shown.replace("\n     ", " "), f["rule"]
    direct = ok("run", "--story", "-n", "6", "--ignore-eos", *FAST, *model(), COUNT)
    same(direct.out, r.out, "answers with a story in the terminal and in a file")
    assert "REQUEST 1" in direct.log and "ONE DECODE STEP" in direct.log


def test_story_measures_what_recording_costs():
    s, shown, _ = story("-n", "24", "--ignore-eos", COUNT)
    o = s["observer"]
    same(o["tokens"], 23)
    assert value(o["on_us"]) > 0 and value(o["off_us"]) > 0
    assert math.isclose(value(o["measured_tax"]), value(o["on_us"]) / value(o["off_us"]) - 1, abs_tol=1e-3)
    assert "recorder on" in shown
    short, _, _ = story("-n", "3", "--ignore-eos", COUNT)
    assert "on_us" not in short["observer"], "three tokens are too few to compare"


def tags(x, out):
    if isinstance(x, dict):
        if "tag" in x:
            out.append(x["tag"])
            if x["tag"] == "n/a" and "value" in x:
                assert x["value"] is None
        for v in x.values():
            tags(v, out)
    elif isinstance(x, list):
        for v in x:
            tags(v, out)
    return out


def test_story_numbers_are_tagged():
    s, _, _ = story("-n", "3", "--ignore-eos", COUNT)
    same(set(tags(s, [])), {"measured", "derived", "n/a"})


def test_story_show_survives_strange_files():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "s.json")
        for text in ("", "{", "[]", '{"schema": "vitrine.story", "version": 7}', '{"schema": 3}', "\x00",
                     '{"schema": "vitrine.story", "version": 0}'):
            open(path, "w").write(text)
            fails(1, "s.json", "story", "show", path)
        open(path, "w").write(json.dumps({
            "schema": "vitrine.story", "version": 0, "headline": "a\x1b[31mb" + "x" * 5000, "request": 3, "model": [],
            "timeline": [3, None, {"event": 7, "at_ms": "x"}], "phases": [{"name": "decode", "timed_steps": 1e300,
                "ops": [4, {"kind": "\u202e", "layer_first": 1e30, "layer_last": 2e30}]}],
            "findings": [{}, 3], "threads": [0] * 1000, "not_measured": {}, "observer": {"tax": "x"}}))
        shown = ok("story", "show", path).text
        assert "\x1b" not in shown and "RECORDING" in shown and "nan" not in shown.split("\n")[0], shown
    fails(1, "/no/story.json", "story", "show", "/no/story.json")
    fails(2, "which story", "story", "show")


def test_story_that_cannot_be_written_is_a_failure_after_the_answer():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "s.json")
        os.symlink("/dev/full", path)
        r = run("run", "-n", "4", f"--story={path}", *FAST, *model(), COUNT)
        same(r.code, 1)
        assert r.out and f"{path}: No space left" in r.log, r.log
        same(os.listdir(d), ["s.json"])


main(globals())
