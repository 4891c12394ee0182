//! netnews as one run of several benchmarks: all runs of a workload store the same feed.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::NetnewsArgs;
use crate::context::Context;
use crate::forecast::Forecast;
use crate::outcome::Run;
use crate::pipeline::Around;
use crate::series::{Sides, Turn};
use crate::verbs::run::cell::{Cell, Supplies};

impl Cell for NetnewsArgs {
    fn foreseen(&self) -> anyhow::Result<Forecast> {
        let feed = (self.articles_to_make_up().get(), self.feed_bytes());
        Ok(self.forecast(&self.target, &self.config("…"), feed, "crumb-netnews-…"))
    }

    fn reach(&self, stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
        self.ensure_room(&self.storage(&self.target, stop)?)
    }

    fn supply(
        &mut self,
        supplies: &mut Supplies,
        context: &Context,
        stop: &AtomicBool,
    ) -> anyhow::Result<()> {
        if self.feed.is_some() {
            return Ok(());
        }
        if supplies.feed.is_none() {
            let made_up = self.place_for_feed(&Sides::on(&supplies.targets));
            let folder = made_up.path.parent().unwrap_or(&made_up.path).display();
            let leaving = context
                .interruption
                .would_leave(format!("the feed made up for the run, {folder}; remove it with rm -r"));
            self.feed(&made_up, 0, context, stop)?;
            supplies.feed = Some(made_up.path.clone());
            supplies.held = vec![Box::new(made_up), Box::new(leaving)];
        }
        self.feed.clone_from(&supplies.feed);
        Ok(())
    }

    fn measure(&self, turn: Turn<'_>, around: Around<'_>) -> anyhow::Result<Run> {
        let feed = crate::verbs::feed::opened(self.feed.as_deref().expect("a feed was supplied"))?;
        self.measure_one(turn, &feed, around)
    }
}
