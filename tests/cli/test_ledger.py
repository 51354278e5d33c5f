#!/usr/bin/env python3
"""bench/ledger.sh: which programs it runs and in which order, medians, spreads and changes of made-up figures, what it refuses,
and a run of this program against itself."""
import stat, tempfile

from tap import *

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LEDGER = os.path.join(ROOT, "bench/ledger.sh")


def ledger(*args):
    return subprocess.run(["bash", LEDGER, *args], capture_output=True, text=True, cwd=ROOT, env=clean_env(), timeout=LIMIT_S)


def fake(folder, name, *speeds, prefill=1000):
    """A program that notes its name and its options, and says one decode speed after the other."""
    path = os.path.join(folder, name)
    json.dump(speeds, open(path + ".json", "w"))
    with open(path, "w") as f:
        f.write(f"""#!{sys.executable}
import json, sys
open({os.path.join(folder, "order")!r}, "a").write({name!r} + " " + " ".join(sys.argv[1:]) + "\\n")
left = json.load(open({path + ".json"!r}))
json.dump(left[1:], open({path + ".json"!r}, "w"))
if left[0] is None:
    sys.exit(1)
print(json.dumps({{"prefill_tokens_per_s": {prefill}, "decode_tokens_per_s": left[0]}}))
""")
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    return path


CASE = ["--case", "some|decode|-m x --batch 3"]


def test_medians_spreads_and_changes():
    with tempfile.TemporaryDirectory() as folder:
        r = ledger(fake(folder, "old", 1000, 990, 1010), "new=" + fake(folder, "fast", 1100, 1111, 1089),
                   "same=" + fake(folder, "same", 1001, 980, 1030), *CASE)
        order = [l.split() for l in open(os.path.join(folder, "order"))]
    same(r.returncode, 0, r.stderr)
    row = r.stdout.strip().split("\n")[-1]
    assert row.endswith("| some, decode | 3 | 1,000 (2.0 %) | 1,100 (2.0 %) | +10.0 % | 1,001 (5.0 %) | +0.1 % ~ |"), r.stdout
    same([o[0] for o in order], ["old", "fast", "same", "same", "fast", "old", "old", "fast", "same"])
    same(order[0][1:], ["bench", "latency", "--device", "cuda", "-m", "x", "--batch", "3", "-q", "--json"])


def test_two_metrics_of_one_run_are_two_rows():
    with tempfile.TemporaryDirectory() as folder:
        a, b = fake(folder, "a", 100, 100), fake(folder, "b", 99, 99, prefill=1500)
        r = ledger("a=" + a, "b=" + b, "--rounds", "2", "--device", "cpu", "--case", "c|prefill,decode|")
        runs = len(open(os.path.join(folder, "order")).readlines())
    same((r.returncode, runs), (0, 4), r.stderr)
    assert "| c, prefill | 2 | 1,000 (0.0 %) | 1,500 (0.0 %) | +50.0 % |" in r.stdout, r.stdout
    assert "| c, decode | 2 | 100 (0.0 %) | 99 (0.0 %) | -1.0 % |" in r.stdout, r.stdout


def test_a_program_that_fails_is_told():
    with tempfile.TemporaryDirectory() as folder:
        r = ledger("a=" + fake(folder, "a", 100, 100), "b=" + fake(folder, "b", None, None), "--rounds", "2", *CASE)
    same(r.returncode, 1)
    assert "ledger.sh: b failed: some" in r.stderr and "| some, decode | 2 | 100 (0.0 %) | - | - |" in r.stdout, r.stdout + r.stderr


def test_only_chooses_cases_and_seconds_ends_them():
    with tempfile.TemporaryDirectory() as folder:
        a, b = fake(folder, "a", 1, 1), fake(folder, "b", 1, 1)
        r = ledger(a, b, "--rounds", "1", *CASE, "--case", "other|decode|", "--only", "^oth")
        assert r.returncode == 0 and "other, decode" in r.stdout and "some" not in r.stdout, r.stdout
        r = ledger(a, b, "--seconds", "0", *CASE)
    assert r.returncode == 1 and "some" not in r.stdout, r.stdout


def test_wrong_calls_are_refused():
    for args, why in (([], "bench/ledger.sh OLD NEW"), ([BIN], "bench/ledger.sh OLD NEW"), ([BIN, "/no/program"], "/no/program"),
                      ([BIN, BIN, *CASE], "two programs are called"), ([BIN, BIN, "--what"], "--what"), ([BIN, BIN, "--rounds"], "--rounds")):
        r = ledger(*args)
        assert r.returncode == 2 and why in r.stderr and not r.stdout, (args, r.stderr)


def test_this_program_against_itself():
    """Speeds of two equal programs are numbers; how near they are is not asked."""
    r = ledger("a=" + BIN, "b=" + BIN, "--device", "cpu", "--rounds", "1", "--case",
               f"tiny|prefill,decode|-m {DUMMY} --prompt 4 --gen 3 -r 1 --max-context 64")
    same(r.returncode, 0, r.stderr)
    assert r.stdout.count("| tiny, ") == 2 and "- |" not in r.stdout, r.stdout


main(globals())
