//! The rates that a benchmark names, such as the knee, as lines across a plot of load levels.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Chart, Drawn, FONT, color};
use crate::axis::Axis;
use crate::series::Curve;

/// Curves beyond which the names would lie on each other; the lines are drawn nevertheless.
const NAMED_MAX: usize = 3;
const TEXT_LINE: i32 = 16;
/// Percent of the axis beyond which a name is to the left of its line.
const LEFT_FROM: f64 = 60.0;

/// `x` and `y` are the axes of the chart: the ends of `y`, lowest first.
pub(super) fn draw(chart: &mut Chart<'_, '_>, curves: &[Curve], x: &Axis, y: (f64, f64)) -> Drawn<()> {
    let marked = curves.iter().filter(|curve| !curve.marks.is_empty()).count();
    let marks = curves.iter().flat_map(|curve| curve.marks.iter().map(move |mark| (curve.run, mark)));
    for (nth, (run, mark)) in marks.enumerate() {
        let style = color(run).mix(0.6).stroke_width(1);
        let ends = [(mark.per_sec, y.0), (mark.per_sec, y.1)];
        chart.draw_series(DashedLineSeries::new(ends, 2, 3, style))?;
        if marked > NAMED_MAX {
            continue;
        }
        let is_left = x.place(mark.per_sec) > LEFT_FROM;
        let (side, from) = if is_left { (HPos::Right, -5) } else { (HPos::Left, 5) };
        let font = (FONT, 12).into_font().color(&color(run)).pos(Pos { h_pos: side, v_pos: VPos::Center });
        let at = EmptyElement::at((mark.per_sec, y.1));
        let words = Text::new(mark.text.clone(), (from, 8 + TEXT_LINE * nth as i32), font);
        chart.plotting_area().draw(&(at + words))?;
    }
    Ok(())
}
