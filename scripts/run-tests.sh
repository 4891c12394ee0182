#!/usr/bin/env bash
# Runs test commands one after another, each to its end, and sums them up: how many tests passed and failed, which took
# longest, what was skipped and why. Exits with 0 if every command did.
#   scripts/run-tests.sh COMMAND…      each COMMAND is one argument, as for `bash -c`
# One that begins with `beside: ` runs beside those that follow it, for tests that mostly wait; what it prints comes at the end.
# A test that lacks a program or a device appends a line to the list of skipped tests (crates/testkit/src/need.rs). With
# CRUMB_TESTS_MUST_RUN=1 it fails.
set -uo pipefail
[ $# -gt 0 ] || { sed -n '2,7s/^# \?//p' "$0" >&2 && exit 2; }
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
log=$target/tests-log
CRUMB_TESTS_SKIPPED=$(cd "$target" && pwd)/tests-skipped
export CRUMB_TESTS_SKIPPED
: >"$log"
: >"$CRUMB_TESTS_SKIPPED"

failed=()
ended() {
    [ "$2" = 0 ] || failed+=("$1 (exit code $2)")
}
beside=() ids=()
# Ctrl-C reaches all of them; a hangup or a kill of this script alone does not.
trap '[ ${#ids[@]} = 0 ] || kill "${ids[@]}" 2>/dev/null' EXIT
for command in "$@"; do
    case $command in
    'beside: '*)
        command=${command#beside: }
        bash -c "$command" >"$log-beside-${#ids[@]}" 2>&1 </dev/null &
        beside+=("$command") ids+=($!)
        ;;
    *)
        bash -c "$command" 2>&1 | tee -a "$log"
        ended "$command" "${PIPESTATUS[0]}"
        ;;
    esac
done
for at in "${!ids[@]}"; do
    wait "${ids[$at]}"
    code=$?
    tee -a "$log" <"$log-beside-$at"
    rm -f "$log-beside-$at"
    ended "${beside[$at]}" "$code"
done
ids=()

# Cargo names a test program before it runs it; the program ends with its `test result:` line.
echo
awk '
    /^ *Running / { program = $2 == "unittests" ? $4 : $NF; gsub(/^\(|\)$|.*\/|-[0-9a-f]+\)?$/, "", program) }
    # Each crate has a program `it`: its first module tells which.
    program == "it" && /^test [a-z_]+::/ { split($2, module, "::"); program = "it (" module[1] ", …)" }
    /^ *Doc-tests / { program = "examples in the documentation of " $2 }
    /^test result: / {
        for (at = 1; at < NF; at++) {
            if ($(at + 1) == "passed;") passed += $at
            if ($(at + 1) == "failed;") failed += $at
            if ($(at + 1) == "ignored;") ignored += $at
            if ($at == "in") { seconds = $(at + 1); sub(/s$/, "", seconds); seconds += 0 }
        }
        programs++
        if (seconds >= 5) printf "%8.1f s  %s\n", seconds, program
    }
    END { printf "total %d %d %d %d\n", passed, failed, ignored, programs }
' "$log" >"$log.sums"
if grep -q ' s  ' "$log.sums"; then
    echo "test programs that took longest:"
    grep ' s  ' "$log.sums" | sort -rn | head -8
fi
read -r _ passed failures ignored programs < <(grep '^total' "$log.sums")
rm -f "$log.sums"
skipped=$(sort -u "$CRUMB_TESTS_SKIPPED")
count() { grep "^$1: " <<<"$skipped" | cut -d: -f2,3 | sort -u | grep -c .; }
skips=$(count skipped) cannot=$(count 'cannot run here')
if [ -n "$skipped" ]; then
    echo "skipped: $((skips + cannot)) tests, in whole or in part; what they lack:"
    sed 's/^/  /' <<<"$skipped"
fi
echo "tests: $((passed - skips - cannot)) passed, $failures failed, $skips skipped, $cannot cannot run here," \
    "$ignored ignored (make test-real), in $programs programs"
if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
