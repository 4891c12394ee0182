//! dirscale as one run of several benchmarks.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::{DirscaleArgs, forecast_of};
use crate::forecast::Forecast;
use crate::outcome::Run;
use crate::pipeline::Around;
use crate::series::Turn;
use crate::verbs::run::cell::Cell;

impl Cell for DirscaleArgs {
    fn foreseen(&self) -> anyhow::Result<Forecast> {
        Ok(forecast_of(&self.config("…"), &self.target))
    }

    fn reach(&self, stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
        self.open(&self.target, stop).map(drop)
    }

    fn measure(&self, turn: Turn<'_>, around: Around<'_>) -> anyhow::Result<Run> {
        self.measure_one(turn, around)
    }
}
