"""Stories and roofs on the device: a section of tests/gpu/run. It checks properties; times are only printed."""
import json, os, tempfile

from device import *

SUM = 0.02    # the share of a timed step that may lie outside its ops
BEATEN = 1.05  # if an op is faster than its roof by more than this, the roof is wrong. By stamps an op's time begins at its
               # predecessor's end, but it has loaded weights before that: its time with the overlap counts
WEIGHTY = 0.03  # ops with a smaller share of a phase are not checked


def value(x):
    return x["value"]


def of_roof(x):
    """The op's share of its roof over all the time in which it ran, beside its predecessor too."""
    time = value(x["time_us"]) or 0
    whole = time + (value(x.get("overlap_us", {"value": 0})) or 0)
    return (value(x["of_roof"]) or 0) * time / whole if whole else 0


def rate(v):
    return "n/a" if v is None else f"{v / 1e12:.3f} T/s" if v >= 1e11 else f"{v / 1e9:.3f} G/s"


def story(d, tap, o):
    """A recorded request: ops sum to their steps, no op beats its roof, recording changes no token; what it costs."""
    n, prompt = (12, 9) if o.tiny else (64, 512)
    ask = ["--tokens", ",".join(str(i % 60 + 1) for i in range(prompt)), "-n", str(n), "--ignore-eos", "--json"]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "s.json")
        told = json.loads(d.call("run", f"--story={path}", *ask))
        plain = json.loads(d.call("run", *ask))
        s = json.load(open(path))
    tap.ok(told["tokens"] == plain["tokens"], f"story: the same {n} tokens while recording")
    r, gpu = s["roofs"], s["engine"]["gpu"]
    tap.note(f"{gpu['name']}, driver {gpu['driver_version']}: " + ", ".join(
        f"{k} {rate(value(r[k]))}" for k in ("memory_bytes_per_s", "l2_bytes_per_s", "fp32_per_s", "bf16_per_s"))
        + f", an empty kernel {value(r['kernel_us'])} us")
    for p in s["phases"]:
        g = p["gpu"]
        outside = abs(value(p["unexplained"]))
        tap.ok(p["timed_steps"] > 0 and outside <= SUM,
               f"story: {p['name']}, {p['timed_steps']} of {p['steps']} steps timed, {100 * outside:.2f} % outside ops")
        tap.note(f"{p['name']} {g['how']}: timed {value(p['step_us'])} us, left alone {value(g['whole_step_us'])} us,"
                 f" host launches in {value(g['prepare_timed_us'])} and {value(g['prepare_whole_us'])} us,"
                 f" {value(g['kernels_per_step'])} kernels, floor {value(p['floor_us'])} us")
        beaten = [f"{x['kind']} {100 * of_roof(x):.0f} % of {x['bound']}" for x in p["ops"]
                  if value(x["share"]) > WEIGHTY and of_roof(x) > BEATEN]
        if not o.tiny:  # an emulated device's times mean nothing
            tap.ok(not beaten, f"story: {p['name']}, ops that beat their roof: {', '.join(beaten) or 'none'}")
    ob = s["observer"]
    tap.note(f"observer: an event {value(ob['event_ns'])} ns of the device, {value(ob['read_ns'])} ns to read; a step of"
             f" {value(ob['off_us'])} us takes {value(ob['measured_tax'])} more while recorded ({ob['pairs']} pairs);"
             f" clock error {value(gpu['clock_error_us'])} us")
    for k in sorted({k["name"] for p in s["phases"] for x in p["ops"] for k in x["kernels"] if k["spill_bytes"]}):
        tap.ok(False, f"story: {k} spills registers")
