#!/usr/bin/env bash
# Speed of the hot paths of two builds, in turns: closed loops of Fstress over TCP and UDP with two mixes of calls, hits of
# the web-cache benchmark against an origin, PostMark on tmpfs. Prints for each row the median of the paired ratios after/before
# with its 95% interval (order statistics of the pairs, no assumption on their distribution).
#   scripts/compare-builds.sh --before PROGRAM [--after PROGRAM] [--pairs 20] [--rows 'tcp-null|udp-null|tcp-sfs97|udp-sfs97|hits|postmark']
# Servers (one null responder, one origin) are the first build's and stay the same for both sides.
set -euo pipefail
cd "$(dirname "$0")/.."
before='' after=${CARGO_TARGET_DIR:-target}/release/crumb pairs=20 rows='.*'
while (($#)); do
    case $1 in
    --before) before=$2 ;;
    --after) after=$2 ;;
    --pairs) pairs=$2 ;;
    --rows) rows=$2 ;;
    *) sed -n '2,7s/^# \?//p' "$0" >&2; exit 2 ;;
    esac
    shift 2
done
[ -x "$before" ] || { echo "--before: no program at '$before'" >&2; exit 2; }
work=$(mktemp -d) files=$(mktemp -d -p /dev/shm)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; rm -rf "$work" "$files"' EXIT

address() { # a server's first line -> HOST:PORT
    local line
    read -r -t 30 line <"$1"
    grep -oE '127\.0\.0\.1:[0-9]+' <<<"$line" | head -1
}
mkfifo "$work/null" "$work/origin"
"$before" serve null --listen 127.0.0.1:0 --pin 0 --spin >"$work/null" 2>&1 & pids+=($!)
null=$(address "$work/null")

fstress() { # PROGRAM PROTO MIX
    "$1" --quiet run fstress "nfs://$null/" --proto "$2" -w "$3" --rate max --outstanding 64 --warm 300ms --measure 1s \
        --files 1000 --file-size 64KiB --no-store --pin 1 --spin --json - 2>"$work/errors" || true
}
measure() { # ROW PROGRAM
    case $1 in
    tcp-* | udp-*) fstress "$2" "${1%%-*}" "${1#*-}" ;;
    hits) "$2" --quiet run webload --direct --origin "$origin" -w hits --objects 300 --object-size 2KB --connections 16 \
        --warm 300ms --measure 1500ms --no-store --pin 1 --json - 2>"$work/errors" || true ;;
    postmark) "$2" --quiet run postmark "$files" --number 20000 --transactions 40000 --no-store --json - 2>"$work/errors" || true ;;
    esac >"$work/record.json"
    # The first is that of the only level; of PostMark that of its transactions.
    local key=achieved_per_sec
    [ "$1" = postmark ] && key=transactions_per_sec
    sed -n "s/^ *\"$key\": \([0-9.]*\).*/\1/p" "$work/record.json" | head -1 | grep . || { cat "$work/errors" >&2; exit 1; }
}
for row in tcp-null udp-null tcp-sfs97 udp-sfs97 hits postmark; do
    [[ $row =~ ^($rows)$ ]] || continue
    if [ "$row" = hits ]; then
        # The null responder spins and would share the origin's processor.
        kill "${pids[@]}"; pids=()
        "$before" serve origin --listen 127.0.0.1:0 --pin 0 >"$work/origin" 2>&1 & pids+=($!)
        origin=$(address "$work/origin")
    elif [ "$row" = postmark ]; then
        kill "${pids[@]}" 2>/dev/null || true; pids=()
    fi
    for ((pair = 1; pair <= pairs; pair++)); do
        # Which side is first changes by pair, so that a drift meets both alike.
        if ((pair % 2)); then b=$(measure $row "$before") a=$(measure $row "$after")
        else a=$(measure $row "$after") b=$(measure $row "$before"); fi
        echo "$row $b $a"
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
