//! `crumb serve`: an NFSv3 server that needs neither root nor a portmapper. (Its origin is in `serve_origin`.)

mod flags;

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use files::DirectoryOptions;
use indicatif::{ProgressBar, ProgressStyle};
use nfs::server::{Server, ServerCounters, serve_dir, serve_null};
use report::{bytes_text, count_text, rate_text};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::context::Context;
use crate::exit::ExitStatus;
use crate::output::print;
use crate::verbs::serve_origin;

pub use self::flags::ServeArgs;
use self::flags::{How, What};

/// How often `--status` prints.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// Runs the verb, until SIGINT or SIGTERM.
pub fn run(args: ServeArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    match args.what {
        What::Null { how } => {
            let options = how.options()?;
            serve(&how, context, "the null responder", || serve_null(options))
        }
        What::Dir { path, read_only, devices, how } => {
            let options = how.options()?;
            let name = format!("{}{}", path.display(), if read_only { ", read-only," } else { "" });
            let directory = DirectoryOptions { read_only, devices, ..DirectoryOptions::default() };
            serve(&how, context, &name, || serve_dir(&path, options, directory))
        }
        What::Origin(args) => serve_origin::run(&args, context),
    }
}

fn serve<E: std::error::Error + Send + Sync + 'static>(
    how: &How,
    context: &Context,
    what: &str,
    start: impl FnOnce() -> Result<Server, E>,
) -> anyhow::Result<ExitStatus> {
    // Before the ready line: a caller that has read it may send a signal.
    let stopped = stop_signals()?;
    let server = start()?;
    let began = Instant::now();
    // Without a reader of the line it serves all the same.
    let announced = print(&format!(
        "serving {what} at nfs://{}/ (NFSv3 over UDP and TCP, MOUNT on the same port); Ctrl-C stops\n",
        server.addr()
    ));
    let watched = how.status && !context.quiet && std::io::stderr().is_terminal();
    if watched {
        wait_with_status(&stopped, &server)
    } else {
        wait(&stopped)
    }
    let counters = server.counters();
    server.stop();
    announced?;
    if !context.quiet {
        print(&totals(&counters, began.elapsed()))?;
    }
    Ok(ExitStatus::Fine)
}

/// Printed once, when the first signal comes; a second one ends the process at once, as the disk below may hang.
fn stop_signals() -> anyhow::Result<mpsc::Receiver<()>> {
    let asked = Arc::new(AtomicBool::new(false));
    let register = || -> std::io::Result<Signals> {
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_shutdown(signal, 130, Arc::clone(&asked))?;
            flag::register(signal, Arc::clone(&asked))?;
        }
        Signals::new([SIGINT, SIGTERM])
    };
    let mut signals = register().context("cannot listen to Ctrl-C")?;
    let (stop, stopped) = mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            if signals.forever().next().is_some() {
                // The receiver is gone if the server could not start.
                let _ = stop.send(());
            }
        })
        .context("cannot start the thread that waits for Ctrl-C")?;
    Ok(stopped)
}

fn wait(stopped: &mpsc::Receiver<()>) {
    // An error means that the thread of signals is gone, and then too it is time to stop.
    let _ = stopped.recv();
}

fn wait_with_status(stopped: &mpsc::Receiver<()>, server: &Server) {
    let line = ProgressBar::new_spinner();
    line.set_style(ProgressStyle::with_template("{msg}").expect("the template is a constant"));
    let (mut before, mut at) = (server.counters(), Instant::now());
    while stopped.recv_timeout(STATUS_EVERY) == Err(RecvTimeoutError::Timeout) {
        let (now, elapsed) = (server.counters(), at.elapsed().as_secs_f64());
        let per_sec = |now: u64, before: u64| (now - before) as f64 / elapsed;
        line.set_message(format!(
            "{} calls/s, {}/s in, {}/s out, {} errors, {} connections",
            rate_text(per_sec(now.calls, before.calls)),
            bytes_text(per_sec(now.received_bytes, before.received_bytes) as u64),
            bytes_text(per_sec(now.sent_bytes, before.sent_bytes) as u64),
            count_text(now.errors),
            count_text(now.connections),
        ));
        line.tick();
        (before, at) = (now, Instant::now());
    }
    line.finish_and_clear();
}

fn totals(counters: &ServerCounters, elapsed: Duration) -> String {
    let refused_connections = match counters.connections_refused {
        0 => String::new(),
        refused => format!(" ({} more refused)", count_text(refused)),
    };
    format!(
        "stopped after {:.1} s: {} calls ({} with errors, {} refused), {} in, {} out, {} connections{}\n",
        elapsed.as_secs_f64(),
        count_text(counters.calls),
        count_text(counters.errors),
        count_text(counters.refused),
        bytes_text(counters.received_bytes),
        bytes_text(counters.sent_bytes),
        count_text(counters.connections_accepted),
        refused_connections,
    )
}
