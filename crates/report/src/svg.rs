//! The plots as SVG files, for papers, mails, and pages without scripts.
//!
//! ```text
//! | title                                  |
//! | what each run answers                  |
//! | marks and labels, one line a curve     |   legend above the axes: it can never cover a point
//! | axes, curves, rates that are named     |   (cumulative: the load level's name on its line)
//! ```
//!
//! Marks tell runs apart without colour; hollow in amber means saturated, a red cross INVALID, a dashed line closed loop.
//! Not here: the numbers (see `series`).

mod cumulative;
mod dots;
mod lines;
mod marks;
mod passes;
mod sensitivity;

use measure::{BenchmarkRegistry, FigureMark, RunRecord};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::axis::Axis;
use crate::compare::Comparison;
use crate::dots::DotPlot;
use crate::figures::{grouped, round_rate_text};
use crate::lines::LinePlot;
use crate::passes::PassFigure;
use crate::sections::Sections;
use crate::sensitivity::Sensitivity;
use crate::series::{self, Curve, Dot, Stat};
use crate::{Reference, ReportError, Result, captions, sections};

/// Which plot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind<'a> {
    /// Mean and p99 latency against offered load, linear.
    LatencyLinear,
    /// The same with a logarithmic latency axis.
    LatencyLog,
    /// Achieved against offered rate.
    AchievedOffered,
    /// Share of requests done within a latency, one line per load level of one run.
    Cumulative {
        /// Index of the run.
        run: usize,
    },
    /// One figure by pass.
    Passes(&'a PassFigure),
    /// One curve name of the records' `curves`, with the lines of all runs.
    Lines(&'a LinePlot),
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<T> = std::result::Result<T, DrawingAreaErrorKind<std::io::Error>>;

const WIDTH: u32 = 820;
const PLOT_HEIGHT: u32 = 420;
const TITLE_HEIGHT: u32 = 38;
const LEGEND_LINE: u32 = 20;
const CAPTION_LINE: u32 = 18;
const LEGEND_LABEL_CHARS: usize = 84;
const FONT: &str = "system-ui, sans-serif";
const INK: RGBColor = RGBColor(0x22, 0x26, 0x2b);
const INK_SOFT: RGBColor = RGBColor(0x5c, 0x65, 0x70);
const GRID: RGBColor = RGBColor(0xe3, 0xe6, 0xea);
/// Of what is saturated.
const AMBER: RGBColor = RGBColor(0xb8, 0x7a, 0x00);
/// Of what is INVALID.
const RED: RGBColor = RGBColor(0xa8, 0x32, 0x1d);
/// What the marks of a level mean.
const LEVEL_NOTE: &str = "Hollow, amber: saturated, the server did not keep up. Red cross: INVALID.";
/// Okabe and Ito's colours, which colour-blind readers can distinguish; yellow is an olive on white, and black a dark grey.
const PALETTE: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xb0, 0x5a, 0x8f),
    RGBColor(0x8f, 0x84, 0x00),
    RGBColor(0x3d, 0x46, 0x50),
];

/// Every plot that `runs` has, those of their benchmarks as `registry` says, as (file name, SVG text); `reference` says where
/// published values are drawn in.
///
/// # Errors
/// When there is no run, or plotters refuses.
pub fn all(
    runs: &[RunRecord],
    registry: BenchmarkRegistry,
    reference: Reference,
) -> Result<Vec<(String, String)>> {
    if runs.is_empty() {
        return Err(ReportError::NothingToDraw);
    }
    let curves = series::curves(runs, registry);
    let mut kinds = Vec::new();
    if !curves.is_empty() {
        kinds.extend(latency_kinds(runs, registry));
    }
    if curves.iter().any(|curve| !curve.closed) {
        kinds.push(Kind::AchievedOffered);
    }
    let sampled = |run: &RunRecord| run.points.iter().any(|point| point.histogram.count() > 0);
    kinds.extend((0..runs.len()).filter(|&run| sampled(&runs[run])).map(|run| Kind::Cumulative { run }));
    let sections = Sections::of(runs, registry, reference);
    let lines = crate::lines::plots(&sections::with_own_curves(runs, &sections));
    kinds.extend(lines.iter().map(Kind::Lines));
    kinds.extend(sections.pass_figures().map(Kind::Passes));
    let mut drawn: Vec<(String, String)> = kinds
        .into_iter()
        .map(|kind| Ok((file_name(runs, kind), render(runs, registry, kind)?)))
        .collect::<Result<_>>()?;
    if let Some(compared) = crate::sides::compared(runs, registry) {
        drawn.extend(comparison(&compared)?.map(|text| ("comparison.svg".to_owned(), text)));
    }
    Ok(drawn)
}

/// Both latency plots, the one that is read first before the other.
pub(crate) fn latency_kinds<'a>(runs: &[RunRecord], registry: BenchmarkRegistry) -> [Kind<'a>; 2] {
    match series::is_search(runs, registry) {
        true => [Kind::LatencyLog, Kind::LatencyLinear],
        false => [Kind::LatencyLinear, Kind::LatencyLog],
    }
}

/// One plot as SVG text.
///
/// # Errors
/// When plotters refuses.
pub(crate) fn render(runs: &[RunRecord], registry: BenchmarkRegistry, kind: Kind<'_>) -> Result<String> {
    let mut text = String::new();
    let shown: Vec<&RunRecord> = match kind {
        Kind::Cumulative { run } => runs.get(run).into_iter().collect(),
        Kind::Lines(_) => runs.iter().filter(|run| !run.curves.is_empty()).collect(),
        _ => runs.iter().filter(|run| !run.points.is_empty()).collect(),
    };
    let captions = captions::of(&shown, registry);
    let search = series::is_search(runs, registry);
    let scale = |latencies: bool| Scale { rates: search && latencies, latencies };
    let drawn = match kind {
        Kind::LatencyLinear => latency(&mut text, &series::curves(runs, registry), &captions, scale(false)),
        Kind::LatencyLog => latency(&mut text, &series::curves(runs, registry), &captions, scale(true)),
        Kind::AchievedOffered => achieved(&mut text, &series::curves(runs, registry), &captions, search),
        Kind::Cumulative { run } => cumulative::draw(&mut text, runs, run, &captions),
        Kind::Passes(figure) => passes::draw(&mut text, figure, figure.first()),
        Kind::Lines(plot) => lines::draw(&mut text, plot, &captions),
    };
    drawn.map_err(|error| ReportError::Draw { plot: file_name(runs, kind), reason: error.to_string() })?;
    let about = match kind {
        Kind::Passes(figure) => figure.caption.clone(),
        _ => captions.join(" "),
    };
    Ok(captions::described(text, &title_of(runs, kind), &about))
}

/// What a picture is of.
fn title_of(runs: &[RunRecord], kind: Kind<'_>) -> String {
    match kind {
        Kind::LatencyLinear => "Latency against load".to_owned(),
        Kind::LatencyLog => "Latency against load, logarithmic".to_owned(),
        Kind::AchievedOffered => "Achieved against offered rate".to_owned(),
        Kind::Cumulative { run } => {
            let label = runs.get(run).map_or("", |record| record.label.as_str());
            format!("Cumulative latency distribution of {label}")
        }
        Kind::Passes(figure) => figure.frame.title.to_owned(),
        Kind::Lines(plot) => format!("{} against {}", plot.title, plot.over),
    }
}

/// A comparison as a dot plot; none when no figure of it has a ratio.
///
/// # Errors
/// When plotters refuses.
pub fn comparison(comparison: &Comparison) -> Result<Option<String>> {
    let Some(plot) = DotPlot::of(comparison) else { return Ok(None) };
    let mut text = String::new();
    let drawn = dots::draw(&mut text, comparison, &plot);
    drawn.map_err(|error| ReportError::Draw { plot: "comparison".to_owned(), reason: error.to_string() })?;
    Ok(Some(captions::described(text, &comparison.answer(1), &plot.caption)))
}

/// A sensitivity figure: mean latency above, p99 below.
///
/// # Errors
/// When plotters refuses.
pub fn sensitivity(figure: &Sensitivity) -> Result<String> {
    let mut text = String::new();
    let drawn = sensitivity::draw(&mut text, figure);
    drawn.map_err(|error| ReportError::Draw { plot: "sensitivity".to_owned(), reason: error.to_string() })?;
    Ok(captions::described(text, &figure.title, &figure.captions.join(" ")))
}

fn file_name(runs: &[RunRecord], kind: Kind<'_>) -> String {
    match kind {
        Kind::LatencyLinear => "latency-load-linear.svg".to_owned(),
        Kind::LatencyLog => "latency-load-log.svg".to_owned(),
        Kind::AchievedOffered => "achieved-offered.svg".to_owned(),
        Kind::Cumulative { run } => {
            // An imported record's name may hold anything, a slash too.
            let id = runs.get(run).map_or("", |record| record.id.0.as_str());
            format!("cumulative-{}.svg", safe(id))
        }
        Kind::Passes(figure) => format!("{}.svg", safe(&figure.full_id)),
        Kind::Lines(plot) => format!("curve-{}.svg", safe(&plot.name)),
    }
}

fn safe(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

/// Which axes of a plot of load levels are logarithmic.
#[derive(Clone, Copy, Debug)]
struct Scale {
    rates: bool,
    latencies: bool,
}

fn latency(text: &mut String, curves: &[Curve], captions: &[String], scale: Scale) -> Drawn<()> {
    let log = scale.latencies;
    let title = if log { "Latency against load, logarithmic" } else { "Latency against load" };
    let top = series::linear_top_ms(curves, Stat::Mean).max(series::linear_top_ms(curves, Stat::P99));
    let shown = |stat: Stat| curves.iter().flat_map(|c| &c.dots).filter_map(move |dot| dot.latency_ms(stat));
    let highest = shown(Stat::Mean).chain(shown(Stat::P99)).fold(0.0, f64::max);
    let above = (!log && highest > top).then_some(highest);
    let (root, plot) = frame(text, title, captions, &latency_notes(curves, above), curves)?;
    let x = rates_axis(curves, scale.rates);
    let y = if log {
        let lowest = shown(Stat::Mean).chain(shown(Stat::P99)).fold(highest, f64::min);
        Axis::log(lowest, highest)
    } else {
        Axis::linear(top, 7)
    };
    let (y_begin, y_end) = (y.low, y.high);
    let mut chart = build(&plot, x.clone(), y)?;
    let closed = curves.iter().any(|curve| curve.closed);
    let x_text = if closed { "offered requests/s (closed loop: achieved)" } else { "offered requests/s" };
    mesh(&mut chart, x_text, "latency (ms)", &round_rate_text, &plain)?;
    marks::draw(&mut chart, curves, &x, (y_begin, y_end))?;
    draw_latency(&mut chart, curves, y_end)?;
    root.present()
}

/// What the marks mean; `above_ms`: the highest latency, when it is above the axis.
fn latency_notes(curves: &[Curve], above_ms: Option<f64>) -> String {
    let mut notes = vec![format!("Solid: mean. Thin: p99. {LEVEL_NOTE}")];
    if let Some(highest) = above_ms {
        notes.push(format!("Arrows: above the axis, up to {} ms.", crate::ms_text(highest * 1e3)));
    }
    let has_mark = |of: FigureMark| {
        curves.iter().flat_map(|curve| &curve.dots).any(|dot| [dot.marks.mean, dot.marks.p99].contains(&of))
    };
    if has_mark(FigureMark::Late) {
        notes.push("~: moved by the generator's lateness.".to_owned());
    }
    if has_mark(FigureMark::AtLeast) {
        notes.push(">: at least, as some were not answered.".to_owned());
    }
    notes.join(" ")
}

type Plane = Cartesian2d<Axis, Axis>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Plane>;

fn draw_latency(chart: &mut Chart<'_, '_>, curves: &[Curve], top: f64) -> Drawn<()> {
    for curve in curves {
        for (stat, width) in [(Stat::P99, 1), (Stat::Mean, 2)] {
            let line: Vec<(f64, f64)> =
                curve.dots.iter().filter_map(|dot| Some((dot.rate_per_sec, dot.latency_ms(stat)?))).collect();
            for piece in below(&line, top) {
                draw_line(chart, piece, curve, width)?;
            }
            for dot in &curve.dots {
                let Some(ms) = dot.latency_ms(stat) else { continue };
                if ms > top {
                    let arrow = vec![(-5, 9), (0, 0), (5, 9)];
                    let arrow = EmptyElement::at((dot.rate_per_sec, top))
                        + PathElement::new(arrow, color(curve.run).stroke_width(2));
                    chart.plotting_area().draw(&arrow)?;
                } else if stat == Stat::Mean {
                    draw_mark(chart.plotting_area(), curve.run, dot, (dot.rate_per_sec, ms))?;
                }
                let sign = if stat == Stat::Mean { dot.marks.mean.sign() } else { dot.marks.p99.sign() };
                if !sign.is_empty() {
                    let at = EmptyElement::at((dot.rate_per_sec, ms.min(top)));
                    chart.plotting_area().draw(&(at + Text::new(sign, (9, -9), label_style())))?;
                }
            }
        }
    }
    Ok(())
}

fn achieved(text: &mut String, curves: &[Curve], captions: &[String], log: bool) -> Drawn<()> {
    let curves: Vec<Curve> = curves.iter().filter(|curve| !curve.closed).cloned().collect();
    let note = format!("Dashed: achieved equals offered. {LEVEL_NOTE}");
    let (root, plot) = frame(text, "Achieved against offered rate", captions, &note, &curves)?;
    let x = rates_axis(&curves, log);
    let (begin, end, y) = (x.low, x.high, x.clone());
    let mut chart = build(&plot, x, y)?;
    mesh(&mut chart, "offered (requests/s)", "achieved (requests/s)", &round_rate_text, &round_rate_text)?;
    chart.draw_series(DashedLineSeries::new([(begin, begin), (end, end)], 5, 5, INK_SOFT.stroke_width(1)))?;
    for curve in &curves {
        draw_line(
            &mut chart,
            curve.dots.iter().map(|dot| (dot.rate_per_sec, dot.achieved_per_sec)).collect(),
            curve,
            2,
        )?;
        for dot in &curve.dots {
            draw_mark(chart.plotting_area(), curve.run, dot, (dot.rate_per_sec, dot.achieved_per_sec))?;
        }
    }
    root.present()
}

fn rates_axis(curves: &[Curve], log: bool) -> Axis {
    let rates = || curves.iter().flat_map(|curve| &curve.dots).map(|dot| dot.rate_per_sec);
    let highest = rates().fold(0.0, f64::max);
    match log {
        true => Axis::log(rates().fold(f64::INFINITY, f64::min), highest),
        false => Axis::linear(1.04 * highest, 8),
    }
}

/// Height of the title with its captions.
fn head_height(captions: &[String]) -> u32 {
    TITLE_HEIGHT + CAPTION_LINE * captions.len() as u32
}

fn draw_head(header: &Area<'_>, title: &str, captions: &[String]) -> Drawn<()> {
    header.draw_text(&shortened(title, 90), &title_style(), (14, 12))?;
    for (at, caption) in captions.iter().enumerate() {
        let y = (TITLE_HEIGHT + CAPTION_LINE * at as u32) as i32 + 6;
        header.draw_text(caption, &(FONT, 13).into_font().color(&INK).pos(MIDDLE), (14, y))?;
    }
    Ok(())
}

/// Title, captions, note and legend; returns the whole and the part left for the plot.
fn frame<'a>(
    text: &'a mut String,
    title: &str,
    captions: &[String],
    note: &str,
    curves: &[Curve],
) -> Drawn<(Area<'a>, Area<'a>)> {
    let title_height = head_height(captions);
    let notes = captions::wrapped(note);
    let legend = title_height + CAPTION_LINE * notes.len() as u32;
    let head = legend + LEGEND_LINE * curves.len() as u32 + 4;
    let root = SVGBackend::with_string(text, (WIDTH, head + PLOT_HEIGHT)).into_drawing_area();
    root.fill(&WHITE)?;
    let (header, plot) = root.split_vertically(head);
    draw_head(&header, title, captions)?;
    for (at, line) in notes.iter().enumerate() {
        let y = (title_height + CAPTION_LINE * at as u32) as i32 + 8;
        header.draw_text(line, &(FONT, 12).into_font().color(&INK_SOFT).pos(MIDDLE), (14, y))?;
    }
    for (at, curve) in curves.iter().enumerate() {
        let y = (legend + LEGEND_LINE * at as u32) as i32 + 10;
        let style = color(curve.run).stroke_width(2);
        let dashes: &[(i32, i32)] = if curve.closed { &[(14, 20), (24, 30), (34, 40)] } else { &[(14, 40)] };
        for &(from, to) in dashes {
            header.draw(&PathElement::new([(from, y), (to, y)], style))?;
        }
        draw_shape(&header, curve.run, color(curve.run).filled(), (27, y))?;
        let label = match curve.closed {
            false => shortened(&curve.label, LEGEND_LABEL_CHARS),
            true => {
                format!("{} (closed loop: latency is measured from the send)", shortened(&curve.label, 42))
            }
        };
        header.draw_text(&label, &label_style(), (50, y))?;
    }
    Ok((root, plot))
}

fn build<'a, 'b>(plot: &'a Area<'b>, x: Axis, y: Axis) -> Drawn<Chart<'a, 'b>> {
    let mut builder = ChartBuilder::on(plot);
    builder.margin(6).margin_right(24).x_label_area_size(46).y_label_area_size(68);
    builder.build_cartesian_2d(x, y)
}

fn mesh(
    chart: &mut Chart<'_, '_>,
    x: &str,
    y: &str,
    x_text: &dyn Fn(f64) -> String,
    y_text: &dyn Fn(f64) -> String,
) -> Drawn<()> {
    chart
        .configure_mesh()
        .x_desc(x)
        .y_desc(y)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK_SOFT)
        .label_style((FONT, 12).into_font().color(&INK_SOFT))
        .axis_desc_style((FONT, 13).into_font().color(&INK))
        .x_label_formatter(&|value| x_text(*value))
        .y_label_formatter(&|value| y_text(*value))
        .draw()
}

fn draw_line(chart: &mut Chart<'_, '_>, line: Vec<(f64, f64)>, curve: &Curve, width: u32) -> Drawn<()> {
    let style = color(curve.run).stroke_width(width);
    if curve.closed {
        chart.draw_series(DashedLineSeries::new(line, 6, 4, style))?;
    } else {
        chart.draw_series(LineSeries::new(line, style))?;
    }
    Ok(())
}

/// The mark of a load point: hollow and amber when saturated, crossed out in red when INVALID.
fn draw_mark(area: &DrawingArea<SVGBackend<'_>, Plane>, run: usize, dot: &Dot, at: (f64, f64)) -> Drawn<()> {
    draw_state(area, run, (dot.saturated, dot.valid), at)
}

fn draw_state(
    area: &DrawingArea<SVGBackend<'_>, Plane>,
    run: usize,
    (saturated, valid): (bool, bool),
    at: (f64, f64),
) -> Drawn<()> {
    let at = area.map_coordinate(&at);
    let area = area.strip_coord_spec();
    // The stripped area counts from its own corner, the mapped point from the picture's.
    let corner = area.get_base_pixel();
    let at = (at.0 - corner.0, at.1 - corner.1);
    draw_shape(&area, run, if saturated { AMBER } else { color(run) }.filled(), at)?;
    if saturated {
        draw_shape_sized(&area, run, WHITE.filled(), at, 3)?;
    }
    if !valid {
        let (x, y) = at;
        for (from, to) in [((x - 8, y - 8), (x + 8, y + 8)), ((x - 8, y + 8), (x + 8, y - 8))] {
            area.draw(&PathElement::new([from, to], RED.stroke_width(2)))?;
        }
    }
    Ok(())
}

fn draw_shape(area: &Area<'_>, run: usize, style: ShapeStyle, at: (i32, i32)) -> Drawn<()> {
    draw_shape_sized(area, run, style, at, 5)
}

fn draw_shape_sized(area: &Area<'_>, run: usize, style: ShapeStyle, (x, y): (i32, i32), r: i32) -> Drawn<()> {
    match run % 4 {
        0 => area.draw(&Circle::new((x, y), r, style)),
        1 => area.draw(&Rectangle::new([(x - r + 1, y - r + 1), (x + r - 1, y + r - 1)], style)),
        2 => {
            area.draw(&Polygon::new([(x, y - r - 1), (x + r + 1, y + r - 1), (x - r - 1, y + r - 1)], style))
        }
        _ => {
            area.draw(&Polygon::new([(x, y - r - 1), (x + r + 1, y), (x, y + r + 1), (x - r - 1, y)], style))
        }
    }
}

/// The pieces of `line` below `top`, ending where they cross it: a line to a point far above leaves the
/// picture instead of running along its edge.
fn below(line: &[(f64, f64)], top: f64) -> Vec<Vec<(f64, f64)>> {
    let mut pieces = Vec::new();
    let mut piece = Vec::new();
    let mut last: Option<(f64, f64)> = None;
    for &(x, y) in line {
        if let Some((x0, y0)) = last
            && (y0 > top) != (y > top)
        {
            piece.push((x0 + (x - x0) * (top - y0) / (y - y0), top));
        }
        if y <= top {
            piece.push((x, y));
        } else if !piece.is_empty() {
            pieces.push(std::mem::take(&mut piece));
        }
        last = Some((x, y));
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

/// A tick without needless zeros: `0.05`, `20`, `1,000`.
pub(crate) fn plain(value: f64) -> String {
    let text = grouped(value, if value >= 10.0 { 0 } else { 4 });
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

pub(crate) fn shortened(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text.to_owned();
    }
    text.chars().take(chars - 1).chain(['…']).collect()
}

fn color(run: usize) -> RGBColor {
    PALETTE[run % PALETTE.len()]
}

const MIDDLE: Pos = Pos { h_pos: HPos::Left, v_pos: VPos::Center };

fn title_style() -> TextStyle<'static> {
    (FONT, 17).into_font().style(FontStyle::Bold).color(&INK)
}

fn label_style() -> TextStyle<'static> {
    (FONT, 13).into_font().color(&INK).pos(MIDDLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_leaves_by_the_top_ends_there_and_comes_back_there() {
        let there_and_back = [(0.0, 0.0), (10.0, 20.0), (20.0, 20.0), (30.0, 0.0)];
        assert_eq!(
            below(&there_and_back, 10.0),
            [vec![(0.0, 0.0), (5.0, 10.0)], vec![(25.0, 10.0), (30.0, 0.0)]]
        );
        assert_eq!(below(&there_and_back, 20.0), [there_and_back.to_vec()]);
    }
}
