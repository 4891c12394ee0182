//! One HTML file that works offline: verdicts, figures, plots and every number behind them.
//!
//! ```text
//! RunRecord -> views (text), series, sections (numbers) -> web/report.html.j2 + report.css + report.js + uPlot
//! ```
//!
//! Always holds: the template escapes whatever is inserted; the numbers travel as JSON without a `<`, so
//! that no label can end the script element; the page's own policy forbids it every request. Without
//! scripts the plots are the inlined SVGs. uPlot is in `web/vendor`, unchanged, so that two builds write the same page.
//! Not here: what a plot shows (see `series`), how a number is written (see `figures`).

use measure::view::Usual;
use measure::{BenchmarkRegistry, RunRecord};
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, context};
use serde::Serialize;

use crate::compare::Comparison;
use crate::dots::DotPlot;
use crate::figures::{grouped, rate_text, round_rate_text};
use crate::lines::{self, LinePlot};
use crate::sections::Sections;
use crate::series::{self, Cumulative, Curve, Stat};
use crate::views::{self, ComparisonView, MetricsView, RunView};
use crate::{Reference, ReportError, Result, sections, sides, svg, time_series};

const TEMPLATE: &str = include_str!("../web/report.html.j2");
const SECTION: &str = include_str!("../web/section.html.j2");
const STYLE: &str = include_str!("../web/report.css");
const SCRIPT: &str = include_str!("../web/report.js");
const UPLOT_SCRIPT: &str = include_str!("../web/vendor/uplot/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("../web/vendor/uplot/uPlot.min.css");
// The licence asks that its text goes with every copy, and every report is one.
const UPLOT_LICENSE: &str = include_str!("../web/vendor/uplot/LICENSE");

/// Phases of a run beyond which they are folded away: a run over many sizes has hundreds.
const PHASES_SHOWN: usize = 24;
/// Letters of a name in a table of sides or runs.
const SHORT_NAME_CHARS: usize = 32;

/// How the page is made.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Heading of the page; by default made of the runs' labels.
    pub title: Option<String>,
    /// Which plots to draw.
    pub plots: Plots,
    /// Published values beside the runs' own.
    pub reference: Reference,
    /// A comparison of these runs, drawn first. Without one, runs of one series of several sides are compared.
    pub comparison: Option<Comparison>,
}

/// How plots are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plots {
    /// By uPlot, with tooltips; without scripts as [`Plots::Fixed`].
    #[default]
    Interactive,
    /// As inlined SVG without any script's help.
    Fixed,
}

/// The numbers that the page's script draws from.
#[derive(Serialize)]
struct PlotNumbers<'a> {
    curves: &'a [Curve],
    stats: Vec<StatNumbers>,
    cumulative: &'a [Cumulative],
    lines: &'a [LinePlot],
    /// A run searched for a rate: rates are drawn on logarithmic axes where latencies are.
    search: bool,
}

#[derive(Serialize)]
struct StatNumbers {
    name: &'static str,
    linear_top_ms: f64,
}

/// Draws `runs` as one page; what is theirs alone is shown as `registry` says.
///
/// # Errors
/// When there is no run, or a plot cannot be drawn.
pub fn render(runs: &[RunRecord], registry: BenchmarkRegistry, options: &Options) -> Result<String> {
    if runs.is_empty() {
        return Err(ReportError::NothingToDraw);
    }
    let interactive = options.plots == Plots::Interactive;
    let curves = series::curves(runs, registry);
    let cumulative: Vec<Cumulative> =
        runs.iter().enumerate().filter_map(|(at, run)| series::cumulative(at, run)).collect();
    let stats = Stat::ALL
        .map(|stat| StatNumbers { name: stat.name(), linear_top_ms: series::linear_top_ms(&curves, stat) });
    let sections = Sections::of(runs, registry, options.reference);
    let lines = lines::plots(&sections::with_own_curves(runs, &sections));
    let search = series::is_search(runs, registry);
    let (over_time, over_time_left_out) = time_series::views(runs);
    let numbers =
        PlotNumbers { curves: &curves, stats: stats.into(), cumulative: &cumulative, lines: &lines, search };
    let comparison = options.comparison.clone().or_else(|| sides::compared(runs, registry));
    let title = options.title.clone().unwrap_or_else(|| default_title(runs, comparison.as_ref()));

    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.add_filter("rate", rate_text);
    environment.add_filter("round_rate", round_rate_text);
    environment.add_filter("ms", |ms: f64| crate::ms_text(ms * 1e3));
    environment.add_filter("two", |number: f64| grouped(number, 2));
    environment.add_filter("three", |number: f64| crate::ms_text(number * 1e3));
    environment.add_filter("plain", svg::plain);
    environment.add_template("report.html", TEMPLATE)?;
    environment.add_template("section.html", SECTION)?;
    let page = environment.get_template("report.html")?.render(context! {
        title,
        phases_shown => PHASES_SHOWN,
        interactive,
        search,
        version => env!("CARGO_PKG_VERSION"),
        runs => run_views(runs, registry, &sections),
        metrics => match &comparison {
            Some(comparison) => views::medians(comparison, runs, registry),
            None => metrics(runs, registry, &sections),
        },
        comparison => comparison.as_ref().map(|comparison| ComparisonView::new(comparison, runs)),
        short_names => short_names(runs, comparison.as_ref()),
        dots => comparison.as_ref().and_then(DotPlot::of),
        sections => sections.all(),
        over_time,
        over_time_left_out,
        line_svgs => line_svgs(runs, registry, &lines)?,
        lines => lines,
        stats => Stat::ALL.map(Stat::name),
        curves => curves,
        cumulative => cumulative,
        svgs => inlined_svgs(runs, registry, &curves, &cumulative)?,
        numbers => Value::from_safe_string(script_json(&numbers)),
        style => Value::from_safe_string(STYLE.to_owned()),
        script => Value::from_safe_string(SCRIPT.to_owned()),
        uplot_style => Value::from_safe_string(UPLOT_STYLE.to_owned()),
        uplot_script => Value::from_safe_string(UPLOT_SCRIPT.to_owned()),
        uplot_license => Value::from_safe_string(UPLOT_LICENSE.to_owned()),
    })?;
    Ok(page)
}

fn run_views(runs: &[RunRecord], registry: BenchmarkRegistry, sections: &Sections) -> Vec<RunView> {
    let view = |(at, run)| RunView::new(run, !sections.have(at, Usual::Phases), registry);
    runs.iter().enumerate().map(view).collect()
}

/// None to be listed when every run has a section that shows its figures.
fn metrics(runs: &[RunRecord], registry: BenchmarkRegistry, sections: &Sections) -> MetricsView {
    let shown = (0..runs.len()).all(|at| sections.have(at, Usual::Metrics));
    views::metrics(if shown { &[] } else { runs }, registry)
}

fn line_svgs(runs: &[RunRecord], registry: BenchmarkRegistry, lines: &[LinePlot]) -> Result<Vec<Value>> {
    lines
        .iter()
        .map(|plot| svg::render(runs, registry, svg::Kind::Lines(plot)).map(Value::from_safe_string))
        .collect()
}

/// The fixed plots in the page's order: both latency plots, achieved against offered, and per run the
/// cumulative one. Their labels are escaped by plotters.
fn inlined_svgs(
    runs: &[RunRecord],
    registry: BenchmarkRegistry,
    curves: &[Curve],
    cumulative: &[Cumulative],
) -> Result<Value> {
    let draw = |kind| svg::render(runs, registry, kind).map(Value::from_safe_string);
    let latency = match curves.is_empty() {
        true => vec![],
        false => svg::latency_kinds(runs, registry).into_iter().map(draw).collect::<Result<Vec<_>>>()?,
    };
    let open = curves.iter().any(|curve| !curve.closed);
    let achieved = if open { vec![draw(svg::Kind::AchievedOffered)?] } else { vec![] };
    let cumulative = cumulative.iter().map(|of| draw(svg::Kind::Cumulative { run: of.run }));
    Ok(context! { latency, achieved, cumulative => cumulative.collect::<Result<Vec<_>>>()? })
}

/// JSON that no HTML parser takes for the end of its script element.
fn script_json(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).expect("plot numbers are finite and their names are text");
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn default_title(runs: &[RunRecord], comparison: Option<&Comparison>) -> String {
    if let Some(comparison) = comparison {
        let labels: Vec<&str> = comparison.sides.iter().map(|side| side.label.as_str()).collect();
        let (common, own) = apart(&labels);
        let common = if common.is_empty() { String::new() } else { format!("{common} ") };
        return match &own[..] {
            [a, b] => format!("{common}{b} against {a}"),
            // The table of sides says what they are.
            _ => format!("{}: {} sides compared", comparison.benchmark, labels.len()),
        };
    }
    match runs {
        [one] => one.label.clone(),
        [first, second] => format!("{} and {}", first.label, second.label),
        [first, rest @ ..] => format!("{} and {} other runs", first.label, rest.len()),
        [] => String::new(),
    }
}

/// Names for a table, of sides or of runs: without the words that all begin with, and cut off where they are long.
fn short_names(runs: &[RunRecord], comparison: Option<&Comparison>) -> Vec<String> {
    let labels: Vec<&str> = match comparison {
        Some(comparison) => comparison.sides.iter().map(|side| side.label.as_str()).collect(),
        None => runs.iter().map(|run| run.label.as_str()).collect(),
    };
    let (_, own) = apart(&labels);
    own.into_iter().map(|name| svg::shortened(name, SHORT_NAME_CHARS)).collect()
}

/// The words that all texts begin with, and what is left of each.
fn apart<'t>(texts: &[&'t str]) -> (&'t str, Vec<&'t str>) {
    let words = |text: &'t str| text.split(' ');
    let mut cut = 0;
    'words: for word in words(texts[0]) {
        let end = cut + word.len() + 1;
        for text in texts {
            // Something must be left of each.
            if text.len() <= end || text.get(..end) != texts[0].get(..end) {
                break 'words;
            }
        }
        cut = end;
    }
    (texts[0][..cut].trim_end(), texts.iter().map(|text| &text[cut..]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_labels_begin_with_is_said_once() {
        let on = ["news on /mnt/a", "news on /mnt/b"];
        assert_eq!(apart(&on), ("news on", vec!["/mnt/a", "/mnt/b"]));
        assert_eq!(apart(&["ext4", "XFS, new log"]), ("", vec!["ext4", "XFS, new log"]));
        assert_eq!(apart(&["news", "news old"]), ("", vec!["news", "news old"]));
        assert_eq!(apart(&["a b", "a b"]), ("a", vec!["b", "b"]));
    }

    #[test]
    fn no_two_colours_of_runs_look_alike() {
        let channels = |hex: &str| {
            [0, 2, 4].map(|at| f64::from(u8::from_str_radix(&hex[at..at + 2], 16).expect("six hex digits")))
        };
        // Thiadmer Riemersma, "Colour metric": as good as the eye within some percent, and needs no colour space.
        let apart = |a: [f64; 3], b: [f64; 3]| {
            let red = (a[0] + b[0]) / 2.0;
            let [r, g, b] = [0, 1, 2].map(|at| (a[at] - b[at]).powi(2));
            ((2.0 + red / 256.0) * r + 4.0 * g + (2.0 + (255.0 - red) / 256.0) * b).sqrt()
        };
        let lines: Vec<&str> = STYLE.lines().filter(|line| line.contains("--run0: #")).collect();
        assert_eq!(lines.len(), 3, "light, dark, and dark by the system's choice");
        for line in lines {
            let colours: Vec<&str> = line.split('#').skip(1).map(|rest| &rest[..6]).collect();
            assert_eq!(colours.len(), 6, "{line}");
            for (at, a) in colours.iter().enumerate() {
                for b in &colours[..at] {
                    let distance = apart(channels(a), channels(b));
                    assert!(distance > 130.0, "#{a} and #{b} are {distance:.0} apart");
                }
            }
        }
    }

    #[test]
    fn a_label_cannot_end_the_script_element_that_holds_the_numbers() {
        let json = script_json(&["</script><img onerror=x>", "<!--"]);
        assert!(!json.contains('<') && !json.contains('>'), "{json}");
        let again: Vec<String> = serde_json::from_str(&json).unwrap();
        assert_eq!(again, ["</script><img onerror=x>", "<!--"]);
    }
}
