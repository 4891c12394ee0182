#!/usr/bin/env bash
# Builds the image that the Containerfile describes, and tries it: as its user, it measures, reports, and serves as a proxy.
#
#   scripts/try-image.sh [DIRECTORY]     what `make release` made [default: target/packages]; root, buildah, debootstrap, network
#
# No container service is needed. Where the base image is not at hand and cannot be fetched, it is made by debootstrap from the
# same Debian. Images are in a directory of this script alone, in /dev/shm or in TRY_IMAGE_DIR, which is removed at the end.
set -euo pipefail
packages=$(realpath "${1:-target/packages}")
fail() { echo "try-image: $*" >&2 && exit 1; }
[ "$(id -u)" = 0 ] || fail 'it makes a root to chroot into: run it as root'
for program in buildah debootstrap curl; do
    command -v $program >/dev/null || fail "$program is missing (apt-get install $program)"
done
[ -s "$packages/Containerfile" ] || fail "$packages/Containerfile is missing: make release"

work=$(mktemp -d -p "${TRY_IMAGE_DIR:-/dev/shm}" crumb-image.XXXXXX)
chmod 755 "$work"
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
image() { buildah --root "$work/images" --runroot "$work/run" "$@"; }
origin='' proxy=''
# Ends what a process has started last: the tool for images ends with it, but does not end it.
end_inside() {
    local children child
    children=$(pgrep -P "$1") || { kill "$1" 2>/dev/null || true; return; }
    for child in $children; do end_inside "$child"; done
}
cleanup() {
    local started
    for started in $origin $proxy; do end_inside "$started"; done
    wait
    image rm --all >/dev/null 2>&1 || true
    # The tool has mounted it over itself, each time it ran.
    while umount "$work/images/overlay" 2>/dev/null; do :; done
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT

base=$(sed -n 's/^FROM \(.*\) AS .*/\1/p' "$packages/Containerfile")
if ! image pull -q "$base" >/dev/null 2>&1; then
    echo "== $base cannot be fetched: made by debootstrap"
    debootstrap --variant=minbase bookworm "$work/base" >"$work/log" 2>&1 || fail "debootstrap failed: $(tail -3 "$work/log")"
    container=$(image from scratch)
    image add -q "$container" "$work/base" / >/dev/null
    image commit -q --rm "$container" "$base" >/dev/null
    rm -rf --one-file-system "$work/base"
fi

image build -q --pull-never -t crumb:try "$packages" >"$work/log" 2>&1 || fail "it does not build: $(tail -5 "$work/log")"
image images --filter reference=crumb:try --format '== built, {{.Size}}'

container=$(image from --pull-never crumb:try)
mkdir -m 777 "$work/data" "$work/cache"
inside() { image run -v "$work/data:/data" -v "$work/cache:/var/cache/crumb" "$container" -- "$@"; }
[ "$(image inspect --type image --format '{{.OCIv1.Config.User}}' crumb:try)" = 65532:65532 ] || fail 'it is not a user of its own'
[ "$(image inspect --type image --format '{{.OCIv1.Config.Entrypoint}}' crumb:try)" = '[/usr/bin/crumb]' ] || fail 'it starts something else'
inside /usr/bin/crumb --version
inside /usr/bin/crumb run postmark /data --quick --report /data/report.html
[ -s "$work/data/report.html" ] || fail 'there is no report'
[ "$(stat -c %u "$work/data/report.html")" = 65532 ] || fail 'it does not run as its user'

# A web server's page through the proxy, first from the server, then from its store; https needs the list of authorities.
port() { # FILE PATTERN: the port that a program names in what it says
    local found
    for _ in $(seq 100); do
        found=$(sed -n "s/.*$2.*:\([0-9]\{2,5\}\).*/\1/p" "$1" | head -1)
        [ -z "$found" ] || { echo "$found" && return; }
        sleep 0.1
    done
    cat "$1" >&2
    return 1
}
inside /usr/bin/crumb serve origin --listen 127.0.0.1:0 >"$work/origin.log" 2>&1 &
origin=$!
inside /usr/bin/crumb proxy --cache /var/cache/crumb --listen 127.0.0.1:0 >"$work/proxy.log" 2>&1 &
proxy=$!
server=$(port "$work/origin.log" '127.0.0.1') || fail 'the server does not start'
through=$(port "$work/proxy.log" '127.0.0.1') || fail 'the proxy does not start'
# Some of its objects may not be stored.
for object in $(seq 20); do
    for _ in 1 2; do
        curl -s -S -m 10 -o /dev/null -D - -x "127.0.0.1:$through" "http://127.0.0.1:$server/o/$object" >"$work/reply" ||
            fail "no reply through the proxy: $(cat "$work/proxy.log")"
    done
    ! grep -i '^cache-status:.*hit' "$work/reply" || break
done
grep -qi '^cache-status:.*hit' "$work/reply" || fail "no second reply is a hit: $(cat "$work/reply")"
inside /usr/bin/crumb --version >/dev/null
echo '== the image builds, measures, and serves as its user'
