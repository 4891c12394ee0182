#!/usr/bin/env bash
# How a mount's threads wait for requests (`-o readers=`, `awake`), and what that costs beside other FUSE layers: each is mounted
# alone, measured and unmounted, in rounds whose order turns, on an ext4 loop image in memory (root).
#   scripts/bench-readers.sh ROUNDS OUTPUT [VARIANT…]
# A variant is `native`, `bindfs`, `mergerfs`, or `crumb:OPTIONS` with options of `crumb mount -o` (`crumb:` for the defaults).
# OUTPUT gets a line a variant and round: round, variant, seconds to create (2 KB), stat cold, stat warm, open+read+close, and
# unlink FILES files. The medians are printed at the end, as microseconds a file and as rates relative to bindfs.
# FILES=N (default 5000). CRUMB=PROGRAM and LAYERS=PROGRAM take the built program and the built benchmark `layers`.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,9s/^# \?//p' "$0" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "mounts a loop image and layers over it: run it as root" >&2; exit 1; }
rounds=$1 output=$2
shift 2
variants=("$@")
[ $# -gt 0 ] || variants=(native bindfs mergerfs crumb: crumb:readers=park,noawake crumb:readers=free,noawake
    crumb:readers=follow,noawake crumb:readers=park,awake)
files=${FILES:-5000}
crumb=${CRUMB:?the program}
layers=${LAYERS:?the benchmark}
work=$(mktemp -d -p /dev/shm crumb-readers.XXXXXX)
unmounted() { # a daemon lets go of what is below a moment after its own end
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        mountpoint -q "$1" || return 0
        umount "$1" 2>/dev/null || sleep 0.3
    done
    umount -l "$1"
}
clean_up() {
    unmounted "$work/at"
    unmounted "$work/native"
    rm -rf "$work"
}
trap clean_up EXIT
mkdir "$work/native" "$work/at"
truncate -s 8G "$work/image"
mkfs.ext4 -q -F "$work/image"
mount -o loop,nodiscard "$work/image" "$work/native"
mkdir "$work/native/tree"
tree=$work/native/tree

measured() { # round, variant
    local at=$work/at
    case $2 in
        native) at=$tree ;;
        bindfs) bindfs --multithreaded "$tree" "$at" ;;
        mergerfs)
            mergerfs -o use_ino,cache.files=auto-full,security_capability=false,category.create=ff,minfreespace=0 \
                "$tree" "$at" >/dev/null
            ;;
        crumb:*) "$crumb" mount "$tree" "$at" --daemon --no-store -o "defaults,${2#crumb:}" ;;
        *) echo "$2: no such variant" >&2 && exit 2 ;;
    esac
    "$layers" "x=$at" --bench --parts small --files "$files" --rounds 1 |
        awk -v round="$1" -v variant="$2" '/^round/ { print round, variant, $4, $5, $6, $7, $8 }' | tee -a "$output"
    [ "$at" = "$tree" ] || unmounted "$at"
}
for round in $(seq "$rounds"); do
    for turn in "${!variants[@]}"; do
        measured "$round" "${variants[(turn + round) % ${#variants[@]}]}"
    done
done
python3 - "$output" "$files" <<'END'
import statistics, sys
seconds = {}
for line in open(sys.argv[1]):
    _, variant, *row = line.split()
    seconds.setdefault(variant, []).append([float(x) for x in row])
files = int(sys.argv[2])
medians = {v: [statistics.median(c) for c in zip(*rows)] for v, rows in seconds.items()}
names = ["create", "stat cold", "open+read+close", "unlink"]
print(f"{'medians, us':34}" + "".join(f"{n:>17}" for n in names) + "   (rate relative to bindfs)")
for variant, m in medians.items():
    line = f"{variant:34}"
    for at in (0, 1, 3, 4):
        base = medians.get("bindfs", m)[at]
        line += f"{m[at] / files * 1e6:9.1f} ({base / m[at]:4.2f}) "
    print(line, len(seconds[variant]), "rounds")
END
