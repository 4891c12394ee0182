#!/usr/bin/env bash
# Figures of `crumb mount` that take long, each on images or trees in memory (root):
#   scripts/measure-stackfs.sh curves [FILES] [FILESYSTEM...]   a directory of so many files, plain and managed through
#                                                               the mount, cold (`crumb run dirscale`); 100000 files and
#                                                               ext2 ext4-linear ext4 xfs btrfs unless told otherwise;
#                                                               ext4-unindexed: linear, but filled with dir_index, which
#                                                               is then turned off (300000 files in minutes, not hours)
#   scripts/measure-stackfs.sh gain [MANAGED [PLAIN]]           how many times faster creation and random look-up are in a
#                                                               managed directory (100000 files) than in a plain one
#                                                               (60000 files), ext4 without dir_index, default
#                                                               options of the mount. Cold: dirscale writes all back, drops
#                                                               names, inodes and blocks, and proves by timed look-ups that
#                                                               they are gone, before each measurement; with
#                                                               DIRSCALE=--cold-names directory blocks stay in memory
#   scripts/measure-stackfs.sh memory [FILES]                   resident memory of the daemon by files known, and how
#                                                               long starting and ending take; 1000000 files
#   scripts/measure-stackfs.sh soak [SECONDS]                   8 threads hammering managed and plain directories:
#                                                               errors, memory and descriptors meanwhile; 600 s
# Needs mke2fs, mkfs.xfs and mkfs.btrfs for the file systems asked for; what is missing is left out and named.
# CRUMB=PROGRAM takes a program that is built already; MOUNT="--awake --exclusive" mounts so; DIRSCALE="--cold-names" is
# passed to `crumb run dirscale`.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-}
[ $# -gt 0 ] && shift
case $mode in curves | gain | memory | soak) ;; *) sed -n '2,22s/^# \?//p' "$0" >&2 && exit 2 ;; esac
[ "$(id -u)" = 0 ] || { echo "mounts images and drops caches: run it as root" >&2; exit 1; }
[ -n "${CRUMB:-}" ] || cargo build --release -q -p crumb
crumb=${CRUMB:-$(realpath "${CARGO_TARGET_DIR:-target}")/release/crumb}
work=$(mktemp -d -p /dev/shm crumb-measure.XXXXXX)
below=$work/below through=$work/through
mkdir "$below" "$through"
take_down() {
    for place in "$through" "$below"; do
        # A daemon lets go of what is below a moment after its own end.
        mountpoint -q "$place" && { umount "$place" 2>/dev/null || { sleep 0.3 && umount "$place"; } || umount -l "$place"; }
    done
    return 0
}
trap 'take_down; rm -rf "$work"' EXIT

daemon_status() { # a line of /proc/PID/status
    sed -n "s/^$1:[[:space:]]*\([0-9]*\).*/\1/p" "/proc/$(cat "$work/pid")/status"
}
descriptors() { find "/proc/$(cat "$work/pid")/fd" -mindepth 1 | wc -l; }
gauge() { # of the mount, by its name in Prometheus' text
    "$crumb" mount --stats "$through" --prometheus | sed -n "s/^crumb_mount_$1 //p"
}
show() { # LOWER, further options
    "$crumb" --quiet mount "$1" "$through" --daemon --no-store --pid-file "$work/pid" "${@:2}"
}
seconds() { # of a command
    local begun=$EPOCHREALTIME
    "$@"
    awk -v begun="$begun" -v now="$EPOCHREALTIME" 'BEGIN { printf "%.2f", now - begun }'
}

# A run on a disturbed machine is INVALID (3): its verdict is printed, and the figures are for the reader to judge.
dirscale() { "$crumb" --quiet run dirscale "$@" || [ $? = 3 ]; }

make_image() { # FILESYSTEM, files in each of two directories
    local size=$((1 + $2 * 2 * 6 / 1000000))G
    rm -f "$work/image"
    truncate -s "$size" "$work/image"
    case $1 in
        ext2) mke2fs -q -F -t ext2 -i 4096 "$work/image" ;;
        ext4-linear) mke2fs -q -F -t ext4 -i 4096 -O ^dir_index "$work/image" ;;
        ext4 | ext4-unindexed) mke2fs -q -F -t ext4 -i 4096 "$work/image" ;;
        xfs) mkfs.xfs -q "$work/image" ;;
        btrfs) mkfs.btrfs -q "$work/image" 2>/dev/null ;;
        *) echo "$1: not one of ext2 ext4-linear ext4-unindexed ext4 xfs btrfs" >&2 && return 1 ;;
    esac && mount -o loop,nodiscard "$work/image" "$below"
}

curves() {
    local files=${1:-100000} name=s kind
    shift || true
    [ $# -gt 0 ] || set -- ext2 ext4-linear ext4 xfs btrfs
    for kind in "$@"; do
        if ! make_image "$kind" "$files" 2>"$work/log"; then
            echo "$kind: left out: $(tail -1 "$work/log")"
            continue
        fi
        mkdir "$below/plain" "$below/managed"
        for side in plain managed; do
            dirscale "$below/$side" --layout flat --sizes 1 --warm --rounds 1 --no-store \
                --keep "$name" >"$work/log"
        done
        if [ "$kind" = ext4-unindexed ]; then
            dirscale "$below/plain" --layout flat --sizes "$files" --warm --rounds 1 --operations 1 \
                --readings 1 --no-store --reuse "$name" >"$work/log"
            umount "$below"
            # tune2fs wants it checked; 1 says that something small was put right.
            e2fsck -fy "$work/image" >"$work/log" 2>&1 || [ $? = 1 ]
            tune2fs -O ^dir_index "$work/image" >"$work/log"
            mount -o loop,nodiscard "$work/image" "$below"
        fi
        "$crumb" --quiet manage "$below/managed/crumb-dirscale-$name/flat" >"$work/log"
        # shellcheck disable=SC2086 # words
        show "$below/managed" ${MOUNT:-}
        for side in "$below/plain" "$through"; do
            [ "$side" = "$through" ] && echo "$kind, managed and through the mount" || echo "$kind, plain"
            # shellcheck disable=SC2086 # words
            dirscale "$side" --layout flat --sizes "$files" --no-store --reuse "$name" ${DIRSCALE:-} |
                grep -E '^(files|[0-9]|Verdict)'
        done
        take_down
    done
}

gain() {
    local managed=${1:-100000} plain=${2:-60000} name=s side
    make_image ext4-linear "$managed"
    mkdir "$below/plain" "$below/managed"
    for side in plain managed; do
        dirscale "$below/$side" --layout flat --sizes 1 --warm --rounds 1 --no-store --keep "$name" >"$work/log"
    done
    "$crumb" --quiet manage "$below/managed/crumb-dirscale-$name/flat" >"$work/log"
    # shellcheck disable=SC2086 # words
    show "$below/managed" ${MOUNT:-}
    # shellcheck disable=SC2086 # words
    dirscale "$below/plain" --layout flat --sizes "$plain" --no-store --reuse "$name" ${DIRSCALE:-} | tee "$work/plain" |
        grep -E '^(files|[0-9]|Verdict)'
    # shellcheck disable=SC2086 # words
    dirscale "$through" --layout flat --sizes "$managed" --no-store --reuse "$name" ${DIRSCALE:-} | tee "$work/managed" |
        grep -E '^(files|[0-9]|Verdict)'
    # Columns: files, random, sequential, add, ...
    column() { grep -E '^ *[0-9][0-9,]* ' "$1" | tail -1 | tr -d ',' | awk -v at="$2" '{ print $at }'; }
    awk -v plain_create="$(column "$work/plain" 4)" -v managed_create="$(column "$work/managed" 4)" \
        -v plain_look="$(column "$work/plain" 2)" -v managed_look="$(column "$work/managed" 2)" 'BEGIN {
        printf "creation: %.1f times (bar: 12 where wake-ups are slow, 40 where they are quick)\n", plain_create / managed_create
        printf "cold random look-up: %.1f times (bar: 30)\n", plain_look / managed_look }'
}

memory() {
    local files=${1:-1000000} before after known
    for ((at = 0; at < files; at += 1000)); do
        mkdir "$below/$at"
        (cd "$below/$at" && seq -f 'article-%06g' "$at" $((at + 999)) | xargs touch)
    done
    echo "starting: $(seconds show "$below") s"
    before=$(daemon_status VmRSS)
    find "$through" -type f -size +1 | head -1
    known=$(gauge nodes) after=$(daemon_status VmRSS)
    echo "$known nodes known: $after KiB resident, $before KiB before, $(((after - before) * 1024 / known)) bytes each"
    echo "dropping the kernel's caches: $(seconds sh -c 'echo 2 >/proc/sys/vm/drop_caches') s, then" \
        "$(gauge nodes) nodes, $(daemon_status VmRSS) KiB"
    find "$through" -type f -size +1 | head -1
    echo "unmounting with $(gauge nodes) nodes known: $(seconds "$crumb" --quiet unmount "$through") s"
}

soak() {
    local seconds=${1:-600} hammer status=0
    hammer=$(cargo bench -q -p stackfs --bench hammer --no-run --message-format=json 2>/dev/null |
        sed -n 's/.*"executable":"\([^"]*hammer[^"]*\)".*/\1/p' | tail -1)
    make_image ext4 100000
    mkdir "$below/plain" "$below/managed" "$below/hashed"
    "$crumb" --quiet manage "$below/managed" >"$work/log"
    "$crumb" --quiet manage --layout hash:2 "$below/hashed" >"$work/log"
    show "$below"
    "$hammer" --bench --seconds 2 "$through"/{plain,managed,hashed}
    echo "after warming up: $(daemon_status VmRSS) KiB resident, $(descriptors) descriptors, $(gauge nodes) nodes"
    "$hammer" --bench --seconds "$seconds" "$through"/{plain,managed,hashed} &
    local hammering=$!
    for ((at = 1; at < 6; at++)); do
        sleep $((seconds / 6))
        echo "meanwhile: $(daemon_status VmRSS) KiB resident, $(descriptors) descriptors, $(gauge nodes) nodes"
    done
    wait "$hammering" || status=$?
    # What is kept for a while after its last use goes after a few seconds.
    for ((at = 0; at < 20; at++)); do [ "$(gauge files_open)" = 0 ] && break || sleep 0.5; done
    sleep 11
    echo "afterwards: $(daemon_status VmRSS) KiB resident, $(descriptors) descriptors, $(gauge nodes) nodes," \
        "$(gauge files_open) files open"
    "$crumb" check "$below" | tail -2
    return "$status"
}
"$mode" "$@"
