//! What operations cost by the size of the directory, measured in scratch directories of the tree's own file system.
//!
//! ```text
//! 1. small and moderate directories, flat and laid out: quick on any file system
//! 2. the same through a mount: what that adds
//! 3. from there up to the size of the largest directory, or as near to it as can be filled in the time (`plan`)
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
use dirscale::{Cache, Dirscale, DirscaleConfig, Frequencies, Paying, Question, Sizes};
use files::{FileSystem, Layout, LocalFs};
use harness::{Benchmark as _, Figures, Surroundings};
use measure::{CacheControl, Curve, KernelCaches, UnreachableCaches};
use stackfs::advise::{Cost, MountCost, Scan};
use stackfs::{Mount, StackOptions};

use super::AdviseArgs;
use super::measured::{Measured, points_of};
use super::plan::{self, Meter, one};
use super::time_limit::within;
use crate::context::Context;
use crate::progress::Progress;

/// What one scratch directory showed.
struct Shown {
    figures: Figures,
    /// From which size the layout pays.
    paying: Vec<Paying>,
}

/// Measures one size after the other.
struct Bench<'a> {
    args: &'a AdviseArgs,
    layout: Layout,
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
    layout: Layout,
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
        layout,
        frequencies,
        fs: Arc::new(fs),
        caches: caches(args, &tree)?,
        tree,
        stop,
        progress: Progress::new(context.quiet),
        begun: Instant::now(),
        limit: args.limit(),
        runs: 0,
        measured: Measured::default(),
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
        let both = [Layout::Flat, self.layout];
        if let Some(sizes) = self.args.sizes.clone() {
            let shown = self.run(&sizes, &both, self.left(), self.cache())?;
            self.measured.cut_short = !shown.figures.complete;
            self.keep(shown);
            return self.mount(sizes.as_slice()[0]);
        }
        let shown = self.run(&plan::first(scan.largest), &both, self.limit / 2, self.cache())?;
        self.keep(shown);
        let known = self.measured.largest(Layout::Flat).min(self.measured.largest(self.layout));
        if known == 0 {
            self.measured.cut_short = true;
            return Ok(());
        }
        self.mount(known)?;
        let layout = self.layout;
        plan::to_the_largest(self, scan.largest, layout)?;
        self.measured.cut_short =
            self.measured.largest(Layout::Flat).min(self.measured.largest(layout)) < scan.largest;
        Ok(())
    }

    fn cache(&self) -> Cache {
        if self.args.cold { Cache::Cold } else { Cache::Warm }
    }

    /// Measures `sizes` in a scratch directory of its own, for `limit` at most.
    fn run(
        &mut self,
        sizes: &Sizes,
        layouts: &[Layout],
        limit: Duration,
        cache: Cache,
    ) -> anyhow::Result<Shown> {
        let fs = Arc::clone(&self.fs);
        let quick = self.args.quick;
        self.runs += 1;
        let config = DirscaleConfig {
            layouts: layouts.to_vec(),
            sizes: sizes.clone(),
            cache,
            operations: NonZeroU32::new(if quick { 200 } else { 500 }).expect("not 0"),
            // One directory alone is the one that decides, or is compared with another run: rounds cost little beside what
            // it takes to fill it.
            rounds: NonZeroU32::new(if quick {
                1
            } else if layouts.len() == 1 {
                6
            } else {
                3
            })
            .expect("not 0"),
            // Each reading from cold caches has them dropped first.
            readings: NonZeroU32::new(if cache == Cache::Cold { 1 } else { 3 }).expect("not 0"),
            frequencies: self.frequencies,
            // What is looked up, listed and removed needs a name and an inode.
            fill_bytes: Some(0),
            ..DirscaleConfig::new(format!("advise-{}-{}", std::process::id(), self.runs))
        };
        let (progress, caches, stop) = (&mut self.progress, &mut *self.caches, self.stop);
        let mut tell = |event: dirscale::Event| event.shown().iter().for_each(|event| progress.show(event));
        let ended = within(limit, stop, |ended| dirscale::run(&config, fs, caches, ended, &mut tell))?;
        if self.stop.load(Ordering::Relaxed) {
            bail!(
                "{}: interrupted; the scratch directory is removed, run it again",
                self.args.tree.display()
            );
        }
        if let Some(error) = ended.error {
            return Err(anyhow::Error::from(error).context("cannot measure what directories cost"));
        }
        let part = ended.part.unwrap_or_default();
        let paying = part.paying(&config);
        Ok(Shown { figures: Dirscale { config }.figures(&part, &Surroundings::default()), paying })
    }

    /// Keeps the day's cost.
    fn keep(&mut self, shown: Shown) {
        self.measured.keep(&shown.figures.curves);
        let of_day = shown.paying.into_iter().find(|paying| paying.question == Question::Day);
        self.measured.pays = match (of_day, self.args.sizes.is_some()) {
            (Some(paying), true) => Some(paying.crossover.to_string()),
            _ => self.measured.pays_among_sizes(self.layout),
        };
        // The answer above covers "pays-from"; the summary of the measurements covers "interrupted".
        let is_reported_elsewhere = |code: &str| ["pays-from", "interrupted"].contains(&code);
        for reason in
            shown.figures.verdict.reasons.into_iter().filter(|reason| !is_reported_elsewhere(&reason.code))
        {
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

    /// Measures what a mount adds, in a flat directory of this size, warm: what the storage takes is the same below and
    /// above, and would only scatter.
    fn mount(&mut self, size: u64) -> anyhow::Result<()> {
        let limit = self.limit / 8;
        let below = self.run(&one(size), &[Layout::Flat], limit, Cache::Warm)?.figures.curves;
        self.measured.mount = match self.through_a_mount(size, limit)? {
            Ok(above) => added(&self.frequencies, &below, &above, size)
                .ok_or_else(|| "there was no time to measure it".to_owned()),
            Err(why) => Err(why),
        };
        Ok(())
    }

    /// Measures a scratch directory through a mount; the inner error says why there is no mount. The mount point is outside the
    /// tree: inside it, the tree's owner could replace the mount point by a link, and the mount would cover another directory.
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
            Err(error) => return Ok(Err(measure::error_chain(&error))),
        };
        let fs = LocalFs::open(place.0.clone()).with_context(|| place.0.display().to_string())?;
        let below = std::mem::replace(&mut self.fs, Arc::new(fs));
        let shown = self.run(&one(size), &[Layout::Flat], limit, Cache::Warm);
        self.fs = below;
        drop(mount);
        Ok(Ok(shown?.figures.curves))
    }
}

impl Meter for Bench<'_> {
    fn left(&self) -> Duration {
        self.limit.saturating_sub(self.begun.elapsed())
    }

    fn measure(&mut self, sizes: &Sizes, layouts: &[Layout], limit: Duration) -> anyhow::Result<()> {
        let shown = self.run(sizes, layouts, limit, self.cache())?;
        self.keep(shown);
        Ok(())
    }

    fn measured(&self) -> &Measured {
        &self.measured
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

/// What the mount adds to an operation of the day: the difference of each measure, weighed.
fn added(day: &Frequencies, below: &[Curve], above: &[Curve], size: u64) -> Option<MountCost> {
    let of = |curves: &[Curve], name: &str| {
        let curve = curves.iter().find(|curve| curve.name == name)?;
        points_of(curve, Layout::Flat).iter().find(|(files, _)| *files == size as f64).map(|(_, cost)| *cost)
    };
    // The figure, and how far it may be off downwards and upwards: two runs, and the measures of each, err on their own.
    let difference = |name: &str, weight: f64| {
        let (below, above) = (of(below, name)?, of(above, name)?);
        let off_down = (above.us - above.low).hypot(below.high - below.us);
        let off_up = (above.high - above.us).hypot(below.us - below.low);
        Some([above.us - below.us, off_down, off_up].map(|us| weight * us))
    };
    let cost = |parts: &[[f64; 3]]| {
        let us: f64 = parts.iter().map(|[us, ..]| us).sum();
        let off = |place: usize| parts.iter().map(|part| part[place] * part[place]).sum::<f64>().sqrt();
        Cost { us, low: us - off(1), high: us + off(2) }
    };
    let share = |count: f64| count / day.per_day();
    let each = [
        difference("lookup_random_us", share(day.lookup) / 2.0)?,
        difference("lookup_sequential_us", share(day.lookup) / 2.0)?,
        difference("add_us", share(day.create))?,
        difference("remove_us", share(day.unlink))?,
    ];
    let listing = difference("readdir_us", share(day.readdir) / size as f64)?;
    Some(MountCost { each: cost(&each), per_file: cost(&[listing]) })
}

#[cfg(test)]
mod tests {
    use super::*;

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
