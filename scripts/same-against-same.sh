#!/usr/bin/env bash
# How often does a comparison of equal sides show a difference on this machine, and how often does it find a side that is slower?
#
#   scripts/same-against-same.sh [--records DIR] [--runs N] [--draws N] [--only BENCHMARK] [--program FILE] [--dir DIRECTORY]
#
# 1. Records N (default 100) short runs of each benchmark, of at most 3 s, the benchmarks in turns. DIR (default
#    same-against-same) keeps them as DIR/BENCHMARK/NUMBER.json, with their store in DIR/runs.db. Called again with the same DIR,
#    it makes the runs that are missing.
# 2. Draws series of 5 against 5 and 10 against 10 from them, has Crumb compare each draw, and prints in percent how often a
#    difference is shown, and how often B is called slower when its figures are made worse by 2%, 5% and 20%.
#
# The default takes about 15 minutes on an idle machine, and needs one. Expected: at most 5% alarms within the printed error.
set -euo pipefail
cd "$(dirname "$0")/.."

records=same-against-same runs=100 draws=1000 only= program=${CARGO_TARGET_DIR:-target}/release/crumb dir=/dev/shm
while [ $# -gt 0 ]; do
    [ $# -gt 1 ] || { sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2; }
    case $1 in
    --records) records=$2 ;;
    --runs) runs=$2 ;;
    --draws) draws=$2 ;;
    --only) only=$2 ;;
    --program) program=$2 ;;
    --dir) dir=$2 ;;
    *) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift 2
done
[ -x "$program" ] || { echo "$program is not there: cargo build --release, or --program FILE" >&2; exit 2; }
mkdir -p "$records"
work=$(mktemp -d "$dir/crumb-same.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# One run; its record is moved to its place when it is whole.
measure() {
    local name=$1 place=$2 record=$work/record.json status=0
    mkdir -p "$work/target" "$(dirname "$place")"
    local said=(--quiet --store "$records/runs.db" --json "$record" --label "$name")
    case $name in
    postmark) set -- "$work/target" --number 1000 --transactions 40000 ;;
    fstress) set -- "$work/target" --rate max --warm 300ms --measure 1500ms --files 300 ;;
    netnews) set -- "$work/target" --articles 8000 --passes 2 ;;
    dirscale) set -- "$work/target" --sizes 2000 --warm --rounds 3 --operations 500 ;;
    webload) set -- --direct --workload hits --objects 1000 --rate max --warm 300ms --measure 1500ms ;;
    esac
    "$program" run "$name" "$@" "${said[@]}" >"$work/out" 2>&1 || status=$?
    # 3 says that the verdict is INVALID: such runs are counted in the table.
    [ $status -eq 0 ] || [ $status -eq 3 ] || { cat "$work/out" >&2; exit 1; }
    mv "$record" "$place"
}

for ((at = 1; at <= runs; at++)); do
    for name in postmark fstress netnews dirscale webload; do
        [ -z "$only" ] || [ "$only" = "$name" ] || continue
        place=$records/$name/$(printf '%04d' "$at").json
        [ -e "$place" ] || measure "$name" "$place"
    done
done

cargo build --release -q -p crumb --example same_against_same
"${CARGO_TARGET_DIR:-target}/release/examples/same_against_same" "$records" "$draws"
