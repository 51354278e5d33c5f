#!/usr/bin/env python3
"""Stories of a CUDA engine on the emulated GPU: their sums, their bytes, what they say about graphs and kernels."""
import glob, json, math, os, re, signal, tempfile

from served import Server, wait_until
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
    # the prompt; the first decode, and every eighth after it while there is credit
    timed = s["phases"][1]["timed_steps"]
    assert s["phases"][0]["timed_steps"] == 1 and 1 <= timed <= 3, [p["timed_steps"] for p in s["phases"]]
    same(s["phases"][1]["gpu"]["whole_steps"], 19 - timed)
    same((q["completion_tokens"], q["itl_left_out"]), (20, timed))


def test_story_of_two_gpus_tells_waiting_and_moving_apart():
    need_emulator()
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "s.json")
        ok("run", f"--story={path}", "--quiet", "-m", "tests/golden/models/llama-gqa8-llama3-f32", "--device", "cuda", "--tp", "2",
           *SMALL, *PROMPT, "-n", "6", env={**GPU, "VITRINE_EMULATOR": "devices=2"})
        s, text = json.load(open(path)), ok("story", "show", path).text
    ranks = s["ranks"]["items"]
    same(len(ranks), 2)
    for r in ranks:
        c = r["communication"]
        calls = c["calls"]
        assert calls > 0 and value(c["wait_ms"]) > 0 and value(c["transfer_ms"]) >= 0 and value(c["bytes"]) > 0, c
        assert value(c["wait_ms"]) <= value(r["wait_ms"]) + 1e-3 and value(c["transfer_ms"]) <= value(r["busy_ms"]) + 1e-3, r
        assert value(r["wait_ms"]) + value(r["busy_ms"]) <= value(r["device_ms"]) + 1e-3, r
    assert text.count(f"in {ranks[0]['communication']['calls']} communication calls it waited") >= 1, text


def test_story_of_ranks_sums_to_its_step():
    """The first call of a step takes in neither uploads nor waits: whatever a rank does before its first kernel is an op of its own."""
    for devices in (2, 1):
        s, *_ = of_ranks("--quiet", devices)
        same([p["name"] for p in s["phases"]], ["prefill", "decode"])
        for p in s["phases"]:
            ops = {o["kind"]: o for o in p["ops"]}
            same(ops["ranks"]["bound"], "host")
            near(sum(value(o["time_us"]) for o in p["ops"]), value(p["ops_us"]), p["name"])
            near(value(p["ops_us"]), value(p["step_us"]), p["name"])
            assert abs(value(p["unexplained"])) < 1e-3, p["unexplained"]
        c = s["calls"]["columns"]
        ends = {}
        for step, begin, us in zip(c["step"], c["begin_us"], c["us"]):
            assert begin >= ends.get(step, 0) - 0.02, (step, begin, ends[step])
            ends[step] = begin + us
        length = dict(zip(s["steps"]["columns"]["id"], s["steps"]["columns"]["ms"]))
        assert all(end <= length[step] * 1e3 + 0.02 for step, end in ends.items()), (ends, length)


def test_cuda_story_bytes_are_those_of_explain():
    for kv in ((), ("--kv-dtype", "fp8")):
        bytes_are_those_of_explain(kv)


def bytes_are_those_of_explain(kv):
    s, _, _ = story("-n", "2", *kv)
    for phase, args in ((0, ("--prompt", "10", "--context", "0")), (1, ("--context", "10"))):
        e = ok("explain", "--json", *TINY, *args, *kv, env=GPU).json
        calls = {c["name"]: c for c in e["calls"]}
        ops = {o["kind"]: o for o in s["phases"][phase]["ops"] if o["bound"] not in ("link", "host")}
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
            same(bool(o["kernels"]), o["bound"] not in ("link", "host"), o["kind"])
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
                 "--story-counters", "1 decode step in ", "Emulated GPU"):
        assert word in shown, word
    assert "THREADS" not in shown


def test_cuda_story_without_graphs():
    s, _, _ = story("-n", "10", "--no-graphs")
    d = s["phases"][1]
    same(d["gpu"]["how"], "launched kernel by kernel")
    assert 1 <= d["timed_steps"] <= 2, d["timed_steps"]
    same(d["gpu"]["whole_steps"], 9 - d["timed_steps"])


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


def planted(**env):
    """A story with counters of the emulated CUPTI, how its terminal form reads, and the run."""
    need_emulator()
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "s.json")
        r = ok("run", f"--story={path}", "--story-counters", *TINY, *SMALL, *PROMPT, "-n", "40", env={**GPU, **env})
        return json.load(open(path)), ok("story", "show", path).text, r


def test_counters_stand_beside_the_calls_that_they_were_counted_in():
    s, text, _ = planted()
    c = s["gpu_counters"]
    same((c["tier"], c["why"], c["not_counted"], s["tiers"]["T3"]["used"]), ("T3", None, [], True))
    same([p["name"] for p in c["phases"]], ["decode"], "the only prompt step was timed")
    decode, at = c["phases"][0], {}
    for o in decode["ops"]:
        # the emulated library reads 1000000 + 1000 * number of the call (tests/emulator/cupti.c)
        number = (value(o["dram_read"]) - 1e6 * o["calls"]) / 1000
        assert o["calls"] == 1 and number == int(number), o
        near(value(o["dram_written"]), 20000, o["kind"])
        for key, planted_value in (("sm", 0.9), ("tensor", 0.125), ("dram", 0.625), ("l2_hit", 0.25), ("occupancy", 0.5)):
            same((value(o[key]), o[key]["tag"]), (planted_value, "measured"), key)
        near(value(o["of_compulsory"]), (value(o["dram_read"]) + 20000) / value(o["compulsory_bytes"]), o["kind"])
        at[int(number)] = o
    same([at[k]["kind"] for k in sorted(at)],
         ["embed", "linear.qkv", "rope_store", "attention_decode", "linear.o", "linear.gate+up", "linear.down", "rmsnorm.final",
          "linear.head", "sample"], "in the program's order")
    # what an op must move is the same in timed and in counted steps, but for KV
    for o in s["phases"][1]["ops"]:
        mine = [x for x in decode["ops"] if x["kind"] == o["kind"]]
        if mine and o["op"] == "linear":
            near(value(mine[0]["compulsory_bytes"]), sum(o["expected_bytes"][k] for k in ("weights", "kv", "activations")), o["kind"])
    # counted steps are in no time: neither among the timed ones, nor among those left alone
    gpu, n = s["phases"][1]["gpu"], decode["counted_steps"]
    timed = s["phases"][1]["timed_steps"]
    left_out = 39 - gpu["whole_steps"]  # and the step behind each, unless it is one of them
    assert n == 12 and timed + n < left_out <= timed + 2 * n, (n, timed, left_out)
    same(s["request"]["itl_left_out"], left_out)
    for part in ("COUNTERS of a decode step", "[measured by tier T3 in 12 steps of their own]", "linear.gate+up    90 %    12 %    62 %"):
        assert part in text, text


def test_counters_tell_what_warps_waited_for_by_sets_that_take_turns():
    s, text, _ = planted()
    c = s["gpu_counters"]
    reasons = {r["reason"]: r for r in c["reasons"]}
    for o in c["phases"][0]["ops"]:
        waits = [(w["reason"], value(w["share"])) for w in o["waits"]]
        same(waits[:4], [("long_scoreboard", 0.25), ("selected", 0.2), ("wait", 0.17), ("barrier", 0.15)], o["kind"])
        same((len(waits), round(sum(share for _, share in waits), 6)), (19, 1.0), "all reasons, all cycles")
        assert all(reasons[w["reason"]]["meaning"] for w in o["waits"]), o
        same([value(o[k]) for k in ("loads", "load_sectors", "local_loads", "instructions")], [100, 1600, 0, 2000], o["kind"])
    assert re.search(r"WAITS of the warps of a decode step,.*linear.gate\+up +20 % +memory 25 % +fixed delay 17 % +barrier 15 %", text, re.S), text
    assert "barrier: a warp waits for other warps of its CTA" in " ".join(text.split()), text


def test_counters_of_prompts_come_from_a_prompt_step_that_is_not_timed():
    s, text, _ = planted()
    assert "COUNTERS of a prefill step" not in text
    need_emulator()
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "s.json")
        prompt = ["--tokens", ",".join(str(i % 60 + 1) for i in range(40))]
        ok("run", f"--story={path}", "--story-counters", *TINY, *SMALL, "--token-budget", "16", *prompt, "-n", "8", env=GPU)
        s = json.load(open(path))
    prefill = s["gpu_counters"]["phases"][0]
    same((prefill["name"], prefill["counted_steps"]), ("prefill", 2))
    same([w["reason"] for w in prefill["ops"][0]["waits"]], ["long_scoreboard", "barrier", "short_scoreboard"], "of two sets")
    assert "attention_prefill" in [o["kind"] for o in prefill["ops"]], prefill


def test_counters_that_are_missing_are_told_and_change_no_answer():
    plain = planted()[2].text
    for word, why in (("forbidden", "NVreg_RestrictProfilingToAdminUsers=0"), ("watched", "another profiler"),
                      ("drop", "CUPTI dropped"), ("vgpu", "a virtual GPU is switched off")):
        s, text, r = planted(EMULATED_CUPTI=word)
        assert why in s["gpu_counters"]["why"] and why in s["tiers"]["T3"]["why"], (word, s["gpu_counters"])
        same((s["gpu_counters"]["phases"], s["tiers"]["T3"]["used"]), ([], False), word)
        assert "COUNTERS of" not in text and why in " ".join(text.split()), text
    s, text, _ = planted(EMULATED_CUPTI="no=sm__cycles_active.avg.pct_of_peak_sustained_elapsed")
    same([x["counter"] for x in s["gpu_counters"]["not_counted"]], ["sm"])
    same(set(value(o["sm"]) for o in s["gpu_counters"]["phases"][0]["ops"]), {None})
    assert "linear.gate+up    n/a    12 %" in text, text
    same(planted(EMULATED_CUPTI="forbidden")[2].text.split("tokens")[0], plain.split("tokens")[0], "the answer")
    s, text, _ = story("-n", "4")
    same((s["gpu_counters"], s["tiers"]["T3"]["why"]), (None, "--story-counters reads them"))


def test_counters_that_no_story_would_show_are_refused():
    need_emulator()
    r = run("run", "--story-counters", *TINY, *SMALL, *PROMPT, "-n", "2", env=GPU)
    assert r.code == 2 and "story-counters needs story" in r.log, r.log
    r = run("run", "--story-counters", "--story", "-m", TINY[1], "--device", "cpu", *PROMPT, "-n", "2")
    assert r.code != 0 and "story-counters reads a GPU's counters, and the device is cpu" in r.log, r.log
    r = run("run", "--story-counters", "--story", *TINY[:2], "--device", "cuda:0,0", "--tp", "2", *SMALL, *PROMPT, "-n", "2", env=GPU)
    assert r.code == 1 and "story-counters counts on ranks that have a GPU each, and ranks 0 and 1 share cuda:0" in r.log, r.log
    r = run("run", "--tp-link", "host", *TINY, *SMALL, *PROMPT, "-n", "2", env=GPU)
    assert r.code == 2 and "tp-link is host, which is for several ranks on GPUs; tp is 1" in r.log, r.log


def recorded(*args, **env):
    """A story with records of the emulated CUPTI, how its terminal form reads, and the run."""
    need_emulator()
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "s.json")
        r = ok("run", f"--story={path}", "--story-activity", *TINY, *SMALL, *PROMPT, "-n", "40", *args, env={**GPU, **env})
        return json.load(open(path)), ok("story", "show", path).text, r


def test_records_of_kernels_belong_to_the_calls_that_launched_them():
    s, text, _ = recorded()
    a = s["activity"]
    same((a["tier"], a["why"], a["lost"], s["tiers"]["T1"]["used"]), ("T1", None, 0, True))
    same([p["name"] for p in a["phases"]], ["decode"], "the only prompt step was stamped")
    p = a["phases"][0]
    # the emulated library lets a kernel take 1,000 ns, and the next one begin 200 ns later (tests/emulator/cupti_activity.c)
    for o in p["ops"]:
        # the first call counts from its own begin
        same((o["calls"], value(o["time_us"]), value(o["kernel_us"]), len(o["kernels"])), (1, 1 if o["kind"] == "embed" else 1.2, 1, 1), o["kind"])
        same((o["kernels"][0]["library"], o["kernels"][0]["launches"], value(o["kernels"][0]["each_us"])), (False, 1, 1), o["kind"])
    same(sorted(o["kind"] for o in p["ops"]), sorted(o["kind"] for o in s["phases"][1]["ops"] if o["kind"] not in ("upload", "launch", "results")))
    same((a["broken_steps"], value(p["unknown"]), value(p["records"]), p["copies"]["count"]), (0, 0, 12, 2))
    same((value(p["calls_us"]), value(p["step_us"])), (11.8, 13.2), "ten calls, with two copies around them")
    columns, labels = p["newest"]["columns"], s["calls"]["labels"]
    same(columns["in_graph"], [0] + 10 * [1] + [0], "copies lie around the graphs")
    same((labels[columns["label"][1]], labels[columns["label"][10]], columns["label"][0], columns["label"][11]), ("embed", "sample", None, None))
    same(columns["end_us"][1], 1.7)
    # recorded steps are in no time
    gpu, n = s["phases"][1]["gpu"], p["recorded_steps"]
    timed, left_out = s["phases"][1]["timed_steps"], 39 - gpu["whole_steps"]  # and the step behind each, unless it is one of them
    assert 6 <= n <= 8 and timed + n < left_out <= timed + 2 * n, (n, timed, left_out)
    for part in ("RECORDS of a decode step", f"[measured by tier T1 in {n} steps of their own]", "2 copies of "):
        assert part in text, text


def test_records_of_prompts_come_from_a_prompt_step_that_is_not_stamped():
    s, text, _ = recorded("--token-budget", "16", "--tokens", ",".join(str(i % 60 + 1) for i in range(40)))
    prefill = s["activity"]["phases"][0]
    same((prefill["name"], prefill["recorded_steps"], s["activity"]["broken_steps"], value(prefill["unknown"])), ("prefill", 2, 0, 0))
    assert "attention_prefill" in [o["kind"] for o in prefill["ops"]] and "RECORDS of a prefill step" in text, prefill


def test_records_outside_graphs_belong_to_their_calls_too():
    a = recorded("--no-graphs")[0]["activity"]
    p = a["phases"][0]
    same((a["broken_steps"], value(p["unknown"]), set(p["newest"]["columns"]["in_graph"])), (0, 0, {0}))
    same({(o["calls"], value(o["kernel_us"])) for o in p["ops"]}, {(1, 1)})


def test_records_that_are_missing_are_told_and_change_no_answer():
    plain = recorded()[2].text.split("tokens")[0]
    s, text, r = recorded(EMULATED_CUPTI="watched")
    assert "another profiler" in s["activity"]["why"] and "another profiler" in s["tiers"]["T1"]["why"], s["activity"]
    same((s["activity"]["phases"], s["tiers"]["T1"]["used"], "RECORDS of" in text, r.text.split("tokens")[0]), ([], False, False, plain))
    s, text, r = recorded(EMULATED_CUPTI="lose=40")
    p = s["activity"]["phases"]
    assert s["activity"]["lost"] >= 40 and p == [] and r.text.split("tokens")[0] == plain, s["activity"]
    s, text, r = recorded(EMULATED_CUPTI="nodes=0")
    assert s["activity"]["broken_steps"] >= 6 and s["activity"]["phases"] == [] and "left out, whose records are not whole" in text, text
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "s.json")
        ok("run", f"--story={path}", *TINY, *SMALL, *PROMPT, "-n", "4", env=GPU)
        s = json.load(open(path))
    same((s["activity"], s["tiers"]["T1"]["why"]), (None, "--story-activity reads them"))


def test_records_are_refused_where_nobody_would_see_them():
    for args, why in ((TINY, "story-activity needs story"),
                      ([*TINY, "--story", "--story-counters"], "story-activity and story-counters both watch the GPU through CUPTI"),
                      ([*TINY, "--story", "--story-lanes"], "story-activity and story-lanes both watch the GPU through CUPTI"),
                      (["-m", TINY[1], "--device", "cpu", "--story"], "story-activity watches a GPU's kernels, and the device is cpu")):
        need_emulator()
        r = run("run", "--story-activity", *args, *SMALL, *PROMPT, "-n", "2", env=GPU)
        assert r.code != 0 and why in r.log, r.log


def waves_of(ctas):
    """How many CTAs are in each wave: one more than those of the same SM that had ended when they began."""
    wave, count = [0] * len(ctas), {}
    for i in sorted(range(len(ctas)), key=lambda k: ctas[k][1]):
        sm, begin, _ = ctas[i]
        wave[i] = 1 + max([wave[k] for k, (s, _, end) in enumerate(ctas) if s == sm and end <= begin and k != i], default=0)
        count[wave[i]] = count.get(wave[i], 0) + 1
    return [count[k] for k in sorted(count)]


def test_maps_of_ctas_say_where_each_of_them_ran():
    s, text, r = story("-n", "20", "--story-ctas")
    same(r.text.split("tokens")[0], story("-n", "20")[2].text.split("tokens")[0])
    x, kernels = s["ctas"], {k["name"]: k for p in s["phases"] for o in p["ops"] for k in o["kernels"]}
    same((x["why"], x["sms"], [t["phase"] for t in x["steps"]]), (None, 4, ["prefill", "decode"]))
    for t in x["steps"]:
        same((t["of_libraries"], t["left_out"]), (0, 0))
        kinds = {o["kind"] for p in s["phases"] if p["name"] == t["phase"] for o in p["ops"]} - {"upload", "launch", "results"}
        same({m["kind"] for m in t["maps"]}, kinds)
        for m in t["maps"]:
            c = list(zip(*(m["columns"][k] for k in ("sm", "begin_ns", "end_ns"))))
            same((len(c), m["not_known"], m["sms"]), (m["ctas"], 0, len({sm for sm, _, _ in c})))
            # the emulated GPU gives CTAs to its SMs in turn
            same([sm for sm, _, _ in c], [i % x["sms"] for i in range(m["ctas"])])
            same(min(b for _, b, _ in c), 0)
            assert all(e > b for _, b, e in c), m
            same((m["in_wave"], m["waves"]), (waves_of(c), len(waves_of(c))))
            last = max(e for _, _, e in c)
            near(value(m["time_us"]), last / 1e3, m["label"])
            done = min(max(e for s_, _, e in c if s_ == sm) for sm, _, _ in c)
            near(value(m["tail_us"]), (last - done) / 1e3, m["label"])
            busy = sum(e - b for _, b, e in c)  # CTAs of the emulator do not overlap
            near(value(m["busy"]), busy / last / x["sms"], m["label"])
            if m["kernel"] in kernels and t["phase"] == "decode":
                same(m["ctas"], math.prod(kernels[m["kernel"]]["launch"]["grid"]))
    # the decode step is in no time
    same(s["phases"][1]["gpu"]["whole_steps"], 19 - 1 - s["phases"][1]["timed_steps"])
    lane, = [l for l in s["lanes"]["items"] if l["name"] == "SM busy"]
    same(len(lane["values"]), 512)
    for i, t in enumerate(x["steps"]):
        begin, ms = next((b, ms) for k, b, ms in zip(*(s["steps"]["columns"][k] for k in ("id", "begin_ms", "ms"))) if k == t["step"])
        at, values = lane["begin_ms"][256 * i:256 * i + 256], lane["values"][256 * i:256 * i + 256]
        assert abs(at[0] - begin) < 2e-3 and abs(at[-1] - begin - ms) < 2e-3 and values[-1] is None, (at[0], begin, at[-1], ms)
        assert all(0 <= v <= 0.2501 for v in values[:-1]) and max(values[:-1]) > 0.1, values  # one CTA at a time, of four SMs
    flat = " ".join(text.split())
    gate = next(m for m in x["steps"][1]["maps"] if m["kind"] == "linear.gate+up")
    assert f"CTAS of step {x['steps'][1]['step']}, a decode step, SM by SM" in text, text
    assert f"{gate['ctas']} CTAs on 4 of 4 SMs in 5 waves of 4, 4, 4, 4 and 2" in flat and "SM 3 " in text, text


def test_ctas_that_cannot_be_stamped_are_refused():
    need_emulator()
    for args, why in (((), "story-ctas needs story, which shows what it sees"),
                      (("--story", "--tp", "2"), "story-ctas stamps the kernels of one GPU, and tp is 2")):
        r = run("run", "--story-ctas", *args, *TINY, *SMALL, *PROMPT, "-n", "2", env={**GPU, "VITRINE_EMULATOR": "devices=2"})
        assert r.code != 0 and why in r.log, r.log
    r = run("run", "--story-ctas", "--story", *FAST, *model(), "-n", "2", "x")
    assert r.code != 0 and "story-ctas stamps a GPU's kernels, and the device is cpu" in r.log, r.log
    with tempfile.TemporaryDirectory() as d:  # a timer of 1 us
        path = os.path.join(d, "s.json")
        ok("run", f"--story={path}", "--quiet", "--story-ctas", *TINY, *SMALL, *PROMPT, "-n", "6", env={**GPU, "VITRINE_EMULATOR": "cc=80"})
        s = json.load(open(path))
    assert s["ctas"]["steps"] == [] and "too coarse to stamp kernels" in s["ctas"]["why"], s["ctas"]
    assert any("too coarse" in m["why"] for m in s["not_measured"]), s["not_measured"]


def sampled(words, *args):
    """A story with lines, of samples that are planted (tests/emulator/cupti_pc.c), how its terminal form reads, and the run."""
    need_emulator()
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "s.json")
        r = ok("run", f"--story={path}", "--story-lines", *TINY, *SMALL, *PROMPT, "-n", "40", *args, env={**GPU, "EMULATED_CUPTI": words})
        page = ok("story", "export", path, "--to", "html", "-o", os.path.join(d, "p.html")) and open(os.path.join(d, "p.html")).read()
        return json.load(open(path)), ok("story", "show", path).text, page, r, ok("story", "show", path, "--op", "rmsnorm.final").text


def test_lines_at_which_warps_wait_stand_at_the_ops_that_run_them():
    s, text, page, _, card = sampled("pc=rmsnorm:rmsnorm.cu:40:barrier:30,pc=rmsnorm:rmsnorm.cu:41:long_scoreboard:60,"
                               "pc=rmsnorm:rmsnorm.cu:41:wait:10,pc=attention_decode:attention_decode.cu:9:selected:20,pc=nvjet:x.cu:1:wait:5")
    x = s["lines"]
    same((x["tier"], x["why"], x["own"], x["at_a_line"], x["of_libraries"], x["lost"], x["whole"]), ("T4", None, 120, 120, 5, 0, True))
    same((x["steps"], s["tiers"]["T4"]["used"]), (32, True))
    norm, attention = x["kernels"]
    assert norm["name"].startswith("rmsnorm<") and norm["ops"] and all(o.startswith("rmsnorm.") for o in norm["ops"]), norm
    same((attention["ops"], attention["samples"], norm["samples"]), (["attention_decode"], 20, 100))
    same([(l["file"], l["line"], l["samples"], value(l["share"])) for l in norm["lines"]],
         [("rmsnorm.cu", 41, 70, 0.7), ("rmsnorm.cu", 40, 30, 0.3)])
    same([(w["reason"], value(w["share"])) for w in norm["lines"][0]["waits"]], [("long_scoreboard", 0.8571), ("wait", 0.1429)])
    source = open(glob.glob("src/ops/*/rmsnorm.cu")[0]).read().split("\n")
    same([l["text"] for l in norm["lines"]], [source[40].strip(), source[39].strip()])
    for part in ("LINES at which the warps of decode steps were", "70.0 % rmsnorm.cu:41", "86 % memory", "4.0 % in a library's kernels"):
        assert part in " ".join(text.split()), text
    # in the op's card: of its kernel, in the page, and where the op is shown alone
    before, kernels = text.split("KERNELS of a decode step")
    assert "70.0 % rmsnorm.cu:41" in kernels and "rmsnorm.cu:41" not in before, text
    assert "70.0 % rmsnorm.cu:41" in card and "attention_decode.cu:9" not in card, card
    assert "rmsnorm.cu:41" in page.split('id="kernels"')[1].split("</section>")[0], page
    # sampled steps, and the one behind them, are in no time
    assert s["phases"][1]["gpu"]["whole_steps"] <= 39 - 32 - s["phases"][1]["timed_steps"], s["phases"][1]


def test_lines_that_are_missing_are_told_and_change_no_answer():
    plain = sampled("")[3].text.split("tokens")[0]
    for word, why in (("forbidden", "NVreg_RestrictProfilingToAdminUsers=0"), ("watched", "another profiler"), ("", "no sample was taken")):
        s, text, _, r, _ = sampled(word)
        assert why in s["lines"]["why"] and why in s["tiers"]["T4"]["why"], (word, s["lines"])
        same((s["lines"]["kernels"], s["tiers"]["T4"]["used"], "LINES at" in text, r.text.split("tokens")[0]), ([], False, False, plain))
    r = run("run", "--story-lines", *TINY, *SMALL, *PROMPT, "-n", "2", env=GPU)
    assert r.code == 2 and "story-lines needs story, which shows what it sees" in r.log, r.log
    r = run("run", "--story-lines", "--story-activity", "--story", *TINY, *SMALL, *PROMPT, "-n", "2", env=GPU)
    assert r.code == 2 and "story-lines and story-activity both watch the GPU through CUPTI" in r.log, r.log


LANES = ["sm", "tensor", "dram_read", "dram_written", "l2_hit", "pcie_in", "pcie_out"]


def lanes(*args, **env):
    """A story with counters over time, the folder's form of it, how its terminal form reads, its chrome trace, and the run."""
    need_emulator()
    with tempfile.TemporaryDirectory() as d:
        path, trace = os.path.join(d, "s.json"), os.path.join(d, "t.json")
        r = ok("run", f"--story={path}", "--story-lanes", *TINY, *SMALL, *PROMPT, "-n", "24", *args, env={**GPU, **env})
        page = ok("story", "export", path, "--to", "html", "-o", os.path.join(d, "p.html")) and open(os.path.join(d, "p.html")).read()
        ok("story", "export", path, "--to", "chrome", "-o", trace)
        return json.load(open(path)), ok("story", "show", path).text, json.load(open(trace)), page, r


def test_counters_over_time_are_lanes_of_the_steps():
    s, text, trace, page, _ = lanes()
    sampled, items = s["lanes"]["sampled"], {i["name"]: i for i in s["lanes"]["items"] if "mean" in i}
    same((sampled["why"], sampled["not_sampled"], s["lanes"]["why"], s["tiers"]["T2"]["used"]), (None, [], None, True))
    same(list(items), LANES)
    first, end = s["steps"]["columns"]["begin_ms"][0], value(s["request"]["total_ms"])
    for name, planted_value in (("sm", 0.9), ("tensor", 0.125), ("l2_hit", 0.25)):
        i = items[name]
        assert sampled["count"] > 8 and 0 < len(i["values"]) <= 512 and len(i["values"]) == len(i["begin_ms"]), (name, sampled)
        same((value(i["least"]), value(i["most"]), i["tag"]), (0, planted_value, "measured"))
        # each fourth sample is of a GPU that does nothing
        assert abs(value(i["mean"]) / planted_value - 0.75) < 0.02 + 3 / sampled["count"], (name, i["mean"], sampled)
        assert first - 1 <= i["begin_ms"][0] and i["begin_ms"][-1] <= end, (first, i["begin_ms"][0], i["begin_ms"][-1], end)
        assert i["begin_ms"] == sorted(i["begin_ms"])
    near(value(items["dram_read"]["most"]) * value(items["dram_read"]["roof_bytes_per_s"]), 1e9, "bytes a second")
    for part in ("COUNTERS OVER TIME", "min 0.0, mean ", "max 90.0 %", "SM cycles with work"):
        assert part in text, text
    counters = {e["name"] for e in trace["traceEvents"] if e["ph"] == "C"}
    assert counters >= set(LANES), counters
    assert all(f'"{name}"' in page for name in LANES), "the timeline's data"


def test_counters_over_time_that_are_missing_are_told_and_change_no_answer():
    plain = lanes()[4].text.split("tokens")[0]
    for word, why in (("forbidden", "NVreg_RestrictProfilingToAdminUsers=0"), ("watched", "another profiler"),
                      ("vgpu", "a virtual GPU is switched off")):
        s, text, _, _, r = lanes(EMULATED_CUPTI=word)
        assert why in s["lanes"]["sampled"]["why"] and why in s["tiers"]["T2"]["why"], (word, s["lanes"]["sampled"])
        same((s["lanes"]["sampled"]["count"], s["tiers"]["T2"]["used"]), (0, False), word)
        assert "COUNTERS OVER TIME" not in text and r.text.split("tokens")[0] == plain, text
    s, text, *_ = lanes(EMULATED_CUPTI="refused=pcie__read_bytes.sum,ring=50")
    same([x["lane"] for x in s["lanes"]["sampled"]["not_sampled"]], ["pcie_in"])
    assert "not pcie_in: CUPTI failed at setting what to sample" in " ".join(text.split()), text
    same([i["name"] for i in s["lanes"]["items"] if "mean" in i], [n for n in LANES if n != "pcie_in"])


def test_lanes_are_refused_where_nobody_would_see_them():
    for args, why in ((TINY, "story-lanes needs story or story-dir"),
                      ([*TINY, "--story", "--story-counters"], "story-lanes and story-counters read the same counters"),
                      (["-m", TINY[1], "--device", "cpu", "--story"], "story-lanes samples a GPU's counters, and the device is cpu")):
        need_emulator()
        r = run("run", "--story-lanes", *args, *SMALL, *PROMPT, "-n", "2", env=GPU)
        assert r.code != 0 and why in r.log, r.log


def of_ranks(option, devices, words="", *args):
    """A story of two ranks on so many emulated GPUs, how its terminal form reads, its chrome trace, and the run's words."""
    need_emulator()
    with tempfile.TemporaryDirectory() as d:
        path, trace = os.path.join(d, "s.json"), os.path.join(d, "t.json")
        r = ok("run", f"--story={path}", option, "-m", "tests/golden/models/llama-gqa8-llama3-f32", "--device",
               "cuda" if devices == 2 else "cuda:0,0", "--tp", "2", *SMALL, *PROMPT, "-n", "40", *args,
               env={**GPU, "VITRINE_EMULATOR": f"devices={devices}", "EMULATED_CUPTI": words})
        ok("story", "export", path, "--to", "chrome", "-o", trace)
        return json.load(open(path)), ok("story", "show", path).text, json.load(open(trace)), r


def test_records_of_ranks_are_told_rank_by_rank():
    for devices in (2, 1):
        s, text, trace, _ = of_ranks("--story-activity", devices)
        a = s["activity"]
        same((a["why"], a["lost"], a["broken_steps"], s["tiers"]["T1"]["used"]), (None, 0, 0, True))
        same([(p["name"], p["rank"]) for p in a["phases"]], [("decode", "rank 0"), ("decode", "rank 1")])
        ops = sorted(o["kind"] for o in s["phases"][1]["ops"] if o["bound"] not in ("link", "host"))
        for p in a["phases"]:
            # each rank records the same steps, and each of its calls has its own kernels: 1,000 ns each (tests/emulator/cupti_activity.c)
            same((p["recorded_steps"], value(p["unknown"]), p["copies"]["count"]), (8, 0, 2), p["rank"])
            same(sorted(o["kind"] for o in p["ops"]), ops, p["rank"])
            for o in p["ops"]:
                same((value(o["kernel_us"]), len(o["kernels"])), (o["calls"], 1), o["kind"])
                same((o["stamped_us"]["value"], o["of_stamped"]["value"]), (None, None), "stamps are of both ranks together")
            assert f"RECORDS of a decode step of {p['rank']}, op by op" in text, text
        same({e["name"] for e in trace["traceEvents"] if e["ph"] == "X"} >= {"L00.all_reduce_rmsnorm.ffn", "L01.linear.qkv"}, True)


def test_counters_of_ranks_are_told_rank_by_rank():
    s, text, *_ = of_ranks("--story-counters", 2)
    c, written = s["gpu_counters"], []
    same((c["why"], c["not_counted"], s["tiers"]["T3"]["used"]), (None, [], True))
    same([(p["name"], p["rank"]) for p in c["phases"]], [("decode", "rank 0"), ("decode", "rank 1")])
    ops = sorted(o["kind"] for o in s["phases"][1]["ops"] if o["bound"] not in ("link", "host"))
    for p in c["phases"]:
        # both ranks count the same sets in the same steps: the leading one in the 2nd, 18th and 34th, nine others in those between
        same((p["counted_steps"], sorted(o["kind"] for o in p["ops"])), (12, ops), p["rank"])
        for o in p["ops"]:
            same((len(o["waits"]), value(o["sm"])), (19, 0.9), o["kind"])
        written.append({value(o["dram_written"]) / o["calls"] for o in p["ops"]})
        assert f"COUNTERS of a decode step of {p['rank']}, op by op" in text, text
    same(sorted(map(sorted, written)), [[20000], [20010]], "each GPU has counters of its own (tests/emulator/cupti.c)")
    # no step of a rank is timed while another counts: it would have the waits for it
    same(s["phases"][1]["timed_steps"] > 0, True)


def test_lines_of_ranks_are_told_rank_by_rank():
    words = "pc=rmsnorm:rmsnorm.cu:40:barrier:30,pc=rmsnorm:rmsnorm.cu:41:wait:70"
    s, text, *_ = of_ranks("--story-lines", 2, words)
    same((s["lines"]["why"], s["lines"]["own"], s["lines"]["at_a_line"], s["lines"]["steps"]), (None, 200, 200, 32))
    same([(k["rank"], k["samples"], len(k["lines"])) for k in s["lines"]["kernels"]], [("rank 0", 100, 2), ("rank 1", 100, 2)])
    assert "rmsnorm, 100.0 % of all samples of rank 1" in text, text
    r = run("run", "--story-lines", "--story", *TINY, *SMALL, *PROMPT, "-n", "2", "--tp", "2", "--device", "cuda:0,0", env=GPU)
    assert r.code == 1 and "story-lines samples ranks that have a GPU each, and ranks 0 and 1 share cuda:0" in r.log, (r.code, r.log)


def test_lanes_of_ranks_are_told_rank_by_rank():
    s, text, trace, _ = of_ranks("--story-lanes", 2)
    names = [f"rank {r} {n}" for r in (0, 1) for n in LANES]
    same([i["name"] for i in s["lanes"]["items"] if "mean" in i], names)
    same((s["lanes"]["sampled"]["why"], s["lanes"]["sampled"]["not_sampled"]), (None, []))
    assert {e["name"] for e in trace["traceEvents"] if e["ph"] == "C"} >= set(names), "counters of the trace"
    s, text, *_ = of_ranks("--story-lanes", 1)
    same([i["name"] for i in s["lanes"]["items"] if "mean" in i], names[:len(LANES)])
    same(s["lanes"]["sampled"]["not_sampled"], [{"lane": "rank 1", "why": "rank 0, on the same GPU, samples for both"}])
    assert "not rank 1: rank 0, on the same GPU, samples for both" in " ".join(text.split()), text


def test_ranks_that_nobody_may_watch_answer_all_the_same():
    plain = of_ranks("--story-lanes", 2)[3].text.split("tokens")[0]
    for option, tier, words in (("--story-activity", "T1", "watched"), ("--story-lines", "T4", "forbidden"), ("--story-lanes", "T2", "forbidden"), ("--story-counters", "T3", "forbidden"), ("--story-counters", "T3", "drop")):
        s, text, _, r = of_ranks(option, 2, words)
        why = s["tiers"][tier]["why"]
        assert {"watched": "another profiler", "forbidden": "NVreg_RestrictProfilingToAdminUsers=0", "drop": "CUPTI dropped"}[words] in why, why
        same((s["tiers"][tier]["used"], r.text.split("tokens")[0]), (False, plain), option)


def test_dumps_of_a_server_have_the_lanes_of_its_last_steps():
    need_emulator()
    with tempfile.TemporaryDirectory() as d:
        s = Server("--story-dir", d, "--story-lanes", "--device", "cuda", *SMALL[:2], "--max-context", "256", "--token-budget", "64",
                   model=TINY[1], env=GPU)
        s.good("/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 8, "ignore_eos": True})
        s.process.send_signal(signal.SIGUSR2)
        wait_until(lambda: glob.glob(os.path.join(d, "*.json")), "the dump")
        path, = glob.glob(os.path.join(d, "*.json"))
        story = json.load(open(path))
        s.stop()
    assert story["lanes"]["sampled"]["count"] > 0, story["lanes"]["sampled"]
    same([i["name"] for i in story["lanes"]["items"] if "mean" in i], LANES)


def serve_lanes(d, *args, **env):
    return Server("--story-dir", d, "--story-lanes", "--device", "cuda", *SMALL[:2], "--max-context", "256", "--token-budget", "64", *args,
                  model=TINY[1], env={**GPU, **env})


def test_a_running_server_tells_the_lanes_of_a_request():
    need_emulator()
    with tempfile.TemporaryDirectory() as d:
        s = serve_lanes(d)
        ask = {"prompt": [1, 2, 3], "max_tokens": 8, "ignore_eos": True}
        ids = [s.good("/v1/completions", ask).json["id"] for _ in range(3)]
        for one in ids:
            story = s.get(f"/story/{one}").json
            same((story["lanes"]["sampled"]["why"], story["tiers"]["T2"]["used"]), (None, True), one)
            same([i["name"] for i in story["lanes"]["items"] if "mean" in i], LANES)
            steps = story["steps"]["columns"]
            first, last = steps["begin_ms"][0], steps["begin_ms"][-1] + steps["ms"][-1]
            sm = next(i for i in story["lanes"]["items"] if i["name"] == "sm")
            assert first - 1 <= sm["begin_ms"][0] and sm["begin_ms"][-1] <= last + 0.001, (first, sm["begin_ms"], last)
        page = s.get(f"/story/{ids[0]}?format=html").body.decode()
        assert '"dram_read"' in page, page[:200]
        s.stop()
    assert b"no lanes of" not in s.log, s.log


def test_a_server_says_at_once_why_it_has_no_lanes():
    need_emulator()
    with tempfile.TemporaryDirectory() as d:
        s = serve_lanes(d, EMULATED_CUPTI="forbidden")
        one = s.good("/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 4}).json["id"]
        story = s.get(f"/story/{one}").json
        assert "NVreg_RestrictProfilingToAdminUsers=0" in story["lanes"]["sampled"]["why"], story["lanes"]["sampled"]
        s.stop()
    assert b"story-lanes: no lanes of rank 0: CUPTI failed" in s.log, s.log


main(globals())
