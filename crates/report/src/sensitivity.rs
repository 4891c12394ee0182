//! How latency depends on one setting: a figure with a line for each value of another setting, as SVG and as one HTML file.
//!
//! ```text
//! Sensitivity: x, lines, points -> svg::sensitivity   mean above, p99 below
//!                               -> render             the picture, every point in a table, its command
//! ```
//!
//! Always holds: as of every page here, it requests nothing from the network, and what a user named is text and never markup; a point
//! that is not VALID says so in words.
//! Not here: what a setting is, and how the points are measured (the caller).
//! Source of the figure: Anderson's paper of 2002 on a benchmark for network file services, section 6.7 and figure 9.

use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, context};
use serde::Serialize;

use crate::{Result, svg};

const TEMPLATE: &str = include_str!("../web/sensitivity.html.j2");
const STYLE: &str = include_str!("../web/report.css");
const GRID_STYLE: &str = include_str!("../web/grid.css");

/// The figure.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sensitivity {
    /// Heading.
    pub title: String,
    /// What it says, in a sentence.
    pub sentence: String,
    /// Lines below the heading of the picture.
    pub captions: Vec<String>,
    /// Name of the setting that varies, with its meaning: the label of the x axis.
    pub x: String,
    /// One for each value of the other setting; one alone without it.
    pub lines: Vec<Line>,
    /// How it was measured, a sentence each.
    pub how: Vec<String>,
}

/// The points of one value of the other setting.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Line {
    /// Such as `disk-hit 0.5`.
    pub label: String,
    /// By rising value of the setting that varies.
    pub points: Vec<Point>,
}

/// One run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Point {
    /// Value of the setting that varies.
    pub x: f64,
    /// The same with its unit.
    pub x_text: String,
    /// Mean latency, milliseconds.
    pub mean_ms: Option<f64>,
    /// Median.
    pub p50_ms: Option<f64>,
    /// 99th percentile.
    pub p99_ms: Option<f64>,
    /// Requests a second that were answered.
    pub achieved_per_sec: Option<f64>,
    /// Whether to believe it.
    pub state: State,
    /// Why not, or what to know besides.
    pub why: Vec<String>,
    /// The run's id.
    pub run: String,
    /// What makes it by itself.
    pub command: String,
}

/// Whether to believe a point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// As measured.
    Valid,
    /// The storage did not keep up with the rate: latency then depends on how long one measures.
    Saturated,
    /// Not to be believed.
    Invalid,
    /// Not measured.
    #[default]
    Missing,
}

impl State {
    /// To be believed, and joined with its neighbours.
    pub fn is_valid(self) -> bool {
        self == Self::Valid
    }

    /// The storage did not keep up.
    pub fn is_saturated(self) -> bool {
        self == Self::Saturated
    }

    /// Not to be believed.
    pub fn is_invalid(self) -> bool {
        self == Self::Invalid
    }

    /// As it is written beside a figure.
    pub fn word(self) -> &'static str {
        match self {
            Self::Valid => "",
            Self::Saturated => "saturated",
            Self::Invalid => "INVALID",
            Self::Missing => "not measured",
        }
    }
}

/// Which latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stat {
    /// Arithmetic mean, as in the paper.
    Mean,
    /// 99th percentile.
    P99,
}

impl Stat {
    /// Label of its axis.
    pub fn title(self) -> &'static str {
        match self {
            Self::Mean => "mean latency (ms)",
            Self::P99 => "p99 latency (ms)",
        }
    }
}

impl Point {
    /// A latency that can be drawn.
    pub fn latency_ms(&self, stat: Stat) -> Option<f64> {
        let ms = match stat {
            Stat::Mean => self.mean_ms,
            Stat::P99 => self.p99_ms,
        };
        ms.filter(|ms| ms.is_finite() && *ms >= 0.0)
    }
}

impl Sensitivity {
    /// Draws the page.
    ///
    /// # Errors
    /// When the picture cannot be drawn or the template cannot be rendered.
    pub fn render(&self) -> Result<String> {
        let mut environment = Environment::new();
        environment.set_auto_escape_callback(|_| AutoEscape::Html);
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.add_filter("ms", |ms: f64| crate::ms_text(ms * 1e3));
        environment.add_filter("rate", crate::rate_text);
        environment.add_filter("word", |state: String| match state.as_str() {
            "saturated" => State::Saturated.word(),
            "invalid" => State::Invalid.word(),
            "missing" => State::Missing.word(),
            _ => "VALID",
        });
        environment.add_template("sensitivity.html", TEMPLATE)?;
        Ok(environment.get_template("sensitivity.html")?.render(context! {
            page => self,
            version => env!("CARGO_PKG_VERSION"),
            picture => Value::from_safe_string(svg::sensitivity(self)?),
            style => Value::from_safe_string(format!("{STYLE}\n{GRID_STYLE}")),
        })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure() -> Sensitivity {
        let point = |x: f64, mean_ms: f64, state| Point {
            x,
            x_text: x.to_string(),
            mean_ms: Some(mean_ms),
            p99_ms: Some(3.0 * mean_ms),
            state,
            ..Point::default()
        };
        let line = |label: &str, points: [(f64, f64, State); 3]| Line {
            label: label.to_owned(),
            points: points.map(|(x, ms, state)| point(x, ms, state)).into(),
        };
        let believed = State::Valid;
        Sensitivity {
            title: "<b>web-proxy</b>".to_owned(),
            x: "memory-hit".to_owned(),
            lines: vec![
                line("disk-hit 0", [(0.0, 5.0, believed), (0.5, 3.0, State::Invalid), (1.0, 1.0, believed)]),
                line(
                    "disk-hit 1",
                    [(0.0, 8.0, believed), (0.5, 4.0, believed), (1.0, 1.0, State::Saturated)],
                ),
            ],
            ..Sensitivity::default()
        }
    }

    #[test]
    fn the_page_names_every_line_and_marks_in_words_what_is_not_valid() {
        let html = figure().render().unwrap();
        for words in ["disk-hit 0", "disk-hit 1", "memory-hit", "INVALID", "saturated", "mean latency (ms)"] {
            assert!(html.contains(words), "{words}");
        }
        assert!(!html.contains("<b>web-proxy") && html.contains("Content-Security-Policy"), "names are text");
    }

    #[test]
    fn the_picture_has_axes_named_and_the_values_of_the_knob() {
        let svg = crate::svg::sensitivity(&figure()).unwrap();
        for words in
            ["memory-hit", "mean latency (ms)", "p99 latency (ms)", "disk-hit 0", "0.5", "Red cross: INVALID"]
        {
            assert!(svg.contains(words), "{words}: {svg}");
        }
    }
}
