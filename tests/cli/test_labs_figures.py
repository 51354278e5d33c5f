#!/usr/bin/env python3
"""The committed results of the labs, recomputed by other code than the labs': bytes and FLOPs from shapes, rates and shares
from times, sums of timelines, verdicts and grades. Each rule is tried on a copy with a planted wrong figure too, and must see
it. The program does not run here."""
import copy, glob, itertools, math

from labs_figures import *
from tap import *

CUTS = r"(\d+) items? over (\d+)(?: x (\d+) resident)?: ([\d.]+) waves"


def words(result):
    """Every text of a result with its place."""
    for key, item in result["items"].items():
        for part in ("text", "drawing"):
            if part in item:
                yield key, item[part]
    for finding in result["findings"]:
        yield finding["rule"], finding["text"]


# ---- verdicts and grades ----

def check_verdicts(at, result):
    """A knob gains or loses beyond two standard deviations and 2 %."""
    for k in result["knobs"]:
        if k["gain"] is not None:
            near(k["gain"], k["before_s"] / k["after_s"], 1e-6, f"{at} {k['name']}: gain")
        if k["verdict"] != "not graded":
            same(k["verdict"], verdict(k), f"{at} {k['name']}: verdict")


def check_sorting(at, result):
    """Sorting pays after some layers only where sorted slots gain."""
    if at[1:] != ("mini-sglang", "03"):
        return
    gains = any(verdict(k) == "gains" for k in result["knobs"] if k["where"] == "slots=sorted")
    text = result["items"]["sorting_layers"].get("text", "")
    assert ("paid for itself after" in text) == gains, f"{at}: {text}"


def check_baselines(at, result):
    """A variant of the gather is held against the row that the engine runs."""
    if at[1:] != ("mini-sglang", "02"):
        return
    own = next(r for r in lines(result["items"]["variants"]) if "the engine's" in r["row"]["text"])
    for k in result["knobs"]:
        if k["where"].startswith("variant ") and k["before_s"] is not None:
            near(k["before_s"], value(own["time"]), 1e-6, f"{at} {k['name']}: before")


def check_grades(at, result):
    """A grade is the ratio of what came to what was expected."""
    for p in result["predictions"]:
        own, came = p["own"], p["measured"]
        if (p["grade"] or "not graded").startswith("not graded") or not own or came is None:
            continue
        ratio = max(own / came, came / own)
        same(p["grade"], "within 20 %" if ratio <= 1.2 else "within 2x" if ratio <= 2 else "off by more",
             f"{at} {p['what']}: grade")


def check_steps(at, result):
    """A graded decode step is one as the request saw it, and not one that was taken apart to time its calls."""
    latency = result["items"].get("latency", {}).get("rows")
    for p in result["predictions"]:
        if p["what"] == "a decode step" and at[1:] == ("sglang", "01") and not p["grade"].startswith("not graded"):
            near(p["measured"], value(lines(result["items"]["latency"])[0]["ITL median"]), 0.1, f"{at}: {p['what']}")
    for text in [result["items"].get("timeline", {}).get("drawing", "")] if at[1:] == ("mini-sglang", "06") else []:
        took, steps = re.search(r"DECODE +(.*?)  \d+ tokens in (\d+) steps", text).groups()
        for p in result["predictions"]:
            near(p["measured"], seconds(took) / int(steps), 0.1, f"{at}: {p['what']}")
    assert latency or at[1:] != ("sglang", "01"), at


# ---- rates, shares, roofs ----

def check_rates(at, result):
    """Rates are bytes over time, shares of roofs the least time over the measured one."""
    for key, item in result["items"].items():
        for row in lines(item):
            what, time = f"{at} {key} {[c['text'] for c in row.values()]}", value(row.get("time"))
            moved, rate, least = (value(row.get(c)) for c in ("bytes", "rate", "least"))
            if time and moved and rate:
                near(rate, moved / time, 1e-5, what + ": rate")
            share = value(row.get("of roof"))
            if time and least and "of roof" in row:
                assert (share is None) == (least > time), what + ": share of a roof that does not bind"
                if share is not None:
                    near(share, least / time, 1e-5, what + ": share")
            if rate and value(row.get("roof")) and share is not None:
                near(share, rate / value(row["roof"]), 1e-5, what + ": share")
            if time and value(row.get("calls")) and value(row.get("mean")):
                near(value(row["mean"]), time / value(row["calls"]), ROUNDED, what + ": mean")


def check_shares(at, result):
    """No share of a roof is above 100 %, as a number or in words."""
    for key, item in result["items"].items():
        cells = [(c, row[c]) for row in lines(item) for c in row] + [("", item)]
        for column, cell in cells:
            if cell.get("unit") == "share" and value(cell) is not None and "all need" not in column:
                assert value(cell) <= 1.0005, f"{at} {key} {column}: {value(cell)}"
    for key, text in words(result):
        for share, of in re.findall(r"(\d+(?:\.\d+)?) % (?:and \d+ % )?of (?:its|the|a) ([\w ]*roof)", " ".join(text.split())):
            assert float(share) <= 100, f"{at} {key}: {share} % of {of}"


def check_sums(at, result):
    """Shares of a phase's ops are no more than the whole, and a table of kernels is as long as its step."""
    for key, item in result["items"].items():
        shares = {}
        for row in lines(item):
            if "op" in row and value(row.get("share")) is not None or "phase" in row and value(row.get("share")) is not None:
                phase = row.get("phase", {"text": ""})["text"]
                shares[phase] = shares.get(phase, 0) + value(row["share"])
        for phase, total in shares.items():
            assert 0.97 <= total <= 1.005, f"{at} {key} {phase}: shares sum to {total}"
    parts = lines(result["items"].get("breakdown", {}))
    if parts:
        told = {r["part"]["text"]: value(r["time"]) for r in parts}
        near(told["from submission to end"], sum(v for k, v in told.items() if k not in ("from submission to end",
             "before its submission")), 0.01, f"{at}: parts of a request")


def check_roofs(at, result):
    """Reading is no slower than copying, unless the roof is marked."""
    roofs = result["roofs"]
    read, copied = roofs.get("memory_bytes_per_s"), roofs.get("copy_bytes_per_s")
    if read and copied and read["tag"] == copied["tag"] == "measured":
        assert read["value"] >= 0.97 * copied["value"], f"{at}: memory {read['value']:.3g}, copy {copied['value']:.3g}"


# ---- bytes, FLOPs and items from shapes ----

def fields(text):
    """Numbers and words of "seqs=1 q_len=512 kv_type=BF16"."""
    return {k: int(v) if v.isdigit() else v for k, v in re.findall(r"(\w+)=(\w+)", text)}


def cost(kernel, s, width):
    """(bytes, FLOP) of a call; width: bytes of an activation's element. None: a kernel that is not worked out here."""
    kv = {"BF16": 2, "F16": 2, "F32": 4}.get(s.get("kv_type"), 0)
    if "q_len" in s or ("kv_len" in s and "heads" in s):
        seqs, q, n = s["seqs"], s.get("q_len", 1), s["kv_len"]
        pairs = seqs * q * (n - (q - 1) / 2)
        return (2 * seqs * n * s["kv_heads"] * s["head_dim"] * kv + 2 * seqs * q * s["heads"] * s["head_dim"] * width,
                4 * pairs * s["heads"] * s["head_dim"])
    if "slots" in s:
        return s["tokens"] * s["kv_heads"] * s["head_dim"] * 2 * (width + kv), 0
    if "copies" in s:
        return 2 * s["copies"] * s["tokens"] * s["layers"] * s["kv_heads"] * s["head_dim"] * 2 * 2, 0
    if "vocab" in s and s.get("type") == "F16":
        return s["tokens"] * s["hidden"] * (2 + width), 0
    if "interleaved" in s:
        elements = s["tokens"] * (s["heads"] + s["kv_heads"]) * s["head_dim"]
        return elements * 2 * width + s["tokens"] * s["head_dim"] * 4, 3 * elements
    if set(s) == {"tokens", "hidden"}:
        return s["tokens"] * s["hidden"] * 2 * width, 4 * s["tokens"] * s["hidden"]
    return None


def check_cards(at, result):
    """Bytes and FLOPs of a kernel's card are those of its shape; its rate is the one over the other."""
    width = 2 if "cuda" in result["machine"]["device"] else 4
    known = 0
    for key, item in result["items"].items():
        text = " ".join(item.get("drawing", "").split())
        m = re.search(r"├── execution .*; ([\d.]+) (\w?)B, ([\d.e+]+) FLOP ├──", text)
        by_hand = cost(key, fields(item.get("title", "")), width) if m else None
        if not by_hand:
            continue
        known += 1
        near(float(m[1]) * SCALE[m[2]], by_hand[0], 0.015, f"{at} {key}: bytes")
        near(float(m[3]), by_hand[1], 0.015, f"{at} {key}: FLOP")
        l2, copied = result["machine"].get("caches", {}).get("l2_bytes"), value(result["roofs"].get("copy_bytes_per_s"))
        took = re.search(r"it takes (.*?)(?:,|$| └)", text)
        if width == 2 and l2 and took and by_hand[0] <= l2 and by_hand[0] / seconds(took[1]) > 1.01 * copied:
            assert "of its memory roof" not in text, f"{at} {key}: faster than memory copies, and bound by memory"
        rate = re.search(r"├── hardware ([\d.]+) (\w?)(B|FLOP)/s", text)
        if took and rate:
            near(float(rate[1]) * SCALE[rate[2]], by_hand[rate[3] == "FLOP"] / seconds(took[1]), 0.02, f"{at} {key}: rate")
    return known


def check_tables_of_shapes(at, result):
    """Bytes of tables whose rows name a shape."""
    width, n = 2 if "cuda" in result["machine"]["device"] else 4, 0
    for key, item in result["items"].items():
        for row in lines(item):
            by_hand = None
            if at[1:] == ("mini-sglang", "03") and key == "patterns":
                tokens, wide = map(int, row["tokens"]["text"].split(" x "))
                by_hand = tokens * wide * 2 * (width + 2)
            elif at[1:] == ("mini-sglang", "02") and key == "sweep":
                by_hand = int(row["tokens"]["text"]) * int(row["row"]["text"].split()[0]) * (2 + width)
            elif at[1:] == ("mini-sglang", "radix") and key == "length":
                by_hand = 2 * 4 * int(row["ids"]["text"])
            if by_hand:
                n += 1
                near(value(row["bytes"]), by_hand, 0.02, f"{at} {key} {row}: bytes")
    return n


def check_items(at, result):
    """Waves are items over places; a prefill's items on a GPU are its tiles of query rows for each KV head."""
    n = 0
    texts = [(key, " ".join(text.split())) for key, text in words(result)]
    texts += [(key, " ".join(c["text"] for c in row.values())) for key, item in result["items"].items() for row in lines(item)]
    for key, text in texts:
        for items, places, resident, waves in re.findall(CUTS, text):
            near(float(waves), int(items) / (int(places) * int(resident or 1)), 0.1 if float(waves) < 0.1 else 0.02,
                 f"{at} {key}: waves of {items}")
    for row in lines(result["items"].get("work", {})):
        m = re.match(r"prefill (\d+) x (\d+) of", row["shape"]["text"])
        cut = re.search(CUTS, row["items"]["text"])
        if m and cut and row["row"]["text"] == "fa3":
            n += 1
            same(int(cut[1]), int(m[1]) * math.ceil(int(m[2]) * 32 / 8 / 128) * 8, f"{at}: items of {row['shape']['text']}")
    for row in lines(result["items"].get("wave_quantisation", {})) if "cuda" in result["machine"]["device"] else []:
        n += 1
        same(int(row["items"]["text"]), math.ceil(int(row["tokens"]["text"].split()[0]) * 4 / 128) * 8, f"{at}: items")
    return n


def check_causal(at, result):
    """The first k of n tokens of a causal prompt have k (k + 1) / 2 pairs of n (n + 1) / 2."""
    for row in lines(result["items"].get("causal", {})):
        k, n = map(int, row["cached"]["text"].split(" of "))
        near(value(row["attention FLOP saved"]), k * (k + 1) / (n * (n + 1)), 0.005, f"{at} causal {k}: attention")
        near(value(row["other FLOP saved"]), k / n, 0.01, f"{at} causal {k}: other")
        assert value(row["attention FLOP saved"]) < value(row["all FLOP saved"]) < value(row["other FLOP saved"]) + 1e-9


# ---- times that exclude each other ----

def check_contradictions(at, result):
    """Fewer FLOPs never take longer, nor save more time than FLOPs, without a word."""
    if at[1:] != ("sglang", "02"):
        return
    all_rows, saved = lines(result["items"]["length_gain"]), lines(result["items"]["causal"])
    whole = value(all_rows[0]["prefill"])
    told = [f["text"] for f in result["findings"] if f["rule"] == "times.contradict"]
    for row, flops in zip(all_rows[1:], saved):
        part, computed = value(row["prefill"]), 1024 - int(row["cached"]["text"])
        odd = part > 1.1 * whole or whole > 1.1 * part / (1 - value(flops["all FLOP saved"]))
        assert odd == any(f"of which {computed} are computed" in t for t in told), f"{at}: {computed} computed in {part}: {told}"
        if result["when"] >= "2026-11-28T18":  # from then on the lab says why a hit shows no gain
            plain = [f["text"] for f in result["findings"] if f["rule"] == "hit.no_gain"]
            late = not odd and value(row["TTFT"]) >= value(all_rows[0]["TTFT"])
            same(any(t.startswith(f"with {1024 - computed} of 1024 tokens cached") for t in plain), late, f"{at}: {computed}: {plain}")
    assert not told or all(f["rule"] != "cause.small_gain" for f in result["findings"]), at


def check_ranks(at, result):
    """More tokens are not less work for a layer of decodes, and a gain is the layer over its part and the sums."""
    if at[1:] != ("sglang", "06"):
        return
    alone = {}
    for row in lines(result["items"].get("share", {})):
        tokens, n, part, sums = int(row["tokens"]["text"]), int(row["ranks"]["text"]), value(row["layer's work"]), value(row["two sums"])
        alone.setdefault(tokens, part * n)
        near(value(row["gain of N ranks"]), alone[tokens] / (part + sums), 1e-5, f"{at}: {tokens} tokens, {n} ranks")
        near(value(row["sums of layer"]) or 0, sums / (part + sums), 1e-5, f"{at}: {tokens} tokens, {n} ranks, share")
    decodes = [s for t, s in sorted(alone.items()) if t <= 64]
    assert decodes == sorted(decodes), f"{at}: {alone}"


def moments(drawing):
    """(at, name, seconds) of the lines of a timeline."""
    for line in drawing.split("\n"):
        m = re.match(r" *([\d.]+) (ns|us|ms|s) +(?:┌─|├─|╞═|└─) (\w+) *(?:([\d.]+) (ns|us|ms|s)\b)?", line)
        if m:
            yield (float(m[1]) * SECONDS[m[2]], m[3].lower(),
                   float(m[4]) * SECONDS[m[5]] if m[4] else 0.0)


def check_timelines(at, result):
    """The lines of a timeline and its gaps leave no stretch untold."""
    for key in ("steps", "timeline"):
        events, end = list(moments(result["items"].get(key, {}).get("drawing", ""))), 0.0
        if not events or events[0][1] != "arrive":
            continue
        whole = events[-1][0]
        for start, name, took in events:
            rounding = 0.006 * max(start, end)
            assert start - end <= max(1.2e-4, 0.003 * whole) + rounding, f"{at} {key}: nothing is told from {end} to {start}"
            end = max(end, start + (took if name not in ("publish", "detokenise", "write") else 0))
        near(end, whole, 0.01, f"{at} {key}: its sum")


RULES = [check_verdicts, check_sorting, check_baselines, check_grades, check_steps, check_rates, check_shares, check_sums,
         check_roofs, check_cards, check_tables_of_shapes, check_items, check_causal, check_contradictions, check_ranks,
         check_timelines]


def test_every_figure_of_the_committed_results_is_recomputed():
    seen, counted = 0, {}
    for at, result in results():
        seen += 1
        for rule in RULES:
            counted[rule.__name__] = counted.get(rule.__name__, 0) + (rule(at, result) or 0)
    assert seen >= 50, seen
    for name, least in (("check_cards", 12), ("check_tables_of_shapes", 60), ("check_items", 8)):
        assert counted[name] >= least, counted


# ---- planted wrong figures ----

def cell(result, item, row, column):
    t = result["items"][item]
    return t["rows"][row][names(t).index(column)]


def put(o, key, v):
    o[key] = v(o[key]) if callable(v) else v


def knob(result, name):
    return next(k for k in result["knobs"] if k["name"] == name)


PLANTED = {
    check_verdicts: (("h200", "mini-sglang", "04"), lambda r: put(knob(r, "splits-16"), "verdict", "loses")),
    check_sorting: (("h200", "mini-sglang", "03"), lambda r: put(r["items"]["sorting_layers"], "text",
                    "one sort serves all layers of a step: it has paid for itself after 30492 of them")),
    check_baselines: (("h200", "mini-sglang", "02"), lambda r: put(knob(r, "two warps a row"), "before_s", 2.419e-6)),
    check_grades: (("h200", "sglang", "05"), lambda r: put(r["predictions"][0], "grade", "within 20 %")),
    check_steps: (("h200", "sglang", "01"), lambda r: put(r["predictions"][0], "measured", 0.00158627)),
    check_rates: (("h200", "mini-sglang", "03"), lambda r: put(cell(r, "patterns", 0, "rate"), "value", lambda v: 1.1 * v)),
    check_shares: (("h200", "flashinfer", "05"), lambda r: put(r["items"]["roofline"], "drawing",
                   lambda t: t.replace(" above its roof\n", " 119 % of its roof\n", 1))),
    check_sums: (("h200", "sglang", "01"), lambda r: put(cell(r, "layer_ops", 0, "share"), "value", lambda v: v + 0.1)),
    check_roofs: (("epyc-2core", "sglang", "00"), lambda r: put(r["roofs"]["memory_bytes_per_s"], "value", 30.5e9)),
    check_cards: (("h200", "flashinfer", "02"), lambda r: put(r["items"]["explanation"], "drawing",
                  lambda t: t.replace("10.5 MB", "83.9 MB"))),
    check_tables_of_shapes: (("h200", "mini-sglang", "radix"), lambda r: put(cell(r, "length", 3, "bytes"), "value",
                             lambda v: 8 * v)),
    check_items: (("h200", "sglang", "05"), lambda r: put(cell(r, "work", 5, "items"), "text", "144 items over 132: 1.09 waves")),
    check_causal: (("h200", "sglang", "02"), lambda r: put(cell(r, "causal", 1, "attention FLOP saved"), "value", 0.5)),
    check_contradictions: (("h200", "sglang", "02"), lambda r: put(cell(r, "length_gain", 2, "prefill"), "value",
                           lambda v: 1.5 * v)),
    check_ranks: (("h200", "sglang", "06"), lambda r: put(cell(r, "share", 3, "layer's work"), "value", 14.4e-6)),
    check_timelines: (("h200", "mini-sglang", "06"), lambda r: put(r["items"]["timeline"], "drawing",
                      lambda t: "\n".join(x for x in t.split("\n") if " gap " not in x))),
}


def test_a_planted_wrong_figure_is_seen():
    same(set(PLANTED), set(RULES))
    for rule, (place, plant) in PLANTED.items():
        at, right = next((at, r) for at, r in results() if at == place)
        wrong = copy.deepcopy(right)
        plant(wrong)
        assert wrong != right, rule.__name__
        rule(at, right)
        try:
            rule(at, wrong)
        except AssertionError:
            continue
        raise AssertionError(f"{rule.__name__} does not see the figure that was planted in {place}")


# ---- what lies beside the results ----

def test_no_page_tells_more_than_a_whole_roof():
    """The same of every page below labs/."""
    for path in glob.glob(os.path.join(LABS, "**", "*.md"), recursive=True):
        text = " ".join(read(path).split())
        for share, of in re.findall(r"(\d{3,}) % of (?:its|the|a) ([\w ]*roof)", text):
            assert int(share) <= 100, f"{os.path.relpath(path, LABS)}: {share} % of {of}"


def test_kernels_that_one_lab_runs_show_their_own_figures():
    """silu_mul and the experts' kernels: their row of lab 01, not what that lab tells of a whole step."""
    for at, result in results():
        if at[1:] != ("mini-sglang", "01"):
            continue
        page = read(os.path.join(LABS, at[1], "reports", at[0], "analysis.md"))
        for op in ("silu_mul", "moe_route", "moe_linear"):
            row = next(r for r in result["items"]["kernels"]["rows"] if r[0]["text"] == op)
            part = page.split(f"\n## {op}\n")[1].split("\n## ")[0]
            assert "| " + " | ".join(c["text"] for c in row) + " |" in part and "decode step" not in part, (at, op, part)


def test_kv_of_a_token_is_that_of_the_model():
    """Layers x KV heads x head size x K and V x bytes of an element."""
    for machine, layers, heads, size in (("h200", 28, 8, 128), ("epyc-2core", 30, 3, 64)):
        text = read(os.path.join(LABS, "experiments", "results", machine, "memory_summary.txt"))
        told = int(re.search(r"(\d+)  KV of one token", text)[1])
        same(told, layers * heads * size * 2 * 2, machine)


def test_roofs_of_every_run_are_in_the_environment():
    """A share is one of the roofs of its own run: the page shows these, or names the lab whose roofs differ."""
    for at, result in results():
        text = read(os.path.join(LABS, at[1], "reports", at[0], "environment.md"))
        for key, name in (("memory_bytes_per_s", "memory read"), ("copy_bytes_per_s", "memory copy")):
            if key not in result["roofs"]:
                continue
            told = re.findall(rf"^\| (?:{at[2]} \| \S+ \| )?{name} \| ([\d.]+) ([KMGT]?)B/s \|", text, re.M)
            assert any(abs(float(v) * SCALE[u] / result["roofs"][key]["value"] - 1) < 0.016 for v, u in told), \
                f"{at}: {name} {result['roofs'][key]['value']:.4g}, the page has {told}"


def test_the_named_hardware_is_what_the_labs_measured():
    """explain --hardware h200 and the page of published numbers hold a step against the roofs that labs found there."""
    row = next(r for r in read(os.path.join(LABS, "physics.md")).split("\n") if r.startswith("| `h200`")).split(" | ")
    for at, result in results():
        if at[0] == "h200":
            near(float(row[1].split()[0]) * 1e12, result["roofs"]["memory_bytes_per_s"]["value"], 0.03, f"{at}: memory")
            near(float(row[2].split()[0]) * 1e12, result["roofs"]["bf16_per_s"]["value"], 0.03, f"{at}: bf16")


def test_ranges_of_the_index_are_those_of_the_roofs():
    """FLOP a byte of norms and RoPE, and the two crossings of an all-reduce through the host's memory."""
    for track, machine in itertools.product(("sglang", "mini-sglang", "flashinfer", "experiments"), ("h200", "epyc-2core")):
        text = read(os.path.join(LABS, track, "reports", machine, "INDEX.md"))
        rows_of = {r.split(" | ")[0].strip("| "): r.split(" | ") for r in text.split("\n") if r.startswith("| ")}
        width = 2 if machine == "h200" else 4
        for name, flops, elements in (("RMSNorm", 4, 2), ("add + RMSNorm, fused", 5, 4), ("RoPE", 3, 2)):
            near(float(rows_of[name][3]), flops / (elements * width), ROUNDED, f"{track} {machine} {name}: FLOP a byte")
        roofs = [r["roofs"] for at, r in results() if at[:2] == (machine, track) and r["roofs"]][0]
        near(seconds(rows_of["RMSNorm"][5]), 2 * 16384 * 4096 * width / roofs["memory_bytes_per_s"]["value"], ROUNDED,
             f"{track} {machine}: RMSNorm")
        if machine != "h200":
            continue
        least = sum((8 << 20) / roofs[k]["value"] for k in ("to_device_bytes_per_s", "from_device_bytes_per_s"))
        near(seconds(rows_of["all-reduce, staged through the host's memory"][5]), least, ROUNDED, f"{track}: all-reduce")


def share_of_a_step(machine, prefill, op):
    """The share that the calls of one op have of the time of all calls of a prompt's or a decode step."""
    if not prefill:
        parts, step = parts_of_a_step(machine)
        return sum(t for call, t, *_ in parts if call.split(".")[0] == op) / step
    result = next(r for at, r in results() if at == (machine, "mini-sglang", "06"))
    rows = [r for r in lines(result["items"]["kernels"]) if r["phase"]["text"] != "decode"]
    return sum(value(r["time"]) for r in rows if r["call"]["text"].split(".")[0] == op) / sum(value(r["time"]) for r in rows)


def test_opportunities_are_worth_what_they_are_of_the_step():
    """A kernel's: the time of its calls less what their roof needs, or less one launch a call. A knob's: its gain for its
    share of the step."""
    seen = [0, 0, 0]
    for track, machine in itertools.product(("sglang", "mini-sglang", "flashinfer", "experiments"), ("h200", "epyc-2core")):
        text = read(os.path.join(LABS, track, "reports", machine, "final-report.md"))
        parts, step = parts_of_a_step(machine)
        roofs = [r["roofs"] for at, r in results() if at[:2] == (machine, track) and r["roofs"]][0]
        start = roofs["kernel_us" if machine == "h200" else "meeting_us"]["value"]
        knobs = {(k["name"], r["lab"]): k for at, r in results() if at[:2] == (machine, track) for k in r["knobs"]}
        gains = []
        for cells in [re.split(r" (?<!\\)\| ", x[2:-2]) for x in
                      text.split("## Opportunities")[1].split("### Not worth it")[0].split("\n") if x.startswith("| ")]:
            if "at most" in cells[3]:
                call = cells[0].split("`")[1]  # "embed", or "linear (o, down)"
                op, _, of = call.removesuffix(")").partition(" (")
                its = [p for p in parts if p[0] in ([f"{op}.{c}" for c in of.split(", ")] if of else [call])]
                same((len(its), len({p[3] for p in its})), (len(of.split(", ")), 1), f"{machine} {call}: its calls, their bound")
                took, least, bound, calls = sum(p[1] for p in its), sum(p[2] for p in its), its[0][3], sum(p[4] for p in its)
                near(seconds(cells[1]), took, ROUNDED, f"{machine} {call}: time in a step")
                saved = min(took, start * calls) if bound == "launch" else took - least
                near(float(cells[3].split()[2][:-1]), step / (step - saved), ROUNDED, f"{machine} {call}: gain")
                seen[0] += 1
            elif len(cells) == 7 and (cells[0], cells[6]) in knobs:
                k = knobs[cells[0], cells[6]]
                gain = k["gain"] if k["gain"] > 1 else 1 / k["gain"]
                near(float(cells[4][:-1]), gain, ROUNDED, f"{machine} {cells[0]}: measured alone")
                share = re.search(r"of (a decode|a prompt's) step, of which (\S+) is ", cells[3])
                if share:
                    part = share_of_a_step(machine, share[1] != "a decode", share[2])
                    gain = 1 / (1 - part + part / gain)
                    seen[1] += 1
                if "x of " in cells[3]:
                    near(float(cells[3].split("x")[0]), gain, ROUNDED, f"{machine} {cells[0]}: gain of the whole")
            if "x of " in cells[3]:
                gains.append(float(re.search(r"([\d.]+)x of ", cells[3])[1]))
        same(gains, sorted(gains, reverse=True), f"{track} of {machine}: the largest gain first")
        for call, took, *_ in parts:
            told = re.search(rf"^├── {re.escape(call)} +([\d.]+ \S+) ", text.split("\nDECODE, ")[1], re.M)
            near(seconds(told[1]), took, ROUNDED, f"{track} of {machine}: {call} of the tree")
            seen[2] += 1
    assert seen[0] >= 18 and seen[1] >= 3 and seen[2] >= 90, seen


def test_strengths_are_knobs_that_gain():
    """Each ratio below "What the design gets right" is that of a knob of the same lab, whose verdict is a gain."""
    n = 0
    for track, machine in itertools.product(("sglang", "mini-sglang", "flashinfer", "experiments"), ("h200", "epyc-2core")):
        text = read(os.path.join(LABS, track, "reports", machine, "final-report.md"))
        knobs = [(r["lab"], k) for at, r in results() if at[:2] == (machine, track) for k in r["knobs"]]
        for ratio, what, lab in re.findall(r": ([\d.]+)x for (.*) \(lab (\w+)\)", text.split("gets right")[1].split("\n## ")[0]):
            k = next(k for number, k in knobs if number == lab and k["gain"] and abs(k["gain"] - float(ratio)) < ROUNDED)
            same((verdict(k), k["what"]), ("gains", what), f"{track} of {machine}")
            n += 1
    assert n >= 20, n


def test_bars_are_as_long_as_their_figures():
    """A bar of 32 cells is the longest of its picture, and the others are their share of it."""
    n = 0
    for path in sorted(glob.glob(os.path.join(LABS, "*", "reports", "*", "experiments.md"))):
        for drawing in re.findall(r"^```\n(.*?)```$", read(path), re.M | re.S):
            rows = re.findall(r"^.*?  (█*) +(\d[\d.]*)(?: (ns|us|ms|s))?$", drawing, re.M)
            if "█" not in drawing or len(rows) != drawing.count("\n") or len(rows) < 2:
                continue
            figures = [float(v) * SECONDS.get(unit, 1) for _, v, unit in rows]
            for (bar, *_), v in zip(rows, figures):
                assert abs(len(bar) - 32 * v / max(figures)) < 0.7, (path, bar, v)
            n += 1
    assert n >= 8, n


def test_every_lab_has_a_picture_and_an_observation():
    """And says when it was run, and what its memory did over time, or why that is not told."""
    for path in sorted(glob.glob(os.path.join(LABS, "*", "reports", "*", "experiments.md"))):
        for part in read(path).split("\n## ")[1:]:
            at = f"{os.path.relpath(path, LABS)}: {part.split(chr(10))[0]}"
            if "\nnot run here yet: `vitrine lab" in part:  # a machine that was there for some labs alone
                assert "/h100/" in path, at
                continue
            assert re.search(r"^Run at 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ, [\d.]+ (us|ms|s) in all\.$", part, re.M), at
            pictures = part.split("### Process visualisations")[1].split("\n### ")[0]
            assert "\n```" in pictures or "not measured here, because" in pictures, at
            assert "over time" in pictures, at
            seen = part.split("### Observations with hardware context")[1].strip().split("\n")[0]
            assert seen.startswith("- ") and not seen.startswith("- measured by") and len(seen) > 20, f"{at}: {seen}"


def test_bottlenecks_are_ranked_by_what_their_roofs_leave():
    """Time less the least, in the real step, the largest first; the kernels of the key findings have the same shares."""
    for track, machine in itertools.product(("sglang", "mini-sglang", "flashinfer", "experiments"), ("h200", "epyc-2core")):
        parts = {p[0]: p for p in parts_of_a_step(machine)[0]}
        text = read(os.path.join(LABS, track, "reports", machine, "final-report.md")).split("## Bottlenecks, ranked")[1]
        ranked = [x[2:-2].split(" | ") for x in text.split("\n## ")[0].split("\n") if re.match(r"\| \d", x)]
        want = sorted((p for p in parts.values() if p[1] - p[2] > 0), key=lambda p: p[2] - p[1])[:8]
        same([r[1].strip("`") for r in ranked], [p[0] for p in want], f"{track} of {machine}")
        for row, (call, took, least, *_) in zip(ranked, want):
            near(seconds(row[3]), least, ROUNDED, f"{machine} {call}: least")
            near(seconds(row[4]), took - least, ROUNDED, f"{machine} {call}: beyond it")
            near(float(row[5].split()[0]) / 100, least / took, 0.03, f"{machine} {call}: of the roof")
        if track != "experiments":
            continue
        kernels = read(os.path.join(LABS, track, "reports", machine, "key-findings.md")).split("## Kernels")[1]
        told = re.findall(r"most of it in `decode (\S+)`, at ([\d.]+) % of its (\w+) roof", kernels)
        same(len(told), 4, machine)
        for call, share, bound in told:
            near(float(share) / 100, parts[call][2] / parts[call][1], 0.03, f"{machine} {call}: of the roof")
            same(bound, parts[call][3], f"{machine} {call}: bound")


def test_a_range_of_arithmetic_is_in_its_unit():
    """A call that computes has FLOP/s beside its expected time, which are its FLOPs over that time; one that a memory
    binds has its bytes over it."""
    bounds = set()
    for path in glob.glob(os.path.join(LABS, "*", "reports", "*", "INDEX.md")):
        row = next(x for x in read(path).split("\n") if x.startswith("| prefill attention")).split(" | ")
        bounds.add(row[4])
        work, form = (4 * 32 * 128 * (512 * 513 / 2), "FLOP") if row[4] == "compute" else (2 * 512 * (32 * 128 + 8 * 128) * 2, "B")
        v, unit = re.search(rf"to ([\d.]+) ([KMGTP]){form}/s", row[6]).groups()
        near(float(v) * SCALE[unit], work / seconds(row[5]), ROUNDED, path)
    assert "compute" in bounds, bounds


main(globals())
