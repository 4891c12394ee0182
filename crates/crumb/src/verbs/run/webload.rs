//! `crumb run webload`: HTTP traffic through a caching proxy, every reply checked.

mod figures;
mod flags;
mod workload;

use anyhow::bail;
use files::Target;
use harness::ranks::RankGroup;
use measure::RunRecord;
use serde_json::{Value, json};
use webload::{Authority, Origin, Plan as Asked, Through, Webload};

pub use self::flags::WebloadArgs;
use self::workload::Traffic;
use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::forecast::{self, Forecast, Levels, Seconds};
use crate::outcome::{Begun, Run};
use crate::pipeline::{Around, Plan};
use crate::series::{Sides, Turn, Variant};
use crate::verbs::serve_origin::wrong_or_failed;
use crate::{signals, tables};

/// Runs the verb.
pub fn run(args: WebloadArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let usage = |error: anyhow::Error| error.context(BadUsage);
    // Before a trace is read, which may take minutes.
    args.output.check(context)?;
    let traffic = args.workload.traffic().map_err(usage)?;
    let sides = args.through().map_err(usage)?;
    let stop = signals::stop_flag_of(context)?;
    let (output, mut group) = (&args.output, RankGroup::solo());
    let measure_one = |turn: Turn<'_>| {
        let around = Around { context, stop: &stop, output, group: &mut group };
        args.measure_one(turn.label, &sides[turn.side], &traffic, around)
    };
    if output.dry_run {
        let foreseen: Vec<Forecast> = sides.iter().map(|side| args.forecast(side, &traffic)).collect();
        return forecast::show(&foreseen, &args.series, output, context);
    }
    if sides.len() > 1 {
        // One that is not there should not show only after the runs of the others.
        sides.iter().try_for_each(Through::reach)?;
    }
    let variants = Sides { variants: variants(&sides, &traffic), seed: args.seed };
    args.series.run_sides(&variants, output, context, &stop, measure_one, tables_of)
}

/// Sides for a series, which knows them by number; what they are is known here alone.
fn variants(sides: &[Through], traffic: &Traffic) -> Vec<Variant> {
    let variant = |through: &Through| Variant {
        target: Target::Null,
        settings: Vec::new(),
        mount: None,
        label: (sides.len() > 1).then(|| format!("{} through {}", traffic.plan.name(), through.name())),
        metrics: Vec::new(),
    };
    sides.iter().map(variant).collect()
}

impl WebloadArgs {
    fn measure_one(
        &self,
        label: Option<String>,
        through: &Through,
        traffic: &Traffic,
        around: Around<'_>,
    ) -> anyhow::Result<Run> {
        let begun = Begun::on("webload", through.name().to_owned(), None);
        // Before the plan: the settings name its address.
        let own = self.own_origin(&traffic.plan)?;
        let authority = match (&own, &self.origin) {
            (Some(origin), _) => origin.address().into(),
            (None, Some(named)) => named.clone(),
            (None, None) => bail!("no origin"),
        };
        let benchmark = Webload { config: self.config(traffic, through.route(&authority)?) };
        benchmark.config.check().map_err(wrong_or_failed)?;
        let plan = Plan {
            seed: self.seed,
            label: label.unwrap_or_else(|| format!("{} {through}", traffic.plan.name())),
            more_config: self.more_config(&traffic.plan, through, &authority),
            more_terms: vec![],
            of_rank: &[],
            would_leave: String::new(),
            forecast: self.forecast(through, traffic),
            quick: self.workload.limits_of_quick(),
            pin: self.pin.as_ref(),
            // It has no files to remove.
            tables: None,
            begun,
            benchmark: &benchmark,
        };
        let run = plan.measure(around, || Ok(()));
        let _served = own.map(Origin::stop);
        run
    }

    fn forecast(&self, through: &Through, traffic: &Traffic) -> Forecast {
        let timed = traffic.timed().as_secs_f64();
        let origin = self.origin.as_ref().map_or("of its own".to_owned(), ToString::to_string);
        Forecast {
            benchmark: "webload",
            target: through.name().to_owned(),
            what: format!("{} {through}; origin {origin}, seed {}", traffic.plan.name(), self.seed),
            levels: Some(Levels::exactly("phases", traffic.phases.len() as u64)),
            seconds: (timed > 0.0).then_some(Seconds { least: timed, most: timed }),
            besides: traffic.besides(),
            ..Forecast::default()
        }
    }

    /// The origin that this run needs to start itself.
    fn own_origin(&self, asked: &Asked) -> anyhow::Result<Option<Origin>> {
        if self.origin.is_some() {
            return Ok(None);
        }
        let (think, requests_zipf) = asked.origin_manner();
        let options =
            self.manner.options(self.origin_listen, self.origin_threads, think, requests_zipf, self.seed);
        let start = || {
            if let Some(cpus) = &self.origin_pin {
                cpus.pin().map_err(|error| error.context(BadUsage))?;
            }
            Origin::start(&options).map_err(wrong_or_failed)
        };
        // Its threads stay where the thread that starts them is.
        let started = std::thread::scope(|scope| scope.spawn(start).join());
        started.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map(Some)
    }

    /// Which way requests go, the origin, and where both run.
    fn more_config(
        &self,
        asked: &Asked,
        through: &Through,
        authority: &Authority,
    ) -> Vec<(&'static str, Value)> {
        let think = self.manner.think.unwrap_or(asked.origin_manner().0);
        vec![
            ("through", through.to_string().into()),
            ("origin", authority.to_string().into()),
            ("own_origin", self.origin.is_none().into()),
            ("think_mean_s", think.mean.as_secs_f64().into()),
            ("think_sd_s", think.sd.as_secs_f64().into()),
            ("chunked", self.manner.chunked.into()),
            ("pinned_to_cpus", json!(self.pin.as_ref().map(ToString::to_string))),
            ("origin_pinned_to_cpus", json!(self.origin_pin.as_ref().map(ToString::to_string))),
        ]
    }
}

fn tables_of(record: &RunRecord) -> String {
    let mut text = figures::phases(record) + &figures::curves_hint(record) + &tables::load_points(record);
    if let Some(point) = tables::telling_point(record) {
        text.push_str(&tables::operations(point));
    }
    text + &tables::summary(record)
}
