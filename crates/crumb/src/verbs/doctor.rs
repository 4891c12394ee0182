//! `crumb doctor`: one page on a machine and the storage behind a directory, in half a minute.
//!
//! Not here: what is read, measured and concluded (the crate `doctor`), the page's text (`page`).

mod managed;
mod page;
mod watch;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{anyhow, bail};
use clap::Args;
use doctor::basics::{self, Place};
use doctor::{Facts, Offers, PlaceFacts, Scratch, TargetFacts, UseFacts};
use files::{FileSystem, FsError, LocalFs, Target};
use measure::{MachineMeter, MeterScope};

use self::page::Page;
use self::watch::{TIME_MAX, Watch};
use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::openers::FileSystemArgs;
use crate::output::{can_be_written, print, refuse_store, write_to};
use crate::progress::Progress;
use crate::signals::{self, Leaving};

/// Report what is wrong with a machine and a directory's storage, in half a minute.
///
/// Prints one page: findings, the most important first, which kinds of program will suffer, and the command to type next. It needs no
/// privileges. It reads what the kernel shows to every user, and times short loops of single operations. For these it writes some
/// megabytes of test files in the target, in /dev/shm and in the directory for temporary files (/tmp), and removes them.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Directory, or nfs://host[:port]/export[?proto=udp|tcp&mountport=N], about which less can be found out
    #[arg(default_value = ".")]
    target: Target,

    /// Write all facts and findings as JSON to this file, - for standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    #[command(flatten)]
    file_system: FileSystemArgs,
}

const EXAMPLES: &str = "\
Examples:
  Is anything wrong here?
    crumb doctor
  With a volume, before it is used:
    crumb doctor /mnt/volume
  What is found first, for a script:
    crumb doctor /mnt/volume --json - | jq -r '.findings[0].code'

Ctrl-C ends it and leaves nothing behind; crumb clean DIR removes what a killed one left in DIR.
Exit codes: 0 done, whatever was found; 1 failed; 2 wrong usage; 130 interrupted.";

/// Runs the verb.
pub fn run(args: &DoctorArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    if let Some(path) = args.json.as_deref().filter(|path| *path != Path::new("-")) {
        refuse_store(context, path)?;
        can_be_written(path)?;
    }
    if let Some(instead) = instead(&args.target) {
        return Err(anyhow!("{}: {instead}", args.target).context(BadUsage));
    }
    let stop = signals::stop_flag_of(context)?;
    let fs = args.file_system.open(&args.target, &stop)?;
    let facts = examined(fs, &stop, context)?;
    let findings = doctor::findings(&facts);
    let offers = Offers { mount: cfg!(feature = "mount"), pack: cfg!(feature = "pack") };
    let page = Page {
        programs: doctor::outlooks(&facts, &findings),
        next: doctor::next_steps(&facts, &findings, offers),
        facts,
        findings,
    };
    if let Some(path) = &args.json {
        write_to(path, &format!("{:#}\n", page.json()?))?;
    }
    if args.json.as_deref() != Some(Path::new("-")) {
        print(&page.text())?;
    }
    Ok(ExitStatus::Fine)
}

/// What to run for a target that is no file system.
fn instead(target: &Target) -> Option<String> {
    match target {
        Target::Directory(_) | Target::Nfs(_) => None,
        Target::Pack(path) => {
            let parent =
                path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Some(format!(
                "a packed store is files of a directory: look at that (crumb doctor {}), and at the store itself by crumb pack \
                 check {}",
                doctor::shell_word(&parent.display().to_string()),
                doctor::shell_word(&path.display().to_string())
            ))
        }
        Target::Null => Some("there is no storage to look at; name a directory".to_owned()),
    }
}

/// All facts. The scratch directories are gone when it returns.
fn examined(fs: Arc<dyn FileSystem>, stop: &Arc<AtomicBool>, context: &Context) -> anyhow::Result<Facts> {
    const STEPS: u64 = 14;
    let watch = Watch::over(Arc::clone(stop));
    let mut progress = Progress::new(context.quiet);
    progress.step(0, STEPS, "looking at machine and target".to_owned());
    let mut facts = Facts {
        machine: doctor::machine::machine(env!("CARGO_PKG_VERSION")),
        target: managed::target(&*fs, stop),
        ..Facts::default()
    };
    progress.step(2, STEPS, "waking a thread 200 times".to_owned());
    facts.wake_up = doctor::wake_up(stop);
    let (mut places, leaves) = places(&fs, &mut facts.target, context);
    let meter = MachineMeter::start(MeterScope::of_threads(1));
    basics::measure(&mut places, stop, &mut |round, rounds| {
        let text = format!("measuring, round {} of {rounds}", round + 1);
        progress.step(4 + u64::from(round), STEPS, text);
    });
    facts.machine_use = Some(UseFacts::from(&meter.stop()));
    if let Some(scratch) = places[0].scratch.as_ref().filter(|_| facts.target.is_ext()) {
        facts.target.new_directories_are_indexed = basics::new_directories_are_indexed(scratch);
    }
    if places[0].scratch.is_none() {
        places[0].facts.basics = basics::read_only(&*fs, stop);
    }
    progress.step(STEPS - 1, STEPS, "removing the scratch directories".to_owned());
    // Each removes its scratch directory when it is dropped, and its line of what would be left goes after it.
    let mut is_all_gone = true;
    for place in places {
        is_all_gone &= place.scratch.is_none_or(Scratch::remove);
        facts.places.push(place.facts);
    }
    drop(leaves);
    progress.finish();
    let rest = if is_all_gone { "nothing is left behind" } else { "not all that it made could be removed" };
    if watch.is_late() {
        bail!(
            "{}: not done after {} s, as if the storage did not answer; {rest}",
            fs.place(),
            TIME_MAX.as_secs()
        );
    }
    if stop.load(Ordering::Relaxed) {
        bail!("interrupted; {rest}");
    }
    facts.assumed = doctor::assumed(&facts);
    Ok(facts)
}

/// The target and what it is compared with, each with a scratch directory.
fn places(
    fs: &Arc<dyn FileSystem>,
    target: &mut TargetFacts,
    context: &Context,
) -> (Vec<Place>, Vec<Leaving>) {
    let mut leaves = Vec::new();
    let mut scratch = |fs: &Arc<dyn FileSystem>| {
        let leaving = format!("{} in {}", Scratch::name(), fs.place());
        leaves.push(context.interruption.would_leave(leaving));
        Scratch::make(Arc::clone(fs))
    };
    let here = scratch(fs);
    target.unwritable = here.as_ref().err().map(|error| measure::error_chain(error));
    let status = here.as_ref().err().and_then(FsError::status);
    target.unwritable_status = status.map(|status| status.name().into_owned());
    let kind = if target.path.is_some() { target.kind().to_owned() } else { "nfs".to_owned() };
    let facts =
        PlaceFacts { name: "here".to_owned(), path: target.place.clone(), kind, ..PlaceFacts::default() };
    let mut places = vec![Place::new(facts, here.ok())];
    let device = |path: &Path| std::fs::metadata(path).ok().map(|stat| stat.dev());
    let mut seen: Vec<u64> = target.path.as_deref().and_then(device).into_iter().collect();
    for path in [PathBuf::from("/dev/shm"), std::env::temp_dir()] {
        let (Some(device), Some(mount)) = (device(&path), doctor::target::mount_of(&path)) else { continue };
        if seen.contains(&device) {
            continue;
        }
        seen.push(device);
        let Ok(fs) = LocalFs::open(&path) else { continue };
        let Ok(made) = scratch(&(Arc::new(fs) as Arc<dyn FileSystem>)) else { continue };
        let name = match &*mount.kind {
            "tmpfs" => "tmpfs",
            _ if path == Path::new("/tmp") => "/tmp",
            _ => "TMPDIR",
        };
        let name = name.to_owned();
        let facts =
            PlaceFacts { name, path: path.display().to_string(), kind: mount.kind, ..PlaceFacts::default() };
        places.push(Place::new(facts, Some(made)));
    }
    (places, leaves)
}
