//! HTTP load as one of the benchmarks.

use harness::{Benchmark, Context, Ended, Figures, PhaseLive, Surroundings};
use measure::{MetricDeclaration, RankPart};

use crate::run::{Event, Live, WebloadConfig, run};
use crate::{METRICS, Part, WebloadError};

/// The load with its settings.
#[derive(Clone, Debug)]
pub struct Webload {
    /// What is asked, when, and of whom.
    pub config: WebloadConfig,
}

impl Benchmark for Webload {
    const NAME: &'static str = "webload";
    const METRICS: &'static [MetricDeclaration] = METRICS;
    type Config = WebloadConfig;
    /// The generators open their connections as they need them.
    type Storage = ();
    type Part = Part;
    type Error = WebloadError;

    fn config(&self) -> &WebloadConfig {
        &self.config
    }

    fn run(&self, _storage: &mut (), context: &mut Context<'_>) -> Ended<Part, WebloadError> {
        let once =
            |config: &WebloadConfig| run(config, context.stop, &mut |event| context.tell(event.shown()));
        let first = match once(&self.config) {
            Ok(part) => part,
            Err(error) => return Ended::failed(error),
        };
        let late = first.complete.then(|| first.lateness(&self.config)).flatten();
        let Some((why, again)) = late.zip(self.config.again()) else { return Ended::complete(first) };
        context.tell(harness::Event::Note(format!("the level is measured again: {why}")));
        match once(&again) {
            Ok(second) if second.complete => Ended::complete(first.measured_again(second, why)),
            // Stopped: what was measured before is whole.
            Ok(_) => Ended::complete(first),
            Err(error) => Ended { part: Some(first), error: Some(error) },
        }
    }

    /// Several generators are threads of one process (`threads`): no verb runs this with ranks.
    fn merge(&self, mut parts: Vec<(RankPart, Part)>) -> Part {
        parts.swap_remove(0).1
    }

    fn figures(&self, whole: &Part, _around: &Surroundings) -> Figures {
        whole.figures(&self.config)
    }
}

impl Event {
    /// The same for a reporter of any benchmark.
    fn shown(self) -> harness::Event {
        match self {
            Self::Waits(choice) => harness::Event::Waits(choice),
            Self::Live(live) => harness::Event::PhaseLive(live.into()),
        }
    }
}

impl From<Live> for PhaseLive {
    fn from(live: Live) -> Self {
        let progress = live.progress;
        Self {
            phase: progress.phase,
            number: progress.number,
            of: progress.of,
            done: progress.done,
            run_left: progress.run_left,
            offered_per_sec: live.offered_per_sec,
            achieved_per_sec: live.achieved_per_sec,
            latency_mean: live.response_mean,
            p50: live.p50,
            p99: live.p99,
            late_p99: live.late_p99,
            hit_share: live.hit_share,
            in_flight: live.in_flight,
            errors: live.failed,
        }
    }
}
