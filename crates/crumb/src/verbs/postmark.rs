//! `crumb postmark`: the drop-in for PostMark 1.51, commands in, its reports out.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, bail};
use clap::Args;
use files::LocalFs;
use postmark::engine::RunOptions;
use postmark::{Session, SessionEnd, Shell, Surroundings};

use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::signals;

/// Run PostMark scripts: the command language, the reports and the counts of PostMark 1.51
///
/// Reads FILE (default ./.pmrc, if it exists), then commands from standard input; `help` lists them. Unlike the
/// old program it refuses a FILE that it cannot read, never overwrites an existing file, always removes its own files,
/// and exits with code 1 if a run failed.
/// It stores no results: use `crumb run postmark` for that, and for latencies, threads and targets other than directories.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  A script, as for the old program:
    crumb postmark mail-server.pmrc < /dev/null
  Commands on standard input:
    printf 'set location /mnt/disk\\nset number 1000\\nrun\\n' | crumb postmark
  By hand:
    crumb postmark

Ctrl-C ends a run early: it prints how far it got and removes its files.
Exit codes: 0 fine, 1 a run failed, 2 wrong usage, 130 interrupted.")]
pub struct PostmarkArgs {
    /// File of commands to read first
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// As shells tell of a process that SIGINT ended.
const INTERRUPTED: i32 = 130;

/// Runs the verb.
pub fn run(args: PostmarkArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    args.file.as_deref().map_or(Ok(()), can_be_read).map_err(|wrong| wrong.context(BadUsage))?;
    let working_directory = std::env::current_dir().context("cannot tell the working directory")?;
    let idle = Arc::new(AtomicBool::new(true));
    // Before the flag of a run: at the prompt there is nothing to clean up, and a read would not end by itself.
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&idle))
            .context("cannot listen to Ctrl-C")?;
    }
    let stop = signals::stop_flag_of(context)?;
    let (mut out, mut err) = (io::stdout().lock(), io::stderr());
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
    match session.converse(args.file.as_deref(), &mut io::stdin().lock())? {
        SessionEnd::Fine => Ok(ExitStatus::Fine),
        SessionEnd::Failed { runs: 1 } => bail!("a run failed; the reason is printed above"),
        SessionEnd::Failed { runs } => bail!("{runs} runs failed; the reasons are printed above"),
        SessionEnd::Interrupted => bail!("interrupted"),
    }
}

/// Refuses a script that the session would pass over: the commands after it would then run with other settings.
fn can_be_read(script: &Path) -> anyhow::Result<()> {
    let shown = script.display();
    let file = File::open(script).with_context(|| {
        format!("cannot read the script {shown}; without one, give the commands on standard input")
    })?;
    if file.metadata().is_ok_and(|file| file.is_dir()) {
        bail!(
            "{shown} is a directory, and FILE holds commands; to measure it, run `crumb run postmark {shown}`"
        );
    }
    Ok(())
}
