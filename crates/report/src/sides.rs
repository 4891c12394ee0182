//! Who is compared: the names a user types, made into sides with their runs.
//!
//! ```text
//! 3f9a              one run, as `crumb runs show` takes it; or a RunRecord file, NAME.json; of a file that holds a series
//!                   all its runs
//! 3f9a,77c0,81aa    these runs
//! 3f9a:B            side B of the series that the run is of
//! label:old filer   all runs of this label
//! 3f9a  (alone)     all sides of the series
//! ```
//!
//! Always holds: a side has at least one run and no run twice; sides are called A, B, C in the order given.

use std::path::Path;

use measure::{BenchmarkRegistry, RunRecord};

use crate::compare::{Comparison, Side};
use crate::{ReportError, Result, Store};

/// Where runs come from; the store is only opened when a name needs it.
pub struct Source<'a> {
    open: Box<dyn Fn() -> Result<Store> + 'a>,
    store: std::cell::OnceCell<Store>,
    registry: BenchmarkRegistry,
}

impl<'a> Source<'a> {
    /// Runs of the store that `open` opens, and of files; `registry` declares the metrics of those that have none.
    pub fn new(open: impl Fn() -> Result<Store> + 'a, registry: BenchmarkRegistry) -> Self {
        Self { open: Box::new(open), store: std::cell::OnceCell::new(), registry }
    }

    fn store(&self) -> Result<&Store> {
        if let Some(store) = self.store.get() {
            return Ok(store);
        }
        let store = (self.open)()?.declaring(self.registry);
        Ok(self.store.get_or_init(|| store))
    }
}

/// The sides that these arguments name.
///
/// # Errors
/// When something is not found or ambiguous, or a lone argument is no series of several sides.
pub fn named(arguments: &[String], source: &Source<'_>) -> Result<Vec<Side>> {
    if let [alone] = arguments
        && !alone.starts_with("label:")
        && !alone.contains(',')
    {
        let sides = of_series(series_of(alone, source)?);
        return if sides.len() > 1 { Ok(sides) } else { Err(ReportError::OneSide) };
    }
    let mut sides = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let mut runs = runs_of(argument, source)?;
        let mut seen = std::collections::BTreeSet::new();
        runs.retain(|run| seen.insert(run.id.clone()));
        sides.push((label(&runs), runs));
    }
    Ok(called(sides))
}

/// The sides of a series; runs of none are left out.
pub fn of_series(runs: Vec<RunRecord>) -> Vec<Side> {
    let mut sides: std::collections::BTreeMap<String, Vec<RunRecord>> = Default::default();
    for run in runs {
        if let Some(series) = &run.series {
            sides.entry(series.side.clone()).or_default().push(run);
        }
    }
    called(sides.into_values().map(|runs| (label(&runs), runs)).collect())
}

/// The comparison that a series' own runs make; none when they are not all of one, or cannot be compared.
pub fn compared(runs: &[RunRecord], registry: BenchmarkRegistry) -> Option<Comparison> {
    let of = &runs.first()?.series.as_ref()?.of;
    let one = runs.iter().all(|run| run.series.as_ref().is_some_and(|series| series.of == *of));
    let sides = if one { of_series(runs.to_vec()) } else { vec![] };
    crate::compare::compare(&sides, &[], registry).ok()
}

fn runs_of(argument: &str, source: &Source<'_>) -> Result<Vec<RunRecord>> {
    // A label may hold a comma or a colon, so it is the whole argument.
    if let Some(label) = argument.strip_prefix("label:") {
        return source.store()?.labelled(label);
    }
    let mut runs = Vec::new();
    for name in argument.split(',') {
        if is_file(name) && !name.rsplit_once(':').is_some_and(|(of, _)| of.ends_with(".json")) {
            runs.extend(of_file(name, source)?);
        } else if let Some((of, side)) = name.rsplit_once(':') {
            let all = series_of(of, source)?;
            let series =
                all.iter().find_map(|run| run.series.as_ref()).map_or(of, |series| &series.of.0).to_owned();
            let side_of = |run: &RunRecord| run.series.as_ref().map(|series| series.side.clone());
            let mut there: Vec<String> = all.iter().filter_map(side_of).collect();
            let before = runs.len();
            runs.extend(
                all.into_iter().filter(|run| side_of(run).is_some_and(|of| of.eq_ignore_ascii_case(side))),
            );
            if runs.len() == before {
                there.sort();
                there.dedup();
                return Err(ReportError::NoSide { of: series, side: side.to_owned(), there });
            }
        } else {
            runs.push(source.store()?.find(name)?);
        }
    }
    Ok(runs)
}

/// Whether a run is named by its file and not by its place in the store.
fn is_file(name: &str) -> bool {
    name.contains('/') || name.ends_with(".json")
}

/// All runs of a series, by one of them or by the file that holds it.
fn series_of(name: &str, source: &Source<'_>) -> Result<Vec<RunRecord>> {
    if is_file(name) { of_file(name, source) } else { source.store()?.series(name) }
}

fn of_file(name: &str, source: &Source<'_>) -> Result<Vec<RunRecord>> {
    let path = Path::new(name);
    let text = measure::read_text(path, measure::RECORDS_BYTES_MAX)
        .map_err(|source| ReportError::File { path: name.to_owned(), source })?;
    let runs = RunRecord::all_from_json(&text)
        .map_err(|source| ReportError::NoRecord { path: name.to_owned(), source })?;
    Ok(runs.into_iter().map(|run| run.declared_by(source.registry)).collect())
}

/// What a side is called by its runs' labels.
fn label(runs: &[RunRecord]) -> String {
    let first = runs.first().map_or("", |run| run.label.as_str());
    match runs.iter().all(|run| run.label == first) {
        true => first.to_owned(),
        false => format!("{first} and others"),
    }
}

fn called(sides: Vec<(String, Vec<RunRecord>)>) -> Vec<Side> {
    let target = |runs: &[RunRecord]| runs.first().map_or(String::new(), |run| run.target.clone());
    let labels: Vec<String> = sides.iter().map(|side| side.0.clone()).collect();
    let targets: Vec<String> = sides.iter().map(|side| target(&side.1)).collect();
    let twice = |all: &[String], one: &str| all.iter().filter(|other| *other == one).count() > 1;
    let side = |(at, (label, runs)): (usize, (String, Vec<RunRecord>))| {
        // Two sides of one label are distinguished by their targets, where those differ.
        let label = if twice(&labels, &label) && !twice(&targets, &targets[at]) {
            targets[at].clone()
        } else {
            label
        };
        Side { name: name(at), label, runs }
    };
    sides.into_iter().enumerate().map(side).collect()
}

/// `A` to `Z`, then `A1`, `B1`, ...
fn name(at: usize) -> String {
    let letter = char::from(b'A' + (at % 26) as u8);
    if at < 26 { letter.to_string() } else { format!("{letter}{}", at / 26) }
}
