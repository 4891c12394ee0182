#!/usr/bin/env bash
# Builds what is published, into target/packages: a .deb, a tarball with a static program, a Containerfile, SHA256SUMS.
#
#   scripts/release.sh [--no-static]     --no-static leaves out the tarball and the Containerfile
#
# Meant to give the same files for the same commit and toolchain: dates are the commit's (SOURCE_DATE_EPOCH), and paths of this
# machine are replaced. VERSIONS names the toolchain. From a source tree
# without git, set CRUMB_COMMIT and SOURCE_DATE_EPOCH.
#
# Needs: Rust as rust-toolchain.toml names it, a C compiler, dpkg-deb, objdump; for the static program
#   rustup target add x86_64-unknown-linux-musl and apt-get install musl-tools
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C TZ=UTC
umask 022

with_static=1
case "${1:-}" in
    '') ;;
    --no-static) with_static= ;;
    *) sed -n '4p' "$0" >&2 && exit 2 ;;
esac
fail() { echo "make release: $*" >&2 && exit 1; }

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
cargo_home=${CARGO_HOME:-$HOME/.cargo}
target=${CARGO_TARGET_DIR:-$PWD/target}
machine=$(uname -m)
gnu=$machine-unknown-linux-gnu musl=$machine-unknown-linux-musl
out=$target/packages

if [ -z "${CRUMB_COMMIT:-}" ]; then
    [ -z "$(git status --porcelain)" ] || fail "the working tree differs from its commit; commit or remove what differs"
    CRUMB_COMMIT=$(git rev-parse --short=12 HEAD)
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
fi
export CRUMB_COMMIT SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:?set it beside CRUMB_COMMIT}
for program in dpkg-deb objdump cc; do
    command -v $program >/dev/null || fail "$program is missing (apt-get install dpkg-dev gcc)"
done
if [ "$with_static" ]; then
    command -v musl-gcc >/dev/null || fail 'musl-gcc is missing (apt-get install musl-tools), or use --no-static'
    [ -d "$(rustc --print sysroot)/lib/rustlib/$musl" ] || fail "Rust for musl is missing (rustup target add $musl)"
fi

# Paths that compilers would write into the program, in what messages name as the place of an error.
remapped=("$PWD=/crumb" "$target=/crumb/target" "$cargo_home=/cargo" "$(rustc --print sysroot)=/rust")
RUSTFLAGS= CFLAGS=
for pair in "${remapped[@]}"; do
    RUSTFLAGS+=" --remap-path-prefix=$pair"
    CFLAGS+=" -ffile-prefix-map=$pair"
done
export RUSTFLAGS CFLAGS
export "CC_${musl//-/_}=musl-gcc" CARGO_INCREMENTAL=0
for triple in $gnu ${with_static:+$musl}; do
    # Where Rust's own linker is in use: functions with the same code are kept once (3% of the program), and the list of addresses
    # that the loader fills in is packed (another 3%; glibc 2.36 or newer reads it, as Debian 12 has).
    fold=
    [ "$triple" != x86_64-unknown-linux-gnu ] || fold='-C link-arg=-Wl,--icf=all -C link-arg=-Wl,-z,pack-relative-relocs'
    # shellcheck disable=SC2086 # several words
    "${CARGO:-cargo}" rustc --locked --profile dist -p crumb --bin crumb --target "$triple" -- $fold
done
program=$target/$gnu/dist/crumb

rm -rf "$out" && mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The licences of all crates in the program: each text once, with the crates that carry it.
third_party() {
    local crate name found text digest
    declare -A carriers=() texts=()
    echo "Crumb contains the crates below, SQLite (in the public domain) and uPlot (MIT)."
    echo
    "${CARGO:-cargo}" tree --locked -p crumb -e normal --target "$gnu" --prefix none --format '{p}|{l}' |
        sed 's/ (\*)$//; s/ ([^)]*)|/|/' | sort -u >"$work/crates"
    sed 's/|/: /' "$work/crates"
    while IFS='|' read -r crate _; do
        name=${crate/ v/-}
        for found in "$cargo_home"/registry/src/*/"$name"; do
            [ -d "$found" ] || continue
            while read -r text; do
                digest=$(sha256sum <"$text")
                case ", ${carriers[$digest]:-}," in *", $name,"*) continue ;; esac
                carriers[$digest]+="${carriers[$digest]:+, }$name"
                texts[$digest]=$text
            done < <(find "$found" -maxdepth 4 -type f \( -iname 'licen[sc]e*' -o -iname 'copying*' -o -iname 'notice*' \) \
                ! -name '*.rs' | sort)
            break
        done
    done <"$work/crates"
    for digest in "${!carriers[@]}"; do printf '%s\t%s\n' "${carriers[$digest]}" "$digest"; done | sort |
        while IFS=$'\t' read -r crate digest; do
            printf '\n==== %s\n\n' "$crate"
            cat "${texts[$digest]}"
        done
}
third_party >"$work/THIRD-PARTY.txt"
"$program" --quiet generate "$work/share"

# Files that both packages have besides the program; $1 is the directory of documents.
documents() {
    install -d "$1/guide"
    install -m 644 README.md ARCHITECTURE.md LICENSE-MIT LICENSE-APACHE "$work/THIRD-PARTY.txt" "$1"
    cp -R docs/guide/. "$1/guide"
    find "$1" -type f -exec chmod 644 {} +
}
# Sorted, owned by root, with the commit's date.
packed() { # directory, name inside
    tar -C "$1" --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - "$2" | gzip -9n
}

debian() {
    local root=$work/deb glibc architecture installed_kib
    architecture=$(dpkg --print-architecture)
    install -D -m 755 "$program" "$root/usr/bin/crumb"
    # mount(8) finds it by this name, for lines of /etc/fstab.
    install -d "$root/usr/sbin" && ln -s ../bin/crumb "$root/usr/sbin/mount.fuse.crumb"
    install -d "$root/usr/share/man/man1" && install -m 644 "$work"/share/man/man1/* "$root/usr/share/man/man1"
    gzip -9n "$root"/usr/share/man/man1/*
    install -D -m 644 "$work/share/bash-completion/completions/crumb" "$root/usr/share/bash-completion/completions/crumb"
    install -D -m 644 "$work/share/fish/vendor_completions.d/crumb.fish" "$root/usr/share/fish/vendor_completions.d/crumb.fish"
    install -D -m 644 "$work/share/zsh/site-functions/_crumb" "$root/usr/share/zsh/vendor-completions/_crumb"
    install -D -m 644 -t "$root/usr/lib/systemd/system" packaging/systemd/*
    install -D -m 644 -t "$root/etc/crumb" packaging/etc/proxy.toml
    install -D -m 644 -t "$root/etc/crumb/mount" packaging/etc/mount/example.conf
    documents "$root/usr/share/doc/crumb"
    install -m 644 packaging/debian/copyright "$root/usr/share/doc/crumb/copyright"
    install -m 644 CHANGELOG.md "$root/usr/share/doc/crumb/changelog" && gzip -9n "$root/usr/share/doc/crumb/changelog"
    install -d "$root/DEBIAN"
    install -m 755 -t "$root/DEBIAN" packaging/debian/postinst packaging/debian/prerm packaging/debian/postrm
    (cd "$root" && find etc -type f | sed 's,^,/,' | sort) >"$root/DEBIAN/conffiles"
    # Not du: it counts directories as the file system here does.
    installed_kib=$(find "$root/usr" "$root/etc" -type f -printf '%s\n' | awk '{ sum += int($1 / 1024) + 1 } END { print sum }')
    glibc=$(objdump -T "$program" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
    # Symbols have numbers; the packed list of addresses has a name.
    ! objdump -p "$program" | grep -q GLIBC_ABI_DT_RELR ||
        glibc=$(printf '%s\n' "$glibc" GLIBC_2.36 | sort -V | tail -1)
    sed "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@GLIBC@/${glibc#GLIBC_}/
        s/@INSTALLED_KIB@/$installed_kib/" packaging/debian/control.in >"$root/DEBIAN/control"
    (cd "$root" && find usr etc -type f | sort | xargs -d '\n' md5sum) >"$root/DEBIAN/md5sums"
    chmod 644 "$root"/DEBIAN/{conffiles,control,md5sums}
    dpkg-deb --root-owner-group -Zxz --build "$root" "$out/crumb_${version}_$architecture.deb"
}

static() {
    local name=crumb-$version-$musl
    install -D -m 755 "$target/$musl/dist/crumb" "$work/$name/bin/crumb"
    cp -R "$work/share" "$work/$name/share"
    documents "$work/$name/share/doc/crumb"
    install -m 644 CHANGELOG.md "$work/$name/share/doc/crumb"
    install -d "$work/$name/examples" && cp -R packaging/etc packaging/systemd "$work/$name/examples"
    packed "$work" "$name" >"$out/$name.tar.gz"
    sed "s/@VERSION@/$version/" packaging/Containerfile >"$out/Containerfile"
}

debian
[ -z "$with_static" ] || static
{
    echo "crumb $version ($CRUMB_COMMIT)"
    rustc --version
    "${CARGO:-cargo}" --version
    cc --version | sed -n 1p
    dpkg-deb --version | sed -n 1p
} >"$out/VERSIONS"
touch -d "@$SOURCE_DATE_EPOCH" "$out"/*
(cd "$out" && sha256sum -- *[!S] VERSIONS >SHA256SUMS)
echo
cat "$out/VERSIONS"
size=$(stat -c %s "$program")
echo "the program has $size bytes; $(cd "$out" && ls | tr '\n' ' ')are in $out"
[ "$size" -lt 25000000 ] || fail "the program has $size bytes; it should stay below 25 MB"
