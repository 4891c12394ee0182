//! Figures of passes, for papers and mails; the page draws its own from the same places.

use measure::view::Over;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{
    Area, CAPTION_LINE, Drawn, FONT, GRID, INK, INK_SOFT, LEGEND_LINE, MIDDLE, TITLE_HEIGHT, WIDTH, color,
    draw_head, draw_shape_sized, label_style, shortened,
};
use crate::captions;
use crate::passes::{Drawing, HEIGHT, PassFigure};

/// Left end of the axes and room right of them for published values' names; pixels.
const LEFT: i32 = 74;
const RIGHT: i32 = 210;
const RIGHT_BARE: i32 = 24;
const ROW_HEIGHT: i32 = 30;
/// Of a bar's name, and right of the bars for their values.
const NAME_WIDTH: i32 = 250;
const VALUE_WIDTH: i32 = 100;
/// Published values: neither ink nor a run's colour.
const GREY: RGBColor = RGBColor(0x7b, 0x83, 0x8c);

pub(super) fn draw(text: &mut String, figure: &PassFigure, drawing: &Drawing) -> Drawn<()> {
    match figure.frame.over {
        Over::Runs => bars(text, figure, drawing),
        Over::Passes | Over::PassesAroundWhole => lines(text, figure, drawing),
    }
}

fn soft() -> TextStyle<'static> {
    (FONT, 12).into_font().color(&INK_SOFT)
}

fn head(root: &Area<'_>, figure: &PassFigure, drawing: &Drawing) -> Drawn<()> {
    root.fill(&WHITE)?;
    draw_head(root, figure.frame.title, &captions::wrapped(&figure.caption))?;
    let range = figure.frame.lines.iter().flat_map(|line| &line.points).any(|point| point.runs > 1);
    let mut note = vec![];
    if range {
        note.push("Marks: median; bars: lowest to highest run.".to_owned());
    }
    if drawing.published && !drawing.references.is_empty() {
        note.push(format!("Grey: published by {}.", figure.short));
    }
    root.draw_text(&note.join(" "), &soft().pos(MIDDLE), (14, head_height(figure) - 16))
}

/// Height of title, caption and note.
fn head_height(figure: &PassFigure) -> i32 {
    let lines = captions::wrapped(&figure.caption).len();
    TITLE_HEIGHT as i32 + 22 + CAPTION_LINE as i32 * lines as i32
}

fn bars(text: &mut String, figure: &PassFigure, drawing: &Drawing) -> Drawn<()> {
    let top = head_height(figure);
    let rows = drawing.lines.len() + drawing.references.len();
    let bottom = top + rows as i32 * ROW_HEIGHT;
    let root = SVGBackend::with_string(text, (WIDTH, (bottom + 50) as u32)).into_drawing_area();
    head(&root, figure, drawing)?;
    let left = 14 + NAME_WIDTH;
    let length = WIDTH as i32 - left - VALUE_WIDTH;
    let x = |place: f64| left + (place / 100.0 * f64::from(length)).round() as i32;
    let centred = soft().pos(Pos { h_pos: HPos::Center, v_pos: VPos::Top });
    for tick in &drawing.ticks {
        root.draw(&PathElement::new([(x(tick.at), top), (x(tick.at), bottom)], GRID.stroke_width(1)))?;
        root.draw_text(&tick.text, &centred, (x(tick.at), bottom + 6))?;
    }
    root.draw_text(&drawing.axis, &centred, (left + length / 2, bottom + 26))?;
    let mut y = top + ROW_HEIGHT / 2;
    for line in &drawing.lines {
        let paint = color(line.configuration);
        root.draw_text(&shortened(&line.name, 36), &label_style(), (14, y))?;
        for dot in &line.dots {
            if !drawing.log {
                let bar = [(left, y - 8), (x(dot.at), y + 8)];
                root.draw(&Rectangle::new(bar, paint.mix(0.75).filled()))?;
            }
            if dot.range.is_some() {
                whisker(&root, [(x(dot.low), y), (x(dot.high), y)], INK)?;
            }
            if drawing.log {
                draw_shape_sized(&root, line.configuration, paint.filled(), (x(dot.at), y), 5)?;
            }
            root.draw_text(&dot.text, &label_style(), (left + length + 10, y))?;
        }
        y += ROW_HEIGHT;
    }
    for reference in &drawing.references {
        root.draw_text(reference.name, &soft().pos(MIDDLE), (14, y))?;
        if drawing.log {
            root.draw(&Circle::new((x(reference.at), y), 4, GREY.stroke_width(2)))?;
        } else {
            let bar = Rectangle::new([(left, y - 8), (x(reference.at), y + 8)], GREY.stroke_width(1));
            root.draw(&bar)?;
        }
        root.draw_text(reference.text, &soft().pos(MIDDLE), (left + length + 10, y))?;
        y += ROW_HEIGHT;
    }
    root.present()
}

fn lines(text: &mut String, figure: &PassFigure, drawing: &Drawing) -> Drawn<()> {
    let legend = head_height(figure);
    let top = legend + LEGEND_LINE as i32 * drawing.lines.len() as i32 + 30;
    let bottom = top + HEIGHT as i32;
    let root = SVGBackend::with_string(text, (WIDTH, (bottom + 50) as u32)).into_drawing_area();
    head(&root, figure, drawing)?;
    for (at, line) in drawing.lines.iter().enumerate() {
        let y = legend + LEGEND_LINE as i32 * at as i32 + 6;
        let style = color(line.configuration).stroke_width(2);
        root.draw(&PathElement::new([(14, y), (40, y)], style))?;
        draw_shape_sized(&root, line.configuration, color(line.configuration).filled(), (27, y), 5)?;
        root.draw_text(&shortened(&line.name, 96), &label_style(), (50, y))?;
    }
    let right = WIDTH as i32 - if drawing.references.is_empty() { RIGHT_BARE } else { RIGHT };
    let x = |place: f64| LEFT + (place / 100.0 * f64::from(right - LEFT)).round() as i32;
    let y = |place: f64| bottom - (place / 100.0 * f64::from(HEIGHT)).round() as i32;
    let centred = soft().pos(Pos { h_pos: HPos::Center, v_pos: VPos::Top });
    let beside = soft().pos(Pos { h_pos: HPos::Right, v_pos: VPos::Center });
    root.draw_text(&drawing.axis, &soft().pos(MIDDLE), (14, top - 16))?;
    for tick in &drawing.ticks {
        root.draw(&PathElement::new([(LEFT, y(tick.at)), (right, y(tick.at))], GRID.stroke_width(1)))?;
        root.draw_text(&tick.text, &beside, (LEFT - 8, y(tick.at)))?;
    }
    if let Some(whole) = drawing.whole {
        root.draw(&PathElement::new([(LEFT, y(whole)), (right, y(whole))], INK_SOFT.stroke_width(1)))?;
    }
    root.draw(&PathElement::new([(LEFT, bottom), (right, bottom)], INK_SOFT.stroke_width(1)))?;
    for tick in &drawing.passes {
        root.draw_text(&tick.text, &centred, (x(tick.at), bottom + 6))?;
    }
    root.draw_text("pass", &centred, ((LEFT + right) / 2, bottom + 26))?;
    for reference in &drawing.references {
        let level = y(reference.at);
        match reference.across {
            Some(across) => {
                root.draw(&Circle::new((x(across), level), 5, GREY.stroke_width(2)))?;
                dashes(&root, (x(across) + 8, right), level, (2, 5))?;
            }
            None => dashes(&root, (LEFT, right), level, (6, 5))?,
        }
        let name = y(reference.name_at);
        root.draw(&PathElement::new([(right, level), (right + 8, name)], GREY.stroke_width(1)))?;
        let caption = format!("{} {}", reference.name, reference.text);
        root.draw_text(&shortened(&caption, 34), &soft().pos(MIDDLE), (right + 11, name))?;
    }
    for line in &drawing.lines {
        let paint = color(line.configuration);
        let points: Vec<(i32, i32)> = line.dots.iter().map(|dot| (x(dot.across), y(dot.at))).collect();
        root.draw(&PathElement::new(points, paint.stroke_width(2)))?;
        for dot in &line.dots {
            if dot.range.is_some() {
                whisker(&root, [(x(dot.across), y(dot.low)), (x(dot.across), y(dot.high))], paint)?;
            }
            draw_shape_sized(&root, line.configuration, paint.filled(), (x(dot.across), y(dot.at)), 4)?;
        }
    }
    root.present()
}

fn whisker(root: &Area<'_>, ends: [(i32, i32); 2], paint: RGBColor) -> Drawn<()> {
    root.draw(&PathElement::new(ends, paint.mix(0.55).stroke_width(2)))
}

fn dashes(root: &Area<'_>, (from, to): (i32, i32), y: i32, (dash, gap): (i32, i32)) -> Drawn<()> {
    let mut x = from;
    while x < to {
        root.draw(&PathElement::new([(x, y), ((x + dash).min(to), y)], GREY.stroke_width(1)))?;
        x += dash + gap;
    }
    Ok(())
}
