//! The figures for Prometheus.

use measure::{PrometheusKind, PrometheusMetric, PrometheusPage};

use super::figures::{Figures, Histogram};
use crate::server::{LATENCY_STEPS, latency_bound};

/// All figures.
pub fn text(figures: &Figures) -> String {
    let mut page = PrometheusPage::new("crumb_");
    for (name, help, kind, value) in &figures.plain {
        page.metric(name, *kind, help).value(value);
    }
    let help = "Requests by how they were answered.";
    let mut requests = page.metric("requests_total", PrometheusKind::Counter, help);
    for (outcome, count, _) in &figures.outcomes {
        requests.sample("", &[("outcome", outcome.name())], count);
    }
    let mut sent = page.metric("sent_bytes_total", PrometheusKind::Counter, "Body bytes sent.");
    for (outcome, _, bytes) in &figures.outcomes {
        sent.sample("", &[("outcome", outcome.name())], bytes);
    }
    let help = "From a request's head to the end of its reply.";
    let mut latency = page.metric("latency_seconds", PrometheusKind::Histogram, help);
    histogram(&mut latency, "hit", &figures.hits);
    histogram(&mut latency, "miss", &figures.misses);
    let help = "1 when a directory of the store takes no more writes.";
    let mut failed = page.metric("volume_failed", PrometheusKind::Gauge, help);
    for volume in &figures.volumes {
        failed.sample("", &[("place", &volume.place)], u8::from(volume.failed.is_some()));
    }
    page.into_text()
}

fn histogram(metric: &mut PrometheusMetric<'_>, from: &str, histogram: &Histogram) {
    let mut count = 0;
    for (step, steps) in histogram.steps[..LATENCY_STEPS].iter().enumerate() {
        count += steps;
        let bound = latency_bound(step).as_secs_f64().to_string();
        metric.sample("_bucket", &[("from", from), ("le", &bound)], count);
    }
    count += histogram.steps[LATENCY_STEPS];
    metric.sample("_bucket", &[("from", from), ("le", "+Inf")], count);
    metric.sample("_sum", &[("from", from)], histogram.total_us as f64 / 1e6);
    metric.sample("_count", &[("from", from)], count);
}
