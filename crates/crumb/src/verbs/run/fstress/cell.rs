//! fstress as one run of several benchmarks.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use quanta::Clock;

use super::FstressArgs;
use crate::forecast::Forecast;
use crate::openers::open_transport;
use crate::outcome::Run;
use crate::pipeline::Around;
use crate::series::Turn;
use crate::verbs::run::cell::Cell;

impl Cell for FstressArgs {
    fn foreseen(&self) -> anyhow::Result<Forecast> {
        FstressArgs::foreseen(self, &self.target, 1)
    }

    fn reach(&self, _stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
        open_transport(&self.target, &self.transport_options(), &Clock::new()).map(drop)
    }

    fn measure(&self, turn: Turn<'_>, around: Around<'_>) -> anyhow::Result<Run> {
        self.measure_one(turn, around)
    }
}
