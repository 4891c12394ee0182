//! PostMark as one run of several benchmarks.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use postmark::Postmark;

use super::RunPostmarkArgs;
use crate::forecast::Forecast;
use crate::outcome::Run;
use crate::pipeline::Around;
use crate::series::Turn;
use crate::verbs::run::cell::Cell;

impl Cell for RunPostmarkArgs {
    fn foreseen(&self) -> anyhow::Result<Forecast> {
        Ok(self.forecast(&self.target, &self.config(), "crumb-postmark-…"))
    }

    fn reach(&self, stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
        let benchmark = Postmark { config: self.config(), folder: String::new() };
        self.open(&self.target, &benchmark, stop).map(drop)
    }

    fn measure(&self, turn: Turn<'_>, around: Around<'_>) -> anyhow::Result<Run> {
        self.measure_one(turn, around)
    }
}
