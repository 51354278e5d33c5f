#!/bin/sh
# vitrine beside llama.cpp on this machine, in one run, turn about.
#
#   bench/peers/llama.cpp.sh [MODEL.gguf] [THREADS]
#
# llama.cpp comes from the source inside the PyPI sdist of llama-cpp-python 0.3.36, built outside this repository
# (LLAMA_DIR, default ~/.cache/vitrine/peers/llama.cpp) for this very machine, with clang: GCC 12 miscompiles its AMX path.
# Prints one markdown table: medians of ROUNDS (5) rounds of each, and both programs' settings.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
model=${1:-${VITRINE_CACHE:-$HOME/.cache/vitrine}/models/SmolLM2-135M-Instruct.Q4_1.gguf}
threads=${2:-$(nproc)}
rounds=${ROUNDS:-5}
dir=${LLAMA_DIR:-$HOME/.cache/vitrine/peers/llama.cpp}
bin=${LLAMA_BIN:-$dir/build/bin}

build_peer() {
    echo "building llama.cpp in $dir (once, some minutes)" >&2
    mkdir -p "$dir.sdist" "$dir"
    python3 -m pip download -q --no-deps --no-binary :all: --no-build-isolation -d "$dir.sdist" llama-cpp-python==0.3.36
    tar xzf "$dir.sdist"/llama_cpp_python-0.3.36.tar.gz -C "$dir" --strip-components=3 \
        llama_cpp_python-0.3.36/vendor/llama.cpp
    cmake -S "$dir" -B "$dir/build" -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=Release \
        -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF -DBUILD_SHARED_LIBS=OFF \
        -DGGML_OPENMP=OFF >"$dir.log" 2>&1
    cmake --build "$dir/build" -j"$(nproc)" --target llama-bench llama-perplexity >>"$dir.log" 2>&1
}
[ -x "$bin/llama-bench" ] || build_peer

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
i=0
while [ $i -lt "$rounds" ]; do
    "$here/build/vitrine" bench latency -m "$model" --device cpu --threads "$threads" --prompt 512 --gen 64 -r 1 --json \
        >>"$out/ours" 2>/dev/null
    "$bin/llama-bench" -m "$model" -t "$threads" -p 512 -n 64 -r 1 -o jsonl >>"$out/theirs" 2>/dev/null
    i=$((i + 1))
done
python3 - "$out" "$threads" "$rounds" <<'PY'
import json, statistics, sys
out, threads, rounds = sys.argv[1:]
ours = [json.loads(l) for l in open(out + "/ours")]
theirs = [json.loads(l) for l in open(out + "/theirs")]
mid = lambda v: statistics.median(v)
span = lambda v: f"{mid(v):.1f} ({min(v):.1f}-{max(v):.1f})"
pp = [r["avg_ts"] for r in theirs if r["n_prompt"]]
tg = [r["avg_ts"] for r in theirs if r["n_gen"]]
vp = [r["prefill_tokens_per_s"] for r in ours]
vd = [r["decode_tokens_per_s"] for r in ours]
print(f"| {theirs[0]['cpu_info']}, {threads} threads, median (min-max) of {rounds} | prefill 512, t/s | decode 64, t/s |")
print("|---|---|---|")
print(f"| vitrine {ours[0].get('commit', '')} | {span(vp)} | {span(vd)} |")
print(f"| llama.cpp {theirs[0]['build_commit']} | {span(pp)} | {span(tg)} |")
print(f"| ratio of medians | {mid(vp) / mid(pp):.2f} | {mid(vd) / mid(tg):.2f} |")
PY
