#!/usr/bin/env python3
"""Planted faults. A kernel that is wrong in one element fails the lab that checks it, and no lab of other kernels; a
kernel that is launched badly (tests/labs/planted) gets the observation that its file names, and no other.

The emulated NVRTC calls g++ by its name. So a stand-in in front of it on PATH changes one line of a kernel's text; the
program itself, its kernels' hashes and the checks are those of every day. Compiled kernels go into a cache of the test's
own, as the key of a kernel is made of its unchanged text."""
import glob, re, shlex, shutil, tempfile

from emulated import *

REAL = shutil.which("g++")


class Planted:
    """env: settings under which `old` in a kernel's text is `new`; changed(): whether a text had it."""

    def __init__(self, old, new):
        self.old, self.new = old, new

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="planted-")
        with open(os.path.join(self.path, "change.py"), "w", encoding="utf-8") as f:
            f.write(f"import sys\npath = sys.argv[1]\ntext = open(path).read()\nif {self.old!r} in text:\n"
                    f"    open(path, 'w').write(text.replace({self.old!r}, {self.new!r}))\n"
                    f"    open({self.path!r} + '/changed', 'w').close()\n")
        stand_in = os.path.join(self.path, "bin", "g++")
        os.makedirs(os.path.dirname(stand_in))
        with open(stand_in, "w", encoding="utf-8") as f:
            f.write(f"#!/bin/sh\nfor a in \"$@\"; do case $a in *.cu) {shlex.quote(sys.executable)} {self.path}/change.py \"$a\";; "
                    f"esac; done\nexec {shlex.quote(REAL)} \"$@\"\n")
        os.chmod(stand_in, 0o755)
        self.env = {"PATH": os.path.dirname(stand_in) + os.pathsep + os.environ["PATH"],
                    "VITRINE_CACHE": os.path.join(self.path, "cache")}
        self.root = os.path.join(self.path, "labs")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path)

    def changed(self):
        return os.path.exists(os.path.join(self.path, "changed"))


def wrong_checks(result):
    return [c["text"] for c in result["checks"] if not c["ok"]]


def check_planted(p, track, op, element):
    """01 of the track fails and names the op and the element."""
    r, result = lab(p.root, track, "01", "--kernel", op, env=p.env)
    assert p.changed(), f"no kernel's text has {p.old!r}"
    same(r.code, 1, f"exit of {track} 01\n{r.text[-2000:]}")
    assert f"lab {track} 01: a check failed" in r.log, r.log
    wrong = wrong_checks(result)
    assert wrong and all(op in text for text in wrong), wrong
    assert any(element in text for text in wrong), wrong
    assert "expected" in wrong[0] and "differs from the reference by" in wrong[0], wrong


def check_holds(p, track, number):
    r, result = lab(p.root, track, number, env=p.env)
    same((r.code, wrong_checks(result)), (0, []), f"{track} {number}")


def test_one_wrong_element_of_embed_fails_the_first_lab_of_mini_sglang_alone():
    need_emulator()
    line = "        store16(to, scaled(load_weights16(from), p.scale));"
    wrong = "        { uint4 v = scaled(load_weights16(from), p.scale); if (i == 3) v.x ^= 0x4000u; store16(to, v); }"
    with Planted(line, wrong) as p:
        check_planted(p, "mini-sglang", "embed", "first at row 0, 24: ")
        check_holds(p, "mini-sglang", "03")  # the store


def test_one_wrong_element_of_rope_fails_the_first_lab_of_flashinfer_alone():
    need_emulator()
    line = "    rotate(STORE && !is_q ? (u16 *)stored : (u16 *)from);"
    with Planted(line, line + " if (!STORE && blockIdx.x == 0 && threadIdx.x == 0) ((u16 *)from)[0] = 0x4000u;") as p:
        check_planted(p, "flashinfer", "rope", "first at row 0, 0: 2, expected ")
        check_holds(p, "flashinfer", "04")  # the norm


def test_the_stand_in_alone_breaks_nothing():
    need_emulator()
    with Planted("pdl_go();", "pdl_go();") as p:
        r, result = lab(p.root, "flashinfer", "01", "--kernel", "kv_store", env=p.env)
        assert p.changed() and result["checks"]
        same((r.code, wrong_checks(result)), (0, []), r.log)


# What a launch alone shows. The others need times or counters: tests/unit/test_lab_causes.c has their figures, and
# tests/labs/causes_on_gpu.py runs them on a GPU.
BY_LAUNCH = {"few_ctas", "tail", "occupancy_shared"}


def cause_of(path, shape):
    r = ok("lab", "kernel", path, "--op", "rmsnorm", "--shape", shape, "--limit", "600", "--json", env=GPU).json
    same((r["failure"], {c["verdict"] for c in r["cases"]} - {"right", "skipped"}), (None, set()), path)
    return r["cause"] and r["cause"]["key"]


def test_a_planted_kernel_gets_its_observation_and_no_other():
    need_emulator()
    found = {}
    for path in sorted(glob.glob(os.path.join(ROOT, "tests/labs/planted/*.cu"))):
        named = re.search(r"^// cause: (\w+)$", open(path).read(), re.M).group(1)
        same(named, os.path.basename(path)[:-3], "the name of the file and of its observation")
        found[named] = cause_of(path, "tokens=128,hidden=128")
    same(found, {name: name if name in BY_LAUNCH else None for name in found})
    assert BY_LAUNCH < set(found), found


def test_a_kernel_that_is_launched_well_gets_no_observation():
    need_emulator()
    same(cause_of(os.path.join(ROOT, "examples/kernels/rmsnorm_step2_warp.cu"), "tokens=256,hidden=64"), None)


def test_the_observation_is_the_first_line_of_what_to_look_at_next():
    need_emulator()
    text = ok("lab", "kernel", os.path.join(ROOT, "tests/labs/planted/few_ctas.cu"), "--op", "rmsnorm", "--shape",
              "tokens=16,hidden=512", "--limit", "600", env=GPU).text
    assert "NEXT       Seen: fewer CTAs than SMs. Likely cause: the grid is too small" in text, text
    assert max(map(len, text.splitlines())) <= 100, text


main(globals())
