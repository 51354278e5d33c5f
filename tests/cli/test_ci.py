#!/usr/bin/env python3
""".ci/run: both targets run, and one closing line sums them, whatever happens to either. `make` is a stand-in.
tools/run-tests: its modes together are everything, and no name in its tables is of a program that is gone."""
import glob, importlib.machinery, importlib.util, os, shutil, tempfile

from tap import *

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


TARGETS = {"test": "test", "rest": "test-all AFTER=test"}


def ci_lines(**target):
    """What each target prints and ends with -> (.ci/run's status, its lines)."""
    folder = tempfile.mkdtemp(prefix="ci-")
    try:
        with open(os.path.join(folder, "make"), "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\ncase $* in\n" + "".join(
                f"'{TARGETS[name]}') printf '%b' '{text}'; exit {code} ;;\n" for name, (text, code) in target.items())
                + "*) echo unknown target >&2; exit 2 ;;\nesac\n")
        os.chmod(os.path.join(folder, "make"), 0o755)
        p = subprocess.run([os.path.join(ROOT, ".ci", "run")], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, timeout=LIMIT_S,
                           env=clean_env({"PATH": folder + os.pathsep + os.environ["PATH"]}))
        return p.returncode, p.stdout.decode().strip().split("\n")
    finally:
        shutil.rmtree(folder)


def ci(**target):
    """The same -> (.ci/run's status, its last line)."""
    status, lines = ci_lines(**target)
    return status, lines[-1]


def test_both_targets_are_summed():
    same(ci(test=("built\\n100 passed, 0 failed\\n", 0), rest=("20 passed, 0 failed\\n", 0)), (0, "120 passed, 0 failed"))


def test_a_failure_in_either_fails_and_the_other_still_runs():
    same(ci(test=("100 passed, 2 failed\\nmake: *** [test] Error 1\\n", 2), rest=("20 passed, 0 failed\\n", 0)),
         (1, "120 passed, 2 failed"))
    same(ci(test=("100 passed, 0 failed\\n", 0), rest=("19 passed, 1 failed\\n", 2)), (1, "119 passed, 1 failed"))


def test_failures_of_the_first_target_are_told_again_at_the_end():
    lines = ci_lines(test=("FAILED:\\ntest_a\\n  not ok: this\\nleft out, for `make test-all`:\\n3 passed, 1 failed\\n", 2),
                     rest=("20 passed, 0 failed\\n", 0))[1]
    same(lines[-4:], ["FAILED in all:", "    test_a", "      not ok: this", "23 passed, 1 failed"])


def test_a_target_without_a_closing_line_is_a_failure():
    same(ci(test=("cc: error\\n", 2), rest=("20 passed, 0 failed\\n", 0)), (1, "20 passed, 1 failed"))
    same(ci(test=("100 passed, 0 failed\\n", 0), rest=("", 0)), (1, "100 passed, 1 failed"))
    same(ci(test=("100 passed, 0 failed\\n", 2), rest=("20 passed, 0 failed\\n", 0)), (1, "120 passed, 1 failed"))


def runner(folder):
    """tools/run-tests as a module, and build folders with an empty program for every source."""
    loader = importlib.machinery.SourceFileLoader("run_tests", os.path.join(ROOT, "tools", "run-tests"))
    m = importlib.util.module_from_spec(importlib.util.spec_from_loader("run_tests", loader))
    loader.exec_module(m)
    builds = [os.path.join(folder, name) for name in ("release", "asan", "tsan", "arm64")]
    for build in builds:
        for path in m.targets(build, None) + [os.path.join(build, "gpu", name) for name in ("gpu_parity", "gpu_order")]:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            open(path, "w").close()
            os.chmod(path, 0o755)
    return m, builds


def with_runner(look):
    before = os.getcwd()
    os.chdir(ROOT)
    try:
        with tempfile.TemporaryDirectory() as folder:
            m, builds = runner(folder)
            look(m, builds)
    finally:
        os.chdir(before)


def names(m, builds, mode):
    return [c.name for b in builds for c in m.commands(b, mode)]


def test_what_is_quick_and_the_rest_are_everything():
    def look(m, builds):
        everything, quick, rest = (names(m, builds, mode) for mode in ("all", "quick", "rest"))
        same(len(everything), len(set(everything)), "names of programs")
        samples = [c.name for b in builds[:2] for c in m.samples(b, {})]
        assert samples and not set(samples) & set(everything), samples
        same(sorted(set(quick) - set(samples) | set(rest)), sorted(everything))
        same(set(quick) & set(rest), set())
    with_runner(look)


def test_every_name_in_the_tables_is_of_a_program_that_is_there():
    def look(m, builds):
        for build in builds[:2]:
            there = [c.name for c in m.whole(build, {})]
            same([n for n in m.LATER[m.kind(build)] if not any(n in name for name in there)], [], "of LATER")
            same([c[0] for c in m.SAMPLES[m.kind(build)] if not any(c[0] in name for name in there)], [], "of SAMPLES")
        there = [os.path.basename(c.name) for c in m.whole(builds[2], {}) if m.is_threaded(c)]
        replays = [name for name in there if name.startswith("replay_")]
        same(len(there) - len(replays), len(m.THREADED), "of THREADED")
        same(len(replays), len(glob.glob("tests/fuzz/fuzz_*.c")))
    with_runner(look)


def test_what_is_left_out_of_the_quick_run_is_not_built_for_it():
    def look(m, builds):
        quick, everything = (m.targets(builds[1], mode) for mode in ("quick", "all"))
        assert set(quick) < set(everything), set(quick) - set(everything)
        run_quick = {c.argv[-1] for c in m.commands(builds[1], "quick")} | {c.argv[-2] for c in m.commands(builds[1], "quick") if len(c.argv) > 1}
        same(sorted(t for t in everything if t in run_quick), sorted(quick))
    with_runner(look)


def test_a_program_hangs_that_works_too_long_or_not_at_all():
    def look(m, _):
        same(m.hangs([(0, 0), (50, 4), (99, 9)], 100), False)  # young
        same(m.hangs([(0, 0), (100, 5)], 100), False)  # it has few processors, and works
        same(m.hangs([(0, 0), (60, 90), (100, 99)], 100), False)
        same(m.hangs([(0, 0), (60, 90), (100, 100)], 100), True)  # it works without an end
        same(m.hangs([(0, 0), (100, 4)], 100), True)  # it waits
        same(m.hangs([(0, 0), (100, 50), (200, 54), (201, 54.1)], 100), True)
        same(m.hangs([(0, 0), (100, 50), (150, 54), (249, 55)], 100), False)
        m.TIMEOUT_S = 0.5
        name, passed, failed, *_ = m.run(m.Command("one that waits", ["sh", "-c", "sleep 1000 & wait"], {}))
        same((name, passed, failed), ("one that waits", 0, ["died (timeout)"]))
        same(m.run(m.Command("one that ends", ["echo", "ok 1 - all"], {}))[1:3], (1, []))
    with_runner(look)


def test_processor_time_of_a_program_is_that_of_what_it_started_too():
    def look(m, _):
        work = "import time\nwhile time.process_time() < 0.3: pass\ntime.sleep(1000)"
        p = subprocess.Popen(["sh", "-c", '"$@" & wait', "sh", sys.executable, "-c", work])
        try:
            wait_until(lambda: sum(m.family(p.pid).values()) >= 0.2, "the child's time counts")
            same(len(m.family(p.pid)), 2)
        finally:
            for member in m.family(p.pid):
                os.kill(member, signal.SIGKILL)
            p.wait()
    with_runner(look)


main(globals())
