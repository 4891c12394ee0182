#!/usr/bin/env bash
# What crumb's mount, bindfs and mergerfs add to each operation of an ext4 image in memory; in turns, one mounted at a time.
#   run.sh CRUMB DIRECTORY_FOR_RECORDS [TURNS]      (root, bindfs, mergerfs)
set -euo pipefail
crumb=$1 records=$2 turns=${3:-3}
work=$(mktemp -d -p /dev/shm)
mkdir -p "$records" "$work/below" "$work/at"
truncate -s 6G "$work/image"
mkfs.ext4 -q "$work/image"
mount -o loop "$work/image" "$work/below"
trap 'umount "$work/at" 2>/dev/null; umount "$work/below"; rm -rf "$work"' EXIT
layer() {
    case $1 in
    crumb) "$crumb" mount "$work/below" "$work/at" --daemon --no-store ;;
    crumb-noawake) "$crumb" mount "$work/below" "$work/at" --daemon --no-store -o noawake ;;
    crumb-exclusive) "$crumb" mount "$work/below" "$work/at" --daemon --no-store --exclusive ;;
    bindfs) bindfs "$work/below" "$work/at" ;;
    mergerfs) mergerfs -o minfreespace=0 "$work/below" "$work/at" ;;
    esac
}
for turn in $(seq "$turns"); do
    for name in crumb bindfs crumb-noawake mergerfs crumb-exclusive; do
        layer $name
        "$crumb" --quiet run overhead "$work/below" "$work/at" --label $name --no-store --json "$records/$name-$turn.json" >/dev/null || true
        umount "$work/at"
        sleep 1
    done
done
