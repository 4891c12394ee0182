#!/usr/bin/env bash
# The packed store beside one file an object and SQLite's BLOBs, on images in memory (root), or in a directory of yours:
#   scripts/measure-pack.sh [FILESYSTEM|DIR]... [-- OPTION...]
# ext4 and xfs unless told otherwise. Options go to the bench `rates`, whose head tells them: `-- --law web --cold 2000`.
# IMAGE=8G is the size of an image. Needs mke2fs or mkfs.xfs for what is asked for.
set -euo pipefail
cd "$(dirname "$0")/.."
where=()
while [ $# -gt 0 ]; do
    case $1 in
        --) shift && break ;;
        -*) sed -n '2,5s/^# \?//p' "$0" >&2 && exit 2 ;;
        *) where+=("$1") && shift ;;
    esac
done
[ ${#where[@]} -gt 0 ] || where=(ext4 xfs)
work=
take_down() {
    [ -n "$work" ] || return 0
    mountpoint -q "$work/at" && umount "$work/at"
    rm -rf "$work"
    work=
}
trap take_down EXIT
cargo bench -q -p packstore --bench rates --no-run
for place in "${where[@]}"; do
    if [ -d "$place" ]; then
        at=$(realpath "$place")
    else
        [ "$(id -u)" = 0 ] || { echo "mounting an image takes root; give a directory instead" >&2; exit 1; }
        work=$(mktemp -d -p /dev/shm crumb-pack.XXXXXX)
        truncate -s "${IMAGE:-8G}" "$work/image"
        case $place in
            ext2 | ext3 | ext4) mke2fs -q -F -t "$place" "$work/image" ;;
            xfs) mkfs.xfs -q "$work/image" ;;
            btrfs) mkfs.btrfs -q "$work/image" 2>/dev/null ;;
            *) echo "$place: neither a directory nor a file system that is known here" >&2 && exit 2 ;;
        esac
        mkdir "$work/at"
        # What is deleted is not handed back to the image: that would be measured too.
        mount -o loop,nodiscard "$work/image" "$work/at"
        at=$work/at
    fi
    echo "== $place"
    cargo bench -q -p packstore --bench rates -- "$at" "$@"
    take_down
done
