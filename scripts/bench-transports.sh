#!/usr/bin/env bash
# The floor by /dev/fuse and by FUSE over io_uring: create, cold stat, open+read+close, unlink, in turns.
#
#   scripts/bench-transports.sh RECORDS [TURNS]      (root, Linux 6.14 and later; default 5 turns; a release build and the example)
#
# cargo build --release --workspace && cargo build --release -p fuse --example transports
# It switches /sys/module/fuse/parameters/enable_uring on and back. CPUs are not kept awake; with scripts/awake.sh before it they are.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { sed -n '2,7s/^# \?//p' "$0" >&2 && exit 2; }
[ "$(id -u)" = 0 ] || { echo 'it mounts: run it as root' >&2; exit 1; }
records=$1 turns=${2:-5}
target=$(realpath "${CARGO_TARGET_DIR:-target}/release")
switch=/sys/module/fuse/parameters/enable_uring
before=$(cat $switch)
# Requests are counted by the kernel's trace events.
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
work=$(mktemp -d -p /dev/shm crumb-bench-transports.XXXXXX)
daemon=
cleanup() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
    echo "$before" >$switch
    umount "$work/at" 2>/dev/null || true
    umount "$work/below" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT
echo 1 >$switch
mkdir -p "$records" "$work/below" "$work/at"
truncate -s 600M "$work/image"
mkfs.ext4 -q "$work/image"
mount -o loop "$work/image" "$work/below"
for turn in $(seq "$turns"); do
    for transport in device ring; do
        mkfifo "$work/hold" "$work/says"
        "$target/examples/transports" $transport "$work/at" <"$work/hold" >"$work/says" &
        daemon=$!
        exec 8>"$work/hold" 9<"$work/says"
        read -r -t 10 word <&9 || { echo "$transport did not come up" >&2; exit 1; }
        [ "$word" = ready ]
        "$target/crumb" --quiet run overhead "$work/below" "$work/at" --no-floor --label $transport --no-store \
            --json "$records/$transport-$turn.json" >"$records/$transport-$turn.txt" || echo "$transport, turn $turn: exit code $?" >&2
        exec 8>&- 9<&-
        wait $daemon
        daemon=
        rm "$work/hold" "$work/says"
    done
done
python3 - "$records" <<'PY'
import glob, json, statistics, sys
def runs(name):
    found = [json.load(open(p)) for p in sorted(glob.glob(f'{sys.argv[1]}/{name}-[0-9]*.json'))]
    return [r[0] if isinstance(r, list) else r for r in found]
device, ring = runs('device'), runs('ring')
print('| microseconds | device | ring | device/ring, by turns | requests |\n|---|---|---|---|---|')
for work in ['create', 'stat_cold', 'stat_warm', 'open_read_close', 'list', 'small_write', 'small_read', 'rename', 'unlink']:
    of = lambda r: r['metrics'].get(f'{work}_mount_us', float('nan'))
    ratios = sorted(of(a) / of(b) for a, b in zip(device, ring))
    requests = ring[0]['metrics'].get(f'{work}_requests', float('nan'))
    print(f"| {work} | {statistics.median(map(of, device)):.1f} | {statistics.median(map(of, ring)):.1f} | "
          f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) | {requests:.2f} |")
PY
