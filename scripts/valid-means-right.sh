#!/usr/bin/env bash
# Does VALID mean right on this machine? 56 levels of 3 s a round against a server whose delays are known: undisturbed; with
# stalls of the generator of 50 us, 1 ms and 10 ms on 1% of the sends, and of 40 ms once a second; with lost replies; with a busy
# process beside it. A line a level, then the counts; status 1 when a level was VALID and wrong. The default of 4 rounds (224
# levels) takes 20 minutes on an idle machine, and needs one: two CPUs that nothing else uses.
#   scripts/valid-means-right.sh [ROUNDS] [OUTPUT]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-4} output=${2:-/dev/null}
cargo build --release -q -p crumb --example valid_means_right
"${CARGO_TARGET_DIR:-target}/release/examples/valid_means_right" "$rounds" | tee "$output"
