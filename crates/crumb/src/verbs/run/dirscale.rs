//! `crumb run dirscale`: what a directory costs by its size, and from which size a layout pays.

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
use crate::outcome::{Begun, Run};
use crate::pipeline::{Around, Plan};
use crate::quick;
use crate::series::{Sides, Turn};
use crate::signals;

/// Runs the verb.
pub fn run(args: DirscaleArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    args.check()?;
    let stop = signals::stop_flag_of(context)?;
    let (output, mut group) = (&args.output, RankGroup::solo());
    let sides = Sides::parse(&args.target, &args.series.vs, &[])?.in_order_of(args.seed);
    let measure_one =
        |turn: Turn<'_>| args.measure_one(turn, Around { context, stop: &stop, output, group: &mut group });
    args.series.run_sides(&sides, output, context, &stop, measure_one, tables_of)
}

impl DirscaleArgs {
    fn measure_one(&self, turn: Turn<'_>, around: Around<'_>) -> anyhow::Result<Run> {
        let Turn { target, label, .. } = turn;
        let begun = Begun::now("dirscale", target);
        let benchmark = Dirscale { config: self.config(begun.own_part()) };
        let plan = Plan {
            seed: self.seed,
            label: label.unwrap_or_else(|| format!("directories on {target}")),
            more_config: vec![("storage", self.storage.config_json(target))],
            more_terms: vec![],
            of_rank: &[],
            would_leave: would_leave(&benchmark.config, target),
            announced: announced(&benchmark.config, target),
            quick: self.limits_of_quick(&benchmark.config),
            pin: None,
            begun,
            benchmark: &benchmark,
        };
        let stop = around.stop;
        plan.measure(around, || self.open(target, stop))
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
        Keep::Remove => format!("{folder} in {target}; remove it with rm -r"),
        Keep::Keep | Keep::Reuse => {
            format!("{folder} in {target}; --reuse {} continues it", config.set_name)
        }
    }
}

fn announced(config: &DirscaleConfig, target: &Target) -> Vec<String> {
    let layouts: Vec<String> = config.layouts.iter().map(ToString::to_string).collect();
    vec![
        format!(
            "directories of {} files on {target}: {}; {}, seed {}",
            config.sizes,
            layouts.join(", "),
            config.cache,
            config.seed,
        ),
        "Ctrl-C ends it with what it has".to_owned(),
    ]
}
