//! The declared metrics of every benchmark by its name: what `report` reads records by that have none of their own.

use measure::MetricDeclaration;

use crate::verbs::mount;

/// The metrics that `benchmark` declares, by order of interest; none of one that is not known here.
pub fn of(benchmark: &str) -> Vec<MetricDeclaration> {
    match benchmark {
        "fstress" => fstress::METRICS,
        "postmark" => postmark::figures::METRICS,
        "netnews" => netnews::spool::METRICS,
        "dirscale" => dirscale::METRICS,
        "webload" => webload::METRICS,
        "mount" => mount::METRICS,
        _ => &[],
    }
    .to_vec()
}
