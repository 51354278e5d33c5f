#!/bin/sh
# vitrine, llama.cpp and ik_llama.cpp on this machine's CPU, in one run, turn about.
#
#   bench/peers/llama.cpp.sh [THREADS] [MODEL.gguf ...]        bench/peers/llama.cpp.sh THREADS families [TYPE ...]
#   bench/peers/llama.cpp.sh build
#
# Without MODELs: SmolLM2-135M Q4_1 (576 wide), and the Qwen3-0.6B shape (1024 wide) in Q8_0 and Q4_0 with random weights
# (random_gguf.py), the same file for all programs. `families` takes the random files of FAMILIES, SHAPE or SHAPE:LAYERS, in each
# TYPE (q4_0). A prompt of PROMPT (512) tokens, then GEN (64) generated, of BATCH (1) sequences at once, after the same once
# unmeasured; each program starts anew for every round and the order rotates. Prints one markdown table: medians (least-most) of
# ROUNDS (5) rounds. RUN is put before each program: RUN="nice -n -19". A peer that lacks a model is said to have none. OUT is a
# folder that keeps every round; another run with it adds to them.
#
# The peers come from the sources inside the PyPI sdists of llama-cpp-python 0.3.36 and ik-llama-cpp-python 0.1.5, built
# outside this repository (PEERS_DIR, default ~/.cache/vitrine/peers) for this very machine: llama.cpp with clang, because
# GCC 12 miscompiles its AMX path, and with the names by which llama.cpp asks for AMX, since clang 14 has others for them
# (builds of 29 November 2026 and before lack AMX: remove them); ik_llama.cpp with GCC, because clang 14 refuses its AVX-512
# files. llama_steps.cpp runs their libraries as their own llama-bench does. `build` only does that, with JOBS compilers at a
# time, at nice 19. All write the KV cache where the unmeasured run did: vitrine keeps no prefixes. Both run with flash attention, ik_llama.cpp also with -rtr 1 (it repacks weights when it loads them).
# PEERS="llama.cpp" leaves ik_llama.cpp out. LEVEL=avx2 or avxvnni compares what all have without AVX-512 and AMX, and with or
# without AVX-VNNI: the peers are built apart for it, and vitrine takes its rows (avx2 needs a CPU without AVX-VNNI).
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
cache=${VITRINE_CACHE:-$HOME/.cache/vitrine}
dir=${PEERS_DIR:-$HOME/.cache/vitrine/peers}
native="-DGGML_NATIVE=ON" built=$dir
case ${LEVEL:-} in
'') ;;
avx2 | avxvnni)
    native="-DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON" built=$dir/$LEVEL
    [ "$LEVEL" = avx2 ] || native="$native -DGGML_AVX_VNNI=ON"
    export VITRINE_ISA=avx2 ;;
*) echo "LEVEL: '$LEVEL' found, expected avx2, avxvnni or nothing" >&2; exit 2 ;;
esac
rounds=${ROUNDS:-5} prompt=${PROMPT:-512} gen=${GEN:-64} batch=${BATCH:-1}
peers=${PEERS:-llama.cpp ik_llama.cpp}
families=${FAMILIES:-qwen3-0.6b qwen3.5-0.8b llama-3.2-1b gemma-3-1b gemma-2-2b:13 exaone-4.0-1.2b olmo-2-1b smollm3-3b:12 phi-4-mini:8 \
lfm2-1.2b granite-4.0-h-micro:12 nemotron-h-8b:8 qwen3-30b-a3b:4}

# build NAME PACKAGE VERSION CC CXX OPTION...
build() {
    name=$1 package=$2 version=$3 cc=$4 cxx=$5
    shift 5
    file=$(echo "$package" | tr - _)-$version
    if [ ! -e "$built/$name/build/src/libllama.a" ]; then
        echo "building $name in $built/$name (once, some minutes; log: $built/$name.log)" >&2
        mkdir -p "$dir/sdist" "$built/$name"
        [ -e "$dir/sdist/$file.tar.gz" ] ||
            python3 -m pip download -q --no-deps --no-binary "$package" -d "$dir/sdist" "$package==$version"
        tar xzf "$dir/sdist/$file.tar.gz" -C "$built/$name" --strip-components=3 "$file/vendor/$name"
        info=$built/$name/common/cmake/build-info-gen-cpp.cmake # the sdist of ik_llama.cpp 0.1.5 lacks it
        if [ "$name" = ik_llama.cpp ] && [ ! -e "$info" ]; then
            mkdir -p "${info%/*}"
            printf '%s\n' 'include(${CMAKE_CURRENT_SOURCE_DIR}/cmake/build-info.cmake)' \
                'configure_file(common/build-info.cpp.in common/build-info.cpp)' >"$info"
        fi
        if ! nice -n 19 cmake -S "$built/$name" -B "$built/$name/build" -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" \
            -DCMAKE_BUILD_TYPE=Release $native -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF \
            -DBUILD_SHARED_LIBS=OFF -DGGML_OPENMP=OFF -DGGML_CCACHE=OFF "$@" >"$built/$name.log" 2>&1 ||
            ! nice -n 19 cmake --build "$built/$name/build" -j"${JOBS:-$(nproc)}" --target llama >>"$built/$name.log" 2>&1; then
            tail -5 "$built/$name.log" >&2
            exit 1
        fi
    fi
    [ "$built/$name/llama_steps" -nt "$here/bench/peers/llama_steps.cpp" ] ||
        "$cxx" -O2 -DVERSION="\"$version\"" $([ "$name" = llama.cpp ] || echo -DIK) -I"$built/$name/include" \
            -I"$built/$name/ggml/include" "$here/bench/peers/llama_steps.cpp" "$built/$name/build/src/libllama.a" -Wl,--start-group \
            "$built/$name"/build/ggml/src/lib*.a -Wl,--end-group -lpthread -ldl -lm -o "$built/$name/llama_steps"
}
# GCC's names of what clang 14 calls __AMXTILE__, __AMXINT8__ and __AMXBF16__.
amx=
if [ "$built" = "$dir" ] && clang -march=native -dM -E -x c /dev/null 2>/dev/null | grep -q __AMXINT8__; then
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

# random SHAPE[:LAYERS] TYPE: prints the file's path
random() {
    shape=${1%:*} layers=${1#"${1%:*}"}
    path=$dir/$shape-random${layers:+-${layers#:}-layers}-$2.gguf
    [ -e "$path" ] || python3 "$here/bench/peers/random_gguf.py" "$shape" "$2" "$path" ${layers#:} >/dev/null
    echo "$path"
}
threads=${1:-$(nproc)}
[ $# -eq 0 ] || shift
if [ $# -eq 0 ]; then
    set -- "$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf" "$(random qwen3-0.6b q8_0)" "$(random qwen3-0.6b q4_0)"
elif [ "$1" = families ]; then
    shift
    types=${*:-q4_0}
    set --
    for type in $types; do
        for shape in $families; do set -- "$@" "$(random "$shape" "$type")"; done
    done
fi

out=${OUT:-$(mktemp -d)}
mkdir -p "$out"
[ -n "${OUT:-}" ] || trap 'rm -rf "$out"' EXIT
# one PROGRAM MODEL: appends a JSON line or object to $out/MODEL.PROGRAM; a peer that failed is not asked again
one() {
    file=$out/$(basename "$2").$1
    [ ! -e "$file.none" ] || return 0
    case $1 in
    vitrine) ${RUN:-} "${VITRINE:-$here/build/vitrine}" bench latency -m "$2" --device cpu --threads "$threads" --prompt "$prompt" \
        --gen "$gen" --batch "$batch" -r 1 --no-prefix-cache --json >>"$file" 2>>"$out/errors" ;;
    *) ${RUN:-} "$built/$1/llama_steps" time "$2" "$threads" "$prompt" "$gen" "$batch" >>"$file" 2>>"$out/errors" ;;
    esac && return 0
    echo "$1 with $2:" >&2
    tail -5 "$out/errors" >&2
    [ "$1" != vitrine ] || exit 1
    touch "$file.none"
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
python3 "$here/bench/peers/llama_table.py" "$out" "$threads, prompt $prompt, then $gen at batch $batch" "$rounds" "vitrine $peers" "$@"
