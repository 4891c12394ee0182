#!/usr/bin/env bash
# Tries a .deb in a clean Debian: installs it, makes a first report, removes and purges it, and checks that data stays.
#
#   scripts/try-package.sh target/packages/crumb_0.1.0_amd64.deb [SUITE]     (root, debootstrap, network)
#
# The clean root is in /dev/shm, or in TRY_PACKAGE_DIR, and removed at the end.
set -euo pipefail
deb=$(realpath "${1:?name a .deb}")
suite=${2:-bookworm}
fail() { echo "try-package: $*" >&2 && exit 1; }
[ "$(id -u)" = 0 ] || fail 'it makes a root to chroot into: run it as root'
command -v debootstrap >/dev/null || fail 'debootstrap is missing (apt-get install debootstrap)'

root=$(mktemp -d -p "${TRY_PACKAGE_DIR:-/dev/shm}" crumb-package.XXXXXX)
# Users other than root get in.
chmod 755 "$root"
cleanup() {
    umount -l "$root/proc" 2>/dev/null || true
    rm -rf --one-file-system "$root"
}
trap cleanup EXIT
debootstrap --variant=minbase "$suite" "$root" >"$root.log" 2>&1 || fail "debootstrap failed: $(tail -3 "$root.log")"
rm -f "$root.log"
mount -t proc proc "$root/proc"
cp "$deb" "$root/srv/crumb.deb"
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/srv DEBIAN_FRONTEND=noninteractive "$@"; }
inside apt-get update -qq

echo '== three commands to a first report'
began=$(date +%s)
step() { echo "\$ $*" && inside "$@"; }
step apt-get install -y -qq --no-install-recommends /srv/crumb.deb >"$root/srv/install.log" 2>&1 ||
    fail "it does not install: $(tail -5 "$root/srv/install.log")"
echo '$ apt-get install /srv/crumb.deb'
step crumb run postmark /tmp --number 500 --transactions 2000
step crumb report last -o /srv/report.html
seconds=$(($(date +%s) - began))
[ -s "$root/srv/report.html" ] || fail 'there is no report'
echo "== installed and reported in $seconds s"
[ "$seconds" -le 120 ] || fail 'that took more than two minutes'

step crumb --version
inside getent passwd crumb >/dev/null || fail 'there is no user crumb'
for file in /etc/crumb/proxy.toml /usr/lib/systemd/system/crumb-proxy.service /usr/share/man/man1/crumb-run-fstress.1.gz \
    /usr/share/bash-completion/completions/crumb /usr/sbin/mount.fuse.crumb; do
    [ -e "$root$file" ] || [ -L "$root$file" ] || fail "$file is missing"
done
# The sample configuration is one that the proxy takes.
inside crumb proxy --config /etc/crumb/proxy.toml --print-config >/dev/null || fail 'the sample configuration is wrong'

# As its unit starts it, on free ports: it makes its store, serves, and closes it when it is stopped.
inside install -d -o crumb -g crumb -m 700 /var/cache/crumb
inside timeout --preserve-status -s TERM 3 setpriv --reuid=crumb --regid=crumb --clear-groups --no-new-privs \
    --bounding-set=-all crumb proxy --config /etc/crumb/proxy.toml --listen 127.0.0.1:0 --admin 127.0.0.1:0 ||
    fail 'the proxy does not serve as user crumb'

echo '== removed, installed again, purged'
inside sh -c 'echo kept >/var/cache/crumb/object; echo "# changed" >>/etc/crumb/proxy.toml'
inside dpkg --remove crumb >/dev/null
[ ! -e "$root/usr/bin/crumb" ] || fail 'the program is left'
grep -q '# changed' "$root/etc/crumb/proxy.toml" || fail 'removal took a changed configuration'
inside dpkg --force-confold -i /srv/crumb.deb >/dev/null
grep -q '# changed' "$root/etc/crumb/proxy.toml" || fail 'a changed configuration was replaced'
inside dpkg --purge crumb >/dev/null
[ ! -e "$root/etc/crumb" ] || fail "purge left $(find "$root/etc/crumb" | sed "s,^$root,," | tr '\n' ' ')"
[ "$(cat "$root/var/cache/crumb/object")" = kept ] || fail 'purge took the cache'
[ -s "$root/srv/.local/share/crumb/runs.db" ] || fail 'purge took the runs'
left=$(find "$root/usr" "$root/etc" -name '*crumb*' ! -path '*/dpkg/*' | sed "s,^$root,,")
[ -z "$left" ] || fail "purge left $left"
echo '== purged cleanly; cache and runs are left'
