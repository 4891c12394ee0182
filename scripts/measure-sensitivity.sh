#!/bin/bash
# The sensitivity figure on storage where the knobs matter (figure 9 of the Fstress paper: hits of the proxy's memory and of its disk
# cache): a file server whose memory holds a part of the file set, on an ext4 image that is read past the page cache below it.
#
#   scripts/measure-sensitivity.sh CRUMB DIRECTORY_FOR_RESULTS     (as root; CRUMB: the program, a release build for figures that count)
#
# 15 points of about 18 s: 5 minutes. Writes hits.html, hits.svg, hits.csv and points.txt. Settings by environment:
# RATE (requests/s, default 300), FILES (default 12000, about 126 MB), MEMORY (of the server, MiB, default 48), WARM, MEASURE (2s, 6s),
# VALUES (of memory-hit), LINES (of disk-hit), IMAGES (where the image is made, default /var/tmp: a real disk).
set -euo pipefail
crumb=$(realpath "${1:?usage: scripts/measure-sensitivity.sh CRUMB DIRECTORY}")
results=${2:?usage: scripts/measure-sensitivity.sh CRUMB DIRECTORY}
mkdir -p "$results"
results=$(realpath "$results")
work=$(mktemp -d "${IMAGES:-/var/tmp}/crumb-sensitivity.XXXXXX")
group=
server=
cleanup() {
    [ -z "$server" ] || { kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }
    umount "$work/mnt" 2>/dev/null || true
    [ -z "${loop:-}" ] || losetup -d "$loop" 2>/dev/null || true
    [ -z "$group" ] || rmdir "$group" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
# The server's control group: what it reads and writes is charged to it, the page cache too.
if grep -qw memory /sys/fs/cgroup/cgroup.controllers 2>/dev/null; then
    group=/sys/fs/cgroup/crumb-sensitivity.$$
    mkdir "$group"
    limit=$group/memory.max
elif [ -d /sys/fs/cgroup/memory ]; then
    group=/sys/fs/cgroup/memory/crumb-sensitivity.$$
    mkdir "$group"
    limit=$group/memory.limit_in_bytes
else
    echo "no control group for memory: the server's cache cannot be limited" >&2
    exit 1
fi
echo "${MEMORY:-48}M" >"$limit"
truncate -s 2G "$work/image"
mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$work/image"
# Without direct I/O the image would be cached a second time, outside of the group.
loop=$(losetup --direct-io=on -f --show "$work/image")
mkdir "$work/mnt"
mount -o noatime "$loop" "$work/mnt"
sh -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' sh "$group" \
    "$crumb" serve dir "$work/mnt" --listen 127.0.0.1:0 >"$work/server.txt" 2>&1 &
server=$!
for _ in $(seq 50); do
    url=$(grep -o 'nfs://127.0.0.1:[0-9]*/' "$work/server.txt" | head -1) && [ -n "$url" ] && break
    sleep 0.1
done
[ -n "${url:-}" ] || { cat "$work/server.txt" >&2; exit 1; }
status=0
"$crumb" run fstress "$url" --rate "${RATE:-300}" --vary "memory-hit=${VALUES:-0..1/0.25}" --lines "disk-hit=${LINES:-0,0.5,1}" \
    --files "${FILES:-12000}" --warm "${WARM:-2s}" --measure "${MEASURE:-6s}" --no-store --report "$results/hits.html" \
    --svg "$results/hits.svg" --csv "$results/hits.csv" >"$results/points.txt" 2>"$results/progress.txt" || status=$?
cat "$results/points.txt"
# 3: some point is INVALID, which the figure shows.
[ "$status" -eq 0 ] || [ "$status" -eq 3 ]
