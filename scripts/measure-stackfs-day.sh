#!/usr/bin/env bash
# Reserve capacity, figure 7 of the Usenetfs paper: how long does a build of a C package take on a machine that stores news
# at the same time, its huge groups flat, or managed behind `crumb mount`? Both begin together; the news is the same amount
# of articles each time, so that what managed groups save is left to the build. Groups are filled beforehand; the file
# system is ext4 with linear directories (-O ^dir_index), one image for each side, in its first state again before each
# turn. Sides in turns, forth and back.
#   scripts/measure-stackfs-day.sh [--rounds N] [--groups N] [--files N] [--articles N] [--index]
# Defaults: 3 rounds, 6 groups of 50,000 files, 40,000 articles; --index: with dir_index. Needs root; images in /dev/shm.
# PACKAGE=DIRECTORY builds another package (configure, make) than jemalloc's library, whose sources come with the crate
# tikv-jemalloc-sys.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=3 groups=6 files=50000 articles=40000 index='^dir_index'
while [ $# -gt 0 ]; do
    case $1 in
        --rounds) rounds=$2 && shift ;; --groups) groups=$2 && shift ;; --files) files=$2 && shift ;;
        --articles) articles=$2 && shift ;; --index) index=dir_index ;;
        *) echo "$1: no such option; see the head of $0" >&2; exit 2 ;;
    esac
    shift
done
[ "$(id -u)" = 0 ] || { echo "mounting needs root" >&2; exit 1; }
if [ -z "${CRUMB:-}" ]; then
    cargo build --release -q -p crumb
    CRUMB=${CARGO_TARGET_DIR:-target}/release/crumb
fi
crumb=$(realpath "$CRUMB")
work=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")" crumb-day.XXXXXX)
news=
clean_up() {
    [ -z "$news" ] || kill "$news" 2>/dev/null || true
    leave
    rm -rf "$work"
}
leave() {
    [ -z "$news" ] || wait "$news" 2>/dev/null || true
    news=
    findmnt -n -o FSTYPE "$work/lower" | grep -q fuse && "$crumb" --quiet unmount --lazy "$work/lower"
    # A daemon lets go of what is below a moment after its own end.
    mountpoint -q "$work/lower" &&
        { umount "$work/lower" 2>/dev/null || { sleep 0.3 && umount "$work/lower"; } || umount -l "$work/lower"; }
    return 0
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
export CRUMB_STORE=$work/runs.db LC_ALL=C
mkdir "$work/lower" "$work/build"

package=${PACKAGE:-} made=
if [ -z "$package" ]; then
    made=build_lib_static
    mkdir "$work/fetch"
    printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2024"\n[lib]\npath = "lib.rs"\n[dependencies]\ntikv-jemalloc-sys = "=0.6.1"\n[workspace]\n' \
        >"$work/fetch/Cargo.toml"
    : >"$work/fetch/lib.rs"
    (cd "$work/fetch" && cargo vendor -q vendor >/dev/null 2>&1) || { echo "no package to build: PACKAGE=DIRECTORY" >&2; exit 1; }
    package=$work/fetch/vendor/tikv-jemalloc-sys/jemalloc
    cp "$package/../configure/configure" "$package/configure"
fi
# With its times: make would build configure again.
cp -a "$package" "$work/build/package"
(cd "$work/build/package" && CFLAGS=-O1 sh ./configure >"$work/said" 2>&1) || { tail -5 "$work/said" >&2; exit 1; }
build() {
    make -C "$work/build/package" clean >"$work/made" 2>&1 || { tail -5 "$work/made" >&2; exit 1; }
    # shellcheck disable=SC2086 # none or one
    make -C "$work/build/package" -j"$(nproc)" $made >"$work/made" 2>&1 || { tail -5 "$work/made" >&2; exit 1; }
}

# Three passes of as many articles, which go to the groups in turn. The first makes the groups, before they are filled; the others store
# all the articles that were asked for, and delete as many.
mkdir "$work/batches"
awk -v articles=$((articles * 3 / 2)) -v groups="$groups" 'BEGIN {
    body = ""; for (i = 0; i < 25; i++) body = body "This line of an article is as long as most lines of articles are.\n"
    for (n = 0; n < articles; n++) {
        text = sprintf("Path: a.example!b\nFrom: c@b.example\nNewsgroups: day.group%d\nSubject: %d\nMessage-ID: <%d@b.example>\nDate: 13 Aug 1995 22:46:48 GMT\nLines: 25\n\n%s", n % groups, n, n, body)
        printf "#! rnews %d\n%s", length(text), text
    } }' >"$work/batches/all.rnews"
"$crumb" --quiet feed import --order path --batch-articles $((articles / 2)) "$work/batches" -o "$work/feed" >/dev/null
# Keeps a spool named day in "$work/spool", its articles below "$work/lower".
news() { # passes, further options
    "$crumb" --quiet run netnews "$work/spool" --feed "$work/feed" --place "day.*=$work/lower" --batches-per-pass 1 --passes "$1" \
        --retention 1 --batch-every 0 --no-store "${@:2}" >"$work/news" 2>&1 || [ $? = 3 ]
}

# Filled with an index, which is then taken away: filling linear directories takes the square of their size.
full=$work/lower/crumb-netnews-day/articles/day
truncate -s 3G "$work/flat.image"
mkfs.ext4 -q -F -N $((groups * files + 100000)) -O dir_index "$work/flat.image"
mount -o loop,nodiscard "$work/flat.image" "$work/lower"
mkdir "$work/spool"
news 1 --keep day || { cat "$work/news" >&2; exit 1; }
mv "$work/spool" "$work/begun"
for ((group = 0; group < groups; group++)); do
    # Numbers far above those that the run gives.
    (cd "$full/group$group" && seq 1000001 $((1000000 + files)) | xargs touch)
done
umount "$work/lower"
cp --sparse=always "$work/flat.image" "$work/managed.image"
mount -o loop,nodiscard "$work/managed.image" "$work/lower"
"$crumb" --quiet manage "$full"/group* >/dev/null
umount "$work/lower"
for side in flat managed; do
    # tune2fs wants it checked; 1 says that something small was put right, such as the count of free blocks.
    e2fsck -fy "$work/$side.image" >"$work/said" 2>&1 || [ $? = 1 ] || { cat "$work/said" >&2; exit 1; }
    tune2fs -O "$index" "$work/$side.image" >"$work/said" 2>&1 || { cat "$work/said" >&2; exit 1; }
done

seconds() { awk "BEGIN { printf \"%.2f\", $EPOCHREALTIME - $1 }"; }
turn() { # side
    local begun
    if [ "$1" != alone ]; then
        cp --sparse=always "$work/$1.image" "$work/image"
        mount -o loop,nodiscard "$work/image" "$work/lower"
        if [ "$1" = managed ]; then
            "$crumb" mount "$work/lower" "$work/lower" --daemon --exclusive --awake
        fi
        cp -a "$work/begun" "$work/spool"
    fi
    begun=$EPOCHREALTIME
    if [ "$1" != alone ]; then
        { news 3 --resume day && seconds "$begun" >"$work/news.s"; } &
        news=$!
    fi
    build
    built[$1]+="$(seconds "$begun") "
    if [ -n "$news" ]; then
        wait "$news" || { cat "$work/news" >&2; exit 1; }
        news=
        stored[$1]+="$(cat "$work/news.s") "
    fi
    leave
    rm -rf "$work/image" "$work/spool"
}
declare -A built=() stored=()
sides=(alone flat managed)
build # once, so that compiler and sources are in memory
for ((round = 0; round < rounds; round++)); do
    for ((at = 0; at < 3; at++)); do turn "${sides[round % 2 ? 2 - at : at]}"; done
done
median() { tr ' ' '\n' <<<"$1" | grep . | sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
echo "$groups groups of $files files on ext4 -O $index; $articles articles stored and as many deleted beside each build; $(uptime | sed 's/.*load/load/')"
printf '%-24s %10s   %s\n' "" "median" "each round"
printf '%-24s %8s s   %s\n' "build alone" "$(median "${built[alone]}")" "${built[alone]}"
for side in flat managed; do
    printf '%-24s %8s s   %s\n' "build, groups $side" "$(median "${built[$side]}")" "${built[$side]}"
    printf '%-24s %8s s   %s\n' "  news done after" "$(median "${stored[$side]}")" "${stored[$side]}"
done
awk -v flat="$(median "${built[flat]}")" -v managed="$(median "${built[managed]}")" -v alone="$(median "${built[alone]}")" 'BEGIN {
    printf "managed groups make the build %.0f%% faster (the paper: 22%%); what news costs it: %+.1f s flat, %+.1f s managed\n",
        100 * (flat / managed - 1), flat - alone, managed - alone }'
