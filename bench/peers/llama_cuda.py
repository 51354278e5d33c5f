#!/usr/bin/env python3
"""llama.cpp on a GPU, with the files that `bench/gpu --only quantised --models FOLDER` runs: one JSON line a row.

    python3 bench/peers/llama_cuda.py BIN FOLDER [KIND,...] >> build/bench-gpu.jsonl     KIND: q8_0 q4_k, of the 8B shape

BIN holds llama-bench and llama-batched-bench; FOLDER holds qwen3-8b-KIND.gguf, and what is not there is written by
random_gguf.py. 128 tokens of prompt and 128 generated, as our rows have them, flash attention on: llama-bench for one
sequence, llama-batched-bench for 8, 64 and 256. Neither samples (they feed random tokens, and copy the logits to the host)."""
import json, os, re, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
BATCHES = (8, 64, 256)


def run(argv):
    r = subprocess.run(argv, capture_output=True, text=True)
    lines = [json.loads(x[x.index("{"):]) for x in r.stdout.splitlines() if re.search(r'\{"', x)]
    if r.returncode or not lines:
        raise RuntimeError(f"{os.path.basename(argv[0])}: exit status {r.returncode}: {r.stderr.strip()[-300:]}")
    return lines


def put(row, batch, tokens_per_s, peer, command):
    print(json.dumps({"row": row, "method": "", "peer": peer, "value": round(1e3 * batch / tokens_per_s, 4), "unit": "ms",
                      "command": command}), flush=True)


def one(binaries, path, name, peer):
    argv = [f"{binaries}/llama-bench", "-m", path, "-ngl", "99", "-fa", "1", "-r", "3", "-p", "0", "-n", "128", "-d", "128",
            "-o", "jsonl"]
    put(name + " batch 1", 1, run(argv)[0]["avg_ts"], peer, "llama-bench -ngl 99 -fa 1 -p 0 -n 128 -d 128")
    argv = [f"{binaries}/llama-batched-bench", "-m", path, "-ngl", "99", "-fa", "on", "-c", str(256 * BATCHES[-1]), "-npp", "128",
            "-ntg", "128", "-npl", ",".join(map(str, BATCHES)), "--output-format", "jsonl"]
    for line in run(argv):
        put(f"{name} batch {line['pl']}", line["pl"], line["speed_tg"], peer,
            "llama-batched-bench -ngl 99 -fa on -npp 128 -ntg 128")


def main():
    if len(sys.argv) not in (3, 4):
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    binaries, folder, kinds = sys.argv[1], sys.argv[2], (sys.argv[3] if len(sys.argv) == 4 else "q8_0,q4_k").split(",")
    peer = os.environ.get("LLAMA_NAME", "llama.cpp")
    for kind in kinds:
        path = os.path.join(folder, f"qwen3-8b-{kind}.gguf")
        if not os.path.exists(path):
            subprocess.run([sys.executable, f"{HERE}/random_gguf.py", "qwen3-8b", kind, path], check=True, stdout=sys.stderr)
        try:
            one(binaries, path, f"step qwen3-8b {kind}", peer)
        except (RuntimeError, KeyError, ValueError) as e:
            print(json.dumps({"row": f"step qwen3-8b {kind} batch 1", "method": "", "peer": peer, "error": str(e)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
