//! Figures of what is done pass after pass, and the same with published values drawn in.
//!
//! ```text
//! view::ByPass, view::Published -> PassFigure -> Drawing: places in percent, with published values and without
//! ```
//!
//! Always holds: every value drawn is finite and above zero; a figure has at least one line and a line at least one
//! point; the axis is linear until the published values, drawn with it, would squeeze everything else flat.
//! Not here: which figures there are (a benchmark's crate says), how they are laid out (the template, `svg`).

mod placed;

use measure::numbers::{ms_text, seconds_unit};
use measure::view::{ByPass, PassPoint, Published, PublishedValue};
use serde::Serialize;

use crate::captions;

pub(crate) use placed::{Drawing, HEIGHT};

/// The published values as a layer over figures of passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reference {
    /// Drawn where they fit on the axis of the runs' own values. On the page each figure's can be switched.
    #[default]
    Auto,
    /// Drawn in all figures, on a logarithmic axis where they need one; they can be switched off on the page.
    On,
    /// Left out.
    Off,
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PassFigure {
    #[serde(flatten)]
    pub frame: ByPass,
    /// Names its element and its files: the section's and its own.
    pub full_id: String,
    pub published: Vec<PublishedValue>,
    /// Who published them, in short, and when.
    pub short: &'static str,
    pub year: &'static str,
    /// Without published values, and with them where there are any.
    pub drawings: Vec<Drawing>,
    /// Whether the second drawing is the one to show first.
    pub published_first: bool,
    /// What is to be seen, in a sentence.
    pub caption: String,
}

/// A unit and what a value in the figure's unit is divided by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Unit {
    pub name: &'static str,
    pub divisor: f64,
}

impl Unit {
    /// Of a figure's values up to `highest`.
    fn of(unit: &'static str, highest: f64) -> Self {
        match unit {
            "s" => {
                let (name, divisor) = seconds_unit(highest);
                Self { name, divisor }
            }
            name => Self { name, divisor: 1.0 },
        }
    }

    /// For values beside published ones: minutes of another decade are too many milliseconds to read.
    fn coarser(self) -> Self {
        if self.name == "ms" { Self { name: "s", divisor: 1.0 } } else { self }
    }

    /// A value in the figure's unit, with this unit's name.
    pub fn text(self, value: f64) -> String {
        let gap = if self.name.starts_with(['/', '%']) { "" } else { " " };
        format!("{}{gap}{}", self.bare(value), self.name)
    }

    /// The same without the name.
    pub fn bare(self, value: f64) -> String {
        // Three digits that count, as everywhere.
        ms_text(1e3 * value / self.divisor)
    }
}

/// What is beyond is not believed: an imported record is wrong.
const LIMIT: f64 = 1e12;

fn believed(point: &PassPoint) -> bool {
    [point.y, point.low, point.high].into_iter().all(|value| value > 0.0 && value < LIMIT)
}

impl PassFigure {
    /// The figure, or nothing when it has no line.
    pub fn of(
        mut frame: ByPass,
        section: &str,
        published: Option<&Published>,
        reference: Reference,
    ) -> Option<Self> {
        for line in &mut frame.lines {
            line.points.retain(believed);
        }
        frame.lines.retain(|line| !line.points.is_empty());
        if frame.lines.is_empty() {
            return None;
        }
        let values = published.map_or(&[][..], |published| published.values);
        let mine = values.iter().filter(|value| value.drawn.contains(&frame.id)).copied();
        let mut figure = Self {
            full_id: format!("{section}-{}", frame.id),
            published: mine.collect(),
            short: published.map_or("", |published| published.short),
            year: published.map_or("", |published| published.year),
            frame,
            drawings: vec![],
            published_first: false,
            caption: String::new(),
        };
        figure.caption = captions::of_passes(&figure.frame, figure.unit());
        figure.drawings.push(Drawing::of(&figure, false));
        if !figure.published.is_empty() {
            let with = Drawing::of(&figure, true);
            figure.published_first = reference == Reference::On || !with.log;
            figure.drawings.push(with);
        }
        Some(figure)
    }

    /// The unit of its values.
    pub fn unit(&self) -> Unit {
        let highest = self.frame.lines.iter().flat_map(|line| &line.points).map(|point| point.high);
        Unit::of(self.frame.unit, highest.fold(0.0, f64::max))
    }

    /// All passes that have a value, in order; one of 0 for bars.
    pub fn passes(&self) -> Vec<u32> {
        let mut passes: Vec<u32> =
            self.frame.lines.iter().flat_map(|line| line.points.iter().map(|point| point.pass)).collect();
        passes.sort_unstable();
        passes.dedup();
        passes
    }

    /// The drawing that is shown unless the reader chooses otherwise.
    pub fn first(&self) -> &Drawing {
        let at = if self.published_first { self.drawings.len() - 1 } else { 0 };
        &self.drawings[at]
    }
}

#[cfg(test)]
mod tests {
    use measure::view::{Over, PassLine};

    use super::*;

    const fn value(value: f64, pass: Option<u32>, drawn: &'static [&'static str]) -> PublishedValue {
        PublishedValue { name: "of old", value, text: "", of: "", pass, source: "", drawn }
    }

    const PUBLISHED: Published = Published {
        source: "",
        short: "",
        year: "",
        read: "",
        values: &[
            value(40.0, None, &["rate"]),
            value(86.5, Some(14), &["left"]),
            value(600.0, None, &["time"]),
            value(1.0, None, &[]),
        ],
    };

    /// A figure over passes from 1 on, with these values.
    fn figure(id: &'static str, over: Over, unit: &'static str, values: &[f64]) -> Option<PassFigure> {
        let point =
            |(at, y): (usize, &f64)| PassPoint { pass: at as u32 + 1, y: *y, low: *y, high: *y, runs: 1 };
        let points = values.iter().enumerate().map(point).collect();
        let frame = ByPass {
            id,
            like: "",
            title: "",
            read: String::new(),
            over,
            what: "what",
            unit,
            findings: vec![],
            lines: vec![PassLine { configuration: 0, name: String::new(), points }],
        };
        PassFigure::of(frame, "section", Some(&PUBLISHED), Reference::Auto)
    }

    #[test]
    fn units_are_written_with_three_digits_that_count_and_times_in_the_unit_of_the_highest() {
        assert_eq!(Unit::of("s", 6_000.0).text(6_000.0), "100 min");
        assert_eq!(
            [Unit::of("%", 0.0).text(86.5), Unit::of("/s", 0.0).text(20_411.0)],
            ["86.5%", "20,411/s"]
        );
        let fast = figure("time", Over::Passes, "s", &[0.075, 0.08]).unwrap();
        let axes: Vec<&str> = fast.drawings.iter().map(|drawing| drawing.axis.as_str()).collect();
        assert_eq!(axes, ["what, ms", "what, s, logarithmic"]);
        let slow = figure("time", Over::Passes, "s", &[187.5]).unwrap();
        assert_eq!(slow.drawings[0].lines[0].dots[0].text, "3.12 min");
    }

    #[test]
    fn published_values_are_drawn_at_first_only_where_one_linear_axis_holds_both() {
        let first = |values: &[f64]| figure("rate", Over::Passes, "/s", values).unwrap().published_first;
        assert_eq!([first(&[30.0, 29.0]), first(&[20_000.0, 19_000.0])], [true, false]);
        let none = figure("rate-of-another", Over::Passes, "/s", &[30.0]).unwrap();
        assert_eq!((none.drawings.len(), none.published_first), (1, false));
    }

    #[test]
    fn a_pass_that_the_runs_do_not_reach_is_a_line_all_across() {
        let across = |passes: usize| {
            let of = figure("left", Over::PassesAroundWhole, "%", &vec![90.0; passes]).unwrap();
            of.drawings[1].references[0].across.is_some()
        };
        assert_eq!([across(5), across(14)], [false, true]);
    }

    #[test]
    fn values_that_cannot_be_are_left_out_and_a_figure_of_none_is_no_figure() {
        let odd = [f64::NAN, -1.0, 0.0, f64::INFINITY, 1e300];
        assert!(figure("rate", Over::Passes, "/s", &odd).is_none());
        let some = figure("rate", Over::Passes, "/s", &[-1.0, 30.0]).unwrap();
        assert_eq!(some.passes(), [2]);
    }

    #[test]
    fn passes_as_far_apart_as_numbers_go_still_have_places() {
        let mut frame = figure("rate", Over::Passes, "/s", &[30.0, 40.0]).unwrap().frame;
        (frame.lines[0].points[0].pass, frame.lines[0].points[1].pass) = (0, u32::MAX);
        let figure = PassFigure::of(frame, "section", None, Reference::On).unwrap();
        let dots = &figure.drawings[0].lines[0].dots;
        assert!(dots.iter().all(|dot| (0.0..=100.0).contains(&dot.across)), "{dots:?}");
    }
}
