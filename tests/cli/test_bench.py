#!/usr/bin/env python3
"""vitrine explain, env and bench."""
import json, math, os, re, resource, shutil, tempfile

from tap import *


def total(calls, *path):
    s = 0
    for c in calls:
        v = c
        for p in path:
            v = v[p]
        s += v
    return s


def test_explain_adds_up():
    for args in ([], ["--prompt", "100"], ["--batch", "3", "--context", "50"], ["--all"]):
        r = ok("explain", "--json", "-m", DUMMY, *args).json
        for path in (["calls"], ["least_us"], ["read_bytes", "weights"], ["write_bytes", "kv"], ["flops", "fp32"],
                     ["flops", "int8"]):
            v = r["total"]
            for p in path:
                v = v[p]
            assert math.isclose(total(r["calls"], *path), v, rel_tol=1e-6, abs_tol=0.2), (args, path)
    one, three = (ok("explain", "--json", "-m", DUMMY, "--context", "50", "--batch", b).json for b in "13")
    weights = [r["total"]["read_bytes"]["weights"] for r in (one, three)]
    assert weights[1] < 1.01 * weights[0], "a batch reads the weights once"
    same(three["total"]["write_bytes"]["kv"], 3 * one["total"]["write_bytes"]["kv"])


def test_explain_counts_the_caches_type():
    kv = {}
    for kind in ("f32", "f16", "fp8"):
        calls = ok("explain", "--json", "-m", DUMMY, "--context", "50", "--kv-dtype", kind).json["calls"]
        kv[kind] = sum(c["read_bytes"]["kv"] + c["write_bytes"]["kv"] for c in calls)
    same((kv["f32"], kv["f16"]), (4 * kv["fp8"], 2 * kv["fp8"]))
    gpu = ("explain", "-m", DUMMY, "--device", "cuda", "--hardware", "h200", "--kv-dtype")
    fails(1, ["kv-dtype F16 is not there on CUDA", "bf16 or fp8"], *gpu, "f16")
    ok(*gpu, "fp8")


def test_explain_tells_sequence_state():
    # 4 of dummy:hybrid-tiny's 6 layers keep 2 inputs of a convolution over 128 channels, in fp32
    for args in ([], ["--batch", "3"], ["--hardware", "h200"]):
        r = ok("explain", "--json", "-m", "dummy:hybrid-tiny", "--context", "50", *args).json
        same(r["state"], {"layers": 4, "slot_bytes": 4 * 2 * 128 * 4}, args)
        text = " ".join(ok("explain", "-m", "dummy:hybrid-tiny", "--context", "50", *args).text.split())
        assert "4 layers keep a state in place of KV: a slot takes 4.10 KB" in text, text
    # Mamba-2: 3 inputs of a convolution over 48 x 64 + 2 x 128 channels, and 48 matrices of 128 x 64
    tiny = ("-m", "dummy:granite-4.0-h-tiny", "--device", "cpu")
    r = ok("explain", "--json", *tiny).json
    same(r["state"], {"layers": 36, "slot_bytes": 36 * 4 * (3 * 3328 + 48 * 128 * 64)})
    # of two ranks each has half of the heads, and B and C of the one group
    r = ok("explain", "--json", *tiny, "--tp", "2").json
    same(r["state"]["slot_bytes"], 2 * 36 * 4 * (3 * (24 * 64 + 256) + 24 * 128 * 64))
    nemotron = ("-m", "dummy:nemotron-h-8b", "--device", "cpu")
    fails(1, "tp is 9, and dummy:nemotron-h-8b has in layer 0 8 groups of heads, with BF16 weights behind them: cut between blocks they have no "
             "part for rank 8", "explain", *nemotron, "--tp", "9")
    same(ok("explain", "--json", "-m", DUMMY).json["state"], None)
    assert "a slot takes" not in ok("explain", "-m", DUMMY).text


def test_explain_and_stories_tell_what_a_token_takes_in_a_window():
    # 3 of 4 layers have a window of 6 tokens; K and V of one head of 12, in FP16
    model = "tests/golden/models/gemma3-windows"
    says = lambda *args: " ".join(ok("explain", "-m", model, *args).text.split())
    kv = "KV: a token takes 48 B in 1 layer that keeps all tokens, and 144 B in 3 with a window of 6 tokens, which keep "
    assert kv + "the last ones alone." in says(), says()
    assert kv + "all of them too on a GPU." in says("--hardware", "h200")
    assert "KV: a token" not in ok("explain", "-m", DUMMY).text
    run = ["run", "-m", model, "--raw", "--tokens", "1,2,3", "-n", "2", "--story"]
    told = " ".join(ok(*run).err.decode().split())
    assert "a token takes 48 B, in its window 144 B more" in told, told
    assert "in its window" not in ok(*run, "--keep-window-kv").err.decode()


def reduced(ranks, buffer_bytes, link):
    """Bytes that all_reduce brings over a GPU's link: push and one-shot, or two-shot for large buffers of more ranks."""
    if ranks == 2 or buffer_bytes <= 512 << 10:
        return (ranks if link == "host" else ranks - 1) * buffer_bytes
    return -(-(3 * ranks - 1 if link == "host" else 2 * (ranks - 1)) * buffer_bytes // ranks)


def test_explain_of_ranks_adds_up_to_one_gpu():
    """dummy:qwen3-8b: 36 layers of 4096 in BF16, 151936 tokens, of which no shard is uneven on 2, 4 or 8 ranks."""
    layers, hidden, vocab, gpu = 36, 4096, 151936, ["explain", "--json", "-m", "dummy:qwen3-8b", "--hardware", "h200"]
    for ranks, link, batch in ((2, "p2p", 1), (4, "p2p", 64), (8, "host", 3), (4, "host", 256)):
        shape = ["--context", "512", "--batch", str(batch)]
        one = ok(*gpu, *shape).json
        r = ok(*gpu, *shape, "--tp", str(ranks), "--tp-link", link).json
        same((r["tp"], r["link"], len(r["ranks"]), len(r["layers"])), (ranks, link, ranks, layers + 1))
        whole = {c["name"]: [0, 0, 0] for c in one["calls"]}
        for c in one["calls"]:
            w = whole[c["name"]]
            w[0] += c["read_bytes"]["weights"] + c["write_bytes"]["weights"]
            w[1] += c["read_bytes"]["kv"] + c["write_bytes"]["kv"]
            w[2] += sum(c["flops"].values())
        sharded = [k for k in whole if k.startswith(("linear.", "attention_"))]
        assert len(sharded) == 6, sharded
        for k in ("linear.o", "linear.down"):  # ranks add the residual behind the sum
            whole[k][2] -= layers * batch * hidden
        # a row that makes the call in front of it counts that call: ranks make norms in all_reduce, but for the first,
        # and each has all weights of the norms of q and k
        for k, norm, more in (("linear.qkv", "rmsnorm.attn", ranks - layers), ("linear.gate+up", "rmsnorm.ffn", -layers)):
            if norm not in whole:
                whole[k][0] += more * hidden * 4
                whole[k][2] += more * batch * hidden * 4
        if "rope_store" not in whole:
            whole["attention_decode"][0] += (ranks - 1) * layers * 2 * 128 * 4
        for k in sharded:
            parts = [x["kinds"][k] for x in r["ranks"]]
            for i, key in enumerate(("weight_bytes", "kv_bytes", "flops")):
                same(sum(p[key] for p in parts), whole[k][i], (ranks, k, key))
        rate = {"p2p": 450e9, "host": 64e9}[link]
        sums = [m for m in r["meetings"] if m["op"].startswith("all_reduce")]  # with the next norm in it, but for the last
        same(sum(m["op"] == "all_reduce_rmsnorm" for m in sums), 2 * layers - 1)
        same((len(sums), len(r["meetings"])), (2 * layers + 1, 2 * layers + 2))
        for m in sums:
            same(m["link_bytes"], reduced(ranks, batch * hidden * 2, link), m)
        same(r["meetings"][-1]["op"], "all_gather")
        same(r["meetings"][-1]["link_bytes"], batch * vocab // ranks * (ranks - 1) * 4)
        for m in r["meetings"]:
            assert m["least_us"] >= m["link_bytes"] / rate * 1e6 - 0.001, m
            if m in sums and m["link_bytes"] > 1 << 20:
                assert math.isclose(m["least_us"], m["link_bytes"] / rate * 1e6, rel_tol=1e-3), m
        for key in ("meetings", "link_bytes", "other_least_us", "least_us", "hidden_us"):
            assert math.isclose(sum(l[key] for l in r["layers"]), r["communication"][key], abs_tol=0.1), key
        told = r["communication"]
        assert math.isclose(r["total"]["least_us"], told["least_us"] + told["other_least_us"], abs_tol=0.1), told
        assert 0 < told["hidden_us"] <= told["least_us"], told
        same({c["bound"] for c in r["calls"] if c["name"].startswith("all_")}, {"link"})
    text = ok(*(a for a in gpu if a != "--json"), "--tp", "4", "--batch", "8").text
    assert "4 GPUs meet by p2p at 450 GB/s a direction [datasheet]" in " ".join(text.split()), text
    assert "L01..L35" in text and "outside of layers" in text  # the first layer has a norm of its own more


def test_explain_of_norms_over_all_heads_has_a_third_meeting_in_a_layer():
    """Two sums a token: a packet of 16 bytes to each peer, or 8 bytes of each rank through the host."""
    for link, each in (("p2p", 3 * 16), ("host", 4 * 8)):
        r = ok("explain", "--json", "-m", "dummy:minimax-m2", "--hardware", "h200", "--tp", "4", "--tp-link", link, "--batch", "5").json
        norms = [m for m in r["meetings"] if m["op"] == "sharded_rmsnorm"]
        same((len(norms), {m["link_bytes"] for m in norms}), (62, {5 * each}))
        same(sum(l["meetings"] == 3 for l in r["layers"]), 62)  # beside those outside of layers


def test_explain_of_uneven_ranks_shows_the_slowest():
    """SmolLM2's 9 heads and 3 KV heads: rank 0 of 2 has six and two of them."""
    gpu = ["explain", "--json", "-m", "dummy:smollm2-135m", "--hardware", "a100-80gb-sxm", "--tp"]
    r = ok(*gpu, "2", "--context", "400").json
    kv = [x["kv_bytes"] for x in r["ranks"]]
    same((kv[0], r["ranks"][0]["shown"]), (2 * kv[1], True))
    least = [x["least_us"] for x in r["ranks"]]
    assert math.isclose(max(least), r["total"]["least_us"], abs_tol=0.1), (least, r["total"])
    fails(1, "tp is 16, expected at most 8 ranks on GPUs", *gpu, "16", "-m", "dummy:qwen3-8b")
    fails(2, "tp is 1", *gpu[:-1], "--tp-link", "host")
    fails(2, "share its memory", "explain", "-m", DUMMY, "--device", "cpu", "--tp", "2", "--tp-link", "host")


def test_explain_of_whole_experts_counts_each_once():
    """128 experts over three ranks, 43, 43 and 42 of them; a batch that chooses all of them reads each on one rank."""
    gpu, expert = ["explain", "--json", "-m", "dummy:qwen3-30b-a3b", "--hardware", "h200", "--batch", "64"], 48 * 3 * 2048 * 768 * 2
    r = ok(*gpu, "--tp", "3", "--enable-expert-parallel").json
    same([x["kinds"]["moe_linear"]["weight_bytes"] for x in r["ranks"]], [43 * expert, 43 * expert, 42 * expert])
    same(r["expert_parallel"], True)
    r = ok(*gpu, "--tp", "3").json
    same((sum(x["kinds"]["moe_linear"]["weight_bytes"] for x in r["ranks"]), r["expert_parallel"]), (128 * expert, False))
    fails(2, "models with experts on several ranks; tp is 1", *gpu, "--enable-expert-parallel")
    fails(2, "has 0 experts", "explain", "-m", DUMMY, "--device", "cpu", "--tp", "2", "--enable-expert-parallel")
    fails(2, "is not an option of", "bench", "comm", "--enable-expert-parallel")


def test_explain_of_ranks_of_a_cpu_counts_all_together():
    one, two = (ok("explain", "--json", "-m", DUMMY, "--device", "cpu", "--context", "50", "--tp", n).json for n in "12")
    assert "ranks" not in one and len(two["ranks"]) == 1 and two["link"] == "memory", two
    for path in (["read_bytes", "kv"], ["write_bytes", "kv"]):
        same([r["total"][path[0]][path[1]] for r in (one, two)][0], two["total"][path[0]][path[1]], path)
    same(two["communication"]["meetings"], len(two["meetings"]))
    assert "hides behind nothing" in ok("explain", "-m", DUMMY, "--device", "cpu", "--tp", "2").text.replace("\n", " ")


def gpu_is_here():
    return ok("env", "--json").json["gpu"] is not None


def test_explain_names_the_rows_of_other_sizes():
    gpu = ["explain", "-m", "dummy:qwen3-8b", "--device", "cuda", "--hardware", "h200"]
    for tokens in ("1", "100", "700"):
        for call in ok(*gpu, "--prompt", tokens, "--json").json["calls"]:
            sizes = [c["up_to"] for c in call["choices"]]
            assert sizes[-1] is None and sizes[:-1] == sorted(set(sizes[:-1])), call
            if call["name"] == "linear.qkv":  # chosen by tokens: the row that runs is the table's
                fits = [c["impl"] for c in call["choices"] if c["up_to"] is None or int(tokens) <= c["up_to"]]
                same(call["impl"], fits[0], tokens)
                assert len(sizes) > 1, call
    text = ok(*gpu).text
    assert "depends on the size of the step" in text and "tokens: small; up to" in text.replace("\n", " "), text
    assert max(map(len, text.split("\n"))) <= 100
    same([len(c["choices"]) for c in ok("explain", "-m", DUMMY, "--json").json["calls"] if len(c["choices"]) != 1], [])
    assert "depends on the size" not in ok("explain", "-m", DUMMY).text, "a CPU's rows do not depend on it"


def test_explain_counts_the_items_of_the_step():
    """fa3 cuts a prompt into tiles of 128 query rows for each KV head, whatever its plan has room for."""
    for tokens in (16, 128, 512, 1000):
        text = " ".join(ok("explain", "-m", "dummy:qwen3-0.6b", "--hardware", "h200", "--prompt", str(tokens), "--all").text.split())
        items = int(re.search(r"attention_prefill fa3, .*? tiles of 128 x 128 x 128, (\d+) items", text)[1])
        same(items, -(-tokens * 16 // 8 // 128) * 8, f"{tokens} tokens")


def test_explain_of_a_big_model_reads_no_weights():
    r = ok("explain", "--json", "-m", "dummy:qwen3-8b", "--hardware", "h200").json
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 4 << 20, "KiB, of the largest program so far"
    assert r["hardware"]["measured"] is False
    assert r["total"]["read_bytes"]["weights"] > 14e9
    text = ok("explain", "-m", "dummy:qwen3-8b", "--hardware", "h200").text
    assert max(map(len, text.split("\n"))) <= 100
    fails(2, ["'abacus'", "h200"], "explain", "-m", DUMMY, "--hardware", "abacus")
    fails(2, "context", "explain", "-m", DUMMY, "--context", "9999999")


def test_explain_of_a_named_gpu_has_that_gpus_rows():
    on_cpu = {"portable", "avx2", "avxvnni", "avx512", "avx512vnni", "amx", "neon"}
    big = ["explain", "-m", "dummy:qwen3-8b", "--prompt", "512"]
    level = {"h200": 90, "h100": 90, "a100-80gb-sxm": 80, "A100-80GB-PCIE": 80}
    for name in level:
        r = ok(*big, "--hardware", name, "--json").json
        gpu = r["hardware"]["gpu"]
        same((gpu["kernel_level"], gpu["is_here"], gpu["cublaslt"]), (level[name], False, level[name] >= 80), name)
        rows = {c["impl"] for c in r["calls"]}
        assert not rows & on_cpu, (name, rows)
        of_any_size = {choice["impl"] for c in r["calls"] for choice in c["choices"]}
        same("gemm_sm80" in of_any_size, level[name] == 80, (name, of_any_size))
        text = " ".join(ok(*big, "--hardware", name).text.split())
        assert f"kernels of level {level[name]} on" in text and "cuBLASLt" in text, text
    same(ok("explain", "-m", DUMMY, "--json", "--device", "cpu").json["hardware"]["gpu"], None)
    fails(2, ["h200 is a GPU", "--device is cpu"], *big, "--hardware", "h200", "--device", "cpu")
    no_gpu = {"LD_LIBRARY_PATH": "/nowhere"}
    if not gpu_is_here():
        fails(1, ["--hardware"], *big, "--device", "cuda", env=no_gpu)


def test_explain_expects_a_time_beside_the_least():
    r = ok("explain", "--json", "--device", "cpu", *model()).json
    for line in r["calls"] + [r["total"]]:
        assert line["expected_us"]["tag"] == "modelled" and line["expected_us"]["value"] > 0, line
    total = sum(c["expected_us"]["value"] for c in r["calls"])
    assert abs(r["total"]["expected_us"]["value"] / total - 1) < 1e-3
    text = ok("explain", "--device", "cpu", *model()).text
    assert "expected" in text and "[modelled" in text and max(map(len, text.split("\n"))) <= 100, text


def test_explain_reads_another_machines_env():
    env = ok("env", "--json").json
    d = tempfile.mkdtemp()
    def file(name, value):
        with open(os.path.join(d, name), "w") as f:
            f.write(value if isinstance(value, str) else json.dumps(value))
        return os.path.join(d, name)
    env["cpu"]["model"], env["cpu"]["level"] = "Some other CPU", "amx"
    env["roofs"]["figures"]["memory_bytes_per_s"]["value"] = 1e6
    r = ok("explain", "-m", DUMMY, "--json", "--hardware", file("good.json", env)).json
    same((r["hardware"]["name"], r["hardware"]["measured"], r["hardware"]["level"]), ("Some other CPU", False, "amx"))
    assert "amx" in {c["impl"] for c in r["calls"]}, "the program is the other machine's"
    assert r["total"]["least_us"] > 1e5, "at its roofs"
    fails(2, ["has no GPU", "cuda"], "explain", "-m", DUMMY, "--device", "cuda", "--hardware", d + "/good.json")
    fails(1, "none.json", "explain", "-m", DUMMY, "--hardware", d + "/none.json")
    for name, value, says in (("text.json", "no JSON", "not valid JSON"), ("empty.json", {}, "cpu and roofs"),
                              ("list.json", [], "an object was expected")):
        fails(1, [name, says], "explain", "-m", DUMMY, "--hardware", file(name, value))
        fails(1, [name, says], "bench", "simulate", "-m", DUMMY, "--hardware", d + "/" + name, "--trace", d + "/" + name)
    shutil.rmtree(d)


def test_env_describes_the_machine():
    r = ok("env", "--json").json
    assert r["cpu"]["cpus"] >= 1 and r["cpu"]["memory_bytes"] > 0
    figures = r["roofs"]["figures"]
    for key in ("memory_bytes_per_s", "copy_bytes_per_s", "l2_bytes_per_s", "fp32_per_s", "int8_per_s"):
        f = figures[key]
        assert f["value"] > 0 and f["tag"] in ("measured", "disturbed") and f["date"].startswith("20"), (key, f)
    assert figures["memory_bytes_per_s"]["working_set_bytes"] >= 64 << 20
    assert set(r["libraries"]) >= {"cuda", "nvrtc", "nccl"}
    text = ok("env").text
    for l in text.split("\n"):  # a path cannot be broken
        assert len(l) <= 100 or max(map(len, l.split())) > 50, l
    for word in ("CPU", "Roofs", "Libraries", "Profiling", "T0"):
        assert word in text, word
    same(ok("env", "--json", env={"VITRINE_ISA": "portable"}).json["cpu"]["level"], "portable")


def test_bench_latency_refuses_a_batch_that_the_cache_cannot_hold():
    few = ["bench", "latency", "-m", DUMMY, "-r", "1", "--json", "--prompt", "16", "--gen", "2", "--batch", "8", "--max-context", "64"]
    said = fails(2, ["--batch: 8 sequences", "--kv-memory "], *few, "--kv-memory", "2M").log
    enough = said.split("--kv-memory ")[1].split()[0]
    assert ok(*few, "--kv-memory", enough).json["retracted"] == 0
    fails(2, "--kv-memory " + enough, *few, "--kv-memory", f"{int(enough[:-1]) - 2}M")


def test_bench_latency_has_the_documented_form():
    r = ok("bench", "latency", "--json", "--prompt", "16", "--gen", "4", "--batch", "2", "-r", "2", *FAST,
           *model()).json
    for key in ("prefill_tokens_per_s", "decode_tokens_per_s", "ttft_ms", "load_ms"):
        assert r[key] > 0 and key + "_stdev" in r, key
    same((r["step_gap_us_p50"], r["step_gap_us_p99"], r["step_gaps"]), (None, None, 0), "a CPU has no gaps")
    assert r["machine"]["gpu"] is None and "startup" not in r
    assert r["ttft_ms_stdev"] is not None and r["load_ms_stdev"] is None
    same((r["settings"]["prompt"], r["settings"]["gen"], r["settings"]["batch"], r["settings"]["reps"]),
         ("16", "4", "2", "2"))
    assert r["commit"] and r["version"] and r["machine"]["cpu"] and r["machine"]["level"]
    text = ok("bench", "latency", "--prompt", "8", "--gen", "2", "-r", "1", *FAST, *model()).text
    assert "prefill" in text and "decode" in text and max(map(len, text.split("\n"))) <= 100
    fails(2, "context", "bench", "latency", "--prompt", "600000", "--gen", "2", *model())


def test_bench_kernels_checks_against_the_reference():
    r = ok("bench", "kernels", "kv_store", "--json").json
    assert len(r["results"]) >= 2 and "portable" in {x["implementation"] for x in r["results"]}
    for x in r["results"]:
        same(x["op"], "kv_store")
        assert 0 < x["best_ns"] <= x["median_ns"] and x["bytes"] > 0, x
        assert x["error"] <= x["tolerance"], x
    text = ok("bench", "kernels", "kv_store").text
    assert "portable" in text and max(map(len, text.split("\n"))) <= 100
    fails(2, "nosuch", "bench", "kernels", "nosuch")


KERNELS = {"bytes", "flops", "best_ns", "median_ns", "gb_per_s", "gflop_per_s", "tflop_per_s", "roof", "roof_share", "error",
           "tolerance", "wrong", "kernels", "op", "case", "implementation", "device", "method", "threads"}


def test_bench_kernels_takes_shapes():
    r = ok("bench", "kernels", "linear", "--json", "--shape", "tokens=1|3,type=q8_0|f16,cols=64,rows=20", "--impl", "portable").json
    same([x["case"] for x in r["results"]], [f"tokens={n} type={t} cols=64 rows=20" for n in (1, 3) for t in ("Q8_0", "F16")])
    for x in r["results"]:
        same(set(x), KERNELS)
        same((x["implementation"], x["device"], x["method"], x["kernels"]), ("portable", "cpu", "warm", []))
    same(ok("bench", "kernels", "silu_mul", "--json", "--shape", "n=64", "--method", "cold").json["results"][0]["method"], "cold")
    for args, words in ((["linear", "--shape", "tokns=3"], ["'tokns'", "tokens, type, cols"]),
                        (["linear", "--shape", "type=q4_k,cols=100"], "multiple of its block"),
                        (["--shape", "tokens=3"], "name of an op"), (["linear", "--impl", "nosuch"], "nosuch"),
                        (["linear", "--method", "graph"], "warm or cold")):
        fails(2, words, "bench", "kernels", *args)


def test_bench_comm_agrees_over_ranks():
    for ranks in ("2", "3"):
        results = ok("bench", "comm", "--tp", ranks, "--json", "-r", "1", "--quiet").json["results"]
        same({x["op"] for x in results}, {"all_reduce", "all_reduce_rmsnorm", "sharded_rmsnorm", "reduce_scatter", "all_gather"})
        same({x["method"] for x in results}, {"registered", "copied"})
        for x in results:
            same((str(x["ranks"]), x["ranks_agree"], x["wrong"]), (ranks, True, None))
            assert x["error"] <= x["tolerance"] and 0 < x["best_ns"] <= x["median_ns"], x
            assert x["message_bytes"] > 0 and x["bytes"] >= (1.5 if x["op"] == "reduce_scatter" and ranks == "2" else 1.25 if x["op"] == "reduce_scatter" else 2) * x["message_bytes"], x
    text = ok("bench", "comm", "-r", "1").text
    assert "registered" in text and max(map(len, text.split("\n"))) <= 100
    fails(2, "2 to 64", "bench", "comm", "--tp", "1")


def test_attention_shapes_may_have_different_numbers_of_new_tokens():
    shape, flops = "seqs=3,q_len=5,kv_len=9,step=7", []
    for more in ("", ",q_step=4"):
        results = ok("bench", "kernels", "attention_prefill", "--json", "--shape", shape + more).json["results"]
        assert results and all(x["error"] <= x["tolerance"] for x in results), results
        flops.append(results[0]["flops"])
    assert flops[1] > flops[0], flops
    fails(2, "q_step: at most step", "bench", "kernels", "attention_prefill", "--shape", shape + ",q_step=8")


def test_bench_kernels_on_a_gpu():
    emulator = os.path.join(os.path.abspath(os.environ.get("VITRINE_BUILD", "build/release")), "emulator")
    if SANITIZED or not os.path.exists(os.path.join(emulator, "libcuda.so.1")):
        skip("the emulated GPU is not built here")
    gpu = {"LD_LIBRARY_PATH": emulator, "VITRINE_CACHE": os.path.join(os.path.dirname(os.path.dirname(emulator)), "emulator-cache")}
    shape = ("bench", "kernels", "linear", "--device", "cuda", "--shape", "tokens=2,type=bf16|q4_k,cols=256,rows=40")
    r = ok(*shape, "--method", "graph", "--json", env=gpu).json
    assert {"small", "passes", "any"} <= {x["implementation"] for x in r["results"]}, r["results"]
    for x in r["results"]:
        same(set(x), KERNELS)
        same((x["device"], x["method"], x["median_ns"], x["gb_per_s"], x["roof"]), ("cuda", "graph", None, None, None),
             "an emulated GPU has no times")
        assert 0 < x["error"] <= x["tolerance"] and x["kernels"] and x["wrong"] is None, x
        assert any("<" in k for k in x["kernels"]), x["kernels"]
    text = ok(*shape, "--impl", "any", env=gpu).text
    assert "n/a" in text and "small" not in text, text
    fails(2, "passes", *shape[:5], "--shape", "tokens=2,cols=256,rows=40", "--impl", "passes", env=gpu)


def test_bench_kernels_counts_a_call_by_itself():
    fails(2, "--counters reads a GPU's counters: add --device cuda", "bench", "kernels", "rmsnorm", "--counters")
    emulator = os.path.join(os.path.abspath(os.environ.get("VITRINE_BUILD", "build/release")), "emulator")
    if SANITIZED or not os.path.exists(os.path.join(emulator, "libcuda.so.1")):
        skip("the emulated GPU is not built here")
    gpu = {"LD_LIBRARY_PATH": emulator, "VITRINE_CACHE": os.path.join(os.path.dirname(os.path.dirname(emulator)), "emulator-cache")}
    ask = ("bench", "kernels", "rmsnorm", "--device", "cuda", "--shape", "tokens=2,hidden=256", "--counters")
    x = ok(*ask, "--json", env=gpu).json["results"][0]
    same(set(x), KERNELS | {"counters"})
    c = x["counters"]
    # what the emulated library counts in every range (tests/emulator/cupti.c)
    same([c[k] for k in ("dram_read", "dram_written", "tensor", "occupancy", "loads")], [1001000, 20000, 0.125, 0.5, 100])
    same([(w["reason"], w["share"]) for w in c["waits"][:2]], [("long_scoreboard", 0.25), ("selected", 0.2)])
    same(round(sum(w["share"] for w in c["waits"]), 6), 1.0)
    text = " ".join(ok(*ask, env=gpu).text.split())
    assert "25 % of its warps' cycles a warp waits for data from memory or L2 (long_scoreboard)" in text, text
    fails(1, "NVreg_RestrictProfilingToAdminUsers=0", *ask, env={**gpu, "EMULATED_CUPTI": "forbidden"})


def test_bench_kernels_shows_the_lines_at_which_warps_wait():
    fails(2, "--lines samples a GPU's kernels: add --device cuda", "bench", "kernels", "rmsnorm", "--lines")
    emulator = os.path.join(os.path.abspath(os.environ.get("VITRINE_BUILD", "build/release")), "emulator")
    if SANITIZED or not os.path.exists(os.path.join(emulator, "libcuda.so.1")):
        skip("the emulated GPU is not built here")
    gpu = {"LD_LIBRARY_PATH": emulator, "VITRINE_CACHE": os.path.join(os.path.dirname(os.path.dirname(emulator)), "emulator-cache")}
    ask = ("bench", "kernels", "rmsnorm", "--device", "cuda", "--shape", "tokens=2,hidden=256", "--impl", "rows", "--lines")
    source = open("src/ops/rmsnorm/rmsnorm.cu").read().split("\n")
    hot = next(i for i, line in enumerate(source) if "KERNEL" in line) + 1
    planted = {**gpu, "EMULATED_CUPTI": f"pc=rmsnorm:rmsnorm.cu:{hot}:long_scoreboard:600,pc=rmsnorm:rmsnorm.cu:{hot}:barrier:200,"
               "pc=rmsnorm:nothing.cu:5:selected:150,pc=gemm:x.cu:1:wait:50,pclost=3"}
    x = ok(*ask, "--json", env=planted).json["results"][0]
    same(set(x), KERNELS | {"samples"})
    s = x["samples"]
    same([s[k] for k in ("own", "of_libraries", "at_a_line", "lost", "whole")], [950, 50, 950, 3, True])
    same([(l["file"], l["line"], l["samples"]) for l in s["lines"]], [("rmsnorm.cu", hot, 800), ("nothing.cu", 5, 150)])
    same([l["text"] for l in s["lines"]], [source[hot - 1].strip(), None])
    same([(w["reason"], w["share"]) for w in s["lines"][0]["waits"]], [("long_scoreboard", 0.75), ("barrier", 0.25)])
    text = " ".join(ok(*ask, env=planted).text.split())
    assert f"80.0 % rmsnorm.cu:{hot} " in text and "75 % waits for data from memory or L2 (long_scoreboard); 25 %" in text, text
    assert "1,000 samples" in text or "1000 samples" in text, text
    fails(1, "NVreg_RestrictProfilingToAdminUsers=0", *ask, env={**gpu, "EMULATED_CUPTI": "forbidden"})
    text = ok(*ask, env=gpu).text # nothing was sampled
    assert "nan" not in text and " 0 samples" in text, text


def test_bench_startup_counts_starts():
    r = ok("bench", "startup", "--json", "-r", "2", *model()).json
    assert r["start_ms"] > 0 and r["start_ms_stdev"] is not None and r["resident_bytes"] > 1 << 20
    same(run("bench", "startup", "-r", "1", "-m", "/nowhere").code, 1)


main(globals())
