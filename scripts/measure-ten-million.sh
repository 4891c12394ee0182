#!/usr/bin/env bash
# A directory of very many files (root), on an ext4 image in memory (10 million empty files take 4 GiB of it):
#   scripts/measure-ten-million.sh [FILES]     10000000 by default
# Prints, one line each: how long filling takes; conversions offline and, with two programs at work, online, both ways, with
# the memory of the program that converts and the longest waits of the programs, beside those without a conversion; then through the mount: listings, cold
# look-ups and creations, and the removal of a tenth of the files, the oldest first.
# Cold means: `echo 3 >/proc/sys/vm/drop_caches` before each of the look-ups' rounds; the image's own pages stay, as it is in
# memory, so what is measured is the work and not a disk.
# BRIEF=1 converts once, online and with the programs at work, and leaves the other conversions out.
# CRUMB=PROGRAM takes a program that is built already. Needs mke2fs and perl.
set -euo pipefail
cd "$(dirname "$0")/.."
files=${1:-10000000}
[ "$(id -u)" = 0 ] || { echo "mounts images and drops caches: run it as root" >&2; exit 1; }
[ -n "${CRUMB:-}" ] || cargo build --release -q -p crumb
crumb=${CRUMB:-$(realpath "${CARGO_TARGET_DIR:-target}")/release/crumb}
work=$(mktemp -d -p /dev/shm crumb-million.XXXXXX)
below=$work/below through=$work/through
mkdir "$below" "$through"
take_down() {
    local place
    for place in "$through" "$below"; do
        mountpoint -q "$place" && { umount "$place" 2>/dev/null || { sleep 1 && umount "$place"; } || umount -l "$place"; }
    done
    return 0
}
trap 'take_down; rm -rf "$work"' EXIT

seconds_since() { awk -v begun="$1" -v now="$EPOCHREALTIME" 'BEGIN { printf "%.1f", now - begun }'; }
peak_kib() { sed -n 's/^VmHWM:[[:space:]]*\([0-9]*\).*/\1/p' "/proc/$1/status" 2>/dev/null || true; }
say() { printf '%s\n' "$*"; }

cpu_s() { awk '{ sub(/.*\) /, ""); printf "%.1f", ($12 + $13) / 100 }' "/proc/$1/stat" 2>/dev/null || true; }

# Runs a command; sets `took`, `cpu`, seconds of CPU time, and `peak`, its peak of resident memory in KiB.
watched() {
    local begun=$EPOCHREALTIME pid now
    "$@" >"$work/out" 2>&1 &
    pid=$! peak=0 cpu=0
    while kill -0 "$pid" 2>/dev/null; do
        now=$(peak_kib "$pid")
        [ -n "$now" ] && peak=$now
        now=$(cpu_s "$pid")
        [ -n "$now" ] && cpu=$now
        sleep 0.2
    done
    wait "$pid" || { cat "$work/out" >&2; return 1; }
    took=$(seconds_since "$begun")
}

# Two programs at work in a directory until a file is there: one reads attributes of names drawn at random, one makes and
# removes names. Each prints operations, median, 99.9th percentile and longest wait in milliseconds, and errors.
programs='
use strict; use Time::HiRes qw(time sleep); use Fcntl;
my ($what, $directory, $files, $over) = @ARGV; srand(7); my (@waits, $errors, $made) = ((), 0, 0); $errors = 0;
while (!-e $over) {
    for (1 .. 20) {
        my $begun;
        if ($what eq "stat") {
            my $name = 1 + int(rand($files)); $begun = time; lstat("$directory/$name") or $errors++;
        } else {
            my $name = $files + 1 + $made++; $begun = time;
            sysopen(my $file, "$directory/$name", O_CREAT | O_EXCL | O_WRONLY) or $errors++;
            close($file) if $file; unlink("$directory/$name") or $errors++;
        }
        push @waits, (time - $begun) * 1000;
    }
    sleep(0.002);
}
my @sorted = sort { $a <=> $b } @waits; my $n = @sorted;
printf "%s: %d, median %.2f ms, 99.9th percentile %.2f ms, longest %.2f ms, %d errors\n", $what, $n,
    $sorted[$n / 2], $sorted[$n * 0.999], $sorted[-1], $errors;
'
at_work() { # COMMAND...: with the programs at work
    rm -f "$work/over"
    perl -e "$programs" stat "$through/group" "$files" "$work/over" >"$work/stat" 2>&1 &
    local first=$!
    perl -e "$programs" create "$through/group" "$files" "$work/over" >"$work/create" 2>&1 &
    local second=$!
    watched "$@"
    touch "$work/over"
    wait "$first" "$second"
}
show() { "$crumb" --quiet mount "$below" "$through" --daemon --no-store --pid-file "$work/pid" "$@"; }
daemon_cpu() { cpu_s "$(cat "$work/pid")"; }
less() { awk -v now="$1" -v before="$2" 'BEGIN { printf "%.1f", now - before }'; }
daemon_peak() { peak_kib "$(cat "$work/pid")"; }

truncate -s $((1 + files * 14 / 10000000))G "$work/image"
mke2fs -q -F -t ext4 -i 1024 -N $((files + files / 50 + 200000)) -E lazy_itable_init=1,lazy_journal_init=1 "$work/image"
mount -o loop,nodiscard,noatime "$work/image" "$below"
mkdir "$below/group"
say "host: $(uname -r), $(nproc) CPUs, load $(cut -d' ' -f1-3 /proc/loadavg); $files empty files"
fill='use strict; use Fcntl; my ($d, $n) = @ARGV; chdir $d or die;
for my $i (1 .. $n) { sysopen(my $f, $i, O_CREAT | O_WRONLY) or die "$i: $!"; close $f }'
watched perl -e "$fill" "$below/group" "$files"
say "filled in $took s, $cpu s of CPU time; the directory takes $(stat -c %s "$below/group") bytes"

offline() {
    watched "$crumb" --quiet manage "$below/group"
    say "manage, offline: $took s, $cpu s of CPU time, peak $peak KiB; $(tr -s '\n ' ' ' <"$work/out")"
    watched "$crumb" --quiet unmanage "$below/group"
    say "unmanage, offline: $took s, $cpu s of CPU time, peak $peak KiB"
}
if [ -z "${BRIEF:-}" ]; then offline; fi

show
at_work sleep 15
say "no conversion, two programs at work for 15 s:"
sed 's/^/    /' "$work/stat" "$work/create"
before=$(daemon_peak) cpu_before=$(daemon_cpu)
at_work "$crumb" --quiet manage --online "$through/group"
say "manage, online, two programs at work: $took s, $(less "$(daemon_cpu)" "$cpu_before") s of the daemon's CPU time, its peak $(daemon_peak) KiB, $before before"
sed 's/^/    /' "$work/stat" "$work/create"
back_and_again() {
    cpu_before=$(daemon_cpu)
    at_work "$crumb" --quiet unmanage --online "$through/group"
    say "unmanage, online, two programs at work: $took s, $(less "$(daemon_cpu)" "$cpu_before") s of the daemon's CPU time, its peak $(daemon_peak) KiB"
    sed 's/^/    /' "$work/stat" "$work/create"
    cpu_before=$(daemon_cpu)
    watched "$crumb" --quiet manage --online "$through/group"
    say "manage, online, nothing else at work: $took s, $(less "$(daemon_cpu)" "$cpu_before") s of the daemon's CPU time"
}
if [ -z "${BRIEF:-}" ]; then back_and_again; fi
"$crumb" --quiet unmount "$through"

show
before=$(daemon_peak)
cpu_before=$(daemon_cpu)
watched sh -c "ls -f '$through/group' | wc -l"
say "listed through the mount (ls -f): $took s, $(less "$(daemon_cpu)" "$cpu_before") s of the daemon's CPU time, $(cat "$work/out") names, the daemon's peak $(daemon_peak) KiB, $before before"
cpu_before=$(daemon_cpu)
watched sh -c "find '$through/group' -type f -newermt 2000-01-01 | wc -l"
say "listed with attributes (find -newermt): $took s, $(less "$(daemon_cpu)" "$cpu_before") s of the daemon's CPU time, $(cat "$work/out") names, peak $(daemon_peak) KiB"
watched sh -c "ls -f '$below/group' | wc -l"
say "the hidden level itself, below the mount (ls -f): $took s, $(cat "$work/out") names"

cold='use strict; use Time::HiRes qw(time); use Fcntl; my ($d, $n, $what) = @ARGV; srand(time * 1000); my $begun = time;
for (1 .. 1000) { my $i = 1 + int(rand($n));
    if ($what eq "stat") { lstat("$d/$i") or die "$i: $!" }
    else { sysopen(my $f, "$d/".($n + 1000000 + $_), O_CREAT | O_EXCL | O_WRONLY) or die; close $f } }
printf "%.1f", (time - $begun) * 1000;
unlink "$d/".($n + 1000000 + $_) for 1 .. 1000;'
for what in stat create; do
    for round in 1 2 3; do
        sync
        echo 3 >/proc/sys/vm/drop_caches
        say "1000 cold, $what, round $round: $(perl -e "$cold" "$through/group" "$files" "$what") us each"
    done
done
expire='use strict; my ($d, $n) = @ARGV; chdir $d or die; for my $i (1 .. $n) { unlink($i) or die "$i: $!" }'
cpu_before=$(daemon_cpu)
watched perl -e "$expire" "$through/group" $((files / 10))
say "removed the oldest $((files / 10)) through the mount: $took s, $(less "$(daemon_cpu)" "$cpu_before") s of the daemon's CPU time, the daemon's peak $(daemon_peak) KiB"
left=$(find "$through/group" -type f | wc -l)
"$crumb" --quiet unmount "$through"
say "left: $left; check: $("$crumb" --quiet check "$below" | tail -1)"
