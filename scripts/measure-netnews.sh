#!/usr/bin/env bash
# One feed on every kind of storage that this machine has: ext4 with and without its directory index, XFS, btrfs, tmpfs,
# NFS (nfs-ganesha over ext4, spoken to by Crumb's own client), history here and there; files deleted by dumbrm and by
# fastrm. Each run is one `crumb run netnews`, on a file system made for it, in turns; all records land in DIR/runs.db and
# DIR/*.json, and DIR/report.html draws them (figure 2: a bar each).
#   scripts/measure-netnews.sh DIR [--quick] [--articles N] [--passes N] [--retention N] [--rounds N] [--image SIZE]
#                                  [--only 'NAME …'] [--rm 'fastrm dumbrm'] [--history-index memory|file]
# Names: ext4 ext4-linear xfs btrfs tmpfs nfs nfs-history-local ext4-history-nfs. Defaults: 60,000 articles in 14 passes
# that keep 6, 1 round, images of 6G (sparse, in /dev/shm). Needs root; what is not installed is left out, and said so.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { sed -n '2,10s/^# *//p' "$0" >&2; exit 2; }
out=$1
shift
articles=60000 passes=14 retention=6 batch_every=3 rounds=1 image=6G removals="fastrm dumbrm" extra=()
only="ext4 ext4-linear xfs btrfs tmpfs nfs nfs-history-local ext4-history-nfs"
while [ $# -gt 0 ]; do
    case $1 in
        --quick) articles=3000 passes=4 retention=2 batch_every=2 image=1G ;;
        --articles | --passes | --retention | --rounds | --image | --only | --rm | --history-index)
            [ $# -ge 2 ] || { echo "$1 wants a value" >&2; exit 2; }
            case $1 in
                --articles) articles=$2 ;; --passes) passes=$2 ;; --retention) retention=$2 ;; --rounds) rounds=$2 ;;
                --image) image=$2 ;; --only) only=$2 ;; --rm) removals=$2 ;;
                --history-index) extra=(--history-index "$2") ;;
            esac
            shift ;;
        *) echo "$1: no such option; see the head of $0" >&2; exit 2 ;;
    esac
    shift
done
[ "$(id -u)" = 0 ] || { echo "mounting needs root" >&2; exit 1; }
if [ -z "${CRUMB:-}" ]; then
    cargo build --release -q -p crumb
    CRUMB=${CARGO_TARGET_DIR:-target}/release/crumb
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")" crumb-measure.XXXXXX)
crumb= ganesha= rpcbind=

stop() { # process id
    kill "$1" 2>/dev/null || return 0
    for _ in {1..100}; do
        kill -0 "$1" 2>/dev/null || return 0
        sleep 0.1
    done
    kill -9 "$1" 2>/dev/null || true
}
unmount() { # all that is mounted below the work folder, and its images
    if [ -n "$ganesha" ]; then
        stop "$ganesha"
        wait "$ganesha" 2>/dev/null || true
        ganesha=
    fi
    local place
    for place in ext4 ext4-linear xfs btrfs tmpfs export local; do
        if mountpoint -q "$work/$place"; then
            umount "$work/$place" || umount -l "$work/$place"
        fi
        rm -f "$work/$place.image"
    done
}
clean_up() {
    if [ -n "$crumb" ]; then
        stop "$crumb"
    fi
    unmount
    if [ -n "$rpcbind" ]; then
        stop "$rpcbind"
    fi
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

on_image() { # place, type, flags of mkfs; a file system made anew in memory and mounted without discard
    local place=$1 type=$2
    shift 2
    mkdir -p "$work/$place"
    truncate -s "$image" "$work/$place.image"
    "mkfs.$type" -q "$@" "$work/$place.image" >"$work/said" 2>&1 || { cat "$work/said" >&2; return 1; }
    mount -t "$type" -o loop,nodiscard "$work/$place.image" "$work/$place"
}
free_port() { # below the range that the kernel hands out by itself
    local port
    while :; do
        port=$((20000 + RANDOM % 10000))
        (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
    done
}
nfs_port=$(free_port) mount_port=$(free_port) nlm_port=$(free_port) rquota_port=$(free_port)
nfs_url="nfs://127.0.0.1:$nfs_port/vfs?mountport=$mount_port"
serve() { # nfs-ganesha over $work/export
    local plugins
    plugins=$(ls -d /usr/lib/*/ganesha 2>/dev/null | head -1)
    mkdir -p /run/ganesha "$work/recovery/v4recov" "$work/recovery/v4old"
    if ! (: <>/dev/tcp/127.0.0.1/111) 2>/dev/null; then
        rpcbind -f -w -h 127.0.0.2 2>/dev/null &
        rpcbind=$!
    fi
    cat >"$work/ganesha.conf" <<END
NFS_CORE_PARAM { Protocols = 3; NFS_Port = $nfs_port; MNT_Port = $mount_port; NLM_Port = $nlm_port;
  Rquota_Port = $rquota_port; Bind_addr = 127.0.0.1; Enable_UDP = true; Enable_NLM = false; Enable_RQUOTA = false;
  Plugins_Dir = "${plugins:-/usr/lib/ganesha}"; mount_path_pseudo = true; }
NFSv4 { RecoveryBackend = fs; RecoveryRoot = "$work/recovery"; Graceless = true; Grace_Period = 0; }
EXPORT_DEFAULTS { Access_Type = RW; Squash = No_Root_Squash; SecType = sys, none; Transports = UDP, TCP; Protocols = 3; }
EXPORT { Export_Id = 1; Path = "$work/export"; Pseudo = "/vfs"; FSAL { Name = VFS; } }
MDCACHE { Entries_HWMark = 500000; LRU_Run_Interval = 5; FD_HWMark_Percent = 50; FD_LWMark_Percent = 20; }
LOG { Default_Log_Level = EVENT; }
END
    rm -f "$work/ganesha.log"
    ganesha.nfsd -F -f "$work/ganesha.conf" -L "$work/ganesha.log" -p "$work/ganesha.pid" -N NIV_EVENT >/dev/null 2>&1 &
    ganesha=$!
    for _ in {1..300}; do
        if grep -q 'NFS SERVER INITIALIZED' "$work/ganesha.log" 2>/dev/null; then
            return
        fi
        kill -0 "$ganesha" 2>/dev/null || break
        sleep 0.1
    done
    echo "nfs-ganesha did not start:" >&2
    tail -3 "$work/ganesha.log" >&2 || true
    return 1
}
needs() { # name; why it cannot be measured here, nothing when it can
    local program
    case $1 in
        xfs) program=mkfs.xfs ;; btrfs) program=mkfs.btrfs ;; tmpfs) program=mount ;;
        *nfs*) program=ganesha.nfsd ;; *) program=mkfs.ext4 ;;
    esac
    command -v "$program" >/dev/null || [ -x "/sbin/$program" ] || echo "$program is not installed"
}
prepare() { # name; sets target and flags
    flags=()
    case $1 in
        ext4) on_image ext4 ext4 -F && target=$work/ext4 ;;
        ext4-linear) on_image ext4-linear ext4 -F -O ^dir_index && target=$work/ext4-linear ;;
        xfs) on_image xfs xfs && target=$work/xfs ;;
        btrfs) on_image btrfs btrfs && target=$work/btrfs ;;
        tmpfs) mkdir -p "$work/tmpfs" && mount -t tmpfs -o "size=$image" none "$work/tmpfs" && target=$work/tmpfs ;;
        nfs) on_image export ext4 -F && serve && target=$nfs_url ;;
        nfs-history-local)
            on_image export ext4 -F && on_image local ext4 -F && serve && target=$nfs_url
            flags=(--history "$work/local") ;;
        ext4-history-nfs)
            on_image ext4 ext4 -F && on_image export ext4 -F && serve && target=$work/ext4
            flags=(--history "$nfs_url") ;;
        *) echo "$1: no such storage; see the head of $0" >&2; return 2 ;;
    esac
}
measure() { # round, name, removal
    local status=0 record="$out/$2-$3-$1.json"
    prepare "$2"
    "$CRUMB" --quiet --store "$out/runs.db" run netnews "$target" "${flags[@]}" "${extra[@]}" --rm "$3" \
        --feed "$work/feed" --passes "$passes" --retention "$retention" --batch-every "$batch_every" \
        --label "$2, $3" --json "$record" >"$work/said" 2>&1 &
    # In the background and waited for: a signal that comes to this script alone is heard at once.
    crumb=$!
    wait "$crumb" || status=$?
    crumb=
    unmount
    # 3 says that the verdict is INVALID, which the report explains.
    if [ $status -ne 0 ] && [ $status -ne 3 ]; then
        cat "$work/said" >&2
        return $status
    fi
    records+=("$record")
    line "$record" "$2" "$3" | tee -a "$out/figures"
}
line() { # record, name, removal
    sed -n 's/^ *"\([a-z_]*\)": \([-0-9.e]*\),\{0,1\}$/\1 \2/p' "$1" | awk -v name="$2" -v rm="$3" '
        { value[$1] = $2 }
        END { printf "%-18s %-6s  %8.0f articles/s (%5.1f us user %6.1f us kernel)  last pass %5.1f%%  batch %8.0f/s  delete %8.0f/s\n",
            name, rm, value["unbatch_articles_per_sec"], value["unbatch_user_us_per_article"],
            value["unbatch_sys_us_per_article"], value["ageing_percent"], value["batch_articles_per_sec"],
            value["expire_files_per_sec"] }'
}

"$CRUMB" --quiet feed synthesize --articles "$articles" --seed 1 -o "$work/feed" >/dev/null
: >"$out/figures"
records=() plan=()
for name in $only; do
    why=$(needs "$name")
    if [ -n "$why" ]; then
        echo "$name left out: $why" >&2
        continue
    fi
    for removal in $removals; do
        # Where history lies does not touch how articles are deleted.
        case $name in *history*) [ "$removal" = "${removals%% *}" ] || continue ;; esac
        plan+=("$name $removal")
    done
done
echo "$articles articles, $passes passes that keep $retention, $rounds rounds of ${#plan[@]} runs"
for ((round = 1; round <= rounds; round++)); do
    for ((at = 0; at < ${#plan[@]}; at++)); do
        # Forth and back, so that what drifts in the machine hits all alike.
        turn=$((round % 2 ? at : ${#plan[@]} - 1 - at))
        measure "$round" ${plan[turn]}
    done
done
"$CRUMB" --quiet report "${records[@]}" -o "$out/report.html" --title "One feed on every storage"
echo "$out/report.html"
