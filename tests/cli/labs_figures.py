"""What the tests of the labs' figures share: committed results, and the parts of a step worked out from them by hand."""
import glob, math

from labs import *

LABS = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "labs"))
SCALE = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}
ROUNDED = 0.006  # of a figure with three digits


def results():
    """(machine, track, lab) and result of every lab that is committed."""
    for path in sorted(glob.glob(os.path.join(LABS, "*", "results", "*", "*.json"))):
        track, _, machine = os.path.relpath(path, LABS).split(os.sep)[:3]
        with open(path, encoding="utf-8") as f:
            result = json.load(f)
        if machine != "local" and isinstance(result, dict) and result.get("schema") == "vitrine.lab":
            yield (machine, track, result["lab"]), result


def near(a, b, share, what):
    assert abs(a - b) <= share * max(abs(a), abs(b)), f"{what}: {a:.5g} is told, {b:.5g} by hand"


def names(item):
    return [c.lstrip(">") for c in item.get("columns", [])]


def lines(item):
    """The rows of a table as {column: cell}."""
    return [dict(zip(names(item), row)) for row in item.get("rows", [])]


def value(cell):
    return cell.get("value") if cell else None


def seconds(text):
    """Of "1.65 ms" in a text; NaN where there is none."""
    m = re.search(r"([\d.]+) (ns|us|ms|s)\b", text)
    return float(m[1]) * SECONDS[m[2]] if m else math.nan


def verdict(k):
    before, after, noise = k["before_s"], k["after_s"], [k["before_noise"], k["after_noise"]]
    if before is None or after is None:
        return "not measured"
    if None in noise:
        return "no gain here"
    limit = max(0.02, 2 * math.hypot(*noise))
    return "gains" if before / after > 1 + limit else "loses" if before / after < 1 / (1 + limit) else "no gain here"


def parts_of_a_step(machine):
    """(call, seconds of a decode step, share of its roof, bound, calls) and the step's seconds, of mini-sglang 06."""
    result = next(r for at, r in results() if at == (machine, "mini-sglang", "06"))
    step = result["predictions"][0]["measured"]
    rows = [r for r in lines(result["items"]["kernels"]) if r["phase"]["text"] == "decode"]
    whole = sum(value(r["time"]) for r in rows)
    apart = whole > 1.2 * step  # timed call by call: what a call alone is known to take, or else its share
    times = [(value(r["expected"]) or value(r["time"]) * step / whole) if apart else value(r["time"]) for r in rows]
    shrink = min(1, step / sum(times)) if apart else 1
    return [(r["call"]["text"], t * shrink, (value(r["of roof"]) or math.nan) * value(r["time"]), r["bound"]["text"],
             int(r["calls"]["text"])) for r, t in zip(rows, times)], step
