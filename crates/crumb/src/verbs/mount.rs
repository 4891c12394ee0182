//! `crumb mount`: shows a tree with its huge directories spread over many small ones; a foreground program, a
//! daemon, or the helper that mount(8) calls.
//!
//! ```text
//! crumb mount            --> serves in the foreground, a status line on a terminal
//! crumb mount --daemon   --> starts itself again in a session of its own, waits until it is ready, ends
//! mount -t fuse.crumb    --> mount.fuse or the link mount.fuse.crumb --> as --daemon
//! crumb mount --stats    --> asks the serving program through its socket (control)
//! crumb manage --online  --> has it convert a directory (conversion)
//! ```

mod control;
mod conversion;
mod daemon;
mod flags;
mod helper;
mod pid_file;
mod record;
mod status_line;
mod table;

use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use files::Target;
use measure::RunRecord;
use stackfs::{Ending, Mount, StackError, StackOptions};

use self::pid_file::PidFile;
use self::status_line::wait;
use self::table::table;
use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::notify::Supervisor;
use crate::outcome::Begun;
use crate::output::{note, print};
use crate::signals::stop_flag_waking;

pub use self::control::{owner_of, wait_for_end};
pub use self::conversion::{convert as convert_through, planned as planned_through};
pub use self::flags::MountArgs;
pub use self::helper::as_typed_or_by_mount;
pub use self::record::{ENTRY, day_of};

/// How often the status line and `--stats` are drawn.
const DRAWN_EVERY: Duration = Duration::from_secs(1);

/// Mounts, or shows or ends a mount.
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
        stackfs::mounts::remount(&options).map_err(with_usage_marked)?;
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

/// Refuses a second mount of a tree beside one that is to be alone with it, and says what any other second one means.
fn look_at_others(options: &StackOptions, context: &Context) -> anyhow::Result<()> {
    // Places that are not there, or that are mounted already, are reported when it is mounted.
    let Ok(lower) = options.lower.canonicalize() else { return Ok(()) };
    let here = options.mountpoint.canonicalize().ok();
    let others = stackfs::mounts::serving(&lower);
    for other in others.into_iter().filter(|other| Some(&other.mountpoint) != here.as_ref()) {
        if options.exclusive || control::is_exclusive(&other.mountpoint) == Some(true) {
            return Err(with_usage_marked(StackError::Shared { lower, mountpoint: other.mountpoint }));
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
    // Before the ready line: a caller that has read it may send a signal.
    let waiting = std::thread::current();
    let stop = stop_flag_waking(move || waiting.unpark())?;
    // A daemon leaves the directory it was started in.
    let store = std::path::absolute(&context.store)?;
    let pid_path = args.pid_file.as_deref().map(std::path::absolute).transpose()?;
    // Of a daemon the first process is known to the service manager, and that one ends.
    let supervisor = if args.serve_daemon { Supervisor::none() } else { Supervisor::from_environment() };
    let (begun, exclusive) =
        (Begun::now("mount", &Target::Directory(options.lower.clone())), options.exclusive);
    let mount = Mount::start(options.clone()).map_err(with_usage_marked)?;
    let config = record::config_of(&options, &mount.timeouts(options.timeouts), &mount.waiting());
    note(context, &format!("crumb: {}: {}", mount.mountpoint().display(), mount.waiting()));
    let _pid_file = pid_path.as_deref().map(PidFile::write).transpose()?;
    let control = control::Control::listen(mount.mountpoint(), exclusive, mount.watch(), mount.online());
    if let Err(error) = &control {
        tracing::warn!(
            "`crumb mount --stats` and `crumb manage --online` will not find this mount: {error:#}"
        );
    }
    // Without a reader of the line it serves all the same.
    let announced = ready(&mount);
    supervisor.tell("READY=1");
    let watched = !args.serve_daemon && !context.quiet && std::io::stderr().is_terminal();
    wait(&mount, &stop, watched);
    supervisor.tell("STOPPING=1");
    let mut control = Some(control);
    if !mount.is_over() {
        match mount.stop().map_err(with_usage_marked)? {
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

/// Marks invalid paths and options as bad usage.
fn with_usage_marked(error: StackError) -> anyhow::Error {
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

fn keep(context: &Context, store: &Path, record: RunRecord) {
    match report::Store::open(store).and_then(|store| store.insert(&record)) {
        Ok(()) => note(context, &format!("Stored as {}.", record.id)),
        Err(error) => tracing::warn!("the counts were not stored: {:#}", anyhow::Error::from(error)),
    }
}
