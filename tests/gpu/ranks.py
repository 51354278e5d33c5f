"""Ranks on several GPUs: a section of tests/gpu/run, which takes (device, tap, options). It needs two GPUs; with four it
takes four ranks too."""
import json, os, shutil

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


# ---- the rows of the communication ops by themselves ----

EMULATED = {"VITRINE_EMULATOR": "devices=2"}


def rows_program(d, *args):
    return [os.path.join(os.path.dirname(d.parity), "gpu_ranks"), *args]


def said(tap, r):
    """Passes on what gpu_ranks says of failures; returns its last words."""
    lines = r.stdout.decode("utf-8", "replace").splitlines()
    for line in lines:
        if line.startswith(("not ok", "# [")):
            tap.note(line[:300])
    return lines[-1][2:] if lines else f"exit status {r.returncode}"


def rows(d, tap, o):
    """Every row of the communication ops over odd shapes, on 2 and 4 GPUs, over both links: results right, ranks equal."""
    for n in (2,) if o.tiny else (2, 4):
        for link in LINKS:
            r = d.run(rows_program(d, "--ranks", str(n), "--link", link, *(["--small"] if o.tiny else [])), EMULATED if o.tiny else None)
            words = said(tap, r)
            if r.returncode == 77:
                tap.skip(f"rows, {n} ranks over {link}", words[:200])
            else:
                tap.ok(r.returncode == 0, f"rows, {n} ranks over {link}: {words}")


def sanitized(d, tap, o):
    """compute-sanitizer over the communication ops of two GPUs, over both links: memcheck, racecheck, synccheck."""
    program = shutil.which("compute-sanitizer")
    if not program or o.tiny:
        tap.skip("ranks-sanitizer", "an emulated GPU has no sanitizer" if o.tiny else "compute-sanitizer is not here")
        return
    for tool in ("memcheck", "racecheck", "synccheck"):
        for link in LINKS:
            r = d.run([program, "--tool", tool, "--error-exitcode", "9", *rows_program(d, "--link", link, "--small")], limit=100)
            text = (r.stdout + r.stderr).decode("utf-8", "replace").splitlines()
            skips = [line for line in text if line.startswith("1..0")]
            if skips:
                tap.skip(f"{tool}, 2 ranks over {link}", skips[0][:200])
                continue
            found = [line for line in text if line.startswith("=========")]
            for line in found[1:9] if r.returncode else []:
                tap.note(line[:200])
            tap.ok(r.returncode == 0, f"{tool}, 2 ranks over {link}: {found[-1][9:].strip() if found else said(tap, r)}")
