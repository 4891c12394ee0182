//! A comparison as a dot plot, for papers and mails; the page draws its own from the same numbers.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{
    CAPTION_LINE, Drawn, FONT, GRID, INK, INK_SOFT, LEGEND_LINE, MIDDLE, TITLE_HEIGHT, WIDTH, color,
    draw_head, draw_shape_sized, label_style, shortened,
};
use crate::captions;
use crate::compare::Comparison;
use crate::dots::DotPlot;

/// Left end of the axis and its length, pixels; what was shown stands to its right.
const LEFT: i32 = 230;
const LENGTH: i32 = 420;
const SIDE_HEIGHT: i32 = 15;
const ROW_GAP: i32 = 9;

pub(super) fn draw(text: &mut String, comparison: &Comparison, plot: &DotPlot) -> Drawn<()> {
    let captions = captions::wrapped(&plot.caption);
    let note = TITLE_HEIGHT as i32 + CAPTION_LINE as i32 * captions.len() as i32 + 8;
    let head = note + LEGEND_LINE as i32 * (comparison.sides.len() as i32 + 1);
    let rows: i32 = plot.rows.iter().map(|row| row.sides.len() as i32 * SIDE_HEIGHT + ROW_GAP).sum();
    let height = head + rows + 44;
    let root = SVGBackend::with_string(text, (WIDTH, height as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    let soft = (FONT, 12).into_font().color(&INK_SOFT);
    draw_head(&root, &comparison.answer(1), &captions)?;
    root.draw_text(
        "Ratio to the median of A. Bars: confidence interval. Small: single runs.",
        &soft.clone().pos(MIDDLE),
        (14, note),
    )?;
    for (at, side) in comparison.sides.iter().enumerate() {
        let y = note + LEGEND_LINE as i32 * (at as i32 + 1);
        draw_shape_sized(&root, at, color(at).filled(), (22, y), 5)?;
        let runs = format!("{}  {} ({} runs)", side.name, shortened(&side.label, 80), side.runs.len());
        root.draw_text(&runs, &label_style(), (38, y))?;
    }
    let x = |place: f64| LEFT + (place / 100.0 * f64::from(LENGTH)).round() as i32;
    let bottom = head + rows;
    for tick in &plot.ticks {
        root.draw(&PathElement::new([(x(tick.at), head - 4), (x(tick.at), bottom)], GRID.stroke_width(1)))?;
        let below = soft.clone().pos(Pos { h_pos: HPos::Center, v_pos: VPos::Top });
        root.draw_text(&tick.text, &below, (x(tick.at), bottom + 6))?;
    }
    root.draw(&PathElement::new([(x(plot.one), head - 4), (x(plot.one), bottom)], INK_SOFT.stroke_width(1)))?;
    root.draw_text(
        "ratio to A (logarithmic)",
        &soft.clone().pos(Pos { h_pos: HPos::Center, v_pos: VPos::Top }),
        (LEFT + LENGTH / 2, bottom + 24),
    )?;
    let mut top = head;
    for row in &plot.rows {
        let middle = top + row.sides.len() as i32 * SIDE_HEIGHT / 2;
        let style = if row.headline { label_style().color(&INK) } else { label_style() };
        root.draw_text(&shortened(&row.title, 32), &style, (14, middle))?;
        for (at, side) in row.sides.iter().enumerate() {
            let y = top + at as i32 * SIDE_HEIGHT + SIDE_HEIGHT / 2;
            for run in &side.runs {
                root.draw(&Circle::new((x(*run), y - 5), 2, color(side.side).mix(0.35).filled()))?;
            }
            if let Some((low, high)) = side.low.zip(side.high) {
                root.draw(&PathElement::new([(x(low), y), (x(high), y)], color(side.side).stroke_width(2)))?;
            }
            for (is_beyond, end, back) in
                [(side.beyond_low, LEFT - 2, 6), (side.beyond_high, LEFT + LENGTH + 2, -6)]
            {
                if is_beyond {
                    let tip = vec![(end, y), (end + back, y - 4), (end + back, y + 4)];
                    root.draw(&Polygon::new(tip, color(side.side).filled()))?;
                }
            }
            if let Some(place) = side.at {
                draw_shape_sized(&root, side.side, color(side.side).filled(), (x(place), y), 4)?;
            }
            if side.side > 0 {
                let caption = format!("{}  {}", side.ratio, side.shown);
                root.draw_text(&caption, &soft.clone().pos(MIDDLE), (LEFT + LENGTH + 12, y))?;
            }
        }
        top += row.sides.len() as i32 * SIDE_HEIGHT + ROW_GAP;
    }
    root.present()
}
