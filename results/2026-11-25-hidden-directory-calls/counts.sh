#!/bin/bash
# counts.sh CRUMB: system calls of the daemon per create, cold stat and unlink, by layout
set -e
crumb=$1; w=$(mktemp -d /dev/shm/crumb-counts.XXXX)
trap 'rm -rf $w' EXIT
for layout in 345 34/56 56/34; do
  mkdir -p $w/lower/g $w/at; $crumb manage --layout $layout $w/lower/g >/dev/null 2>&1
  $crumb mount $w/lower $w/at --no-store 2>/dev/null & pid=$!
  for i in $(seq 50); do mountpoint -q $w/at && break; sleep 0.1; done
  n=3000
  for step in create cold-stat warm-stat unlink; do
    strace -f -c -o $w/trace -p $pid 2>/dev/null & s=$!
    sleep 1.3
    python3 - $w/at/g $step $n <<'P'
import os,sys,random,time
d,step,n=sys.argv[1],sys.argv[2],int(sys.argv[3])
random.seed(1)
names=random.sample(range(100000,1000000),n)
random.seed(step); random.shuffle(names)
fd=os.open(d,os.O_RDONLY)
for i in names:
    if step=='create': os.close(os.open(str(i),os.O_CREAT|os.O_EXCL|os.O_WRONLY,0o644,dir_fd=fd))
    elif step=='unlink': os.unlink(str(i),dir_fd=fd)
    else: os.stat(str(i),dir_fd=fd)
P
    kill -INT $s; wait $s || true
    echo "$layout $step: $(awk -v n=$n '$1 ~ /^[0-9.]+$/ && $NF!="total" && $NF !~ /futex|ppoll|poll|epoll/ {calls=$4; if (calls/n>=0.02) printf "%s %.2f  ", $NF, calls/n}' $w/trace)"
  done
  $crumb unmount $w/at >/dev/null 2>&1; wait $pid || true; rm -rf $w/lower $w/at
done
