"""Our counters beside ncu's, of the same calls: a section of tests/gpu/run. `bench kernels --counters` counts with CUPTI's range
profiler in our own process; ncu counts the launches of the same command without it. Neither locks clocks nor empties caches."""
import csv, io, json, re, shutil, statistics

from device import *

METRICS = {"time": "gpu__time_duration.sum", "read": "dram__bytes_read.sum", "written": "dram__bytes_write.sum",
           "tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
           "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active"}
APART = 0.05  # of the larger value
LEAST_SHARE = 0.02  # a share below this is noise on both sides: the difference may be this large
# a linear, a norm, a decode attention: each moves several times what the L2 cache holds
CALLS = (("linear", "gemm_sm90", "tokens=512,type=bf16,cols=4096,rows=16384"),
         ("rmsnorm", None, "tokens=32768,hidden=4096"),
         ("attention_decode", None, "seqs=16,kv_len=8192,heads=32,kv_heads=8,head_dim=128"))
TINY = (("rmsnorm", None, "tokens=16,hidden=256"),)


def command(d, op, impl, shape):
    return [d.vitrine, "bench", "kernels", op, "--device", "cuda", "--shape", shape, "--method", "warm", "--reps", "5", "--json",
            "-q", *(["--impl", impl] if impl else [])]


def ours(d, op, impl, shape):
    """The first row's counters, in ncu's units, and the names of its kernels without their parameters."""
    r = d.run([*command(d, op, impl, shape), "--counters"])
    if r.returncode:
        raise Refused(r.stderr.decode("utf-8", "replace").strip().split("\n")[-1])
    row = json.loads(r.stdout)["results"][0]
    c = row["counters"]
    return row, {"bytes": c["dram_read"] + c["dram_written"], "tensor": c["tensor"], "occupancy": c["occupancy"]}


def read_ncu(text, kernels):
    """Rows of ncu's wide CSV -> means over calls: each call launches `kernels`, in this order."""
    lines = [line for line in text.split("\n") if line.startswith('"')]
    table = list(csv.DictReader(io.StringIO("\n".join(lines))))[1:]  # the first row has the units
    number = lambda row, key: float(row[METRICS[key]].replace(",", ""))
    calls, at = [], 0
    rows = [r for r in table if r["Kernel Name"].split("<")[0].split("(")[0].strip() in kernels]
    while at + len(kernels) <= len(rows):
        one = rows[at:at + len(kernels)]
        if [r["Kernel Name"].split("<")[0].split("(")[0].strip() for r in one] != kernels:
            at += 1
            continue
        time = sum(number(r, "time") for r in one)
        calls.append({"bytes": sum(number(r, "read") + number(r, "written") for r in one),
                      **{k: sum(number(r, k) * number(r, "time") for r in one) / time / 100 for k in ("tensor", "occupancy")}})
        at += len(kernels)
    if not calls:
        raise Refused(f"ncu's file has no launch of {', '.join(kernels)}")
    return {k: statistics.median(c[k] for c in calls) for k in calls[0]}, len(calls)


def theirs(d, op, impl, shape, kernels):
    names = "|".join(re.escape(k) for k in dict.fromkeys(kernels))
    # the launches before the timed ones are left out: they meet another cache
    r = d.run(["ncu", "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none", "--cache-control", "none",
               "--kernel-name", f"regex:^({names})$", "--launch-skip", str(2 * len(kernels)), "--launch-count",
               str(6 * len(kernels)), "--metrics", ",".join(METRICS.values()), *command(d, op, impl, shape)])
    if r.returncode:
        raise Refused("ncu: " + (r.stdout + r.stderr).decode("utf-8", "replace").strip().split("\n")[-1][:300])
    return read_ncu(r.stdout.decode("utf-8", "replace"), kernels)


def apart(key, a, b):
    if key != "bytes" and max(a, b) < LEAST_SHARE:
        return 0.0
    return abs(a - b) / max(a, b) if max(a, b) > 0 else 0.0


def ncu(d, tap, o):
    """DRAM bytes, tensor share and occupancy of a linear, a norm and a decode attention: ours within 5 % of ncu's."""
    if not shutil.which("ncu"):
        tap.skip("ncu: agreement", "no program ncu is on PATH; it comes with CUDA's tools")
        return
    tap.note("| call | kernels | | counted here | ncu | apart |")
    for op, impl, shape in TINY if o.tiny else CALLS:
        row, mine = ours(d, op, impl, shape)
        kernels = [re.split(r"[<(]", k)[0] for k in row["kernels"]]
        other, n = theirs(d, op, impl or row["implementation"], shape, kernels)
        for key, name in (("bytes", "DRAM bytes"), ("tensor", "tensor share"), ("occupancy", "occupancy")):
            shown = [f"{x / 1e6:.2f} MB" if key == "bytes" else f"{100 * x:.2f} %" for x in (mine[key], other[key])]
            tap.note(f"| {op} {shape} | {', '.join(row['kernels'])} | {name} | {shown[0]} | {shown[1]} | "
                     f"{100 * apart(key, mine[key], other[key]):.2f} % |")
        wrong = [k for k in mine if apart(k, mine[k], other[k]) > APART]
        tap.ok(not wrong, f"ncu: {op}, {n} launches of ncu's; more than 5 % apart: {', '.join(wrong) or 'nothing'}")
