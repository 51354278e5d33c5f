#!/usr/bin/env python3
"""The experiments: each tells every item and leaves its files; the server of the first one is used and ended."""
import json, os, re, subprocess, tempfile

from tap import *

ITEMS = {
    "1_start_server": ["ready", "loaded", "address", "memory", "device"],
    "2_baseline_benchmark": ["latency", "throughput", "medians", "bound"],
    "3_profile_requests": ["breakdown", "concurrency", "prefix", "length", "hardware"],
    "4_timeline_profile": ["kernels", "timeline", "overlap", "memory", "nsys"],
    "5_tp_scaling": ["configurations", "pairs", "host", "four"],
    "6_radix_cache_analysis": ["sharing", "length", "concurrent", "eviction", "access"],
}
FILES = {"1": ["server.log", "server.json", "memory_summary.txt"], "2": ["baseline_benchmark.json", "throughput_benchmark.json"],
         "3": ["profiling_results.json"], "4": ["timeline.json", "kernel_summary.txt", "memory_summary.txt"], "5": ["tp_single.json"],
         "6": ["radix_cache_results.json"]}


def experiment(d, number, *args):
    """Runs one and returns the folder of its results and its result."""
    r = run("lab", "experiments", number, "--quick", "--no-predict", "--results", d, "-q", *args)
    assert r.code == 0, r.log[-2000:] + r.text[-2000:]
    folder = os.path.join(d, "experiments", "results", "local")
    name = next(n for n in ITEMS if n.startswith(number))
    return folder, json.load(open(os.path.join(folder, name + ".json")))


def told(number, folder, result):
    name = next(n for n in ITEMS if n.startswith(number))
    same(sorted(result["items"]), sorted(ITEMS[name]))
    assert result["checks"] and all(c["ok"] for c in result["checks"]), result["checks"]
    for f in FILES[number]:
        assert os.path.exists(os.path.join(folder, f)), f
    same(result["schema"], "vitrine.lab")


def test_experiments_use_the_server_that_the_first_one_left():
    need_model()
    with tempfile.TemporaryDirectory() as d:
        folder, first = experiment(d, "1")
        left = json.load(open(os.path.join(folder, "server.json")))
        try:
            told("1", folder, first)
            assert os.path.exists(f"/proc/{left['pid']}"), left
            for number in ("3", "4", "5"):
                folder, result = experiment(d, number)
                told(number, folder, result)
            profile = json.load(open(os.path.join(folder, "profiling_results.json")))
            assert profile["prefix"]["again_cached_tokens"] > 300 and len(profile["concurrency"]) == 4, profile
            trace = json.load(open(os.path.join(folder, "timeline.json")))
            assert len(trace["traceEvents"]) > 100
            lines = open(os.path.join(folder, "kernel_summary.txt")).read().split("\n")
            shares = [float(line.split()[0]) for line in lines[1:] if line]
            assert abs(sum(shares) - 100) < 1, shares
        finally:
            experiment(d, "1", "--stop")
        assert not os.path.exists(f"/proc/{left['pid']}/exe"), "the server has ended"
        r = run("lab", "experiments", "1", "--stop", "--results", d, "-q")
        same(r.code, 2)
        assert "left no server running" in r.log, r.log


def test_baseline_sends_a_hundred_requests():
    need_model()
    with tempfile.TemporaryDirectory() as d:
        folder, result = experiment(d, "2")
        told("2", folder, result)
        baseline = json.load(open(os.path.join(folder, "baseline_benchmark.json")))
        same(baseline["requests"], 100)
        assert baseline["ttft"]["p50_ms"] > 0 and baseline["output_tokens_per_s"] > 0


def test_scripts_have_the_familiar_names():
    scripts = "labs/experiments/scripts"
    with tempfile.TemporaryDirectory() as d:
        stub = os.path.join(d, "vitrine")
        open(stub, "w").write('#!/bin/sh\necho "$@"\n')
        os.chmod(stub, 0o755)
        env = {**os.environ, "VITRINE": stub}
        for command, want in (("bash 01_start_server.sh", "lab experiments 1"), ("bash 02_baseline_benchmark.sh", "lab experiments 2"),
                              ("python 03_profile_with_torch.py", "lab experiments 3"), ("bash 04_nsys_profile.sh", "lab experiments 4 --nsys"),
                              ("bash 05_tp_scaling.sh", "lab experiments 5"), ("python 06_radix_cache_analysis.py", "lab experiments 6"),
                              ("./03_profile_requests --quick", "lab experiments 3 --quick")):
            out = subprocess.run(command, shell=True, cwd=scripts, env=env, capture_output=True, text=True)
            same((out.returncode, out.stdout.strip()), (0, want), command)


main(globals())
