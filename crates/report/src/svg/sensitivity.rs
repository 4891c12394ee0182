//! Latency against a knob, a line for each value of another: the mean above, the p99 below.
//!
//! Always holds: a line joins neighbours that are both VALID and not saturated, and nothing else.

use plotters::prelude::*;

use super::{
    Area, CAPTION_LINE, Drawn, FONT, INK_SOFT, LEGEND_LABEL_CHARS, LEGEND_LINE, LEVEL_NOTE, MIDDLE, WIDTH,
    build, color, draw_head, draw_shape, draw_state, head_height, label_style, mesh, plain, shortened,
};
use crate::axis::Axis;
use crate::captions;
use crate::sensitivity::{Line, Point, Sensitivity, Stat};

const PANEL_HEIGHT: u32 = 340;
/// An axis is logarithmic when what it shows spans more than this factor.
const LINEAR_FACTOR_MAX: f64 = 1000.0;

pub(super) fn draw(text: &mut String, figure: &Sensitivity) -> Drawn<()> {
    let notes = captions::wrapped(&format!("{LEVEL_NOTE} Lines join VALID points that are not saturated."));
    let title_height = head_height(&figure.captions);
    let legend = title_height + CAPTION_LINE * notes.len() as u32;
    let head = legend + LEGEND_LINE * figure.lines.len() as u32 + 4;
    let root = SVGBackend::with_string(text, (WIDTH, head + 2 * PANEL_HEIGHT)).into_drawing_area();
    root.fill(&WHITE)?;
    let (header, below) = root.split_vertically(head);
    draw_head(&header, &figure.title, &figure.captions)?;
    for (at, line) in notes.iter().enumerate() {
        let y = (title_height + CAPTION_LINE * at as u32) as i32 + 8;
        header.draw_text(line, &(FONT, 12).into_font().color(&INK_SOFT).pos(MIDDLE), (14, y))?;
    }
    for (at, line) in figure.lines.iter().enumerate() {
        let y = (legend + LEGEND_LINE * at as u32) as i32 + 10;
        header.draw(&PathElement::new([(14, y), (40, y)], color(at).stroke_width(2)))?;
        draw_shape(&header, at, color(at).filled(), (27, y))?;
        header.draw_text(&shortened(&line.label, LEGEND_LABEL_CHARS), &label_style(), (50, y))?;
    }
    let (above, under) = below.split_vertically(PANEL_HEIGHT);
    panel(&above, figure, Stat::Mean)?;
    panel(&under, figure, Stat::P99)?;
    root.present()
}

fn panel(area: &Area<'_>, figure: &Sensitivity, stat: Stat) -> Drawn<()> {
    let points = || figure.lines.iter().flat_map(|line| &line.points);
    let over = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)))
    };
    let (x_low, x_high) = over(&mut points().map(|point| point.x));
    let is_wide = |low: f64, high: f64| low > 0.0 && high / low > LINEAR_FACTOR_MAX;
    let x = match is_wide(x_low, x_high) {
        true => Axis::log(x_low, x_high),
        false => Axis::between(x_low, x_high, 8),
    };
    let (y_low, y_high) = over(&mut points().filter_map(|point| point.latency_ms(stat)));
    let y = if is_wide(y_low, y_high) { Axis::log(y_low, y_high) } else { Axis::linear(1.06 * y_high, 6) };
    let mut chart = build(area, x, y)?;
    let x_text =
        |x: f64| points().find(|point| point.x == x).map_or_else(|| plain(x), |point| point.x_text.clone());
    mesh(&mut chart, &shortened(&figure.x, 90), stat.title(), &x_text, &plain)?;
    for (at, line) in figure.lines.iter().enumerate() {
        for piece in pieces(line, stat) {
            chart.draw_series(LineSeries::new(piece, color(at).stroke_width(2)))?;
        }
        for point in &line.points {
            if let Some(ms) = point.latency_ms(stat) {
                let state = (point.state.is_saturated(), !point.state.is_invalid());
                draw_state(chart.plotting_area(), at, state, (point.x, ms))?;
            }
        }
    }
    Ok(())
}

/// The stretches of a line whose points are all to be believed, in the order of the knob.
fn pieces(line: &Line, stat: Stat) -> Vec<Vec<(f64, f64)>> {
    let at =
        |point: &Point| point.latency_ms(stat).filter(|_| point.state.is_valid()).map(|ms| (point.x, ms));
    let places: Vec<Option<(f64, f64)>> = line.points.iter().map(at).collect();
    places.split(Option::is_none).map(|piece| piece.iter().flatten().copied().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensitivity::State;

    #[test]
    fn a_line_is_broken_where_a_point_is_not_to_be_believed() {
        let point = |x: f64, state| Point { x, mean_ms: Some(1.0), state, ..Point::default() };
        let states =
            [State::Valid, State::Valid, State::Invalid, State::Valid, State::Saturated, State::Missing];
        let points = states.into_iter().enumerate().map(|(at, state)| point(at as f64, state)).collect();
        let line = Line { label: String::new(), points };
        let pieces: Vec<_> =
            pieces(&line, Stat::Mean).into_iter().filter(|piece| !piece.is_empty()).collect();
        assert_eq!(pieces, [vec![(0.0, 1.0), (1.0, 1.0)], vec![(3.0, 1.0)]]);
    }
}
