#!/usr/bin/env python3
"""What the command line says of a GPU, on the emulated one: which of them, its state, the time between steps."""
import os, re

from tap import *

EMULATOR = os.path.join(os.environ.get("VITRINE_BUILD", os.path.abspath("build/release")), "emulator")
GPU = {"LD_LIBRARY_PATH": EMULATOR}
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
    # of two runs of four steps; the time between runs is none, the step in flight when a run ends may be one more
    assert 2 * (4 - 1) <= r["step_gaps"] <= 2 * 4, r["step_gaps"]
    gpu = r["machine"]["gpu"]
    same((gpu["ordinal"], gpu["name"], gpu["state_missing"]), (0, "Emulated GPU", None))
    same(gpu["state"], {"sm_mhz": 1500, "sm_max_mhz": 1600, "memory_mhz": 2000, "memory_max_mhz": 2000,
                        "temperature_c": 41, "power_w": 250.4, "power_limit_w": 300.0,
                        "throttle": ["power-cap", "thermal-cap"]})
    text = ok(*args, "--device", "cuda", env=GPU).text
    assert re.search(r"GPU idle between steps: p50 .* of [678] gaps", text), text


def test_a_gpu_that_is_not_there():
    need_emulator()
    fails(1, ["cuda:5", "shows 1 GPU,"], "run", *TINY, *SMALL, "--device", "cuda:5", "--tokens", "1,2", "-q", env=GPU)


main(globals())
