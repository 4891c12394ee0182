#!/usr/bin/env bash
# Every ready-made workload of fstress on a file tree (`pack:`) and on the same file system without it, at one low rate, as a table: verdict,
# errors, and p50 and p99 of latency.
#   scripts/fstress-on-tree.sh DIR [RATE]
# Leaves DIR/*.json and DIR/table.md. Sets are small (200 files; 12 of 4 MiB for database and p2p), each level has 1 s to warm up and 5 s measured:
# about three minutes. In /dev/shm unless WORK names another directory. CRUMB: the program, when it was built before. Default rate: 200/s.
# Exit code 1 if a run on the tree was not VALID.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { sed -n '2,8s/^# *//p' "$0" >&2; exit 2; }
out=$1 rate=${2:-200}
if [ -z "${CRUMB:-}" ]; then
    cargo build --release -q -p crumb
    CRUMB=${CARGO_TARGET_DIR:-target}/release/crumb
fi
mkdir -p "$out"
work=$(mktemp -d -p "${WORK:-/dev/shm}" crumb-fstress-tree.XXXXXX)
trap 'rm -rf "$work"' EXIT
mkdir "$work/plain"
"$CRUMB" --quiet pack create "$work/tree" --tree
printf '| workload | side | verdict | errors | p50, us | p99, us |\n|---|---|---|---|---|---|\n' >"$out/table.md"
status=0
for workload in $("$CRUMB" workload list | awk '/^[a-z]/ { print $1 }'); do
    set_of=(--files 200 --file-size 8KiB)
    case $workload in
        database | p2p) set_of=(--files 12 --file-size 4MiB) ;;
        null) set_of=() ;;
    esac
    for side in tree plain; do
        target=$work/plain
        [ "$side" = plain ] || target=pack:$work/tree
        json=$out/$workload-$side.json
        "$CRUMB" --quiet run fstress "$target" -w "$workload" --rate "$rate" --warm 1s --measure 5s "${set_of[@]}" --no-store --json "$json" \
            >"$work/said" 2>&1 || [ $? = 3 ] || { cat "$work/said" >&2; exit 1; }
        row=$(python3 - "$json" <<'P'
import json, sys
record = json.load(open(sys.argv[1]))
point = record["points"][0]
errors = sum(op["attempted"] - op["ok"] for op in point["ops"].values())
p50, p99 = (point["latency_us"][f"p{p}"] for p in (50, 99))
why = ", ".join(sorted({reason["code"] for reason in record["verdict"]["reasons"] if reason["fatal"]}))
print("VALID" if not why else f"INVALID ({why})", "|", errors, "|", p50, "|", p99)
P
)
        echo "| $workload | $side | $row |" >>"$out/table.md"
        case "$side $row" in
            "tree VALID"*) ;;
            tree*) status=1 ;;
        esac
    done
done
"$CRUMB" --quiet pack check "$work/tree"
cat "$out/table.md"
exit "$status"
