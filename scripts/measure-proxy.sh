#!/usr/bin/env bash
# `crumb proxy` beside nginx, Traffic Server and Squid (rock) as reverse proxies, by the same traffic in turns (root): stores a
# second while a set is asked for once, hits a second from a disk, p99 of hits at half of that and at 4,000/s, stores of what is new,
# bytes written for each body byte, and what is served right after a stop and a kill.
#   scripts/measure-proxy.sh [--rounds N] [--objects N] [--measure TIME] [--dir DIR] [--core N] [NAME]...
#   scripts/measure-proxy.sh --polymix RATE,... [--cache-mb N] [--time-scale TIMES] [--dir DIR] [--core N] [NAME]...
# Defaults: 3 rounds, 150,000 objects of 10.7 KB, 10 s, images in /var/tmp; all that are installed of crumb nginx ats squid.
# --polymix: PolyMix-3 at these peaks instead, each on a new cache of 256 MB, with phases 240 times shorter than published.
# Each proxy has core N (0) for itself and a control group of 512 MiB, page cache included; origin and generator share the next
# core. Its cache is an ext4 image of its own, without the page cache of the file system below (direct I/O), and new each round.
# Debian: apt-get install nginx-light trafficserver squid jq. CRUMB=PROGRAM takes a program that is built already.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=3 objects=150000 measure=10s dir=/var/tmp core=0 peaks= cache_mb=4096 time_scale=240 names=() same_rate=4000
while [ $# -gt 0 ]; do
    case $1 in
        --rounds) rounds=$2 && shift ;; --objects) objects=$2 && shift ;; --measure) measure=$2 && shift ;;
        --dir) dir=$2 && shift ;; --core) core=$2 && shift ;;
        --polymix) peaks=${2//,/ } && [ "$cache_mb" != 4096 ] || cache_mb=256; shift ;;
        --cache-mb) cache_mb=$2 && shift ;; --time-scale) time_scale=$2 && shift ;;
        -*) sed -n '2,12s/^# \?//p' "$0" >&2 && exit 2 ;;
        *) names+=("$1") ;;
    esac
    shift
done
[ "$(id -u)" = 0 ] || { echo "images and control groups need root" >&2; exit 1; }
command -v jq >/dev/null || { echo "jq reads the records: apt-get install jq" >&2; exit 1; }
if [ -z "${CRUMB:-}" ]; then
    cargo build --release -q -p crumb
    CRUMB=${CARGO_TARGET_DIR:-target}/release/crumb
fi
crumb=$(realpath "$CRUMB")
group=/sys/fs/cgroup/memory/crumb-measure limit=memory.limit_in_bytes
[ -d /sys/fs/cgroup/memory ] || { group=/sys/fs/cgroup/crumb-measure limit=memory.max; }
work=$(mktemp -d -p "$dir" crumb-proxy.XXXXXX)
at=$work/at proxy=
clean_up() {
    stop KILL
    mountpoint -q "$at" && umount "$at"
    rm -rf "$work"
    rmdir "$group" 2>/dev/null || true
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir "$at"
# The others give up root.
chmod 755 "$work"
free_port() { # above $1: of those where nobody listens
    local port=$1
    while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
    echo "$port"
}
port=$(free_port 18080) origin=$(free_port $((port + 1)))

# Each makes what it needs once, before its first start on a new image.
prepare_crumb() { :; }
start_crumb() {
    exec "$crumb" --quiet proxy --cache "$at/store" --config "$work/crumb.toml"
}
prepare_nginx() { mkdir "$at/cache" && chown nobody "$at/cache"; }
start_nginx() { exec nginx -c "$work/nginx.conf"; }
prepare_squid() {
    mkdir "$at/cache" && chown proxy "$at/cache"
    squid -N -z -n "crumb$$" -f "$work/squid.conf" >"$work/said" 2>&1
}
start_squid() { exec squid -N -n "crumb$$" -f "$work/squid.conf"; }
prepare_ats() {
    mkdir -p "$at/cache" "$work/ats"
    chown -R trafficserver "$at/cache"
    [ -e "$work/ats/runroot.yaml" ] || traffic_layout init --path "$work/ats" --force >"$work/said" 2>&1
    chown -R trafficserver "$work/ats"
    local etc
    etc=$(sed -n 's/^sysconfdir: *//p' "$work/ats/runroot.yaml")
    cat >"$etc/records.config" <<END
CONFIG proxy.config.http.server_ports STRING $port:ip-in=127.0.0.1
CONFIG proxy.config.admin.user_id STRING trafficserver
CONFIG proxy.config.exec_thread.autoconfig INT 0
CONFIG proxy.config.exec_thread.limit INT 1
CONFIG proxy.config.cache.ram_cache.size INT 67108864
CONFIG proxy.config.cache.min_average_object_size INT 8000
CONFIG proxy.config.log.logging_enabled INT 0
CONFIG proxy.config.url_remap.remap_required INT 1
CONFIG proxy.config.http.insert_age_in_response INT 1
CONFIG proxy.config.http.cache.required_headers INT 0
END
    echo "map http://127.0.0.1:$port/ http://127.0.0.1:$origin/" >"$etc/remap.config"
    echo "$at/cache ${cache_mb}M" >"$etc/storage.config"
}
start_ats() { exec env TS_RUNROOT="$work/ats/runroot.yaml" traffic_server; }

cat >"$work/crumb.toml" <<END
[reverse]
listen = ["127.0.0.1:$port"]
[[site]]
hosts = ["*"]
origins = ["http://127.0.0.1:$origin"]
[cache]
size_mib = $cache_mb
END
cat >"$work/nginx.conf" <<END
daemon off;
user nobody nogroup;
worker_processes 1;
worker_rlimit_nofile 20000;
pid $work/nginx.pid;
error_log /dev/null crit;
events { worker_connections 8192; }
http {
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 100000000;
    proxy_cache_path $at/cache levels=2:2 keys_zone=z:64m max_size=${cache_mb}m inactive=1d use_temp_path=off;
    upstream origin { server 127.0.0.1:$origin; keepalive 64; keepalive_requests 100000000; }
    server {
        listen 127.0.0.1:$port backlog=4096;
        location / {
            proxy_pass http://origin;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_cache z;
            proxy_cache_valid 200 1d;
        }
    }
}
END
cat >"$work/squid.conf" <<END
http_port 127.0.0.1:$port accel defaultsite=127.0.0.1:$origin no-vhost
cache_peer 127.0.0.1 parent $origin 0 no-query no-digest originserver
cache_dir rock $at/cache $cache_mb
cache_mem 64 MB
maximum_object_size 4 MB
access_log none
cache_store_log none
cache_log $work/squid.log
pid_filename $work/squid.pid
coredump_dir $work
http_access allow all
max_filedescriptors 16384
END

start() { # name
    # A child of another shell, which does not tell of its end.
    proxy=$(
        (
            echo "$BASHPID" >"$group/cgroup.procs"
            taskset -pc "$core" "$BASHPID"
            "start_$1"
        ) >"$work/$1.log" 2>&1 </dev/null &
        echo $!
    )
    local tries
    for ((tries = 0; tries < 600; tries++)); do
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && return 0
        kill -0 "$proxy" 2>/dev/null || break
        sleep 0.05
    done
    echo "$1 does not start: $(tail -3 "$work/$1.log")" >&2
    return 1
}
stop() { # signal
    [ -n "$proxy" ] || return 0
    # A kill takes its workers too.
    [ "$1" = KILL ] && xargs -r kill -KILL <"$group/cgroup.procs" 2>/dev/null
    kill "-$1" "$proxy" 2>/dev/null || true
    while kill -0 "$proxy" 2>/dev/null; do sleep 0.02; done
    proxy=
}
load() { # record, options...
    taskset -c "$((core + 1))" "$crumb" --quiet run webload --target "http://127.0.0.1:$port" \
        --origin-listen "127.0.0.1:$origin" --objects "$objects" --watch "$proxy" --no-store --json "$1" "${@:2}" \
        >"$work/said" 2>&1 || [ $? = 3 ] || { cat "$work/said" >&2; return 1; }
}
fresh_image() {
    rm -f "$work/image"
    truncate -s 6G "$work/image"
    mkfs.ext4 -q -F -i 8192 -E lazy_itable_init=0 "$work/image"
    mount -o loop,nodiscard,noatime "$work/image" "$at"
    # Where the file system below lets it.
    losetup --direct-io=on "$(findmnt -no SOURCE "$at")" 2>/dev/null || true
}
turn() { # name, round
    local rate to=$work/$1.$2
    fresh_image
    "prepare_$1"
    start "$1"
    load "$to.hits" --workload hits --connections 64 --warm 5s --measure "$measure"
    rate=$(jq '.phases[-1].items_per_sec' "$to.hits")
    load "$to.half" --workload hits --no-fill --connections 64 --warm 2s --measure "$measure" \
        --rate "$(awk "BEGIN { print int($rate / 2) }")"
    load "$to.same" --workload hits --no-fill --connections 64 --warm 2s --measure "$measure" --rate "$same_rate"
    load "$to.stores" --workload stores --connections 64 --seed 7 --warm 2s --measure "$measure"
    stop TERM
    start "$1"
    load "$to.stopped" --workload hits --no-fill --connections 64 --warm 0s --measure 1s
    stop KILL
    start "$1"
    load "$to.killed" --workload hits --no-fill --connections 64 --warm 0s --measure 1s
    stop TERM
    umount "$at"
}
polymix() { # name, peak
    local to=$work/$1.$2.polymix
    fresh_image
    "prepare_$1"
    start "$1"
    taskset -c "$((core + 1))" "$crumb" --quiet run webload --target "http://127.0.0.1:$port" --workload polymix-3 \
        --origin-listen "127.0.0.1:$origin" --peak "$2" --cache-size "${cache_mb}MB" --time-scale "$time_scale" \
        --watch "$proxy" --no-store --json "$to" >"$work/said" 2>&1 || [ $? = 3 ] || { cat "$work/said" >&2; return 1; }
    kill -0 "$proxy" 2>/dev/null || printf '%s\t%s\tended under the load: killed for more memory than its 512 MiB?\n' "$1" "$2"
    stop TERM
    umount "$at"
    [ "$(jq .complete "$to")" = true ] || printf '%s\t%s\tcut short in %s\n' "$1" "$2" "$(jq -r '.phases[-1].name' "$to")"
    jq -r --arg name "$1" --arg peak "$2" '[.metrics | .requests_per_sec, .document_hit_percent, .document_hit_offered_percent, .byte_hit_percent,
        .response_mean_us / 1e3, .errors_percent, .false_replies, .proxy_cpu_a_request_us, .proxy_resident_bytes / 1e6]
        | map((. // 0) * 100 | round / 100 | tostring) | [$name, $peak] + . | join("\t")' "$to"
    jq -r 'select(.verdict.valid | not) | .verdict.reasons[] | select(.fatal) | "  not valid: " + .text' "$to"
}
mkdir -p "$group"
echo $((512 << 20)) >"$group/$limit"
wanted=("${names[@]}")
[ ${#wanted[@]} -gt 0 ] || wanted=(crumb nginx ats squid)
names=()
for name in "${wanted[@]}"; do
    case $name in crumb) program=$crumb ;; ats) program=traffic_server ;; *) program=$name ;; esac
    if command -v "$program" >/dev/null; then names+=("$name"); else echo "$name: left out, as it is not installed" >&2; fi
done
if [ -n "$peaks" ]; then
    printf 'PolyMix-3, a cache of %s MB, phases 1/%s as long\n' "$cache_mb" "$time_scale"
    printf 'proxy\tpeak\treq/s\thit%%\toffered\tbyte%%\tms\terror%%\tfalse\tus each\tMB\n'
    for peak in $peaks; do
        for name in "${names[@]}"; do polymix "$name" "$peak"; done
    done
    exit 0
fi
for ((round = 0; round < rounds; round++)); do
    for ((step = 0; step < ${#names[@]}; step++)); do turn "${names[(round + step) % ${#names[@]}]}" "$round"; done
done

median() { sort -g | awk '{ v[NR] = $1 } END { if (NR) printf "%.5g", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2; else printf "-" }'; }
row() { # title, kind of record, jq expression
    printf '%-34s' "$1"
    for name in "${names[@]}"; do
        printf '%12s' "$(for ((round = 0; round < rounds; round++)); do jq -r "$3" "$work/$name.$round.$2"; done | median)"
    done
    printf '\n'
}
printf '%s objects, %s rounds, %s a point; medians; %s\n' "$objects" "$rounds" "$measure" "$(uptime | sed 's/.*load/load/')"
printf '%-34s' ""
printf '%12s' "${names[@]}"
printf '\n'
row 'stores/s, each object once' hits '.phases[0].items_per_sec'
row 'stores/s, always new' stores '.phases[-1].items_per_sec'
row '  us of processor each' stores '.metrics.proxy_cpu_a_request_us'
row '  bytes written a body byte' stores '.metrics.proxy_written_a_body_byte'
row 'hits/s' hits '.phases[-1].items_per_sec'
row '  of all, %' hits '.metrics.document_hit_percent'
row '  us of processor each' hits '.metrics.proxy_cpu_a_request_us'
row '  resident, MB' hits '.metrics.proxy_resident_bytes / 1e6'
row 'at half of that: p50, ms' half '.metrics.response_p50_us / 1e3'
row '  p99, ms' half '.metrics.response_p99_us / 1e3'
row "at $same_rate/s: p50, ms" same '.metrics.response_p50_us / 1e3'
row '  p99, ms' same '.metrics.response_p99_us / 1e3'
row 'hits right after a stop, %' stopped '.metrics.document_hit_percent'
row 'hits right after a kill, %' killed '.metrics.document_hit_percent'
row 'errors and false replies' hits '.metrics.errors_percent + .metrics.false_replies'
doubtful=$(jq -r 'select(.verdict.valid | not) | input_filename as $f | ($f | split("/")[-1]) + ": " + (.verdict.reasons | map(.code) | join(", "))' \
    "$work"/*.[0-9]*.*)
[ -z "$doubtful" ] || printf 'not valid by their own verdict:\n%s\n' "$doubtful"
