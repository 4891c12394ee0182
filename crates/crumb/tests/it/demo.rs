//! `make demo` with the build directory elsewhere.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// Serves until it is ended, as `crumb serve` does, and writes down what else it is asked for.
const STAND_IN: &str = r#"#!/bin/sh
case "$1" in
serve) echo "serving at nfs://127.0.0.1:1/"; exec sleep 60 ;;
*) echo "$@" >>"$(dirname "$0")/asked" ;;
esac
"#;

#[test]
fn the_demo_takes_the_binary_from_where_cargo_built_it() {
    let scratch = tempfile::tempdir().unwrap();
    let built = scratch.path().join("elsewhere");
    std::fs::create_dir_all(built.join("release")).unwrap();
    let program = built.join("release/crumb");
    std::fs::write(&program, STAND_IN).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new("bash")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/demo.sh"))
        .env("CARGO_TARGET_DIR", &built)
        .env("DEMO_DIR", scratch.path().join("demo"))
        .env_remove("CRUMB")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let asked = std::fs::read_to_string(built.join("release/asked")).unwrap();
    assert!(asked.contains("--workload mail") && asked.contains("report.html"), "{asked}");
}
