#!/usr/bin/env bash
# Makes a page of every benchmark from small runs with the standard seeds, in memory.
#   run.sh CRUMB DIRECTORY_FOR_PAGES [PAGE...]      (as root, for mounts; without names: all pages)
set -euo pipefail
crumb=$(realpath "$1") pages=$2
shift 2
[ $# -gt 0 ] || set -- fstress postmark netnews dirscale webload shootout overhead sensitivity two four
mkdir -p "$pages"
pages=$(realpath "$pages")
work=$(mktemp -d -p /dev/shm crumb-pages.XXXXXX)
export XDG_DATA_HOME=$work/store
servers=()
finish() {
    umount "$work/at" "$work/d" 2>/dev/null || true
    for server in "${servers[@]}"; do kill "$server" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
mkdir "$work/a" "$work/b" "$work/c" "$work/d" "$work/below" "$work/at"
# Starts a server and sets at (host and port) once it says where it listens.
serve() {
    "$crumb" "$@" >"$work/said" 2>&1 &
    servers+=($!)
    at=
    for _ in $(seq 100); do
        at=$(grep -soE '127\.0\.0\.1:[0-9]+' "$work/said" | head -1) && [ -n "$at" ] && return
        sleep 0.1
    done
    cat "$work/said" >&2
    return 1
}
# A busy machine makes a run INVALID (3), which its page shows.
run() { "$crumb" --quiet run "$@" >/dev/null 2>"$work/error" || [ $? -eq 3 ] || { cat "$work/error" >&2; return 1; }; }
cat >"$work/chains.toml" <<'TOML'
about = "Mail with chains: files are made, read and cut in several requests."
[sizes]
file = "8KiB"
read = "4KiB"
write = "4KiB"
[mix]
lookup = 30
getattr = 20
read = 20
remove = 10
[chains]
create-write-commit = 10
lookup-read-read = 8
lookup-truncate-write = 2
[scale]
files_min = 500
TOML
for page in "$@"; do
    echo "$page"
    case $page in
    fstress)
        serve serve dir "$work/a" --listen 127.0.0.1:0
        run fstress "nfs://$at/" --workload "$work/chains.toml" --rate 500,1000,2000,4000 --files 500 --warm 500ms --measure 3s --report "$pages/fstress.html"
        ;;
    postmark) run postmark "$work/b" --number 3000 --transactions 20000 --threads 2 --report "$pages/postmark.html" ;;
    netnews) run netnews "$work/c" --quick --articles 6000 --report "$pages/netnews.html" ;;
    dirscale)
        # Directories without an index, in which layouts pay.
        truncate -s 512M "$work/image"
        mkfs.ext4 -q -O ^dir_index -E lazy_itable_init=0,lazy_journal_init=0 "$work/image"
        mount -o loop "$work/image" "$work/d"
        run dirscale "$work/d" --quick --sizes 512,2048,8192 --layout flat,345,34/56 --report "$pages/dirscale.html"
        umount "$work/d"
        ;;
    webload)
        serve serve origin --listen 127.0.0.1:0
        origin=$at
        serve proxy --cache "$work/cache" --listen 127.0.0.1:0
        run webload --quick --proxy "http://$at" --origin "$origin" --report "$pages/webload.html"
        ;;
    shootout) run shootout "memory=$work/a" "other=$work/b" "third=$work/c" --quick --only mail,postmark,netnews --rounds 2 --report "$pages/shootout.html" ;;
    overhead)
        "$crumb" mount "$work/below" "$work/at" --daemon --no-store >/dev/null
        run overhead "$work/below" "$work/at" --quick --report "$pages/overhead.html"
        umount "$work/at"
        ;;
    sensitivity)
        serve serve null --listen 127.0.0.1:0
        run fstress "nfs://$at/" --rate 500 --vary memory-hit=0..1/0.25 --lines disk-hit=0,0.5,1 --files 500 --warm 200ms --measure 1s --report "$pages/sensitivity.html" --svg "$pages/sensitivity.svg"
        ;;
    two) run postmark "$work/a" --number 500 --transactions 3000 --vs "$work/b" --repeat 5 --report "$pages/two.html" ;;
    four) run netnews "$work/a" --quick --articles 1500 --passes 3 --retention 1 --vs rm=dumbrm --vs readers=2 --vs "$work/b" --repeat 3 --report "$pages/four.html" ;;
    esac
done
