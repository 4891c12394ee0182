#!/bin/sh
# Builds the bench on Debian's libnfs (package libnfs-dev) and runs it against a null responder.
#   run.sh HOST PORT [SECONDS] [CPU]
# The responder: `crumb serve null --listen HOST:PORT`, or the one of bare_loop (--serve HOST:PORT).
set -eu
host=$1 port=$2 seconds=${3:-3} cpu=${4:-0}
here=$(dirname "$0")
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
cc -O2 -o "$build/libnfs_bench" "$here/libnfs_bench.c" -lnfs
url="nfs://$host/x?version=3&nfsport=$port&mountport=$port"
for mix in null getattr sfs97; do
    taskset -c "$cpu" "$build/libnfs_bench" "$url" "$mix" "$seconds" 16 64 256
done
