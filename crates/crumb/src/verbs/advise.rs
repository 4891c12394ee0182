//! `crumb advise`: which directories would gain from being managed, by costs measured on their own file system.

mod measured;
mod measuring;
mod plan;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use dirscale::{Frequencies, Sizes};
use files::Layout;
use measure::RunRecord;
use report::count_text;
use stackfs::advise::{Advice, Costs, Scan, ScanWatch, Total, Worth, scan, total, weigh};

use self::measured::Measured;

use crate::context::Context;
use crate::exit::ExitStatus;
use crate::layout::{counted, grid, named, shortened, wrapped};
use crate::output::print;
use crate::progress::Progress;
use crate::signals;

/// Say which directories of a tree would gain from being managed, and how much in a day.
///
/// Counts the tree, then measures in a scratch directory on the same file system what operations cost by the size of
/// the directory, flat and laid out (as `crumb run dirscale` does), and what a mount adds, for two minutes at most: at the
/// size of the largest directory when it can be filled in that time, else as near to it as can be, and extrapolated. Each
/// directory's share of the day's operations is taken to be its share of the files.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct AdviseArgs {
    /// A lower tree
    #[arg(value_name = "TREE")]
    tree: PathBuf,

    /// Sizes to measure, in files: FROM..TO by doubling, or a list [default: those of the directories found, the largest
    /// first]
    #[arg(long, value_name = "SIZES")]
    sizes: Option<Sizes>,

    /// The layout to weigh against flat directories
    #[arg(long, value_name = "LAYOUT", default_value = "345", value_parser = layout)]
    layout: Layout,

    /// Measure for this long at most; what is larger than can be filled in it is extrapolated
    #[arg(long, value_name = "TIME", default_value = "2min", value_parser = humantime::parse_duration)]
    time: Duration,

    /// Measure each size once and for 15 s at most: a first look
    #[arg(long, conflicts_with = "time")]
    quick: bool,

    /// Drop the caches of the whole machine before each measurement, as a directory that is seldom used would
    /// find them; takes root. Without it, what is looked up is in memory, as on a busy server
    #[arg(long)]
    cold: bool,

    /// Operations a day, by kind: such as a mount has counted them [default: the paper's table 1]
    #[arg(long, value_name = "lookup=N,unlink=N,create=N,readdir=N")]
    mix: Option<Frequencies>,

    /// The same as a mount of the tree counted it, at the rate that it had: name of its run (`crumb runs list`), `last`
    /// for the last mount, or a RunRecord JSON file
    #[arg(long, value_name = "RUN", conflicts_with = "mix")]
    census: Option<String>,

    /// Operations a day in the whole tree, in the proportions of --mix or --census [default: their sum]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    ops_per_day: Option<u64>,

    /// Directories to list
    #[arg(long, value_name = "N", default_value = "10")]
    top: usize,

    /// Write all figures as JSON to this file, - for standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  Which newsgroups are worth managing?
    crumb advise /news
  The same for a day as a mount has counted it, from cold caches (as root):
    crumb advise /news --mix lookup=900000,create=40000,unlink=40000 --cold
  The same out of the results store, where `crumb mount` keeps its census when it ends:
    crumb advise /news --census last
  A first look in 15 seconds:
    crumb advise /news --quick
  Manage what gains:
    crumb advise /news --json - |
      jq -r '.directories[] | select(.advice == \"manage\").path' | xargs crumb manage

Ctrl-C ends it early; the scratch directory is removed.
Exit status: 0 fine, also when there is nothing to gain; 1 it could not be told; 2 wrong usage; 130 interrupted.";

/// Smaller directories are in a block or two on any file system; nobody manages them.
const FILES_MIN: u64 = 512;
const QUICK: Duration = Duration::from_secs(15);
/// Within the time limit; how soon the measurement ends after a signal.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs the verb.
pub fn run(args: &AdviseArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let census = args.census.as_deref().map(|name| census(name, context)).transpose()?;
    let stop = signals::stop_flag_of(context)?;
    let scan = scanned(&args.tree, &stop, context)?;
    let (day, from) = match census {
        Some((day, from)) => (day, Some(from)),
        None => (args.mix.unwrap_or_default(), None),
    };
    let operations = args.ops_per_day.map_or(day.per_day(), |count| count as f64);
    if scan.large.is_empty() {
        let answer = Answer {
            scan: &scan,
            worth: Vec::new(),
            total: Total { gain_s: 0.0, elsewhere_s: 0.0 },
            measured: None,
            from,
        };
        return args.tell(&answer, &day, operations);
    }
    let measured = measuring::measured(args, &scan, day, &stop, context)?;
    let (Some(flat), Some(managed)) = (measured.curve(Layout::Flat), measured.curve(args.layout)) else {
        bail!(
            "{}: not one size was measured within {}; give more by --time, or smaller --sizes",
            args.tree.display(),
            humantime::format_duration(args.limit())
        );
    };
    let costs = Costs { flat, managed, mount: measured.mount.as_ref().ok().copied() };
    let worth = weigh(&scan.large, scan.files, operations, &costs);
    let total = total(&worth, scan.files, operations, &costs);
    args.tell(&Answer { scan: &scan, worth, total, measured: Some(measured), from }, &day, operations)
}

/// What is told in the end.
struct Answer<'a> {
    scan: &'a Scan,
    worth: Vec<Worth>,
    total: Total,
    measured: Option<Measured>,
    /// The mount's run that the day was taken from, and for how long it counted.
    from: Option<(String, Duration)>,
}

/// The day by a mount's census, and where it is from.
fn census(name: &str, context: &Context) -> anyhow::Result<(Frequencies, (String, Duration))> {
    let path = Path::new(name);
    let record = if name.contains('/') || name.ends_with(".json") || path.is_file() {
        let text = std::fs::read_to_string(path)
            .map_err(|error| anyhow!("{name}: cannot be read ({error}); name a run or a RunRecord's file"))?;
        RunRecord::from_json(&text).with_context(|| format!("{name}: no RunRecord"))?
    } else {
        let store = context.store_with_runs()?;
        if name == "last" {
            let mount = store.list()?.into_iter().find(|run| run.benchmark == "mount");
            let mount =
                mount.context("no mount's census is in the store; `crumb mount` keeps one when it ends")?;
            store.find(&mount.id.0)?
        } else {
            store.find(name)?
        }
    };
    let (day, counted_s) = crate::verbs::mount::day_of(&record)?;
    Ok((day, (record.id.0, Duration::from_secs_f64(counted_s))))
}

fn scanned(tree: &Path, stop: &AtomicBool, context: &Context) -> anyhow::Result<Scan> {
    let mut progress = Progress::new(context.quiet);
    let mut show = |directories: u64, files: u64| {
        let directories = counted(directories as usize, "directory", "directories");
        progress.step(0, 1, format!("counting: {directories}, {} files", count_text(files)));
    };
    let scan = scan(tree, FILES_MIN, &mut ScanWatch { progress: &mut show, stop });
    progress.finish();
    let scan = scan?;
    if !scan.complete {
        bail!("{}: interrupted while counting; nothing was changed, run it again", tree.display());
    }
    Ok(scan)
}

impl AdviseArgs {
    fn limit(&self) -> Duration {
        if self.quick { QUICK } else { self.time }
    }

    fn tell(&self, answer: &Answer<'_>, day: &Frequencies, operations: f64) -> anyhow::Result<ExitStatus> {
        let text = self.text(answer, day, operations);
        match &self.json {
            Some(path) if path == Path::new("-") => {
                print(&format!("{:#}\n", self.json_of(answer, day, operations)))?;
            }
            Some(path) => {
                crate::output::refuse_database(path)?;
                std::fs::write(path, format!("{:#}\n", self.json_of(answer, day, operations)))
                    .with_context(|| format!("cannot write {}", path.display()))?;
                print(&text)?;
            }
            None => print(&text)?,
        }
        Ok(ExitStatus::Fine)
    }

    fn text(&self, answer: &Answer<'_>, day: &Frequencies, operations: f64) -> String {
        let Answer { scan, worth, measured, .. } = answer;
        let mut text = named("Tree", &self.tree.display().to_string());
        text.push_str(&named(
            "Counted",
            &format!(
                "{} files in {}; the largest holds {}",
                count_text(scan.files),
                counted(scan.directories as usize, "directory", "directories"),
                count_text(scan.largest)
            ),
        ));
        if scan.unreadable > 0 {
            text.push_str(&named(
                "Not readable",
                &counted(scan.unreadable as usize, "directory", "directories"),
            ));
        }
        let Some(measured) = measured else {
            let verdict = format!("nothing to gain: no directory holds {FILES_MIN} files or more");
            return text + &named("Verdict", &verdict);
        };
        text.push_str(&self.conditions(answer, measured, day, operations));
        text.push('\n');
        let rows: Vec<Vec<String>> =
            worth.iter().take(self.top).map(|worth| row_of(worth, &self.tree)).collect();
        let heads = ["directory", "advice", "files", "gain a day", "95%"];
        text.push_str(&grid(&heads, 2, &rows));
        if let Some(more) = worth.len().checked_sub(self.top).filter(|more| *more > 0) {
            text.push_str(&format!("{} more directories; --top N lists more\n", count_text(more as u64)));
        }
        text.push('\n');
        text.push_str(&named("Verdict", &self.verdict(worth, &answer.total)));
        text + &self.notes(worth, measured)
    }

    /// The day, and what was measured of it.
    fn conditions(
        &self,
        answer: &Answer<'_>,
        measured: &Measured,
        day: &Frequencies,
        operations: f64,
    ) -> String {
        let mut text = String::new();
        let proportions = day.per_day();
        let share = |count: f64| format!("{:.1}%", 100.0 * count / proportions);
        text.push_str(&named(
            "A day",
            &format!(
                "{} operations: {} lookups, {} creations, {} removals, {} listings",
                count_text(operations.round() as u64),
                share(day.lookup),
                share(day.create),
                share(day.unlink),
                share(day.readdir)
            ),
        ));
        if let Some((run, counted)) = &answer.from {
            let counted = humantime::format_duration(Duration::from_secs(counted.as_secs().max(1)));
            text.push_str(&named("Counted by", &format!("mount {run}, in {counted}, and taken to go on so")));
        }
        if let Ok(mount) = &measured.mount {
            let files = answer.scan.largest as f64;
            let (small, large) = (mount.at(0.0).us, mount.at(files).us);
            text.push_str(&named(
                "A mount adds",
                &format!(
                    "{small:.0} µs to an operation of the day in a small directory, {large:.0} in one of {} files",
                    count_text(answer.scan.largest)
                ),
            ));
        }
        text.push_str(&named("Caches", if self.cold { "cold" } else { "warm (--cold for the other end)" }));
        if let Some((flat, managed)) = measured.curve(Layout::Flat).zip(measured.curve(self.layout)) {
            let cut = if measured.cut_short { ", then the time was up" } else { "" };
            text.push_str(&named(
                "Measured",
                &format!(
                    "{}, up to {} files flat and {} managed, in {:.0} s{cut}",
                    counted(flat.sizes(), "size", "sizes"),
                    count_text(flat.largest() as u64),
                    count_text(managed.largest() as u64),
                    measured.took.as_secs_f64()
                ),
            ));
        }
        text
    }

    fn notes(&self, worth: &[Worth], measured: &Measured) -> String {
        let mut text = String::new();
        if let Some(pays) = &measured.pays {
            let sentence = format!("layout {} pays for the whole day {pays}", self.layout);
            text.push_str(&wrapped("  note: ", &sentence));
        }
        if worth.iter().any(|worth| worth.beyond_measured) {
            let sentence = "≥ and ~: larger than any size measured. ~ assumes that costs grow on as they last did. ≥ is the lower \
                            end of the interval: costs that stay as they were, or that keep three quarters of their growth \
                            where three sizes show that each file adds to them. Measure larger sizes with --time";
            text.push_str(&wrapped("  note: ", sentence));
        }
        for remark in &measured.remarks {
            text.push_str(&wrapped("  note: ", remark));
        }
        let sentence = match &measured.mount {
            Ok(_) => "operations are taken to fall on files evenly; gains are less what the mount itself adds to each \
                      operation"
                .to_owned(),
            Err(why) => format!(
                "operations are taken to fall on files evenly; what the mount itself adds to each operation, in any \
                 directory of the tree, is not in the figures: {why}"
            ),
        };
        text + &wrapped("  note: ", &sentence)
    }

    fn verdict(&self, worth: &[Worth], total: &Total) -> String {
        let of = |advice: Advice| worth.iter().filter(move |worth| worth.advice == advice);
        let (gaining, losing) = (of(Advice::Manage).count(), of(Advice::Unmanage).count());
        let net_s = total.gain_s - total.elsewhere_s;
        let unknown = of(Advice::NotShown).filter(|worth| worth.beyond_measured).count();
        let mut verdict = match gaining {
            0 if unknown > 0 => format!(
                "nothing is certain: {} larger than any size that could be measured in the time; give more by --time",
                counted(unknown, "directory is", "directories are"),
            ),
            0 => "nothing to gain by managing more on this file system, as far as can be shown".to_owned(),
            _ if net_s <= 0.0 => format!(
                "nothing to gain: the mount would cost {} a day in the rest of the tree, more than the {} that {} would \
                 gain",
                seconds_text(total.elsewhere_s),
                seconds_text(total.gain_s),
                counted(gaining, "directory", "directories"),
            ),
            _ => {
                let gaining_here = of(Advice::Manage).chain(of(Advice::KeepManaged));
                // Of what lies beyond the sizes measured, what is certain.
                let unsure_s: f64 = gaining_here
                    .filter(|worth| worth.beyond_measured)
                    .map(|worth| worth.gain_s - worth.gain_s_range.0)
                    .sum();
                let least = if unsure_s > 0.0 { "at least" } else { "about" };
                let elsewhere = if total.elsewhere_s > 0.0 {
                    format!(
                        ", less {} that the mount costs in the rest of the tree",
                        seconds_text(total.elsewhere_s)
                    )
                } else {
                    String::new()
                };
                let kept = of(Advice::KeepManaged).count();
                let kept_text =
                    if kept > 0 { format!(" ({kept} of them managed now)") } else { String::new() };
                format!(
                    "managing {}{kept_text} would save {least} {} a day{elsewhere}",
                    counted(gaining + kept, "directory", "directories"),
                    seconds_text(total.gain_s - unsure_s)
                )
            }
        };
        if losing > 0 {
            verdict.push_str(&format!(
                "; {} managed now cost more than flat",
                counted(losing, "directory", "directories")
            ));
        }
        verdict
    }

    fn json_of(&self, answer: &Answer<'_>, day: &Frequencies, operations: f64) -> serde_json::Value {
        let directory = |worth: &Worth| {
            serde_json::json!({
                "path": worth.path.display().to_string(),
                "files": worth.files,
                "managed": worth.managed,
                "advice": worth.advice.name(),
                "operations_per_day": worth.operations_per_day,
                "gain_s_per_day": worth.gain_s,
                "gain_s_per_day_low": worth.gain_s_range.0,
                "gain_s_per_day_high": worth.gain_s_range.1,
                "mount_s_per_day": worth.mount_s,
                "beyond_measured": worth.beyond_measured,
            })
        };
        let measured = answer.measured.as_ref();
        serde_json::json!({
            "tree": self.tree.display().to_string(),
            "files": answer.scan.files,
            "directories_counted": answer.scan.directories,
            "unreadable": answer.scan.unreadable,
            "layout": self.layout.name(),
            "mix_per_day": day.to_string(),
            "mix_from": answer.from.as_ref().map(|(run, _)| run),
            "operations_per_day": operations,
            "caches": if self.cold { "cold" } else { "warm" },
            "cost_us": measured.map(|measured| serde_json::to_value(&measured.day).unwrap_or_default()),
            "gain_s_per_day": answer.total.gain_s,
            "mount_elsewhere_s_per_day": answer.total.elsewhere_s,
            "mount_us": measured.and_then(|measured| measured.mount.as_ref().ok()).map(|mount| mount.at(0.0).us),
            "mount_us_at_the_largest": measured
                .and_then(|measured| measured.mount.as_ref().ok())
                .map(|mount| mount.at(answer.scan.largest as f64).us),
            "pays": measured.and_then(|measured| measured.pays.as_ref()),
            "cut_short": measured.is_some_and(|measured| measured.cut_short),
            "remarks": measured.map(|measured| measured.remarks.clone()),
            "directories": answer.worth.iter().map(directory).collect::<Vec<_>>(),
        })
    }
}

fn row_of(worth: &Worth, tree: &Path) -> Vec<String> {
    let tree = tree.canonicalize().unwrap_or_else(|_| tree.to_owned());
    let path = worth.path.strip_prefix(&tree).unwrap_or(&worth.path);
    let name = if path.as_os_str().is_empty() { ".".to_owned() } else { path.display().to_string() };
    let (low, high) = worth.gain_s_range;
    let (bound, gain_s) = match worth.beyond_measured {
        true if low > 0.0 => ("≥ ", low),
        true => ("~ ", worth.gain_s),
        false => ("", worth.gain_s),
    };
    vec![
        shortened(&name, 26),
        worth.advice.name().to_owned(),
        count_text(worth.files),
        format!("{bound}{}", seconds_text(gain_s)),
        format!("{} to {}", seconds_text(low), seconds_text(high)),
    ]
}

/// With a unit that leaves two or three digits.
fn seconds_text(seconds: f64) -> String {
    let (size, sign) = (seconds.abs(), if seconds < 0.0 { "-" } else { "" });
    match size {
        size if size >= 5400.0 => format!("{sign}{:.1} h", size / 3600.0),
        size if size >= 90.0 => format!("{sign}{:.1} min", size / 60.0),
        size if size >= 9.95 => format!("{sign}{size:.0} s"),
        size => format!("{sign}{size:.1} s"),
    }
}

/// Does `work`, whose flag is raised by a signal or when the time is up.
fn within<T>(
    limit: Duration,
    stop: &Arc<AtomicBool>,
    work: impl FnOnce(&AtomicBool) -> T,
) -> anyhow::Result<T> {
    let ended = Arc::new(AtomicBool::new(false));
    let (done, waits) = channel::<()>();
    let (raise, stop) = (Arc::clone(&ended), Arc::clone(stop));
    let deadline = Instant::now() + limit;
    let watch = move || loop {
        if stop.load(Ordering::Relaxed) || Instant::now() >= deadline {
            raise.store(true, Ordering::Relaxed);
            return;
        }
        if !matches!(waits.recv_timeout(LOOK_EVERY), Err(RecvTimeoutError::Timeout)) {
            return;
        }
    };
    let watcher = std::thread::Builder::new().name("time-limit".to_owned()).spawn(watch)?;
    let came = work(&ended);
    drop(done);
    watcher.join().map_err(|_| anyhow!("the time limit's thread panicked"))?;
    Ok(came)
}

fn layout(text: &str) -> Result<Layout, String> {
    match text.parse::<Layout>() {
        Ok(Layout::Flat) => Err("flat is what layouts are weighed against".to_owned()),
        Ok(layout) => Ok(layout),
        Err(error) => Err(error.to_string()),
    }
}
