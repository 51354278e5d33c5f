#!/usr/bin/env python3
"""Reports, criteria and published numbers of the labs, from the small set of results in tests/golden/labs.

The golden pages are those of the experiments that have no listing of the program's own rows. After a wanted change of
their words: vitrine lab experiments report --results tests/golden/labs --machine golden, and keep the pages named here."""
import html, os, re, shutil, tempfile
from html.parser import HTMLParser

from tap import *

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
GOLDEN = os.path.join(ROOT, "tests", "golden", "labs")
SCRATCH = tempfile.mkdtemp(prefix="vitrine-reports-")
TRACKS = ["sglang", "mini-sglang", "flashinfer", "experiments"]
PAGES = ["INDEX.md", "environment.md", "plan.md", "experiments.md", "analysis.md", "kernel-dev-guide.md",
         "final-report.md", "final-report.html"]
KEPT = ["key-findings.md", "experiments.md", "plan.md"]


def read(path):
    with open(path, "rb") as f:
        return f.read()


def results(name):
    """A copy of the results under a root of its own."""
    root = os.path.join(SCRATCH, name)
    shutil.copytree(GOLDEN, root, ignore=shutil.ignore_patterns("reports"))
    return root


def report(root, track, machine="golden", **kw):
    return ok("lab", track, "report", "--results", root, "--machine", machine, **kw)


def pages(root, track, machine="golden"):
    folder = os.path.join(root, track, "reports", machine)
    return {name: read(os.path.join(folder, name)) for name in sorted(os.listdir(folder))}


def change(root, track, file, edit):
    path = os.path.join(root, track, "results", "golden", file)
    with open(path) as f:
        j = json.load(f)
    edit(j)
    with open(path, "w") as f:
        json.dump(j, f)


def section(page, title):
    text = page.decode()
    return text.split("\n## " + title, 1)[1].split("\n## ", 1)[0]


def test_every_track_has_its_pages():
    root = results("pages")
    for track in TRACKS:
        r = report(root, track)
        want = sorted(PAGES + (["key-findings.md"] if track == "experiments" else []))
        same(sorted(pages(root, track)), want, track)
        same(sorted(os.path.basename(p) for p in r.text.split()), want)


def test_the_same_results_give_the_same_bytes_anywhere():
    a, b = results("here"), results("elsewhere/deeper")
    for track in TRACKS:
        report(a, track)
        report(b, track, env={"TZ": "Asia/Tokyo", "LC_ALL": "C", "COLUMNS": "60"})
        same(pages(a, track), pages(b, track), track)
        for name, text in pages(a, track).items():
            assert SCRATCH.encode() not in text, f"{track}/{name} names a path of this machine"


def test_reports_equal_the_committed_ones():
    root = results("committed")
    report(root, "experiments")
    made = pages(root, "experiments")
    for name in KEPT:
        want = read(os.path.join(GOLDEN, "experiments", "reports", "golden", name)).decode()
        for n, (x, y) in enumerate(zip(made[name].decode().split("\n"), want.split("\n")), 1):
            same(x, y, f"{name}, line {n}")
        assert made[name].decode() == want, f"{name}: one has more lines"


def test_the_index_begins_as_the_plan_does_and_its_commands_can_be_typed():
    root = results("index")
    report(root, "flashinfer")
    paths = section(pages(root, "flashinfer")["INDEX.md"], "Learning paths")
    first = paths.split("**Beginner**", 1)[1].split("\n")[1]
    assert first.startswith("1. `vitrine lab sglang 00 --quick`"), first
    assert "](../../../PLAN.md#learning-paths)" in paths, paths
    for code in re.findall(r"`([^`]*)`", paths):
        assert re.fullmatch(r"vitrine lab [a-z-]+ \w+ --quick( --[a-z-]+)?", code), code
    assert "python3 scripts/" in pages(root, "flashinfer")["INDEX.md"].decode()


def test_a_title_that_only_repeats_the_name_of_its_item_is_told_once():
    root = results("titles")

    def repeat(j):
        j["items"]["sweep"]["title"] = "sweep over batch and row size"
    change(root, "mini-sglang", "02_profile_index.json", repeat)
    report(root, "mini-sglang")
    text = "".join(p.decode() for p in pages(root, "mini-sglang").values())
    assert "**sweep over batch and row size**\n\n|" in text, text
    for track in TRACKS:
        report(root, track)
        for name, page in pages(root, track).items():
            for label, title in re.findall(r"^\*\*(.+?)\*\*: (.*)$", page.decode(), re.M):
                assert label.lower() != title.lower(), (track, name, label)


def test_other_roofs_give_other_ranges():
    root = results("roofs")
    report(root, "experiments")
    before = section(pages(root, "experiments")["INDEX.md"], "Expected ranges")

    def faster(j):
        for r in j["roofs"].values():
            r["value"] *= 10
    for n, name in enumerate(["start_server", "baseline_benchmark", "profile_requests", "timeline_profile", "tp_scaling",
                              "radix_cache_analysis"], 1):
        change(root, "experiments", f"{n}_{name}.json", faster)
    report(root, "experiments")
    after = section(pages(root, "experiments")["INDEX.md"], "Expected ranges")
    rows = [(x, y) for x, y in zip(before.splitlines(), after.splitlines()) if x.startswith("| ") and " to " in x]
    assert len(rows) >= 8, before
    for x, y in rows:
        assert x != y, f"a range that the roofs do not change: {x}"
        same(x.split("|")[1:4], y.split("|")[1:4])


def test_a_gpu_of_the_results_is_costed_as_one():
    root = results("gpu")

    def gpu(j):
        j["machine"].update(device="cuda", name="NVIDIA H200")
        j["roofs"] = {k: {"value": v, "unit": u, "tag": "measured"} for k, v, u in (
            ("memory_bytes_per_s", 4e12, "B"), ("bf16_per_s", 7e14, "FLOP"), ("to_device_bytes_per_s", 5e10, "B"),
            ("from_device_bytes_per_s", 5e10, "B"))}
    change(root, "experiments", "1_start_server.json", gpu)
    report(root, "experiments")
    text = section(pages(root, "experiments")["INDEX.md"], "Expected ranges")
    # 64 x 4096 values of 2 bytes, read and written, at 4 TB/s; 8 MiB up and down at 50 GB/s each
    assert "| 1.05 MB | 0 | memory | 262 ns to 524 ns |" in text, text
    assert "link | 336 us to 671 us" in text, text
    # what the rows must say, from their shapes alone; a norm: square, add, two scalings; rope: 4 multiplies and 2 adds a pair
    n, qk, q, kv = 16384 * 4096, 4096 * 40 * 128, 512 * 32 * 128, 512 * 8 * 128
    pairs = 512 * 513 / 2
    want = {"RMSNorm": (4 * n, 4 * n), "add + RMSNorm, fused": (8 * n, 5 * n), "add, then RMSNorm": (10 * n, 5 * n),
            "RoPE": (4 * qk, 3 * qk), "prefill attention": (2 * (2 * q + 2 * kv), 4 * 128 * 32 * pairs),
            "index (embed)": (4 * 64 * 4096, 0), "store (kv_store)": (8 * 64 * 1024, 0)}
    cells = [[c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    seen = {c[0]: c for c in cells if c[0] in want}
    same(sorted(seen), sorted(want))
    for name, (size, flops) in want.items():
        number, unit = seen[name][2].split()
        told = float(number) * {"KB": 1e3, "MB": 1e6, "GB": 1e9}[unit]
        assert abs(told / size - 1) < 0.006, (name, seen[name], size)
        assert abs(float(seen[name][3]) - flops / size) <= 0.006 * max(1e-9, flops / size), (name, seen[name], flops / size)


def with_caches(sizes):
    def edit(j):
        j["machine"].update(threads=2, cores=8, caches=sizes)
        j["roofs"].update({k: {"value": v, "unit": "B", "tag": "measured"} for k, v in (
            ("memory_bytes_per_s", 1e10), ("l2_bytes_per_s", 4e11), ("l3_bytes_per_s", 8e10))})
    return edit


def ranges_with(name, sizes):
    root = results(name)
    change(root, "experiments", "1_start_server.json", with_caches(sizes))
    report(root, "experiments")
    return pages(root, "experiments")


def test_ranges_come_from_the_sizes_of_caches_in_the_results():
    small = ranges_with("small", {"l1d_bytes": 32768, "l2_bytes": 65536, "l3_bytes": 2000000})
    large = ranges_with("large", {"l1d_bytes": 32768, "l2_bytes": 1048576, "l3_bytes": 2000000})
    a, b = (section(p["INDEX.md"], "Expected ranges") for p in (small, large))
    # 64 x 4096: fp32 out, 2 bytes in: 1.57 MB, in two L2s of 1 MiB, or in the L3
    assert "| 1.57 MB | 0 | L3 | 19.7 us to 39.3 us |" in a, a
    assert "| 1.57 MB | 0 | L2 | 3.93 us to 7.86 us |" in b, b
    for p, size in ((small, "131 KB"), (large, "2.10 MB")):
        told = f"Caches: L1d 32.8 KB a core, L2 {size} of all threads together, L3 2.00 MB."
        for page in ("INDEX.md", "environment.md", "final-report.md"):
            assert told in p[page].decode(), p[page].decode()[:3000]


def test_sizes_of_caches_that_no_result_has_are_not_known():
    for n, sizes in enumerate(({}, None, {"l2_bytes": None}, {"l2_bytes": "much"})):
        made = ranges_with(f"unknown{n}", sizes)
        for page in ("INDEX.md", "environment.md", "final-report.md"):
            assert "Caches: not known, because" in made[page].decode(), page
        text = section(made["INDEX.md"], "Expected ranges")
        assert "| 1.57 MB | 0 | memory | " in text and "| L2 |" not in text and "| L3 |" not in text, text


def test_a_new_result_has_the_sizes_of_caches():
    root = os.path.join(SCRATCH, "fresh")
    j = ok("lab", "mini-sglang", "radix", "--quick", "--json", "--no-predict", "--results", root,
           "--device", "cpu").json
    m = j["machine"]
    same(sorted(m["caches"]), ["l1d_bytes", "l2_bytes", "l3_bytes"])
    assert m["cores"] >= 1
    for k, v in m["caches"].items():
        assert v is None or 1024 <= v <= 1 << 40, (k, v)


def test_report_of_all_tracks_writes_all_or_nothing():
    root = results("all")
    r = ok("lab", "report", "--results", root, "--machine", "golden")
    same(len(r.text.split()), 4 * len(PAGES) + 1)
    for track in TRACKS:
        one = results("one-" + track)
        report(one, track)
        same(pages(one, track), pages(root, track), track)
    broken = results("all-broken")
    with open(os.path.join(broken, "experiments", "results", "golden", "6_radix_cache_analysis.json"), "wb") as f:
        f.write(b'{"schema": ')
    fails(1, "6_radix_cache_analysis.json", "lab", "report", "--results", broken, "--machine", "golden")
    for track in TRACKS:
        assert not os.path.exists(os.path.join(broken, track, "reports")), track


def test_machines_have_pages_of_their_own():
    root = results("two")
    for track in TRACKS:
        shutil.copytree(os.path.join(root, track, "results", "golden"), os.path.join(root, track, "results", "other"))
    ok("lab", "report", "--results", root, "--machine", "golden")
    before = {t: pages(root, t) for t in TRACKS}
    ok("lab", "report", "--results", root, "--machine", "other")
    for track in TRACKS:
        same(pages(root, track), before[track], track)
        for name, text in pages(root, track, "other").items():
            assert re.search(rb"machine (`other`|<code>other</code>)", text) and b"golden" not in text, f"{track}/{name}"


# ---- the table of knobs ----

def knob(name, ratio, **more):
    k = {"name": name, "where": "--page-size", "what": "attention_decode", "expected": 1.5, "before_s": 2e-3,
         "before_noise": 0.01, "after_s": 2e-3 / ratio, "after_noise": 0.02, "gain": ratio, "verdict": "gains",
         "why": "half of the bytes"}
    k.update(more)
    return k


def knob_root(name, of_machine):
    """A root with one result, experiments 4, for each machine, with these knobs."""
    root = os.path.join(SCRATCH, name)
    for machine, knobs in of_machine.items():
        folder = os.path.join(root, "experiments", "results", machine)
        os.makedirs(folder)
        j = json.loads(read(os.path.join(GOLDEN, "experiments", "results", "golden", "4_timeline_profile.json")))
        j["knobs"] = knobs
        if machine.startswith("gpu"):
            j["machine"].update(device="cuda", name="NVIDIA H200")
        with open(os.path.join(folder, "4_timeline_profile.json"), "w") as f:
            json.dump(j, f)
    return root


def knob_page(root, *args):
    text = ok("lab", "knobs", "--results", root, *args).text
    same(text, read(os.path.join(root, "knobs.md")).decode())
    return text


def test_knobs_of_all_machines_are_one_table():
    root = knob_root("knob-table", {
        "cpu-a": [knob("page 16|64", 2.0), knob("only here", 1.0, verdict="no gain here", after_noise=0.3),
                  knob("hidden", 1.4, verdict="no gain here", before_noise=0.5),
                  knob("needs two", 1, verdict="not measured", gain=None, before_s=None, before_noise=None, after_s=None,
                       after_noise=None, why="one rank|alone")],
        "gpu-b": [knob("page 16|64", 1.25, expected=1.2, why="fewer look-ups")],
        "local": [knob("of this desk", 3.0)]})
    os.makedirs(os.path.join(root, "sglang", "results", "empty"))
    text = knob_page(root)
    head = next(x for x in text.splitlines() if x.startswith("| knob,"))
    same(re.findall(r"measured on ([\w-]+)", head), ["cpu-a", "gpu-b"])
    row = next(x for x in text.splitlines() if x.startswith("| page 16"))
    same(row, "| page 16\\|64: attention_decode | `experiments 4` | --page-size | 1.50x on cpu-a, 1.20x on gpu-b | "
              "2.00x, noise 4.5 %: 2.00 ms to 1.00 ms | 1.25x, noise 4.5 %: 2.00 ms to 1.60 ms | "
              "cpu-a: **gains**: half of the bytes; gpu-b: **gains**: fewer look-ups |")
    row = next(x for x in text.splitlines() if x.startswith("| needs two"))
    assert "| not measured, because one rank\\|alone | " in row and row.endswith(" | not measured anywhere |"), row
    row = next(x for x in text.splitlines() if x.startswith("| only here"))
    assert "| 1.50x | 1.00x, noise 60 %" in row and "cpu-a: **no gain here, within a noise of 60 %**: half" in row, row
    assert "**no gain here, within a noise of 100 %**" in next(x for x in text.splitlines() if x.startswith("| hidden"))
    assert "not measured, because this lab turns no such knob on this GPU" in row, row
    assert "| gpu-b | NVIDIA H200 | cuda | 1 labs" in text and "of this desk" not in text, text


def test_local_knobs_stand_alone_or_are_asked_for():
    root = knob_root("knob-local", {"local": [knob("of this desk", 3.0)]})
    assert "measured on local |" in knob_page(root)
    root = knob_root("knob-asked", {"local": [knob("of this desk", 3.0)], "cpu-a": [knob("there", 2.0)]})
    assert "measured on cpu-a | measured on local |" in knob_page(root, "--machine", "local")
    assert "local" not in knob_page(root, "--machine", "cpu-a").split("## The machines")[0]
    with open(os.path.join(root, "experiments", "results", "a-file"), "w") as f:
        f.write("no folder")
    text = knob_page(root, "--machine", "nothing-yet")
    assert "because the lab was not run: `vitrine lab experiments 4`" in text, text


def test_knobs_that_no_result_has_are_named():
    text = knob_page(knob_root("knob-missing", {"cpu-a": [knob("page", 2.0)]}))
    missing = text.split("## Knobs that no result has", 1)[1]
    assert "| page size |" not in missing and "| prefix cache | --no-prefix-cache | `vitrine lab sglang 02` |" in missing
    source = read(os.path.join(ROOT, "src", "lab", "report", "knob_table.c")).decode()
    rows = source.split("lab_wanted_knobs[] = {", 1)[1].split("{0}", 1)[0]
    wanted = re.findall(r'\n    WANTED\("([^"]+)"', rows)
    assert len(wanted) >= 27, wanted
    same(sorted(re.findall(r"^\| ([^|]+) \| [^|]+ \| `vitrine lab", missing, re.M)), sorted(set(wanted) - {"page size"}))
    nobody = knob_page(os.path.join(SCRATCH, "knob-none"))
    assert "No result has a knob yet" in nobody and nobody.count("| `vitrine lab ") == len(wanted), nobody


def test_a_damaged_result_writes_no_table_of_knobs():
    root = knob_root("knob-damaged", {"cpu-a": [knob("page", 2.0)], "gpu-b": [knob("page", 2.0)]})
    with open(os.path.join(root, "experiments", "results", "gpu-b", "4_timeline_profile.json"), "wb") as f:
        f.write(b'{"schema": "vitrine.lab", "version": 1, "knobs": 7}')
    fails(1, ["gpu-b/4_timeline_profile.json", "member 'predictions'"], "lab", "knobs", "--results", root)
    assert not os.path.exists(os.path.join(root, "knobs.md"))
    fails(2, "--machine", "lab", "knobs", "--results", root, "--machine", "../x")


def test_looking_leaves_no_folders():
    root = os.path.join(SCRATCH, "looked-at")
    for args in ((), ("--json",), ("sglang",), ("status",)):
        ok("lab", *args, "--results", root, "--machine", "somebody")
    assert not os.path.exists(root)


def test_the_list_of_labs_as_json_names_their_results():
    root = results("listed")
    rows = ok("lab", "--json", "--results", root, "--machine", "golden").json
    assert {r["track"] for r in rows} == set(TRACKS) and len(rows) >= 6, rows
    one = next(r for r in rows if (r["track"], r["lab"]) == ("experiments", "6"))
    same(os.path.relpath(one["result"], root), "experiments/results/golden/6_radix_cache_analysis.json")
    assert one["done"].startswith("quick, ") and one["name"] == "radix_cache_analysis" and one["goal"], one
    same([r for r in rows if r["track"] == "sglang"],
         ok("lab", "sglang", "--json", "--results", root, "--machine", "golden").json)


# ---- committed pages ----

def committed_machines():
    """Machines whose results are committed: their folders beside the ignored results/local."""
    found = set()
    for track in TRACKS:
        folder = os.path.join(ROOT, "labs", track, "results")
        if os.path.isdir(folder):
            found |= {m for m in os.listdir(folder)
                      if m != "local" and any(f.endswith(".json") for f in os.listdir(os.path.join(folder, m)))}
    return sorted(found)


def regenerated(labs, machines, name):
    """Pages made from these results under a root of its own; compared with those in `labs`."""
    root = os.path.join(SCRATCH, name)
    for track in TRACKS:
        for m in machines:
            folder = os.path.join(labs, track, "results", m)
            if os.path.isdir(folder):
                shutil.copytree(folder, os.path.join(root, track, "results", m))
    n = 0
    for m in machines:
        ok("lab", "report", "--results", root, "--machine", m)
        for track in TRACKS:
            want = os.path.join(labs, track, "reports", m)
            assert os.path.isdir(want), f"{track}: no pages of {m}; vitrine lab report --machine {m} writes them"
            same(sorted(os.listdir(want)), sorted(pages(root, track, m)), f"{track} of {m}")
            for page, text in pages(root, track, m).items():
                assert read(os.path.join(want, page)) == text, \
                    f"labs/{track}/reports/{m}/{page} is not what 'vitrine lab report --machine {m}' writes"
                n += 1
    for verb in ("physics", "knobs"):
        same(ok("lab", verb, "--results", root).out, read(os.path.join(labs, verb + ".md")), f"{verb}.md")
    return n


def test_pages_regenerate_byte_for_byte_from_committed_results():
    machines = committed_machines()
    if not machines:
        skip("no results of a named machine are committed; the next test compares pages made here")
    assert regenerated(os.path.join(ROOT, "labs"), machines, "committed-labs") >= 29 * len(machines)


def test_a_page_that_was_changed_by_hand_is_seen():
    """The comparison itself, on pages made here: equal as they are, not equal after an edit."""
    labs = results("by-hand")
    ok("lab", "report", "--results", labs, "--machine", "golden")
    for verb in ("physics", "knobs"):
        ok("lab", verb, "--results", labs)
    same(regenerated(labs, ["golden"], "equal"), 33)
    with open(os.path.join(labs, "sglang", "reports", "golden", "plan.md"), "a") as f:
        f.write("a sentence of somebody\n")
    try:
        regenerated(labs, ["golden"], "unequal")
    except AssertionError as e:
        assert "labs/sglang/reports/golden/plan.md" in str(e), e
    else:
        raise AssertionError("a changed page passed")


def test_a_damaged_result_is_one_clear_error():
    cases = [("1_start_server.json", b'{"schema": "vitrine.lab", ', "1_start_server.json"),
             ("2_baseline_benchmark.json", b'{"schema": "other"}', "not a result of schema"),
             ("3_profile_requests.json", b'{"schema": "vitrine.lab", "version": 1, "items": []}',
              ["member 'predictions'", "expected a list"]),
             ("radix_cache_results.json", b'{"first_ttft_ms": ', "radix_cache_results.json")]
    for n, (name, text, needle) in enumerate(cases):
        root = results(f"damaged{n}")
        with open(os.path.join(root, "experiments", "results", "golden", name), "wb") as f:
            f.write(text)
        fails(1, needle, "lab", "experiments", "report", "--results", root, "--machine", "golden")
        assert not os.path.exists(os.path.join(root, "experiments", "reports")), "no page of a damaged result"


def test_a_damaged_result_is_no_criterion_but_an_error():
    root = results("damaged-status")
    with open(os.path.join(root, "experiments", "results", "golden", "6_radix_cache_analysis.json"), "wb") as f:
        f.write(b'{"schema": ')
    fails(1, "6_radix_cache_analysis.json", "lab", "status", "--results", root, "--machine", "golden")


def test_a_knob_belongs_to_the_kernel_that_it_names():
    """One that names no kernel belongs to its lab's; "rope" is not named by "rope_store"."""
    root = results("names")
    report(root, "mini-sglang")
    guide = pages(root, "mini-sglang")["kernel-dev-guide.md"].decode()
    if "`vitrine lab mini-sglang 02`" not in guide or "| avx2 | row avx2 of embed |" not in guide:
        skip("this program has no labs of mini-sglang")

    def of(op):
        return guide.split(f"\n### {op}\n", 1)[1].split("\n### ", 1)[0]
    assert "| avx2 | row avx2 of embed |" in of("embed") and "| table in Q8_0 |" in of("embed")
    assert "| sorted slots |" in of("kv_store") and "embed" not in of("kv_store").split("Tried", 1)[1]


def test_pages_say_that_results_are_of_an_emulated_gpu():
    root = results("emulated")
    for file in os.listdir(os.path.join(root, "mini-sglang", "results", "golden")):
        change(root, "mini-sglang", file, lambda j: (j.update(state="emulated", roofs={}),
                                                     j["machine"].update(device="cuda", name="emulated H200")))
    report(root, "mini-sglang")
    made = pages(root, "mini-sglang")
    for name, text in made.items():
        assert b"3 on an emulated GPU, whose times mean nothing" in text, name
    assert b"not predicted here, because an emulated GPU has no roofs" in made["INDEX.md"]
    assert b"not measured here, because an emulated GPU has no roofs" in made["environment.md"]


def test_values_of_another_type_are_not_measured():
    root = results("types")

    def spoil(j):
        j["ttft"], j["output_tokens_per_s"] = 7, "fast"
    change(root, "experiments", "baseline_benchmark.json", spoil)
    report(root, "experiments")
    text = pages(root, "experiments")["key-findings.md"].decode()
    assert "| TTFT (median) | not measured |" in text and "| throughput | not measured |" in text, text


def test_a_summary_without_numbers_is_said_to_be_one():
    root = results("summary")
    for text in (b"share total\n", b"\xff\x00\x01", b"9" * 5000 + b"\n1 2 3\n"):
        with open(os.path.join(root, "experiments", "results", "golden", "kernel_summary.txt"), "wb") as f:
            f.write(text)
        report(root, "experiments")
        assert b"because kernel_summary.txt has no line of numbers" in pages(root, "experiments")["key-findings.md"]


def test_every_command_of_the_pages_names_a_lab():
    root = results("commands")
    labs = set()
    for track in TRACKS:
        report(root, track)
        rows = re.findall(r"^\| \[?(\w+) \w+\]?[^|]*\| .* \| `vitrine lab " + track + r" (\w+)[^`]*` \|",
                          pages(root, track)["INDEX.md"].decode(), re.M)
        labs |= {f"{track} {a}" for a, b in rows if a == b}
    same(len(labs) >= 28, True, f"labs in the pages of INDEX: {sorted(labs)}")
    texts = [t.decode() for track in TRACKS for t in pages(root, track).values()]
    texts.append(ok("lab", "physics", "--results", root).text)
    texts.append(ok("lab", "status", "--results", root, "--machine", "none").text)
    named = {x for t in texts for x in re.findall(r"vitrine lab ((?:mini-sglang|sglang|flashinfer|experiments) \w+)", t)}
    words = {f"{t} {w}" for t in TRACKS for w in ("all", "report")}
    assert len(named) >= 28
    same(named - labs - words, set())


def test_what_was_not_run_is_named_with_its_command():
    root = os.path.join(SCRATCH, "empty")
    report(root, "experiments", machine="nothing")
    made = pages(root, "experiments", "nothing")
    for n in (2, 3, 4, 5, 6):
        assert f"not run here yet: `vitrine lab experiments {n}`" in made["key-findings.md"].decode()
    for name in ("plan.md", "experiments.md", "analysis.md", "final-report.md"):
        assert made[name].decode().count("not run here yet") >= 6, name


def test_kernel_groups_are_the_sums_of_their_lines():
    root = results("groups")
    path = os.path.join(root, "experiments", "results", "golden", "kernel_summary.txt")
    share = {"decode linear.gate+up": 20.5, "decode linear.down": 7.25, "prefill upload": 11, "decode moe_route": 1.5,
             "decode silu_mul": 0.75, "decode attention_decode": 9, "decode rmsnorm.ffn": 2, "decode linear.qkv": 13,
             "decode linear.o": 5, "decode sample": 4, "decode page_copy": 26}
    with open(path, "w") as f:
        f.write("share %  total ns  calls  mean ns  kernel\n")
        f.writelines(f"{v:7.2f} 1000 1 1000  {k}\n" for k, v in share.items())
    report(root, "experiments")
    told = dict(re.findall(r"^\| (attention|MLP|norm|other) \| ([\d.]+) %", section(pages(root, "experiments")["key-findings.md"],
                                                                              "Kernels"), re.M))
    same({k: float(v) for k, v in told.items()}, {"attention": 9.0, "MLP": 30.0, "norm": 2.0, "other": 59.0})


def test_every_item_of_a_result_is_in_the_experiments():
    root = results("items")
    for track in TRACKS:
        report(root, track)
        text = pages(root, track)["experiments.md"].decode()
        folder = os.path.join(root, track, "results", "golden")
        for name in sorted(os.listdir(folder)):
            j = json.loads(read(os.path.join(folder, name))) if name.endswith(".json") else None
            if not isinstance(j, dict) or j.get("schema") != "vitrine.lab" or f"## {j['lab']} {j['name']}" not in text:
                continue
            part = text.split(f"## {j['lab']} {j['name']}\n", 1)[1].split("\n## ", 1)[0]
            for title in ("Execution timeline", "Hardware behaviour", "Process visualisations",
                          "Observations with hardware context"):
                assert "### " + title in part, (name, title)
            assert "not told by this result" not in part, name
            for key, item in j["items"].items():
                told = item.get("text") or item.get("missing") or item.get("title") or item.get("of", "")
                as_html = told.replace("&", "&amp;").replace("<", "&lt;")
                assert told in part or as_html in part, (name, key)


def test_every_observation_is_in_the_index():
    source = read(os.path.join(ROOT, "src", "lab", "report", "cause_table.c")).decode()
    table = source.split("report_causes[] = {", 1)[1].split("{0}", 1)[0]
    rows = re.findall(r'^    OF_(?:KERNEL|RUN)\(\s*"((?:[^"\\]|\\.)*)"', table, re.M)
    assert len(rows) >= 25, rows
    root = results("observations")
    for track in TRACKS:
        report(root, track)
        text = pages(root, track)["INDEX.md"].decode()
        for seen in rows:
            same(text.count(f"| {seen} | "), 1, seen)


def test_an_observation_names_the_labs_that_show_it():
    root = results("seen")
    report(root, "experiments")
    before = section(pages(root, "experiments")["INDEX.md"], "How to read a result")
    change(root, "experiments", "4_timeline_profile.json",
           lambda j: j["findings"].append({"rule": "gpu.idle", "text": "decode: the GPU stands idle"}))
    change(root, "experiments", "2_baseline_benchmark.json",
           lambda j: j["findings"].append({"rule": "cause.gaps", "text": "gaps"}))
    report(root, "experiments")
    after = section(pages(root, "experiments")["INDEX.md"], "How to read a result")
    rows = [(x, y) for x, y in zip(before.splitlines(), after.splitlines()) if x != y]
    same(len(rows), 1, "rows that changed")
    assert rows[0][1].startswith("| gaps between kernels | ") and rows[0][1].endswith("| 2, 4 |"), rows


def test_links_of_the_pages_lead_somewhere():
    root = results("links")
    for track in TRACKS:
        report(root, track)
    for track in TRACKS:
        for name, text in pages(root, track).items():
            links = re.findall(r"\]\(([^)]*)\)", text.decode())
            assert links or name != "INDEX.md", track
            for link in links:
                path, _, anchor = link.partition("#")
                if path.startswith("https://"):
                    continue
                # a committed page lies in labs/TRACK/reports/MACHINE; the pages under test are below another root
                at = os.path.normpath(os.path.join("labs", track, "reports", "golden", path or name))
                made = re.fullmatch(r"labs/[\w-]+/reports/golden/[\w-]+\.(?:md|html)", at)
                file = os.path.join(root, *at.split("/")[1:]) if made else os.path.join(ROOT, at)
                assert os.path.exists(file), f"{track}/{name}: {link}"
                headings = re.findall(r"^#+ (.*)$", read(file).decode(), re.M) if anchor else []
                places = [re.sub(r"[^a-z0-9 _-]", "", h.lower()).replace(" ", "-") for h in headings]
                assert not anchor or anchor in places, f"{track}/{name}: {link}"


class Html(HTMLParser):
    """The elements, attributes and text of a page; an element that is closed out of turn is an error."""
    VOID = {"meta", "rect"}

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.values, self.words = [], set(), [], []
        self.feed(page.decode())
        self.close()
        same(self.open, [])

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.values += [(tag, k, v) for k, v in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.values += [(tag, k, v) for k, v in attrs]

    def handle_endtag(self, tag):
        same(self.open.pop(), tag)
        self.words += [" "] if tag in ("td", "th") else []

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)


ELEMENTS = {"html", "head", "meta", "title", "style", "body", "header", "main", "nav", "section", "h1", "h2", "h3", "p", "ul", "li",
            "a", "strong", "code", "pre", "div", "table", "thead", "tbody", "tr", "th", "td", "svg"}


def inert(page):
    """The page, which can run nothing and load nothing."""
    h = Html(page)
    assert h.tags <= ELEMENTS, h.tags - ELEMENTS
    for tag, key, value in h.values:
        assert not key.startswith("on") and key != "src" and key != "style", (tag, key)
        if key == "href":
            assert re.fullmatch(r"https://[^\s]*|[\w./-]*(#[\w-]+)?", value), value
    assert ("meta", "content", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'") in h.values
    return h


def plain(markdown):
    """The words of a page of markdown."""
    text = re.sub(r"^(#+|-( \[[ x]\])?) |^\|[-:|]+\|$|\*\*|`", "", markdown, flags=re.M)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    return html.unescape(text.replace("\\", "")).replace("|", " ").split()


def test_the_final_report_as_html_has_the_same_words():
    root = results("html")
    for track in TRACKS:
        report(root, track)
        made = pages(root, track)
        h = inert(made["final-report.html"])
        body = "".join(h.words).split("experiments: final report" if track == "experiments" else f"{track}: final report", 2)[2]
        words = body.replace("\u2611", "").replace("\u2610", "").replace("|", " ").split()
        want = plain(made["final-report.md"].decode().split("\n", 1)[1])
        titles = plain("\n".join(re.findall(r"^## (.*)$", made["final-report.md"].decode(), re.M)))
        at = next(i for i in range(len(words)) if words[i:i + len(titles)] == titles)  # the links to the sections
        same(words[:at] + words[at + len(titles):], want, track)
        assert b"<svg" in made["final-report.html"] or track != "experiments", track


def test_the_html_of_hostile_results_is_inert():
    root = results("html-hostile")
    bad = ['<script>alert(1)</script>', '"><img src=x onerror=alert(1)>', "[x](javascript:alert(1))", "a **b <i>", "`<b>`", "&lt;b",
           "[x](//evil.example/)", "| a | b |", "</section></main>", "\n## <u>", "<!--", "&#60;script>", "\\<script>", "[[a](b)](c)"]

    def spoil(j):
        j["findings"] = [{"rule": b, "text": b} for b in bad]
        j["knobs"] = [knob(b, 2.0, why=b, where=b) for b in bad]
        j["files"] = [{"name": b, "what": b} for b in bad]
        j["machine"]["name"] = "</style><script>1</script>"
        j["checks"] = [{"ok": False, "text": b} for b in bad]
        j["items"]["timeline"] = {"missing": " ".join(bad)}
    for n, name in enumerate(["start_server", "baseline_benchmark", "profile_requests", "timeline_profile"], 1):
        change(root, "experiments", f"{n}_{name}.json", spoil)
    report(root, "experiments")
    page = pages(root, "experiments")["final-report.html"]
    h = inert(page)
    assert "<script>alert(1)</script>" in "".join(h.words)
    same(page.count(b"<script"), 0)


def test_every_card_is_in_the_catalogue():
    cards = re.findall(r"^VT_CARD\((\w+)\)", read(os.path.join(ROOT, "src", "ops", "cards.h")).decode(), re.M)
    root = results("cards")
    report(root, "experiments")
    made = pages(root, "experiments")
    for card in cards:
        assert f"| `{card}` | " in made["INDEX.md"].decode(), card
        assert f"\n### {card}\n" in made["kernel-dev-guide.md"].decode(), card


# What each page has, track by track alike.
PARTS = {
    "INDEX.md": ["## Quick start", "## Layout", "## Labs and scripts", "## Kernel catalogue", "| SGLang | Mini-SGLang | FlashInfer |",
                 "## Learning paths", "**Beginner**", "**Intermediate**", "**Advanced**", "## Expected ranges on this machine",
                 "## How to read a result", "| observation | likely cause | what to do |", "## Links", "Outside: "],
    "environment.md": ["## Roofs", "Caches: ", "## What the other tracks found", "## Links between GPUs, the legend",
                       "## From a kernel's source to its launch", "## Troubleshooting"],
    "plan.md": [" of ", "It answers: "],
    "analysis.md": ["├── execution model", "├── performance", "├── hardware behaviour", "├── class: ", "└── insight",
                    "## prefix_match"],
    "experiments.md": ["### Execution timeline", "### Hardware behaviour", "### Process visualisations",
                       "### Observations with hardware context"],
    "kernel-dev-guide.md": ["## Overview", "## Profiling", "nsys profile", "ncu --section", "vitrine bench kernels",
                            "| metric to read | what it answers |", "## Kernels", "Tried, verdict, next:", "\nNext: ",
                            "## How to add a kernel", "## How to add a variant", "## How to bring a kernel of your own"],
    "final-report.md": ["## Summary", " | purpose | key finding |", "**Bottom line**: ", "## Hardware", "memory read",
                        "## One request", "## Communication", "## Opportunities", "### Not worth it", "### Still open",
                        "## Bottlenecks, ranked", "## What the design gets right", "## What to improve", "## What one learns", "## Criteria",
                        "## Published numbers beside these", "## Files", "## Next steps", "\n5. `vitrine ",
                        "## Not measured here"],
    "final-report.html": ['<meta http-equiv="Content-Security-Policy"', '<a href="#summary">Summary</a>',
                          '<section id="not-measured-here"><h2>Not measured here</h2>'],
    "key-findings.md": ["## Performance baseline", "## Prefix cache", "## TP scaling", "## Kernels",
                        "| kernel | share of the time | observation |", "## Where a request's time goes"]}


def test_every_page_has_its_parts():
    root = results("parts")
    ok("lab", "report", "--results", root, "--machine", "golden")
    for track in TRACKS:
        made = pages(root, track)
        same(sorted(made), sorted(p for p in PARTS if p in made))
        for page, parts in PARTS.items():
            for part in parts if page in made else []:
                assert part in made[page].decode(), f"{track}/{page}: {part}"


def test_code_positions_of_the_guide_are_there():
    root = results("positions")
    report(root, "sglang")
    guide = pages(root, "sglang")["kernel-dev-guide.md"].decode()
    found = re.findall(r"- (\w+): \[(src/ops/[\w./]+): (\w+)\]\(\.\./\.\./\.\./\.\./([\w./]+)\)", guide)
    same([sum(w == what for what, *_ in found) for w in ("contract", "card", "kernel")], [37, 37, 36])
    index = pages(root, "sglang")["INDEX.md"].decode()
    rows = re.findall(r"^\| `(\w+)` \|.*?\| (\[[\w/.]+\]|runs on the host alone)", index, re.M)
    same(len(rows), 37)
    for op, kernel in rows:
        line = re.search(r"^### %s\n(?:.*\n)*?- rows: (.*)" % op, guide, re.M)[1]
        same("GPU" in line, kernel != "runs on the host alone", f"{op}: {kernel}, rows {line}")
    for what, path, name, link in found:
        same(path, link)
        text = read(os.path.join(ROOT, path)).decode()
        pattern = {"contract": r"\} %s;", "card": r"const vt_op %s = \{", "kernel": r"\b%s\("}[what] % name
        assert re.search(pattern, text), f"{path} has no {what} {name}"


def test_options_and_commands_of_the_pages_are_known():
    help_of = {}

    def known(verb, option):
        if verb not in help_of:
            help_of[verb] = ok(*verb.split(), "--help").text
        return re.search(r"(?<![\w-])" + re.escape(option) + r"(?![\w-])", help_of[verb])
    root = results("usages")
    ok("lab", "report", "--results", root, "--machine", "golden")
    usages, commands = 0, 0
    for track in TRACKS:
        made = pages(root, track)
        for text in re.findall(r"`vitrine lab (?:%s) \w+ ([^`]*)`" % track, made["INDEX.md"].decode()):
            for option in re.findall(r"--[\w-]+", text):
                assert known("lab", option), f"{track}: {option}"
                usages += 1
        block = made["kernel-dev-guide.md"].decode().split("```sh\n", 1)[1].split("```", 1)[0]
        for line in re.findall(r"vitrine ((?:explain|run|bench \w+) ?[^\n]*)", block):
            words = line.split()
            verb = " ".join(words[:2]) if words[0] == "bench" else words[0]
            for option in [w for w in words if w.startswith("--")]:
                assert known(verb, option), f"{verb} has no {option}"
            commands += 1
    assert usages >= 40 and commands >= 5 * 4, (usages, commands)


def test_a_section_of_another_track_is_linked_not_guessed():
    """flashinfer 04 has an item "sizes" too, of rows: it is no communication."""
    root = results("linked")
    report(root, "flashinfer")
    final = pages(root, "flashinfer")["final-report.md"]
    assert "](../../../sglang/reports/golden/final-report.md)" in section(final, "Communication"), section(final, "Communication")
    one = section(final, "One request")  # which a lab of sglang has in the order of time
    assert one.startswith("\n\nTold by lab sglang 01 on the same machine.") and "transition" in one, one
    os.unlink(os.path.join(root, "sglang", "results", "golden", "01_baseline_perf.json"))
    report(root, "flashinfer")
    one = section(pages(root, "flashinfer")["final-report.md"], "One request")
    assert "](../../../sglang/reports/golden/final-report.md)" in one, one


def test_knobs_of_a_result_are_opportunities():
    root = results("knobs")

    def turn(j):
        j["knobs"] = [knob("a knob|of ours", 2.0, after_noise=0.01), knob("plain", 1.01, verdict="no gain here"),
                      knob("hidden", 1.4, verdict="no gain here", before_noise=0.5), knob("worse", 0.5, verdict="loses"),
                      knob("unknown", 1.0, verdict="not measured", gain=None, after_s=None, after_noise=None,
                           expected=None),
                      knob("overlap", 1.5, where="--no-overlap")]
    change(root, "experiments", "4_timeline_profile.json", turn)
    report(root, "experiments")
    made = pages(root, "experiments")
    final = made["final-report.md"]
    worth, *rest = re.split(r"\n### ", section(final, "Opportunities"))
    assert "| a knob\\|of ours | 2.00 ms for attention_decode | --page-size: 1.00 ms | not of a step | 2.00x | not known: its lab does not declare it | 4 |" \
        in worth, worth
    assert '"a knob|of ours" is not on and gains 2.00x' in section(final, "What to improve"), section(final, "What to improve")
    found = [[n for n in ("a knob", "plain", "hidden", "worse", "unknown", "overlap") if n in p] for p in rest]
    same(found, [["plain", "worse"], ["hidden", "unknown"]])
    assert "| plain, worse | 0.50x to 1.01x | half of the bytes" in rest[0], rest[0]
    assert "**unknown** (--page-size, lab 4, run 2026-11-22): not measured" in rest[1], rest[1]
    assert "The next step is planned while the device computes this one: 1.50x for" in section(final, "What the design gets right")
    guide = made["kernel-dev-guide.md"].decode().split("\n### attention_decode\n", 1)[1].split("\n### ", 1)[0]
    assert "| 2.00 ms | 1.00 ms | 2.00x | **gains** |" in guide, guide


def test_what_is_on_and_costs_is_an_opportunity():
    root = results("costs")
    change(root, "experiments", "4_timeline_profile.json",
           lambda j: j.update(knobs=[knob("overlap", 0.5, verdict="loses", where="--no-overlap")]))
    report(root, "experiments")
    final = pages(root, "experiments")["final-report.md"]
    row = next(line for line in section(final, "Opportunities").split("\n") if line.startswith("| overlap"))
    assert "| without it: " in row and "| 2.00x | none: a choice | 4 |" in row, row
    assert '"overlap" is on and costs: ' in section(final, "What to improve")


def test_status_tells_the_14_criteria():
    root = results("status")
    rows = ok("lab", "status", "--json", "--results", root, "--machine", "golden").json
    same([sum(r["track"] == t for r in rows) for t in TRACKS], [5, 4, 5, 0])
    same({r["state"] for r in rows}, {"open"})
    first = rows[0]
    assert "6_radix_cache_analysis.json (quick results do not count: run it without --quick)" in first["shown_by"], first
    text = ok("lab", "status", "sglang", "--results", root, "--machine", "golden").text
    assert text.count("[ ]") == 5 and "0 of 5 criteria are done." in text, text
    for line in text.split("\n"):
        assert line.count("(") == line.count(")"), f"a reason is cut in two: {line}"
    fails(2, "no criteria of 'experiments'", "lab", "status", "experiments")


def test_a_criterion_is_done_by_a_full_result_whose_checks_hold():
    root = results("done")
    args = ("lab", "status", "flashinfer", "--json", "--results", root, "--machine", "golden")

    def row():
        return next(r for r in ok(*args).json if "normalization" in r["criterion"])
    if "04_profile_rmsnorm" not in row()["shown_by"]:
        skip("this program has no labs of flashinfer")
    change(root, "flashinfer", "04_profile_rmsnorm.json", lambda j: j.update(quick=False))
    same(row()["state"], "done")
    change(root, "flashinfer", "04_profile_rmsnorm.json", lambda j: j["checks"][0].update(ok=False))
    same(row()["state"], "open")
    assert "1 of its checks failed" in row()["shown_by"]


def test_the_physics_page_is_what_the_verb_writes():
    root = os.path.join(SCRATCH, "physics")
    text = ok("lab", "physics", "--results", root).out
    same(text, read(os.path.join(root, "physics.md")))
    same(text.decode(), read(os.path.join(ROOT, "labs", "physics.md")).decode(), "labs/physics.md")
    rows = re.findall(r"^\| \d+ \|.*$", text.decode(), re.M)
    assert len(rows) >= 16, rows
    # 2 x 512 x 4096 x 12288 FLOP in 150 us, against the 312 TFLOP/s of the data sheet
    assert "51.5 GFLOP / 150 us = 344 TFLOP/s = 110 % of 312 TFLOP/s" in text.decode()


try:
    main(globals())
finally:
    shutil.rmtree(SCRATCH)
