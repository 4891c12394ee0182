#!/usr/bin/env bash
# What `crumb mount` costs by the requests that it saves: beside the tree below, in rounds that turn (root).
#   scripts/bench-requests.sh DIR [PART…]
# DIR is an empty directory on the storage to be measured; what is made in it is removed. A PART is one of
#   count   requests for create + write + close, cold stat, open + read + close, unlink, by options (as the mount counts them)
#   walk    warm stat in a walk of WALK files (default 1000000), default options, against below
#   warm    -o no-open --exclusive: open + read + close of FILES files (10000), and find -ls of ten times as many, against below
#   clients four programs at once, default options: create, stat, read, unlink; with -o nowatch; and with the build BEFORE, if named
# Without any, all of them. CRUMB=PROGRAM takes a built program, ROUNDS=N (default 5) sets their number. Each line of a round has the
# part, the side, the operation and microseconds a file; at the end, medians and ratios to below.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,11s/^# \?//p' "$0" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "mounts of root are measured: run it as root" >&2; exit 1; }
crumb=${CRUMB:-$(dirname "$0")/../target/release/crumb}
rounds=${ROUNDS:-5} files=${FILES:-10000} walk=${WALK:-1000000}
dir=$(realpath "$1")
shift
parts=("$@")
[ $# -gt 0 ] || parts=(count walk warm clients)
[ -z "$(ls -A "$dir" | grep -vx lost+found)" ] || { echo "$dir is not empty" >&2; exit 1; }
work=$(mktemp -d -p /tmp crumb-requests.XXXXXX)
tree=$dir/tree at=$work/at
mkdir "$tree" "$at"
unmounted() {
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        mountpoint -q "$at" || return 0
        umount "$at" 2>/dev/null || sleep 0.3
    done
    umount -l "$at"
}
trap 'unmounted; rm -rf "$work" "$tree"' EXIT

# An operation on D directories of F files each: microseconds a file.
cat >"$work/files.c" <<'C'
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
static void fail(const char *what) { perror(what); exit(1); }
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}
int main(int argc, char **argv) { /* OPERATION ROOT DIRECTORIES FILES PREFIX */
    long directories = atol(argv[3]), files = atol(argv[4]);
    static char path[256], bytes[2048];
    struct stat is;
    if (argc != 6 || chdir(argv[2])) fail(argv[2]);
    double begun = now();
    for (long d = 0; d < directories; d++) {
        snprintf(path, sizeof path, "%s%ld", argv[5], d);
        if (argv[1][0] == 'c' && mkdir(path, 0755)) fail(path);
        for (long f = 0; f < files; f++) {
            snprintf(path, sizeof path, "%s%ld/%ld", argv[5], d, f);
            int fd;
            switch (argv[1][0]) {
            case 'c':
                fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
                if (fd < 0 || write(fd, bytes, sizeof bytes) != sizeof bytes || close(fd)) fail(path);
                break;
            case 's':
                if (stat(path, &is) || is.st_size != sizeof bytes) fail(path);
                break;
            case 'r':
                fd = open(path, O_RDONLY);
                if (fd < 0 || read(fd, bytes, sizeof bytes) != sizeof bytes || close(fd)) fail(path);
                break;
            default:
                if (unlink(path)) fail(path);
            }
        }
        snprintf(path, sizeof path, "%s%ld", argv[5], d);
        if (argv[1][0] == 'u' && rmdir(path)) fail(path);
    }
    printf("%.3f\n", (now() - begun) / (directories * files));
    return 0;
}
C
cc -O2 -o "$work/files" "$work/files.c"

mounted() { # options; the mount before may still be ending
    for _ in 1 2 3 4 5 6 7 8 9; do
        ! "$crumb" mount "$tree" "$at" --daemon --no-store -o "defaults,$1" 2>/dev/null || return 0
        sleep 0.3
    done
    "$crumb" mount "$tree" "$at" --daemon --no-store -o "defaults,$1"
}
line() { echo "$*" | tee -a "$work/lines"; }
timed() { # part, side, operation, root, directories, files
    line "$1 $2 $3 $("$work/files" "$3" "$4" "$5" "$6" d)"
}
sides() { # part, operation, directories, files: both in turns, one first in every second round
    for round in $(seq "$rounds"); do
        if ((round % 2)); then order=("below $tree" "mount $at"); else order=("mount $at" "below $tree"); fi
        for side in "${order[@]}"; do timed "$1" "${side% *}" "$2" "${side#* }" "$3" "$4"; done
    done
}

requests() { "$crumb" mount --stats "$at" --prometheus | sed -n 's/.*seconds_count{operation="\(.*\)"} /\1 /p' |
    awk '$1 !~ /^(release|releasedir|forget)$/ { all += $2 } END { print all + 0 }'; }
count() {
    local n=1000 before after
    for options in rw noxattr owner_only,noxattr no-open no-open,exclusive; do
        mounted "$options"
        for operation in create read unlink-made; do
            # Twice for a reading, and not at once: what is read for the first time is asked for, and what was just written soon again.
            [ $operation != read ] || { sleep 1.1; "$work/files" read "$at" 1 $n d >/dev/null; }
            before=$(requests)
            "$work/files" "${operation%-made}" "$at" 1 $n d >/dev/null
            after=$(requests)
            line "count $options $operation $(awk "BEGIN { printf \"%.2f\", ($after - $before) / $n }")"
        done
        unmounted
        "$work/files" create "$tree" 1 $n d >/dev/null
        mounted "$options"
        before=$(requests)
        "$work/files" stat "$at" 1 $n d >/dev/null
        line "count $options stat-cold $(awk "BEGIN { printf \"%.2f\", ($(requests) - $before) / $n }")"
        unmounted
        "$work/files" unlink "$tree" 1 $n d >/dev/null
    done
}
walk() {
    "$work/files" create "$tree" 100 $((walk / 100)) d >/dev/null
    mounted rw
    "$work/files" stat "$at" 100 $((walk / 100)) d >/dev/null
    sides walk stat 100 $((walk / 100))
    unmounted
    "$work/files" unlink "$tree" 100 $((walk / 100)) d >/dev/null
}
found() { # part, side, root, files
    local begun
    begun=$(date +%s%N)
    find "$3" -ls >/dev/null
    line "$1 $2 find $(awk "BEGIN { printf \"%.3f\", ($(date +%s%N) - $begun) / 1000 / $4 }")"
}
warm() {
    "$work/files" create "$tree" 100 $((files / 10)) d >/dev/null
    mounted no-open,exclusive
    for _ in 1 2 3; do found warming up "$at" $((files * 10)); done >/dev/null
    for _ in 1 2; do "$work/files" read "$at" 10 $((files / 10)) d >/dev/null; done
    sides warm read 10 $((files / 10))
    # Reading has changed times of access, which find asks for once more.
    find "$at" -ls >/dev/null
    for _ in $(seq "$rounds"); do
        found warm below "$tree" $((files * 10))
        found warm mount "$at" $((files * 10))
    done
    unmounted
    "$work/files" unlink "$tree" 100 $((files / 10)) d >/dev/null
}
four() { # side, root
    local operation begun pids
    for operation in create stat read unlink; do
        begun=$(date +%s%N) pids=()
        for client in 1 2 3 4; do
            "$work/files" $operation "$2" 4 $((files / 16)) "c$client-" >/dev/null &
            pids+=($!)
        done
        wait "${pids[@]}"
        line "clients $1 $operation $(awk "BEGIN { printf \"%.3f\", ($(date +%s%N) - $begun) / 1000 / ($files / 16 * 16) }")"
    done
}
clients() {
    for _ in $(seq "$rounds"); do
        four below "$tree"
        for options in rw nowatch; do
            mounted $options
            four "mount($options)" "$at"
            unmounted
        done
        [ -n "${BEFORE:-}" ] || continue
        crumb=$BEFORE mounted rw
        four "mount(before)" "$at"
        unmounted
    done
}
for part in "${parts[@]}"; do "$part"; done
echo
awk '{ key = $1 " " $2 " " $3; if (!(key in n)) keys[++all] = key; value[key, ++n[key]] = $4 }
function median(key,    count, i, j, held, sorted) {
    count = n[key]
    for (i = 1; i <= count; i++) sorted[i] = value[key, i]
    for (i = 1; i <= count; i++) for (j = i + 1; j <= count; j++)
        if (sorted[j] < sorted[i]) { held = sorted[i]; sorted[i] = sorted[j]; sorted[j] = held }
    return count % 2 ? sorted[(count + 1) / 2] : (sorted[count / 2] + sorted[count / 2 + 1]) / 2
}
END {
    for (i = 1; i <= all; i++) {
        split(keys[i], of, " ")
        below = of[1] " below " of[3]
        ratio = (below in n) && of[2] != "below" ? sprintf("  rate %.2f of below", median(below) / median(keys[i])) : ""
        printf "%-40s median %10.3f of %d%s\n", keys[i], median(keys[i]), n[keys[i]], ratio
    }
}' "$work/lines"
