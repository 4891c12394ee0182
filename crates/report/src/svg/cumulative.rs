//! The share of requests done within a latency, a line for each of a few load levels, with the level's name on the line.

use measure::RunRecord;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{
    AMBER, Drawn, FONT, INK_SOFT, LEGEND_LINE, MIDDLE, PLOT_HEIGHT, RED, WIDTH, build, draw_head,
    head_height, mesh, plain,
};
use crate::axis::Axis;
use crate::series::{self, Level};

pub(super) fn draw(text: &mut String, runs: &[RunRecord], run: usize, captions: &[String]) -> Drawn<()> {
    let lines = runs.get(run).and_then(|record| series::cumulative(run, record));
    let label = runs.get(run).map_or("", |record| record.label.as_str());
    let head = head_height(captions) + LEGEND_LINE;
    let root = SVGBackend::with_string(text, (WIDTH, head + PLOT_HEIGHT)).into_drawing_area();
    root.fill(&WHITE)?;
    let (header, plot) = root.split_vertically(head);
    draw_head(&header, &format!("Requests done within a latency: {label}"), captions)?;
    let Some(lines) = lines else { return root.present() };
    let shown: Vec<&Level> = lines.levels.iter().filter(|level| level.shown).collect();
    let soft = (FONT, 12).into_font().color(&INK_SOFT).pos(MIDDLE);
    let note = note(&lines.levels, shown.len());
    header.draw_text(&note, &soft, (14, head as i32 - LEGEND_LINE as i32 + 8))?;
    let (first, last) = (lines.latency_ms[0], lines.latency_ms[lines.latency_ms.len() - 1]);
    let shares = Axis::fixed(100.5, &[0.0, 20.0, 40.0, 60.0, 80.0, 90.0, 100.0]);
    let mut chart = build(&plot, Axis::log(first, last), shares)?;
    mesh(&mut chart, "latency (ms)", "requests done (%)", &plain, &plain)?;
    for (at, level) in shown.iter().enumerate() {
        let style = color(level, at, shown.len()).stroke_width(2);
        let points = lines.latency_ms.iter().copied().zip(level.share_percent.iter().copied());
        match (level.valid, level.saturated) {
            (true, false) => chart.draw_series(LineSeries::new(points, style)).map(drop)?,
            (true, true) => chart.draw_series(DashedLineSeries::new(points, 8, 4, style)).map(drop)?,
            (false, _) => chart.draw_series(DashedLineSeries::new(points, 2, 4, style)).map(drop)?,
        }
    }
    for (at, level) in shown.iter().enumerate() {
        let tag = &level.tag;
        let side = if tag.left { HPos::Right } else { HPos::Left };
        let font = (FONT, 13).into_font().color(&color(level, at, shown.len()));
        let style = font.pos(Pos { h_pos: side, v_pos: VPos::Center });
        let at = EmptyElement::at((tag.latency_ms, tag.share_percent));
        // Lines below a text would make it hard to read.
        let width = 7 * tag.text.chars().count() as i32 + 6;
        let (from, to) = if tag.left { (-width - 6, -4) } else { (4, width + 6) };
        let paper = Rectangle::new([(from, -8), (to, 8)], WHITE.mix(0.8).filled());
        let words = Text::new(tag.text.clone(), (if tag.left { -8 } else { 8 }, 0), style);
        chart.plotting_area().draw(&(at + paper + words))?;
    }
    root.present()
}

fn note(levels: &[Level], shown: usize) -> String {
    let which = match levels.len() == shown {
        true => "each load level".to_owned(),
        false => format!("{shown} load levels of {}", levels.len()),
    };
    let mut note = format!("A line for {which}. Amber: saturated. Red: INVALID.");
    if levels.iter().any(|level| level.closed) {
        note.push_str(" Outstanding: closed loop, latency is measured from the send.");
    }
    note
}

/// From pale to dark blue with the load: ordered by lightness, so that it reads without colour as well.
fn color(level: &Level, at: usize, of: usize) -> RGBColor {
    if !level.valid {
        return RED;
    }
    if level.saturated {
        return AMBER;
    }
    let share = if of < 2 { 1.0 } else { at as f64 / (of - 1) as f64 };
    let between = |light: f64, dark: f64| (light + (dark - light) * share) as u8;
    RGBColor(between(64.0, 8.0), between(132.0, 40.0), between(182.0, 92.0))
}
