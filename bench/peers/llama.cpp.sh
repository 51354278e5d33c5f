#!/bin/sh
# vitrine, llama.cpp and ik_llama.cpp on this machine's CPU, in one run, turn about.
#
#   bench/peers/llama.cpp.sh [THREADS] [MODEL.gguf ...]        bench/peers/llama.cpp.sh build
#
# Without MODELs: SmolLM2-135M Q4_1 (576 wide), and the Qwen3-0.6B shape (1024 wide) in Q8_0 and Q4_0 with random weights
# (random_gguf.py), the same file for all three programs. A prompt of 512 tokens, 64 generated, one sequence; each program
# starts anew for every round and the order rotates. Prints one markdown table: medians (least-most) of ROUNDS (5) rounds.
#
# The peers come from the sources inside the PyPI sdists of llama-cpp-python 0.3.36 and ik-llama-cpp-python 0.1.5, built
# outside this repository (PEERS_DIR, default ~/.cache/vitrine/peers) for this very machine: llama.cpp with clang, because
# GCC 12 miscompiles its AMX path, and with the names by which llama.cpp asks for AMX, since clang 14 has others for them
# (builds of 29 November 2026 and before lack AMX: remove them); ik_llama.cpp with GCC, because clang 14 refuses its AVX-512 files. `build` only does that, with JOBS
# compilers at a time, at nice 19. Both run with flash attention, ik_llama.cpp also with -rtr 1 (it repacks weights when it
# loads them). PEERS="llama.cpp" leaves ik_llama.cpp out.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
cache=${VITRINE_CACHE:-$HOME/.cache/vitrine}
dir=${PEERS_DIR:-$HOME/.cache/vitrine/peers}
rounds=${ROUNDS:-5}
peers=${PEERS:-llama.cpp ik_llama.cpp}

# build NAME PACKAGE VERSION CC CXX OPTION...
build() {
    name=$1 package=$2 version=$3 cc=$4 cxx=$5
    shift 5
    [ ! -x "$dir/$name/build/bin/llama-bench" ] || return 0
    echo "building $name in $dir/$name (once, some minutes; log: $dir/$name.log)" >&2
    mkdir -p "$dir/sdist" "$dir/$name"
    file=$(echo "$package" | tr - _)-$version
    [ -e "$dir/sdist/$file.tar.gz" ] ||
        python3 -m pip download -q --no-deps --no-binary "$package" -d "$dir/sdist" "$package==$version"
    tar xzf "$dir/sdist/$file.tar.gz" -C "$dir/$name" --strip-components=3 "$file/vendor/$name"
    gen=$dir/$name/common/cmake/build-info-gen-cpp.cmake # the sdist of ik_llama.cpp 0.1.5 lacks it
    if [ "$name" = ik_llama.cpp ] && [ ! -e "$gen" ]; then
        mkdir -p "${gen%/*}"
        printf '%s\n' 'include(${CMAKE_CURRENT_SOURCE_DIR}/cmake/build-info.cmake)' \
            'configure_file(common/build-info.cpp.in common/build-info.cpp)' >"$gen"
    fi
    if ! nice -n 19 cmake -S "$dir/$name" -B "$dir/$name/build" -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" \
        -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF \
        -DBUILD_SHARED_LIBS=OFF -DGGML_OPENMP=OFF -DGGML_CCACHE=OFF "$@" >"$dir/$name.log" 2>&1 ||
        ! nice -n 19 cmake --build "$dir/$name/build" -j"${JOBS:-$(nproc)}" --target llama-bench >>"$dir/$name.log" 2>&1; then
        tail -5 "$dir/$name.log" >&2
        exit 1
    fi
}
# GCC's names of what clang 14 calls __AMXTILE__, __AMXINT8__ and __AMXBF16__.
amx=
if clang -march=native -dM -E -x c /dev/null 2>/dev/null | grep -q __AMXINT8__; then
    amx="-D__AMX_TILE__=1 -D__AMX_INT8__=1 -D__AMX_BF16__=1"
fi
for p in $peers; do
    case $p in
    llama.cpp) (export CFLAGS="$amx" CXXFLAGS="$amx" && build llama.cpp llama-cpp-python 0.3.36 clang clang++) ;;
    ik_llama.cpp) build ik_llama.cpp ik-llama-cpp-python 0.1.5 gcc g++ -DGGML_IQK_FA_ALL_QUANTS=OFF ;;
    *) echo "PEERS: '$p' found, expected llama.cpp or ik_llama.cpp" >&2; exit 2 ;;
    esac
done
[ "${1:-}" != build ] || exit 0

threads=${1:-$(nproc)}
[ $# -eq 0 ] || shift
if [ $# -eq 0 ]; then
    set -- "$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"
    for kind in q8_0 q4_0; do
        path=$dir/qwen3-0.6b-random-$kind.gguf
        [ -e "$path" ] || python3 "$here/bench/peers/random_gguf.py" qwen3-0.6b $kind "$path" >/dev/null
        set -- "$@" "$path"
    done
fi

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# one PROGRAM MODEL: appends a JSON line or array to $out/MODEL.PROGRAM
one() {
    file=$out/$(basename "$2").$1
    case $1 in
    vitrine) "$here/build/vitrine" bench latency -m "$2" --device cpu --threads "$threads" --prompt 512 --gen 64 -r 1 --json \
        >>"$file" 2>>"$out/errors" ;;
    llama.cpp) "$dir/llama.cpp/build/bin/llama-bench" -m "$2" -t "$threads" -fa 1 -p 512 -n 64 -r 1 -o json \
        >>"$file" 2>>"$out/errors" ;;
    ik_llama.cpp) "$dir/ik_llama.cpp/build/bin/llama-bench" -m "$2" -t "$threads" -fa 1 -rtr 1 -p 512 -n 64 -r 1 -o json \
        >>"$file" 2>>"$out/errors" ;;
    esac || { echo "$1 with $2:" >&2; tail -5 "$out/errors" >&2; exit 1; }
}
i=0
order="vitrine $peers"
while [ $i -lt "$rounds" ]; do
    for model; do
        for program in $order; do one "$program" "$model"; done
    done
    first=${order%% *}
    order="${order#* } $first"
    i=$((i + 1))
done
python3 "$here/bench/peers/llama_table.py" "$out" "$threads" "$rounds" "vitrine $peers" "$@"
