#!/usr/bin/env bash
# Kills `crumb run netnews` on a file tree again and again, at moments that are drawn, and checks the whole tree after each kill.
# The moments count from the opening of the tree; the feed was made before.
#   scripts/kill-tree.sh DIR [KILLS] [SEED]
# Leaves DIR/kills.csv: kill, milliseconds after the opening, names, files, bytes and faults that `crumb pack check` found, seconds that it took.
# Every tenth time what the killed runs left is removed by `crumb clean`, and every fiftieth time the run is left to end. The tree is in
# /dev/shm, so a kill is what is tried here and no power cut: that is what the crash simulator is for. Exit code 1 if any check found a
# fault. CRUMB: the program, when it was built before. Default: 200 kills, seed 1; about ten minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { sed -n '2,8s/^# *//p' "$0" >&2; exit 2; }
out=$1 kills=${2:-200}
RANDOM=${3:-1}
if [ -z "${CRUMB:-}" ]; then
    cargo build --release -q -p crumb
    CRUMB=${CARGO_TARGET_DIR:-target}/release/crumb
fi
mkdir -p "$out"
work=$(mktemp -d -p /dev/shm crumb-kills.XXXXXX)
running=
take_down() {
    [ -z "$running" ] || kill -9 "$running" 2>/dev/null || true
    rm -rf "$work"
}
trap take_down EXIT
tree=$work/tree
"$CRUMB" --quiet pack create "$tree" --tree
"$CRUMB" --quiet feed synthesize -o "$work/feed" --articles 12000 >/dev/null
# Whether a process has the tree's contents open.
has_opened() {
    local open
    for open in /proc/"$1"/fd/*; do
        [ "$(readlink "$open" 2>/dev/null)" = "$tree/space" ] && return 0
    done
    return 1
}
figure() { sed -n "s/^ *\"$1\": \([0-9]*\).*/\1/p" "$work/check.json"; }
faulty=0
echo "kill,after_ms,names,files,bytes,faults,check_s" >"$out/kills.csv"
for kill in $(seq "$kills"); do
    after_ms=$((5 + RANDOM % 600))
    # Cross-posts, expiry and a batch file for a peer; each batch is synced.
    "$CRUMB" --quiet run netnews "pack:$tree" --feed "$work/feed" --passes 4 --sync batch --no-store >"$work/said" 2>&1 &
    running=$!
    while kill -0 "$running" 2>/dev/null && ! has_opened "$running"; do sleep 0.01; done
    sleep "$(printf '%d.%03d' $((after_ms / 1000)) $((after_ms % 1000)))"
    if kill -9 "$running" 2>/dev/null; then wait "$running" 2>/dev/null || true; else
        echo "kill $kill: the run had ended before: $(tail -1 "$work/said")" >&2
        wait "$running" 2>/dev/null || true
    fi
    running=
    began=$(date +%s.%N)
    "$CRUMB" --quiet pack check "$tree" --json >"$work/check.json" 2>"$work/check.txt" || true
    took=$(echo "$(date +%s.%N) $began" | awk '{ printf "%.2f", $1 - $2 }')
    faults=$(grep -c '"what"' "$work/check.json" || true)
    [ -s "$work/check.json" ] || faults=unreadable
    echo "$kill,$after_ms,$(figure names),$(figure files),$(figure bytes),$faults,$took" >>"$out/kills.csv"
    if [ "$faults" != 0 ]; then
        faulty=$((faulty + 1))
        cat "$work/check.json" "$work/check.txt" >&2
        cp -r "$tree" "$out/tree-of-kill-$kill"
    fi
    if [ $((kill % 10)) = 0 ]; then "$CRUMB" --quiet clean "pack:$tree" >/dev/null; fi
    if [ $((kill % 50)) = 0 ]; then
        "$CRUMB" --quiet run netnews "pack:$tree" --feed "$work/feed" --passes 2 --sync batch --no-store >/dev/null 2>"$work/said" ||
            [ $? = 3 ] || { cat "$work/said" >&2; exit 1; }
    fi
done
echo "$kills kills, $faulty checks with faults"
[ "$faulty" = 0 ]
