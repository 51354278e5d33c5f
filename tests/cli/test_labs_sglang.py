#!/usr/bin/env python3
"""The labs of the track sglang: each tells every item, its scripts and pages are alive, other tools are wrapped."""
import json, os, re, stat, subprocess, sys, tempfile

from labs_named import check_named
from tap import *

TRACK = "labs/sglang"
BUILD = os.environ.get("VITRINE_BUILD", "build/release")
GPU = {"LD_LIBRARY_PATH": os.path.join(BUILD, "emulator"), "VITRINE_EMULATOR": "cc=90,memory=512",
       "VITRINE_CACHE": os.path.join(os.path.dirname(BUILD), "emulator-cache")}
# Each named thing of the rows of the plan: the process, then the hardware.
ITEMS = {
    "00_check_env": ["topology", "gpus", "links", "groups", "crossings", "memory_roofs", "compute_roofs", "interconnect",
                     "tiers"],
    "01_baseline_perf": ["tokenise", "match", "plan", "steps", "prefill", "layer_ops", "itl_slope", "batch", "transition",
                         "latency", "phase_shares", "flips"],
    "02_radix_cache_analysis": ["hit_miss", "cold_warm", "length_gain", "causal", "concurrent", "eviction", "tree_before",
                                "tree_after", "pressure", "skipped", "access_hit", "access_miss"],
    "03_backend_comparison": ["chosen", "plan_cost", "same_inputs", "engines", "whole_engine", "stalls", "occupancy",
                              "roof_share", "where_wins"],
    "04_timeline_profile": ["load", "steps", "gaps", "slowest_step", "overlap", "kernel_order", "trace", "html",
                            "nsys"],
    "05_attention_deep_dive": ["tiles", "work", "roles", "card", "occupancy", "roofline", "stalls", "counters"],
    "06_tp_scaling": ["flow", "prediction", "share", "skew", "transfer", "link_roof", "sync", "fast_link", "buffers"],
}
# What a CPU cannot show; every other item is told there.
MISSING_ON_CPU = {"html", "gpus", "links", "groups", "pressure", "stalls", "counters", "nsys", "skew", "transfer", "fast_link",
                  "sync", "interconnect"}


def lab(number, d, *args, env=None):
    """Runs a lab with one thread, which other programs of a busy machine disturb least."""
    name = next(n for n in ITEMS if n.startswith(number))
    r = run("lab", "sglang", number, "--quick", "--no-predict", "--again", "--threads", "1", "--results", d, *args, env=env)
    path = os.path.join(d, "sglang", "results", "local", name + ".json")
    return r, json.load(open(path)) if os.path.exists(path) else None


def told(result, name):
    """Every item is a text, a table with rows, a drawing, a number, or missing with a reason."""
    same(sorted(result["items"]), sorted(ITEMS[name]))
    for key, item in result["items"].items():
        if "missing" in item:
            assert len(item["missing"]) > 20, (key, item)
        else:
            assert item.get("text") or item.get("rows") or item.get("drawing") or "value" in item, (key, item)
    return {key for key, item in result["items"].items() if "missing" in item}


def rows(item):
    """A table's cells as texts."""
    return [[cell["text"] for cell in row] for row in item["rows"]]


def check_lab(number, *args, env=None, knobs=True):
    need_model()
    name = next(n for n in ITEMS if n.startswith(number))
    with tempfile.TemporaryDirectory() as d:
        r, result = lab(number, d, *args, env=env)
        assert r.code == 0, r.log[-3000:] + r.text[-3000:]
        missing = told(result, name)
        assert missing <= MISSING_ON_CPU, missing
        check_named("sglang", name, result)
        assert result["checks"] and all(c["ok"] for c in result["checks"]), result["checks"]
        for k in result["knobs"]:
            assert k["why"] and k["verdict"], k
        assert result["knobs"] or not knobs, "no knob was turned"
        assert all(len(line) <= 100 for line in r.text.split("\n")), [s for s in r.text.split("\n") if len(s) > 100]
        return result


def test_check_env_tells_every_item():
    check_lab("00")


def test_baseline_tells_every_item_and_its_options_hold():
    result = check_lab("01", "--prompt", "40", "--gen", "6", "--requests", "3", "--concurrency", "2")
    same([r[1] for r in rows(result["items"]["latency"])], ["1", "1", "3"])
    most = max(int(r[1]) + int(r[2]) for r in rows(result["items"]["batch"]) if r[1].isdigit())
    same(most, 2, "sequences in a step with --concurrency 2")
    assert "40 prompt tokens" in result["items"]["steps"]["drawing"], result["items"]["steps"]


def test_radix_tells_hits_and_evictions():
    result = check_lab("02")
    items = result["items"]
    same([r[1] for r in rows(items["cold_warm"])], ["0", "1023"])
    half = next(r for r in rows(items["causal"]) if r[0].startswith("512"))
    same(half[1:3], ["25 %", "50 %"])
    gone = sum(int(r[1]) for r in rows(items["eviction"]))
    assert gone > 0, items["eviction"]
    assert items["tree_before"]["drawing"] != items["tree_after"]["drawing"]
    assert "0 free" in items["tree_after"]["drawing"], items["tree_after"]["drawing"]


def test_backends_are_compared_by_name():
    result = check_lab("03", "--backends", "portable,fa2", knobs=False)
    runs = {r[1] for r in rows(result["items"]["same_inputs"])}
    same(runs, {"portable"})
    assert any("fa2" in f["text"] for f in result["findings"]), result["findings"]
    assert result["items"]["whole_engine"]["rows"], "no level of a whole engine ran"


def stand_in(d, name, text):
    path = os.path.join(d, name)
    with open(path, "w") as f:
        f.write("#!/bin/sh\n" + text)
    os.chmod(path, 0o755)


NSYS = """[ "$1" = profile ] && {
    while [ "$1" != --output ]; do shift; done
    echo report > "$2.nsys-rep"; shift 2; exec "$@" > /dev/null
}
echo " Time (%)  Total Time (ns)  Instances  Name"; echo "     61.0          1234567         30  gemm_stand_in"
"""


def test_timeline_writes_a_trace_and_wraps_nsys():
    with tempfile.TemporaryDirectory() as d:
        stand_in(d, "nsys", NSYS)
        out = os.path.join(d, "trace.json")
        result = check_lab("04", "--nsys", "--out", out, env={"PATH": d + ":" + os.environ["PATH"]})
        assert "gemm_stand_in" in result["items"]["nsys"]["drawing"], result["items"]["nsys"]
        trace = json.load(open(out))
        assert len(trace["traceEvents"]) > 100
        steps = rows(result["items"]["steps"])
        assert any(int(r[1]) and int(r[2]) for r in steps if r[1].isdigit()), "no step mixes decodes and a prompt"


def test_a_failing_nsys_is_a_missing_item():
    need_model()
    with tempfile.TemporaryDirectory() as d:
        stand_in(d, "nsys", "exit 3\n")
        r, result = lab("04", d, "--nsys", env={"PATH": d + ":" + os.environ["PATH"]})
        same(r.code, 0, r.log)
        assert "status 3" in result["items"]["nsys"]["missing"], result["items"]["nsys"]


def test_a_full_disk_fails_the_lab():
    need_model()
    with tempfile.TemporaryDirectory() as d:
        r, _ = lab("04", d, "--out", "/dev/full")
        assert r.code != 0 and "/dev/full" in r.log, (r.code, r.log)


def test_attention_tells_every_item():
    result = check_lab("05")
    assert "FLOP/byte" in result["items"]["roofline"]["drawing"]


def test_ranks_are_predicted_from_bytes():
    result = check_lab("06", "--ranks", "1,2,8", "--link", "host")
    items = result["items"]
    same({r[2] for r in rows(items["prediction"])}, {"2", "8"})
    assert any(r[0] == "8 MB" for r in rows(items["prediction"]))
    same(items["flow"]["drawing"].count("ALL-REDUCE"), 2)


def test_wrong_options_are_refused_by_name():
    need_model()
    with tempfile.TemporaryDirectory() as d:
        for number, option, value in (("06", "--ranks", "0"), ("06", "--link", "x"), ("05", "--kernel", "rope"),
                                      ("06", "--ranks", "2,"), ("06", "--link", ""), ("06", "--devices", "x"),
                                      ("03", "--backends", "fa9"), ("03", "--backends", "fa2"), ("03", "--backends", ""),
                                      ("03", "--backends", "fa2,fa2,fa2,fa2,fa2")):
            r, result = lab(number, d, option, value)
            assert r.code == 2 and option in r.log and result is None, (option, r.code, r.log)


NCU = """while [ "$1" != --log-file ]; do shift; done
cat > "$2" <<'END'
==PROF== Connected
"ID","Kernel Name","gpu__time_duration.sum","dram__bytes.sum","%s","%s"
"","","ns","byte","inst","inst"
"0","attention_decode<stand in>","12,000","4,194,304","6.0","2.0"
END
""" % tuple(f"smsp__average_warps_issue_stalled_{r}_per_issue_active.ratio" for r in ("long_scoreboard", "barrier"))


def test_ncu_is_wrapped_and_its_counters_are_told():
    if not os.path.exists(os.path.join(BUILD, "emulator", "libcuda.so.1")):
        skip("no emulator here: make emulator")
    with tempfile.TemporaryDirectory() as d:
        stand_in(d, "ncu", NCU)
        r, result = lab("05", d, "--ncu", "--kernel", "attention_decode", "--device", "cuda",
                        env={**GPU, "PATH": d + ":" + os.environ["PATH"]})
        assert r.code == 0, r.log[-2000:] + r.text[-2000:]
        told(result, "05_attention_deep_dive")
        stalls = rows(result["items"]["stalls"])
        same([(row[0], row[2]) for row in stalls], [("long_scoreboard", "75 %"), ("barrier", "25 %")])
        same(rows(result["items"]["counters"])[1][1], "4.19 MB")
        assert any(f["rule"] == "stall.largest" and "long_scoreboard" in f["text"] for f in result["findings"])


# ---- the folder ----

def script(*command, env=None):
    return subprocess.run(command, cwd=TRACK, env=clean_env({"VITRINE": BIN, **(env or {})}), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=LIMIT_S)


def test_scripts_are_reached_by_their_familiar_names():
    familiar = ["00_check_env.py", "01_baseline_perf.py", "02_radix_cache_analysis.py", "03_backend_comparison.py",
                "04_nsys_profile.sh", "05_ncu_attention.sh", "06_tp_scaling.sh"]
    for name in familiar + list(ITEMS):
        path = os.path.join(TRACK, "scripts", name)
        assert os.stat(path).st_mode & stat.S_IXUSR, path
        for command in ([f"./scripts/{name}"], [sys.executable if name.endswith(".py") else "sh", f"scripts/{name}"]):
            r = script(*command, "--help")
            assert r.returncode == 0 and b"vitrine lab" in r.stdout, (command, r)


def test_a_script_runs_its_lab():
    with tempfile.TemporaryDirectory() as d:
        r = script(sys.executable, "scripts/00_check_env.py", "--quick", "--results", d)
        assert r.returncode == 0 and b"LAB sglang 00 check_env" in r.stdout, r
        r = script("./scripts/00_check_env", "--help", env={"VITRINE": "", "PATH": "/usr/bin:/bin"})
        same(r.returncode, 0 if os.path.exists("build/vitrine") else 127, r)  # found above the scripts


LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)(#[^)]*)?\)")


def pages():
    for name in ITEMS:
        path = os.path.join(TRACK, name + ".md")
        yield path, open(path, encoding="utf-8").read()


def test_pages_have_every_part():
    for path, text in pages():
        for part in ("## Goal", "## Concept", "## Run it", "## What to look at", "## Questions", "## In our sources",
                     "## What cannot be shown"):
            assert part in text, (path, part)
        same(text.count("<details>"), 3, path)
        assert f"vitrine lab sglang {os.path.basename(path)[:2]}" in text, path


def test_links_of_pages_are_alive():
    for path, text in pages():
        links = LINK.findall(text)
        assert len(links) >= 4, path
        for label, target, _ in links:
            if "://" in target or target.endswith("GLOSSARY.md") and not os.path.exists("labs/GLOSSARY.md"):
                continue
            full = os.path.normpath(os.path.join(os.path.dirname(path), target))
            assert os.path.exists(full), (path, target)
            if label.startswith("`src/"):
                file, name = label.strip("`").split(": ")
                same(full, file, path)
                assert re.search(rf"\b{re.escape(name)}\b", open(file, encoding="utf-8").read()), (path, label)


main(globals())
