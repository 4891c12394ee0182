#!/bin/bash
# Holds what runs say of their costs against /proc/diskstats, du and find, each on an ext4 image of its own.
#
#   scripts/check-costs.sh CRUMB [postmark] [dirscale] [netnews]       (as root; CRUMB: the program; without names: all)
#
# postmark: files stay from the end of the first phase to the begin of the last, as transactions only read them; du and find run in
# a loop meanwhile, and the largest figures count. dirscale, netnews: the files are kept (--keep) and counted after the run.
set -euo pipefail
crumb=$(realpath "${1:?usage: scripts/check-costs.sh CRUMB [BENCHMARK...]}")
shift
[ $# -gt 0 ] || set -- postmark dirscale netnews
work=$(mktemp -d /var/tmp/crumb-costs.XXXXXX)
loop=
take_down() {
    umount "$work/mnt" 2>/dev/null || true
    [ -z "$loop" ] || losetup -d "$loop" 2>/dev/null || true
    loop=
}
trap 'take_down; rm -rf "$work"' EXIT
mkdir "$work/mnt"

# An empty file system, and what it holds.
set_up() {
    rm -f "$work/image"
    truncate -s 1G "$work/image"
    mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$work/image"
    loop=$(losetup -f --show "$work/image")
    mount "$loop" "$work/mnt"
    sync
    du_before=$(du -s -B1 "$work/mnt" | cut -f1)
    inodes_before=$(df --output=iused "$work/mnt" | tail -1)
    sectors_before=$(sectors)
}
sectors() { awk -v device="$(basename "$loop")" '$3 == device { print $10 }' /proc/diskstats; }
# Sets du_most, inodes_most, bytes_most, files_most. A file with several names counts once.
count() {
    local now bytes files
    now=$({ du -s -B1 "$work/mnt" 2>/dev/null || true; } | cut -f1)
    [ "$now" -le "$du_most" ] || du_most=$now
    now=$(df --output=iused "$work/mnt" | tail -1)
    [ "$now" -le "$inodes_most" ] || inodes_most=$now
    read -r bytes files <<<"$({ find "$work/mnt" -type f "$@" -printf '%i %s\n' 2>/dev/null || true; } | sort -u | awk '{ sum += $2 } END { print sum + 0, NR }')"
    [ "$files" -le "$files_most" ] || { bytes_most=$bytes files_most=$files; }
}
compare() {
    python3 - "$1" "$work/run.json" "$(((written - sectors_before) * 512))" "$((du_most - du_before))" "$((inodes_most - inodes_before))" "$bytes_most" "$files_most" <<'PYTHON'
import json, sys
name, record = sys.argv[1], json.load(open(sys.argv[2]))
written, disk, inodes, kept, files = map(int, sys.argv[3:])
metrics, phases = record["metrics"], record["phases"]
if name == "postmark":
    stored = metrics["written_bytes_per_sec"] * metrics["total_s"]
else:
    stored = sum(phase["bytes"] for phase in phases if phase["name"].split()[0] in ("fill", "add", "unbatch"))
rows = [
    ("bytes written to the device, each byte stored", "cost_written_per_byte", written / stored),
    ("bytes on disk, each byte kept", "cost_disk_per_byte", disk / kept),
    ("inodes, each MiB kept", "cost_inodes_per_mib", inodes * 2**20 / kept),
    ("bytes on disk, each file kept", "cost_disk_per_file_bytes", disk / files),
    ("inodes, each file kept", "cost_inodes_per_file", inodes / files),
]
print(f"{name}: stored {stored:.0f} B; kept {kept} B in {files} files, {inodes} inodes, {disk} B by du; {written} B written by /proc/diskstats")
for what, metric, by_hand in rows:
    ours = metrics.get(metric, float("nan"))
    print(f"  {what}: crumb {ours:.4f}, by hand {by_hand:.4f}, ratio {ours / by_hand:.4f}")
print(f"  system time of each operation: {metrics.get('cost_cpu_us', float('nan')):.1f} us")
for metric, why in record.get("not_seen", {}).items():
    print(f"  {metric}: not seen: {why}")
PYTHON
}
# 3: the run is INVALID, which a busy machine makes it; bytes do not depend on that.
ended() { [ "$1" -eq 0 ] || [ "$1" -eq 3 ] || { cat "$work/out.txt" >&2; exit 1; }; }

for name in "$@"; do
    set_up
    du_most=0 inodes_most=0 bytes_most=0 files_most=0
    how=(--no-store --quiet --json "$work/run.json")
    status=0
    case $name in
    postmark)
        "$crumb" run postmark "$work/mnt" --number 20000 --size 500..10000 --subdirectories 20 --transactions 400000 --create-bias -1 \
            --read-bias 10 --sync close "${how[@]}" >"$work/out.txt" 2>&1 &
        run=$!
        while kill -0 "$run" 2>/dev/null; do count; done
        wait "$run" || status=$?
        written=$(sectors)
        ;;
    dirscale)
        "$crumb" run dirscale "$work/mnt" --sizes 1000,20000 --operations 20 --rounds 1 --keep costs "${how[@]}" >"$work/out.txt" 2>&1 || status=$?
        written=$(sectors)
        count ! -name 'crumb-*'
        ;;
    netnews)
        "$crumb" run netnews "$work/mnt" --articles 20000 --passes 3 --retention 6 --batch-every 0 --keep costs "${how[@]}" >"$work/out.txt" 2>&1 || status=$?
        written=$(sectors)
        # Articles have numbers for names.
        count -name '[0-9]*'
        ;;
    *) echo "$name: not one of postmark, dirscale, netnews" >&2; exit 2 ;;
    esac
    ended "$status"
    compare "$name"
    take_down
done
