#!/usr/bin/env python3
""".ci/run: both targets run, and one closing line sums them, whatever happens to either. `make` is a stand-in."""
import os, shutil, tempfile

from tap import *

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


def ci(**target):
    """What each target prints and ends with -> (.ci/run's status, its last line)."""
    folder = tempfile.mkdtemp(prefix="ci-")
    try:
        with open(os.path.join(folder, "make"), "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\ncase $1 in\n" + "".join(
                f"{name.replace('_', '-')}) printf '%b' '{text}'; exit {code} ;;\n" for name, (text, code) in target.items())
                + "*) echo unknown target >&2; exit 2 ;;\nesac\n")
        os.chmod(os.path.join(folder, "make"), 0o755)
        p = subprocess.run([os.path.join(ROOT, ".ci", "run")], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, timeout=LIMIT_S,
                           env=clean_env({"PATH": folder + os.pathsep + os.environ["PATH"]}))
        return p.returncode, p.stdout.decode().strip().split("\n")[-1]
    finally:
        shutil.rmtree(folder)


def test_both_targets_are_summed():
    same(ci(test=("built\\n100 passed, 0 failed\\n", 0), test_labs=("20 passed, 0 failed\\n", 0)), (0, "120 passed, 0 failed"))


def test_a_failure_in_either_fails_and_the_other_still_runs():
    same(ci(test=("100 passed, 2 failed\\nmake: *** [test] Error 1\\n", 2), test_labs=("20 passed, 0 failed\\n", 0)),
         (1, "120 passed, 2 failed"))
    same(ci(test=("100 passed, 0 failed\\n", 0), test_labs=("19 passed, 1 failed\\n", 2)), (1, "119 passed, 1 failed"))


def test_a_target_without_a_closing_line_is_a_failure():
    same(ci(test=("cc: error\\n", 2), test_labs=("20 passed, 0 failed\\n", 0)), (1, "20 passed, 1 failed"))
    same(ci(test=("100 passed, 0 failed\\n", 0), test_labs=("", 0)), (1, "100 passed, 1 failed"))
    same(ci(test=("100 passed, 0 failed\\n", 2), test_labs=("20 passed, 0 failed\\n", 0)), (1, "120 passed, 1 failed"))


main(globals())
