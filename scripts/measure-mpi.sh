#!/usr/bin/env bash
# What many ranks as one cost, on this machine: how far apart 4 ranks begin their load points and how long it takes from one
# point to the next; 2 ranks beside as much without MPI, interleaved, medians; adding up the parts of 1,000 ranks.
#   scripts/measure-mpi.sh [ROUNDS] [SECONDS] [POINTS]
# BIN=DIRECTORY has crumb, crumb-mpi and loops (its example), when they are not to be built here; CRUMB_MPIRUN is another
# name of mpirun. 2 ranks, of one generating thread each, stand beside one process of 2 such threads (`loops`) against
# `crumb serve null`, and with PostMark beside `--threads 2` on a directory in memory.
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
    cargo build --release -q -p crumb-mpi --features mpi --bin crumb-mpi --example loops
    mkdir -p "$target/measure-mpi"
    ln -sf ../release/crumb ../release/crumb-mpi ../release/examples/loops "$target/measure-mpi"
    bin=$target/measure-mpi
fi
crumb=$bin/crumb crumb_mpi=$bin/crumb-mpi loops=$bin/loops
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
sweep() { # points, flags...
    local last=$((199 + $1))
    shift
    quietly "$mpirun" -n 4 "$crumb_mpi" "$@" run fstress "$url" -w null --rate "200..$last/1" --warm 100ms \
        --measure 300ms --no-store --json "$work/sweep.json"
}
# By what each rank says of itself in the record, and not by a line that it would write at that very moment: on one host the
# launcher, which reads it, would hold up the others. To the worse side of what the clocks are known to.
sweep "$points" --quiet
awk -F '[:,]' '
    /"start_skew_us"/ { skew = $2 }
    /"clock_uncertainty_us"/ { off = $2 }
    /"start_skew_us"|"clock_uncertainty_us"/ && ++seen % 2 == 0 {
        late = skew + off; early = skew - off
        if (++of_point == 1 || late > last) last = late
        if (of_point == 1 || early < first) first = early
        if (of_point == 4) { print last - first; of_point = 0 }
    }' "$work/sweep.json" | sort -n | awk '
    { of[NR] = $1 }
    function at(share,   n) { n = int(NR * share + 0.999999); return of[n < 1 ? 1 : n] }
    END { printf "  begins apart: median %.0f us, p99 %.0f us, largest %.0f us\n", at(0.5), at(0.99), at(1) }'
sweep 20 -vv
sed -n 's/.*a load point begins rank=0 unix_ns=\([0-9]*\).*/\1/p' "$work/said" |
    awk 'before { print ($1 - before) / 1e6 - 400 } { before = $1 }' | sort -n | awk '
    { of[NR] = $1 }
    END { printf "  from the end of an interval to the next begin: median %.0f ms, largest %.0f ms\n", of[int((NR + 1) / 2)], of[NR] }'

rate_of() { # file, name of the figure
    sed -n "s/^ *\"$2\": \([0-9.]*\).*/\1/p" "$1" | head -1
}
closed_loop=(run fstress "$url" -w null --rate max --warm 300ms --measure "${seconds}s" --no-store)
postmark=(run postmark "$work/files" --number 2000 --transactions "$((20000 * seconds))" --no-store)
mkdir "$work/files"
for ((round = 1; round <= rounds; round++)); do
    quietly "$mpirun" -n 2 "$crumb_mpi" --quiet "${closed_loop[@]}" --outstanding 64 --json "$work/ranks.json"
    echo "null ranks $(rate_of "$work/ranks.json" achieved_per_sec)"
    # By mpirun as well: Linux shares processors out by session (autogroup), and in that of this script is the server.
    echo "null without $("$mpirun" -n 1 "$loops" "$url" 2 64 "$seconds")"
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
    { all[$1 " " $2] = all[$1 " " $2] " " $3; keys[$1] }
    END {
        for (key in keys) {
            ranks = median(all[key " ranks"]); without = median(all[key " without"])
            printf "  %-8s ranks %9d  without %9d  %.3f\n", key, ranks, without, without ? ranks / without : 0
        }
    }' "$work/figures"

echo "== the parts of 1,000 ranks, 20 load points"
CRUMB_MERGE_RANKS=1000 CRUMB_MERGE_POINTS=20 cargo test --release -q -p fstress --lib the_parts_of_many_ranks -- --nocapture 2>&1 |
    grep -E 'points of|test result|panicked'
