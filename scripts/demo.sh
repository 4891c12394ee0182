#!/usr/bin/env bash
# Crumb's main job with no server needed: exports a scratch folder over NFSv3 on loopback, takes a first look
# at it under the web-server and the mail workload, prints the tables and writes one HTML report. Under 90 seconds after the build.
set -euo pipefail
cd "$(dirname "$0")/.."
crumb=${CRUMB:-${CARGO_TARGET_DIR:-target}/release/crumb}
out=${DEMO_DIR:-demo}
mkdir -p "$out"

# Memory if there is some: the demo shows Crumb and not this machine's disk.
scratch=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")" crumb-demo.XXXXXX)
server=
trap '[ -n "$server" ] && kill "$server" 2>/dev/null && wait "$server" || true; rm -rf "$scratch"' EXIT

coproc SERVER { exec "$crumb" serve dir "$scratch" --listen 127.0.0.1:0 2>&1; }
server=$SERVER_PID
read -r -u "${SERVER[0]}" ready || { echo "the server did not start" >&2; exit 1; }
echo "$ready"
url=$(grep -o 'nfs://[^ ]*' <<<"$ready")

for workload in web-server mail; do
    echo
    status=0
    "$crumb" --store "$out/runs.db" run fstress "$url" --workload "$workload" --quick \
        --label "$workload" --json "$out/$workload.json" || status=$?
    # 3 says that the verdict is INVALID, which the tables and the report explain.
    [ $status -eq 0 ] || [ $status -eq 3 ] || exit $status
done
echo
"$crumb" --store "$out/runs.db" report "$out/web-server.json" "$out/mail.json" -o "$out/report.html" \
    --title "Crumb's own directory server on this machine"
