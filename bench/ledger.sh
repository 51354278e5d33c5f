#!/bin/bash
# The speed ledger: two or more programs over the same cases, in turn, so that a change of speed is seen before it is committed.
#
#   bench/ledger.sh OLD NEW... [--device cuda|cpu] [--rounds 3] [--seconds N] [--only REGEX] [--case "NAME|METRIC|OPTIONS"]...
#
# OLD and NEW are programs, or LABEL=program. Each round runs every case with every program, one directly after the other, and the
# next round in the opposite order. Printed is one table in markdown: the median over the rounds, the spread in brackets (highest
# minus lowest, in per cent of the median), and for each NEW what it won or lost against OLD. A change that is smaller than the
# larger of the two spreads is marked "~": it says nothing.
#
# --seconds: no case begins later than this; the table tells how many rounds each case had. --only: cases whose name matches.
# --case: other cases than the ones below. METRIC is prefill, decode, or both joined by a comma. OPTIONS go to `bench latency`.
set -u
device=cuda rounds=3 seconds=100000 only=. programs=() cases=()
need() { [ $# -ge 2 ] || { echo "ledger.sh: $1 needs a value" >&2; exit 2; }; }
while [ $# -gt 0 ]; do
    case $1 in
    --device | --rounds | --seconds | --only | --case) need "$@" ;;&
    --device) device=$2; shift ;;
    --rounds) rounds=$2; shift ;;
    --seconds) seconds=$2; shift ;;
    --only) only=$2; shift ;;
    --case) cases+=("$2"); shift ;;
    -*) echo "ledger.sh: '$1' is no option; expected --device, --rounds, --seconds, --only or --case" >&2; exit 2 ;;
    *) programs+=("$1") ;;
    esac
    shift
done
if [ ${#programs[@]} -lt 2 ]; then
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
    exit 2
fi
for p in "${programs[@]}"; do
    [ -x "${p#*=}" ] || { echo "ledger.sh: ${p#*=} is no program" >&2; exit 2; }
done
double=$(printf '%s\n' "${programs[@]%%=*}" | sort | uniq -d)
[ -z "$double" ] || { echo "ledger.sh: two programs are called $double; LABEL=program tells them apart" >&2; exit 2; }

if [ ${#cases[@]} = 0 ] && [ "$device" = cpu ]; then
    for m in smollm2-135m dummy:qwen3-0.6b; do
        short=${m#dummy:}
        cases+=("$short 1 x 64|decode|-m $m --batch 1 --prompt 64 --gen 32 -r 2"
            "$short 8 x 64|decode|-m $m --batch 8 --prompt 64 --gen 16 -r 1"
            "$short 1 x 512|prefill|-m $m --batch 1 --prompt 512 --gen 2 -r 2")
    done
    cases+=("smollm2-135m 1 x 2000|prefill,decode|-m smollm2-135m --batch 1 --prompt 2000 --gen 32 -r 1")
elif [ ${#cases[@]} = 0 ]; then
    m="-m dummy:qwen3-0.6b"
    cases=("0.6b 1 x 64|decode|$m --batch 1 --prompt 64 --gen 60 -r 3"
        "0.6b 1 x 64, 1,000 steps|decode|$m --batch 1 --prompt 64 --gen 1000 -r 1"
        "0.6b 64 x 64|decode|$m --batch 64 --prompt 64 --gen 60 -r 3"
        "0.6b 256 x 64|decode|$m --batch 256 --prompt 64 --gen 60 -r 2"
        "0.6b 1 x 4096|prefill,decode|$m --batch 1 --prompt 4096 --gen 60 -r 3"
        "0.6b 64 x 2048|decode|$m --batch 64 --prompt 2048 --gen 60 -r 1")
    m="-m dummy:qwen3-8b"
    cases+=("8b 1 x 64|decode|$m --batch 1 --prompt 64 --gen 60 -r 2"
        "8b 64 x 64|decode|$m --batch 64 --prompt 64 --gen 40 -r 1"
        "8b 256 x 64|decode|$m --batch 256 --prompt 64 --gen 40 -r 1"
        "8b 1 x 4096|prefill,decode|$m --batch 1 --prompt 4096 --gen 40 -r 2"
        "8b 16 x 2048|decode|$m --batch 16 --prompt 2048 --gen 40 -r 1")
fi

found=$(mktemp)
trap 'rm -f "$found"' EXIT
for round in $(seq "$rounds"); do
    for c in "${cases[@]}"; do
        IFS='|' read -r name metric options <<<"$c"
        [[ $name =~ $only ]] || continue
        [ $SECONDS -lt "$seconds" ] || continue
        order=("${programs[@]}")
        if [ $((round % 2)) = 0 ]; then
            order=()
            for p in "${programs[@]}"; do order=("$p" "${order[@]}"); done
        fi
        for p in "${order[@]}"; do
            # shellcheck disable=SC2086 # options are words
            said=$("${p#*=}" bench latency --device "$device" $options -q --json) || echo "ledger.sh: ${p%%=*} failed: $name" >&2
            printf '%s\t%s\t%s\t%s\n' "${p%%=*}" "$name" "$metric" "$(tr '\t\n' '  ' <<<"$said")" >>"$found"
        done
    done
done

python3 - "$found" "${programs[@]%%=*}" <<'P'
import json, statistics, sys

path, labels = sys.argv[1], sys.argv[2:]
values, cases = {}, []  # {(case, metric): {label: [tokens/s]}}, in the order in which they ran
for line in open(path):
    label, name, metrics, said = line.rstrip("\n").split("\t")
    for metric in metrics.split(","):
        key = name, metric
        if key not in values:
            values[key] = {l: [] for l in labels}
            cases.append(key)
        try:
            value = json.loads(said)[metric + "_tokens_per_s"]
            values[key][label].append(value if isinstance(value, (int, float)) else value["mean"])
        except (ValueError, KeyError, TypeError):
            pass  # it has failed, and was told


def median(v):
    return statistics.median(v) if v else None


def spread(v):
    return 100 * (max(v) - min(v)) / median(v) if v else 0


def cell(v):
    return f"{median(v):,.0f} ({spread(v):.1f} %)" if v else "-"


def change(old, new):
    if not old or not new:
        return "-"
    percent = 100 * (median(new) / median(old) - 1)
    return f"{percent:+.1f} %" + (" ~" if abs(percent) < max(spread(old), spread(new)) else "")


first, others = labels[0], labels[1:]
print("| tokens/s | rounds | " + first + "".join(f" | {l} | won or lost" for l in others) + " |")
print("|---|---|---" + "|---|---" * len(others) + "|")
for key in cases:
    v = values[key]
    print(f"| {key[0]}, {key[1]} | {max(map(len, v.values()))} | {cell(v[first])}" +
          "".join(f" | {cell(v[l])} | {change(v[first], v[l])}" for l in others) + " |")
sys.exit(0 if cases and all(all(v.values()) for v in values.values()) else 1)
P
