//! Measured figures that texts quote are on a page below `results/`: the rule is in `scripts/results-check.py`.

use std::process::Command;

use testkit::need;

use super::root;

#[test]
fn quoted_figures_are_on_a_results_page_or_listed_with_a_reason() {
    let Some(python) = need::program("python3", "python3") else { return };
    let output =
        Command::new(python).arg(root().join("scripts/results-check.py")).output().expect("python3 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
