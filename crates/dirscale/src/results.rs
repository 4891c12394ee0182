//! From what was timed to curves, the day's cost, and from which size each layout pays.

use std::collections::BTreeMap;
use std::fmt;

use files::{Layout, LayoutError};
use measure::{COST_METRICS, Curve, CurveLine, CurvePoint, MACHINE_METRICS, MetricDeclaration};
use serde::{Deserialize, Serialize};

use crate::Frequencies;
use crate::crossover::{Crossover, Row, crossover};
use crate::frequencies::Costs;
use crate::sample::{REPLICATES, Samples, interval};

/// What is timed at each size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Measure {
    /// lstat of files drawn at random, with replacement (figure 3).
    LookupRandom,
    /// lstat of files one after the other in the order of their numbers, round and round (figure 3).
    LookupSequential,
    /// Make, write and close the next file (figure 4).
    Add,
    /// Remove the oldest file (figure 4).
    Remove,
    /// Read the whole directory (figure 5).
    Readdir,
}

/// What a layout may pay for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// One kind of operation.
    Of(Measure),
    /// Adding a file and removing one (figure 4).
    Turnover,
    /// The whole day (figure 6).
    Day,
}

/// One answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Paying {
    /// Against the flat directory.
    pub layout: Layout,
    /// For what.
    pub question: Question,
    /// From which size.
    pub crossover: Crossover,
}

/// All that was timed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "Vec<Timed>", try_from = "Vec<Timed>")]
pub(crate) struct Results {
    cells: BTreeMap<(Layout, u64), Cell>,
}

type Cell = [Samples; Measure::ALL.len()];

/// One cell as it is written.
#[derive(Serialize, Deserialize)]
struct Timed {
    layout: String,
    files: u64,
    samples: Cell,
}

impl From<Results> for Vec<Timed> {
    fn from(results: Results) -> Self {
        let cells = results.cells.into_iter();
        cells.map(|((layout, files), samples)| Timed { layout: layout.to_string(), files, samples }).collect()
    }
}

impl TryFrom<Vec<Timed>> for Results {
    type Error = LayoutError;

    fn try_from(list: Vec<Timed>) -> Result<Self, LayoutError> {
        let cell = |timed: Timed| Ok(((timed.layout.parse()?, timed.files), timed.samples));
        Ok(Self { cells: list.into_iter().map(cell).collect::<Result<_, _>>()? })
    }
}

/// A cell whose measures are all there, with replicates of each.
struct Known {
    figures: [f64; Measure::ALL.len()],
    replicates: [Vec<f64>; Measure::ALL.len()],
    intervals: [Option<(f64, f64)>; Measure::ALL.len()],
}

impl Measure {
    /// In the order of measuring.
    pub const ALL: [Self; 5] =
        [Self::LookupRandom, Self::LookupSequential, Self::Add, Self::Remove, Self::Readdir];

    /// For names of phases, curves and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::LookupRandom => "lookup_random",
            Self::LookupSequential => "lookup_sequential",
            Self::Add => "add",
            Self::Remove => "remove",
            Self::Readdir => "readdir",
        }
    }

    fn place(self) -> usize {
        self as usize
    }
}

impl Question {
    /// The day, which sums the others up, then as the paper's figures ask.
    pub const ALL: [Self; 5] = [
        Self::Day,
        Self::Of(Measure::LookupRandom),
        Self::Of(Measure::LookupSequential),
        Self::Turnover,
        Self::Of(Measure::Readdir),
    ];

    /// For names of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Of(measure) => measure.name(),
            Self::Turnover => "add_and_remove",
            Self::Day => "day",
        }
    }

    /// For sentences: a layout pays … "for random lookups".
    pub fn words(self) -> &'static str {
        match self {
            Self::Of(Measure::LookupRandom) => "for random lookups",
            Self::Of(Measure::LookupSequential) => "for sequential lookups",
            Self::Of(Measure::Add) => "for adding",
            Self::Of(Measure::Remove) => "for removing",
            Self::Of(Measure::Readdir) => "for reading the directory",
            Self::Turnover => "for adding and removing",
            Self::Day => "for the whole day",
        }
    }

    fn of(self, row: &[f64; Measure::ALL.len()], day: &Frequencies) -> f64 {
        match self {
            Self::Of(measure) => row[measure.place()],
            Self::Turnover => row[Measure::Add.place()] + row[Measure::Remove.place()],
            Self::Day => day.mean_us(&costs(row)),
        }
    }
}

impl fmt::Display for Paying {
    /// To go on behind "pays ".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.question.words(), self.crossover)
    }
}

fn costs(row: &[f64; Measure::ALL.len()]) -> Costs {
    Costs {
        lookup_random: row[Measure::LookupRandom.place()],
        lookup_sequential: row[Measure::LookupSequential.place()],
        add: row[Measure::Add.place()],
        remove: row[Measure::Remove.place()],
        readdir: row[Measure::Readdir.place()],
    }
}

impl Results {
    /// Takes in a round.
    pub fn add(&mut self, layout: Layout, size: u64, measure: Measure, spent_ns: &[u64]) {
        self.cells.entry((layout, size)).or_default()[measure.place()].add_round(spent_ns);
    }

    /// One curve a measure and one for the day, each with one line a layout, in the order given.
    pub fn curves(&self, layouts: &[Layout], day: &Frequencies, seed: u64) -> Vec<Curve> {
        let known = self.known(seed);
        let curve = |name: String, point: &dyn Fn(&Known) -> CurvePoint| Curve {
            name,
            over: "files".to_owned(),
            lines: layouts
                .iter()
                .map(|layout| CurveLine {
                    label: layout.to_string(),
                    points: known
                        .iter()
                        .filter(|((of, _), _)| of == layout)
                        .map(|((_, size), cell)| CurvePoint { x: *size as f64, ..point(cell) })
                        .collect(),
                })
                .collect(),
        };
        let mut curves: Vec<Curve> = Measure::ALL
            .iter()
            .map(|measure| curve(format!("{}_us", measure.name()), &|cell| cell.point(*measure)))
            .collect();
        curves.push(curve("day_us".to_owned(), &|cell| cell.day_point(day)));
        curves
    }

    /// The largest size of which everything is known, in any layout.
    pub fn largest(&self) -> Option<u64> {
        let whole = self.cells.iter().filter(|(_, cell)| cell.iter().all(|samples| samples.us().is_some()));
        whole.map(|((_, size), _)| *size).max()
    }

    /// Answers to all questions for each layout but the flat one; none without the flat one.
    pub fn paying(&self, layouts: &[Layout], day: &Frequencies, seed: u64) -> Vec<Paying> {
        let known = self.known(seed);
        let mut answers = Vec::new();
        for layout in layouts.iter().filter(|layout| **layout != Layout::Flat) {
            let sizes: Vec<u64> = known
                .keys()
                .filter(|(of, size)| of == layout && known.contains_key(&(Layout::Flat, *size)))
                .map(|(_, size)| *size)
                .collect();
            for question in Question::ALL {
                let row = |of: Layout| {
                    let cells = || sizes.iter().map(|size| &known[&(of, *size)]);
                    Row {
                        figures: cells().map(|cell| question.of(&cell.figures, day)).collect(),
                        replicates: cells().map(|cell| cell.replicates_of(question, day)).collect(),
                    }
                };
                let answer = crossover(&sizes, &row(Layout::Flat), &row(*layout));
                answers.extend(answer.map(|crossover| Paying { layout: *layout, question, crossover }));
            }
        }
        answers
    }

    /// The flat list of figures that comparing works on, at each layout's largest size.
    pub fn metrics(
        &self,
        layouts: &[Layout],
        day: &Frequencies,
        paying: &[Paying],
        seed: u64,
    ) -> BTreeMap<String, f64> {
        let known = self.known(seed);
        let mut metrics = BTreeMap::new();
        for layout in layouts {
            let Some(((_, size), cell)) = known.iter().rfind(|((of, _), _)| of == layout) else { continue };
            let slug = slug(*layout);
            for measure in Measure::ALL {
                metrics.insert(format!("{}_{slug}_us", measure.name()), cell.figures[measure.place()]);
            }
            let mean_us = Question::Day.of(&cell.figures, day);
            metrics.insert(format!("day_cost_{slug}_us"), mean_us);
            metrics.insert(format!("day_cost_{slug}_s"), mean_us * day.per_day() / 1e6);
            metrics.insert(format!("largest_{slug}_files"), *size as f64);
        }
        for Paying { layout, question, crossover } in paying {
            if let Some(files) = crossover.files() {
                let slug = slug(*layout);
                let name = match question {
                    Question::Day => format!("pays_from_files_{slug}"),
                    _ => format!("pays_from_files_{slug}_{}", question.name()),
                };
                metrics.insert(name, files);
            }
        }
        metrics
    }

    fn known(&self, seed: u64) -> BTreeMap<(Layout, u64), Known> {
        let cells = self.cells.iter();
        cells
            .filter_map(|((layout, size), cell)| {
                // Each measure of each cell draws on its own: figures were not taken in pairs.
                let salt = |measure: usize| seed ^ (size << 8 | (*layout as u64) << 3 | measure as u64);
                Some(((*layout, *size), Known::of(cell, salt)?))
            })
            .collect()
    }
}

impl Known {
    fn of(cell: &Cell, salt: impl Fn(usize) -> u64) -> Option<Self> {
        let mut figures = [0.0; Measure::ALL.len()];
        for (figure, samples) in figures.iter_mut().zip(cell) {
            *figure = samples.us()?;
        }
        Some(Self {
            figures,
            replicates: std::array::from_fn(|measure| cell[measure].replicates(salt(measure))),
            intervals: std::array::from_fn(|measure| cell[measure].estimate(salt(measure))?.interval),
        })
    }

    fn replicates_of(&self, question: Question, day: &Frequencies) -> Vec<f64> {
        let row = |r: usize| std::array::from_fn(|measure| self.replicates[measure][r]);
        (0..REPLICATES).map(|r| question.of(&row(r), day)).collect()
    }

    fn point(&self, measure: Measure) -> CurvePoint {
        point(self.figures[measure.place()], self.intervals[measure.place()])
    }

    fn day_point(&self, day: &Frequencies) -> CurvePoint {
        let ends = interval(&mut self.replicates_of(Question::Day, day));
        point(Question::Day.of(&self.figures, day), Some(ends))
    }
}

/// The interval holds its figure, though the bootstrap's percentiles need not.
fn point(y: f64, ends: Option<(f64, f64)>) -> CurvePoint {
    CurvePoint { x: 0.0, y, low: ends.map(|ends| ends.0.min(y)), high: ends.map(|ends| ends.1.max(y)) }
}

/// What a run emits, by order of interest, and its curves.
pub const METRICS: &[MetricDeclaration] = &[
    MetricDeclaration::micros("day_cost_flat_us", "Mean operation of a day, flat").answers().tile(),
    MetricDeclaration::micros("day_cost_{layout}_us", "Mean operation of a day, {layout}").tile(),
    MetricDeclaration::seconds("day_cost_{layout}_s", "Cost of a day, {layout}"),
    MetricDeclaration::count("pays_from_files_{layout}", "Pays from, files, {layout}"),
    MetricDeclaration::micros("lookup_random_{layout}_us", "Lookup, random order, {layout}"),
    MetricDeclaration::micros("lookup_sequential_{layout}_us", "Lookup, sequential order, {layout}"),
    MetricDeclaration::micros("add_{layout}_us", "Add a file, {layout}"),
    MetricDeclaration::micros("remove_{layout}_us", "Remove a file, {layout}"),
    MetricDeclaration::micros("readdir_{layout}_us", "Read the directory, {layout}"),
    MetricDeclaration::count("largest_{layout}_files", "Largest, files, {layout}"),
    MetricDeclaration::count("cache_drops", "Cache drops"),
    MetricDeclaration::count("cache_drops_proven_cold", "Cache drops proven cold"),
    MetricDeclaration::micros("lookup_random_us", "Lookup, random order"),
    MetricDeclaration::micros("lookup_sequential_us", "Lookup, sequential order"),
    MetricDeclaration::micros("add_us", "Add a file"),
    MetricDeclaration::micros("remove_us", "Remove a file"),
    MetricDeclaration::micros("readdir_us", "Read the directory"),
    MetricDeclaration::micros("day_us", "Mean operation of a day"),
    COST_METRICS[0],
    COST_METRICS[1],
    COST_METRICS[2],
    COST_METRICS[3],
    COST_METRICS[4],
    COST_METRICS[5],
    MACHINE_METRICS[0],
    MACHINE_METRICS[1],
    MACHINE_METRICS[2],
    MACHINE_METRICS[3],
    MACHINE_METRICS[4],
];

/// A layout's name within the name of a metric.
fn slug(layout: Layout) -> String {
    layout.name().replace('/', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUTS: [Layout; 2] = [Layout::Flat, Layout::D345];

    /// Flat costs `files` ns an operation, the layout 1000 ns; reading costs a hundred times as much.
    fn made_up() -> Results {
        let mut results = Results::default();
        for size in [100u64, 1000, 10_000] {
            for measure in Measure::ALL {
                let weight = if measure == Measure::Readdir { 100 } else { 1 };
                let spent = |ns: u64| (0..100).map(|n| weight * (ns + n % 3)).collect::<Vec<_>>();
                results.add(Layout::Flat, size, measure, &spent(size));
                results.add(Layout::D345, size, measure, &spent(2000));
            }
        }
        results
    }

    #[test]
    fn each_measure_and_the_day_have_a_curve_with_a_line_for_each_layout() {
        let curves = made_up().curves(&LAYOUTS, &Frequencies::default(), 1);
        let names: Vec<&str> = curves.iter().map(|curve| curve.name.as_str()).collect();
        assert_eq!(
            names,
            ["lookup_random_us", "lookup_sequential_us", "add_us", "remove_us", "readdir_us", "day_us"]
        );
        for curve in &curves {
            assert_eq!(
                curve.lines.iter().map(|line| line.label.as_str()).collect::<Vec<_>>(),
                ["flat", "345"]
            );
            for point in curve.lines.iter().flat_map(|line| &line.points) {
                assert!(point.low.unwrap() <= point.y && point.y <= point.high.unwrap(), "{}", curve.name);
            }
            assert_eq!(
                curve.lines[0].points.iter().map(|point| point.x).collect::<Vec<_>>(),
                [100.0, 1e3, 1e4]
            );
        }
    }

    #[test]
    fn the_day_s_cost_is_the_weighted_sum_of_what_was_measured() {
        let day: Frequencies = "lookup=90,unlink=5,create=4,readdir=1".parse().unwrap();
        let results = made_up();
        let metrics = results.metrics(&LAYOUTS, &day, &[], 1);
        // 99 operations of 2 us and a reading of 200 us, but for a nanosecond of scatter.
        assert!((metrics["day_cost_345_us"] - 3.98).abs() < 0.01, "{metrics:?}");
        assert!((metrics["day_cost_345_s"] - 398e-6).abs() < 1e-6, "{metrics:?}");
        assert_eq!(metrics["largest_flat_files"], 1e4);
    }

    #[test]
    fn every_question_is_answered_for_each_layout_and_numbers_go_into_metrics() {
        let (results, day) = (made_up(), Frequencies::default());
        let paying = results.paying(&LAYOUTS, &day, 1);
        assert_eq!(paying.len(), Question::ALL.len());
        let metrics = results.metrics(&LAYOUTS, &day, &paying, 1);
        for name in
            ["pays_from_files_345", "pays_from_files_345_readdir", "pays_from_files_345_add_and_remove"]
        {
            assert!((1900.0..2100.0).contains(&metrics[name]), "{name}: {}", metrics[name]);
        }
    }

    #[test]
    fn without_a_flat_directory_there_is_nothing_to_pay_against() {
        assert_eq!(made_up().paying(&[Layout::D345], &Frequencies::default(), 1).len(), 5);
        let mut alone = Results::default();
        for measure in Measure::ALL {
            alone.add(Layout::D345, 10, measure, &[5, 6]);
        }
        assert_eq!(alone.paying(&[Layout::D345], &Frequencies::default(), 1), []);
    }

    #[test]
    fn what_was_timed_is_read_back_as_it_was_written() {
        let results = made_up();
        let text = serde_json::to_string(&results).unwrap();
        let again: Results = serde_json::from_str(&text).unwrap();
        assert_eq!(again.cells, results.cells);
        let unknown = text.replace("\"345\"", "\"789\"");
        let error = serde_json::from_str::<Results>(&unknown).unwrap_err();
        assert!(error.to_string().contains("`789` is no layout"), "{error}");
    }

    #[test]
    fn a_size_that_was_cut_short_is_left_out() {
        let mut results = made_up();
        results.add(Layout::Flat, 20_000, Measure::LookupRandom, &[1, 2, 3]);
        let curves = results.curves(&LAYOUTS, &Frequencies::default(), 1);
        assert!(curves[0].lines[0].points.iter().all(|point| point.x < 20_000.0));
    }
}
