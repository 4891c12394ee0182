#!/usr/bin/env bash
# Capacity of one generator: Crumb's closed loop beside a bare loop and libnfs, interleaved in one run, against the same
# `crumb serve null`; libnfs at its best depth of 16, 64 and 256. Generator and responder pinned to a processor each,
# both spinning. Medians of several rounds.
#   scripts/bench-capacity.sh [ROUNDS] [SECONDS] [OUTSTANDING]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5} seconds=${2:-2} outstanding=${3:-64}
target=${CARGO_TARGET_DIR:-target}
cargo build --release -q -p crumb
bare=$(cargo bench -q -p nfs --bench bare_loop --no-run --message-format=json 2>/dev/null |
    sed -n 's/.*"executable":"\([^"]*bare_loop[^"]*\)".*/\1/p' | tail -1)
crumb=$target/release/crumb
work=$(mktemp -d)
server=
trap '[ -n "$server" ] && kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

coproc SERVER { exec "$crumb" serve null --listen 127.0.0.1:0 --pin 0 --spin 2>&1; }
server=$SERVER_PID
read -r -u "${SERVER[0]}" ready
url=$(grep -o 'nfs://[^ ]*' <<<"$ready")
addr=${url#nfs://} addr=${addr%/}

libnfs=
if command -v cc >/dev/null && [ -e /usr/include/nfsc/libnfs.h ]; then
    cc -O2 -o "$work/libnfs_bench" crates/nfs/benches/libnfs/libnfs_bench.c -lnfs && libnfs=$work/libnfs_bench
else
    echo "libnfs-dev is not installed: no comparison with libnfs" >&2
fi

generator() { # proto, workload, flags...
    local proto=$1 workload=$2 status=0
    shift 2
    "$crumb" --quiet run fstress "$url" --proto "$proto" -w "$workload" --rate max --outstanding "$outstanding" \
        --warm 300ms --measure "${seconds}s" --files 1000 --file-size 64KiB --no-store --pin 1 --spin --json - "$@" \
        >"$work/record.json" || status=$?
    sed -n 's/^ *"achieved_per_sec": \([0-9.]*\).*/\1/p' "$work/record.json" | head -1
}
for ((round = 1; round <= rounds; round++)); do
    for proto in tcp udp; do
        for workload in null sfs97; do
            loop=$("$bare" --bench --addr "$addr" --proto "$proto" --mix "$workload" --outstanding "$outstanding" \
                --seconds "$seconds" --cpu 1 --who bare-spinning | grep -oE '[0-9]+ calls/s' | head -1 | cut -d' ' -f1)
            echo "$proto $workload bare $loop"
            echo "$proto $workload crumb $(generator "$proto" "$workload")"
            if [ -n "$libnfs" ] && [ "$proto" = tcp ]; then
                host=${addr%:*} port=${addr##*:}
                best=$(taskset -c 1 "$libnfs" "nfs://$host/x?version=3&nfsport=$port&mountport=$port" "$workload" \
                    "$seconds" 16 64 256 | grep -oE '[0-9]+ (calls)?/s' | cut -d' ' -f1 | sort -n | tail -1)
                echo "$proto $workload libnfs $best"
            fi
        done
    done
done | tee "$work/figures"
echo
echo "medians of $rounds rounds of $seconds s, $outstanding outstanding, calls a second:"
awk '
    function median(list,   a, n, i, j, t) {
        n = split(list, a, " ")
        for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j] + 0 < a[j - 1] + 0; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
        return n ? a[int((n + 1) / 2)] : 0
    }
    { key = $1 " " $2; all[key " " $3] = all[key " " $3] " " $4; keys[key] }
    END {
        for (key in keys) {
            bare = median(all[key " bare"]); crumb = median(all[key " crumb"]); libnfs = median(all[key " libnfs"])
            printf "  %-10s bare %9d  crumb %9d (%.2f of bare)", key, bare, crumb, bare ? crumb / bare : 0
            if (libnfs) printf "  libnfs %8d (crumb %.1f times)", libnfs, crumb / libnfs
            print ""
        }
    }' "$work/figures"
