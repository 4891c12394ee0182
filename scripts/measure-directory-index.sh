#!/usr/bin/env bash
# At how many names an ext4 directory without large_dir refuses the next one, and what `crumb advise --predict` says of it when the
# directory is empty and when it holds half of that. As root, on images in memory:
#   scripts/measure-directory-index.sh [BLOCK:NAME_BYTES]...
# 1024:16 1024:40 4096:255 unless told otherwise. RUNS=3 repeats each. The image of 4096:255 takes about 2 GB of memory.
# CRUMB=target/release/crumb is the program.
set -euo pipefail
cd "$(dirname "$0")/.."
crumb=$(realpath "${CRUMB:-target/release/crumb}")
[ "$(id -u)" = 0 ] || { echo "mounting an image takes root" >&2; exit 1; }
[ $# -gt 0 ] || set -- 1024:16 1024:40 4096:255
work=
take_down() {
    [ -n "$work" ] || return 0
    mountpoint -q "$work/at" && umount "$work/at"
    rm -rf "$work"
    work=
}
trap take_down EXIT

predicted() { # directory, name bytes
    "$crumb" --quiet advise --predict --growth 1000/day --name-length "$2" --json - "$1" |
        python3 -c 'import json, sys
one = json.load(sys.stdin)["directories"][0]
low, high = one["names_when_full_low"], one["names_when_full_high"]
print("%d to %d (%.1f%% wide)" % (low, high, 200 * (high - low) / (high + low)))'
}

# Makes links with names of a length, from number to number or until one is refused, and prints how many there are.
filled() { # directory, name bytes, from, to
    python3 - "$@" <<'PYTHON'
import os, sys
directory, width, number, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
names, source = os.open(directory, os.O_DIRECTORY), None
try:
    while number < end:
        # An inode has at most 65,000 links.
        if source is None or number % 60000 == 0:
            source = "%s/../sources/%d" % (directory, number)
            open(source, "w").close()
        os.link(source, "%0*d" % (width, number), dst_dir_fd=names)
        number += 1
except OSError as error:
    print("refused:", error.strerror, file=sys.stderr)
print(number)
PYTHON
}

for case in "$@"; do
    block=${case%:*} name=${case#*:}
    for run in $(seq "${RUNS:-3}"); do
        work=$(mktemp -d -p /dev/shm crumb-index.XXXXXX)
        truncate -s 4G "$work/image"
        mke2fs -q -F -t ext4 -b "$block" -N 4096 -O ^has_journal "$work/image"
        mkdir "$work/at"
        mount -o loop,noatime "$work/image" "$work/at"
        mkdir "$work/at/names" "$work/at/sources"
        empty=$(predicted "$work/at/names" "$name")
        half=$(python3 -c 'import sys; low = int(sys.argv[1]); print(low // 2)' "${empty%% *}")
        filled "$work/at/names" "$name" 0 "$half" > /dev/null
        later=$(predicted "$work/at/names" "$name")
        refused=$(filled "$work/at/names" "$name" "$half" 100000000)
        echo "$block-byte blocks, $name-byte names, run $run: refused at $refused;" \
            "predicted empty $empty, at $half names $later"
        dmesg | grep 'index full' | tail -n 1 || true
        take_down
    done
done
