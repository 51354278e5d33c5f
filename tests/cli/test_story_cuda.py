#!/usr/bin/env python3
"""Stories of a CUDA engine on the emulated GPU: their sums, their bytes, what they say about graphs and kernels."""
import json, math, os, tempfile

from tap import *

BUILD = os.environ.get("VITRINE_BUILD", os.path.abspath("build/release"))
EMULATOR = os.path.join(BUILD, "emulator")
GPU = {"LD_LIBRARY_PATH": EMULATOR, "VITRINE_CACHE": os.path.join(os.path.dirname(BUILD), "emulator-cache")}  # no GPU can run its kernels
TINY = ["-m", "tests/golden/models/qwen3-fp8", "--device", "cuda"]
SMALL = ["--max-running", "4", "--max-context", "256", "--kv-memory", "4M", "--token-budget", "64", "--ignore-eos"]
PROMPT = ["--tokens", ",".join(str(i + 1) for i in range(10))]


def need_emulator():
    if not os.path.exists(os.path.join(EMULATOR, "libcuda.so.1")):
        skip("no emulator here: make emulator")


def story(*args):
    need_emulator()
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "s.json")
        r = ok("run", f"--story={path}", "--quiet", *TINY, *SMALL, *PROMPT, *args, env=GPU)
        return json.load(open(path)), ok("story", "show", path).text, r


def value(x):
    return x["value"]


def near(a, b, what):
    assert math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-3), (what, a, b)


def test_cuda_story_adds_up():
    s, _, _ = story("-n", "20")
    same((s["schema"], s["version"], s["engine"]["device"]), ("vitrine.story", 1, "cuda"))
    q = s["request"]
    near(sum(value(q[k]) for k in ("queue_ms", "steps_ms", "waits_ms", "tail_ms")), value(q["total_ms"]), "request")
    same([p["name"] for p in s["phases"]], ["prefill", "decode"])
    for p in s["phases"]:
        near(sum(value(o["time_us"]) for o in p["ops"]), value(p["ops_us"]), p["name"])
        near(value(p["ops_us"]), value(p["step_us"]), p["name"])
        near(sum(value(o["share"]) for o in p["ops"]), 1, p["name"])
    same([p["timed_steps"] for p in s["phases"]], [1, 1], "the prompt, and the first decode")
    same(s["phases"][1]["gpu"]["whole_steps"], 18)
    same(q["completion_tokens"], 20)
    same(q["itl_left_out"], 1)


def test_cuda_story_bytes_are_those_of_explain():
    for kv in ((), ("--kv-dtype", "fp8")):
        bytes_are_those_of_explain(kv)


def bytes_are_those_of_explain(kv):
    s, _, _ = story("-n", "2", *kv)
    for phase, args in ((0, ("--prompt", "10", "--context", "0")), (1, ("--context", "10"))):
        e = ok("explain", "--json", *TINY, *args, *kv, env=GPU).json
        calls = {c["name"]: c for c in e["calls"]}
        ops = {o["kind"]: o for o in s["phases"][phase]["ops"] if o["bound"] != "link"}
        same(sorted(ops), sorted(calls))
        for kind, o in ops.items():
            for part in ("weights", "kv", "activations"):
                same(o["expected_bytes"][part], calls[kind]["read_bytes"][part] + calls[kind]["write_bytes"][part],
                     (kind, part))
            same({k: v for k, v in o["flops"].items() if k != "tag"}, calls[kind]["flops"], kind)


def test_cuda_story_tells_graphs_and_kernels():
    s, shown, _ = story("-n", "12")
    prefill, decode = s["phases"]
    same(decode["gpu"]["how"], "in the graph for 1 sequence, 1 used")
    for p in s["phases"]:
        for o in p["ops"]:
            same(bool(o["kernels"]), o["bound"] != "link", o["kind"])
            if o["kernels"]:
                same(sum(k["launches"] for k in o["kernels"]) >= o["calls"], True, o["kind"])
        assert value(p["gpu"]["kernels_per_step"]) >= sum(o["calls"] for o in p["ops"] if o["kernels"])
        assert value(p["gpu"]["host_to_device_bytes"]) > 0
    upload = next(o for o in prefill["ops"] if o["kind"] == "upload")
    same(upload["expected_bytes"]["activations"], value(prefill["gpu"]["host_to_device_bytes"]))
    assert s["transition"]["before"]["kernel"].startswith("attention_prefill"), s["transition"]
    assert s["transition"]["after"]["kernel"].startswith("attention_decode<"), s["transition"]
    assert max(map(len, shown.split("\n"))) <= 100, [l for l in shown.split("\n") if len(l) > 100]
    for word in ("TRANSITION", "ONE DECODE STEP", "rope_store", "KERNELS of a decode step", "\nGPU\n", "NOT MEASURED",
                 "CUPTI", "1 decode step in 128 runs call by call", "Emulated GPU"):
        assert word in shown, word
    assert "THREADS" not in shown


def test_cuda_story_without_graphs():
    s, _, _ = story("-n", "10", "--no-graphs")
    d = s["phases"][1]
    same(d["gpu"]["how"], "launched kernel by kernel")
    same((d["timed_steps"], d["gpu"]["whole_steps"]), (1, 8))


def test_cuda_roofs_are_measured_and_kept():
    need_emulator()
    gpu = ok("env", "--json", env=GPU).json["gpu"]
    r = {k: f["value"] for k, f in gpu["roofs"]["figures"].items()}
    assert all(r[k] > 0 for k in ("memory_bytes_per_s", "l2_bytes_per_s", "fp32_per_s", "bf16_per_s", "kernel_us")), r
    s, _, _ = story("-n", "2")
    assert value(s["roofs"]["bf16_per_s"]) >= 0.99 * r["bf16_per_s"], "the best that was seen stays"
    text = ok("env", env=GPU).text
    assert "Roofs of the GPU" in text and "L2 read" in text


def test_cuda_story_of_an_emulated_gpu_judges_no_time():
    s, shown, _ = story("-n", "5")
    same((s["engine"]["gpu"]["emulated"], s["findings"]), (True, []))
    assert shown.startswith("An emulated GPU ran this: its times mean nothing."), shown[:300]
    assert "[measured" not in shown and "[derived" not in shown and "[n/a: an emulated GPU]" in shown
    for p in s["phases"]:
        same({o[k]["tag"] for o in p["ops"] for k in ("time_us", "share", "bytes_per_s", "floor_us")}, {"n/a"}, p["name"])
        assert all(o["flops"]["tag"] == "derived" for o in p["ops"]), "FLOPs are exact"
        kernels = [k for o in p["ops"] for k in o["kernels"]]
        assert kernels and all(k["launch"]["threads"] > 0 and k["launch"]["grid"][0] > 0 for k in kernels if k["launch"]), kernels
        assert any(k["launch"] and k["launch"].get("ctas_per_sm", 0) > 0 for k in kernels)
    cache = GPU["VITRINE_CACHE"]
    lines = ok("env", "--jit", env=GPU).text.split("\n")
    assert f"compiled kernels in {cache}/cubin" in lines[0], lines[0]
    assert max(map(len, lines)) <= 100, max(lines, key=len)


main(globals())
