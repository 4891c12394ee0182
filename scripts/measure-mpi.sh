#!/usr/bin/env bash
# What many ranks as one cost, on this machine: how far apart 4 ranks begin their load points and how long it takes from one
# point to the next; 2 ranks beside as much without MPI, interleaved, medians; adding up the parts of 1,000 ranks.
#   scripts/measure-mpi.sh [ROUNDS] [SECONDS] [POINTS]
# BIN=DIRECTORY has crumb and crumb-mpi, when they are not to be built here; CRUMB_MPIRUN is another name of mpirun.
# fstress generates with one thread a process: 2 ranks stand beside 2 processes of `crumb` at the same time, against
# `crumb serve null`; PostMark has threads: 2 ranks stand beside `--threads 2`, on a directory in memory.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5} seconds=${2:-5} points=${3:-100}
export NO_COLOR=1
target=${CARGO_TARGET_DIR:-target}
mpirun=${CRUMB_MPIRUN:-mpirun}
bin=${BIN:-$target/release}
if [ -z "${BIN:-}" ]; then
    cargo build --release -q -p crumb
    make -s mpi
fi
crumb=$bin/crumb crumb_mpi=$bin/crumb-mpi
work=$(mktemp -d -p /dev/shm crumb-mpi.XXXXXX 2>/dev/null || mktemp -d)
server=
trap '[ -n "$server" ] && kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

coproc SERVER { exec "$crumb" serve null --listen 127.0.0.1:0 2>&1; }
server=$SERVER_PID
read -r -u "${SERVER[0]}" ready
url=$(grep -o 'nfs://[^ ]*' <<<"$ready")

quietly() { # what it says only if it fails; 3: INVALID, as on a machine with fewer cores than ranks
    local status=0
    "$@" >"$work/said" 2>&1 || status=$?
    [ "$status" = 0 ] || [ "$status" = 3 ] || { cat "$work/said" >&2 && exit 1; }
}

echo "== $points load points on 4 ranks"
quietly "$mpirun" -n 4 "$crumb_mpi" -vv run fstress "$url" -w null --rate "200..$((199 + points))/1" --warm 100ms \
    --measure 300ms --no-store
sed -n 's/.*a load point begins rank=\([0-9]*\) unix_ns=\([0-9]*\).*/\1 \2/p' "$work/said" >"$work/begins"
awk '
    { point = ++seen[$1]; if (!(point in first) || $2 < first[point]) first[point] = $2; if ($2 > last[point]) last[point] = $2 }
    END {
        for (point = 1; point in first; point++) {
            print "skew", (last[point] - first[point]) / 1e3
            if (point > 1) print "between", (first[point] - first[point - 1]) / 1e6 - 400
        }
    }' "$work/begins" | sort -k1,1 -k2,2n | awk '
    { count[$1]++; of[$1, count[$1]] = $2 }
    function at(name, share,   n) { n = int(count[name] * share + 0.999999); return of[name, n < 1 ? 1 : n] }
    END {
        printf "  begins apart: median %.1f us, p99 %.1f us, largest %.1f us\n", at("skew", 0.5), at("skew", 0.99), at("skew", 1)
        printf "  from the end of an interval to the next begin: median %.0f ms, p99 %.0f ms\n", at("between", 0.5), at("between", 0.99)
    }'

rate_of() { # file, name of the figure
    sed -n "s/^ *\"$2\": \([0-9.]*\).*/\1/p" "$1" | head -1
}
closed_loop=(run fstress "$url" -w null --rate max --warm 300ms --measure "${seconds}s" --no-store)
postmark=(run postmark "$work/files" --number 2000 --transactions "$((20000 * seconds))" --no-store)
mkdir "$work/files"
for ((round = 1; round <= rounds; round++)); do
    quietly "$mpirun" -n 2 "$crumb_mpi" --quiet "${closed_loop[@]}" --outstanding 64 --json "$work/ranks.json"
    echo "null ranks $(rate_of "$work/ranks.json" achieved_per_sec)"
    "$crumb" --quiet "${closed_loop[@]}" --outstanding 32 --json "$work/a.json" >/dev/null 2>&1 &
    other=$!
    "$crumb" --quiet "${closed_loop[@]}" --outstanding 32 --json "$work/b.json" >/dev/null 2>&1 || true
    wait "$other" || true
    echo "null without $(rate_of "$work/a.json" achieved_per_sec) $(rate_of "$work/b.json" achieved_per_sec)"
    quietly "$mpirun" -n 2 "$crumb_mpi" --quiet "${postmark[@]}" --json "$work/ranks.json"
    echo "postmark ranks $(rate_of "$work/ranks.json" transactions_per_sec)"
    quietly "$crumb" --quiet "${postmark[@]}" --threads 2 --json "$work/a.json"
    echo "postmark without $(rate_of "$work/a.json" transactions_per_sec)"
done >"$work/figures"
echo "== 2 ranks beside as much without MPI, a second, medians of $rounds rounds"
awk '
    function median(list,   a, n, i, j, t) {
        n = split(list, a, " ")
        for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j] + 0 < a[j - 1] + 0; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
        return n ? a[int((n + 1) / 2)] : 0
    }
    { all[$1 " " $2] = all[$1 " " $2] " " ($3 + $4); keys[$1] }
    END {
        for (key in keys) {
            ranks = median(all[key " ranks"]); without = median(all[key " without"])
            printf "  %-8s ranks %9d  without %9d  %.3f\n", key, ranks, without, without ? ranks / without : 0
        }
    }' "$work/figures"

echo "== the parts of 1,000 ranks, 20 load points"
CRUMB_MERGE_RANKS=1000 CRUMB_MERGE_POINTS=20 cargo test --release -q -p fstress --lib the_parts_of_many_ranks -- --nocapture 2>&1 |
    grep -E 'points of|test result|panicked'
