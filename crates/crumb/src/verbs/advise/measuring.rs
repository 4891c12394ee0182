//! What operations cost by the size of the directory, measured in scratch directories of the tree's own file system.
//!
//! ```text
//! 1. small and moderate directories, flat and laid out: quick on any file system
//! 2. the same through a mount: what that adds
//! 3. from there up to the size of the largest directory, by doubling, in one directory that grows: filling a linear one
//!    takes four times as long for twice the size, and what was measured when the time is up is within a factor of two of
//!    what can be
//! ```
//!
//! With sizes given, these are measured instead of 1 and 3.
//!
//! Always holds: scratch directories are removed, and the mount is ended, however it ends.
//! Not here: what is concluded (`stackfs::advise`).

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use dirscale::{Cache, DirscaleConfig, Frequencies, Outcome, Question, Sizes};
use files::{FileSystem, Layout, LocalFs};
use measure::{CacheControl, Curve, KernelCaches, UnreachableCaches};
use stackfs::advise::{Cost, CostCurve, MountCost, Scan};
use stackfs::{Mount, StackOptions};

use super::{AdviseArgs, FILES_MIN, show, within};
use crate::context::Context;
use crate::progress::Progress;

/// Filled within seconds on linear directories too, and large enough to tell what listing each file costs.
const MODERATE: u64 = 4096;
/// What the scratch directories showed.
pub struct Measured {
    pub day: Curve,
    /// What a mount adds, or why that is not known.
    pub mount: Result<MountCost, String>,
    /// From which size the layout pays in all.
    pub pays: Option<String>,
    pub remarks: Vec<String>,
    /// Something was left out for want of time.
    pub cut_short: bool,
    pub took: Duration,
}

impl Measured {
    pub fn curve(&self, layout: Layout) -> Option<CostCurve> {
        let curve = CostCurve::new(points_of(&self.day, layout));
        (curve.sizes() > 0).then_some(curve)
    }
}

/// Measures one size after the other.
struct Bench<'a> {
    args: &'a AdviseArgs,
    frequencies: Frequencies,
    tree: PathBuf,
    fs: Arc<dyn FileSystem>,
    caches: Box<dyn CacheControl>,
    stop: &'a Arc<AtomicBool>,
    progress: Progress,
    begun: Instant,
    limit: Duration,
    runs: u32,
    measured: Measured,
}

/// Measures for the directories that were counted.
///
/// # Errors
/// When nothing can be measured there, or it was interrupted.
pub fn measured(
    args: &AdviseArgs,
    scan: &Scan,
    frequencies: Frequencies,
    stop: &Arc<AtomicBool>,
    context: &Context,
) -> anyhow::Result<Measured> {
    let tree = args.tree.canonicalize().with_context(|| args.tree.display().to_string())?;
    let fs = LocalFs::open(tree.clone())
        .with_context(|| format!("{}: no scratch directory can be made there", tree.display()))?;
    let mut bench = Bench {
        args,
        frequencies,
        fs: Arc::new(fs),
        caches: caches(args, &tree)?,
        tree,
        stop,
        progress: Progress::new(context.quiet),
        begun: Instant::now(),
        limit: args.limit(),
        runs: 0,
        measured: Measured {
            day: Curve { name: "day_us".to_owned(), over: "files".to_owned(), lines: Vec::new() },
            mount: Err("there was no time for it".to_owned()),
            pays: None,
            remarks: Vec::new(),
            cut_short: false,
            took: Duration::ZERO,
        },
    };
    let done = bench.all(scan);
    bench.progress.finish();
    done?;
    bench.measured.took = bench.begun.elapsed();
    Ok(bench.measured)
}

fn caches(args: &AdviseArgs, place: &Path) -> anyhow::Result<Box<dyn CacheControl>> {
    Ok(if args.cold {
        Box::new(KernelCaches::open(place).with_context(|| place.display().to_string())?)
    } else {
        Box::new(UnreachableCaches { why: "not asked for".to_owned() })
    })
}

impl Bench<'_> {
    fn all(&mut self, scan: &Scan) -> anyhow::Result<()> {
        let both = [Layout::Flat, self.args.layout];
        if let Some(sizes) = self.args.sizes.clone() {
            let outcome = self.run(&sizes, &both, self.left(), self.cache())?;
            self.measured.cut_short = !outcome.complete;
            self.keep(outcome);
            return self.mount(sizes.as_slice()[0]);
        }
        let moderate = MODERATE.min(scan.largest);
        let sizes =
            if moderate > FILES_MIN { format!("{FILES_MIN},{moderate}") } else { moderate.to_string() };
        let outcome = self.run(&sizes.parse().expect("sizes"), &both, self.limit / 2, self.cache())?;
        self.keep(outcome);
        if self.largest_known() == 0 {
            self.measured.cut_short = true;
            return Ok(());
        }
        self.mount(self.largest_known())?;
        self.largest(scan.largest)
    }

    /// From the moderate size to the one that matters most, or as near to it as can be filled in time.
    fn largest(&mut self, largest: u64) -> anyhow::Result<()> {
        if let Some(sizes) = rising_to(largest, self.largest_known()) {
            let outcome = self.run(&sizes, &[Layout::Flat, self.args.layout], self.left(), self.cache())?;
            self.keep(outcome);
        }
        self.measured.cut_short = self.largest_known() < largest;
        Ok(())
    }

    fn cache(&self) -> Cache {
        if self.args.cold { Cache::Cold } else { Cache::Warm }
    }

    fn left(&self) -> Duration {
        self.limit.saturating_sub(self.begun.elapsed())
    }

    /// The largest size measured in both layouts; 0 when there is none.
    fn largest_known(&self) -> u64 {
        let largest =
            |layout| points_of(&self.measured.day, layout).last().map_or(0, |(files, _)| *files as u64);
        largest(Layout::Flat).min(largest(self.args.layout))
    }

    /// Measures `sizes` in a scratch directory of its own, for `limit` at most.
    fn run(
        &mut self,
        sizes: &Sizes,
        layouts: &[Layout],
        limit: Duration,
        cache: Cache,
    ) -> anyhow::Result<Outcome> {
        let fs = Arc::clone(&self.fs);
        let quick = self.args.quick;
        self.runs += 1;
        let config = DirscaleConfig {
            layouts: layouts.to_vec(),
            sizes: sizes.clone(),
            cache,
            operations: NonZeroU32::new(if quick { 200 } else { 500 }).expect("not 0"),
            rounds: NonZeroU32::new(if quick { 1 } else { 3 }).expect("not 0"),
            // Each reading from cold caches has them dropped first.
            readings: NonZeroU32::new(if cache == Cache::Cold { 1 } else { 3 }).expect("not 0"),
            frequencies: self.frequencies,
            ..DirscaleConfig::new(format!("advise-{}-{}", std::process::id(), self.runs))
        };
        let (progress, caches, stop) = (&mut self.progress, &mut *self.caches, self.stop);
        let outcome = within(limit, stop, |ended| {
            dirscale::run(&config, fs, caches, ended, &mut |event| show(progress, &event))
        })?;
        if self.stop.load(Ordering::Relaxed) {
            bail!(
                "{}: interrupted; the scratch directory is removed, run it again",
                self.args.tree.display()
            );
        }
        if let Some(error) = outcome.error {
            return Err(anyhow::Error::from(error).context("cannot measure what directories cost"));
        }
        Ok(outcome)
    }

    /// Keeps the day's cost.
    fn keep(&mut self, outcome: Outcome) {
        let day = outcome.curves.iter().find(|curve| curve.name == "day_us");
        for line in day.map(|day| day.lines.clone()).unwrap_or_default() {
            match self.measured.day.lines.iter_mut().find(|kept| kept.label == line.label) {
                Some(kept) => {
                    kept.points.extend(line.points);
                    kept.points.sort_by(|a, b| a.x.total_cmp(&b.x));
                }
                None => self.measured.day.lines.push(line),
            }
        }
        let of_day = outcome.paying.into_iter().find(|paying| paying.question == Question::Day);
        self.measured.pays = match (of_day, self.args.sizes.is_some()) {
            (Some(paying), true) => Some(paying.crossover.to_string()),
            _ => self.pays_among_sizes(),
        };
        for reason in outcome.verdict.reasons.into_iter().filter(|reason| reason.code != "pays-from") {
            // dirscale names a flag of its own.
            let text = match reason.code.as_str() {
                "one-round" => "each size was measured once: the intervals do not cover what differs from one time to the \
                                next; measure without --quick"
                    .to_owned(),
                _ => reason.text,
            };
            if !self.measured.remarks.contains(&text) {
                self.measured.remarks.push(text);
            }
        }
    }

    /// From which of the sizes measured on the layout is cheaper beyond doubt.
    fn pays_among_sizes(&self) -> Option<String> {
        let flat = points_of(&self.measured.day, Layout::Flat);
        let laid_out = points_of(&self.measured.day, self.args.layout);
        let pairs: Vec<_> = flat
            .iter()
            .filter_map(|(files, flat)| {
                laid_out.iter().find(|(size, _)| size == files).map(|(_, laid_out)| (*files, flat, laid_out))
            })
            .collect();
        let (largest, ..) = pairs.last()?;
        let cheaper = pairs.iter().rev().take_while(|(_, flat, laid_out)| laid_out.high < flat.low);
        Some(match cheaper.last() {
            Some((files, ..)) => format!(
                "from {} files on, of the sizes measured (up to {})",
                report::count_text(*files as u64),
                report::count_text(*largest as u64)
            ),
            None => {
                format!(
                    "at none of the sizes measured (up to {}) for certain",
                    report::count_text(*largest as u64)
                )
            }
        })
    }

    /// Measures what a mount adds, in a flat directory of this size, warm: what the storage takes is the same below and
    /// above, and would only scatter.
    fn mount(&mut self, size: u64) -> anyhow::Result<()> {
        let limit = self.limit / 8;
        let below = self.run(&one(size), &[Layout::Flat], limit, Cache::Warm)?.curves;
        self.measured.mount = match self.through_a_mount(size, limit)? {
            Ok(above) => added(&self.frequencies, &below, &above, size)
                .ok_or_else(|| "there was no time to measure it".to_owned()),
            Err(why) => Err(why),
        };
        Ok(())
    }

    /// The curves as seen through a mount of a scratch directory; or why there is none. Mounted at a place of our own: in
    /// the tree, whose owner may put a link in the place of any directory, the mount could come to lie over another.
    fn through_a_mount(&mut self, size: u64, limit: Duration) -> anyhow::Result<Result<Vec<Curve>, String>> {
        let process = std::process::id();
        let lower = self.tree.join(format!("{}advise-{process}-mount", dirscale::SET_PREFIX));
        let lower = Scratch::make(lower)?;
        let place = Scratch::make(std::env::temp_dir().join(format!("crumb-advise-mount-{process}")))?;
        let mut options = StackOptions::new(&lower.0, &place.0);
        // Each lookup of the day is one that reaches the mount.
        options.timeouts.entry = Duration::ZERO;
        let mount = match Mount::start(options) {
            Ok(mount) => mount,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let fs = LocalFs::open(place.0.clone()).with_context(|| place.0.display().to_string())?;
        let below = std::mem::replace(&mut self.fs, Arc::new(fs));
        let outcome = self.run(&one(size), &[Layout::Flat], limit, Cache::Warm);
        self.fs = below;
        drop(mount);
        Ok(Ok(outcome?.curves))
    }
}

/// A directory of this user's alone that is gone when this is dropped, if it is still there and empty.
struct Scratch(PathBuf);

impl Scratch {
    fn make(path: PathBuf) -> anyhow::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("{}: cannot be made", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir(&self.0) {
            tracing::warn!("{}: not removed: {error}", self.0.display());
        }
    }
}

fn one(size: u64) -> Sizes {
    size.to_string().parse().expect("a size is one of itself")
}

/// Sizes by doubling up to `largest`, all beyond `known`; none when there are none.
fn rising_to(largest: u64, known: u64) -> Option<Sizes> {
    let halves = std::iter::successors(Some(largest), |size| Some(size / 2));
    let sizes: Vec<String> = halves.take_while(|size| *size > known).map(|size| size.to_string()).collect();
    sizes.join(",").parse().ok()
}

fn points_of(curve: &Curve, layout: Layout) -> Vec<(f64, Cost)> {
    let line = curve.lines.iter().find(|line| line.label == layout.name());
    let points = line.map_or(&[][..], |line| &line.points);
    points
        .iter()
        .map(|point| {
            let (low, high) = (point.low.unwrap_or(point.y), point.high.unwrap_or(point.y));
            (point.x, Cost { us: point.y, low, high })
        })
        .collect()
}

/// What the mount adds to an operation of the day: the difference of each measure, weighed.
fn added(day: &Frequencies, below: &[Curve], above: &[Curve], size: u64) -> Option<MountCost> {
    let of = |curves: &[Curve], name: &str| {
        let curve = curves.iter().find(|curve| curve.name == name)?;
        points_of(curve, Layout::Flat).iter().find(|(files, _)| *files == size as f64).map(|(_, cost)| *cost)
    };
    let difference = |name: &str| {
        let (below, above) = (of(below, name)?, of(above, name)?);
        Some(Cost { us: above.us - below.us, low: above.low - below.high, high: above.high - below.low })
    };
    let (random, sequential) = (difference("lookup_random_us")?, difference("lookup_sequential_us")?);
    let (add, remove, listing) = (difference("add_us")?, difference("remove_us")?, difference("readdir_us")?);
    let weighed = |of: fn(&Cost) -> f64| {
        let lookup = (of(&random) + of(&sequential)) / 2.0;
        (day.lookup * lookup + day.create * of(&add) + day.unlink * of(&remove)) / day.per_day()
    };
    let listed = |of: fn(&Cost) -> f64| day.readdir * of(&listing) / size as f64 / day.per_day();
    Some(MountCost {
        each: Cost { us: weighed(|c| c.us), low: weighed(|c| c.low), high: weighed(|c| c.high) },
        per_file: Cost { us: listed(|c| c.us), low: listed(|c| c.low), high: listed(|c| c.high) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_double_up_to_the_largest_and_none_is_measured_again() {
        assert_eq!(rising_to(60_000, 4096).unwrap().as_slice(), [7500, 15_000, 30_000, 60_000]);
        assert_eq!(rising_to(5000, 4096).unwrap().as_slice(), [5000]);
        assert_eq!(rising_to(4096, 4096), None);
    }

    #[test]
    fn what_a_mount_adds_is_weighed_by_the_day_and_listing_by_the_size() {
        let curve = |name: &str, us: f64| Curve {
            name: name.to_owned(),
            over: "files".to_owned(),
            lines: vec![measure::CurveLine {
                label: "flat".to_owned(),
                points: vec![measure::CurvePoint {
                    x: 1000.0,
                    y: us,
                    low: Some(us - 1.0),
                    high: Some(us + 1.0),
                }],
            }],
        };
        let curves = |lookup: f64, add: f64, remove: f64, readdir: f64| {
            [
                ("lookup_random_us", lookup),
                ("lookup_sequential_us", lookup),
                ("add_us", add),
                ("remove_us", remove),
                ("readdir_us", readdir),
            ]
            .map(|(name, us)| curve(name, us))
        };
        let day: Frequencies = "lookup=80,create=10,unlink=5,readdir=5".parse().unwrap();
        let (below, above) = (curves(10.0, 20.0, 30.0, 100.0), curves(30.0, 120.0, 130.0, 2100.0));
        let added = added(&day, &below, &above, 1000).unwrap();
        assert!((added.at(0.0).us - (0.8 * 20.0 + 0.1 * 100.0 + 0.05 * 100.0)).abs() < 1e-9, "{added:?}");
        assert!((added.at(1000.0).us - added.at(0.0).us - 0.05 * 2000.0).abs() < 1e-9, "{added:?}");
        assert!(added.each.low < added.each.us && added.each.us < added.each.high, "{added:?}");
        assert_eq!(super::added(&day, &below[..4], &above, 1000), None, "a measure is missing");
    }
}
