#!/usr/bin/env bash
# By what a mount's requests come and how its threads wait for them (`-o transport=`, `readers=`, `awake`), and what that costs beside
# other FUSE layers and the floor: each is mounted alone, measured and unmounted, in rounds whose order turns, on an ext4 loop image in
# memory (root).
#   scripts/bench-readers.sh ROUNDS OUTPUT [VARIANT…]
# A variant is `native`, `bindfs`, `mergerfs`, `crumb:OPTIONS` with options of `crumb mount -o` (`crumb:` for the defaults),
# `other:OPTIONS` by another build of it, or `floor:device`, `floor:ring` and the same with `,awake`, which answer from memory.
# OUTPUT gets a line a variant and round: round, variant, seconds to create (2 KB), stat cold, stat warm, open+read+close, and
# unlink FILES files. The medians are printed at the end, as microseconds a file and as rates relative to bindfs, or to the first
# variant where bindfs is not measured; where native is, then what each takes more than it, and where floor:device is too, that as
# multiples of what the floor takes more (with `awake` in OPTIONS, of what floor:device,awake does).
# FILES=N (default 5000). CRUMB=PROGRAM, OTHER=PROGRAM, LAYERS=PROGRAM and TRANSPORTS=PROGRAM take the built program, another build,
# the built benchmark `layers` (of stackfs) and the built example `transports` (of fuse). The kernel's FUSE over io_uring is switched
# on meanwhile, and then back.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,16s/^# \?//p' "$0" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "mounts a loop image and layers over it: run it as root" >&2; exit 1; }
rounds=$1 output=$2 here=$(cd "$(dirname "$0")" && pwd)
shift 2
variants=("$@")
[ $# -gt 0 ] || variants=(native bindfs mergerfs floor:device floor:ring floor:device,awake crumb: crumb:noawake
    crumb:transport=device,noawake,readers=park crumb:transport=device,noawake,readers=follow crumb:transport=ring,noawake
    crumb:transport=device,awake crumb:transport=ring,awake)
files=${FILES:-5000}
crumb=${CRUMB:?the program}
layers=${LAYERS:?the benchmark}
switch=/sys/module/fuse/parameters/enable_uring
before=$(cat $switch 2>/dev/null || true)
floor=
work=$(mktemp -d -p /dev/shm crumb-readers.XXXXXX)
unmounted() { # a daemon lets go of what is below a moment after its own end
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        mountpoint -q "$1" || return 0
        umount "$1" 2>/dev/null || sleep 0.3
    done
    umount -l "$1"
}
clean_up() {
    [ -z "$before" ] || echo "$before" >$switch
    [ -z "$floor" ] || kill "$floor" 2>/dev/null || true
    unmounted "$work/at"
    unmounted "$work/native"
    rm -rf "$work"
}
trap clean_up EXIT
[ -z "$before" ] || echo 1 >$switch
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
        floor:*)
            rm -f "$work/hold" "$work/says"
            mkfifo "$work/hold" "$work/says"
            local transport=${2#floor:} awake=()
            [ "$transport" = "${transport%,awake}" ] || awake=("$here/awake.sh")
            "${awake[@]}" "${TRANSPORTS:?the example}" "${transport%,awake}" "$at" <"$work/hold" >"$work/says" &
            floor=$!
            exec 8>"$work/hold" 9<"$work/says"
            read -r -t 10 word <&9 && [ "$word" = ready ] || { echo "$2 did not come up" >&2; exit 1; }
            ;;
        crumb:*) "$crumb" mount "$tree" "$at" --daemon --no-store -o "defaults,${2#crumb:}" ;;
        other:*) "${OTHER:?another build}" mount "$tree" "$at" --daemon --no-store -o "defaults,${2#other:}" ;;
        *) echo "$2: no such variant" >&2 && exit 2 ;;
    esac
    "$layers" "x=$at" --bench --parts small --files "$files" --rounds 1 |
        awk -v round="$1" -v variant="$2" '/^round/ { print round, variant, $4, $5, $6, $7, $8 }' | tee -a "$output"
    if [ -n "$floor" ]; then
        exec 8>&- 9<&-
        wait "$floor"
        floor=
    fi
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
columns = (0, 1, 3, 4)
beside = "bindfs" if "bindfs" in medians else next(iter(medians))
print(f"{'medians, us':46}" + "".join(f"{n:>17}" for n in names) + f"   (rate relative to {beside})")
for variant, m in medians.items():
    line = f"{variant:46}"
    for at in columns:
        line += f"{m[at] / files * 1e6:9.1f} ({medians[beside][at] / m[at]:5.2f}) "
    print(line, len(seconds[variant]), "rounds")
if "native" in medians:
    print(f"\n{'us more than native':46}" + "".join(f"{n:>17}" for n in names) + "   (multiples of floor:device)")
    more = {v: [m[at] - medians["native"][at] for at in columns] for v, m in medians.items() if v != "native"}
    for variant, m in more.items():
        is_awake = "awake" in variant.split(":")[-1].split(",")
        floor = more.get("floor:device,awake" if is_awake else "floor:device")
        times = [f"({x / f:5.2f}) " if floor else "" for x, f in zip(m, floor or m)]
        print(f"{variant:46}" + "".join(f"{x / files * 1e6:9.1f} {t}" for x, t in zip(m, times)))
END
