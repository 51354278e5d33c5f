"""Figures and the tables made of them: what bench/gpu, bench/tables and the peers' scripts share.

    lines      JSON, one figure a line, as bench/gpu, gpu_kernels and bench/peers/*.py print them. Files of several calls
               may be put one behind the other: a later figure of the same row takes the place of an earlier one.
    rows.tsv   bench/h200/rows.tsv: which rows the tables have, in which unit, our goals, and where the peer's work differs
    figures.tsv  bench/h200/figures.tsv: the newest figure of each row and program, and the run that it comes from

A line is {"row", "method", "us" or "value" and "unit"}. With "peer" it is another program's; where several variants of a
peer have the same row, the fastest counts. A line with "error" and no figure is a row that failed."""
import json, os

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = os.path.join(HERE, "h200/rows.tsv")
FIGURES = os.path.join(HERE, "h200/figures.tsv")
LARGER_IS_BETTER = ("tok/s", "TB/s", "GB/s", "TFLOP/s")
FIELD = {"us": ("us", 1), "s": ("us", 1e-6), "TB/s": ("gb_per_s", 1e-3), "GB/s": ("gb_per_s", 1),
         "TFLOP/s": ("tflop_per_s", 1)}


def read_tsv(path, columns):
    """Dicts of the lines that are no remarks; columns that a line does not have are ""."""
    out = []
    for line in open(path, encoding="utf-8"):
        if line.strip() and not line.startswith("#"):
            cells = line.rstrip("\n").split("\t")
            if len(cells) > len(columns):
                raise ValueError(f"{path}: '{cells[0]}' has {len(cells)} columns, expected at most {len(columns)}")
            out.append(dict(zip(columns, cells + [""] * (len(columns) - len(cells)))))
    return out


def read_rows(path=ROWS):
    """The layout: table, row, method, unit, goal, differs (what of the peer's work is another than ours)."""
    return read_tsv(path, ("table", "row", "method", "unit", "goal", "differs"))


def read_lines(paths):
    out = []
    for path in paths:
        out += [json.loads(line) for line in open(path, encoding="utf-8") if line.startswith("{")]
    return out


def value_of(line, unit):
    """The line's figure in this unit; None where it has none."""
    if "value" in line:
        return line["value"]
    field, scale = FIELD.get(unit, ("us", 1))
    return line[field] * scale if field in line else None


def better(a, b, unit):
    return a > b if unit in LARGER_IS_BETTER else a < b


def collect(lines, units):
    """{(row, method): {"ours": line or None, "peer": line or None}} of figures and failures; units: {(row, method): unit}.
    A failure does not take the place of a figure."""
    out = {}
    for line in lines:
        if "row" not in line or not ("value" in line or "us" in line or "error" in line):
            continue
        key = line["row"], line.get("method", "")
        slot = out.setdefault(key, {"ours": None, "peer": None})
        who = "peer" if "peer" in line else "ours"
        old, unit = slot[who], units.get(key, "us")
        if old and "error" in line and "error" not in old:
            continue
        if who == "peer" and old and "error" not in old:
            new_value, old_value = value_of(line, unit), value_of(old, unit)
            if old["peer"] != line["peer"] and not better(new_value, old_value, unit):
                continue
        slot[who] = line
    return out


def number(v):
    return f"{v:,.0f}" if abs(v) >= 1000 else f"{v:.4g}"
