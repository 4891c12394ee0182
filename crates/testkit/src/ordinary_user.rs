//! Runs a test as an ordinary user where it was started as root, whom no permission binds.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::need;

/// `nobody` on Linux: owns nothing and belongs to no other group.
const NOBODY: u32 = 65_534;

/// Whether this process is an ordinary user's already. If it is root's, this runs `test` of this test program again in a
/// child process of the user `nobody`, and returns false when it passed there; the caller then returns.
///
/// # Panics
/// When the test fails in the child, or `test` is not the name of exactly one test.
pub fn is_ordinary_user(test: &str) -> bool {
    if !need::is_root() {
        return true;
    }
    // By this link the kernel opens the program itself, which may be below directories that others cannot enter.
    let mut child = Command::new("/proc/self/exe");
    child.arg(test).arg("--nocapture").current_dir("/").gid(NOBODY).uid(NOBODY);
    let output =
        child.output().unwrap_or_else(|error| panic!("cannot run {test} as an ordinary user: {error}"));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("1 passed"), "{test} as an ordinary user:\n{text}");
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_of_root_runs_again_as_an_ordinary_user() {
        if is_ordinary_user("a_test_of_root_runs_again_as_an_ordinary_user") {
            let shadow = std::fs::read("/etc/shadow").expect_err("an ordinary user may not read it");
            assert_eq!(shadow.kind(), std::io::ErrorKind::PermissionDenied);
            assert!(!need::is_root());
        }
    }
}
