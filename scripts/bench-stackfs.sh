#!/usr/bin/env bash
# What `crumb mount` costs with nothing managed, beside the file system itself and other FUSE layers, in turns, on an ext4
# loop image in memory (root). Layers that are not installed are left out and named.
#   scripts/bench-stackfs.sh [ROUNDS] [extra flags of the bench, such as --files 1000]
# Debian: apt-get install bindfs mergerfs fuse-overlayfs fuse3. The package that is built is jemalloc, from the sources
# of the crate tikv-jemalloc-sys; PACKAGE=DIRECTORY takes another one, PACKAGE=none leaves the row out.
# CRUMB=PROGRAM and LAYERS_BENCH=PROGRAM (the bench) take programs that are built already. LAYERS="crumb bindfs" mounts these alone.
# A FUSE layer's time is mostly that of waking processors, in a virtual machine above all: scripts/awake.sh before it all
# keeps them awake for every layer, so that the layers' own work shows. Otherwise they sleep as they do for users, and
# crumb-na is mounted too, with -o noawake: crumb by itself may keep them awake while requests come.
#
# The others get the best of their options that keep what the mounts can do: bindfs several threads; mergerfs the page
# cache kept while a file does not change, no looking for security.capability, and its room reserve off; fuse-overlayfs
# several threads, and its default of believing what it knows for ever, which is to be compared with crumb-ex. Names and
# attributes are believed for 1 s by crumb, bindfs and mergerfs.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5}
shift || true
[ "$(id -u)" = 0 ] || { echo "mounts a loop image and layers over it: run it as root" >&2; exit 1; }
[ -n "${CRUMB:-}" ] || cargo build --release -q -p crumb
crumb=${CRUMB:-$(realpath "${CARGO_TARGET_DIR:-target}")/release/crumb}
work=$(mktemp -d -p /dev/shm crumb-layers.XXXXXX)
layers=()
clean_up() {
    for layer in "${layers[@]}"; do
        mountpoint -q "$work/$layer" && { fusermount3 -u "$work/$layer" 2>/dev/null || umount -l "$work/$layer"; }
    done
    # A daemon lets go of what is below a moment after its own end.
    mountpoint -q "$work/native" &&
        { umount "$work/native" 2>/dev/null || { sleep 1 && umount "$work/native"; } || umount -l "$work/native"; }
    rm -rf "$work"
}
trap clean_up EXIT

mkdir "$work/native"
truncate -s 8G "$work/image"
mkfs.ext4 -q -F "$work/image"
mount -o loop,nodiscard "$work/image" "$work/native"
mkdir "$work/native/tree"

mounted() { # name, command...
    local name=$1
    shift
    [[ -z ${LAYERS:-} || " $LAYERS " = *" $name "* ]] || return 0
    mkdir "$work/$name"
    if command -v "$1" >/dev/null && "$@" >"$work/$name.log" 2>&1; then
        layers+=("$name")
    else
        echo "$name: left out (not installed, or it does not mount here)" >&2
        rmdir "$work/$name"
    fi
}
tree=$work/native/tree
# Microseconds that processors may take to wake up: 0 when they are kept awake.
[ "$(od -An -i -N4 /dev/cpu_dma_latency | tr -d ' ')" = 0 ] && awake=yes || awake=no
mounted crumb "$crumb" mount "$tree" "$work/crumb" --daemon --no-store
# A tree of its own: it refuses one that is mounted by another.
mkdir "$work/native/own"
mounted crumb-ex "$crumb" mount "$work/native/own" "$work/crumb-ex" --daemon --no-store --exclusive
# Where CPUs are kept awake for every layer anyway, this one is no other than crumb.
[ "$awake" = yes ] || mounted crumb-na "$crumb" mount "$tree" "$work/crumb-na" --daemon --no-store -o noawake
mounted bindfs bindfs --multithreaded "$tree" "$work/bindfs"
mounted mergerfs mergerfs -o use_ino,cache.files=auto-full,security_capability=false,category.create=ff,minfreespace=0 \
    "$tree" "$work/mergerfs"
mkdir "$work/native/upper" "$work/native/work"
mounted overlay fuse-overlayfs -o "threaded=1,lowerdir=$tree,upperdir=$work/native/upper,workdir=$work/native/work" \
    "$work/overlay"

package=${PACKAGE:-}
if [ -z "$package" ]; then
    mkdir "$work/fetch"
    printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2024"\n[lib]\npath = "lib.rs"\n[dependencies]\ntikv-jemalloc-sys = "=0.6.1"\n[workspace]\n' \
        >"$work/fetch/Cargo.toml"
    : >"$work/fetch/lib.rs"
    if (cd "$work/fetch" && cargo vendor -q vendor >/dev/null 2>"$work/fetch.log"); then
        package=$work/fetch/vendor/tikv-jemalloc-sys/jemalloc
        # The crate keeps the generated script beside the sources.
        cp "$package/../configure/configure" "$package/configure"
    else
        echo "no package to build: its sources cannot be had (cargo vendor); the row is left out" >&2
        package=none
    fi
fi
flags=(--rounds "$rounds")
bench=(cargo bench -q -p stackfs --bench layers --)
[ -z "${LAYERS_BENCH:-}" ] || bench=("$LAYERS_BENCH" --bench)
# The archive alone: 62 files, each compiled twice, and not for long.
[ -n "${PACKAGE:-}" ] || { flags+=(--make-target lib/libjemalloc.a) && export CFLAGS=-O1; }
[ "$package" = none ] || flags+=(--package "$package")
dirs=("native=$tree")
for layer in "${layers[@]}"; do dirs+=("$layer=$work/$layer"); done
"${bench[@]}" "${dirs[@]}" "${flags[@]}" "$@"
