//! Lines over something that passes, in a box of 1000 by 1000 that stretches.
//!
//! Always holds: the axis along is linear and begins at zero, and so does the one upwards unless it is logarithmic; a stretch
//! without values parts its line.

use measure::view::{Line, Lines, Stroke};
use serde::Serialize;

use super::{Tick, believed, ticks};
use crate::axis::Axis;
use crate::figures::{grouped, ms_text};

#[derive(Debug, Serialize)]
pub(crate) struct OverTime {
    id: String,
    title: &'static str,
    read: &'static str,
    unit: &'static str,
    over: &'static str,
    lines: Vec<LineView>,
    up: Vec<Tick>,
    along: Vec<Tick>,
    marks: Vec<Tick>,
    /// What somebody noted meanwhile, numbered from 1: each of them, however near to each other.
    notes: Vec<Note>,
    /// The axis upwards is logarithmic.
    log: bool,
}

#[derive(Debug, Serialize)]
struct Note {
    /// Percent of the axis along.
    at: f64,
    at_text: String,
    text: String,
}

#[derive(Debug, Serialize)]
struct LineView {
    /// Which run of the page: chooses the colour.
    run: usize,
    name: String,
    style: &'static str,
    /// Points of polylines, downwards.
    paths: Vec<String>,
    /// What it was on average, or in the median step.
    typical_text: String,
}

const BOX: f64 = 1000.0;
/// Marks nearer to each other than this, or nearer to the end, are left out; percent of the axis.
const MARKS_APART: f64 = 7.0;
const MARKS_END: f64 = 96.0;

impl OverTime {
    /// None when no value is above zero.
    pub fn of(view: &Lines, places: &[usize], section: &str) -> Option<Self> {
        Self::drawn(view, places, section, &[], false)
    }

    /// One of several panels that share their axis along, of one run of the page; with what somebody noted, and when.
    pub fn panel(
        view: &Lines,
        run: usize,
        section: &str,
        notes: &[(f64, String)],
        log: bool,
    ) -> Option<Self> {
        Self::drawn(view, &[run], section, notes, log)
    }

    fn drawn(
        view: &Lines,
        places: &[usize],
        section: &str,
        notes: &[(f64, String)],
        log: bool,
    ) -> Option<Self> {
        let every = || view.lines.iter().flat_map(points);
        let (x_end, y_end) = every().fold((0.0f64, 0.0f64), |(x, y), point| (x.max(point.0), y.max(point.1)));
        if y_end <= 0.0 || x_end <= 0.0 {
            return None;
        }
        let up = if log {
            let least = every().map(|(_, y)| y).filter(|y| *y > 0.0).fold(f64::INFINITY, f64::min);
            Axis::log(least, y_end).decades()
        } else if view.unit == "%" && y_end > 50.0 {
            Axis::fixed(100.0, &[0.0, 25.0, 50.0, 75.0, 100.0])
        } else {
            Axis::linear(1.04 * y_end, 6)
        };
        let along = Axis::linear(1.01 * x_end, 8);
        let lines = view.lines.iter().filter_map(|line| {
            let values: Vec<(f64, f64)> = points(line).collect();
            let ys: Vec<f64> = values.iter().map(|(_, y)| *y).collect();
            let (typical, what) = match log {
                // A mean of percentiles is none of anything.
                true => (measure::statistics::median(&ys).unwrap_or(0.0), "in the median step"),
                false => (ys.iter().sum::<f64>() / ys.len() as f64, "on average"),
            };
            let typical = if view.unit == "ms" { ms_text(typical * 1e3) } else { grouped(typical, 1) };
            let style = match line.stroke {
                Stroke::Whole => "",
                Stroke::Dashed => " dashed",
                Stroke::Dotted => " dotted",
            };
            (!values.is_empty()).then(|| LineView {
                run: places.get(line.run).copied().unwrap_or(0),
                name: line.name.clone(),
                style,
                paths: paths(&values, &along, &up),
                typical_text: format!("{typical} {} {what}", view.unit),
            })
        });
        Some(Self {
            id: format!("{section}-{}", view.id),
            title: view.title,
            read: view.read,
            unit: view.unit,
            over: view.over,
            lines: lines.collect(),
            up: ticks(&up, if log { crate::svg::plain } else { short }),
            along: ticks(&along, short),
            marks: marks(&view.marks, &along),
            notes: notes
                .iter()
                .filter(|(at, _)| believed(*at))
                .map(|(at, text)| Note { at: along.place(*at), at_text: grouped(*at, 2), text: text.clone() })
                .collect(),
            log,
        })
    }
}

fn points(line: &Line) -> impl Iterator<Item = (f64, f64)> {
    line.points.iter().copied().filter(|(x, y)| believed(*x) && believed(*y))
}

/// A tick's number, without zeros behind the point.
fn short(value: f64) -> String {
    let text = grouped(value, 2);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Polylines; where a stretch is without a value the line is broken.
fn paths(values: &[(f64, f64)], along: &Axis, up: &Axis) -> Vec<String> {
    let step = values.windows(2).map(|pair| pair[1].0 - pair[0].0).fold(f64::INFINITY, f64::min);
    values
        .chunk_by(|a, b| b.0 - a.0 < 1.5 * step)
        .map(|piece| {
            let at = |(x, y): &(f64, f64)| {
                format!("{:.1},{:.1}", BOX / 100.0 * along.place(*x), BOX - BOX / 100.0 * up.place(*y))
            };
            piece.iter().map(at).collect::<Vec<_>>().join(" ")
        })
        .collect()
}

/// Those that can be read beside each other.
fn marks(all: &[(f64, String)], along: &Axis) -> Vec<Tick> {
    let mut kept: Vec<Tick> = Vec::new();
    for (place, text) in all.iter().filter(|(place, _)| believed(*place)) {
        let at = along.place(*place);
        if kept.last().is_none_or(|last| at - last.at > MARKS_APART) && at < MARKS_END {
            kept.push(Tick { at, text: text.clone() });
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_without_values_parts_the_line_and_wrong_numbers_are_not_drawn() {
        let values = [(0.5, 10.0), (1.5, 20.0), (5.5, 30.0), (6.5, f64::NAN), (7.5, -1.0), (8.5, 1e300)];
        let line = Line { run: 0, name: String::new(), stroke: Stroke::Whole, points: values.to_vec() };
        let kept: Vec<_> = points(&line).collect();
        assert_eq!(kept.len(), 3);
        let drawn = paths(&kept, &Axis::fixed(10.0, &[]), &Axis::fixed(40.0, &[]));
        assert_eq!(drawn, ["50.0,750.0 150.0,500.0", "550.0,250.0"]);
    }

    #[test]
    fn ticks_have_no_zeros_behind_the_point() {
        assert_eq!([0.0, 0.5, 25.0, 1200.0].map(short), ["0", "0.5", "25", "1,200"]);
    }

    #[test]
    fn marks_that_would_lie_on_each_other_or_at_the_end_are_left_out() {
        let all = [(0.0, "a"), (5.0, "b"), (30.0, "c"), (98.0, "d"), (f64::NAN, "e")];
        let all: Vec<(f64, String)> = all.map(|(at, name)| (at, name.to_owned())).to_vec();
        let kept: Vec<String> =
            marks(&all, &Axis::fixed(100.0, &[])).into_iter().map(|mark| mark.text).collect();
        assert_eq!(kept, ["a", "c"]);
    }
}
