//! `crumb mount`: shows a tree with its huge directories spread over many small ones; a foreground program, a
//! daemon, or the helper that mount(8) calls.
//!
//! ```text
//! crumb mount            --> serves in the foreground, a status line on a terminal
//! crumb mount --daemon   --> starts itself anew in a session of its own, waits for its word, ends
//! mount -t fuse.crumb    --> mount.fuse or the link mount.fuse.crumb --> as --daemon
//! crumb mount --stats    --> asks the serving program through its socket (control)
//! ```

mod control;
mod daemon;
mod record;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use files::Layout;
use files::Target;
use indicatif::{ProgressBar, ProgressStyle};
use measure::RunRecord;
use report::{count_text, rate_text};
use stackfs::{Census, Ending, Mount, StackError, StackOptions, Watch};

use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::grid;
use crate::notify::Supervisor;
use crate::outcome::Begun;
use crate::output::{note, print};
use crate::signals::stop_flag_waking;

pub use control::{owner_of, wait_for_end};
pub use record::{ENTRY, day_of};

#[derive(Args)]
#[command(
    about = "Show a tree with its huge directories spread over many small ones (Usenetfs)",
    after_help = "\
Examples:
  A spool over itself, for all users (as root), until Ctrl-C:
    crumb mount /news/spool /news/spool
  In the background, ready when the command returns; nothing else changes the tree:
    crumb mount /news/spool /news/spool --daemon --exclusive --pid-file /run/spool.pid
  From /etc/fstab (with /sbin/mount.fuse.crumb a link to crumb):
    /news/spool  /news/spool  fuse.crumb  defaults,exclusive  0 0
  What is it asked, and how long does it take?
    crumb mount --stats /news/spool
    crumb mount --stats /news/spool --prometheus

Which directories are spread: `crumb advise` says, `crumb manage` does it. To end it: `crumb unmount`.

Options after -o: layout=L, exclusive, ro, allow_other, owner_only, nonempty, entry_timeout=S,
attr_timeout=S, negative_timeout=S, awake, nopassthrough, noacl, noxattr, threads=N, directories=N,
dev, suid, noexec, noatime, sync; what only mount(8) minds is passed over. -o remount changes ro, rw, dev,
suid, noexec, noatime and sync of a mount that is there; what is not named stays, others are refused."
)]
pub struct MountArgs {
    /// The tree to show
    #[arg(value_name = "LOWER", required_unless_present = "stats")]
    lower: Option<PathBuf>,

    /// Where; LOWER itself is fine
    #[arg(value_name = "MOUNTPOINT", required_unless_present = "stats")]
    mountpoint: Option<PathBuf>,

    /// Layout for directories that are managed while empty: 345, 34/56, 56/34, 456 or hash:2 [default: 345]
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<Layout>,

    /// Options as mount(8) takes them, see below
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,

    /// Nothing else changes the tree while it is mounted: the kernel may believe what it knows for a day
    #[arg(long)]
    exclusive: bool,

    /// Let no processor sleep while requests come: faster, above all in virtual machines, for more power (root)
    #[arg(long)]
    awake: bool,

    /// Change nothing
    #[arg(long)]
    read_only: bool,

    /// Hide what lies in MOUNTPOINT
    #[arg(long)]
    nonempty: bool,

    /// Return when it is ready, and serve in the background
    #[arg(long)]
    daemon: bool,

    /// Write the serving process's id to this file, and remove it at the end
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,

    /// Append the daemon's notes to this file
    #[arg(long, value_name = "FILE", requires = "daemon")]
    log: Option<PathBuf>,

    /// Do not keep the counts in the results store at the end
    #[arg(long)]
    no_store: bool,

    /// Show what a mount is asked, drawn anew each second, on a terminal; otherwise once
    #[arg(long, value_name = "MOUNTPOINT", conflicts_with_all = ["lower", "mountpoint", "daemon"])]
    stats: Option<PathBuf>,

    /// The same once, in Prometheus' text format
    #[arg(long, requires = "stats")]
    prometheus: bool,

    /// The program that `--daemon` starts: says on standard output when it is ready
    #[arg(long, hide = true)]
    serve_daemon: bool,

    /// What mount(8) passes to its helpers besides
    #[arg(short = 's', short_alias = 'n', hide = true)]
    _sloppy: bool,
    #[arg(short = 't', hide = true, value_name = "TYPE")]
    _kind: Option<String>,
}

/// How often the status line and `--stats` are drawn.
const DRAWN_EVERY: Duration = Duration::from_secs(1);

/// Mounts, or tells of a mount.
///
/// # Errors
/// When it cannot be mounted or asked.
pub fn run(args: MountArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    if let Some(mountpoint) = &args.stats {
        return control::show(mountpoint, args.prometheus, DRAWN_EVERY);
    }
    if args.prometheus {
        // clap lets it pass where a place to mount is named.
        return Err(anyhow::anyhow!("--prometheus goes with --stats MOUNTPOINT").context(BadUsage));
    }
    let options = args.options().map_err(|error| error.context(BadUsage))?;
    if options.remount {
        stackfs::mounts::remount(&options).map_err(told)?;
        return Ok(ExitStatus::Fine);
    }
    if !args.serve_daemon {
        look_at_others(&options, context)?;
    }
    if args.serve_daemon {
        return daemon::serve(|ready| serve(&args, options, context, ready));
    }
    if args.daemon {
        return daemon::start(args.log.as_deref());
    }
    serve(&args, options, context, |mount| {
        let (lower, at) = (mount.lower().display(), mount.mountpoint().display());
        print(&format!("{lower} is shown at {at}; Ctrl-C unmounts\n"))
    })
}

impl MountArgs {
    fn options(&self) -> anyhow::Result<StackOptions> {
        let (Some(lower), Some(mountpoint)) = (&self.lower, &self.mountpoint) else {
            anyhow::bail!("LOWER and MOUNTPOINT are needed");
        };
        let mut options = StackOptions::new(lower, mountpoint);
        if self.exclusive {
            options.apply("exclusive")?;
        }
        for list in &self.options {
            options.apply(list)?;
        }
        if let Some(layout) = self.layout {
            anyhow::ensure!(layout != Layout::Flat, "--layout flat: a managed directory cannot be flat");
            options.apply(&format!("layout={layout}"))?;
        }
        for (asked, name) in [(self.awake, "awake"), (self.read_only, "ro"), (self.nonempty, "nonempty")] {
            if asked {
                options.apply(name)?;
            }
        }
        Ok(options)
    }
}

/// Refuses a second mount of a tree beside one that is to be alone with it, and says what any other second one means.
fn look_at_others(options: &StackOptions, context: &Context) -> anyhow::Result<()> {
    // Places that are not there, or that are mounted already, are told of when it is mounted.
    let Ok(lower) = options.lower.canonicalize() else { return Ok(()) };
    let here = options.mountpoint.canonicalize().ok();
    let others = stackfs::mounts::serving(&lower);
    for other in others.into_iter().filter(|other| Some(&other.mountpoint) != here.as_ref()) {
        if options.exclusive || control::is_exclusive(&other.mountpoint) == Some(true) {
            return Err(told(StackError::Shared { lower, mountpoint: other.mountpoint }));
        }
        note(
            context,
            &format!(
                "crumb: {} is shown at {} too: what one mount changes the other shows within its time-outs, and locks \
                 of one do not count in the other",
                other.lower.display(),
                other.mountpoint.display()
            ),
        );
    }
    Ok(())
}

fn serve(
    args: &MountArgs,
    options: StackOptions,
    context: &Context,
    ready: impl FnOnce(&Mount) -> anyhow::Result<()>,
) -> anyhow::Result<ExitStatus> {
    // Before the ready line: whoever has read it may send a signal.
    let waiting = std::thread::current();
    let stop = stop_flag_waking(move || waiting.unpark())?;
    // A daemon leaves the directory it was started in.
    let store = std::path::absolute(&context.store)?;
    let pid_path = args.pid_file.as_deref().map(std::path::absolute).transpose()?;
    // Of a daemon the first process is known to the service manager, and that one ends.
    let supervisor = if args.serve_daemon { Supervisor::none() } else { Supervisor::from_environment() };
    let (begun, exclusive) =
        (Begun::now("mount", &Target::Directory(options.lower.clone())), options.exclusive);
    let config = record::config_of(&options);
    let mount = Mount::start(options).map_err(told)?;
    let _pid_file = pid_path.as_deref().map(PidFile::write).transpose()?;
    let control = control::Control::listen(mount.mountpoint(), exclusive, mount.watch());
    if let Err(error) = &control {
        tracing::warn!("`crumb mount --stats` will not find this mount: {error:#}");
    }
    // Without a reader of the line it serves all the same.
    let announced = ready(&mount);
    supervisor.tell("READY=1");
    let watched = !args.serve_daemon && !context.quiet && std::io::stderr().is_terminal();
    wait(&mount, &stop, watched);
    supervisor.tell("STOPPING=1");
    let mut control = Some(control);
    if !mount.is_over() {
        match mount.stop().map_err(told)? {
            Ending::Unmounted => {}
            Ending::Detached => {
                // A new mount at this place has the socket from now on.
                control = None;
                supervisor.tell("STATUS=detached while in use, served until its last user is gone");
                note(
                    context,
                    &format!(
                        "crumb: {} is in use: detached, and served until its last user is gone (Ctrl-C ends that too)",
                        mount.mountpoint().display()
                    ),
                );
            }
        }
    }
    let (lower, at) = (mount.lower().to_owned(), mount.mountpoint().to_owned());
    let census = mount.wait().with_context(|| format!("{}: ended badly", at.display()))?;
    drop(control);
    announced?;
    if !args.no_store && census.total() > 0 {
        let label = format!("mount of {}", lower.display());
        keep(context, &store, record::filled(begun.record(context, label), config, &census));
    }
    if !args.serve_daemon {
        note(context, &table(&census));
    }
    Ok(ExitStatus::Fine)
}

/// Bad places and options are mistakes in what was typed.
fn told(error: StackError) -> anyhow::Error {
    let usage = !matches!(
        error,
        StackError::NoDevice { .. }
            | StackError::Refused { .. }
            | StackError::Unmount { .. }
            | StackError::Busy { .. }
            | StackError::Shared { .. }
            | StackError::StillServed { .. }
    );
    let error = anyhow::Error::from(error);
    if usage { error.context(BadUsage) } else { error }
}

fn wait(mount: &Mount, stop: &AtomicBool, watched: bool) {
    let line = if watched { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    line.set_style(ProgressStyle::with_template("{wide_msg}").expect("the template is a constant"));
    let watch = mount.watch();
    mount.wake_at_end(std::thread::current());
    let (mut before, mut drawn) = (0, Instant::now());
    while !stop.load(Ordering::Relaxed) && !mount.is_over() {
        // Woken by a signal, and at the mount's end.
        if watched {
            std::thread::park_timeout(DRAWN_EVERY)
        } else {
            std::thread::park()
        }
        if watched && drawn.elapsed() >= DRAWN_EVERY {
            let census = watch.census();
            let rate = (census.total() - before) as f64 / drawn.elapsed().as_secs_f64();
            line.set_message(format!(
                "{} operations/s, {} inodes known, {} files open ({} passed through)",
                rate_text(rate),
                count_text(census.nodes as u64),
                count_text(census.files_open as u64),
                count_text(census.passed_through as u64),
            ));
            line.tick();
            (before, drawn) = (census.total(), Instant::now());
        }
    }
    line.finish_and_clear();
}

/// The counts as a table, the paper's five rows first.
fn table(census: &Census) -> String {
    let mut text = String::new();
    let rows: Vec<Vec<String>> = census
        .table_1()
        .iter()
        .map(|(name, count, share)| vec![(*name).to_owned(), count_text(*count), format!("{share:.2}")])
        .collect();
    text.push_str(&grid(&["by name", "count", "% of these"], 1, &rows));
    text.push('\n');
    let rows: Vec<Vec<String>> = census
        .operations
        .iter()
        .map(|(operation, counted)| {
            let of = counted.latency.summary();
            let us = |value: f64| format!("{value:.1}");
            vec![
                operation.name().to_owned(),
                count_text(of.count),
                count_text(counted.failed),
                us(of.mean),
                us(of.p50),
                us(of.p99),
                us(of.max),
            ]
        })
        .collect();
    text.push_str(&grid(
        &["operation", "count", "failed", "mean us", "p50 us", "p99 us", "max us"],
        1,
        &rows,
    ));
    text.push_str(&format!(
        "{} inodes known, {} files and {} directories open, {} passed through; mounted for {}\n",
        count_text(census.nodes as u64),
        count_text(census.files_open as u64),
        count_text(census.directories_open as u64),
        count_text(census.passed_through as u64),
        humantime::format_duration(Duration::from_secs(census.elapsed.as_secs())),
    ));
    text
}

fn keep(context: &Context, store: &Path, record: RunRecord) {
    match report::Store::open(store).and_then(|store| store.insert(&record)) {
        Ok(()) => note(context, &format!("Stored as {}.", record.id)),
        Err(error) => tracing::warn!("the counts were not stored: {:#}", anyhow::Error::from(error)),
    }
}

/// A file with our process id, gone when we are.
struct PidFile<'a>(&'a Path);

impl<'a> PidFile<'a> {
    fn write(path: &'a Path) -> anyhow::Result<Self> {
        std::fs::write(path, format!("{}\n", std::process::id()))
            .with_context(|| format!("{}: cannot write the process id", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for PidFile<'_> {
    fn drop(&mut self) {
        // A daemon that was started meanwhile has written its own: that one stays.
        let ours = |text: String| text.trim() == std::process::id().to_string();
        if !std::fs::read_to_string(self.0).is_ok_and(ours) {
            return;
        }
        if let Err(error) = std::fs::remove_file(self.0) {
            tracing::warn!("{}: not removed: {error}", self.0.display());
        }
    }
}

/// The command line, as it is or as mount(8) and mount.fuse mean it: called by the name `mount.fuse.crumb`, or with
/// an absolute path where a verb belongs, it is `crumb mount --daemon`.
pub fn as_typed_or_by_mount(mut args: Vec<OsString>) -> Vec<OsString> {
    let called = |args: &[OsString]| {
        let name = Path::new(args.first()?).file_name()?.to_str()?;
        Some(name.starts_with("mount."))
    };
    let by_mount = called(&args) == Some(true);
    let by_fuse = args.get(1).is_some_and(|first| Path::new(first).is_absolute()) && args.len() > 2;
    if by_mount || by_fuse {
        args.splice(1..1, ["mount".into(), "--daemon".into()]);
    }
    args
}

/// A watch that can be rendered from another thread.
fn told_to_a_terminal(watch: &Watch) -> String {
    table(&watch.census())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &str) -> Vec<OsString> {
        words.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn what_mount_says_to_its_helper_is_understood() {
        let as_helper = as_typed_or_by_mount(line("/sbin/mount.fuse.crumb /news /news -o rw,exclusive"));
        assert_eq!(as_helper[1..], line("mount --daemon /news /news -o rw,exclusive"));
        let by_fuse = as_typed_or_by_mount(line("crumb /news /news -o rw"));
        assert_eq!(by_fuse[1..], line("mount --daemon /news /news -o rw"));
        assert_eq!(as_typed_or_by_mount(line("crumb mount /a /b")), line("crumb mount /a /b"));
        assert_eq!(as_typed_or_by_mount(line("crumb")), line("crumb"));
    }
}
