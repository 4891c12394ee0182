#!/usr/bin/env bash
# Installs the Debian packages that tests use, when this is root on Debian; otherwise names what is missing.
# A test whose program is missing skips with a line that says so.
set -euo pipefail

missing=()
need() { # program, package...
    local program=$1
    shift
    command -v "$program" >/dev/null || [ -x "/usr/sbin/$program" ] || missing+=("$@")
}
need ganesha.nfsd nfs-ganesha nfs-ganesha-vfs
need rpcbind rpcbind
need nfs-ls libnfs-utils
need chromium chromium
need mkfs.ext4 e2fsprogs
need mkfs.xfs xfsprogs
need mkfs.btrfs btrfs-progs
need postmark postmark
need strace strace
need npm npm

[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "test packages missing, their tests will be skipped: ${missing[*]}" >&2
    exit 0
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq || true
# Some mirror may be out of reach: then the tests say what they skip.
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    echo "could not install ${missing[*]}; their tests will be skipped" >&2
# Debian starts these servers by itself; the tests start their own, on ports of their own.
for service in nfs-ganesha rpcbind rpcbind.socket; do
    command -v systemctl >/dev/null && systemctl stop "$service" 2>/dev/null || true
done
