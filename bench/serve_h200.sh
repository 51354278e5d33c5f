#!/bin/sh
# HTTP on one GPU: streams of 512 prompt tokens in, 128 out, at rising numbers of clients (vitrine bench serve).
#
#   bench/serve_h200.sh [MODEL]           # dummy:qwen3-0.6b where none is given; about a minute
#
# STREAMS: the numbers of clients; ROUNDS: requests of each client (6); SERVE: more options of the server.
# The clients' program runs on cores of its own (CLIENT_CORES; the server has the others), so that what is measured is the
# server. Prompts are random ids below 10,000, temperature 0.6, no end token: the load that other servers were given.
# Prints each table, and the CPU time of the server's threads for the last and largest one.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
vitrine=${VITRINE:-$here/build/vitrine}
model=${1:-dummy:qwen3-0.6b}
cores=$(nproc)
last=$((cores - 1))
client=${CLIENT_CORES:-$((cores > 4 ? cores - 2 : last))-$last}
server=${SERVER_CORES:-0-$((cores > 4 ? cores - 3 : 0))}
device=${DEVICE:-cuda}
out=${OUT:-$(mktemp -d)}

taskset -c "$server" "$vitrine" serve -m "$model" --device "$device" --port 0 --max-running 256 ${SERVE:-} >"$out/serve.log" 2>&1 &
pid=$!
trap 'kill $pid 2>/dev/null; wait $pid 2>/dev/null || true' EXIT
until grep -q serves "$out/serve.log"; do
    kill -0 $pid || { cat "$out/serve.log"; exit 1; }
    sleep 0.2
done
cat "$out/serve.log"
url=$(grep -o "http://[^ ]*" "$out/serve.log" | head -1)

load() { # CLIENTS REQUESTS SEED: the seed differs, so that the prefix cache does not help
    taskset -c "$client" "$vitrine" bench serve -q --url "$url" --api completions --ids --vocab 10000 --input 512 \
        --output 128 --ignore-eos --temperature 0.6 --concurrency "$1" --num "$2" --seed "$3" -o "$out/streams_$1.json"
}
cpu() { # "name ticks" of each thread of the server
    for t in /proc/$pid/task/*/stat; do awk '{n = $2; sub(/^[^)]*\) /, ""); print n, $12 + $13}' "$t" 2>/dev/null; done
}

load 256 256 1 >/dev/null # graphs and page tables are made here
for n in ${STREAMS:-1 16 64 256}; do
    requests=$((n == 1 ? 8 : n * ${ROUNDS:-6}))
    echo "== $n streams, $requests requests"
    cpu >"$out/before"
    load "$n" "$requests" $((n + 1))
done
cpu >"$out/after"
echo "== CPU seconds of the server's threads in the last run"
paste -d' ' "$out/before" "$out/after" | awk '{d = ($4 - $2) / 100; if (d > 0.02) print $1, d}' | sort -k2 -rn | head -8
