"""Hardware counters on the device: a section of tests/gpu/run. Counters cannot be foretold, so it checks what must hold for
any: shares are shares, and ops that stream weights read them about once."""
import json, os, tempfile

from device import *

LEAST, MOST = 0.9, 1.3  # bytes counted by bytes that must move, of ops with more weights than the L2 cache holds
SHARES = ("sm", "tensor", "dram", "l2_hit", "occupancy")


def value(x):
    return x["value"]


def tell(tap, phase):
    for x in phase["ops"]:
        shares = ", ".join(f"{k} {100 * value(x[k]):.1f} %" for k in SHARES if value(x[k]) is not None)
        of = value(x["of_compulsory"])
        tap.note(f"{phase['name']} {x['kind']} ({x['impl']}): {value(x['time_us'])} us, {shares}, "
                 f"{'n/a' if of is None else f'{of:.3f}'} of the bytes that it must move")


def check_phase(tap, phase, l2_bytes, o):
    wrong = [f"{x['kind']} {k} {value(x[k])}" for x in phase["ops"] for k in SHARES
             if value(x[k]) is not None and not 0 <= value(x[k]) <= 1.02]
    tap.ok(not wrong, f"cupti: {phase['name']}, shares that are none: {', '.join(wrong) or 'none'}")
    streams = [x for x in phase["ops"] if (value(x["compulsory_bytes"]) or 0) / x["calls"] > l2_bytes]
    wrong = [f"{x['kind']} {value(x['of_compulsory'])}" for x in streams
             if value(x["of_compulsory"]) is not None and not LEAST <= value(x["of_compulsory"]) <= MOST]
    if not o.tiny:  # the emulated library's values are planted
        tap.ok(not wrong, f"cupti: {phase['name']}, {len(streams)} ops move more than the L2 cache holds; outside of {LEAST} to "
                          f"{MOST} of their bytes: {', '.join(wrong) or 'none'}")


def over_time(d, tap, ask, model, plain, tokens):
    """The same request with lanes: sampling changes no token and no time."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "lanes.json")
        same = json.loads(d.call("run", f"--story={path}", "--story-lanes", *ask, model=model))["tokens"] == tokens
        s = json.load(open(path))
    tap.ok(same, "cupti: the same tokens while sampling")
    sampled = s["lanes"]["sampled"]
    if sampled["why"]:
        tap.skip("cupti: counters over time", sampled["why"])
        return
    lanes = [x for x in s["lanes"]["items"] if "mean" in x]
    for x in lanes:
        tap.note(f"over time {x['name']}: {', '.join(f'{k} {100 * value(x[k]):.1f} %' for k in ('least', 'mean', 'most'))}")
    wrong = [x["name"] for x in lanes if not 0 <= value(x["least"]) <= value(x["most"]) <= 1.1]
    tap.ok(lanes and not wrong, f"cupti: {sampled['count']} samples of {len(lanes)} lanes, shares that are none: {', '.join(wrong) or 'none'}; "
                                f"{value(sampled['lost_ms'])} ms lost; not sampled: "
                                f"{', '.join(x['lane'] + ' (' + x['why'] + ')' for x in sampled['not_sampled']) or 'nothing'}")
    step = [value(x["phases"][1]["gpu"]["whole_step_us"]) for x in (plain, s)]
    tap.note(f"a decode step takes {step[0]} us without sampling and {step[1]} us with it")
    tap.ok(step[1] / step[0] <= 1.05, "cupti: steps take as long while the GPU is sampled")


def recorded(d, tap, ask, model, plain, tokens):
    """The same request with records of its kernels: no token changes, nor the time of steps that are left alone; recorded calls sum
    to a step."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "records.json")
        same = json.loads(d.call("run", f"--story={path}", "--story-activity", *ask, model=model))["tokens"] == tokens
        s = json.load(open(path))
    tap.ok(same, "cupti: the same tokens while kernels are recorded")
    a = s["activity"]
    if a["why"]:
        tap.skip("cupti: records of kernels", a["why"])
        return
    tap.note(f"beginning to record takes {value(a['begin_ms'])} ms a step, reading {value(a['read_ms'])} ms; {a['lost']} records lost")
    for p in a["phases"]:
        tap.note(f"{p['name']}: {p['recorded_steps']} steps of {value(p['step_us'])} us, {value(p['unrecorded_step_us'])} us when left alone; "
                 f"calls {value(p['calls_us'])} us, of stamped {value(p['of_stamped'])}")
        for x in p["ops"]:
            tap.note(f"{p['name']} {x['kind']} ({x['impl']}): recorded {value(x['time_us'])} us, kernels {value(x['kernel_us'])} us, stamped "
                     f"{value(x['stamped_us'])} us; {', '.join(k['name'][:60] + (' (library)' if k['library'] else '') for k in x['kernels'])}")
        tap.ok(a["broken_steps"] == 0 and value(p["unknown"]) == 0,
               f"cupti: {p['name']}, {value(p['records'])} records a step, all kernels of known calls")
    decode = [p for p in a["phases"] if p["name"] == "decode"]
    tap.ok(decode and a["lost"] == 0, "cupti: decode steps were recorded, and no record was lost")
    if decode:
        of = value(decode[0]["calls_us"]) / value(decode[0]["unrecorded_step_us"])
        tap.ok(abs(of - 1) <= 0.05, f"cupti: recorded calls take as long as a step that is left alone within 5 %: {of:.4f}")
    step = [value(x["phases"][1]["gpu"]["whole_step_us"]) for x in (plain, s)]
    tap.note(f"a decode step left alone takes {step[0]} us without records in the run and {step[1]} us with them")


def by_line(d, tap):
    """Samples of the program counter lie at lines of our kernels."""
    r = d.run([d.vitrine, "bench", "kernels", "rmsnorm", "--device", "cuda", "--shape", "tokens=4096,hidden=4096", "--impl", "rows",
               "--lines", "--json"])
    if r.returncode:
        tap.skip("cupti: lines of kernels", r.stderr.decode("utf-8", "replace").strip().split("\n")[-1])
        return
    s = json.loads(r.stdout)["results"][0]["samples"]
    for x in s["lines"]:
        tap.note(f"{100 * x['samples'] / max(1, s['own']):.1f} % {x['file']}:{x['line']} {x['text']}: " +
                 ", ".join(f"{w['reason']} {100 * w['share']:.0f} %" for w in x["waits"][:3]))
    tap.ok(s["own"] > 1000 and s["at_a_line"] >= 0.95 * s["own"],
           f"cupti: {s['own']} samples of {s['calls']} calls of rmsnorm, {s['at_a_line']} of them at a line; {s['lost']} lost")
    tap.ok(any(x["file"] == "rmsnorm.cu" and x["text"] for x in s["lines"]), "cupti: lines of rmsnorm.cu are among the ten hottest")


def cupti(d, tap, o):
    """Which tiers this machine allows; counters of a story's calls, that change no token and no time of other steps."""
    for where, tiers in json.loads(d.run([d.vitrine, "env", "--json"]).stdout)["profiling"]["tiers"].items():
        for name, t in sorted(tiers.items()):
            tap.note(f"{where} {name} {'yes' if t['allowed'] else 'no'}: {t['what']}: {t['why']}")
    n, prompt, budget = (24, 20, 16) if o.tiny else (64, 1024, 512)
    ask = ["--tokens", ",".join(str(i % 60 + 1) for i in range(prompt)), "-n", str(n), "--ignore-eos", "--json",
           "--token-budget", str(budget), "--max-running", "8"]
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, x) for x in ("plain.json", "counted.json")]
        model = None if o.tiny else "dummy:qwen3-0.6b"  # its head has 311 MB
        plain = json.loads(d.call("run", f"--story={paths[0]}", *ask, model=model))
        counted = json.loads(d.call("run", f"--story={paths[1]}", "--story-counters", *ask, model=model))
        s, t = (json.load(open(p)) for p in paths)
    if not o.tiny:  # tests/cli/test_story_cuda.py has lanes on the emulated GPU
        over_time(d, tap, ask, model, s, plain["tokens"])
        recorded(d, tap, ask, model, s, plain["tokens"])
        by_line(d, tap)
    tap.ok(plain["tokens"] == counted["tokens"], f"cupti: the same {n} tokens while counting")
    c = t["gpu_counters"]
    if c["why"]:
        tap.skip("cupti: counters", c["why"])
        return
    tap.ok([p["name"] for p in c["phases"]] == ["prefill", "decode"],
           f"cupti: counted {', '.join(str(p['counted_steps']) + ' ' + p['name'] for p in c['phases'])} steps; not counted: "
           f"{', '.join(x['counter'] + ' (' + x['why'] + ')' for x in c['not_counted']) or 'nothing'}")
    for phase in c["phases"]:
        tell(tap, phase)
        check_phase(tap, phase, t["engine"]["gpu"]["l2_bytes"], o)
    whole = [value(x["phases"][1]["gpu"]["whole_step_us"]) for x in (s, t)]
    tap.note(f"a decode step left alone takes {whole[0]} us without counters in the run and {whole[1]} us with them")
    if not o.tiny:
        tap.ok(abs(whole[1] / whole[0] - 1) <= 0.05, "cupti: steps that are not counted take as long as without counters")
