//! Serving in the background: the program starts itself again, and the first one ends when the second is ready.
//!
//! No fork, which a program with threads must not do: the child is a fresh program in a session of its own, and its
//! standard output is a pipe on which it says `ready`, or why not.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, anyhow};
use stackfs::Mount;

use crate::context::SERVE_DAEMON;
use crate::exit::{BadUsage, ExitStatus, in_one_line};
use crate::output::print;

const READY: &str = "ready";
const BAD_USAGE: &str = "usage";
const FAILED: &str = "failed";

/// Starts the serving program and waits until it is ready.
pub fn start(log: Option<&Path>) -> anyhow::Result<ExitStatus> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let notes = match log {
        None => Stdio::null(),
        Some(path) => File::options()
            .append(true)
            .create(true)
            .open(path)
            .with_context(|| format!("{}: cannot be written", path.display()))?
            .into(),
    };
    let all = super::as_typed_or_by_mount(std::env::args_os().collect());
    let args = all.into_iter().skip(1).chain([SERVE_DAEMON.into()]);
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(notes);
    let mut child = command.spawn().context("cannot start the daemon")?;
    let mut words = BufReader::new(child.stdout.take().context("the daemon has no standard output")?);
    let mut first = String::new();
    words.read_line(&mut first).context("the daemon cannot be heard")?;
    if first.trim() == READY {
        return Ok(ExitStatus::Fine);
    }
    let mut why = String::new();
    // A word that is no text is no reason to wait for more.
    let _ = words.read_to_string(&mut why);
    let status = child.wait().context("the daemon cannot be waited for")?;
    match first.trim() {
        BAD_USAGE => Err(anyhow!(why.trim().to_owned()).context(BadUsage)),
        FAILED => Err(anyhow!(why.trim().to_owned())),
        _ => Err(anyhow!("the daemon ended before it was ready: {status}")),
    }
}

/// Called once, when the mount answers.
type Ready = Box<dyn FnOnce(&Mount) -> anyhow::Result<()>>;

/// Serves in a session of its own, with a word to who started it.
pub fn serve(work: impl FnOnce(Ready) -> anyhow::Result<ExitStatus>) -> anyhow::Result<ExitStatus> {
    // Fails only for who leads a process group already, and then has a session of its own.
    let _ = rustix::process::setsid();
    // A daemon in a directory would keep its file system from being unmounted.
    let before = std::env::current_dir().ok();
    let ready: Ready = Box::new(move |_| {
        if before.is_some() {
            std::env::set_current_dir("/").context("cannot leave the working directory")?;
        }
        print(&format!("{READY}\n"))
    });
    let done = work(ready);
    if let Err(error) = &done {
        let word = if error.is::<BadUsage>() { BAD_USAGE } else { FAILED };
        // Nobody listens any more when it had been ready.
        let _ = print(&format!("{word}\n{}\n", in_one_line(error)));
    }
    done
}
