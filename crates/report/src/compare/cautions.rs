//! What forbids comparing, and what speaks against believing a comparison.

use std::collections::BTreeMap;

use measure::statistics::{SAMPLES_ENOUGH, SAMPLES_MIN};
use measure::{LoopKind, RunRecord};

use super::{Caution, Side};
use crate::views::config_lines;
use crate::{ReportError, Result};

/// Settings longer than this are named without their values.
const SHOWN_CHARS: usize = 60;
/// Differing settings beyond this many are only counted.
const SETTINGS_SHOWN: usize = 6;

/// Refuses what cannot be compared.
pub(super) fn comparable(sides: &[Side]) -> Result<()> {
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
    let differing = |what: &'static str, of: &dyn Fn(&RunRecord) -> String| {
        let other = every_run(sides).find(|run| of(run) != of(first))?;
        let reason =
            format!("{what} of {} is {}, of {} {}", first.id, short(&of(first)), other.id, short(&of(other)));
        Some(ReportError::NotComparable { reason })
    };
    let setting = |run: &RunRecord, name: &str| run.config.get(name).map_or_else(|| "none".into(), plain);
    let refused = differing("the benchmark", &|run| run.benchmark.clone())
        .or_else(|| differing("the workload", &|run| setting(run, "workload")))
        .or_else(|| differing("the workload's own text", &|run| setting(run, "workload_toml")))
        .or_else(|| differing("the loop", &|run| loop_name(run).to_owned()));
    refused.map_or(Ok(()), Err)
}

/// What to say beside the result.
pub(super) fn of(sides: &[Side]) -> Vec<Caution> {
    let mut cautions = Vec::new();
    let mut say = |code, text: String| cautions.push(Caution { code, text });
    for side in sides {
        let (name, n) = (&side.name, side.runs.len());
        if n < SAMPLES_MIN {
            say(
                "too-few-repeats",
                format!("{name} has {n} of at least {SAMPLES_MIN} runs: nothing can be told from it"),
            );
        } else if n < SAMPLES_ENOUGH {
            say(
                "few-repeats",
                format!(
                    "{name} has only {n} runs: intervals of fewer than {SAMPLES_ENOUGH} are wide and rough"
                ),
            );
        }
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
        if counted(&|run| run.environment.build_profile == "debug") > 0 {
            say(
                "debug-build",
                format!("{name} was measured by a debug build: its figures are not to be trusted"),
            );
        }
    }
    for (what, of) in ENVIRONMENT {
        if let Some(text) = differences(sides, &|run| of(run)) {
            say("environment-differs", format!("{what} differs: {text}"));
        }
    }
    // Repeats with seeds of their own are fine as long as every side had the same ones.
    if let Some(text) = differences(sides, &|run| run.seed.to_string()).filter(|_| !same_seeds(sides)) {
        say("seed-differs", format!("the seed differs, so the operations are not the same: {text}"));
    }
    let settings = settings(sides);
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

fn same_seeds(sides: &[Side]) -> bool {
    let of = |side: &Side| side.runs.iter().map(|run| run.seed).collect::<std::collections::BTreeSet<_>>();
    sides.iter().all(|side| of(side) == of(&sides[0]))
}

type OfRun = fn(&RunRecord) -> String;

const ENVIRONMENT: [(&str, OfRun); 10] = [
    ("the host", |run| run.environment.host.clone()),
    ("the kernel", |run| run.environment.kernel.clone()),
    ("the processor", |run| run.environment.cpu_model.clone()),
    ("the number of processors", |run| run.environment.cpus.to_string()),
    ("the frequency governor", |run| run.environment.cpu_governor.clone().unwrap_or_default()),
    ("the memory", |run| crate::bytes_text(run.environment.memory_bytes)),
    ("the version of Crumb", |run| run.environment.crumb_version.clone()),
    ("the build of Crumb", |run| run.environment.build_profile.clone()),
    ("the file system", |run| run.environment.mount.as_ref().map_or_else(String::new, |m| m.fs_type.clone())),
    ("the list of mount options", |run| {
        run.environment.mount.as_ref().map_or_else(String::new, |m| m.options.clone())
    }),
];

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
fn settings(sides: &[Side]) -> Vec<(String, String)> {
    let lines = |run: &RunRecord| -> BTreeMap<String, String> {
        let target = |name: &str, value: &str| {
            let last = name.rsplit('.').next().unwrap_or(name);
            // An fstress file set and a netnews spool are named after their runs.
            ["target", "label", "url", "root", "directory", "location", "file_set", "spool"].contains(&last)
                || (!run.target.is_empty() && value.contains(&run.target))
        };
        config_lines(&run.config).into_iter().filter(|(name, value)| !target(name, value)).collect()
    };
    let mut names: Vec<String> = every_run(sides).flat_map(|run| lines(run).into_keys()).collect();
    names.sort();
    names.dedup();
    let first = &sides[0].runs[0];
    let by_settings = of_one_series(sides) && every_run(sides).all(|run| run.target == first.target);
    let of = |name: String| {
        let value = |run: &RunRecord| lines(run).remove(&name).unwrap_or_else(|| "not set".to_owned());
        let kept = |side: &Side| side.runs.iter().all(|run| value(run) == value(&side.runs[0]));
        if by_settings && sides.iter().all(kept) {
            return None;
        }
        Some((name.clone(), differences(sides, &value)?))
    };
    names.into_iter().filter_map(of).collect()
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
