#!/usr/bin/env bash
# A day of a packed store that is nine tenths full of objects with a time to live, on an image in memory (root) or in a directory of yours:
#   scripts/measure-ttl.sh [FILESYSTEM|DIR]... [-- OPTION...]
# Two million puts of 10.6 KB on average, with one time to live and with four, interleaved with a bare loop that writes as many bytes:
# bytes written for each byte put, and how long puts take. PUTS=N changes their number, OBJECTS=N how many live at a time.
# ext4 unless another is named. All else is as with measure-pack.sh.
set -euo pipefail
cd "$(dirname "$0")"
[ $# -gt 0 ] || set -- ext4
places=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    places+=("$1") && shift
done
[ $# -eq 0 ] || shift
exec ./measure-pack.sh "${places[@]}" -- --law web --objects "${OBJECTS:-100000}" --ttl "${PUTS:-2000000}" "$@"
