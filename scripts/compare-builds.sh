#!/usr/bin/env bash
# Speed of the hot paths of two builds, in turns: closed loops of Fstress over TCP and UDP with two mixes of calls, hits of
# the web-cache benchmark against an origin, PostMark on tmpfs; the proxy's hits and stores, puts, gets and misses of the packed
# store, all on tmpfs. Prints for each row the median of the paired ratios after/before with its 95% interval (order
# statistics of the pairs, no assumption on their distribution).
#   scripts/compare-builds.sh --before PROGRAM [--after PROGRAM] [--pairs 20] [--rows 'tcp-null|udp-null|tcp-sfs97|udp-sfs97|
#       hits|postmark|proxy-hits|proxy-stores|pack'], an extended regular expression; `pack` has three rows
# Servers (one null responder, one origin) and the proxy's clients are the first build's and stay the same for both sides.
set -euo pipefail
cd "$(dirname "$0")/.."
before='' after=${CARGO_TARGET_DIR:-target}/release/crumb pairs=20 rows='.*'
while (($#)); do
    case $1 in
    --before) before=$2 ;;
    --after) after=$2 ;;
    --pairs) pairs=$2 ;;
    --rows) rows=$2 ;;
    *) sed -n '2,9s/^# \?//p' "$0" >&2; exit 2 ;;
    esac
    shift 2
done
[ -x "$before" ] || { echo "--before: no program at '$before'" >&2; exit 2; }
work=$(mktemp -d) files=$(mktemp -d -p /dev/shm)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; rm -rf "$work" "$files"' EXIT

address() { # what a server prints -> HOST:PORT
    local line
    while read -r -t 30 line; do
        grep -oE '127\.0\.0\.1:[0-9]+' <<<"$line" | head -1 | grep . && return
    done <"$1"
}
mkfifo "$work/null" "$work/origin"
"$before" serve null --listen 127.0.0.1:0 --pin 0 --spin >"$work/null" 2>&1 & pids+=($!)
null=$(address "$work/null")

fstress() { # PROGRAM PROTO MIX
    "$1" --quiet run fstress "nfs://$null/" --proto "$2" -w "$3" --rate max --outstanding 64 --warm 300ms --measure 1s \
        --files 1000 --file-size 64KiB --no-store --pin 1 --spin --json - 2>"$work/errors" || true
}
proxy() { # PROGRAM WORKLOAD: a proxy of its own for each measurement, on an empty cache
    local id to
    rm -rf "$files/cache" "$work/proxy"; mkfifo "$work/proxy"
    taskset -c 0 "$1" proxy --cache "$files/cache" --listen 127.0.0.1:0 --set access.internal=\"allow\" >"$work/proxy" 2>&1 & id=$!
    to=$(address "$work/proxy")
    cat "$work/proxy" >/dev/null & # what else it says
    taskset -c 1 "$before" --quiet run webload --proxy "http://$to" -w "$2" --objects 3000 --connections 64 \
        --warm 300ms --measure 1500ms --no-store --json - 2>"$work/errors" || true
    kill "$id"; wait "$id" 2>/dev/null || true
}
measure() { # ROW PROGRAM
    case $1 in
    tcp-* | udp-*) fstress "$2" "${1%%-*}" "${1#*-}" ;;
    hits) "$2" --quiet run webload --direct --origin "$origin" -w hits --objects 300 --object-size 2KB --connections 16 \
        --warm 300ms --measure 1500ms --no-store --pin 1 --json - 2>"$work/errors" || true ;;
    proxy-*) proxy "$2" "${1#*-}" ;;
    pack) mkdir -p "$files/pack" && "$2" --quiet pack bench "$files/pack" --objects 100000 --mean 1KB --rounds 1 --json ;;
    postmark) "$2" --quiet run postmark "$files" --number 20000 --transactions 40000 --no-store --json - 2>"$work/errors" || true ;;
    esac >"$work/record.json"
    # The first achieved rate is that of the only level; of PostMark it is that of the transactions. Of the proxy the last phase
    # counts, after the one that fills; of `pack bench` three figures of the packed side, which comes after that of plain files: get
    # again (left out), get, miss, put.
    local key=achieved_per_sec which=1p
    case $1 in
    postmark) key=transactions_per_sec ;;
    proxy-*) key=items_per_sec which='$p' ;;
    pack) sed -i '1,/"packed"/d' "$work/record.json"; key=median which=2,4p ;;
    esac
    sed -n "s/^ *\"$key\": \([0-9.]*\).*/\1/p" "$work/record.json" | sed -n "$which" | grep . || { cat "$work/errors" >&2; exit 1; }
}
for row in tcp-null udp-null tcp-sfs97 udp-sfs97 hits postmark proxy-hits proxy-stores pack; do
    [[ $row =~ ^($rows)$ ]] || continue
    if [ "$row" = hits ]; then
        # The null responder spins and would share the origin's processor.
        kill "${pids[@]}"; pids=()
        "$before" serve origin --listen 127.0.0.1:0 --pin 0 >"$work/origin" 2>&1 & pids+=($!)
        origin=$(address "$work/origin")
    elif [ ${#pids[@]} -gt 0 ] && ! [[ $row =~ ^(tcp|udp)- ]]; then
        kill "${pids[@]}" 2>/dev/null || true; pids=()
    fi
    for ((pair = 1; pair <= pairs; pair++)); do
        # Which side is first changes by pair, so that a drift meets both alike.
        if ((pair % 2)); then b=$(measure $row "$before") a=$(measure $row "$after")
        else a=$(measure $row "$after") b=$(measure $row "$before"); fi
        names=$row
        [ "$row" = pack ] && names=$'pack-get\npack-miss\npack-put'
        paste -d ' ' <(echo "$names") <(echo "$b") <(echo "$a")
    done
done | tee "$work/figures"
echo
echo "row, pairs, median before, median after, median ratio, 95% interval of it"
awk '
    function sort(list, n,   i, j, t) {
        for (i = 2; i <= n; i++) for (j = i; j > 1 && list[j] < list[j - 1]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
    }
    function median(list, n) { return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2 }
    # The largest k for which at most 2.5% of binomial(n, 1/2) lie below: ranks k and n + 1 - k bound the median.
    function rank(n,   k, p, sum) {
        p = 0.5 ^ n; sum = p
        for (k = 1; sum + p * (n - k + 1) / k <= 0.025; k++) { p = p * (n - k + 1) / k; sum += p }
        return k
    }
    { n = ++count[$1]; before[$1, n] = $2; after[$1, n] = $3; if (n == 1) order[++rows] = $1 }
    END {
        for (i = 1; i <= rows; i++) {
            row = order[i]; n = count[row]
            for (k = 1; k <= n; k++) { b[k] = before[row, k]; a[k] = after[row, k]; r[k] = a[k] / b[k] }
            sort(b, n); sort(a, n); sort(r, n); k = n < 6 ? 1 : rank(n)
            printf "%-10s %3d %10.0f %10.0f  %.3f  %.3f to %.3f\n", row, n, median(b, n), median(a, n), median(r, n), r[k], r[n + 1 - k]
        }
    }' "$work/figures"
