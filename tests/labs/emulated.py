"""What the tests of labs on the emulated GPU share: where it is, and how a lab runs on it."""
import os, sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "cli"))
from tap import *

BUILD = os.environ.get("VITRINE_BUILD", os.path.abspath("build/release"))
EMULATOR = os.path.join(BUILD, "emulator")
GPU = {"LD_LIBRARY_PATH": EMULATOR, "VITRINE_NVRTC": os.path.join(EMULATOR, "libnvrtc.so.13"),
       "VITRINE_CACHE": os.path.join(os.path.dirname(BUILD), "emulator-cache"), "VITRINE_EMULATOR": "cc=90,memory=512"}


def need_emulator():
    if not os.path.exists(os.path.join(EMULATOR, "libcuda.so.1")):
        assert not os.environ.get("VITRINE_REQUIRE_EMULATOR"), "make test-labs builds the emulator, and it is not there"
        skip("no emulator here: make emulator")


def lab(root, track, number, *args, env=None):
    """Runs the quick form of a lab on the emulated GPU; (how it ended, its result or None)."""
    folder = os.path.join(root, track, "results", "local")
    before = set(os.listdir(folder)) if os.path.isdir(folder) else set()
    r = run("lab", track, number, "--quick", "--device", "cuda", "--no-predict", "--results", root, *args,
            env={**GPU, **(env or {})})
    made = [n for n in (os.listdir(folder) if os.path.isdir(folder) else []) if n.startswith(number + "_") and n.endswith(".json")]
    assert r.code != 0 or made, f"lab {track} {number} left no result among {sorted(before)}"
    return r, json.load(open(os.path.join(folder, made[0]), encoding="utf-8")) if made else None
