"""The table of bench/peers/llama.cpp.sh: FOLDER THREADS ROUNDS PROGRAMS MODEL..., where FOLDER/MODEL.PROGRAM holds the program's
JSON, one value behind the other, a round each; FOLDER/MODEL.PROGRAM.none says that it failed. A row a model; behind a peer's figures stands by how much ours are more."""
import json, os, statistics, sys


def values(path):
    """The JSON values of a file that holds several."""
    if not os.path.exists(path) or os.path.exists(path + ".none"):
        return []
    text, decoder, out = open(path, encoding="utf-8").read().strip(), json.JSONDecoder(), []
    while text:
        value, end = decoder.raw_decode(text)
        out += value if isinstance(value, list) else [value]
        text = text[end:].lstrip()
    return out


def speeds(rows):
    """(prefill, decode) of ours and of llama_steps, or of llama-bench's values; tokens/s, one a round."""
    if "prefill_tokens_per_s" in rows[0]:
        return [r["prefill_tokens_per_s"] for r in rows], [r["decode_tokens_per_s"] for r in rows]
    return [r["avg_ts"] for r in rows if r["n_prompt"]], [r["avg_ts"] for r in rows if r["n_gen"]]


def span(v):
    return f"{statistics.median(v):,.1f} ({min(v):,.1f}-{max(v):,.1f})"


def main():
    folder, threads, rounds, programs = sys.argv[1:5]
    programs, rows, commits = programs.split(), [], {}
    for model in sys.argv[5:]:
        name = os.path.basename(model)
        read = {p: values(os.path.join(folder, f"{name}.{p}")) for p in programs}
        cells = [name[:-5].replace("-random", "")]
        for k in range(2):
            for p in programs:
                if not read[p]:
                    cells.append("none")
                    continue
                commits[p] = read[p][0].get("commit") or read[p][0].get("build_commit", "")
                own, v = speeds(read[programs[0]])[k], speeds(read[p])[k]
                times = "" if p == programs[0] else f", {statistics.median(own) / statistics.median(v):.2f}"
                cells.append(span(v) + times)
        rows.append("| " + " | ".join(cells) + " |")
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "this CPU")
    head = [f"{what}: {p} {commits.get(p, '')}".strip() for what in ("prefill", "decode") for p in programs]
    print(f"| {cpu}, threads {threads}, median (least-most) of {rounds}, tokens/s | " + " | ".join(head) + " |")
    print("|---" * (1 + len(head)) + "|")
    print("\n".join(rows))


main()
