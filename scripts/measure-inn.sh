#!/usr/bin/env bash
# Articles stored by netnews in a directory and in a file tree (`pack:`), and by INN 2.7.1 as traditional spool, in a cyclic buffer (CNFS) and
# as timecaf, in turns on an ext4 image in memory without discard. The same feed, and equal durability: nothing is synced for an article,
# and at the end everything is, which counts.
#   scripts/measure-inn.sh DIR [--rounds N] [--articles N] [--only SIDE,SIDE] [--quick]
# Leaves DIR/runs.txt (a line a run, then the table) and DIR/machine.txt. Defaults: 5 rounds of 30,000 articles of about 2 kB; --quick: 1 of
# 2,000. Sides: directory, pack, tradspool, cnfs, timecaf. Needs root; INN is unpacked by scripts/test-packages.sh and not installed: each run
# starts an innd of its own, on a free port, in a directory of its own, and stops it. Ends after 30 minutes at the latest.
# Run it on a quiet machine, with scripts/awake.sh in front.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { sed -n '2,10s/^# *//p' "$0" >&2; exit 2; }
out=$1
shift
rounds=5 articles=30000 more=()
while [ $# -gt 0 ]; do
    case $1 in
        --quick) rounds=1 articles=2000 ;;
        --rounds | --articles | --only)
            [ $# -ge 2 ] || { echo "$1 wants a value" >&2; exit 2; }
            case $1 in --rounds) rounds=$2 ;; --articles) articles=$2 ;; --only) more+=(--only "$2") ;; esac
            shift ;;
        *) echo "$1: no such option; see the head of $0" >&2; exit 2 ;;
    esac
    shift
done
[ "$(id -u)" = 0 ] || { echo "mounting an image and starting innd take root" >&2; exit 1; }
if [ -z "${BESIDE_INN:-}" ]; then scripts/test-packages.sh; fi
# BESIDE_INN: the benchmark, when it was built before.
if [ -z "${BESIDE_INN:-}" ]; then
    BESIDE_INN=$(cargo bench -q -p crumb --bench beside_inn --no-default-features --features bench,pack --no-run --message-format=json 2>/dev/null |
        sed -n 's/.*"executable":"\([^"]*beside_inn[^"]*\)".*/\1/p' | tail -1)
fi
[ -x "$BESIDE_INN" ] || { echo "the benchmark was not built: cargo bench -p crumb --bench beside_inn --no-run says why" >&2; exit 1; }
mkdir -p "$out"
. scripts/image-for-inn.sh
{
    uname -r
    grep -m1 'model name' /proc/cpuinfo
    echo "$(nproc) CPUs, load before: $(cat /proc/loadavg)"
} >"$out/machine.txt"
# In the background and waited for: a signal that comes to this script alone is heard at once.
timeout 1800 "$BESIDE_INN" --bench --dir "$work/ext4" --articles "$articles" --rounds "$rounds" "${more[@]}" >"$out/runs.txt" &
running=$!
status=0
wait "$running" || status=$?
running=
echo "load after: $(cat /proc/loadavg)" >>"$out/machine.txt"
cat "$out/runs.txt"
exit "$status"
