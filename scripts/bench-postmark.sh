#!/usr/bin/env bash
# `crumb postmark` beside Debian's postmark: the same commands, interleaved, on tmpfs and (as root) on an ext4 loop image
# without discard. The settings are those of the 2001 comparison. Prints each pair and the medians of the ratios.
#   scripts/bench-postmark.sh [PAIRS] [TRANSACTIONS]
set -euo pipefail
cd "$(dirname "$0")/.."
pairs=${1:-10} transactions=${2:-100000}
command -v postmark >/dev/null || { echo "postmark is not installed (Debian: apt-get install postmark)" >&2; exit 1; }
cargo build --release -q -p crumb
crumb=${CARGO_TARGET_DIR:-target}/release/crumb
work=$(mktemp -d -p /dev/shm crumb-bench.XXXXXX)
trap 'mountpoint -q "$work/ext4" && umount "$work/ext4"; rm -rf "$work"' EXIT
mkdir "$work/tmpfs"
places=("$work/tmpfs")
if [ "$(id -u)" = 0 ]; then
    mkdir "$work/ext4"
    truncate -s 4G "$work/image"
    mkfs.ext4 -q -F "$work/image" && mount -o loop,nodiscard "$work/image" "$work/ext4" && places+=("$work/ext4")
else
    echo "not root: no loop image, tmpfs only" >&2
fi

TIMEFORMAT='%R %U %S'
run() { # program, place; prints wall, user and system seconds
    printf 'set location %s\nset size 10240 20480\nset transactions %s\nset subdirectories 10\nset number 10000\nrun\nquit\n' \
        "$2" "$transactions" >"$work/commands"
    { time $1 <"$work/commands" >"$work/out" 2>&1; } 2>&1
}
for place in "${places[@]}"; do
    name=$(basename "$place")
    for ((pair = 1; pair <= pairs; pair++)); do
        if ((pair % 2)); then
            theirs=$(run postmark "$place") ours=$(run "$crumb postmark" "$place")
        else
            ours=$(run "$crumb postmark" "$place") theirs=$(run postmark "$place")
        fi
        echo "$name $pair $theirs $ours"
    done
done | tee "$work/figures" |
    awk '{ printf "%-6s pair %2d  debian %6.2f s (%5.2f user, %5.2f sys)  crumb %6.2f s (%5.2f user, %5.2f sys)\n", $1, $2, $3, $4, $5, $6, $7, $8 }'
echo
echo "medians of $pairs pairs, crumb divided by debian:"
awk '
    function median(list,   a, n, i, j, t) {
        n = split(list, a, " ")
        for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j] + 0 < a[j - 1] + 0; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
        return n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2
    }
    { wall[$1] = wall[$1] " " $6 / $3; user[$1] = user[$1] " " $7 / $4; cpu[$1] = cpu[$1] " " ($7 + $8) / ($4 + $5) }
    END { for (place in wall) printf "%-6s wall %.3f  user CPU %.3f  all CPU %.3f\n", place, median(wall[place]), median(user[place]), median(cpu[place]) }
' "$work/figures" | sort
