//! Real articles for tests, where they are.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The 10,000 articles of 1993 unpacked into `into`, one file each; none, and said so, where they are missing.
pub fn usenet_1993(into: &Path) -> Option<PathBuf> {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/usenet-1993.tar.zst");
    if !archive.exists() {
        skipped(&format!("{} is not there", archive.display()));
        return None;
    }
    let unpacked = into.join("usenet-1993");
    std::fs::create_dir(&unpacked).expect("a new directory");
    let script = r#"zstd -dc --long=27 "$0" | tar -x -C "$1""#;
    let status = Command::new("sh").arg("-c").arg(script).arg(&archive).arg(&unpacked).status();
    if !status.is_ok_and(|status| status.success()) {
        skipped("zstd and tar cannot unpack the articles");
        return None;
    }
    Some(unpacked)
}

/// Past the harness, which shows the output of tests that fail alone.
fn skipped(why: &str) {
    use std::io::Write as _;
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}
