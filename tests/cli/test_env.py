#!/usr/bin/env python3
"""vitrine env: the machine, links between GPUs, other programs, attempts, advice, the last line."""
import json, os, re, shutil, tempfile

from tap import *

BUILD = os.environ.get("VITRINE_BUILD", os.path.abspath("build/release"))
EMULATOR = os.path.abspath(os.path.join(BUILD, "emulator"))
SCRATCH = tempfile.mkdtemp(prefix="vitrine-env-")
# the machine of seven GPUs, as nvidia-smi's matrix tells it
SEVEN = """X NV12 PXB PXB SYS SYS SYS
NV12 X PXB PXB SYS SYS SYS
PXB PXB X NV12 SYS SYS SYS
PXB PXB NV12 X SYS SYS SYS
SYS SYS SYS SYS X PXB PXB
SYS SYS SYS SYS PXB X NV12
SYS SYS SYS SYS PXB NV12 X"""


def tool(name, script):
    folder = os.path.join(SCRATCH, "bin")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write("#!/bin/sh\n" + script + "\n")
    os.chmod(path, 0o755)
    return folder


def nvml_alone():
    """A folder with the stand-in of NVML and no driver."""
    if not os.path.exists(EMULATOR + "/libnvidia-ml.so.1"):
        skip("no emulated GPU: make emulator")
    folder = os.path.join(SCRATCH, "nvml")
    os.makedirs(folder, exist_ok=True)
    if not os.path.lexists(folder + "/libnvidia-ml.so.1"):
        os.symlink(EMULATOR + "/libnvidia-ml.so.1", folder + "/libnvidia-ml.so.1")
    return {"LD_LIBRARY_PATH": folder, "VITRINE_CACHE": SCRATCH + "/empty"}


def emulated():
    if not os.path.exists(EMULATOR + "/libcuda.so.1"):
        skip("no emulated GPU: make emulator")
    return {"LD_LIBRARY_PATH": EMULATOR, "VITRINE_NVRTC": EMULATOR + "/libnvrtc.so.13", "VITRINE_DEVICE": "auto",
            "VITRINE_EMULATOR": "cc=90,memory=512", "VITRINE_CACHE": os.path.join(os.path.dirname(os.path.dirname(EMULATOR)), "emulator-cache")}


HERE = []


def no_gpu_here():
    if not HERE:
        HERE.append(ok("env", "--json").json)
    if HERE[0]["gpus"]:
        skip("this machine has a GPU")


def fits(text):
    for line in text.split("\n"):  # a path cannot be broken
        assert len(line) <= 100 or max(map(len, line.split())) > 50, line


def flat(text):
    return " ".join(text.split())


def last_paragraph(text):
    return flat(text.rstrip("\n").split("\n\n")[-1])


def test_the_parts_of_a_machine_without_a_gpu():
    no_gpu_here()
    folder = tool("nsys", "echo NVIDIA Nsight Systems version 2024.5.1.113-245134619542v0")
    tool("ncu", "sleep 100000")
    tool("nvcc", "echo 'Cuda compilation tools, release 12.5, V12.5.82'")
    env = {"PATH": folder + ":" + os.environ["PATH"], "VITRINE_CACHE": SCRATCH + "/empty"}
    text = ok("env", env=env).text
    fits(text)
    for word in ("sockets", "NUMA node 0", "Libraries", "Compiling GPU kernels", "Ops and what their kernels need", "Caches"):
        assert word in text, word
    words = flat(text)
    assert f"nsys 2024.5.1.113 at {folder}/nsys" in words, words
    assert f"ncu no: {folder}/ncu did not end within 5000 ms" in words, words
    assert f"nvcc 12.5 at {folder}/nvcc" in words, words
    assert "-default-device" in words and "-DNAME=VALUE for each template parameter" in words
    assert f"kernels none yet in {SCRATCH}/empty/cubin" in words, "a sentence where the cache is empty"
    assert "the cache has no model -> vitrine pull smollm2-135m" in words
    same(last_paragraph(text), "environment is READY for CPU, but the labs' model on a CPU is not in the cache: vitrine "
                               "pull smollm2-135m")
    assert "Every op tried" not in text


def test_try_runs_every_op_and_json_holds_every_part():
    r = ok("env", "--try", "--json").json
    tried = [t for t in r["tried"] if t["device"] == "cpu"]
    same([t["op"] for t in tried], list(r["ops"]))
    for t in tried:
        assert t["ok"] and t["error"] <= t["allowed"] and t["row"] and t["shape"] and t["why"] is None, t
        here = {row["row"] for row in r["ops"][t["op"]] if row["here"]}
        assert t["row"] in here, (t, here)
    assert r["topology"]["sockets"] is None or r["topology"]["sockets"] >= 1
    for n in r["topology"]["nodes"]:
        assert n["n_cpus"] is None or n["n_cpus"] >= 0, n
    same((r["ready"], r["missing"]), (True, []))
    assert "cpu" in r["ready_for"]
    same(set(r["tools"]), {"nvcc", "nsys", "ncu"})
    tiers = r["profiling"]["tiers"]
    same(sorted(tiers), ["cpu", "gpu"])
    for where in tiers.values():
        same(sorted(where), ["T0", "T1", "T2", "T3", "T4"])
        for tier in where.values():
            assert tier["what"] and tier["why"] and (tier["allowed"] or not tier["read"]), tier
    same((tiers["cpu"]["T0"]["allowed"], tiers["cpu"]["T0"]["read"]), (True, True))
    events = r["profiling"]["cpu_events"]
    same([e["name"] for e in events][:5], ["cycles", "instructions", "cache misses", "AMX busy", "slots"])
    for e in events:
        assert e["counted"] == (e["why"] is None), e
    same(tiers["cpu"]["T1"]["allowed"], events[0]["counted"])
    for key in ("flags", "trigger", "invalidation"):
        assert r["compiler"][key], key
    for row in r["ops"]["linear"]:
        same(row["needs"], None if row["device"] == "cpu" else "cublasLt" if row["row"] == "cublaslt" else "nvrtc", row["row"])


def test_a_gpu_that_is_asked_for_and_missing_is_not_ready_and_says_what_to_do():
    no_gpu_here()
    r = ok("env", env={"VITRINE_DEVICE": "cuda"})
    told = last_paragraph(r.text)
    assert told.startswith("environment is not ready: no model can run on GPU 0: no NVIDIA driver here"), told
    assert "-> mend that, or choose the CPU: --device cpu" in flat(r.text)


def test_links_groups_and_users_of_seven_gpus():
    env = {**nvml_alone(), "EMULATED_LINKS": SEVEN, "EMULATED_USERS": "1 4242 64424509440 python3"}
    text = ok("env", env=env).text
    fits(text)
    matrix = [l.split()[1:] for l in text.split("\n") if re.match(r"  GPU\d  ", l)]
    same(matrix, [l.split() for l in SEVEN.split("\n")], "the matrix")
    words = flat(text)
    for part in ("NVn NVLink", "PXB PCIe through several switches", "SYS PCIe and the interconnect between sockets",
                 "prefer (0,1) by NV12, (2,3) by NV12, (5,6) by NV12", "prefer (0,1,2,3) with no link below PXB",
                 "groups that mix (0,1,2,3) and (4,5,6)", "20.0 of 80.0 GiB free; used by process 4242 (python3, 60.0 GiB)",
                 "no other program uses it"):
        assert part in words, part
    assert "PHB" not in words, "the legend has only what occurs"
    j = ok("env", "--json", env=env).json
    same([g["links"] for g in j["gpus"]], [l.split() for l in SEVEN.split("\n")])
    same([(g["size"], g["gpus"], g["worst_link"]) for g in j["prefer"]],
         [(2, [0, 1], "NV12"), (2, [2, 3], "NV12"), (2, [5, 6], "NV12"), (4, [0, 1, 2, 3], "PXB")])
    same(j["islands"], [[0, 1, 2, 3], [4, 5, 6]])
    same(j["gpus"][1]["users"], [{"pid": 4242, "name": "python3", "bytes": 64424509440}])
    same(j["gpus"][1]["free_bytes"], 20 << 30)


def test_limits_of_sums_over_ranks_are_the_fixed_ones_or_those_of_kept_times():
    env = {**emulated(), "VITRINE_EMULATOR": "cc=90,memory=512,devices=2", "EMULATED_LINKS": "X NV12\nNV12 X",
           "VITRINE_CACHE": SCRATCH + "/sums"}
    j = ok("env", "--json", env=env).json
    fixed = {"sum": {"push": 65536, "one_shot": None}, "norm": {"push": 131072, "one_shot": 8 << 20}, "measured": None}
    same(j["rank_sums"], [{"gpus": 2, "link": "p2p", "limits": fixed}])
    one, slow, none = [1.0] * 11, [9.0] * 11, [None] * 11  # one-shot is the fastest at every size
    times = {"push": [9.0] * 6 + [None] * 5, "one_shot": one, "other": none}
    version = re.search(r"CUDA driver +(\d+)\.(\d+)", ok("env", env=env).text)
    driver = int(version[1]) * 1000 + int(version[2]) * 10
    with open(f"{SCRATCH}/sums/comm-Emulated-GPU-driver{driver}-p2p-0-1.json", "w") as f:
        json.dump({"version": 1, "date": "2026-11-29T18:00:00Z", "sum": times, "norm": {**times, "other": slow}}, f)
    kept = {"sum": {"push": 0, "one_shot": None}, "norm": {"push": 0, "one_shot": 8 << 20}, "measured": "2026-11-29T18:00:00Z"}
    same(ok("env", "--json", env=env).json["rank_sums"], [{"gpus": 2, "link": "p2p", "limits": kept}])
    text = flat(ok("env", env=env).text)
    assert "2, p2p sums: one-shot; with the norm: one-shot to 8 MiB, then sum and norm apart (measured 2026-11-29)" in text, text
    same(ok("env", "--json", env={**env, "VITRINE_COMM_TIMES": "0"}).json["rank_sums"][0]["limits"], fixed, "forbidden")


def test_nonsense_from_the_library_is_told_as_unknown():
    r = ok("env", env={**nvml_alone(), "EMULATED_LINKS": "wild"})
    fits(r.text)
    assert "\x1b" not in r.text and "memory not told" in r.text and "3 GPUs beyond the first 16" in r.text


def test_the_emulated_gpu_is_tried_and_says_that_it_is_emulated():
    env = emulated()
    r = ok("env", "--try", env=env)
    fits(r.text)
    assert "it is emulated: these times mean nothing" in r.text and "(the GPU is emulated)" in r.text
    assert "the GPU is emulated: its times mean nothing ->" in flat(r.text)
    ready = "environment is READY for CPU and GPU 0 (Emulated GPU: results, no times)"
    assert last_paragraph(r.text).startswith(ready), last_paragraph(r.text)
    rows = [l.split() for l in r.text.split("\n") if re.match(r"  \w+  +GPU  +\w+ ", l)]
    assert len(rows) >= 14 and all(x[-1] == "OK" for x in rows), rows
    assert "cublaslt" in [x[2] for x in rows], "a row with a library is tried"
    assert "├── " in r.text and "compiled kernels in" in r.text
    j = ok("env", "--jit", "--json", env=env).json
    k = next(k for k in j["kernels"] if k["kernel"] == "embed")
    assert k["parameters"]["hidden"] and k["compile_ms"] > 0 and k["arch"].startswith("sm_"), k
    same(j["folder"], env["VITRINE_CACHE"] + "/cubin")
    fits(ok("env", "--jit", env=env).text)


def gpu_tiers(**env):
    """What env says of the emulated GPU's tiers, as data and as text."""
    env = {**emulated(), **env}
    return ok("env", "--json", env=env).json["profiling"]["tiers"]["gpu"], flat(ok("env", env=env).text)


def test_tiers_of_a_gpu_say_what_they_see_or_what_stands_against_them():
    tiers, words = gpu_tiers()
    same([tiers[t]["allowed"] for t in sorted(tiers)], [True] * 5)
    assert "GPU T0 when every kernel began and ended, inside its graph: stamped by the kernels" in words, words
    assert "time, sm, tensor, dram_read, dram_written, dram, l2_hit, occupancy" in tiers["T3"]["why"], tiers["T3"]
    assert "sm, tensor, dram_read, dram_written, l2_hit, pcie_in, pcie_out" in tiers["T2"]["why"], tiers["T2"]
    assert "--story-activity has them of some steps" in tiers["T1"]["why"], tiers["T1"]
    tiers, _ = gpu_tiers(EMULATED_CUPTI="watched")
    assert not tiers["T1"]["allowed"] and "another profiler" in tiers["T1"]["why"], tiers["T1"]
    tiers, words = gpu_tiers(EMULATED_CUPTI="forbidden")
    same([tiers[t]["allowed"] for t in sorted(tiers)], [True, True, False, False, False])
    assert "GPU T3 counters of each call: no: CUPTI failed" in words and "NVreg_RestrictProfilingToAdminUsers=0" in words, words
    tiers, _ = gpu_tiers(EMULATED_CUPTI="no=dram__bytes_read.sum")
    assert tiers["T2"]["allowed"] and "; not dram_read: CUPTI failed at adding metrics" in tiers["T2"]["why"], tiers["T2"]
    assert tiers["T3"]["allowed"] and "; not dram_read: CUPTI failed at adding metrics" in tiers["T3"]["why"], tiers["T3"]


def test_tiers_of_an_a100_with_the_cupti_of_cuda_12_5():
    tiers, words = gpu_tiers(VITRINE_EMULATOR="cc=80,memory=512", VITRINE_CUPTI=EMULATOR + "/cupti-12.5/libcupti.so.12")
    same([tiers[t]["allowed"] for t in sorted(tiers)], [False, True, False, False, True])
    assert "timer grows in steps of 1000 ns, which is too coarse to stamp kernels" in tiers["T0"]["why"], tiers["T0"]
    for tier, function in (("T2", "cuptiPmSamplingEnable"), ("T3", "cuptiProfilerHostInitialize")):
        same(tiers[tier]["why"], f"CUPTI 12.5 has no function {function}, which CUDA 12.6's and later have")
    tiers, _ = gpu_tiers(VITRINE_CUPTI="/nowhere/libcupti.so")
    assert "VITRINE_CUPTI=/nowhere/libcupti.so cannot be opened" in tiers["T3"]["why"], tiers["T3"]


def test_tiers_with_the_cupti_of_cuda_12_1_and_12_6():
    tiers, _ = gpu_tiers(VITRINE_CUPTI=EMULATOR + "/cupti-12.1/libcupti.so.12")
    same([tiers[t]["allowed"] for t in sorted(tiers)], [True, True, False, False, False])
    same(tiers["T4"]["why"], "CUPTI 12.1 writes shorter records of samples than are read here, which CUDA 12.4's and later write")
    tiers, _ = gpu_tiers(VITRINE_CUPTI=EMULATOR + "/cupti-12.6/libcupti.so.12")
    same([tiers[t]["allowed"] for t in sorted(tiers)], [True] * 5)
    for lane in ("dram_read", "dram_written"):  # as CUPTI 12.6's and 12.8's own lists of what can be sampled
        assert f"; not {lane}: CUPTI failed at adding metrics" in tiers["T2"]["why"], tiers["T2"]


def test_an_op_that_fails_is_told_and_the_exit_status_is_one():
    """A GPU whose kernels cannot be compiled: VITRINE_NVRTC names a library that is none."""
    env = {**emulated(), "VITRINE_NVRTC": "/nowhere/libnvrtc.so"}
    r = run("env", env=env)
    same(r.code, 0)
    assert last_paragraph(r.text).startswith("environment is not ready: VITRINE_NVRTC=/nowhere"), last_paragraph(r.text)
    assert "pip install nvidia-cuda-nvrtc" in flat(r.text)
    j = ok("env", "--json", env=env).json
    same((j["ready"], j["ready_for"], len(j["missing"])), (False, [], 1))
    assert [a for a in j["advice"] if a["blocks"]][0]["action"]
    # where the emulated GPU has next to no memory, attempts fail
    r = run("env", "--try", env={**emulated(), "VITRINE_EMULATOR": "cc=90,memory=1"})
    same(r.code, 1)
    assert "FAILED" in r.text and last_paragraph(r.text).startswith("environment is not ready: "), r.text


try:
    main(globals())
finally:
    shutil.rmtree(SCRATCH)
