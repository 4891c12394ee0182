#!/usr/bin/env bash
# A news server on `crumb mount` for a week: a feed whose busiest groups are called alt.2600, alt.autos.porsche.944 and
# alt.autos.porsche (numbers among numbers) is stored, fed on and expired; these groups are managed after the first pass,
# offline, as an administrator would. Then every file is held against its feed through the mount and, made plain again,
# below it, and the hidden levels are checked. Ends with 1 when anything is not as it should be.
#   scripts/soak-netnews-mount.sh [ARTICLES] [PASSES]        defaults: 300000 14
# Needs root and /dev/fuse; an ext4 image of 4G (sparse, in /dev/shm). Takes minutes. CRUMB=PROGRAM takes that program.
set -euo pipefail
cd "$(dirname "$0")/.."
articles=${1:-300000} passes=${2:-14}
[ "$(id -u)" = 0 ] || { echo "mounting needs root" >&2; exit 1; }
if [ -z "${CRUMB:-}" ]; then
    cargo build --release -q -p crumb
    CRUMB=${CARGO_TARGET_DIR:-target}/release/crumb
fi
crumb=$(realpath "$CRUMB")
work=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")" crumb-soak.XXXXXX)
clean_up() {
    mountpoint -q "$work/at" && "$crumb" --quiet unmount --lazy "$work/at"
    mountpoint -q "$work/lower" && { umount "$work/lower" || umount -l "$work/lower"; }
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
export CRUMB_STORE=$work/runs.db LC_ALL=C
say() { printf '%-44s %s\n' "$1" "$2"; }
timed() { # words, command...
    local words=$1 begun=$EPOCHREALTIME status=0
    shift
    "$@" >"$work/said" 2>&1 || status=$?
    # 3 says that a run's figures are not to be trusted, which a soak is not about.
    [ $status = 0 ] || [ $status = 3 ] || { cat "$work/said" >&2; echo "$words: failed with $status" >&2; exit 1; }
    say "$words" "$(awk "BEGIN { printf \"%.1f s\", $EPOCHREALTIME - $begun }")"
}

"$crumb" --quiet feed synthesize --articles "$articles" --seed 1 -o "$work/made" >/dev/null
# The three groups that most articles name, first of all.
mapfile -t busy < <(awk '/^#! rnews/ { head = 1; next } head && /^Newsgroups: / { split($2, g, ","); count[g[1]]++; head = 0 }
    END { for (name in count) print count[name], name }' "$work"/made/*.rnews | sort -rn | head -3 | cut -d' ' -f2)
names=(alt.2600 alt.autos.porsche.944 alt.autos.porsche)
cat >"$work/rename.awk" <<'E2'
function out() { if (size) { printf "#! rnews %d\n%s", length(text), text } text = ""; left = 0 }
BEGIN { n = split(from, f, " "); split(to, t, " "); for (i = 1; i <= n; i++) new[f[i]] = t[i] }
left <= 0 && /^#! rnews / { out(); size = left = $3; head = 1; next }
{
    left -= length($0) + 1
    if (head && /^(Newsgroups|Control|Supersedes): /) {
        m = split($2, g, ","); list = ""
        for (i = 1; i <= m; i++) list = list (i > 1 ? "," : "") (g[i] in new ? new[g[i]] : g[i])
        if ($1 == "Newsgroups:") $0 = $1 " " list
    }
    if ($0 == "") head = 0
    text = text $0 "\n"
}
END { out() }
E2
mkdir "$work/batches"
awk -v from="${busy[*]}" -v to="${names[*]}" -f "$work/rename.awk" "$work"/made/*.rnews >"$work/batches/all.rnews"
rm -rf "$work/made"
"$crumb" --quiet feed import --order path "$work/batches" -o "$work/feed" >"$work/said"
rm -rf "$work/batches"
grep '^Articles' "$work/said" || true

mkdir "$work/lower" "$work/at"
truncate -s 4G "$work/image"
mkfs.ext4 -q -F "$work/image"
mount -o loop,nodiscard "$work/image" "$work/lower"
spool=crumb-netnews-soak
mount_it() { "$crumb" mount "$work/lower" "$work/at" --daemon --exclusive --log "$work/log"; }
unmount_it() { "$crumb" --quiet unmount "$work/at"; }
run() { # pass to end with, --keep or --resume
    "$crumb" run netnews "$work/at" --feed "$work/feed" --passes "$1" --retention $((passes > 6 ? 6 : 2)) --batch-every 3 \
        --batches-per-pass "$per_pass" "$2" soak --label "soak" --json "$work/record.json"
}
batches=$(find "$work/feed" -name '*.rnews*' | wc -l)
per_pass=$((batches / passes))
groups=$work/lower/$spool/articles
# From the leaves up: a managed group's sub-groups lie a level deeper.
managed=("$groups/alt/autos/porsche/944" "$groups/alt/autos/porsche" "$groups/alt/2600" "$groups/alt")

mount_it
timed "pass 1, nothing managed" run 1 --keep
unmount_it
timed "manage ${#managed[@]} groups" "$crumb" manage "${managed[@]}"
mount_it
timed "passes 2 to $passes, ${#managed[@]} groups managed" run "$passes" --resume
grep -E '^(Articles stored|Ageing|Verdict)' "$work/said" || true
timed "verify through the mount, against the feed" "$crumb" feed verify "$work/at/$spool" --feed "$work/feed"
grep -iE 'articles|verdict' "$work/said" || true
"$crumb" mount --stats "$work/at" >"$work/census"
unmount_it
timed "check the hidden levels" "$crumb" check "$work/lower"
grep -E '^(Managed|Entries|Verdict)' "$work/said"
for group in alt/260/2600 alt/aaa/autos/porsche alt/aaa/autos/porsche/094/944; do
    files=$(find "$groups/$group" -maxdepth 2 -type f | wc -l)
    say "  articles in $group" "$files, in $(find "$groups/$group" -mindepth 1 -maxdepth 1 -type d | wc -l) subdirectories"
done
timed "unmanage" "$crumb" unmanage "$groups/alt" "$groups/alt/autos/porsche" "$groups/alt/autos/porsche/944" \
    "$groups/alt/2600"
timed "verify below, without the mount" "$crumb" feed verify "$work/lower/$spool" --feed "$work/feed"
if grep -q ERROR "$work/log"; then
    echo "the daemon said:" >&2
    cat "$work/log" >&2
    exit 1
fi
echo
cat "$work/census"
