//! `crumb run netnews`: a news feed stored, fed on and expired in passes.

mod cell;
mod flags;
mod made_up;
mod sides;
mod supplies;
mod tables;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use files::Target;
use harness::ranks::RankGroup;
use netnews::feed::Feed;
use netnews::spool::{self, Keep, NetnewsConfig};
use netnews::{Netnews, Supplies};
use serde_json::{Value, json};

pub use self::flags::NetnewsArgs;
use crate::context::Context;
use crate::exit::ExitStatus;
use crate::forecast::{self, Forecast, Levels, Seconds};
use crate::outcome::{Begun, Run};
use crate::output::note;
use crate::pipeline::{Around, Plan};
use crate::quick;
use crate::ranks::{self, Series, on_all};
use crate::series::{Sides, Turn, try_mounts};
use crate::signals;

/// Runs the verb.
pub fn run(args: NetnewsArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    // Before the feed, which may take minutes to make.
    args.output.check(context)?;
    args.run_in(&mut RankGroup::solo(), &signals::stop_flag_of(context)?, context)
}

impl NetnewsArgs {
    /// Runs the verb as one rank of `group`, each a replica with a spool of its own; or alone. `stop` ends it early and is
    /// set when another rank does.
    ///
    /// # Errors
    /// What ended the run, on whichever rank.
    pub fn run_in(
        self,
        group: &mut RankGroup,
        stop: &Arc<AtomicBool>,
        context: &Context,
    ) -> anyhow::Result<ExitStatus> {
        self.kept_for_one_run()?;
        let sides = ranks::sides(group, &self.target, &self.series.vs, &self.keys(), self.seed)?;
        group.same_terms(self.terms())?;
        if self.output.dry_run {
            self.something_to_judge(&sides)?;
            return self.show_forecast(&sides, context);
        }
        // What each side is to do, checked before anything is made up or measured.
        let mut asked = Vec::new();
        for variant in &sides.variants {
            let varied = self.varied(&variant.settings)?;
            let storage = on_all(group, "reaching the storage", varied.storage(&variant.target, stop))?;
            on_all(group, "room on the storage", varied.ensure_room(&storage))?;
            asked.push(varied);
        }
        self.something_to_judge(&sides)?;
        on_all(group, "mounting each side", try_mounts(&sides))?;
        // Made once, so that all runs of a series store the same bytes.
        let made_up = self.place_for_feed(&sides);
        let _leaving = (self.feed.is_none()).then(|| {
            let path = made_up.path.parent().unwrap_or(&made_up.path).display();
            context
                .interruption
                .would_leave(format!("the feed made up for the run, {path}; remove it with rm -r"))
        });
        let feed = self.feed(&made_up, group.rank(), context, stop);
        let feed = on_all(group, "the feed", feed)?;
        let series = Series { args: &self.series, sides: &sides, output: &self.output, context, stop };
        let measure_one = |turn: Turn<'_>, group: &mut RankGroup| {
            let around = Around { context, stop, output: &self.output, group };
            asked[turn.side].measure_one(turn, &feed, around)
        };
        series.run(group, measure_one, tables::shown)
    }

    /// Says what the runs would do, without reaching their targets or making up a feed.
    fn show_forecast(&self, sides: &Sides, context: &Context) -> anyhow::Result<ExitStatus> {
        let feed = match &self.feed {
            Some(path) => {
                let feed = crate::verbs::feed::opened(path)?;
                (feed.articles(), feed.bytes())
            }
            None => (self.articles_to_make_up().get(), self.feed_bytes()),
        };
        let mut foreseen = Vec::new();
        for side in &sides.variants {
            let config = self.varied(&side.settings)?.config("…");
            foreseen.push(self.forecast(&side.target, &config, feed, "crumb-netnews-…"));
        }
        forecast::show(&foreseen, &self.series, &self.output, context)
    }

    fn forecast(
        &self,
        target: &Target,
        config: &NetnewsConfig,
        (articles, bytes): (u64, u64),
        directory: &str,
    ) -> Forecast {
        let at_once = config.bytes_at_once(bytes);
        let bytes_text = report::bytes_text(bytes);
        let making =
            format!("the time to make up the feed ({bytes_text} in TMPDIR, otherwise in /tmp or /var/tmp)");
        let making = if self.feed.is_none() { making } else { String::new() };
        Forecast {
            benchmark: "netnews",
            target: target.to_string(),
            what: format!(
                "{} articles, {}, on {target}: {} passes, kept for {}; {}, seed {}",
                report::count_text(articles),
                bytes_text,
                config.passes,
                config.retention,
                config.removal.name(),
                config.seed,
            ),
            levels: Some(Levels::exactly("passes", config.passes.get().into())),
            seconds: config.time_limit.map(|limit| Seconds { least: 0.0, most: limit.as_secs_f64() }),
            // Stored and deleted.
            operations: Some(2 * articles),
            besides: making,
            files: (bytes > 0).then(|| (articles as f64 * at_once as f64 / bytes as f64) as u64),
            bytes: Some(at_once),
            work_directory: Some(directory.to_owned()),
            is_kept: config.keep != Keep::Remove,
            ..Forecast::default()
        }
    }

    fn measure_one(&self, turn: Turn<'_>, feed: &Feed, around: Around<'_>) -> anyhow::Result<Run> {
        let Turn { target, label, tables, .. } = turn;
        let begun = Begun::on_all("netnews", target, around.group)?;
        let benchmark = Netnews { config: self.config(begun.own_part()) };
        let config = &benchmark.config;
        let own_name = ranks::own_name(around.group, config.name.clone());
        let directory = spool::directory_of(&own_name).display().to_string();
        let is_kept = config.keep != Keep::Remove;
        let plan = Plan {
            seed: self.seed,
            label: label.unwrap_or_else(|| format!("news on {target}")),
            more_config: self.more_config(target, feed, is_kept.then_some(&directory)),
            more_terms: vec![],
            of_rank: &["feed_articles", "feed_batches", "feed_bytes", "spool"],
            would_leave: if is_kept {
                format!("{directory} in {target}; --resume {} continues it", config.name)
            } else {
                format!("{directory} in {target}; `crumb clean {target}` removes it")
            },
            forecast: self.forecast(target, config, (feed.articles(), feed.bytes()), &directory),
            quick: self.quick.then(|| {
                let bytes = config.bytes_at_once(feed.bytes());
                quick::limits(bytes, "and a spool does not age in so few passes")
            }),
            pin: None,
            tables,
            begun,
            benchmark: &benchmark,
        };
        let (stop, context) = (around.stop, around.context);
        let run = plan
            .measure(around, || Ok(Supplies { storage: self.storage(target, stop)?, feed: feed.clone() }))?;
        if is_kept && run.error.is_none() {
            note(context, &format!("left as {directory}; --resume {} continues it", config.name));
        }
        Ok(run)
    }

    /// The feed, where the parts of the spool are, and how the storage is reached.
    fn more_config(
        &self,
        target: &Target,
        feed: &Feed,
        kept_as: Option<&String>,
    ) -> Vec<(&'static str, Value)> {
        let places = self.place.iter().map(|rule| format!("{}={}", rule.hierarchy, rule.target));
        vec![
            ("feed", json!(self.feed.as_ref().map(|path| path.display().to_string()))),
            ("feed_articles", feed.articles().into()),
            ("feed_bytes", feed.bytes().into()),
            ("feed_batches", feed.batch_count().into()),
            ("history", json!(self.history.as_ref().map(ToString::to_string))),
            ("places", places.collect()),
            // One that is removed has another name each time, which is no setting that differs.
            ("spool", json!(kept_as)),
            ("storage", self.storage.config_json(target)),
        ]
    }
}
