//! The figures in the Prometheus text format, version 0.0.4.

use std::fmt::Write as _;

use super::figures::{Figures, Histogram};
use crate::server::{LATENCY_STEPS, latency_bound};

/// All figures.
pub fn text(figures: &Figures) -> String {
    let mut out = String::new();
    for (name, help, kind, value) in &figures.plain {
        let _ = writeln!(out, "# HELP crumb_{name} {help}\n# TYPE crumb_{name} {kind}\ncrumb_{name} {value}");
    }
    let heads =
        [("requests_total", "Requests by how they were answered."), ("sent_bytes_total", "Body bytes sent.")];
    for (place, (name, help)) in heads.into_iter().enumerate() {
        let _ = writeln!(out, "# HELP crumb_{name} {help}\n# TYPE crumb_{name} counter");
        for (outcome, requests, sent) in &figures.outcomes {
            let value = if place == 0 { requests } else { sent };
            let _ = writeln!(out, "crumb_{name}{{outcome=\"{}\"}} {value}", outcome.name());
        }
    }
    out.push_str("# HELP crumb_latency_seconds From a request's head to the end of its reply.\n");
    out.push_str("# TYPE crumb_latency_seconds histogram\n");
    histogram(&mut out, "hit", &figures.hits);
    histogram(&mut out, "miss", &figures.misses);
    out.push_str("# HELP crumb_volume_failed 1 when a volume takes no more writes.\n");
    out.push_str("# TYPE crumb_volume_failed gauge\n");
    for volume in &figures.volumes {
        let place = volume.place.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ =
            writeln!(out, "crumb_volume_failed{{place=\"{place}\"}} {}", u8::from(volume.failed.is_some()));
    }
    out
}

fn histogram(out: &mut String, name: &str, histogram: &Histogram) {
    let mut count = 0;
    for (step, steps) in histogram.steps[..LATENCY_STEPS].iter().enumerate() {
        count += steps;
        let bound = latency_bound(step).as_secs_f64();
        let _ = writeln!(out, "crumb_latency_seconds_bucket{{from=\"{name}\",le=\"{bound}\"}} {count}");
    }
    count += histogram.steps[LATENCY_STEPS];
    let total_s = histogram.total_us as f64 / 1e6;
    let _ = writeln!(out, "crumb_latency_seconds_bucket{{from=\"{name}\",le=\"+Inf\"}} {count}");
    let _ = writeln!(out, "crumb_latency_seconds_sum{{from=\"{name}\"}} {total_s}");
    let _ = writeln!(out, "crumb_latency_seconds_count{{from=\"{name}\"}} {count}");
}
