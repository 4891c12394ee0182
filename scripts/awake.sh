#!/usr/bin/env bash
# Runs a command while no processor sleeps, where that is allowed (root; /dev/cpu_dma_latency held at 0). In a virtual machine
# whose idle processors are taken away, waking one costs 0.1 ms and more: tests and benchmarks that go back and forth between
# two programs (FUSE, sockets) then measure little else.
#   scripts/awake.sh COMMAND [ARGUMENT…]
set -euo pipefail
[ $# -gt 0 ] || { sed -n '2,5s/^# \?//p' "$0" >&2 && exit 2; }
if [ -w /dev/cpu_dma_latency ]; then
    exec 9>/dev/cpu_dma_latency
    printf '\0\0\0\0' >&9
else
    echo "processors may sleep: /dev/cpu_dma_latency is not there, or not ours" >&2
fi
# A daemon that the command leaves behind shall not hold it.
"$@" 9>&-
