//! The runs of a series so far: whose turn each was, what judges each side, and their medians.
//!
//! Not here: measuring them (see `series`), one side against another (`report::compare`).

use harness::series::{CONFIDENCE, side_name};
use measure::statistics::{median, median_interval};
use measure::{RunId, RunRecord, SeriesPlace};
use report::compare::Side;
use report::figure_text;

use crate::layout::{counted, folded, grid, wrapped};

/// Leaves room for five figures in a line of the terminal.
const NAME_WIDTH_MAX: usize = 24;

/// The runs so far.
pub struct Series {
    /// How many sides there are.
    pub sides: usize,
    /// In the order measured.
    pub records: Vec<RunRecord>,
}

impl Series {
    /// The place of the next run, `id`, of this side.
    pub fn place(&self, side: usize, id: &RunId) -> SeriesPlace {
        let of = self.records.first().map_or(id, |first| &first.id).clone();
        SeriesPlace { of, side: side_name(side), turn: self.records.len() as u32 + 1 }
    }

    /// Sides of which nothing was measured are left out.
    pub fn by_side(&self) -> Vec<Side> {
        let of = |side: usize| {
            let name = side_name(side);
            let mine = |record: &&RunRecord| record.series.as_ref().is_some_and(|place| place.side == name);
            let runs: Vec<RunRecord> = self.records.iter().filter(mine).cloned().collect();
            let label = runs.first()?.label.clone();
            Some(Side { name, label, runs })
        };
        (0..self.sides).filter_map(of).collect()
    }

    /// The figures that answer for each side, on it and on the first side; none for a side without.
    pub fn judged_by(&self) -> Vec<Vec<f64>> {
        let sides = self.by_side();
        let of = |side: &Side, name: &str| -> Vec<f64> {
            side.runs.iter().filter_map(|record| record.metrics.get(name)).copied().collect()
        };
        let alone = sides.first().filter(|_| sides.len() == 1);
        let judged = sides.iter().skip(1).chain(alone).flat_map(|side| {
            match side.runs.first().and_then(|run| Some(headline_of(run)?.0.to_owned())) {
                Some(name) => vec![of(side, &name), of(&sides[0], &name)],
                None => vec![vec![]],
            }
        });
        judged.collect()
    }

    /// How many runs are VALID, and why the first one that is not is INVALID.
    pub fn verdict(&self) -> String {
        let runs = counted(self.records.len(), "run", "runs");
        let invalid = self.records.iter().filter(|record| !record.verdict.valid);
        match invalid.clone().next() {
            None => format!("{runs}, all VALID\n"),
            Some(first) => {
                let number = invalid.count();
                wrapped("", &format!("{number} of {runs} INVALID; {} is {}", first.id, first.verdict))
            }
        }
    }

    /// What answers, the best first.
    fn headlines(&self) -> Vec<&str> {
        self.records.first().map_or_else(Vec::new, |record| record.headlines().collect())
    }

    /// Median and interval of every metric, for repeats on one target.
    pub fn medians(&self) -> String {
        let mut names: Vec<&String> = self.records.iter().flat_map(|record| record.metrics.keys()).collect();
        // The figure that answers the question first.
        let first = self.headlines();
        names.sort_by_key(|name| (!first.contains(&name.as_str()), *name));
        names.dedup();
        let row = |name: &&String| {
            let figures: Vec<f64> =
                self.records.iter().filter_map(|record| record.metrics.get(*name)).copied().collect();
            let middle = median(&figures)?;
            let metric = self.records.iter().find(|record| record.metrics.contains_key(*name))?.metric(name);
            // Each with its unit: that of a latency goes with its size.
            let text = |value: f64| figure_text(&metric.unit, value);
            let (low, high) = match median_interval(&figures, CONFIDENCE) {
                Some(interval) => (text(interval.low), text(interval.high)),
                None => ("-".to_owned(), "-".to_owned()),
            };
            let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
            let most = figures.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            Some(vec![metric.title.clone(), text(middle), low, high, text(least), text(most)])
        };
        let rows: Vec<Vec<String>> = names.iter().filter_map(row).collect();
        let runs = counted(self.records.len(), "run", "runs");
        let heads = ["", "median", "95% from", "to", "min", "max"];
        format!(
            "{runs}; medians with their confidence intervals\n{}\n",
            grid(&heads, 1, &folded(rows, NAME_WIDTH_MAX))
        )
    }
}

/// The figure that answers for a run.
pub fn headline_of(record: &RunRecord) -> Option<(&str, f64)> {
    record.headlines().find_map(|name| Some((name, *record.metrics.get(name)?)))
}
