# Read by scripts that measure INN, not run: an ext4 image in memory at $work/ext4, and what removes it, whatever ends the script. A
# benchmark runs in the background, with its process id in $running, and is waited for: a signal that comes to the script alone is
# heard at once.
work=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")" crumb-inn.XXXXXX)
running=
clean_up() {
    if [ -n "$running" ]; then
        kill "$running" 2>/dev/null && wait "$running" 2>/dev/null || true
        # A benchmark that is killed does not stop its innd.
        local server
        for server in "$work"/ext4/*/*/run/innd.pid; do
            [ ! -e "$server" ] || kill "$(cat "$server")" 2>/dev/null || true
        done
    fi
    if mountpoint -q "$work/ext4"; then
        umount "$work/ext4" || umount -l "$work/ext4"
    fi
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
# innd becomes the user news and must get in.
chmod 755 "$work"
mkdir "$work/ext4"
truncate -s 4G "$work/image"
mkfs.ext4 -q -F "$work/image"
mount -o loop,nodiscard "$work/image" "$work/ext4"
