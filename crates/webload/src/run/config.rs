//! Settings of a run as a record has them.

use std::num::{NonZeroU32, NonZeroUsize};

use serde::Serialize;
use serde_json::{Value, json};

use super::{Pool, WebloadConfig};
use crate::plan::Plan;
use crate::plan::object_set::SetUse;

/// By the names in records.
#[derive(Serialize)]
pub(crate) struct Fields {
    workload: &'static str,
    parameters: Value,
    threads: NonZeroUsize,
    timeout_s: f64,
    check_one_in: NonZeroU32,
}

impl From<WebloadConfig> for Fields {
    fn from(config: WebloadConfig) -> Self {
        Self {
            workload: config.plan.name(),
            parameters: parameters(&config.plan, config.pool),
            threads: config.threads,
            timeout_s: config.timeout.as_secs_f64(),
            check_one_in: config.check_one_in,
        }
    }
}

fn parameters(plan: &Plan, pool: Pool) -> Value {
    let connections = match pool {
        Pool::Robots { robots, .. } => json!({ "robots": robots }),
        Pool::Shared { connections } => json!(connections),
    };
    match plan {
        Plan::PolyMix(config) => json!({
            "peak_per_sec": config.peak_per_sec,
            "cache_bytes": config.cache_bytes,
            "working_set_bytes": config.working_set_bytes,
            "fill_percent": 100.0 * config.fill_share,
            "time_scale": config.time_scale,
            "connections": connections,
        }),
        Plan::Objects(set) => json!({
            "objects": set.count,
            "object_bytes_mean": set.mean_bytes,
            "zipf": match set.used { SetUse::Again { zipf } => Some(zipf), SetUse::New => None },
            "filled": set.fill_phases > 0,
            "connections": connections,
        }),
        Plan::Trace(trace) => json!({
            "requests": trace.len(),
            "objects": trace.objects(),
            "object_bytes": trace.object_bytes(),
            "connections": connections,
        }),
    }
}
