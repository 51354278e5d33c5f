#!/usr/bin/env python3
"""What the command line prints about a GPU, on the emulated one: which GPU, its state, the time between steps."""
import json, os, re, tempfile

from served import *
from tap import *

BUILD = os.environ.get("VITRINE_BUILD", os.path.abspath("build/release"))
EMULATOR = os.path.join(BUILD, "emulator")
GPU = {"LD_LIBRARY_PATH": EMULATOR, "VITRINE_CACHE": os.path.join(os.path.dirname(BUILD), "emulator-cache")}
TINY = ["-m", "tests/golden/models/qwen3-fp8"]
SMALL = ["--max-running", "4", "--max-context", "128", "--kv-memory", "4M", "--token-budget", "64"]


def need_emulator():
    if not os.path.exists(os.path.join(EMULATOR, "libcuda.so.1")):
        skip("no emulator here: make emulator")


def test_bench_latency_tells_the_gpu_and_its_gaps():
    need_emulator()
    args = ["bench", "latency", "--prompt", "12", "--gen", "4", "--batch", "2", "-r", "2", *TINY, *SMALL]
    r = ok(*args, "--device", "cuda:0", "--json", env=GPU).json
    assert 0 <= r["step_gap_us_p50"] <= r["step_gap_us_p99"]
    # two runs of four steps; the time between the runs is no gap; a step in flight when a run ends may add one
    assert 2 * (4 - 1) <= r["step_gaps"] <= 2 * 4, r["step_gaps"]
    gpu = r["machine"]["gpu"]
    same((gpu["ordinal"], gpu["name"], gpu["state_missing"]), (0, "Emulated GPU", None))
    same(gpu["state"], {"sm_mhz": 1500, "sm_max_mhz": 1600, "memory_mhz": 2000, "memory_max_mhz": 2000,
                        "temperature_c": 41, "power_w": 250.4, "power_limit_w": 300.0,
                        "throttle": ["power-cap", "thermal-cap"]})
    text = ok(*args, "--device", "cuda", env=GPU).text
    assert re.search(r"GPU idle between steps: p50 .* of [678] gaps", text), text


def test_the_kernels_of_a_whole_engine_do_not_race():
    """With programmatic launches, graphs and their padding; more than four decodes run another instance of attention."""
    need_emulator()
    for batch, model in (("3", TINY), ("6", TINY), ("3", ["-m", "dummy:hybrid-tiny"])):
        args = ["bench", "latency", "--prompt", "36", "--gen", "4", "--batch", batch, "-r", "1", *model, "--max-running", "6",
                "--max-context", "128", "--kv-memory", "4M", "--token-budget", "64", "--device", "cuda", "--json"]
        assert ok(*args, env={**GPU, "VITRINE_EMULATOR": "race,cc=90"}).json["decode_tokens_per_s"] > 0


def test_a_draft_model_on_the_same_gpu():
    need_emulator()
    args = ["run", "--device", "cuda", *TINY, *SMALL, "-n", "30", "--ignore-eos", "--json", "--tokens", "5,6,7,8",
            "--deterministic"]
    plain = ok(*args, env=GPU).json
    r = ok(*args, "--draft", TINY[1], env=GPU).json
    same(r["tokens"], plain["tokens"])
    assert 0 < r["timings"]["draft_accepted"] <= r["timings"]["draft_tokens"], r["timings"]


def test_sequence_state_on_a_gpu():
    """Scores are near a CPU's, where nothing of a prompt is cached and where steps cut it. A prompt that goes on behind a
    snapshot, or behind what another request had in common with it, gets the bits that it gets alone."""
    need_emulator()
    hybrid, ids = "dummy:hybrid-tiny", [(7 * i * i + 3) % 500 for i in range(150)]
    score = ["score", "-m", hybrid, *SMALL[:2], "--max-context", "256", "--kv-memory", "4M", "--json", "--tokens",
             ",".join(map(str, ids))]
    want = ok(*score, "--kv-dtype", "f32", "--device", "cpu").json["logprobs"]
    for budget in ("64", "17", "150"):
        got = ok(*score, "--device", "cuda", "--token-budget", budget, env=GPU).json["logprobs"]
        assert max(abs(a - b) for a, b in zip(got[1:], want[1:], strict=True)) < 0.05, budget
    s = Server("--device", "cuda", "--deterministic", *SMALL[:2], "--max-context", "256", "--token-budget", "64", "--page-size", "16",
               model=hybrid, env=GPU)
    def answer(prompt, salt):
        r = s.good("/v1/completions", {"prompt": prompt, "max_tokens": 20, "temperature": 0, "logprobs": 0, "ignore_eos": True,
                                       "cache_salt": salt}).json
        lp = r["choices"][0]["logprobs"]
        return r["usage"]["prompt_tokens_details"]["cached_tokens"], (lp["tokens"], lp["token_logprobs"])
    other = ids[:100] + [1, 2, 3]
    alone = {len(p): answer(p, f"alone {len(p)}")[1] for p in (ids, other)}
    same(answer(ids, "a"), (0, alone[150]))
    same(answer(ids, "a"), (128, alone[150]))   # behind the snapshot at the last border that is 8 tokens before the end
    same(answer(other, "a"), (0, alone[103]))   # the pages part at 96, where no state is known yet
    same(answer(other, "a"), (96, alone[103]))
    kept = re.search(r"^vitrine:cache_kept_states_total\S* (\d+)", s.get("/metrics").body.decode(), re.M)
    assert int(kept[1]) >= 4, kept
    s.stop()


def test_auto_takes_the_gpu_and_says_so():
    need_emulator()
    auto = [*TINY, "--device", "auto"]
    r = ok("bench", "latency", "--prompt", "4", "--gen", "2", "-r", "1", *SMALL, *auto, "--json", env=GPU).json
    same((r["device"], r["settings"]["device"], r["machine"]["gpu"]["name"]), ("cuda:0", "auto", "Emulated GPU"))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.json")
        ok("run", *auto, *SMALL, "--tokens", "1,2", "-n", "2", "--ignore-eos", "-q", "--story=" + path, env=GPU)
        story = json.load(open(path))
        same((story["engine"]["device"], story["memory"]["page_size"]), ("cuda", 64))
        assert "cuda sm_90a" in ok("story", "show", path).text
    told = ok("score", *auto, *SMALL, "--tokens", "1,2,3", "--json", env=GPU).json
    same(told, ok("score", *TINY, "--device", "cuda", *SMALL, "--tokens", "1,2,3", "--json", env=GPU).json)
    calls = ok("explain", *auto, "--json", env=GPU).json["calls"]
    on_cpu = {"portable", "avx2", "avxvnni", "avx512", "avx512vnni", "amx", "neon"}
    assert calls and not any(c["impl"] in on_cpu for c in calls), [c["impl"] for c in calls]


def test_explain_describes_the_gpu_that_is_there():
    need_emulator()
    for cc in (80, 90):
        env = {**GPU, "VITRINE_EMULATOR": f"cc={cc}"}
        r = ok("explain", *TINY, "--device", "cuda", "--json", env=env).json["hardware"]
        same((r["gpu"]["is_here"], r["gpu"]["kernel_level"], r["gpu"]["cublaslt"]), (True, cc, False))
        here = ok("env", "--json", env=env).json["gpu"]
        same((r["name"], r["gpu"]["multiprocessors"]), (here["name"], here["multiprocessors"]))
        named = ok("explain", *TINY, "--device", "cuda", "--hardware", "h200", "--json", env=env).json["hardware"]
        same((named["name"], named["gpu"]["multiprocessors"]), ("h200", 132))


def test_auto_is_the_cpu_where_the_gpu_is_not_usable_and_env_says_why():
    need_emulator()
    auto = [*TINY, "--device", "auto"]
    for unusable, why in (({"VITRINE_EMULATOR": "cc=75"}, "compute capability 7.5"),
                          ({"VITRINE_NVRTC": "/nowhere/libnvrtc.so"}, "VITRINE_NVRTC=/nowhere/libnvrtc.so cannot be opened")):
        env = {**GPU, **unusable}
        r = ok("bench", "latency", "--prompt", "4", "--gen", "2", "-r", "1", *SMALL, *auto, "--json", env=env)
        same((r.json["device"], r.json["machine"]["gpu"], r.log), ("cpu", None, ""))
        told = ok("env", "--json", env={**env, "VITRINE_DEVICE": "auto"}).json["device"]
        same((told["option"], told["runs_on"]), ("auto", "cpu"))
        assert why in told["why_not_cuda"], told
        text = " ".join(ok("env", env={**env, "VITRINE_DEVICE": "auto"}).text.split())
        assert why in text, text
    same(ok("env", "--json", env={**GPU, "VITRINE_DEVICE": "auto"}).json["device"],
         {"option": "auto", "runs_on": "cuda:0", "why_not_cuda": None})
    same(ok("env", "--json", env=GPU).json["device"], {"option": "cpu", "runs_on": "cpu", "why_not_cuda": None})


def test_what_the_gpu_refuses_names_the_way_out_only_where_auto_chose_it():
    need_emulator()
    way_out = "--device cpu runs it on the CPU"
    f16 = ["-m", TINY[1], "--kv-dtype", "f16"]
    for verb in (["run", "--tokens", "1,2", "-q", *SMALL], ["explain"]):
        fails(1, ["kv-dtype F16", way_out], *verb, *f16, "--device", "auto", env=GPU)
        assert way_out not in fails(1, "kv-dtype F16", *verb, *f16, "--device", "cuda", env=GPU).log
        ok(*verb, *f16, "--device", "cpu", env=GPU)
        ok(*verb, *f16, "--device", "auto", env={**GPU, "VITRINE_EMULATOR": "cc=75"})
    fails(1, ["GPU memory", way_out], "run", *TINY, *SMALL, "--tokens", "1,2", "-q", "--device", "auto",
          env={**GPU, "VITRINE_EMULATOR": "memory=4"})
    fails(1, "compute capability 7.5", "run", *TINY, *SMALL, "--tokens", "1,2", "-q", "--device", "cuda",
          env={**GPU, "VITRINE_EMULATOR": "cc=75"})


def test_ranks_on_several_gpus():
    need_emulator()
    two = dict(GPU, VITRINE_EMULATOR="devices=2")
    args = ["run", "--tokens", "1,5,9,44,3", "-n", "6", "--ignore-eos", "--json", *TINY, *SMALL]
    want = ok(*args, "--device", "cuda", env=two).json["tokens"]
    for more in (["cuda"], ["cuda:1,0"]):
        same(ok(*args, "--tp", "2", "--device", *more, env=two).json["tokens"], want)
    shared = ok(*args, "--tp", "2", "--device", "cuda:1,1", env=two)
    same(shared.json["tokens"], want)
    assert "ranks 0 and 1 share cuda:1" in shared.log, shared.log
    with tempfile.TemporaryDirectory() as folder:
        story = os.path.join(folder, "s.json")
        ok(*args, "--tp", "2", "--device", "cuda", f"--story={story}", env=two)
        with open(story) as f:
            same([r["name"] for r in json.load(f)["ranks"]["items"]], ["rank 0", "rank 1"])
    fails(2, "device is cuda:0,1, which names 2 GPUs for 1 rank (tp)", *args, "--device", "cuda:0,1", env=two)
    fails(1, "cuda:2: the driver shows 2 GPUs", *args, "--device", "cuda", "--tp", "3", "-m",
          "tests/golden/models/llama-gqa8-llama3-f32", env=two)
    fails(1, "tp is 9, expected at most 8 ranks on GPUs", *args, "--device", "cuda", "--tp", "9", "-m", "dummy:qwen3-0.6b", env=two)
    fails(2, "names 2 GPUs for 1 rank", "explain", "--device", "cuda:0,1", *TINY, env=two)


def test_ranks_pick_their_link_on_a_machine_of_seven():
    """The seven GPUs of test_env.py: pairs with NVLink, and two sockets whose GPUs do not reach each other."""
    need_emulator()
    links = "\n".join(["X NV12 PXB PXB SYS SYS SYS", "NV12 X PXB PXB SYS SYS SYS", "PXB PXB X NV12 SYS SYS SYS",
                       "PXB PXB NV12 X SYS SYS SYS", "SYS SYS SYS SYS X PXB PXB", "SYS SYS SYS SYS PXB X NV12",
                       "SYS SYS SYS SYS PXB NV12 X"])
    seven = dict(GPU, VITRINE_EMULATOR="devices=7,peers=links", EMULATED_LINKS=links)
    args = ["run", "--tokens", "1,5,9,44,3", "-n", "4", "--ignore-eos", "--json", "--tp", "2", *TINY, *SMALL]
    near, across = (ok(*args, "--device", d, env=seven) for d in ("cuda:5,6", "cuda:1,5"))
    same(across.json["tokens"], near.json["tokens"])
    assert "cuda" not in near.log and "GPUs" not in near.log, near.log
    log = " ".join(across.log.split())
    assert "cuda:1 cannot access the memory of cuda:5: the ranks meet through the host's memory (tp-link host)" in log, log
    assert "GPUs 1,5 have a link SYS," in log and "better linked are (0,1) by NV12, (2,3) by NV12, (5,6) by NV12" in log, log
    r = run(*args, "--device", "cuda:1,5", "--tp-link", "p2p", env=seven)
    same(r.code, 1)
    assert "cuda:1 cannot access the memory of cuda:5 (no peer access), which tp-link p2p needs" in r.log, r.log


def test_a_gpu_that_is_not_there():
    need_emulator()
    fails(1, ["cuda:5", "shows 1 GPU,"], "run", *TINY, *SMALL, "--device", "cuda:5", "--tokens", "1,2", "-q", env=GPU)


def test_kv_memory_beyond_the_device_is_refused():
    need_emulator()
    ask = ["run", *TINY, "--tokens", "1,2", "-q", "--kv-memory"]
    fails(1, ["kv-memory is 409600.0 MiB and the weights of", "Emulated GPU has only"], *ask, "400G", "--device", "cuda", env=GPU)
    fails(1, ["kv-memory is 819200.00 GiB, but the machine has only", "GiB of memory"], *ask, "800T", "--device", "cpu")


ASK = ["run", *TINY, *SMALL, "--device", "cuda", "--deterministic", "--tokens", "1,2", "-n", "20", "--ignore-eos"]


def test_a_step_that_does_not_end_ends_the_program_with_an_error():
    need_emulator()
    env = {**GPU, "VITRINE_EMULATOR": "cc=90,memory=512,hang=150", "VITRINE_CUDA_STEP_LIMIT": "1"}
    for verb in (ASK, ["bench", "latency", "--prompt", "12", "--gen", "8", "-r", "2", *TINY, *SMALL, "--device", "cuda"]):
        r = run(*verb, env=env)
        same(r.code, 1)
        assert r.log.count("vitrine: the GPU did not end a step within 1 s (VITRINE_CUDA_STEP_LIMIT)") == 1, r.log


def test_a_lost_context_is_told_once_and_the_answer_is_whole():
    need_emulator()
    env = {**GPU, "VITRINE_EMULATOR": "cc=90,memory=512,fault=150"}
    want = ok(*ASK, "-q", env={**GPU, "VITRINE_EMULATOR": "cc=90,memory=512"}).out
    r = ok(*ASK, env=env)
    same(r.out, want)
    assert r.log.count("note: the device was lost (") == 1 and "made again in" in r.log, r.log
    quiet = ok(*ASK, "-q", env=env)
    same(quiet.out, want)
    assert "note:" not in quiet.log, quiet.log


def test_a_cubin_cache_that_others_may_write_to_is_told_once():
    need_emulator()
    with tempfile.TemporaryDirectory() as folder:
        cubin = os.path.join(folder, "cubin")
        os.mkdir(cubin)
        os.chmod(cubin, 0o777)
        env = {**GPU, "VITRINE_CACHE": folder, "VITRINE_EMULATOR": "cc=90,memory=4"}  # ends before kernels are compiled
        ask = ["run", *TINY, *SMALL, "--device", "cuda", "--tokens", "1,2"]
        r = run(*ask, env=env)
        same(r.code, 1)
        assert r.log.count("kernels are compiled again each time") == 1 and "other users write" in r.log, r.log
        assert "compiled again" not in run(*ask, "-q", env=env).log


main(globals())
