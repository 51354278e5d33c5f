#!/usr/bin/env python3
"""The labs of one track (mini-sglang, flashinfer, sglang, experiments) on the emulated GPU.

    tests/labs/test_emulated.py mini-sglang

Each lab that runs kernels ends with 0 and every check holds; it grades no prediction and no knob, and shows no time, rate
or share of a roof. Each lab that is about times is refused with one line that names --device cpu."""
import re, resource, tempfile

from emulated import *

# Every lab of the track: whether it runs on an emulated GPU. The last of a track may need the results of the others.
LABS = {"mini-sglang": {"00": True, "01": True, "02": True, "03": True, "04": True, "05": True, "radix": False, "06": True},
        "flashinfer": {"00": True, "01": True, "02": True, "03": True, "04": True, "05": True, "06": True},
        "sglang": {"00": True, "01": False, "02": False, "03": True, "04": False, "05": True, "06": False},
        "experiments": {n: False for n in "123456"}}
TRACK = sys.argv[1] if len(sys.argv) > 1 else "mini-sglang"
TIMED_UNITS = ("s", "B/s", "FLOP/s", "tokens/s")
# A time or a rate in a sentence. "compiled in" is the compiler's time, which is real.
TIME = re.compile(r"(?<!compiled in )(?<![\w.])\d+(?:\.\d+)? ?(?:ns|us|ms|s|[KMGT]?B/s|[KMGT]?FLOP/s|tokens/s)(?![\w/])")
# What a lab tells that is no time of the emulated GPU: the seconds that a kernel took to compile (00), and those that the
# other labs took (06).
REAL_TIMES = {("mini-sglang", "00", "kernels"), ("mini-sglang", "06", "labs")}

root = tempfile.TemporaryDirectory(prefix="labs-emulated-")


def times(o, place=""):
    """Every place in a result that shows a time or a rate."""
    if isinstance(o, dict):
        if o.get("unit") in TIMED_UNITS and o.get("value") is not None:
            yield f"{place}: {o}"
        for key, value in o.items():
            yield from times(value, f"{place}/{key}")
    elif isinstance(o, list):
        for i, value in enumerate(o):
            yield from times(value, f"{place}/{i}")
    elif isinstance(o, str):
        for m in TIME.finditer(o):
            yield f"{place}: {o[max(0, m.start() - 60):m.end() + 20]!r}"


def check(number):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    r, result = lab(root.name, TRACK, number)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"# {TRACK} {number}: {after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.1f} s of CPU")
    assert r.code == 0, f"exit {r.code}\n{r.text[-3000:]}{r.log[-1000:]}"
    same((result["state"], result["machine"]["device"]), ("emulated", "cuda"))
    assert "Emulated GPU" in result["machine"]["name"], result["machine"]
    assert "An EMULATED GPU" in r.text, r.text[:600]
    wrong = [c["text"] for c in result["checks"] if not c["ok"]]
    same(wrong, [], "checks that failed")
    assert result["checks"], "nothing was checked"
    for p in result["predictions"]:
        assert p["grade"] in (None, "not graded: emulated") and not p.get("reader_grade"), p
        assert p["measured"] is None or p["unit"] not in TIMED_UNITS, p
    for k in result["knobs"]:
        same((k["verdict"], k["before_s"], k["after_s"], k["gain"]), ("not measured", None, None, None), k["name"])
    same(result["roofs"], {}, "roofs of an emulated GPU")
    items = {key: item for key, item in result["items"].items() if (TRACK, number, key) not in REAL_TIMES}
    told = {"items": items, "checks": result["checks"], "findings": result["findings"], "knobs": result["knobs"]}
    same(list(times(told)), [], "times of an emulated GPU")


def refused(number):
    """An experiment starts a server: it says the same."""
    fails(1, ["times", "mean nothing on an emulated GPU", "--device cpu"], "lab", TRACK, number, "--quick", "--device", "cuda",
          "--no-predict", "--quiet", "--results", root.name, env=GPU)


def test_every_lab_of_the_track_is_listed_here():
    need_emulator()
    text = ok("lab", TRACK, "--results", root.name).text
    table = text.split("\n\n")[0]  # what one knows after each lab follows
    listed = [line.split()[0] for line in table.splitlines()[2:] if re.match(r"\s*(\d+|radix) ", line)]
    same(sorted(listed), sorted(LABS[TRACK]), "labs of " + TRACK)


def test_what_shows_a_time_is_found():
    """The check of times itself: a planted time, rate and number in each form that a result has."""
    planted = {"items": {"a": {"text": "it takes 1.5 ms alone"}, "b": {"value": 3.2e9, "unit": "B/s"},
                         "c": {"rows": [[{"text": "40 GB/s", "value": 4e10, "unit": "B/s"}]]}, "d": {"drawing": "▇ 12 us"}}}
    same(len(list(times(planted))), 5)
    fine = {"items": {"a": {"text": "16 B a row, 2 sequences, compiled in 3.2 s"}, "b": {"value": None, "unit": "s"},
                      "c": {"value": 3.0, "unit": "B"}, "d": {"columns": [">GFLOP/s", ">time"]}}}
    same(list(times(fine)), [])


def one(number, runs):
    def test():
        need_emulator()
        (check if runs else refused)(number)
    test.__name__ = f"test_{TRACK}_{number}_" + ("is_right_and_shows_no_time" if runs else "is_refused_in_one_line")
    return test


if __name__ == "__main__":
    tests = dict(globals())
    for number, runs in LABS[TRACK].items():
        tests[f"test_{number}"] = one(number, runs)
    sys.argv = sys.argv[:1] + sys.argv[2:]
    main(tests)
