#!/usr/bin/env bash
# netnews and PostMark (settings of 2001) on a file tree (`pack:`, made by `crumb pack create --tree`), on a store of objects (`pack:`)
# and on ext4 itself, each on an ext4 image of its own in memory, in turns and with equal durability:
#   scripts/measure-tree.sh DIR [--rounds N] [--articles N] [--image SIZE] [--quick]
# Leaves the records in DIR/*.json and the tables in DIR/*.txt. For each sync mode (netnews: none, batch, article; PostMark: none and
# close, with 1 client and 64) it is one series, `crumb run ... --vs ... --vs ... --repeat N`. Defaults: 5 rounds, 60,000 articles,
# images of 6G (sparse, in /dev/shm). Needs root. Run it on a quiet machine, with scripts/awake.sh in front.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { sed -n '2,8s/^# *//p' "$0" >&2; exit 2; }
out=$1
shift
rounds=5 articles=60000 image=6G passes=7 postmark=(--preset 2001)
# Each of 64 threads has files and transactions of its own; together they have those of 2001.
each_of_64=(--number 157 --transactions 1563)
while [ $# -gt 0 ]; do
    case $1 in
        --quick) rounds=2 articles=2000 image=1G passes=2 postmark=(--number 500 --transactions 1000) each_of_64=() ;;
        --rounds | --articles | --image)
            [ $# -ge 2 ] || { echo "$1 wants a value" >&2; exit 2; }
            case $1 in --rounds) rounds=$2 ;; --articles) articles=$2 ;; --image) image=$2 ;; esac
            shift ;;
        *) echo "$1: no such option; see the head of $0" >&2; exit 2 ;;
    esac
    shift
done
[ "$(id -u)" = 0 ] || { echo "mounting an image takes root" >&2; exit 1; }
if [ -z "${CRUMB:-}" ]; then
    cargo build --release -q -p crumb
    CRUMB=${CARGO_TARGET_DIR:-target}/release/crumb
fi
mkdir -p "$out"
work=$(mktemp -d -p /dev/shm crumb-tree.XXXXXX)
take_down() {
    for side in ext4 tree objects; do
        if mountpoint -q "$work/$side"; then umount "$work/$side"; fi
    done
    rm -rf "$work"
}
trap take_down EXIT
for side in ext4 tree objects; do
    truncate -s "$image" "$work/$side.image"
    mke2fs -q -F -t ext4 "$work/$side.image"
    mkdir "$work/$side"
    # What is deleted is not handed back to the image: that would be measured too.
    mount -o loop,nodiscard "$work/$side.image" "$work/$side"
    mkdir "$work/$side/at"
done
"$CRUMB" pack create "$work/tree/at" --tree
"$CRUMB" pack create "$work/objects/at" --size "$((${image%G} * 3 / 4 + 1))G" 2>/dev/null ||
    "$CRUMB" pack create "$work/objects/at" --size 700M
sides=("$work/ext4/at" --vs "pack:$work/tree/at" --vs "pack:$work/objects/at")
run() { # name, verb and its options
    local name=$1 verb=$2
    shift 2
    echo "== $name"
    "$CRUMB" run "$verb" "${sides[@]}" "$@" --repeat "$rounds" --no-store --quiet --json "$out/$name.json" 2>&1 | tee "$out/$name.txt" ||
        echo "$name: exit code ${PIPESTATUS[0]}" | tee -a "$out/$name.txt"
}
for sync in none batch article; do
    run "netnews-sync-$sync" netnews --articles "$articles" --passes "$passes" --sync "$sync"
done
run postmark-sync-none postmark "${postmark[@]}"
run postmark-sync-close postmark "${postmark[@]}" --sync close
run postmark-sync-close-64 postmark "${postmark[@]}" "${each_of_64[@]}" --sync close --threads 64
"$CRUMB" pack check "$work/tree/at"
uname -r >"$out/machine.txt"
