//! The Prometheus text format, version 0.0.4: the one place that knows its order of lines and its escapes.
//!
//! ```text
//! # HELP crumb_requests_total Requests by outcome.        a metric: name, help, type
//! # TYPE crumb_requests_total counter
//! crumb_requests_total{outcome="hit"} 31                  its samples: labels and a value
//! ```
//!
//! Always holds: all samples of a metric follow its head. A line break in a help or a label never ends a line.
//! Not here: which metrics there are (their counter declares them), and serving them.
//! Source: Prometheus documentation, "Exposition formats", text-based format.

use std::fmt::{Display, Write as _};

/// The content type of an HTTP reply in this format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// How a metric's values are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrometheusKind {
    /// Only grows, from 0 when the program starts. Its name ends in `_total`.
    Counter,
    /// Grows and shrinks.
    Gauge,
    /// Counts by upper bound: samples `_bucket` (each includes the ones below it), `_sum` and `_count`.
    Histogram,
    /// Quantiles: samples without a suffix, `_sum` and `_count`.
    Summary,
}

impl PrometheusKind {
    /// As the format spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
        }
    }
}

/// A page of metrics under construction.
///
/// ```
/// use measure::{PrometheusKind, PrometheusPage};
///
/// let mut page = PrometheusPage::new("crumb_");
/// page.metric("files_open", PrometheusKind::Gauge, "Files that are open.").value(3);
/// page.metric("requests_total", PrometheusKind::Counter, "Requests by outcome.")
///     .sample("", &[("outcome", "hit")], 31)
///     .sample("", &[("outcome", "miss")], 4);
/// assert!(page.into_text().ends_with("crumb_requests_total{outcome=\"miss\"} 4\n"));
/// ```
#[derive(Debug)]
pub struct PrometheusPage {
    prefix: &'static str,
    text: String,
}

impl PrometheusPage {
    /// An empty page. Every name on it begins with `prefix`.
    pub fn new(prefix: &'static str) -> Self {
        Self { prefix, text: String::new() }
    }

    /// Writes the head of a metric; its samples come next.
    pub fn metric<'a>(&'a mut self, name: &'a str, kind: PrometheusKind, help: &str) -> PrometheusMetric<'a> {
        let (prefix, kind) = (self.prefix, kind.name());
        self.text.push_str(&format!("# HELP {prefix}{name} "));
        escape(&mut self.text, help, false);
        self.text.push_str(&format!("\n# TYPE {prefix}{name} {kind}\n"));
        PrometheusMetric { page: self, name }
    }

    /// The page so far.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// A metric whose head is written.
#[derive(Debug)]
pub struct PrometheusMetric<'a> {
    page: &'a mut PrometheusPage,
    name: &'a str,
}

impl PrometheusMetric<'_> {
    /// The value of a metric without labels.
    pub fn value(&mut self, value: impl Display) -> &mut Self {
        self.sample("", &[], value)
    }

    /// One sample. `suffix` is `_bucket`, `_sum`, `_count` or empty; a duration is in seconds.
    pub fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) -> &mut Self {
        let (prefix, name) = (self.page.prefix, self.name);
        let text = &mut self.page.text;
        // Writing to a String cannot fail.
        let _ = write!(text, "{prefix}{name}{suffix}");
        for (place, (label, content)) in labels.iter().enumerate() {
            text.push(if place == 0 { '{' } else { ',' });
            let _ = write!(text, "{label}=\"");
            escape(text, content, true);
            text.push('"');
        }
        let _ = writeln!(text, "{} {value}", if labels.is_empty() { "" } else { "}" });
        self
    }
}

fn escape(out: &mut String, text: &str, is_quoted: bool) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if is_quoted => out.push_str("\\\""),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_its_head_and_all_its_samples() {
        let mut page = PrometheusPage::new("crumb_");
        page.metric("latency_seconds", PrometheusKind::Histogram, "From head to end.")
            .sample("_bucket", &[("from", "hit"), ("le", "+Inf")], 3)
            .sample("_sum", &[("from", "hit")], 0.25);
        page.metric("nodes", PrometheusKind::Gauge, "Inodes held.").value(7);
        let expected = "# HELP crumb_latency_seconds From head to end.\n\
                        # TYPE crumb_latency_seconds histogram\n\
                        crumb_latency_seconds_bucket{from=\"hit\",le=\"+Inf\"} 3\n\
                        crumb_latency_seconds_sum{from=\"hit\"} 0.25\n\
                        # HELP crumb_nodes Inodes held.\n\
                        # TYPE crumb_nodes gauge\n\
                        crumb_nodes 7\n";
        assert_eq!(page.into_text(), expected);
    }

    #[test]
    fn what_a_label_or_a_help_holds_never_ends_its_line_or_its_quotes() {
        let mut page = PrometheusPage::new("");
        page.metric("up", PrometheusKind::Counter, "\"Two\"\nlines.").sample(
            "",
            &[("place", "a\"b\\c\nd")],
            1,
        );
        let text = page.into_text();
        assert_eq!(text.lines().next(), Some("# HELP up \"Two\"\\nlines."));
        assert_eq!(text.lines().last(), Some("up{place=\"a\\\"b\\\\c\\nd\"} 1"));
    }
}
