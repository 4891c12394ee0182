#!/bin/sh
# How often each benchmark (fstress in both loops) says that the machine was disturbed: on a quiet one, beside two busy loops a CPU.
#
#   scripts/disturbed-is-named.sh [--quiet N] [--busy N] [--only BENCHMARK] [--program FILE] [--dir DIRECTORY]
#
# Runs of about 2 s on tmpfs: 20 quiet and 10 busy ones of each take 8 to 10 minutes on two CPUs. Prints a line for each
# benchmark: runs, runs with the verdict code `machine-disturbed`, the range of what was lost to other processes, and the time.
# Expected: none of the quiet runs, all of the busy ones. The quiet part says something of a quiet machine only: run it while
# nothing else does.
set -eu

quiet=20 busy=10 only= program=target/release/crumb dir=/dev/shm
while [ $# -gt 0 ]; do
    case $1 in
    --quiet) quiet=$2 ;;
    --busy) busy=$2 ;;
    --only) only=$2 ;;
    --program) program=$2 ;;
    --dir) dir=$2 ;;
    *)
        sed -n '2,10s/^# \{0,1\}//p' "$0"
        exit 2
        ;;
    esac
    shift 2
done
[ -x "$program" ] || { echo "$program is not there: cargo build --release, or --program FILE" >&2; exit 2; }

work=$(mktemp -d "$dir/crumb-disturbed.XXXXXX")
loops=
stop_loops() {
    for id in $loops; do
        kill "$id" 2>/dev/null || true
        wait "$id" 2>/dev/null || true
    done
    loops=
}
trap 'stop_loops; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

start_loops() {
    n=$((2 * $(nproc)))
    while [ $n -gt 0 ]; do
        sh -c 'while :; do :; done' &
        loops="$loops $!"
        n=$((n - 1))
    done
}

# A run of each benchmark: one to some seconds, its record in $work/record.json.
measure() {
    mkdir -p "$work/target"
    set -- "$1" --quiet --no-store --json "$work/record.json"
    case $1 in
    postmark) shift; "$program" run postmark "$work/target" --number 2000 --transactions 60000 "$@" ;;
    fstress) shift; "$program" run fstress "$work/target" --rate 500 --warm 500ms --measure 1500ms --files 500 "$@" ;;
    fstress-max) shift; "$program" run fstress "$work/target" --rate max --warm 500ms --measure 1500ms --files 500 "$@" ;;
    netnews) shift; "$program" run netnews "$work/target" --articles 20000 --passes 2 "$@" ;;
    dirscale) shift; "$program" run dirscale "$work/target" --sizes 1000,10000 --warm --rounds 3 "$@" ;;
    webload) shift; "$program" run webload --direct --workload hits --objects 2000 --rate max --warm 500ms --measure 1500ms "$@" ;;
    esac >"$work/out" 2>&1 || [ $? -eq 3 ] || { cat "$work/out" >&2; exit 1; }
}

# `lost` is metrics.machine_lost_to_others_percent.
count() {
    name=$1 state=$2 runs=$3
    named=0 lost= began=$(date +%s)
    at=0
    while [ $at -lt "$runs" ]; do
        measure "$name"
        grep -q '"machine-disturbed"' "$work/record.json" && named=$((named + 1))
        lost="$lost $(sed -n 's/.*"machine_lost_to_others_percent": *\([0-9.e-]*\).*/\1/p' "$work/record.json")"
        at=$((at + 1))
    done
    range=$(printf '%s\n' $lost | sort -g | sed -n '1p;$p' | tr '\n' ' ')
    printf '%-10s %-6s runs %3d  called disturbed %3d  lost to others, %%: %s (%d s)\n' "$name" "$state" "$runs" "$named" \
        "$range" $(($(date +%s) - began))
}

each() {
    for name in postmark fstress fstress-max netnews dirscale webload; do
        if [ -z "$only" ] || [ "$only" = "$name" ]; then count "$name" "$1" "$2"; fi
    done
}

each quiet "$quiet"
start_loops
each busy "$busy"
