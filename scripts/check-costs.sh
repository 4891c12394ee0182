#!/bin/bash
# Holds what a PostMark run says of its costs against /proc/diskstats, du and find, on an ext4 image of its own.
#
#   scripts/check-costs.sh CRUMB        (as root; CRUMB: the program)
#
# Files stay from the end of the first phase to the begin of the last: transactions only read them. du and find run in a loop
# meanwhile, and the largest figures count.
set -euo pipefail
crumb=$(realpath "${1:?usage: scripts/check-costs.sh CRUMB}")
work=$(mktemp -d /var/tmp/crumb-costs.XXXXXX)
cleanup() {
    umount "$work/mnt" 2>/dev/null || true
    [ -z "${loop:-}" ] || losetup -d "$loop" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
truncate -s 1G "$work/image"
mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$work/image"
loop=$(losetup -f --show "$work/image")
mkdir "$work/mnt"
mount "$loop" "$work/mnt"
sync
device=$(basename "$loop")
sectors() { awk -v device="$device" '$3 == device { print $10 }' /proc/diskstats; }
du_before=$(du -s -B1 "$work/mnt" | cut -f1)
inodes_before=$(df --output=iused "$work/mnt" | tail -1)
sectors_before=$(sectors)
"$crumb" run postmark "$work/mnt" --number 20000 --size 500..10000 --subdirectories 20 --transactions 400000 --create-bias -1 \
    --read-bias 10 --sync close --quiet --no-store --json "$work/run.json" >"$work/out.txt" 2>&1 &
run=$!
du_most=0
inodes_most=0
bytes_most=0
while kill -0 "$run" 2>/dev/null; do
    now=$({ du -s -B1 "$work/mnt" 2>/dev/null || true; } | cut -f1)
    inodes=$(df --output=iused "$work/mnt" | tail -1)
    bytes=$({ find "$work/mnt" -type f -printf '%s\n' 2>/dev/null || true; } | awk '{ sum += $1 } END { print sum + 0 }')
    [ "$now" -le "$du_most" ] || du_most=$now
    [ "$inodes" -le "$inodes_most" ] || inodes_most=$inodes
    [ "$bytes" -le "$bytes_most" ] || bytes_most=$bytes
done
wait "$run" || [ $? -eq 3 ]
written=$((512 * ($(sectors) - sectors_before)))
python3 - "$work/run.json" "$written" "$((du_most - du_before))" "$((inodes_most - inodes_before))" "$bytes_most" <<'PYTHON'
import json, sys
record = json.load(open(sys.argv[1]))
written, disk, inodes, kept = map(int, sys.argv[2:])
metrics = record["metrics"]
wall_s = metrics["total_s"]
stored = metrics["written_bytes_per_sec"] * wall_s
rows = [
    ("bytes written to the device, each byte stored", "cost_written_per_byte", written / stored),
    ("bytes on disk, each byte kept", "cost_disk_per_byte", disk / kept),
    ("inodes, each MiB kept", "cost_inodes_per_mib", inodes * 2**20 / kept),
]
print(f"stored {stored:.0f} B, kept {kept} B in {inodes} inodes, {disk} B by du, {written} B written by /proc/diskstats")
for what, name, by_hand in rows:
    print(f"{what}: crumb {metrics.get(name, float('nan')):.4f}, by hand {by_hand:.4f}, ratio {metrics.get(name, float('nan')) / by_hand:.4f}")
print(f"system time of each operation: {metrics.get('cost_cpu_us', float('nan')):.1f} us")
PYTHON
