#!/usr/bin/env bash
# What crumb's mount adds to each operation of an ext4 image in memory, beside the floor, and to a build; bindfs and mergerfs where they
# are installed. In turns, one mounted at a time, so that what drifts in the machine meets all.
#
#   scripts/bench-overhead.sh RECORDS [TURNS] [further flags of `crumb run overhead`]      (root, python3, cc, make; default 3 turns)
#
# RECORDS is a directory for the records. BUILD=no leaves the build out, BUILD=DIR|TARBALL builds that. A release build is needed.
#
#   crumb           by default: it may keep CPUs awake by itself, which the floor does not
#   crumb-noawake   -o noawake: layer and floor wait in the same way
#   crumb-awake     CPUs are kept awake during the whole run, on all sides (awake.sh)
#   crumb-exclusive --exclusive
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { sed -n '2,12s/^# \?//p' "$0" >&2 && exit 2; }
[ "$(id -u)" = 0 ] || { echo 'it mounts: run it as root' >&2; exit 1; }
records=$1 turns=${2:-3}
shift $(($# > 1 ? 2 : 1))
crumb=$(realpath "${CARGO_TARGET_DIR:-target}/release/crumb")
case ${BUILD:-made-up} in
no) build=() ;;
made-up) build=(--build) ;;
*) build=("--build=$BUILD") ;;
esac
names=(crumb crumb-noawake crumb-awake crumb-exclusive)
for rival in bindfs mergerfs; do
    command -v $rival >/dev/null && names+=($rival) || echo "$rival is not installed and left out" >&2
done
# Requests are counted by the kernel's trace events.
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
work=$(mktemp -d -p /dev/shm crumb-bench-overhead.XXXXXX)
cleanup() {
    umount "$work/at" 2>/dev/null || true
    umount "$work/below" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT
mkdir -p "$records" "$work/below" "$work/at"
truncate -s 6G "$work/image"
mkfs.ext4 -q "$work/image"
mount -o loop "$work/image" "$work/below"
layer() {
    case $1 in
    crumb | crumb-awake) "$crumb" mount "$work/below" "$work/at" --daemon --no-store ;;
    crumb-noawake) "$crumb" mount "$work/below" "$work/at" --daemon --no-store -o noawake ;;
    crumb-exclusive) "$crumb" mount "$work/below" "$work/at" --daemon --no-store --exclusive ;;
    bindfs) bindfs "$work/below" "$work/at" ;;
    mergerfs) mergerfs -o minfreespace=0 "$work/below" "$work/at" ;;
    esac
}
for turn in $(seq "$turns"); do
    for name in "${names[@]}"; do
        layer "$name"
        awake=()
        [ "$name" = crumb-awake ] && awake=(scripts/awake.sh)
        "${awake[@]}" "$crumb" --quiet run overhead "$work/below" "$work/at" "${build[@]}" "$@" --label "$name" --no-store \
            --json "$records/$name-$turn.json" >"$records/$name-$turn.txt" || echo "$name, turn $turn: exit code $?" >&2
        umount "$work/at"
        sleep 1
    done
done
python3 - "$records" "${names[@]}" <<'PY'
import glob, json, statistics, sys
folder, names = sys.argv[1], sys.argv[2:]
works = ['create', 'stat_cold', 'stat_warm', 'open_read_close', 'list', 'small_write', 'small_read', 'rename', 'unlink']
runs = {n: [json.load(open(p)) for p in sorted(glob.glob(f'{folder}/{n}-[0-9]*.json'))] for n in names}
runs = {n: [r[0] if isinstance(r, list) else r for r in rs] for n, rs in runs.items()}
print('VALID of runs:', {n: f"{sum(r['verdict']['valid'] for r in rs)} of {len(rs)}" for n, rs in runs.items()})
def median(name, metric, text='{:.2f}'):
    values = [r['metrics'][metric] for r in runs[name] if metric in r['metrics']]
    return text.format(statistics.median(values)) if values else '-'
def table(title, metric, text='{:.2f}'):
    print(f'\n| {title} |' + ''.join(f' {n} |' for n in names) + '\n|---|' + '---|' * len(names))
    for work in works:
        print(f'| {work} |' + ''.join(f' {median(n, work + metric, text)} |' for n in names))
table('microseconds below', '_lower_us')
table('microseconds through the mount', '_mount_us')
table('microseconds added', '_added_us')
table('requests', '_requests')
table('microseconds of the floor', '_floor_us')
table('requests of the floor', '_floor_requests')
table('added, times the floor', '_of_floor')
print('\n| build |' + ''.join(f' {n} |' for n in names) + '\n|---|' + '---|' * len(names))
for title, metric in [('seconds below', 'build_lower_s'), ('seconds through the mount', 'build_mount_s'),
                      ('slower by %', 'build_slower_percent'), ('from', 'build_slower_low_percent'), ('to', 'build_slower_high_percent')]:
    print(f'| {title} |' + ''.join(f' {median(n, metric)} |' for n in names))
PY
