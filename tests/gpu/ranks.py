"""Ranks on several GPUs: a section of tests/gpu/run, which takes (device, tap, options). It needs two GPUs; with four it
takes four ranks too."""
import json

from device import *

TIE = 0.35  # as in model_checks.py
LINKS = ("p2p", "host")
SHOWN = (16 << 10, 64 << 10, 1 << 20, 8 << 20)  # bytes


def tokens_of(runs):
    """What two runs that have the same bits agree on."""
    return [[(step[0], step[1]) for step in steps] for steps, _ in runs]


def tokens(d, tap, o, tp, prompts, n, env):
    """Greedy text of tp ranks over each link beside one GPU's, and the two links beside each other."""
    one, seen = d.complete(prompts, n, env=env), {}
    for link in LINKS:
        try:
            seen[link] = d.complete(prompts, n, "--tp", str(tp), "--tp-link", link, env=env)
        except Refused as e:
            if "no peer access" in str(e):
                tap.skip(f"greedy text, tp {tp} over {link}", str(e)[:200])
                continue
            raise
        compare_runs(TIE, seen[link], one).report(tap, f"greedy text, tp {tp} over {link} and one GPU")
    if len(seen) == 2:
        tap.ok(tokens_of(seen["p2p"]) == tokens_of(seen["host"]), f"tp {tp}: the links give the same bits")


def collectives(d, tap, tp):
    """vitrine bench comm over each link, NCCL beside it: results right and equal on all ranks; times as notes."""
    for link in LINKS:
        r = d.run([d.vitrine, "bench", "comm", "--device", "cuda", "--tp", str(tp), "--tp-link", link, "--json", "-q"])
        if r.returncode and b"no peer access" in r.stderr:
            tap.skip(f"bench comm, tp {tp} over {link}", "no peer access")
            continue
        rows = json.loads(r.stdout)["results"] if r.returncode == 0 else []
        tap.ok(rows and not any(x["wrong"] for x in rows), f"bench comm, tp {tp} over {link}: {len(rows)} rows right")
        for x in rows:
            if x["message_bytes"] in SHOWN:
                tap.note(f"{x['op']} {x['message_bytes']} B {x['implementation']} {x['method']}: median "
                         f"{x['median_ns'] / 1e3:.2f} us")


def ranks(d, tap, o):
    """--tp 2 (and 4) over both links: tokens beside one GPU's, the links' bits, communication ops beside NCCL."""
    env = {"VITRINE_EMULATOR": "devices=2"} if o.tiny else None
    prompts, n = ([p[:12] for p in read_prompts()[:2]], 4) if o.tiny else (read_prompts()[::10], 40)
    for tp in (2, 4):
        try:
            tokens(d, tap, o, tp, prompts, n, env)
        except Refused as e:
            if "the driver shows" not in str(e):
                raise
            tap.skip(f"tp {tp}", str(e)[:200])
            continue
        if not o.tiny:
            collectives(d, tap, tp)
