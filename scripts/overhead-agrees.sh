#!/usr/bin/env bash
# Does `crumb run overhead` agree with a measurement that knows nothing of it? bindfs over an ext4 image in memory: the same operations
# from a script with the clock alone, and the daemon's replies counted by `strace -c`.
#
#   scripts/overhead-agrees.sh [ROUNDS]      (root, bindfs, strace, python3; default 10 rounds)
#
# Prints a line an operation: microseconds added and requests, by both. The script's own cost is on both sides of a difference.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-10}
crumb=$(realpath "${CARGO_TARGET_DIR:-target}/release/crumb")
[ "$(id -u)" = 0 ] || { echo 'it mounts: run it as root' >&2; exit 1; }
for program in bindfs strace python3; do
    command -v $program >/dev/null || { echo "$program is missing" >&2; exit 1; }
done
work=$(mktemp -d -p /dev/shm crumb-overhead-agrees.XXXXXX)
cleanup() {
    umount "$work/at" 2>/dev/null || true
    umount "$work/below" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT
mkdir "$work/below" "$work/at"
truncate -s 600M "$work/image"
mkfs.ext4 -q "$work/image"
mount -o loop "$work/image" "$work/below"
# Names and attributes are believed for a minute: what was looked up before the tracer came is still known under it.
bindfs -f -o entry_timeout=60,attr_timeout=60 "$work/below" "$work/at" &
daemon=$!
while ! mountpoint -q "$work/at"; do sleep 0.1; done

cat >"$work/plain.py" <<'PY'
import json, os, statistics, sys, time
below, at, rounds, files = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
body = b'c' * 2048
def create(d, n):
    f = os.open(n, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600, dir_fd=d); os.write(f, body); os.close(f)
def stat(d, n): os.stat(n, dir_fd=d, follow_symlinks=False)
def read(d, n):
    f = os.open(n, os.O_RDONLY, dir_fd=d); os.read(f, 4096); os.close(f)
def unlink(d, n): os.unlink(n, dir_fd=d)
WORK = [('create', create), ('stat_warm', stat), ('open_read_close', read), ('unlink', unlink)]
only = sys.argv[5] if len(sys.argv) > 5 else None
names = [f'f{i}' for i in range(files)]
step = next(s for s in range(files // 2 + 1, 2 * files) if __import__('math').gcd(s, files) == 1)
mixed = [names[i * step % files] for i in range(files)]
added = {name: [] for name, _ in WORK}
for turn in range(rounds):
    sides = []
    for place in (below, at):
        folder = os.path.join(place, 'plain-' + ('below' if place == below else 'at'))
        os.mkdir(folder); sides.append((folder, os.open(folder, os.O_RDONLY | os.O_DIRECTORY)))
    for name, work in WORK:
        took = {}
        for side in ((0, 1) if turn % 2 == 0 else (1, 0)):
            order = names if name == 'create' else mixed
            if name in ('stat_warm', 'open_read_close'):
                for n in order: work(sides[side][1], n)
            began = time.monotonic()
            for n in order: work(sides[side][1], n)
            took[side] = (time.monotonic() - began) * 1e6 / files
        added[name].append(took[1] - took[0])
    for folder, d in sides: os.close(d); os.rmdir(folder)
print(json.dumps({name: statistics.median(pairs) for name, pairs in added.items()}))
PY
cat >"$work/few.py" <<'PY'
import os, sys
place, name = sys.argv[1], sys.argv[2]
d = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
for i in range(100):
    n = f'n{i}'
    if name == 'create':
        f = os.open(n, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600, dir_fd=d); os.write(f, b'c' * 2048); os.close(f)
    elif name == 'stat_warm': os.stat(n, dir_fd=d)
    elif name == 'open_read_close':
        f = os.open(n, os.O_RDONLY, dir_fd=d); os.read(f, 4096); os.close(f)
    else: os.unlink(n, dir_fd=d)
PY

"$crumb" --quiet run overhead "$work/below" "$work/at" --rounds "$rounds" --no-store --json "$work/ours.json" >/dev/null || true
python3 "$work/plain.py" "$work/below" "$work/at" "$rounds" 2000 >"$work/plain.json"
mkdir "$work/below/few"
echo '{' >"$work/counted.json"
for name in create stat_warm open_read_close unlink; do
    # Once more before, so that what is warm is warm.
    [ "$name" != stat_warm ] || python3 "$work/few.py" "$work/at/few" stat_warm
    strace -f -c -e trace=writev,write -o "$work/strace" -p $daemon & tracer=$!
    sleep 1
    python3 "$work/few.py" "$work/at/few" "$name"
    sleep 0.3
    kill -INT $tracer; wait $tracer || true
    replies=$(awk '$NF == "writev" || $NF == "write" { sum += $4 } END { print sum + 0 }' "$work/strace")
    echo "\"$name\": $replies," >>"$work/counted.json"
done
echo '"end": 0}' >>"$work/counted.json"
python3 - "$work" <<'PY'
import json, sys
ours, plain, counted = (json.load(open(f'{sys.argv[1]}/{name}.json')) for name in ('ours', 'plain', 'counted'))
metrics = (ours[0] if isinstance(ours, list) else ours)['metrics']
print(f"{'operation':16} {'added, us':>10} {'the script':>11} {'requests':>9} {'replies':>8}")
for name in ('create', 'stat_warm', 'open_read_close', 'unlink'):
    print(f"{name:16} {metrics[name + '_added_us']:10.1f} {plain[name]:11.1f} "
          f"{metrics[name + '_requests_all']:9.2f} {counted[name] / 100:8.2f}")
PY
kill $daemon; wait $daemon || true
