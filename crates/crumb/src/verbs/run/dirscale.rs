//! `crumb run dirscale`: what a directory costs by its size, and from which size a layout pays.

mod cell;
mod flags;
mod tables;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use dirscale::{Dirscale, DirscaleConfig, Keep, Reached};
use files::{FileSystem, Target};
use harness::ranks::RankGroup;
use measure::{CacheControl, KernelCaches, UnreachableCaches};

pub use self::flags::DirscaleArgs;
use self::tables::tables_of;
use crate::context::Context;
use crate::exit::ExitStatus;
use crate::forecast::{self, Forecast, Levels};
use crate::outcome::{Begun, Run};
use crate::pipeline::{Around, Plan};
use crate::quick;
use crate::ranks;
use crate::series::{Sides, Turn};
use crate::signals;

/// Runs the verb.
pub fn run(args: DirscaleArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    args.check()?;
    let stop = signals::stop_flag_of(context)?;
    let (output, mut group) = (&args.output, RankGroup::solo());
    let sides = Sides::parse(&args.target, &args.series.vs, &[])?.in_order_of(args.seed);
    if output.dry_run {
        let config = args.config("…");
        let foreseen: Vec<Forecast> =
            sides.variants.iter().map(|side| forecast_of(&config, &side.target)).collect();
        return forecast::show(&foreseen, &args.series, output, context);
    }
    ranks::reach_each(&mut group, &sides, |target| args.storage.open(target, &stop))?;
    let measure_one =
        |turn: Turn<'_>| args.measure_one(turn, Around { context, stop: &stop, output, group: &mut group });
    args.series.run_sides(&sides, output, context, &stop, measure_one, tables_of)
}

impl DirscaleArgs {
    fn measure_one(&self, turn: Turn<'_>, around: Around<'_>) -> anyhow::Result<Run> {
        let Turn { target, label, tables, .. } = turn;
        let begun = Begun::now("dirscale", target);
        let benchmark = Dirscale { config: self.config(begun.own_part()) };
        let reached = self.open(target, around.stop)?;
        // Storage that cannot say how much room it has fails in the run, with its name.
        let sizes = reached.fs.statfs().map(|space| benchmark.config.sizes_in(&space));
        let announced = DirscaleConfig {
            sizes: sizes.unwrap_or_else(|_| benchmark.config.sizes.clone()),
            ..benchmark.config.clone()
        };
        let plan = Plan {
            seed: self.seed,
            label: label.unwrap_or_else(|| format!("directories on {target}")),
            more_config: vec![("storage", self.storage.config_json(target))],
            more_terms: vec![],
            of_rank: &[],
            would_leave: would_leave(&benchmark.config, target),
            forecast: forecast_of(&announced, target),
            quick: self.limits_of_quick(&benchmark.config),
            pin: None,
            tables,
            begun,
            benchmark: &benchmark,
        };
        plan.measure(around, || Ok(reached))
    }

    fn limits_of_quick(&self, config: &DirscaleConfig) -> Option<String> {
        self.quick.then(|| {
            let bytes = config.files_max() * u64::from(config.file_bytes);
            quick::limits(bytes, "and a layout may pay only in larger directories, or on a disk")
        })
    }

    fn open(&self, target: &Target, stop: &Arc<AtomicBool>) -> anyhow::Result<Reached> {
        let fs = self.storage.open(target, stop)?;
        Ok(Reached { caches: caches_of(&*fs)?, fs })
    }
}

/// What can drop the caches under this storage.
fn caches_of(fs: &dyn FileSystem) -> anyhow::Result<Box<dyn CacheControl + Send>> {
    Ok(match fs.local_root() {
        Some(root) => Box::new(
            KernelCaches::open(root).with_context(|| format!("cannot use directory {}", root.display()))?,
        ),
        None => {
            Box::new(UnreachableCaches { why: "the server's caches cannot be dropped from here".to_owned() })
        }
    })
}

fn would_leave(config: &DirscaleConfig, target: &Target) -> String {
    let folder = config.folder();
    match config.keep {
        Keep::Remove => format!("{folder} in {target}; `crumb clean {target}` removes it"),
        Keep::Keep | Keep::Reuse => {
            format!("{folder} in {target}; --reuse {} continues it", config.set_name)
        }
    }
}

fn forecast_of(config: &DirscaleConfig, target: &Target) -> Forecast {
    let names: Vec<String> = config.layouts.iter().map(ToString::to_string).collect();
    let sizes = config.sizes.as_slice().len() as u64;
    let (files, layouts) = (config.files_max(), names.len() as u64);
    // Two sorts of lookups, files added and files removed.
    let measured = sizes * layouts * u64::from(config.rounds.get()) * 4 * u64::from(config.operations.get());
    Forecast {
        benchmark: "dirscale",
        target: target.to_string(),
        what: format!(
            "directories of {} files on {target}: {}; {}, seed {}",
            config.sizes,
            names.join(", "),
            config.cache,
            config.seed
        ),
        levels: Some(Levels::exactly("sizes", sizes)),
        // Each file is made, and one that is not kept removed.
        operations: Some(measured + 2 * files),
        files: Some(files),
        bytes: Some(files.saturating_mul(config.file_bytes.into())),
        work_directory: Some(config.folder()),
        is_kept: config.keep != Keep::Remove,
        ..Forecast::default()
    }
}
