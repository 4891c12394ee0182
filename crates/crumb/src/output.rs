//! Words for people and programs: results on standard output, notes on standard error, files by `-o`.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::context::Context;

/// Writes to standard output as it is, and at once: a script may wait for it.
///
/// # Errors
/// When it cannot be written; a bare broken pipe when whoever read it has gone, which `exit` lets pass.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(error.into()),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}

/// Tells something on standard error, unless `--quiet`.
pub fn note(context: &Context, text: &str) {
    if !context.quiet {
        say(text);
    }
}

/// A line on standard error. A terminal that is gone is no reason to leave files behind, so failing to write is none to
/// panic.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Finds out whether a file can be written, and leaves it as it is, or away. Pipes and devices are taken on trust, as
/// opening one may wait.
///
/// # Errors
/// When it cannot.
pub fn can_be_written(path: &Path) -> anyhow::Result<()> {
    let there = fs::metadata(path);
    if there.as_ref().is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        return Ok(());
    }
    fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    if there.is_err() {
        fs::remove_file(path).with_context(|| format!("cannot remove {} again", path.display()))?;
    }
    Ok(())
}

/// Where `-o` sends something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// `-`, or no `-o` at all.
    Stdout,
    /// A file, overwritten when it is there.
    File(PathBuf),
}

impl Destination {
    /// What `-o` says; `-` is standard output.
    pub fn new(path: Option<PathBuf>) -> Self {
        path.filter(|path| path != Path::new("-")).map_or(Self::Stdout, Self::File)
    }

    /// Writes it all; for a file, `what` and its name are told in a note.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, context: &Context, what: &str, text: &str) -> anyhow::Result<()> {
        match self {
            Self::Stdout => print(text),
            Self::File(path) => {
                fs::write(path, text).with_context(|| format!("{}: cannot write {what}", path.display()))?;
                note(context, &format!("wrote {what} to {}", path.display()));
                Ok(())
            }
        }
    }
}
