#!/usr/bin/env python3
"""Every figure of the committed final reports (labs/*/reports/*/final-report.md), in three classes; one that is in none
of them fails.

Recomputed here from the results, by other code than the reports': counts of labs, checks and choices; times of steps and
sums of phases; shares of a step and of a roof, and the least time that a roof allows; gains (time before over time after),
their ranges, their worth for a step and their noise; how many forms were tried; how far a time is from its promise; the
share of two all-reduces in a layer; whether a criterion is done; published numbers (bytes or FLOPs over time, over the
roof).

Held against the one figure of the results that it is a copy of: roofs, sizes of caches, times before and after a knob,
values of predictions. These are measured (raw times, counters, noise of repetitions) or were computed before the run from
shapes; they cannot be recomputed here. test_labs_figures.py works out the second kind: bytes, FLOPs and items from shapes.

Word for word a text, drawing or cell of a result: sentences of labs, timelines, tables. Their figures are the rules' of
test_labs_figures.py, or measured.

Each rule must meet lines, and a planted wrong figure in each kind of line must be seen. The program does not run here."""
from labs_figures import *
from tap import *

FIGURE = re.compile(r"(?<![\w.#/-])\d[\d.,]*(?:e[+-]?\d+)?")
TIME = r"[\d.]+ (?:ns|us|ms|s)"
ROOFS = {"memory read": "memory_bytes_per_s", "memory copy": "copy_bytes_per_s", "L2 read": "l2_bytes_per_s", "fp32": "fp32_per_s",
         "bf16": "bf16_per_s", "int8": "int8_per_s", "empty kernel": "kernel_us", "meeting": "meeting_us",
         "to device": "to_device_bytes_per_s"}


AMOUNT = re.compile(r"(\d[\d.]*(?:e[+-]?\d+)?) ?(%|x(?!\w)|(?:ns|us|ms|s)(?![\w/])|([KMGTP]?)(?:B|FLOP)(?:/s)?)?")


def unit_of(m):
    """Of a match of AMOUNT: what a figure of 1 is in the base unit."""
    return 0.01 if m[2] == "%" else SECONDS.get(m[2] or "", 1) * (SCALE[m[3]] if m[3] else 1)


def amount(text):
    """The first amount of a text in its base unit: "4.63 TB/s", "548 us", "14 %", "1.31x"."""
    m = AMOUNT.search(text)
    return float(m[1]) * unit_of(m)


def is_about(text, by_hand):
    """True if the first amount of the text is this one, rounded to the digits that are told."""
    m = AMOUNT.search(text)
    last = 10.0 ** (-len(m[1].partition(".")[2].split("e")[0]) + int((m[1].split("e") + [0])[1]))
    return abs(float(m[1]) - by_hand / unit_of(m)) <= 0.5001 * last


def about(text, by_hand, what):
    assert is_about(text, by_hand), f"{what}: '{text[:40]}' is told, {by_hand:.5g} by hand"


class Report:
    """A final report with the results that it is made from."""

    def __init__(self, track, machine):
        self.track, self.machine = track, machine
        self.text = read(os.path.join(LABS, track, "reports", machine, "final-report.md"))
        everything = [(at, r) for at, r in results() if at[0] == machine]
        self.labs = {at[2]: r for at, r in everything if at[1] == track}
        self.flow = next((r for at, r in everything if at[1:] == ("sglang", "01")), None)
        self.has_pass = any(at[1:] == ("mini-sglang", "06") for at, _ in everything)
        self.parts, self.step = parts_of_a_step(machine) if self.has_pass else ([], None)
        self.knobs = [(n, k) for n, r in self.labs.items() for k in r["knobs"]]
        self.predictions = [(n, p) for n, r in self.labs.items() for p in r["predictions"]]
        self.checks = [c for r in self.labs.values() for c in r["checks"]]
        self.table = [r for at, r in everything if at[1:] == ("mini-sglang", "06")]
        self.words = verbatim([r for at, r in everything if at[1] == track] + ([self.flow] if self.flow else []))

    def knob(self, name, lab):
        found = [k for n, k in self.knobs if n == lab and cell(k["name"]) == name]
        assert found, f"{self.machine} {self.track}: no knob '{name}' of lab {lab}"
        return found


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def verbatim(of):
    """Texts of results as a page has them, the longest first: whole, and the sentences before a cause."""
    found = set()
    for r in of:
        for item in r["items"].values():
            found |= {item.get(k) for k in ("text", "missing", "title", "of") if item.get(k)}
            found |= set(filter(None, map(str.rstrip, item.get("drawing", "").split("\n"))))
            found |= {" | ".join(c["text"] for c in row) for row in item.get("rows", [])}
        for f in r["findings"]:
            seen = f["text"].replace(" [times measured, shares derived]", "").split(". Likely cause: ")
            found.add(seen[0])
            found.add(seen[0].split(": ", 1)[-1])
            found |= {s.split(". What to do: ")[0] for s in seen[1:]}
        for k in r["knobs"]:
            found |= {k[w].split(". By counter: ")[0] for w in ("name", "where", "what", "why")}
        for p in r["predictions"]:
            found |= {p["what"], p["what"].removeprefix("time of ").removeprefix("time to ")}
        found |= {t for f in r.get("files", []) for t in (f["name"], f["what"])}
        found |= {c["text"] for c in r["checks"]}
        found.add(r["machine"]["name"])
    # what is only a figure, or a word with one, is no text that could stand for another figure
    found = {t.replace("\n", " ") for t in found if FIGURE.search(t) and " " in t and len(t) > 9}
    found |= {cell(t) for t in found}
    return sorted(found | {t[:1].upper() + t[1:] for t in found}, key=len, reverse=True)


# ---- the kinds of lines: a pattern, and what works its figures out again ----

def head(r, m):
    same(int(m[1]), len(r.labs), "labs run")
    same(int(m[2]), len(glob.glob(f"{LABS}/{r.track}/*_*.md")), "labs of the track")
    quick, disturbed = (sum(map(f, r.labs.values())) for f in (lambda x: x["quick"], lambda x: x["state"] == "disturbed"))
    same((int(m[3] or 0), int(m[4] or 0)), (quick, disturbed), "quick, disturbed")


def box(r, m):
    same((int(m[1]), int(m[2]), int(m[3])), (len(r.labs), len(glob.glob(f"{LABS}/{r.track}/*_*.md")),
                                             sum(x["quick"] for x in r.labs.values())), "labs")


def agree(r, m):
    same(tuple(map(int, m.groups())), (len(r.labs), sum(c["ok"] for c in r.checks), len(r.checks)), "labs, checks")


def all_agree(r, m):
    same((int(m[1]), all(c["ok"] for c in r.checks)), (len(r.checks), True), "checks")


def predicted(r, measured, own, subject=None, lab=None):
    """A prediction with these values, of this subject and lab where they are told."""
    for n, p in r.predictions:
        if (lab in (None, n) and p["measured"] is not None and is_about(measured, p["measured"])
                and (own is None or p["own"] is not None and is_about(own, p["own"]))
                and (subject is None or subject.lower() in p["what"].lower())):
            return p
    raise AssertionError(f"no prediction of lab {lab}: {subject}, {measured}, {own}")


def key_finding(r, m):
    """'1.81 us for a gather (798 ns expected): why. 11 other forms were tried, and none is faster'"""
    p = predicted(r, m[1], m[3])
    assert m[2].split(", ")[0] in p["what"] or m[2] in p["what"], (m[2], p["what"])
    lab = next(x for x in r.labs.values() if p in x["predictions"])
    turned = [k for k in lab["knobs"] if k["gain"] is not None and kind(r.track, lab["lab"], k) == "LAB_OFFERED"]
    gains = [k for k in turned if verdict(k) == "gains"]
    if m[4]:
        same((int(m[4]), gains), (len(turned), []), f"lab {lab['lab']}: forms tried, none faster")
    if m[5]:
        same(int(m[5]), len(turned), f"lab {lab['lab']}: forms tried")
        best = max(gains, key=lambda k: k["gain"])
        same(m[6], cell(best["name"]), "the best")
        about(m[7], best["gain"], "its gain")


def plain_finding(r, m):
    predicted(r, m[2], m[3], m[1])


def item_value(r, m):
    """The figure of an item, and of what it is."""
    assert any(item.get("of") == m[3] and item.get("tag") == m[2] and is_about(m[1], item["value"])
               for x in r.labs.values() for item in x["items"].values()), m[0]


def fastest(r, m):
    """Of each shape the row that took least, and how far the next one is behind."""
    rows_of = next(x["items"]["where_wins"] for x in r.labs.values() if "where_wins" in x["items"])
    told = re.findall(r"(\S+) for (.*?) \(([\d.]+x) ahead of (\S+)\)", m[1])
    same(len(told), len(rows_of["rows"]), "shapes")
    for (name, shape, ahead, other), row in zip(told, rows_of["rows"]):
        same((shape, name, other), (row[0]["text"], row[1]["text"], row[3]["text"]), "shape, row, the next one")
        about(ahead, value(row[4]) / value(row[2]), f"{shape}: ahead")


def quiet(r, m):
    same(int(m[1]), sum(x["state"] == "disturbed" for x in r.labs.values()), "disturbed labs")


def bottom_line(r, m):
    text = m[0]
    if "takes" in text:
        about(text.split(" takes ")[1], r.step, "a decode step")
        phase = re.search(rf"prompt of the same lab ({TIME})", text)
        if phase:
            about(phase[1], sum(value(x["time"]) for x in lines(r.table[0]["items"]["kernels"]) if x["phase"]["text"] != "decode"),
                  "a prompt")
        call, share, roof = re.search(r"largest part is `(\S+)`, ([\d.]+ %)(?:, at ([\d.]+ %))?", text).groups()
        part = max(r.parts, key=lambda p: p[1])
        same(call, part[0], "the largest part")
        about(share, part[1] / r.step, "% of the step")
        about(roof, part[2] / part[1], "% of its roof")
    rows = [x[2:-2].split(" | ") for x in opportunities(r) if x.startswith("| `")]
    most = re.search(r"leaves is in `(.*?)`: ([\d.]+x)", text)
    same(bool(most), bool(rows), "a kernel that leaves something")
    if most:
        best = max(rows, key=lambda c: amount(c[3]))
        same((most[1], most[2]), (best[0].split("`")[1], best[3].split()[2]), "the most that a kernel leaves")
    best = re.search(r'gains most is "(.*?)": ([\d.]+)x', text)
    if best:
        row = next(x for x in opportunities(r) if x.startswith(f"| {cell(best[1])} |"))
        assert f" | {best[2]}x" in row, row
    strong = {x.split(": ")[0] for x in section(r, "What the design gets right").split("\n") if re.search(r"x for .* \(lab \w+\)$", x)}
    same(int(re.search(r"(\d+) choices? of the design", text)[1]), len(strong), "choices that pay")


def opportunities(r):
    return [x for x in section(r, "Opportunities").split("### Not worth it")[0].split("\n") if x.startswith("| ")][1:]


def section(r, title):
    return r.text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def roof(r, m):
    roofs = next(x["roofs"] for x in r.labs.values() if x["roofs"])
    v = roofs[ROOFS[m[1]]]["value"]
    about(m[2], v, m[1])


def caches(r, m):
    """The sizes that the first result with sizes has; the L2s of all cores in use count together."""
    machine = next(x["machine"] for x in r.labs.values() if x["machine"].get("caches"))
    cores = min(machine.get("threads") or 1, machine.get("cores") or 1) if "together" in m[0] else 1
    for name, told in re.findall(r"(L1d|L2|L3) ([\d.]+ [KMG]?B)", m[0]):
        about(told, machine["caches"][name.lower() + "_bytes"] * (cores if name == "L2" else 1), name)


def tree_head(r, m):
    whole = r.step if m[1] == "DECODE" else sum(
        value(x["time"]) for x in lines(r.table[0]["items"]["kernels"]) if x["phase"]["text"] != "decode")
    about(m[2], whole, m[1])


def tree_line(r, m):
    """A call of the tree of a phase: of a prefill the table's own times."""
    prefill = [x for x in lines(r.table[0]["items"]["kernels"]) if x["phase"]["text"] != "decode"]
    of = {("PREFILL", x["call"]["text"]): (value(x["time"]), (value(x["of roof"]) or math.nan) * value(x["time"]),
                                           sum(value(y["time"]) for y in prefill)) for x in prefill}
    of.update({("DECODE", p[0]): (p[1], p[2], r.step) for p in r.parts})
    for phase in ("PREFILL", "DECODE"):
        if (phase, m[1]) not in of:
            continue
        took, least, whole = of[phase, m[1]]
        if is_about(m[2], took) and is_about(m[3], took / whole) and (not m[4] or is_about(m[4], least / took)):
            return
    raise AssertionError(f"no call {m[1]} takes {m[2]}, {m[3]} of its step, {m[4]} of its roof")


def kernel_leaves(r, m):
    op, _, of = m[1].removesuffix(")").partition(" (")
    its = [p for p in r.parts if p[0] in ([f"{op}.{c}" for c in of.split(", ")] if of else [m[1]])]
    took, least = sum(p[1] for p in its), sum(p[2] for p in its)
    roofs = next(x["roofs"] for x in r.labs.values() if x["roofs"])
    start = roofs["kernel_us" if "kernel_us" in roofs else "meeting_us"]["value"]
    saved = min(took, start * sum(p[4] for p in its)) if its[0][3] == "launch" else took - least
    about(m["time"], took, f"{m[1]}: its time")
    about(m["gain"], r.step / (r.step - saved), f"{m[1]}: its gain")
    if m.groupdict().get("roof"):
        about(m["roof"], least / took, f"{m[1]}: % of its roof")


def knob_row(r, m):
    """A knob that gains: its times, its gain alone, and what that is worth to a step."""
    k = next(k for k in r.knob(m["name"], m["lab"]) if is_about(m["alone"], max(k["gain"], 1 / k["gain"])))
    back = "without it" in m["to"]
    same(verdict(k), "loses" if back else "gains", m["name"])
    about(m["now"], k["after_s"] if back else k["before_s"], "current")
    about(m["to"].split(": ")[-1], k["before_s"] if back else k["after_s"], "proposed")
    worth(r, m["worth"], amount(m["alone"]))


def worth(r, text, alone):
    part = re.search(r"([\d.]+)x of .*?, of which (\S+) is ([\d.]+ %)", text)
    if part and "prompt" not in text:
        share = sum(p[1] for p in r.parts if p[0].split(".")[0] == part[2] or p[0] == part[2]) / r.step
        about(part[3], share, f"{part[2]}: % of the step")
        near(float(part[1]), 1 / (1 - share + share / alone), 0.0051, "worth of the whole")
        assert float(part[1]) != 1 or "no step feels" in text, f"an opportunity that nobody feels: {text}"


def in_vain(r, m):
    """Names of knobs that did not gain, with the least and the largest of their gains."""
    gains = [k["gain"] for name in m["names"].split(", ") for k in r.knob(name, m["lab"]) if k["gain"] is not None and verdict(k) != "gains"
             and cell(k["why"].split(". By counter: ")[0]) == m["why"]]
    spread(gains, m["came"])


def spread(gains, text):
    told = re.findall(r"[\d.]+x", text)
    about(told[0], min(gains), "the least")
    about(told[-1], max(gains), "the largest")


def other_rows(r, m):
    gains = [k["gain"] for _, k in r.knobs if cell(k["name"]) in m[2] and k["gain"] is not None and verdict(k) != "gains"
             and (k["where"].startswith("row ") or "-backend" in k["where"])]
    spread(gains, m[1])


def unfelt(r, m):
    k = r.knob(m[1], m[4])[0]
    about(m[2], max(k["gain"], 1 / k["gain"]), "alone")
    worth(r, m[0], amount(m[2]))


def still_open(r, m):
    k = next(k for k in r.knob(m[1], m[2]) if k["gain"] is not None and is_about(m[4], k["gain"]))
    same(m[3], r.labs[m[2]]["when"][:10], "its day")
    if m[5]:
        about(m[5], 2 * math.hypot(k["before_noise"], k["after_noise"]), "% noise")
        assert k["gain"] < 1 + amount(m[5]) + 0.005, "a gain beyond its noise is no open question"
    else:
        same(k["verdict"], "not graded", m[0])


def not_measured(r, m):
    assert any(k["gain"] is None or k["verdict"] == "not measured" for k in r.knob(m[1], m[2])), m[0]
    same(m[3], r.labs[m[2]]["when"][:10], "its day")


def bottleneck(r, m):
    part = next(p for p in r.parts if p[0] == m[2])
    ranked = sorted((p for p in r.parts if p[1] - p[2] > 0), key=lambda p: p[2] - p[1])
    same(ranked[int(m[1]) - 1][0], m[2], "its rank")
    for told, by_hand, what in ((m[3], part[1], "time"), (m[4], part[2], "least"), (m[5], part[1] - part[2], "beyond"),
                                (m[6], part[2] / part[1], "% of the roof")):
        about(told, by_hand, f"{m[2]}: {what}")


def strength(r, m):
    k = next(k for n, k in r.knobs if n == m[3] and k["gain"] and is_about(m[1], k["gain"]) and k["what"] == m[2])
    same((verdict(k), kind(r.track, m[3], k)), ("gains", "LAB_RUNS"), m[0])


def came_as_predicted(r, m):
    for subject, measured, lab in re.findall(r"(?:20 %: |; )(.*?) \(([^()]*), lab (\w+)\)", m[0]):
        p = predicted(r, measured, None, subject, lab)
        same((p["grade"], max(p["own"], p["measured"]) <= 1.2 * min(p["own"], p["measured"])), ("within 20 %", True), subject)


def far(r, m):
    p = predicted(r, m[2], m[4], m[1], m[5])
    about(m[3], max(p["measured"] / p["own"], p["own"] / p["measured"]), "how far")
    assert float(m[3]) >= 2, m[0]


def far_again(r, m):
    assert any(p["own"] and p["measured"] and is_about(m[2], max(p["measured"] / p["own"], p["own"] / p["measured"]))
               for n, p in r.predictions if n == m[1]), m[0]


def knob_line(r, m):
    k = next(k for k in r.knob(cell(m[1]), m["lab"]) if k["gain"] is not None)
    if m.groupdict().get("with"):
        about(m["with"], k["after_s"], "with it")
        about(m["without"], k["before_s"], "without it")
        same(verdict(k), "loses", m[0])
    else:
        assert any(is_about(m["gain"], x["gain"]) and verdict(x) == "gains" for x in r.knob(cell(m[1]), m["lab"])), m[0]


def decide(r, m):
    row = next(x for x in opportunities(r) if x.startswith(f"| {cell(m['name'])} |") and x.endswith(f" | {m['lab']} |"))
    for told in re.findall(r"[\d.]+x", m[0]):
        assert told in row, (told, row)
    worth(r, m[0], amount(row.split(" | ")[-3]))


def published_count(r, m):
    beside = [x for x in section(r, "Published numbers beside these").split("\n") if x.startswith("| ")][1:]
    rest = re.search(r"^(\d+) (?:more )?(?:is|are|published)", section(r, "Published numbers beside these"), re.M)
    same(int(m[1]), len(beside) + int(rest[1] if rest else 0), "published numbers")


def published_rest(r, m):
    told = re.search(r"\*\*(\d+) published numbers", r.text)
    beside = [x for x in section(r, "Published numbers beside these").split("\n") if x.startswith("| ")][1:]
    assert not told or int(told[1]) - len(beside) == int(m[1]), m[0]


def published(r, m):
    """An amount over a time or rate, over the roof of the data sheet; and the same call measured here."""
    work, over, rate = amount(m["work"]), amount(m["over"]), amount(m["rate"])
    near(rate, work / over, 0.012, m[0])
    if m["share"]:
        near(amount(m["share"]), rate / amount(m["roof"]), 0.03, m[0])
    predicted(r, m["here"], None, m["what"])


def layer_share(r, m):
    """Two sums of the rows of a step: Qwen3-0.6B's 1024 BF16 on a GPU, SmolLM2-135M's 576 fp32 on a CPU."""
    about(m[2], int(m[1]) * (1024 * 2 if r.machine != "epyc-2core" else 576 * 4), "bytes of a rank")
    both, work = amount(m[3]), amount(m[4])
    near(amount(m[5]), both / (both + work), 0.05, m[0])


def criterion(r, m):
    done = True
    for track, name in re.findall(r"([\w-]+)/results/[\w-]+/(\w+)\.json", m[2]):
        j = json.loads(read(os.path.join(LABS, track, "results", r.machine, name + ".json")))
        done = done and not j["quick"] and all(c["ok"] for c in j["checks"]) and j["state"] != "emulated"
    for track, name, key in re.findall(r"([\w-]+)/results/[\w-]+/(\w+)\.json \('(\w+)' was not measured there", m[2]):
        j = json.loads(read(os.path.join(LABS, track, "results", r.machine, name + ".json")))
        assert "missing" in j["items"][key], m[0]
        done = False
    same(m[1] == "x", done and "not run here yet" not in m[2], m[0])


RULES = [
    (head, r"^Results of machine .*; (\d+) of (\d+) labs were run(?:, (\d+) of them in the quick form)?(?:, (\d+) while other.*?)?\. This page"),
    (agree, r"^(\d+) labs of this track were run on this machine: (\d+) of (\d+) results agree with their references\.$"),
    (all_agree, r"^- Every one of (\d+) results agrees with its reference$"),
    (key_finding, rf"^\| \*\*.*\*\* \| .* \| ({TIME}) for (.*?) \(({TIME}) expected\)(?:: [^|.]*?)?(?:\. (\d+) other forms? (?:was|were) tried, and none "
                  r'is faster)?(?:\. Of (\d+) other forms? "(.*?)" gains most, ([\d.]+x))? \|$'),
    (plain_finding, r"^\| \*\*.*\*\* \| .* \| ([A-Z][^|]*?): ([\d.]+ [KMGT]?B/s) \(([\d.]+ [KMGT]?B/s) expected\) \|$"),
    (fastest, r"^\| \*\*.*\*\* \| .* \| Fastest: (.*) \|$"),
    (quiet, r"^\d\. `.*` on a quiet machine, first of (\d+) that other programs disturbed: .*$"),
    (item_value, r"^(?:\| \*\*.*\*\* \| .* \| |- \*\*.*\*\*: )([\d.]+ \S+) \((measured|derived|modelled)\): ([^|]*?)(?: \|)?$"),
    (bottom_line, r"^\*\*Bottom line\*\*: .*$"),
    (box, r"^└── (\d+) of (\d+) labs run, (\d+) of them in the quick form$"),
    (roof, r"^├── (%s) +([\d.]+ \S+)$" % "|".join(ROOFS)),
    (caches, r"^Caches: L.*$"),
    (tree_head, rf"^(PREFILL|DECODE), the calls of a step of ({TIME}), each summed over all layers$"),
    (tree_line, rf"^├── (\S+) +({TIME}) +([\d.]+ %) of the step(?:, ([\d.]+ %) of its \S+ roof|, bound: \S+)?(?:  <- hotspot)?$"),
    (layer_share, rf"^\| (?:decode x|prefill of) (\d+) \| ([\d.]+ [KMG]?B) \| ({TIME}) \| ({TIME}) \| ([\d.]+ %) \|$"),
    (kernel_leaves, rf"^\| `(.*?)`, row `\S+` \| (?P<time>{TIME}) of a step(?:, (?P<roof>[\d.]+ %) of its \S+ roof|, bound by its \w+)? \| .* \| at most "
                    r"(?P<gain>[\d.]+x) of a decode step \| not tried \| large: a kernel \| .* \|$"),
    (kernel_leaves, rf"^- `(.*?)` leaves at most (?P<gain>[\d.]+x) of a decode step between its (?P<time>{TIME}) and .*$"),
    (knob_row, rf"^\| (?P<name>.*?) \| (?P<now>{TIME}) for .*? \| (?P<to>.*?: {TIME}) \| (?P<worth>.*?) \| (?P<alone>[\d.]+x) \| .* \| (?P<lab>\w+) \|$"),
    (in_vain, r"^\| (?P<names>.*?) \| (?P<came>[\d.]+x(?: to [\d.]+x)?) \| (?P<why>.*) \| (?P<lab>\w+) \|$"),
    (other_rows, r"^Other implementations of the same ops came to (.*?), so what the engine chooses is right here: (.*)\.$"),
    (unfelt, r'^"(.*?)" gains ([\d.]+x) (when it is taken back|alone), which no step feels: .* \(lab (\w+)\)\.$'),
    (still_open, r"^- \*\*(.*?)\*\* \(.*, lab (\w+), run ([\d-]+)\): ([\d.]+)x (?:within a noise of ([\d.]+ %)|on a busy machine, so not graded); .*$"),
    (not_measured, r"^- \*\*(.*?)\*\* \(.*, lab (\w+), run ([\d-]+)\): not measured; .*$"),
    (bottleneck, rf"^\| (\d) \| `(\S+)` \| ({TIME}) \| ({TIME}) \| ({TIME}) \| ([\d.]+ %) \| \S+ \|$"),
    (strength, r"^- [A-Z].*?: ([\d.]+)x for (.*) \(lab (\w+)\)$"),
    (came_as_predicted, r"^- What was predicted from bytes, FLOPs and roofs came within 20 %: .*$"),
    (far, r"^- (.*?): (\S+ \S+|[\d.]+x), ([\d.]+)x of the (\S+ \S+|[\d.]+x) that (?:was|were) expected \(lab (\w+)\)$"),
    (far_again, r"^\d\. `vitrine lab [\w-]+ (\w+)`: .* is ([\d.]+)x of its promise; .*$"),
    (knob_line, rf'^- "(.*?)" is on and costs: (?P<with>{TIME}) with it, (?P<without>{TIME}) without \(lab (?P<lab>\w+)\)$'),
    (knob_line, r'^- "(.*?)" is not on and gains (?P<gain>[\d.]+)x for .* \(lab (?P<lab>\w+)\)$'),
    (decide, r'^\d\. `vitrine lab [\w-]+ (?P<lab>\w+)`: decide on "(?P<name>.*?)", .*$'),
    (published_count, r"^- \*\*(\d+) published numbers\*\* .*$"),
    (published_rest, r"^(\d+) (?:more |published ).*$"),
    (published, r"^\| .* \| (?P<work>[\d.]+ [KMGT]?(?:B|FLOP)) / (?P<over>[\d.]+ \S+) = (?P<rate>[\d.]+ \S+)(?: = (?P<share>[\d.]+ %) of (?P<roof>[\d.]+ \S+))? \| "
                r".* \| (?P<what>.*?): (?P<here>[\d.]+ \S+) \|$"),
    (criterion, r"^- \[([x ])\] .*?\): (.*)$"),
]


def kind(track, number, knob):
    """What a lab's source declares a knob to be: the first mark that its name or place has."""
    for path in glob.glob(os.path.join(LABS, "..", "src", "lab", track.replace("-", "_"), "*.c")):
        text = read(path)
        if f'.number = "{number}"' not in text or ".knobs = {{" not in text:
            continue
        marks = re.findall(r'\{"([^"]+)", (LAB_\w+)', text.split(".knobs = {{")[1].join(["{", ""]).split("}},")[0])
        for mark, what in marks:
            if mark in knob["name"] or mark in knob["where"]:
                return what
    return "not declared"


# Names with a figure in them: code, labs, dates, files.
NAMES = r"`[^`]*`|^(?:From|Told by) lab [\w-]+ \w+|layer / 2|\(lab \w+(, run [\d-]+)?\)|\*\*\w+ \w+\*\*|^\d\. |\(\S*\.\w+\)|\| \w+ \|$"
# Rules of lines that hold a text of a result beside what they work out.
PARTLY = {"head", "key_finding", "knob_row", "in_vain", "still_open", "not_measured", "strength", "far", "far_again", "decide", "knob_line",
          "published", "published_rest", "came_as_predicted", "other_rows", "criterion"}


def met_by(r, line):
    """The name of the rule that works this line out, which raises on a wrong figure; "": it has none, or a result has its
    text; None: nothing explains its figures."""
    if not FIGURE.search(line) and not line.startswith("- ["):
        return ""
    for rule, pattern in RULES:
        m = re.match(pattern, line)
        if not m:
            continue
        try:
            rule(r, m)
        except (AssertionError, StopIteration) as e:
            raise AssertionError(f"{r.track} of {r.machine}: {line}: {e!r}") from e
        return rule.__name__
    for text in r.words:
        line = line.replace(text, "")
    return None if FIGURE.search(re.sub(NAMES, "", line)) else ""


def reports():
    for path in sorted(glob.glob(os.path.join(LABS, "*", "reports", "*", "final-report.md"))):
        track, _, machine = os.path.relpath(path, LABS).split(os.sep)[:3]
        if machine != "local":
            yield Report(track, machine)


def test_every_figure_of_the_final_reports_is_explained():
    met, n, disturbed = {}, 0, 0
    for r in reports():
        n += 1
        disturbed += sum(x["state"] == "disturbed" for x in r.labs.values())
        for line in r.text.split("\n"):
            name = met_by(r, line)
            assert name is not None, f"{r.track} of {r.machine}: no result and no rule has the figures of: {line}"
            met[name] = met.get(name, 0) + 1
    assert n >= 12, n
    may_be_idle = (knob_line,) if disturbed else (knob_line, quiet)
    same([f.__name__ for f, _ in RULES if f.__name__ not in met and f not in may_be_idle], [], "rules that no line meets")
    print("# lines of each rule:", ", ".join(f"{k} {v}" for k, v in sorted(met.items()) if k))


def wrong(line):
    """The line with one figure changed, once for each of its figures that a rule works out."""
    said = [m.span() for m in re.finditer(r"`[^`]*`|\"[^\"]*\"|\(lab \w+\)| \w+ \|$|\*\*[^*]*[a-z][^*]*\*\*(?=:| \(| \|)|^\d\.", line)]
    if line.startswith("- ["):
        yield line.replace("- [x]", "- [!]").replace("- [ ]", "- [x]").replace("- [!]", "- [ ]")
    for m in FIGURE.finditer(line):
        if any(a <= m.start() < b for a, b in said):
            continue
        digits = m[0].rstrip(".,")
        other = str((int(digits[0]) + 3) % 9 + 1) + digits[1:]
        yield line[:m.start()] + other + line[m.start() + len(digits):]


def test_a_planted_wrong_figure_is_seen():
    """In the first line of each rule every figure that is no name."""
    tried = {}
    for r in reports():
        for line in r.text.split("\n"):
            name = met_by(r, line)
            if not name or tried.get(name, 0) >= 2:
                continue
            seen = 0
            for bad in wrong(line):
                try:
                    if met_by(r, bad) in (name, ""):
                        if name in PARTLY:
                            continue
                        raise LookupError(f"{name} does not see the wrong figure: {bad}")
                except AssertionError:
                    pass
                seen += 1
            assert seen, f"{name}: no wrong figure was seen in: {line}"
            tried[name] = tried.get(name, 0) + 1
    assert len(tried) >= 25, sorted(tried)


main(globals())
