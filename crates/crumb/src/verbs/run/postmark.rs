//! `crumb run postmark`: PostMark's run on any target, with latencies, threads, and what held it up.

mod cell;
mod flags;
mod of_2001;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use files::FileSystem;
use harness::ranks::RankGroup;
use measure::RunRecord;
use postmark::{Postmark, PostmarkConfig};

pub use self::flags::RunPostmarkArgs;
use self::of_2001::beside_2001;
use crate::context::Context;
use crate::exit::ExitStatus;
use crate::forecast::{self, Forecast};
use crate::layout::counted;
use crate::outcome::{Begun, Run};
use crate::pipeline::{Around, Plan};
use crate::ranks::{self, Series};
use crate::room::{self, Need};
use crate::series::{Turn, Variant};
use crate::{quick, signals, tables};

/// Runs the verb.
pub fn run(args: RunPostmarkArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    args.run_in(&mut RankGroup::solo(), &signals::stop_flag_of(context)?, context)
}

impl RunPostmarkArgs {
    /// Runs the verb as one rank of `group`, each a copy with its own files; or alone. `stop` ends it early and is set
    /// when another rank does.
    ///
    /// # Errors
    /// What ended the run, on whichever rank.
    pub fn run_in(
        self,
        group: &mut RankGroup,
        stop: &Arc<AtomicBool>,
        context: &Context,
    ) -> anyhow::Result<ExitStatus> {
        let seed = u64::from(self.config().settings.seed);
        let sides = ranks::sides(group, &self.target, &self.series.vs, &[], seed)?;
        if self.output.dry_run {
            let foreseen = |side: &Variant| self.forecast(&side.target, &self.config(), "crumb-postmark-…");
            let foreseen: Vec<Forecast> = sides.variants.iter().map(foreseen).collect();
            return forecast::show(&foreseen, &self.series, &self.output, context);
        }
        ranks::reach_each(group, &sides, |target| self.file_system.open(target, stop))?;
        let series = Series { args: &self.series, sides: &sides, output: &self.output, context, stop };
        let measure_one = |turn: Turn<'_>, group: &mut RankGroup| {
            self.measure_one(turn, Around { context, stop, output: &self.output, group })
        };
        series.run(group, measure_one, |record| self.tables(record))
    }

    fn measure_one(&self, turn: Turn<'_>, around: Around<'_>) -> anyhow::Result<Run> {
        let Turn { target, label, tables, .. } = turn;
        let begun = Begun::on_all("postmark", target, around.group)?;
        let folder = format!("crumb-postmark-{}", begun.own_part());
        let benchmark = Postmark { config: self.config(), folder };
        let own_folder = ranks::own_name(around.group, benchmark.folder.clone());
        let seed = u64::from(benchmark.config.settings.seed);
        let plan = Plan {
            seed,
            label: label.unwrap_or_else(|| format!("postmark on {target}")),
            more_config: vec![("nfs", self.file_system.config_json(target))],
            more_terms: vec![("repeats", format!("{:?}", self.series))],
            of_rank: &[],
            would_leave: format!("{own_folder} in {target}; `crumb clean {target}` removes it"),
            forecast: self.forecast(target, &benchmark.config, &own_folder),
            quick: self.limits_of_quick(),
            pin: None,
            tables,
            begun,
            benchmark: &benchmark,
        };
        let stop = around.stop;
        plan.measure(around, || self.open(turn.target, &benchmark, stop))
    }

    fn forecast(&self, target: &files::Target, config: &PostmarkConfig, folder: &str) -> Forecast {
        let (files, bytes) = config.set_of_files();
        let threads = config.threads.get() as u64;
        let transactions = u64::from(config.settings.transactions.get()) * threads;
        Forecast {
            benchmark: "postmark",
            target: target.to_string(),
            what: format!(
                "PostMark on {target}, {} transactions by {}; seed {}",
                report::count_text(transactions),
                counted(config.threads.get(), "thread", "threads"),
                config.settings.seed
            ),
            // Each file is made and deleted; a transaction is two operations.
            operations: Some(2 * (files + transactions)),
            files: Some(files),
            bytes: Some(bytes),
            work_directory: Some(folder.to_owned()),
            ..Forecast::default()
        }
    }

    /// The storage, when it has room for the run.
    fn open(
        &self,
        target: &files::Target,
        benchmark: &Postmark,
        stop: &Arc<AtomicBool>,
    ) -> anyhow::Result<Arc<dyn FileSystem>> {
        let storage = self.file_system.open(target, stop)?;
        let (files, bytes) = benchmark.config.set_of_files();
        room::ensure(&*storage, Need { bytes, files }, "ask for less (--number, --size, --threads)")?;
        Ok(storage)
    }

    fn limits_of_quick(&self) -> Option<String> {
        self.quick.then(|| {
            quick::limits(self.config().set_of_files().1, "and it is too short for what a disk does later")
        })
    }

    fn tables(&self, record: &RunRecord) -> String {
        let mut text = tables::load_points(record) + &tables::phases(&record.phases);
        text.push_str(&record.points.iter().map(tables::operations).collect::<String>());
        text.push_str(&record.points.iter().map(tables::ranks).collect::<String>());
        if self.beside_2001 {
            text.push_str(&beside_2001(record, &self.config().settings));
        }
        text + &tables::summary(record)
    }
}
