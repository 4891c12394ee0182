//! What forbids comparing, and what speaks against believing a comparison.

use std::collections::BTreeMap;

use measure::statistics::{SAMPLES_ENOUGH, SAMPLES_MIN};
use measure::{BenchmarkEntry, BenchmarkRegistry, LoopKind, Reason, Role, RunRecord};

use super::{Caution, Side};
use crate::series::point_name;
use crate::views::{NO_VALUE, config_lines};
use crate::{ReportError, Result};

/// Settings longer than this are named without their values.
const SHOWN_CHARS: usize = 60;
/// Remarks that are no cautions on any benchmark: a run that waited for the storage as it should, and what [`of`] says in
/// its own words. What else answers a benchmark's question its registry entry says.
const NO_CAUTIONS: [&str; 4] = ["device-bound", "server-bound", "debug-build", "incomplete"];
/// Differing settings beyond this many are only counted.
const SETTINGS_SHOWN: usize = 6;

/// Refuses what cannot be compared.
pub(super) fn comparable(sides: &[Side], registry: BenchmarkRegistry) -> Result<()> {
    if sides.len() < 2 {
        return Err(ReportError::OneSide);
    }
    if let Some(side) = sides.iter().find(|side| side.runs.is_empty()) {
        return Err(ReportError::EmptySide { side: side.name.clone() });
    }
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for side in sides {
        for run in &side.runs {
            if let Some(before) = seen.insert(&run.id.0, &side.name) {
                return Err(ReportError::OnTwoSides {
                    id: run.id.0.clone(),
                    sides: format!("{before} and {}", side.name),
                });
            }
        }
    }
    let first = &sides[0].runs[0];
    let differing = |what: &str, of: &dyn Fn(&RunRecord) -> String| {
        let other = every_run(sides).find(|run| of(run) != of(first))?;
        let reason =
            format!("{what} of {} is {}, of {} {}", first.id, short(&of(first)), other.id, short(&of(other)));
        Some(ReportError::NotComparable { reason })
    };
    let setting = |run: &RunRecord, name: &str| run.config.get(name).map_or_else(|| "none".into(), plain);
    let identity = entry_of(sides, registry).settings.iter().filter(|(_, role)| *role == Role::Identity);
    let refused = differing("the benchmark", &|run| run.benchmark.clone())
        .or_else(|| {
            let differs =
                |name: &str| differing(&format!("the {}", name.replace('_', " ")), &|run| setting(run, name));
            identity.into_iter().find_map(|(name, _)| differs(name))
        })
        .or_else(|| differing("the loop", &|run| loop_name(run).to_owned()));
    refused.map_or(Ok(()), Err)
}

/// What the benchmark of all sides says of its records.
fn entry_of(sides: &[Side], registry: BenchmarkRegistry) -> BenchmarkEntry {
    registry.of(&sides[0].runs[0].benchmark)
}

/// What to say beside the result.
pub(super) fn of(sides: &[Side], registry: BenchmarkRegistry) -> Vec<Caution> {
    let mut cautions = Vec::new();
    let mut say = |code: &str, text: String| cautions.push(Caution { code: code.to_owned(), text });
    for (code, text) in of_several_sides(sides) {
        say(code, text);
    }
    for side in sides {
        let (name, n) = (&side.name, side.runs.len());
        let counted = |is: &dyn Fn(&RunRecord) -> bool| side.runs.iter().filter(|run| is(run)).count();
        let invalid = counted(&|run| !run.verdict.valid);
        if invalid > 0 {
            let run = side.runs.iter().find(|run| !run.verdict.valid);
            let reason = run.and_then(|run| run.verdict.reasons.iter().find(|reason| reason.fatal));
            let why = reason.map_or_else(String::new, |reason| format!(", such as: {}", reason.text));
            say("invalid-runs", format!("{invalid} of {n} runs of {name} are INVALID{why}"));
        }
        let cut = counted(&|run| !run.complete);
        if cut > 0 {
            say("incomplete-runs", format!("{cut} of {n} runs of {name} were cut short"));
        }
    }
    for (code, text) in own_remarks(sides, entry_of(sides, registry).answers) {
        say(&code, text);
    }
    for (at, (what, _)) in sides[0].runs[0].environment.conditions().into_iter().enumerate() {
        if let Some(text) = differences(sides, &|run| run.environment.conditions()[at].1.clone()) {
            say("environment-differs", format!("{what} differs: {text}"));
        }
    }
    // Repeats with seeds of their own are fine as long as every side had the same ones.
    if let Some(text) = differences(sides, &|run| run.seed.to_string()).filter(|_| !same_seeds(sides)) {
        say("seed-differs", format!("the seed differs, so the operations are not the same: {text}"));
    }
    let settings = settings(sides, registry);
    for (name, text) in settings.iter().take(SETTINGS_SHOWN) {
        say("config-differs", format!("setting {name} differs: {text}"));
    }
    if settings.len() > SETTINGS_SHOWN {
        say("config-differs", format!("{} more settings differ", settings.len() - SETTINGS_SHOWN));
    }
    if !interleaved(sides) {
        say(
            "not-interleaved",
            "the sides were not measured in turns, so that whatever changed meanwhile counts as a difference; `crumb run … --vs` takes turns".to_owned(),
        );
    }
    cautions
}

/// What several sides may have alike, each said once with the sides that have it.
fn of_several_sides(sides: &[Side]) -> Vec<(&'static str, String)> {
    let mut found: Vec<(&'static str, String, Vec<&str>)> = Vec::new();
    for side in sides {
        let n = side.runs.len();
        let few = if n < SAMPLES_MIN {
            let text = format!("{n} of at least {SAMPLES_MIN} runs: too few for a verdict");
            Some(("too-few-repeats", text))
        } else {
            let text = format!("only {n} runs: intervals of fewer than {SAMPLES_ENOUGH} are wide and rough");
            (n < SAMPLES_ENOUGH).then_some(("few-repeats", text))
        };
        let debug = side.runs.iter().any(|run| run.environment.build_profile == "debug");
        let text = "measured by a debug build: its figures are not to be trusted".to_owned();
        for (code, text) in few.into_iter().chain(debug.then_some(("debug-build", text))) {
            match found.iter_mut().find(|(known, said, _)| *known == code && *said == text) {
                Some((_, _, names)) => names.push(&side.name),
                None => found.push((code, text, vec![&side.name])),
            }
        }
    }
    found.into_iter().map(|(code, text, names)| (code, format!("{}: {text}", names.join(", ")))).collect()
}

/// Names of the settings that differ and were not to, `seed` among them.
pub(super) fn settings_that_differ(sides: &[Side], registry: BenchmarkRegistry) -> Vec<String> {
    let seed = (!same_seeds(sides)).then(|| "seed".to_owned());
    seed.into_iter().chain(settings(sides, registry).into_iter().map(|(name, _)| name)).collect()
}

/// What the runs remark on themselves: a caution for each code, with the runs of each side that have it.
fn own_remarks(sides: &[Side], answers: &[&str]) -> Vec<(String, String)> {
    struct Found {
        code: String,
        /// By side.
        runs: Vec<usize>,
        example: String,
        /// Others say it otherwise, such as with figures of their own.
        differs: bool,
    }
    let mut found: Vec<Found> = Vec::new();
    for (at, side) in sides.iter().enumerate() {
        for (code, text) in side.runs.iter().flat_map(remarks_of) {
            if NO_CAUTIONS.contains(&code.as_str()) || answers.contains(&code.as_str()) {
                continue;
            }
            match found.iter_mut().find(|of| of.code == code) {
                Some(of) => {
                    of.runs[at] += 1;
                    of.differs |= of.example != text;
                }
                None => {
                    let mut runs = vec![0; sides.len()];
                    runs[at] = 1;
                    found.push(Found { code, runs, example: text, differs: false });
                }
            }
        }
    }
    let caution = |of: Found| {
        let with = sides.iter().zip(&of.runs).filter(|(_, runs)| **runs > 0);
        let with = with.map(|(side, runs)| format!("{runs} of {} runs of {}", side.runs.len(), side.name));
        let whose = if of.differs { "; one of them" } else { "" };
        (of.code, format!("remark of {}{whose}: {}", with.collect::<Vec<_>>().join(", "), of.example))
    };
    found.into_iter().map(caution).collect()
}

/// A run's remarks, each code once: on the run itself, else on the first load level that has it.
fn remarks_of<'r>(run: &'r RunRecord) -> Vec<(String, String)> {
    let whole = run.verdict.reasons.iter().map(|reason| (reason, reason.text.clone()));
    let levels = run.points.iter().flat_map(|point| {
        let with_point =
            move |reason: &'r Reason| (reason, format!("at {}: {}", point_name(point), reason.text));
        point.verdict.reasons.iter().map(with_point)
    });
    let mut found: Vec<(String, String)> = Vec::new();
    for (reason, text) in whole.chain(levels).filter(|(reason, _)| !reason.fatal) {
        if found.iter().all(|(code, _)| *code != reason.code) {
            found.push((reason.code.clone(), text));
        }
    }
    found
}

fn same_seeds(sides: &[Side]) -> bool {
    let of = |side: &Side| side.runs.iter().map(|run| run.seed).collect::<std::collections::BTreeSet<_>>();
    sides.iter().all(|side| of(side) == of(&sides[0]))
}

/// What each side has, when they do not all have the same.
fn differences(sides: &[Side], of: &dyn Fn(&RunRecord) -> String) -> Option<String> {
    let of_side = |side: &Side| {
        let mut values: Vec<String> = side.runs.iter().map(of).collect();
        values.sort();
        values.dedup();
        values
    };
    let found: Vec<Vec<String>> = sides.iter().map(of_side).collect();
    // Within one side as well: its runs should be repeats.
    let same = found.iter().all(|values| *values == found[0]) && found[0].len() < 2;
    let shown = |values: &[String]| {
        let named = values.iter().map(|value| if value.is_empty() { "unknown".into() } else { short(value) });
        let named: Vec<String> = named.collect();
        match named.as_slice() {
            [one] => one.clone(),
            [one, two] => format!("{one} and {two}"),
            [one, .., last] => format!("{} values from {one} to {last}", named.len()),
            [] => String::new(),
        }
    };
    (!same).then(|| {
        let each =
            sides.iter().zip(&found).map(|(side, values)| format!("{} on {}", shown(values), side.name));
        each.collect::<Vec<_>>().join(", ")
    })
}

/// Settings that differ, other than those by which sides are meant to differ: the target and, in a series on one target,
/// whatever each side keeps to.
fn settings(sides: &[Side], registry: BenchmarkRegistry) -> Vec<(String, String)> {
    let entry = entry_of(sides, registry);
    let lines = |run: &RunRecord| -> BTreeMap<String, String> {
        let target = |name: &str, value: &str| entry.role(name) == Role::Place || names(value, &run.target);
        config_lines(&run.config).into_iter().filter(|(name, value)| !target(name, value)).collect()
    };
    let mut names: Vec<String> = every_run(sides).flat_map(|run| lines(run).into_keys()).collect();
    names.sort();
    names.dedup();
    let first = &sides[0].runs[0];
    let by_settings = of_one_series(sides) && every_run(sides).all(|run| run.target == first.target);
    let lacks = |side: &Side, name: &str| {
        side.runs.iter().all(|run| lines(run).get(name).is_none_or(|value| value == NO_VALUE))
    };
    let of = |name: String| {
        let role = entry.role(&name);
        if role == Role::Reach && sides.iter().any(|side| lacks(side, &name)) {
            return None;
        }
        let value = |run: &RunRecord| lines(run).remove(&name).unwrap_or_else(|| "not set".to_owned());
        let kept = |side: &Side| side.runs.iter().all(|run| value(run) == value(&side.runs[0]));
        if by_settings && sides.iter().all(kept) && role != Role::Chosen {
            return None;
        }
        Some((name.clone(), differences(sides, &value)?))
    };
    names.into_iter().filter_map(of).collect()
}

/// Whether `value` holds the path or URL `target` as a word of its own. A target like `data`, which is a word of other settings
/// too, hides none of them: a benchmark declares in which settings it stands.
fn names(value: &str, target: &str) -> bool {
    let apart = |letter: Option<char>| letter.is_none_or(|letter| !letter.is_alphanumeric());
    target.contains('/')
        && value.match_indices(target).any(|(at, _)| {
            let (before, after) = (&value[..at], &value[at + target.len()..]);
            apart(before.chars().next_back()) && apart(after.chars().next())
        })
}

fn every_run(sides: &[Side]) -> impl Iterator<Item = &RunRecord> {
    sides.iter().flat_map(|side| &side.runs)
}

fn of_one_series(sides: &[Side]) -> bool {
    let of = |run: &RunRecord| run.series.as_ref().map(|series| series.of.clone());
    let first = of(&sides[0].runs[0]);
    first.is_some() && every_run(sides).all(|run| of(run) == first)
}

/// True when all runs are of one series, or when no side was over before the other began.
fn interleaved(sides: &[Side]) -> bool {
    if of_one_series(sides) {
        return true;
    }
    let spans: Vec<_> = sides
        .iter()
        .filter_map(|side| {
            Some((side.runs.iter().map(|r| r.started).min()?, side.runs.iter().map(|r| r.started).max()?))
        })
        .collect();
    spans.iter().all(|a| spans.iter().all(|b| a.0 <= b.1 && b.0 <= a.1))
}

fn loop_name(run: &RunRecord) -> &'static str {
    match run.points.iter().any(|point| point.loop_kind == LoopKind::Open) {
        true => "open",
        false if run.points.is_empty() => "none",
        false => "closed",
    }
}

fn plain(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn short(text: &str) -> String {
    let line = text.replace('\n', " ");
    if line.chars().count() <= SHOWN_CHARS {
        return line;
    }
    line.chars().take(SHOWN_CHARS - 1).chain(['…']).collect()
}
