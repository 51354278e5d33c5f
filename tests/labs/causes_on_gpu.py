#!/usr/bin/env python3
"""On a GPU: each planted kernel (tests/labs/planted) and some steps of examples/kernels get the observation that they were
made for, and no other.

    VITRINE_BIN=build/vitrine tests/labs/causes_on_gpu.py

Not part of `make test-labs`: an emulated GPU has no times. On a busy GPU a kernel may get another row."""
import glob

from emulated import *

SHAPE = "tokens=16384,hidden=4096"
# (file, shape, observation)
KERNELS = [(path, SHAPE, os.path.basename(path)[:-3]) for path in sorted(glob.glob(os.path.join(ROOT, "tests/labs/planted/*.cu")))]
KERNELS += [(os.path.join(ROOT, "examples/kernels", name), shape, key) for name, shape, key in (
    ("rmsnorm_step1_naive.cu", SHAPE, "uncoalesced"),
    ("rmsnorm_step5_two_rows.cu", SHAPE, "near_roof"),
    ("rmsnorm_step5_two_rows.cu", "tokens=132,hidden=1024", "few_ctas"))]


def one(path, shape, key):
    def test():
        r = ok("lab", "kernel", path, "--op", "rmsnorm", "--shape", shape, "--device", "cuda", "--json").json
        if r["emulated"]:
            skip("an emulated GPU has no times")
        own = [row for row in r["rows"] if row["own"]][-1]
        launch = own["launch"]
        print(f"# {os.path.basename(path)} {shape}: {(r['cause'] or {}).get('key')}; cold {own['cold_us']:.1f} us, graph "
              f"{own['graph_us']:.1f} us, {own['cold_roof_share']} of {own['cold_roof']}, {launch['registers']} registers, "
              f"{launch['spill_bytes']} spilled, {launch['warps_per_sm']} of {launch['max_warps_per_sm']} warps, "
              f"{launch['waves']} waves", flush=True)
        same(r["cause"] and r["cause"]["key"], key)
    test.__name__ = f"test_{os.path.basename(path)[:-3]}_{shape.split(',')[0]}_gets_{key}"
    return test


main({f"test_{n}": one(*k) for n, k in enumerate(KERNELS)})
