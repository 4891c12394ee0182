#!/usr/bin/env bash
# Does VALID mean right on this machine? 64 levels a round against a server whose delays are known, with and without stalls of
# the generator, lost replies and a busy process beside it. A table a level, then the counts; status 1 when one was VALID and
# wrong. The default of 4 rounds takes half an hour on an idle machine, and needs one: two CPUs that nothing else uses.
#   scripts/valid-means-right.sh [ROUNDS] [OUTPUT]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-4} output=${2:-/dev/null}
cargo build --release -q -p crumb --example valid_means_right
"${CARGO_TARGET_DIR:-target}/release/examples/valid_means_right" "$rounds" | tee "$output"
