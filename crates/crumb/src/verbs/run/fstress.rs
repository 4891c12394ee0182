//! `crumb run fstress`: latency against offered load, until the storage saturates.

mod cell;
mod flags;
mod foreseen;
mod vary;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::bail;
use files::{NfsProto, Target};
use fstress::{Fstress, FstressConfig, Load, Reached};
use harness::open_loop::Wait;
use harness::ranks::RankGroup;
use measure::{RunId, RunRecord};
use quanta::Clock;
use serde_json::{Value, json};

pub use self::flags::FstressArgs;
use self::foreseen::would_leave;
use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::forecast::{self, Forecast};
use crate::openers::{TransportOptions, open_transport, proto_of, takes_load};
use crate::outcome::{Begun, Run};
use crate::pipeline::{Around, Plan};
use crate::ranks::{self, Series, on_all};
use crate::series::Turn;
use crate::{quick, signals, tables};

/// Runs the verb.
pub fn run(args: FstressArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    args.run_in(&mut RankGroup::solo(), &signals::stop_flag_of(context)?, context)
}

impl FstressArgs {
    /// Runs the verb as one rank of `group`, or alone; `stop` ends it early and is set when another rank does.
    ///
    /// # Errors
    /// What ended the run, on whichever rank.
    pub fn run_in(
        self,
        group: &mut RankGroup,
        stop: &Arc<AtomicBool>,
        context: &Context,
    ) -> anyhow::Result<ExitStatus> {
        if self.vary.is_some() {
            return vary::run(&self, group, stop, context);
        }
        let sides = ranks::sides(group, &self.target, &self.series.vs, &[], self.seed)?;
        let idle = self.flags_without_use(&sides).map_err(|wrong| wrong.context(BadUsage));
        on_all(group, "its flags", idle)?;
        if self.output.dry_run {
            let foreseen = sides.variants.iter().map(|side| self.foreseen(&side.target, group.ranks()));
            let foreseen = foreseen.collect::<anyhow::Result<Vec<_>>>()?;
            return forecast::show(&foreseen, &self.series, &self.output, context);
        }
        let options = self.transport_options();
        ranks::reach_each(group, &sides, |target| open_transport(target, &options, &Clock::new()))?;
        let series = Series { args: &self.series, sides: &sides, output: &self.output, context, stop };
        let measure_one = |turn: Turn<'_>, group: &mut RankGroup| {
            self.measure_one(turn, Around { context, stop, output: &self.output, group })
        };
        series.run(group, measure_one, tables_of)
    }

    fn measure_one(&self, turn: Turn<'_>, around: Around<'_>) -> anyhow::Result<Run> {
        let Turn { target, label, tables, .. } = turn;
        let begun = Begun::on_all("fstress", target, around.group)?;
        let options = self.transport_options();
        let proto = proto_of(target, &options);
        let config = self.checked(begun.own_part(), &begun.id, proto, around.group.ranks());
        let config = on_all(around.group, "its flags", config)?;
        let benchmark = Fstress { config };
        let plan = Plan {
            seed: self.seed,
            label: label.unwrap_or_else(|| format!("{} on {target}", benchmark.config.workload.name)),
            more_config: self.more_config(&options, proto),
            more_terms: self.more_terms(&benchmark.config),
            of_rank: &["pinned_to_cpus", "spin"],
            would_leave: would_leave(&benchmark.config, target),
            forecast: self.forecast(target, &benchmark.config),
            quick: self.limits_of_quick(&benchmark.config),
            pin: self.pin.as_ref(),
            tables,
            begun,
            benchmark: &benchmark,
        };
        plan.measure(around, || {
            let clock = Clock::new();
            Ok(Reached { transport: open_transport(target, &options, &clock)?, clock })
        })
    }

    /// What a run would do on `target`.
    fn foreseen(&self, target: &Target, ranks: u32) -> anyhow::Result<Forecast> {
        takes_load(target)?;
        let proto = proto_of(target, &self.transport_options());
        let config = self.checked("…", &RunId("RUN".to_owned()), proto, ranks)?;
        Ok(self.forecast(target, &config))
    }

    fn checked(
        &self,
        own_part: &str,
        id: &RunId,
        proto: Option<NfsProto>,
        ranks: u32,
    ) -> anyhow::Result<FstressConfig> {
        let checked = self.config(own_part, id, proto).and_then(|config| match config.load {
            Load::Max { outstanding } if outstanding < ranks => {
                bail!("--outstanding {outstanding}: each of {ranks} ranks keeps at least one")
            }
            _ => Ok(config),
        });
        checked.map_err(|error| error.context(BadUsage))
    }

    /// How the storage is reached and the generator waits.
    fn more_config(&self, options: &TransportOptions, proto: Option<NfsProto>) -> Vec<(&'static str, Value)> {
        vec![
            ("rate", self.rate.clone().into()),
            ("proto", proto.map(|proto| proto.to_string()).into()),
            ("connections", options.connections.get().into()),
            ("udp_timeout_ms", (options.udp_timeout.as_millis() as u64).into()),
            ("udp_retransmits_max", options.udp_retransmits.into()),
            ("pinned_to_cpus", json!(self.pin.as_ref().map(ToString::to_string))),
            ("spin", (self.wait.wait() == Wait::Spin).into()),
        ]
    }

    fn limits_of_quick(&self, config: &FstressConfig) -> Option<String> {
        self.quick.then(|| {
            // How far a search goes, and the set with it, is not known.
            let bytes =
                config.files_max().map_or(u64::MAX, |files| config.workload.bytes_expected(files) as u64);
            quick::limits(bytes, "few requests stand behind a p99.9; and the saturation point may be higher")
        })
    }

    /// What must be the same on all ranks and is not in the configuration.
    fn more_terms(&self, config: &FstressConfig) -> Vec<(&'static str, String)> {
        vec![
            ("rates", format!("{:?}", config.load)),
            ("files", format!("{:?}", config.files)),
            ("file set", format!("{:?} {}", config.keep, config.set_name)),
            ("threads", format!("{:?}", self.threads)),
            ("waiting", self.wait.wait().to_string()),
            ("repeats", format!("{:?}", self.series)),
        ]
    }
}

fn tables_of(record: &RunRecord) -> String {
    let mut text = tables::load_points(record);
    if let Some(point) = tables::telling_point(record) {
        text.push_str(&tables::operations(point));
        text.push_str(&tables::chains(point));
        text.push_str(&tables::ranks(point));
    }
    text + &tables::summary(record)
}
