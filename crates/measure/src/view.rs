//! What a benchmark shows of its runs beside what every run has: sections of a page, as data.
//!
//! ```text
//! records of one benchmark -> its crate's `views` -> Section { title, View, View, ... } -> report: HTML, SVG
//! ```
//!
//! 1. The benchmark's crate reads its own records and says what is to be seen: tables, bars, ranges, lines.
//! 2. The code that draws a page places everything on axes and knows no benchmark.
//!
//! Invariant: a drawing skips what is not finite or out of range, so a view may hold what an imported record says.
//! Units are those of [`crate::Metric`]. Texts are plain: the page escapes them.
//! Not here: load points, phases and curves, which every record has; where something lies on a page.

use serde::Serialize;

/// Things of a page that belong together, under one heading.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Names its element and its files; one of its own on the page.
    pub id: String,
    /// Heading.
    pub title: String,
    /// What the reader must know first.
    pub read: String,
    /// The runs that it shows, as indices of the runs that `views` was given.
    pub runs: Vec<usize>,
    /// Where on the page.
    pub place: Place,
    /// What the page need not show of these runs, since the section does.
    pub instead_of: &'static [Usual],
    /// What it shows, in order; figures that follow each other are drawn side by side.
    pub items: Vec<View>,
    /// What somebody else has published, to be drawn into the figures by pass.
    pub published: Option<Published>,
}

/// Where a section is on the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Before all plots: it answers the run's question.
    First,
    /// Behind the plots of load points, before the list of phases.
    #[default]
    Details,
}

/// What a page shows of every run, unless a section does so better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usual {
    /// The tiles and the table of metrics, when all runs of the page are in such sections.
    Metrics,
    /// The list of phases.
    Phases,
    /// The plots of curves.
    Curves,
}

/// One item of a section.
#[derive(Clone, Debug)]
pub enum View {
    /// Numbers in rows.
    Table(Table),
    /// One bar a row.
    Bars(Bars),
    /// From the median to the slowest, a row a thing.
    Ranges(Ranges),
    /// Values over something that passes, such as minutes.
    Lines(Lines),
    /// Values of each pass, or one of the whole run, with the spread over repeats.
    ByPass(ByPass),
}

/// Numbers in rows; the texts have no unit, which the headings say.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// What it is, for a reader who does not see it.
    pub about: String,
    /// Heading of the rows' names.
    pub of: &'static str,
    /// Headings; columns of one group follow each other.
    pub columns: Vec<Column>,
    /// Names and cells.
    pub rows: Vec<Row>,
    /// What is to be said below.
    pub key: String,
}

/// Heading of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// What several columns share; nothing for one that is alone.
    pub group: Option<&'static str>,
    /// Its own heading.
    pub title: &'static str,
}

/// One row.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it is of.
    pub name: String,
    /// One a column; nothing where there is no value.
    pub cells: Vec<Option<String>>,
    /// True for what somebody else has published.
    pub published: bool,
}

/// One bar a row, of one unit.
#[derive(Clone, Debug)]
pub struct Bars {
    /// Heading.
    pub title: &'static str,
    /// How to read it.
    pub read: &'static str,
    /// What the values are, with the unit.
    pub axis: &'static str,
    /// As a metric's; percentages are drawn from 0 to 100.
    pub unit: &'static str,
    /// From top to bottom.
    pub rows: Vec<Bar>,
}

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// What it is of.
    pub name: String,
    /// Its length.
    pub value: f64,
    /// The value, with its unit.
    pub text: String,
    /// A mark beside it, that somebody has published.
    pub published: Option<f64>,
    /// What a pointer on it shows: names and values.
    pub facts: Vec<(&'static str, String)>,
}

/// Ranges of latencies on one logarithmic axis, microseconds.
#[derive(Clone, Debug)]
pub struct Ranges {
    /// Heading.
    pub title: &'static str,
    /// How to read it.
    pub read: &'static str,
    /// From top to bottom.
    pub rows: Vec<Range>,
}

/// One range.
#[derive(Clone, Debug)]
pub struct Range {
    /// What it is of.
    pub name: String,
    /// The median, where the range begins.
    pub p50_us: f64,
    /// Where its thick part ends.
    pub p99_us: f64,
    /// Where it ends.
    pub max_us: Option<f64>,
    /// The value beside it, with its unit.
    pub text: String,
    /// What a pointer on it shows: names and values.
    pub facts: Vec<(&'static str, String)>,
}

/// Values over something that passes. Both axes are linear and begin at zero.
#[derive(Clone, Debug)]
pub struct Lines {
    /// Names its element.
    pub id: &'static str,
    /// Heading.
    pub title: &'static str,
    /// How to read it.
    pub read: &'static str,
    /// Of the values, for people: `requests/s`, `ms`, `%`.
    pub unit: &'static str,
    /// What passes, in words.
    pub over: &'static str,
    /// In the order drawn.
    pub lines: Vec<Line>,
    /// Where something begins, along the axis: its place and its name.
    pub marks: Vec<(f64, String)>,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Which run, of those that `views` was given: chooses the colour.
    pub run: usize,
    /// What it is.
    pub name: String,
    /// How it is drawn.
    pub stroke: Stroke,
    /// By rising x; where a step is much longer than the others the line is broken.
    pub points: Vec<(f64, f64)>,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stroke {
    /// What was achieved.
    #[default]
    Whole,
    /// What could have been.
    Dashed,
    /// A part of it.
    Dotted,
}

/// A figure of what is done pass after pass: a line a configuration, or a bar for the whole run.
#[derive(Clone, Debug, Serialize)]
pub struct ByPass {
    /// Names its files and its element.
    pub id: &'static str,
    /// Which figure of a publication it is like.
    pub like: &'static str,
    /// Heading.
    pub title: &'static str,
    /// How to read it.
    pub read: String,
    /// What is along the other axis.
    pub over: Over,
    /// What the values are, without their unit.
    pub what: &'static str,
    /// `/s`, `%` or `s`; seconds are drawn as minutes or milliseconds where those are easier to read.
    pub unit: &'static str,
    /// Sentences with the figures that matter, one a configuration or less.
    pub findings: Vec<String>,
    /// One a configuration.
    pub lines: Vec<PassLine>,
}

/// What is along the other axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// Nothing: one value a configuration, as bars.
    Runs,
    /// The passes, as lines; the axis begins at zero.
    Passes,
    /// The same; the axis holds 100% and does not begin at zero.
    PassesAroundWhole,
}

/// One configuration's values.
#[derive(Clone, Debug, Serialize)]
pub struct PassLine {
    /// Which configuration: chooses colour and mark.
    pub configuration: usize,
    /// What it is called beside the others.
    pub name: String,
    /// By rising pass.
    pub points: Vec<PassPoint>,
}

/// The repeats of one pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PassPoint {
    /// 0 for a value of the whole run.
    pub pass: u32,
    /// Median of the repeats.
    pub y: f64,
    /// Lowest of them.
    pub low: f64,
    /// Highest of them.
    pub high: f64,
    /// How many there are.
    pub runs: usize,
}

/// What somebody has published, and where.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Published {
    /// The publication, as a bibliography has it.
    pub source: &'static str,
    /// The same for a picture's edge, such as `Swartz, LISA X, 1996`.
    pub short: &'static str,
    /// When.
    pub year: &'static str,
    /// How to hold them against the runs.
    pub read: &'static str,
    /// Each value once, drawn or not.
    pub values: &'static [PublishedValue],
}

/// A value that somebody has published.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PublishedValue {
    /// The storage that had it.
    pub name: &'static str,
    /// In the figure's unit.
    pub value: f64,
    /// The value as the publication has it.
    pub text: &'static str,
    /// Of what the value is.
    pub of: &'static str,
    /// The pass that it is of; none: of all.
    pub pass: Option<u32>,
    /// Figure or section.
    pub source: &'static str,
    /// Ids of the figures in which it is drawn.
    #[serde(skip)]
    pub drawn: &'static [&'static str],
}
