#!/usr/bin/env bash
# Two minutes of everything at once for `crumb proxy`: two proxies that are each other's sibling (ICP), one of them with a cache
# that is too small, under hits, stores and PolyMix with every reply checked, while clients leave early or read slowly, the
# configuration is read again, URLs are purged and banned, and noise comes by UDP. Then everything must be as it was: no
# connection, fill or waiting byte, no more sockets and threads than before, no more memory than after the first half, and an
# end within seconds. Ends with 1 when anything is not so.
#   scripts/soak-proxy.sh [SECONDS]        default: 120
# Needs curl and jq. CRUMB=PROGRAM takes that program.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-120}
for program in curl jq; do
    command -v "$program" >/dev/null || { echo "skipped: $program is not installed" >&2; exit 0; }
done
if [ -z "${CRUMB:-}" ]; then
    cargo build --release -q -p crumb
    CRUMB=${CARGO_TARGET_DIR:-target}/release/crumb
fi
crumb=$(realpath "$CRUMB")
work=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")" crumb-soak.XXXXXX)
started=()
clean_up() {
    local one
    for one in "${started[@]}"; do kill "$one" 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
export LC_ALL=C
failed=0
say() { printf '%-44s %s\n' "$1" "$2"; }
wrong() { echo "WRONG: $*" >&2; failed=1; }

base=$((20000 + RANDOM % 10000))
configure() { # name, number of its ports, other's
    local http=$((base + $2)) icp=$((base + $2 + 1)) admin=$((base + $2 + 2)) other=$((base + $3))
    cat >"$work/$1.toml" <<END
[proxy]
name = "$1"
loops = 4
drain_s = 30
[forward]
listen = ["127.0.0.1:$http"]
[cache]
directories = ["$work/$1.cache"]
size_mib = 128
memory_mib = 16
[limits]
idle_s = 3
stall_s = 10
[upstream]
idle_s = 2
[prefetch]
enabled = true
[icp]
listen = "127.0.0.1:$icp"
[admin]
listen = "127.0.0.1:$admin"
[log]
file = "$work/$1.log"
rotate_mib = 4
keep = 1
[[sibling]]
address = "127.0.0.1:$other"
icp_port = $((other + 1))
END
}
start() { # name; its process into `process`
    "$crumb" proxy --config "$work/$1.toml" >"$work/$1.out" 2>&1 &
    process=$!
    started+=("$process")
    local tries
    for ((tries = 0; tries < 200; tries++)); do
        grep -q '^ready' "$work/$1.out" && return 0
        kill -0 "$process" 2>/dev/null || break
        sleep 0.05
    done
    cat "$work/$1.out" >&2
    exit 1
}
figure() { curl -s "127.0.0.1:$1/status.json" | jq ".$2"; }
# The administration's own connection is no client's.
sockets() { find "/proc/$1/fd" -lname 'socket:*' | wc -l; }
# The kernel's own, by which a ring reads from a file system that knows no other way (tmpfs), are not the program's.
thread_names() { cat "/proc/$1"/task/*/comm | grep -v '^iou-wrk' | sort; }
threads() { thread_names "$1" | wc -l; }
kernel_threads() { cat "/proc/$1"/task/*/comm | grep -c '^iou-wrk' || true; }
memory_kib() { awk '/^VmRSS/ { print $2 }' "/proc/$1/status"; }

# One origin for both, so that each can have what the other wants.
origin=127.0.0.1:$((base + 20))
"$crumb" --quiet serve origin --listen "$origin" >"$work/origin.out" 2>&1 &
started+=("$!")
configure one 0 10
configure two 10 0
start one
one=$process
start two
two=$process
proxy=127.0.0.1:$base admin=$((base + 2)) icp=$((base + 1)) admin_two=$((base + 12))
sockets_before=$(sockets "$one") threads_before=$(threads "$one")
thread_names "$one" >"$work/threads"

half() { # number, seconds
    local loads=() load name seed=$1
    run() { # name, options...
        "$crumb" --quiet run webload --no-store --json "$work/$1.$seed" --seed "$seed" "${@:2}" >"$work/$1.$seed.said" 2>&1 &
        loads+=("$!:$1")
        started+=("$!")
    }
    run hits --proxy "http://$proxy" --origin "$origin" --workload hits --objects 2000 --connections 16 --rate 400 --warm 1s --measure "$2s"
    run stores --proxy "http://$proxy" --workload stores --connections 16 --rate 400 --warm 1s --measure "$2s"
    run other --proxy "http://127.0.0.1:$((base + 10))" --origin "$origin" --workload hits --objects 2000 --connections 8 --rate 200 --warm 1s --measure "$2s"
    run polymix --proxy "http://$proxy" --workload polymix-4 --peak 100 --cache-size 2MB --time-scale "$((3600 * 12 / $2))"
    local until=$((SECONDS + $2)) round=0 urls=()
    while ((SECONDS < until)); do
        round=$((round + 1))
        mapfile -t urls < <(tail -n 200 "$work/one.log" 2>/dev/null | awk '$6 == "GET" && $7 ~ /^http/ { print $7 }' | tail -n 6)
        kill -HUP "$one"
        # Clients that leave, and one that reads slowly.
        for url in "${urls[@]}"; do curl -s -o "$work/left" --max-time 0.01 -x "http://$proxy" "$url" || true; done
        [ ${#urls[@]} = 0 ] || curl -s -o "$work/slow" --limit-rate 3k --max-time 2 -x "http://$proxy" "${urls[0]}" || true
        # What is asked for next is fetched, or had from the sibling.
        [ ${#urls[@]} -lt 3 ] || curl -s -o "$work/said" -X PURGE -x "http://$proxy" "${urls[1]}"
        [ ${#urls[@]} -lt 3 ] || curl -s -o "$work/said" -X POST "127.0.0.1:$admin/ban?prefix=${urls[2]}"
        head -c "$((RANDOM % 1400))" /dev/urandom >"/dev/udp/127.0.0.1/$icp" || true
        printf 'GET / HTTP/1.1\r\nHost : x\r\n\r\n' | timeout 1 bash -c "cat >/dev/tcp/127.0.0.1/$base" || true
        sleep 0.2
    done
    for load in "${loads[@]}"; do
        name=${load#*:}
        local status=0 errors
        wait "${load%%:*}" || status=$?
        # 3 says that a run's figures are not to be trusted, which a soak is not about.
        [ "$status" = 0 ] || [ "$status" = 3 ] || { tail -n 3 "$work/$name.$seed.said" >&2; wrong "$name ended with $status"; continue; }
        errors=$(jq '[.phases[].counters.errors // 0] | add' "$work/$name.$seed")
        say "$name, half $seed: errors" "$errors"
        [ "$errors" = 0 ] || { cat "$work/$name.$seed.said" >&2; wrong "$name had errors"; }
    done
    say "rounds of noise, half $seed" "$round"
}
half 1 "$((seconds / 2))"
memory_half=$(memory_kib "$one")
half 2 "$((seconds / 2))"
memory_end=$(memory_kib "$one")

# Idle connections go after 3 s, tokio's spare threads after 10.
for ((tries = 0; tries < 60; tries++)); do
    [ "$(figure "$admin" connections)" = 0 ] && [ "$(figure "$admin" fills)" = 0 ] &&
        [ "$(threads "$one")" -le "$threads_before" ] && [ "$(kernel_threads "$one")" -le 4 ] && break
    sleep 0.5
done
for name in connections fills behind_bytes; do
    left=$(figure "$admin" "$name")
    say "$name left" "$left"
    [ "$left" = 0 ] || wrong "$left $name are left"
done
# One a loop to ask the sibling by.
sockets_now=$(sockets "$one") threads_now=$(threads "$one")
say "sockets before, now" "$sockets_before, $sockets_now"
[ "$sockets_now" -le $((sockets_before + 4)) ] || wrong "sockets are left open"
say "threads before, now" "$threads_before, $threads_now"
[ "$threads_now" -le "$threads_before" ] || wrong "threads are left: $(thread_names "$one" | comm -13 "$work/threads" - | paste -sd ' ')"
# Of those that lie idle the kernel keeps the last one of each ring; a ring is a loop's.
kernel_threads_now=$(kernel_threads "$one")
say "kernel's threads for reads now" "$kernel_threads_now"
[ "$kernel_threads_now" -le 4 ] || wrong "the kernel's threads for reads do not end"
say "memory after one half, after both, in KiB" "$memory_half, $memory_end"
[ "$memory_end" -le $((memory_half + memory_half / 4 + 16384)) ] || wrong "memory grows"
for name in store_evicted_total icp_found_total sibling_hits_total icp_malformed_total malformed_requests_total; do
    count=$(figure "$admin" "$name")
    say "$name" "$count"
    [ "$count" != 0 ] || wrong "nothing of it happened: $name"
done
say "sibling_hits_total of the other" "$(figure "$admin_two" sibling_hits_total)"
for name in one two; do
    process=${!name} begun=$EPOCHREALTIME status=0
    kill -TERM "$process"
    wait "$process" || status=$?
    took=$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $begun }")
    say "$name ended with, after s" "$status, $took"
    [ "$status" = 0 ] || wrong "$name ended with $status"
    # Far less than drain_s: nothing was waited for that would never have ended.
    awk "BEGIN { exit !($took < 10) }" || wrong "$name took $took s to end"
    grep -n 'panicked\|ERROR' "$work/$name.out" >&2 && wrong "$name complained"
done
exit "$failed"
