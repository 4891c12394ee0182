//! A record's curves on logarithmic axes.

use plotters::prelude::*;

use super::{
    Area, Drawn, FONT, INK_SOFT, LEGEND_LINE, MIDDLE, PLOT_HEIGHT, WIDTH, build, color, draw_head,
    draw_shape, draw_shape_sized, head_height, label_style, mesh, plain, shortened,
};
use crate::axis::Axis;
use crate::lines::{Line, LinePlot};

/// Dashes by run, as lengths of line and gap; the first is solid.
const DASHES: [(i32, i32); 4] = [(1, 0), (8, 5), (3, 3), (12, 3)];

pub(super) fn draw(text: &mut String, plot: &LinePlot, captions: &[String]) -> Drawn<()> {
    let title_height = head_height(captions);
    let head = title_height + LEGEND_LINE * (plot.lines.len() as u32 + 1);
    let root = SVGBackend::with_string(text, (WIDTH, head + PLOT_HEIGHT)).into_drawing_area();
    root.fill(&WHITE)?;
    let (header, below) = root.split_vertically(head);
    draw_head(&header, &plot.title, captions)?;
    let note = match plot.intervals {
        true => "Bars: 95% confidence interval. Both axes are logarithmic.",
        false => "Both axes are logarithmic.",
    };
    header.draw_text(
        note,
        &(FONT, 12).into_font().color(&INK_SOFT).pos(MIDDLE),
        (14, title_height as i32 + 8),
    )?;
    for (at, line) in plot.lines.iter().enumerate() {
        legend(&header, line, (title_height + LEGEND_LINE * (at as u32 + 1)) as i32 + 8)?;
    }
    let [x, y] = plot.ends().map(|(low, high)| Axis::log(low, high));
    let mut chart = build(&below, x, y)?;
    let unit =
        if plot.unit.is_empty() { plot.title.clone() } else { format!("{} ({})", plot.title, plot.unit) };
    mesh(&mut chart, &shortened(&plot.over, 60), &shortened(&unit, 60), &plain, &plain)?;
    for line in &plot.lines {
        let style = color(line.variant).stroke_width(2);
        let points = || line.points.iter().map(|point| (point.x, point.y));
        match DASHES[line.group % DASHES.len()] {
            (_, 0) => chart.draw_series(LineSeries::new(points(), style)).map(drop)?,
            (dash, gap) => chart.draw_series(DashedLineSeries::new(points(), dash, gap, style)).map(drop)?,
        }
        for point in &line.points {
            if let Some((low, high)) = point.low.zip(point.high) {
                let bar = PathElement::new(
                    [(point.x, low), (point.x, high)],
                    color(line.variant).mix(0.45).stroke_width(2),
                );
                chart.plotting_area().draw(&bar)?;
            }
            let at = chart.plotting_area().map_coordinate(&(point.x, point.y));
            // The mark is drawn in pixels of the whole, which the mapping gives.
            draw_shape_sized(&root, line.variant, color(line.variant).filled(), at, 3)?;
        }
    }
    root.present()
}

fn legend(header: &Area<'_>, line: &Line, y: i32) -> Drawn<()> {
    let style = color(line.variant).stroke_width(2);
    let (dash, gap) = DASHES[line.group % DASHES.len()];
    let mut from = 14;
    while from < 40 {
        let to = if gap == 0 { 40 } else { (from + dash).min(40) };
        header.draw(&PathElement::new([(from, y), (to, y)], style))?;
        from = to + gap.max(1);
    }
    draw_shape(header, line.variant, color(line.variant).filled(), (27, y))?;
    header.draw_text(&shortened(&line.label, 84), &label_style(), (50, y))?;
    Ok(())
}
