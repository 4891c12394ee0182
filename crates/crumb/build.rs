//! The commit that this program is built from, for `--version` and for every record.
//!
//! 1. `CRUMB_COMMIT`, where it is set: for a build from a tarball.
//! 2. The commit that git names, with `-modified` when tracked sources differ from it.
//! 3. Otherwise none, and `--version` says so.
//!
//! Debug builds do not ask git: each commit would compile the crate and link its tests again, and figures of a debug build
//! are not to be trusted anyway. No time stamps: the same commit gives the same program.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CRUMB_COMMIT");
    let version = env::var("CARGO_PKG_VERSION").expect("cargo sets CARGO_PKG_VERSION");
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let named = env::var("CRUMB_COMMIT").ok().filter(|commit| !commit.trim().is_empty());
    let commit = named.map(|commit| commit.trim().to_owned()).or_else(|| is_release.then(commit)?);
    let from = match &commit {
        Some(commit) => commit,
        None if is_release => "commit unknown",
        None => "debug build",
    };
    println!("cargo:rustc-env=CRUMB_VERSION_TEXT={version} ({from})");
    println!("cargo:rustc-env=CRUMB_COMMIT={}", commit.unwrap_or_default());
}

fn commit() -> Option<String> {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?);
    let root = manifest.parent()?.parent()?;
    // A copy of the sources inside another repository is not of that repository's commit.
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    let commit = git(root, &["rev-parse", "--short=12", "HEAD"])?;
    // The log of HEAD grows with each commit, checkout and reset.
    let log = PathBuf::from(git(root, &["rev-parse", "--git-path", "logs/HEAD"])?);
    println!("cargo:rerun-if-changed={}", root.join(log).display());
    const SOURCES: [&str; 3] = ["crates", "Cargo.toml", "Cargo.lock"];
    for source in SOURCES {
        println!("cargo:rerun-if-changed={}", root.join(source).display());
    }
    let changed =
        git(root, &[&["status", "--porcelain", "--untracked-files=no", "--"], &SOURCES[..]].concat())?;
    Some(if changed.is_empty() { commit } else { format!("{commit}-modified") })
}

/// What git prints; none where it fails or is not there.
fn git(directory: &Path, args: &[&str]) -> Option<String> {
    // Without locks: a build takes nothing from who works in the repository meanwhile.
    let mut command = Command::new("git");
    let output = command.current_dir(directory).arg("--no-optional-locks").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
