//! `crumb advise`: which directories would gain from being managed, by costs measured on their own file system.

mod answer;
mod flags;
mod measured;
mod measuring;
mod plan;
mod predict;
mod time_limit;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use dirscale::Frequencies;
use files::{LAYOUT_FILES_MIN as FILES_MIN, Layout};
use measure::RunRecord;
use report::count_text;
use stackfs::advise::{Costs, Counted, Scan, ScanWatch, Total, Worth, scan, total, weigh};
use stackfs::convert::NameSample;
use stackfs::managed::{LAYOUT_UNMARKED, layout_of, open_directory};

use self::answer::Answer;
pub use self::flags::AdviseArgs;
use self::measured::Measured;
use crate::context::Context;
use crate::exit::ExitStatus;
use crate::layout::counted;
use crate::output::{can_be_written, print, refuse_database, write_to};
use crate::progress::Progress;
use crate::signals;

/// Runs the verb.
pub fn run(args: &AdviseArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    if let Some(path) = args.json.as_deref().filter(|path| *path != Path::new("-")) {
        refuse_database(path)?;
        can_be_written(path)?;
    }
    if args.predict {
        return predict::run(args, context);
    }
    let census = args.census.as_deref().map(|name| census(name, context)).transpose()?;
    let stop = signals::stop_flag_of(context)?;
    let scan = scanned(&args.tree, &stop, context)?;
    let (day, from) = match census {
        Some((day, from)) => (day, Some(from)),
        None => (args.mix.unwrap_or_default(), None),
    };
    let operations = args.ops_per_day.map_or(day.per_day(), |count| count as f64);
    let (layout, why) = args.layout.map_or_else(|| suited(&scan), |layout| (layout, None));
    let (worth, total, measured) = match scan.large.is_empty() {
        true => (Vec::new(), Total { gain_s: 0.0, elsewhere_s: 0.0 }, None),
        false => {
            let mut measured = measuring::measured(args, layout, &scan, day, &stop, context)?;
            measured.remarks.extend(why);
            let (worth, total) = weighed(args, layout, &scan, operations, &measured)?;
            (worth, total, Some(measured))
        }
    };
    let answer = Answer {
        tree: &args.tree,
        layout,
        cold: args.cold,
        top: args.top,
        day,
        operations,
        from,
        scan: &scan,
        worth,
        total,
        measured,
    };
    tell(&answer.text(), &answer.json(), args.json.as_deref())
}

/// The layout that `crumb manage` chooses for the largest flat directory, and why if it is not the usual one. Where all are managed:
/// that of the largest.
fn suited(scan: &Scan) -> (Layout, Option<String>) {
    if let Some(flat) = scan.large.iter().find(|directory| !directory.managed) {
        let names = NameSample::of(&flat.path).unwrap_or_default();
        let why = names.are_not_numbers().then(|| {
            format!(
                "layout {} is weighed, as `crumb manage` would choose it: the names in {} are not numbers",
                names.default_layout(),
                flat.path.display()
            )
        });
        return (names.default_layout(), why);
    }
    let of = |directory: &Counted| open_directory(&directory.path).and_then(layout_of).ok();
    (scan.large.first().and_then(of).unwrap_or(LAYOUT_UNMARKED), None)
}

/// What each large directory would gain, and all together.
fn weighed(
    args: &AdviseArgs,
    layout: Layout,
    scan: &Scan,
    operations: f64,
    measured: &Measured,
) -> anyhow::Result<(Vec<Worth>, Total)> {
    let (Some(flat), Some(managed)) = (measured.curve(Layout::Flat), measured.curve(layout)) else {
        bail!(
            "{}: not one size was measured within {}; give more by --time, or smaller --sizes",
            args.tree.display(),
            humantime::format_duration(args.limit())
        );
    };
    let costs = Costs { flat, managed, mount: measured.mount.as_ref().ok().copied() };
    let worth = weigh(&scan.large, scan.files, operations, &costs);
    let total = total(&worth, scan.files, operations, &costs);
    Ok((worth, total))
}

/// Writes an answer where it is wanted.
fn tell(text: &str, figures: &serde_json::Value, json: Option<&Path>) -> anyhow::Result<ExitStatus> {
    if let Some(path) = json {
        write_to(path, &format!("{figures:#}\n"))?;
    }
    if json != Some(Path::new("-")) {
        print(text)?;
    }
    Ok(ExitStatus::Fine)
}

/// The day by a mount's census, and where it is from.
fn census(name: &str, context: &Context) -> anyhow::Result<(Frequencies, (String, Duration))> {
    let path = Path::new(name);
    let record = if name.contains('/') || name.ends_with(".json") || path.is_file() {
        let text = measure::read_text(path, measure::RECORDS_BYTES_MAX)
            .map_err(|error| anyhow!("{name}: cannot be read ({error}); name a run or a RunRecord's file"))?;
        RunRecord::from_json(&text).with_context(|| format!("{name}: no RunRecord"))?
    } else {
        let store = context.store_with_runs()?;
        if name == "last" {
            let mount = store.list()?.into_iter().find(|run| run.benchmark == "mount");
            let mount = mount.context(
                "the results store has no statistics of a mount; `crumb mount` saves them when it ends",
            )?;
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
