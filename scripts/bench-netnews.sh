#!/usr/bin/env bash
# Unbatch beside the bare system calls and beside INN 2.7.1 (traditional spool), in turns, on an ext4 loop image in
# memory without discard: 30,000 articles of 2.5 kB as the peers were measured with, and the 10,000 real ones of 1993
# where they are. Prints each run, medians, ratios with their intervals, and unbatch's own share.
#   scripts/bench-netnews.sh [ROUNDS] [ARTICLES]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-7} articles=${2:-30000}
real=../shared/data/usenet-1993.tar.zst
[ "$(id -u)" = 0 ] || { echo "an image of its own needs root; cargo bench -p netnews does without" >&2; exit 1; }
bench=$(cargo bench -q -p netnews --bench unbatch --no-run --message-format=json 2>/dev/null |
    sed -n 's/.*"executable":"\([^"]*unbatch[^"]*\)".*/\1/p' | tail -1)
. scripts/image-for-inn.sh

in_turns() {
    # In the background and waited for: a signal that comes to this script alone is heard at once.
    "$bench" --bench --dir "$work/ext4" --rounds "$rounds" "${rivals[@]}" "$@" &
    running=$!
    wait "$running"
    running=
}

rivals=(--timed)
scripts/test-packages.sh
target=${CARGO_TARGET_DIR:-target}
if [ -x /usr/lib/news/bin/innd ] || [ -x "$target/inn/usr/lib/news/bin/innd" ]; then
    rivals+=(--inn)
else
    echo "INN is not there: unbatch beside the bare calls alone" >&2
fi
in_turns --articles "$articles"
if [ -e "$real" ] && command -v zstd >/dev/null; then
    cargo build --release -q -p crumb
    mkdir "$work/articles"
    zstd -dc --long=27 "$real" | tar -x -C "$work/articles"
    "$target/release/crumb" --quiet feed import "$work/articles" -o "$work/feed" >/dev/null
    rm -rf "$work/articles"
    echo
    echo "real articles:"
    in_turns --feed "$work/feed"
fi
