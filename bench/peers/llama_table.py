"""The table of bench/peers/llama.cpp.sh: FOLDER THREADS ROUNDS PROGRAMS MODEL..., where FOLDER/MODEL.PROGRAM holds the program's
JSON, one value behind the other, a round each."""
import json, os, statistics, sys


def values(path):
    """The JSON values of a file that holds several."""
    text, decoder, out = open(path, encoding="utf-8").read().strip(), json.JSONDecoder(), []
    while text:
        value, end = decoder.raw_decode(text)
        out += value if isinstance(value, list) else [value]
        text = text[end:].lstrip()
    return out


def speeds(rows):
    """(prefill, decode, the program's version) of ours or of llama-bench's values; tokens/s, one a round."""
    if "prefill_tokens_per_s" in rows[0]:
        return ([r["prefill_tokens_per_s"] for r in rows], [r["decode_tokens_per_s"] for r in rows], rows[0].get("commit", ""))
    return ([r["avg_ts"] for r in rows if r["n_prompt"]], [r["avg_ts"] for r in rows if r["n_gen"]],
            rows[0].get("build_commit", ""))


def span(v):
    return f"{statistics.median(v):,.1f} ({min(v):,.1f}-{max(v):,.1f})"


def main():
    folder, threads, rounds, programs = sys.argv[1:5]
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "this CPU")
    print(f"| {cpu}, {threads} threads, median (least-most) of {rounds} | | prefill 512, t/s | decode 64, t/s |")
    print("|---|---|---|---|")
    for model in sys.argv[5:]:
        name, ours = os.path.basename(model), None
        for program in programs.split():
            prefill, decode, version = speeds(values(os.path.join(folder, f"{name}.{program}")))
            ours = ours or (prefill, decode)
            ratio = "" if ours[0] is prefill else (
                f"; ours is {statistics.median(ours[0]) / statistics.median(prefill):.2f} and "
                f"{statistics.median(ours[1]) / statistics.median(decode):.2f} times that")
            print(f"| {name[:-5]} | {program} {version}{ratio} | {span(prefill)} | {span(decode)} |")


main()
