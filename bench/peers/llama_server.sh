#!/bin/sh
# vitrine serve beside llama-server on this machine, in one run, with the same load (vitrine bench serve).
#
#   bench/peers/llama_server.sh [MODEL.gguf] [THREADS]
#
# Three loads for each server: 64 streaming clients at once that share a system prompt of 1,100 tokens, on a cold cache; the
# same requests again; and 32 chats at once of 4 turns, where each turn sends all turns before it. llama-server runs with
# 32 slots and flash attention. It comes from LLAMA_BIN (a folder with llama-server); without that it is built as
# bench/peers/llama.cpp.sh builds its programs, in LLAMA_DIR. Prints one markdown table and keeps the JSON in OUT.
# ORDER says who begins: "ours theirs" (the default) or "theirs ours".
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
model=${1:-${VITRINE_CACHE:-$HOME/.cache/vitrine}/models/SmolLM2-135M-Instruct.Q4_1.gguf}
threads=${2:-$(nproc)}
vitrine=${VITRINE:-$here/build/vitrine}
dir=${LLAMA_DIR:-$HOME/.cache/vitrine/peers/llama.cpp}
bin=${LLAMA_BIN:-$dir/build-server/bin}
out=${OUT:-$(mktemp -d)}
port=${PORT:-8391}
mkdir -p "$out"

build_peer() {
    [ -d "$dir/tools/server" ] || { echo "run bench/peers/llama.cpp.sh first: it fetches llama.cpp into $dir" >&2; exit 1; }
    echo "building llama-server in $dir (once, many minutes)" >&2
    amx= # as in llama.cpp.sh
    if clang -march=native -dM -E -x c /dev/null | grep -q __AMXINT8__; then
        amx="-D__AMX_TILE__=1 -D__AMX_INT8__=1 -D__AMX_BF16__=1"
    fi
    CFLAGS="$amx" CXXFLAGS="$amx" cmake -S "$dir" -B "$dir/build-server" -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=Release \
        -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
        -DLLAMA_USE_PREBUILT_UI=OFF -DBUILD_SHARED_LIBS=OFF -DGGML_OPENMP=OFF >"$dir.server.log" 2>&1
    cmake --build "$dir/build-server" -j"$(nproc)" --target llama-server >>"$dir.server.log" 2>&1
}
[ -x "$bin/llama-server" ] || build_peer

server=
stop() {
    [ -z "$server" ] || { kill "$server" 2>/dev/null && wait "$server" 2>/dev/null || true; }
    server=
}
trap stop EXIT
trap 'exit 1' INT TERM

start() {
    case $1 in
    ours) "$vitrine" serve -m "$model" --device cpu --threads "$threads" --port "$port" --max-running 64 >"$out/ours.log" 2>&1 & ;;
    theirs) "$bin/llama-server" -m "$model" -t "$threads" -tb "$threads" -np 32 -c 65536 -fa on --host 127.0.0.1 \
        --port "$port" >"$out/theirs.log" 2>&1 & ;;
    esac
    server=$!
    until python3 -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:$port/v1/models', timeout=5)" 2>/dev/null; do
        kill -0 "$server" 2>/dev/null || { echo "$1 ended; see $out/$1.log" >&2; exit 1; }
        sleep 1
    done
}

load() { # NAME options: a load whose failures do not end the script
    name=$1
    shift
    "$vitrine" bench serve -q --json --url "http://127.0.0.1:$port" --ignore-eos --temperature 0 --timeout 1800 "$@" \
        -o "$out/$name.json" >/dev/null || echo "$name: requests failed" >&2
}

for who in ${ORDER:-ours theirs}; do
    start "$who"
    shared="--num 64 --concurrency 64 --shared-prefix 1100 --input 40 --output 48 --seed 1"
    echo "$who: 64 clients, cold" >&2
    load "$who.cold" $shared
    echo "$who: 64 clients, warm" >&2
    load "$who.warm" $shared
    echo "$who: 32 chats" >&2
    load "$who.chats" --num 32 --concurrency 32 --turns 4 --shared-prefix 200 --input 60 --output 48 --seed 2
    stop
done

python3 - "$out" "$threads" <<'PY'
import json, sys
out, threads = sys.argv[1:]
get = lambda who, what: json.load(open(f"{out}/{who}.{what}.json"))
first = get("ours", "cold")
print(f"{first['machine']['cpu']}, {threads} threads, vitrine {first['commit']} | JSON in {out}\n")
print("| load | server | done | prompt tokens (cached) | output tok/s | TTFT p50 / p99, s | ITL p50 / p99, ms | wall, s |")
print("|---|---|---|---|---|---|---|---|")
for what in ("cold", "warm", "chats"):
    for who, name in (("ours", "vitrine"), ("theirs", "llama-server")):
        r = get(who, what)
        ms = lambda key, p: float("nan") if r[key][p] is None else r[key][p]
        print(f"| {what} | {name} | {r['completed']}/{r['planned']} | {r['prompt_tokens']} ({r['cached_tokens']}) | "
              f"{r['output_tokens_per_s']:.1f} | {ms('ttft_ms', 'p50') / 1e3:.2f} / {ms('ttft_ms', 'p99') / 1e3:.2f} | "
              f"{ms('itl_ms', 'p50'):.1f} / {ms('itl_ms', 'p99'):.0f} | {r['wall_s']:.1f} |")
    a, b = get("ours", what), get("theirs", what)
    if b["output_tokens_per_s"]:
        print(f"| {what} | ratio | | | {a['output_tokens_per_s'] / b['output_tokens_per_s']:.1f} | | | |")
print("\nChats: tokens computed of each turn, and those that are new (neither in the turn before nor in its answer)\n")
print("| turn | vitrine: computed / new | llama-server: computed / new |")
print("|---|---|---|")
for k, (a, b) in enumerate(zip(get("ours", "chats")["turns"], get("theirs", "chats")["turns"]), 1):
    print(f"| {k} | " + " | ".join(f"{t['computed_tokens']} / {t['new_tokens']}" for t in (a, b)) + " |")
PY
