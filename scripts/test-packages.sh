#!/usr/bin/env bash
# Installs the Debian packages that tests use, when this is root on Debian; otherwise names what is missing.
# A test whose program is missing skips with a line that says so. INN is unpacked into Cargo's target directory and not
# installed: its package would start a server and ask for a mail agent. pjdfstest and fsx come from crates.io.
set -euo pipefail
cd "$(dirname "$0")/.."

inn=${CARGO_TARGET_DIR:-target}/inn
unpack_inn() {
    if [ -x /usr/lib/news/bin/innd ] || [ -x "$inn/usr/lib/news/bin/innd" ]; then
        return
    fi
    if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
        echo "INN is not there and cannot be fetched, its tests will be skipped" >&2
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
        echo "could not fetch INN, its tests will be skipped: $(tail -1 "$fetched/said" 2>/dev/null)" >&2
    fi
    rm -rf "$fetched"
}

# Witnesses that crates.io has: they are built once, into Cargo's target directory.
tools=${CARGO_TARGET_DIR:-target}/test-tools
build_tools() {
    local tool
    for tool in pjdfstest@0.2.2 fsx@0.3.2; do
        if [ ! -x "$tools/bin/${tool%@*}" ]; then
            echo "building $tool into $tools"
            CARGO_TARGET_DIR=$tools/build cargo install -q --locked --root "$tools" "$tool" 2>/dev/null ||
                echo "could not build $tool, its tests will be skipped" >&2
        fi
    done
    rm -rf "$tools/build"
}

# The public suite for HTTP caches, which npm has.
suite=${CARGO_TARGET_DIR:-target}/http-cache-tests
fetch_suite() {
    if [ -e "$suite/node_modules/http-cache-tests/cli.mjs" ]; then
        return
    fi
    if ! command -v npm >/dev/null; then
        echo "npm is not there, the public suite for HTTP caches will be skipped" >&2
        return
    fi
    echo "fetching http-cache-tests into $suite"
    mkdir -p "$suite"
    (cd "$suite" && npm install --silent --no-audit --no-fund http-cache-tests@0.4.5 >/dev/null 2>&1) ||
        echo "could not fetch http-cache-tests, its test will be skipped" >&2
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
    # Some mirror may be out of reach: then the tests say what they skip.
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
        echo "could not install ${missing[*]}; their tests will be skipped" >&2
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
        echo "test packages missing, their tests will be skipped: ${missing[*]}" >&2
    fi
fi
unpack_inn
build_tools
fetch_suite
