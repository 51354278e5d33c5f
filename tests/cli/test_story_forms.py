#!/usr/bin/env python3
"""The forms of a story for other tools and for a browser: every one is read back and held to the story's own figures."""
import base64, hashlib, html.parser, json, math, os, re, shutil, struct, subprocess, tempfile

from tap import *

GOLDEN = [os.path.join("tests", "golden", "stories", n + ".json") for n in ("cpu", "gpu", "batch")]
HOME = tempfile.TemporaryDirectory()


def stories():
    """The golden ones, and one of a run, which has steps and calls."""
    path = os.path.join(HOME.name, "run.json")
    if not os.path.exists(path):
        ok("run", f"--story={path}", "--quiet", *FAST, *model(), "-n", "20", "--seed", "3", "Count to ten.")
    assert json.load(open(path))["calls"]["columns"]["us"]
    return [path, *GOLDEN]


def test_the_pages_of_the_examples_are_those_of_their_stories():
    """docs/examples: after a change of the form, `vitrine story export FILE.json --to html -o FILE.html` writes them again."""
    found = sorted(f for f in os.listdir("docs/examples") if f.endswith(".json"))
    assert found
    for name in found:
        path = os.path.join("docs", "examples", name)
        same(export(path, "html"), open(path[:-4] + "html", "rb").read())


def export(path, form):
    return ok("story", "export", path, "--to", form).out


def spans_of(s):
    """(track, name, begin us, us) of the steps and the calls, from the story itself."""
    steps, calls = (s.get(k, {}).get("columns") for k in ("steps", "calls"))
    out = []
    if steps:
        begin = dict(zip(steps["id"], steps["begin_ms"]))
        out += [("steps", "prefill step" if p else "decode step", b * 1e3, ms * 1e3)
                for p, b, ms in zip(steps["prefill"], steps["begin_ms"], steps["ms"])]
    if calls:
        out += [("calls", s["calls"]["labels"][label], begin[step] * 1e3 + b, us)
                for step, label, b, us in zip(calls["step"], calls["label"], calls["begin_us"], calls["us"])]
    return out


# ---- pftrace: protobuf's wire format, read by hand ----

def fields(data):
    """[(number, value)] of a message; values are integers, 8 bytes or bytes."""
    out, i = [], 0

    def varint():
        nonlocal i
        v = shift = 0
        while True:
            c = data[i]
            i += 1
            v |= (c & 127) << shift
            shift += 7
            if c < 128:
                return v
    while i < len(data):
        key = varint()
        if key & 7 == 0:
            out.append((key >> 3, varint()))
        elif key & 7 == 1:
            out.append((key >> 3, data[i:i + 8]))
            i += 8
        else:
            same(key & 7, 2)
            n = varint()
            assert i + n <= len(data), "a field ends behind its message"
            out.append((key >> 3, data[i:i + n]))
            i += n
    return out


def read_pftrace(data):
    """Slices by track, and counters' points by track."""
    tracks, slices, counts, open_ones = {}, [], {}, {}
    for number, packet in fields(data):
        same(number, 1)
        p = dict(fields(packet))
        if 60 in p:
            t = dict(fields(p[60]))
            tracks[t[1]] = t[2].decode() if 2 in t else "process"
            continue
        e = dict(fields(p[11]))
        name = tracks[e[11]]
        if e[9] == 1:
            open_ones.setdefault(name, []).append((name, e[23].decode(), p[8]))
        elif e[9] == 2:
            track, what, at = open_ones[name].pop()
            slices.append((track, what, at, p[8] - at))
        elif e[9] == 4:
            counts.setdefault(name, []).append((p[8], struct.unpack("<d", e[44])[0]))
    assert not any(open_ones.values()), "a slice that never ends"
    return slices, counts


def test_pftrace_has_the_storys_spans_and_counters():
    for path in stories():
        s = json.load(open(path))
        slices, counts = read_pftrace(export(path, "pftrace"))
        want = spans_of(s)
        zero = min([0] + [b for _, _, b, _ in want] + [e["at_ms"]["value"] * 1e3 for e in s["timeline"]])
        got = sorted((t, n, b / 1e3 + zero, us / 1e3) for t, n, b, us in slices if t in ("steps", "calls"))
        same(len(got), len(want))
        for a, b in zip(got, sorted(want)):
            same(a[:2], b[:2])
            assert abs(a[2] - b[2]) < 0.02 and abs(a[3] - b[3]) < 0.02, (a, b)
        if want:
            same([v for _, v in counts["pages held"]], [float(v) for v in s["steps"]["columns"]["held"]])
        for lane in s.get("lanes", {}).get("items", []):
            same([v for _, v in counts[lane["name"]]], [float(v) for v in lane["values"]])


def test_pftrace_is_what_perfettos_own_classes_read():
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError:
        skip("the Python package perfetto is not installed")
    for path in stories():
        trace = perfetto_trace_pb2.Trace()
        trace.ParseFromString(export(path, "pftrace"))
        begins = [p.track_event for p in trace.packet if p.HasField("track_event") and p.track_event.type == 1]
        s = json.load(open(path))
        same(sorted(e.name for e in begins if e.flow_ids), sorted(n for _, n, _, _ in spans_of(s)))
        steps = [e for e in begins if e.name.endswith(" step")]
        same([{a.name: a.double_value for a in e.debug_annotations}["tokens"] for e in steps],
             [float(v) for v in s.get("steps", {"columns": {"tokens": []}})["columns"]["tokens"]])


# ---- stacks ----

def test_folded_stacks_sum_to_the_steps():
    for path in stories():
        s = json.load(open(path))
        steps = s.get("steps", {}).get("columns") or {"ms": [], "prefill": []}
        sums = {}
        for line in export(path, "folded").decode().splitlines():
            stack, ns = line.rsplit(" ", 1)
            assert stack not in sums, "a stack stands there twice"
            sums[stack] = int(ns)
        for prefill, name in ((True, "prefill step"), (False, "decode step")):
            want = sum(ms for ms, p in zip(steps["ms"], steps["prefill"]) if bool(p) == prefill)
            got = sum(ns for stack, ns in sums.items() if stack.startswith(name + ";")) / 1e6
            assert got >= want * (1 - 1e-6) - 1e-3, (path, name, got, want)
        calls = [(n, us) for track, n, _, us in spans_of(s) if track == "calls"]
        covered = sum(ns for stack, ns in sums.items() if not stack.endswith(("calls not timed", "between calls")))
        assert abs(covered / 1e3 - sum(us for _, us in calls)) < 1, (path, covered)
        by_layer = sum(us for n, us in calls if n.startswith("L00."))
        assert abs(sum(ns for stack, ns in sums.items() if stack.endswith(";L00")) / 1e3 - by_layer) < 1


def boxes(row):
    """[(from, to, text)] of a row of a flame graph."""
    edges = [i for i, c in enumerate(row) if c == "│"]
    return [(a, b, row[a + 1:b].strip()) for a, b in zip(edges, edges[1:])]


def test_a_flame_graph_in_the_terminal_has_the_shares_of_the_stacks():
    """A box is as wide as its share of the timed steps, by the folded stacks, and lies below the box that it is a part of."""
    path = stories()[0]
    stacks = [line.rsplit(" ", 1) for line in export(path, "folded").decode().splitlines()]
    stacks = [(stack.split(";"), int(ns)) for stack, ns in stacks if not stack.endswith("calls not timed")]
    timed = sum(ns for _, ns in stacks)
    for columns in (60, 100, 140):
        lines = ok("story", "show", path, "--flame", env={"COLUMNS": str(columns)}).text.split("\n")
        rows = [line for line in lines if line.startswith("│")]
        # the fourth, of single calls, is there where the times leave one of them wide enough
        assert len(rows) in (3, 4) and max(map(len, rows)) == columns, rows
        stack_of = {boxes(rows[0])[0]: []}
        for above, row in zip(rows, rows[1:]):
            for box in boxes(row):
                a, b, text = box
                outer = [o for o in boxes(above) if o[0] <= a and b <= o[1] and o in stack_of]
                m = re.fullmatch(r"(\D.*|L\d+) ([\d.]+) %", text)
                if not outer or not m:
                    continue  # a gap, several small ones in one box, or a text that was cut
                stack_of[box] = stack_of[outer[0]] + [m.group(1)]
                share = sum(ns for stack, ns in stacks if stack[:len(stack_of[box])] == stack_of[box]) / timed
                assert share > 0, stack_of[box]
                assert abs(100 * share - float(m.group(2))) < 0.51, (stack_of[box], share, text)
                assert abs(share * (columns - 1) - (b - a)) < 3, (stack_of[box], share, b - a)
        told = {stack[0] for stack in stack_of.values() if len(stack) == 1}
        for kind in {stack[0] for stack, _ in stacks}:
            share = sum(ns for stack, ns in stacks if stack[0] == kind) / timed
            assert kind in told or share * (columns - 1) < len(f"{kind} 100 %") + 3, (kind, share, rows)


def test_a_flame_graph_of_a_story_without_steps_or_with_hostile_names():
    s = json.load(open(stories()[0]))
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "a.json")

        def show(*args):
            with open(path, "w") as f:
                json.dump(s, f)
            return run("story", "show", path, *args)
        names = s["calls"]["labels"]
        s["calls"]["labels"] = ["\x1b[31m;;\u202e" + "x" * 500 + n for n in names]
        r = show("--flame")
        same(r.code, 0)
        assert "\x1b" not in r.text and "\u202e" not in r.text and max(map(len, r.text.split("\n"))) <= 100, r.text
        stacks = [line.rsplit(" ", 1)[0] for line in export(path, "folded").decode().splitlines()]
        assert stacks and max(n.count(";") for n in stacks) == 1, "a ';' of a name parts no stack"
        s["calls"]["labels"] = names
        s["calls"]["columns"]["us"] = [0.001] * len(s["calls"]["columns"]["us"])
        show()
        stacks = [line.rsplit(" ", 1) for line in export(path, "folded").decode().splitlines()]
        assert any(0 < int(ns) < 100 for _, ns in stacks), "a nanosecond is told"
        for k in s["steps"]["columns"]:
            s["steps"]["columns"][k] = []
        s["steps"]["count"] = 0
        r = show("--flame")
        same(r.code, 2)
        assert "no steps to draw" in r.err.decode(), r.err
        fails(2, "one at a time", "story", "show", path, "--flame", "--short")
        fails(2, "one at a time", "story", "show", path, "--flame", "--step", "1")


def test_speedscope_spans_lie_within_each_other():
    for path in stories():
        p = json.loads(export(path, "speedscope"))
        same(p["$schema"], "https://www.speedscope.app/file-format-schema.json")
        profile, frames = p["profiles"][0], [f["name"] for f in p["shared"]["frames"]]
        same((len(p["profiles"]), profile["type"], profile["unit"], len(set(frames))), (1, "evented", "microseconds", len(frames)))
        stack, at, opened = [], profile["startValue"], []
        for e in profile["events"]:
            assert e["at"] >= at and e["at"] <= profile["endValue"], e
            at = e["at"]
            if e["type"] == "O":
                stack.append(e["frame"])
                opened.append(frames[e["frame"]])
            else:
                same(stack.pop(), e["frame"])
        same(stack, [])
        same(sorted(opened), sorted(n for _, n, _, _ in spans_of(json.load(open(path)))))


def test_speedscope_is_valid_by_its_schema():
    """docs/speedscope.schema.json; that it refuses what speedscope would, a spoilt profile shows."""
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        skip("python3-jsonschema is not installed")
    valid = Draft202012Validator(json.load(open("docs/speedscope.schema.json")))
    for path in stories():
        p = json.loads(export(path, "speedscope"))
        same([e.message for e in valid.iter_errors(p)], [])
        for spoil in (lambda p: p["profiles"][0].pop("unit"), lambda p: p["shared"]["frames"].append({}), lambda p: p["profiles"][0]["events"].append({"type": "X", "frame": 0, "at": 1})):
            q = json.loads(json.dumps(p))
            spoil(q)
            assert not valid.is_valid(q)


# ---- the page ----

class Page(html.parser.HTMLParser):
    """Texts, tags and scripts of a page; tags that do not match end the test."""
    VOID = {"meta", "br", "rect", "circle", "line", "path"}

    def __init__(self, text):
        super().__init__()
        self.open, self.texts, self.tags, self.scripts, self.titles = [], [], [], [], []
        self.feed(text)
        same(self.open, [])

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        elif tag in ("rect", "circle") and not self.get_starttag_text().endswith("/>"):
            self.open.append(tag)  # it holds a title

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        same(self.open.pop(), tag)

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        if inside == "script":
            self.scripts.append(data)
        elif inside == "title":
            self.titles.append(data)
        elif inside != "style":
            self.texts.append(data)


def words(text):
    return re.findall(r"[A-Za-z]{4,}", text)


def test_html_holds_what_the_terminal_shows():
    for path in stories():
        page = Page(export(path, "html").decode())
        there = set(words(" ".join(page.texts)))
        shown = ok("story", "show", path, env={"COLUMNS": "140"}).text
        missing = [w for w in words(shown) if w not in there]
        same(missing, [])


def test_html_runs_its_own_script_alone_and_loads_nothing():
    for path in stories():
        text = export(path, "html").decode()
        page = Page(text)
        policy = next(a["content"] for t, a in page.tags if t == "meta" and "http-equiv" in a)
        want = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
        assert policy.startswith("default-src 'none'; ") and f"script-src 'sha256-{want}'" in policy, policy
        same([a.get("type") for t, a in page.tags if t == "script"], ["application/json", None])
        for tag, attributes in page.tags:
            for name, v in attributes.items():
                assert not name.startswith("on") and name not in ("src", "style", "action"), (tag, name)
                assert name != "href" or v.startswith("#"), (tag, v)
        assert "//" not in re.sub(r"<script.*?</script>", "", text, flags=re.S), "an address outside of the file"
        ids = {a["id"] for _, a in page.tags if "id" in a}
        links = {a["href"][1:] for t, a in page.tags if t == "a" and not a["href"].startswith("#t=")}
        assert links <= ids, links - ids
        data = json.loads(page.scripts[0])
        same(sum(s[0] > 0 for s in data["spans"]), len(spans_of(json.load(open(path)))))


def test_html_points_of_the_roofline_are_the_ops():
    for path in stories():
        s = json.load(open(path))
        want = []
        for phase in s["phases"] if "roofs" in s else ():
            for op in phase["ops"][:64]:
                moved = sum(op["expected_bytes"][k] for k in ("weights", "kv", "activations"))
                flops = sum(op["flops"].get(k) or 0 for k in ("fp32", "bf16", "fp8", "int8"))
                us = op["time_us"]["value"]
                if moved and flops and us and 1e-6 < flops / moved < 1e9:
                    want.append(f"{phase['name']} {op['kind']}: {flops / moved:.2f} FLOP/byte, {flops / us / 1e3:.3g} GFLOP/s, ")
        got = [t for t in Page(export(path, "html").decode()).titles if "FLOP/byte" in t]
        same(len(got), len(want))
        for a, b in zip(got, want):
            assert a.startswith(b), (a, b)


def test_html_and_terminal_have_the_trail_of_the_step():
    """Measured stops are full squares, modelled ones hollow; the terminal has the same in a table, and says which is which."""
    s = json.load(open(stories()[0]))
    s["trail"] = [dict(t, steps=steps, sequences=n, step_us={"value": us, "tag": tag}) for t, steps, n, us, tag in
                  zip([s["trail"][0]] + [s["trail"][1]] * 3, (1, 19, 4, 0), (1, 1, 2, 4), (9000, 4000, 5000, 6000), ("measured",) * 3 + ("modelled",))]
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "a.json")
        with open(path, "w") as f:
            json.dump(s, f)
        text, shown = export(path, "html").decode(), ok("story", "show", path, env={"COLUMNS": "140"}).text
    stops = [t for t in Page(text).titles if "FLOP a byte" in t]
    want = []
    for t in s["trail"]:
        flops, us = t["flops"]["value"], t["step_us"]["value"]
        want.append(f"{t['step_us']['tag']} {t['phase']} step of {t['sequences']} sequences: {flops / t['bytes']['value']:.3g} FLOP a byte, {flops / us / 1e3:.3g} GFLOP/s, {us:.1f} us")
    same(stops, want)
    same((text.count('class="step"'), text.count('class="step hollow"'), text.count('class="trail"'), text.count('class="trail model"')), (3, 1, 2, 1))
    rows = shown[shown.index("TRAIL ON THE ROOFLINE"):].split("\n")[2:6]
    same([r.split()[:2] for r in rows], [["prefill", "1"], ["decode", "1"], ["decode", "2"], ["decode", "4"]])
    same(["modelled" in r for r in rows], [False, False, False, True])


def test_trail_of_a_batch_is_measured_at_each_size():
    """Requests that end one after the other leave steps of four, two and one sequence, whose bytes and FLOPs grow with them."""
    with tempfile.TemporaryDirectory() as d:
        batch, path = os.path.join(d, "b.jsonl"), os.path.join(d, "b.json")
        with open(batch, "w") as f:
            for i, n in enumerate((4, 8, 12, 16)):
                body = {"model": os.path.basename(MODEL)[:-5] if have_model() else DUMMY, "prompt": [5 + k for k in range(40)] + [100 + i], "max_tokens": n,
                        "ignore_eos": True}
                f.write(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": body}) + "\n")
        ok("run", "--batch", batch, f"--story={path}", "-o", os.path.join(d, "o.jsonl"), *FAST, *model())
        s = json.load(open(path))
        shown = ok("story", "show", path).text
    decodes = [t for t in s["trail"] if t["phase"] == "decode" and t["steps"] > 0]
    sizes = [t["sequences"] for t in decodes]
    assert len(sizes) >= 3 and sizes[0] == 1 and sizes[1] == 2 and 2 < sizes[2] <= 4, sizes
    assert all(a["flops"]["value"] < b["flops"]["value"] and a["bytes"]["value"] < b["bytes"]["value"] for a, b in zip(decodes, decodes[1:]))
    same({t["step_us"]["tag"] for t in decodes}, {"measured"})
    # four prompts with 40 tokens in common: two whole pages and a branch for each
    runs = s["tree"]["shown"]
    assert s["tree"]["runs"] == len(runs) >= 5, runs
    same(sum(r["pages"] for r in runs), s["tree"]["pages"])
    roots = [i for i, r in enumerate(runs) if r["parent"] < 0]
    same((len(roots), runs[roots[0]]["pages"], sum(r["parent"] == roots[0] for r in runs)), (1, 2, 4))
    assert "PREFIX TREE" in shown and shown.count("○") >= 5, shown


def test_a_requests_path_in_the_prefix_tree():
    """The pages of its prompt and answer but the last token, all of which it wrote."""
    s = json.load(open(stories()[0]))
    q, tree = s["request"], s["tree"]
    tokens = q["prompt_tokens"] + q["completion_tokens"] - 1
    same((tree["path_known"], tree["runs"], tree["shown"][0]["tokens"]), (True, 1, tokens))
    same((tree["shown"][0]["path"], tree["shown"][0]["found"]), (-(-tokens // s["memory"]["page_size"]), 0))
    shown = ok("story", "show", stories()[0]).text
    assert "└─ ● " in shown and "all of it is this request's path: found 0, wrote " in " ".join(shown.split()), shown


def test_html_numbers_of_the_headline_lead_to_sections_and_ops_to_their_cards():
    for path in stories():
        text = export(path, "html").decode()
        page = Page(text)
        ids = {a["id"] for _, a in page.tags if "id" in a}
        head = re.search(r'<section id="headline">.*?</section>', text, re.S)[0]
        links = re.findall(r'<a href="#([^"]+)">([^<]+)</a>', head)
        assert all(to in ids and re.match(r"[\d.,]+ ?\S+$", number) for to, number in links), links
        assert links or "First token" not in head, head
        cards = {a["href"][1:] for t, a in page.tags if t == "a" and a["href"].startswith("#op-")}
        assert cards <= ids, cards - ids


def test_html_layers_open_to_their_calls():
    s = json.load(open(stories()[0]))
    page = Page(export(stories()[0], "html").decode())
    layers = max(s["calls"]["layers"]) + 1
    same(sum(t == "details" for t, _ in page.tags), layers + 1)


def test_html_of_a_hostile_story_is_inert():
    s = json.load(open(GOLDEN[0]))
    attack = "</script><script>alert(1)</script><!--<img src=x onerror=alert(1)>\"'&lt;"

    def spoil(v):
        if isinstance(v, dict):
            return {k: spoil(x) if k not in ("schema", "tag", "event") else x for k, x in v.items()}
        if isinstance(v, list):
            return [spoil(x) for x in v]
        return v + attack if isinstance(v, str) else v
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "a.json")
        with open(path, "w") as f:
            json.dump(spoil(s), f)
        text = export(path, "html").decode()
    same((text.count("<script"), text.count("<!--"), text.count("<img")), (2, 0, 0))
    assert "alert(1)" in " ".join(Page(text).texts)


def big_story(n):
    """A story with n spans."""
    s = json.load(open(stories()[0]))
    c = s["steps"]["columns"]
    count = n // 2
    for k in c:
        c[k] = [c[k][-1]] * count
    c["id"], c["begin_ms"], c["ms"] = list(range(1, count + 1)), [3.0 * i for i in range(count)], [2.5] * count
    s["steps"]["count"] = count
    calls = s["calls"]["columns"]
    for k in calls:
        calls[k] = [calls[k][0]] * count
    calls["step"], calls["begin_us"], calls["us"] = c["id"], [100.0] * count, [2000.0] * count
    s["calls"]["count"] = count
    return s


def test_html_timeline_is_drawn_by_a_browser():
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if not browser:
        skip("no chromium")
    with tempfile.TemporaryDirectory() as d:
        story, page = os.path.join(d, "a.json"), os.path.join(d, "a.html")
        with open(story, "w") as f:
            json.dump(big_story(10000), f)
        ok("story", "export", story, "--to", "html", "-o", page)
        assert os.path.getsize(page) < 1 << 20
        for size, place, told in (("1280,900", "t=3000-90000", " spans from 0.0 us"), ("390,800", "step=40", "decode step: 2.500 ms from 117.000 ms · step 40")):
            r = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + os.path.join(d, "home"),
                                "--window-size=" + size, "--enable-logging=stderr", "--dump-dom", f"file://{page}#{place}"],
                               capture_output=True, text=True, timeout=120)
            drawn = re.search(r'<canvas[^>]*data-ms="([\d.]+)"', r.stdout)
            assert drawn, r.stderr[-2000:]
            over = re.search(r'<canvas[^>]*data-over="(-?\d+)"', r.stdout)
            assert over and int(over[1]) <= 0, f"the page is {over and over[1]} pixels wider than a window of {size}"
            assert re.search(r'<p id="told"[^>]*>[^<]*' + re.escape(told), r.stdout), "the place of the address is not there"
            print(f"# {size}: a drawing of 10,000 spans takes {drawn[1]} ms of script")
            same([line for line in r.stderr.splitlines() if "Uncaught" in line or "Security Policy" in line], [])


def test_run_writes_the_form_that_the_name_asks_for():
    with tempfile.TemporaryDirectory() as d:
        for name, begin in (("a.html", b"<!doctype html>"), ("a.pftrace", b"\n"), ("a.json", b"{")):
            path = os.path.join(d, name)
            ok("run", f"--story={path}", "--quiet", *FAST, *model(), "-n", "3", "x")
            data = open(path, "rb").read()
            assert data.startswith(begin), (name, data[:40])
        read_pftrace(open(os.path.join(d, "a.pftrace"), "rb").read())
        with open(os.path.join(d, "s.json"), "w") as f:
            f.write(open(GOLDEN[0]).read())
        out = os.path.join(d, "out.pftrace")
        ok("story", "export", os.path.join(d, "s.json"), "--to", "pftrace", "-o", out)
        same(open(out, "rb").read(), export(os.path.join(d, "s.json"), "pftrace"))


main(globals())
