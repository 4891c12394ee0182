#!/usr/bin/env bash
# Installs the Debian packages that tests use, when this is root on Debian; otherwise names what is missing. A test that
# lacks its program is skipped and listed. With CRUMB_TESTS_MUST_RUN=1, as in CI, what cannot be had ends this script with
# an error that names it.
#
# What is downloaded is checked, and kept in Cargo's target directory:
# - INN is unpacked there and not installed: its package would start a server and ask for a mail agent. It comes from the
#   Debian archive, and apt checks its digest against the archive's signed list. There is no digest here: it would change
#   with every update that Debian makes. The tests look for the version that they know (crates/testkit/src/inn.rs).
# - pjdfstest and fsx come from crates.io in one version each; cargo checks them by the digests of the registry's index,
#   and with --locked all that they depend on by those of their lock files.
# - The suite for HTTP caches comes from npm by a lock file with digests (crates/webcache/tests/server/public_suite).
set -euo pipefail
cd "$(dirname "$0")/.."

lacking=()
lack() { # what, why
    echo "$1 cannot be had: $2" >&2
    lacking+=("$1")
}

inn=${CARGO_TARGET_DIR:-target}/inn
unpack_inn() {
    if [ -x /usr/lib/news/bin/innd ] || [ -x "$inn/usr/lib/news/bin/innd" ]; then
        return
    fi
    if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
        lack INN 'this is not Debian'
        return
    fi
    echo "unpacking INN into $inn"
    local fetched
    fetched=$(mktemp -d)
    # As root, apt fetches as another user, who must get in.
    chmod 755 "$fetched"
    mkdir -p "$inn.unfinished"
    if (cd "$fetched" && apt-get download -qq inn2 inn2-inews libcanlock3 >/dev/null 2>"$fetched/said") &&
        for package in "$fetched"/*.deb; do dpkg -x "$package" "$inn.unfinished" || exit 1; done; then
        # A program that changes its user does not look where LD_LIBRARY_PATH says.
        chmod -R ug-s "$inn.unfinished"
        mv "$inn.unfinished" "$inn"
    else
        rm -rf "$inn.unfinished"
        lack INN "$(tail -1 "$fetched/said" 2>/dev/null)"
    fi
    rm -rf "$fetched"
}

# Witnesses that crates.io has: they are built once, into Cargo's target directory. Their work is the kernel's, so they are not optimised.
tools=${CARGO_TARGET_DIR:-target}/test-tools
build_tools() {
    local tool
    for tool in pjdfstest@0.2.2 fsx@0.3.2; do
        if [ ! -x "$tools/bin/${tool%@*}" ]; then
            echo "building $tool into $tools"
            mkdir -p "$tools"
            CARGO_TARGET_DIR=$tools/build cargo install -q --debug --locked --root "$tools" "$tool" 2>"$tools/said" ||
                lack "$tool" "$(grep -m1 ^error "$tools/said" || tail -1 "$tools/said")"
        fi
    done
    rm -rf "$tools/build"
}

# The public suite for HTTP caches, which npm has.
suite=${CARGO_TARGET_DIR:-target}/http-cache-tests
fetch_suite() {
    local wanted=crates/webcache/tests/server/public_suite
    if cmp -s "$wanted/package-lock.json" "$suite/fetched-lock.json"; then
        return
    fi
    if ! command -v npm >/dev/null; then
        lack http-cache-tests 'npm is not installed'
        return
    fi
    echo "fetching http-cache-tests into $suite"
    mkdir -p "$suite"
    cp "$wanted/package.json" "$wanted/package-lock.json" "$suite"
    if (cd "$suite" && npm ci --ignore-scripts --no-audit --no-fund >said 2>&1); then
        cp "$wanted/package-lock.json" "$suite/fetched-lock.json"
    else
        lack http-cache-tests "$(grep -m1 'npm ERR!\|npm error' "$suite/said" || tail -1 "$suite/said")"
    fi
}

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
need fusermount3 fuse3
need npm npm
need nginx nginx-light
need curl curl
need squid squid
need wrk wrk
need h2load nghttp2-client
need mpicc mpich libmpich-dev
need ip iproute2
need openssl openssl
need zstd zstd
need setpriv util-linux
# bindgen makes the bindings to MPI and loads libclang, which is not a program. Debian's libclang-cpp.so is another library.
has_libclang() {
    local directory
    for directory in /usr/lib/llvm*/lib /usr/lib/*-linux-gnu; do
        if compgen -G "$directory/libclang.so*" >/dev/null || compgen -G "$directory/libclang-[0-9]*.so*" >/dev/null; then
            return 0
        fi
    done
    return 1
}
has_libclang || missing+=(libclang-dev)

install_missing() {
    echo "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq || true
    # Not `|| exit`: what another mirror has may still be had.
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
        lack "${missing[*]}" 'apt-get could not install all of them'
    # Debian starts servers as it installs them; the tests start their own, on ports of their own. One that was here before
    # is somebody's, and stays as it is.
    command -v systemctl >/dev/null || return 0
    local package services
    for package in "${missing[@]}"; do
        case $package in
            nfs-ganesha | squid) services=$package ;;
            rpcbind) services='rpcbind rpcbind.socket' ;;
            nginx-light) services=nginx ;;
            *) continue ;;
        esac
        # shellcheck disable=SC2086 # words
        systemctl stop $services 2>/dev/null || true
    done
}

if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        install_missing
    else
        lack "${missing[*]}" 'only root on Debian can install them here'
    fi
fi
unpack_inn
build_tools
fetch_suite
if [ ${#lacking[@]} -gt 0 ]; then
    if [ "${CRUMB_TESTS_MUST_RUN:-}" = 1 ]; then
        echo "every test must run here (CRUMB_TESTS_MUST_RUN=1), and these are missing: ${lacking[*]}" >&2
        exit 1
    fi
    echo "tests that need them will be skipped and listed: ${lacking[*]}" >&2
fi
