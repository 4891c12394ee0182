//! PostMark's command language on standard input, and nothing else of crumb: for timing it beside the original.
//!
//! `cargo run --release -p postmark --example drop_in < commands`

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use files::LocalFs;
use postmark::engine::RunOptions;
use postmark::{Session, SessionEnd, Shell, Surroundings};

fn main() -> io::Result<ExitCode> {
    let (stop, idle) = (AtomicBool::new(false), AtomicBool::new(true));
    let working_directory = std::env::current_dir()?;
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    let session = Session::new(Surroundings {
        out: &mut out,
        err: &mut err,
        working_directory: &working_directory,
        open: &|location| Ok(Arc::new(LocalFs::open(location)?)),
        how: RunOptions::default(),
        stop: &stop,
        idle: &idle,
        shell: Shell::Inherits,
    });
    Ok(match session.converse(None, &mut io::stdin().lock())? {
        SessionEnd::Fine => ExitCode::SUCCESS,
        SessionEnd::Failed { .. } => ExitCode::FAILURE,
        SessionEnd::Interrupted => ExitCode::from(130),
    })
}
