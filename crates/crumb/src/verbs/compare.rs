//! `crumb compare`: which of several sides is faster, with confidence; and a gate for CI.

mod text;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use report::compare::{Comparison, Gate, Side};
use report::html::{self, Options};
use report::sides::{self, Source};

use crate::context::Context;
use crate::declarations;
use crate::exit::{BadUsage, ExitStatus, is_broken_pipe};
use crate::layout::wrapped;
use crate::output::{Destination, is_same_place, note, print};
use crate::quantities::{QuantityError, percent_in};

pub use self::text::{answers, shown};

/// Compare runs: faster, slower, or no difference shown
///
/// A side is a run (`3f9a`, `last`, `a.json`), several (`3f9a,77c0,81aa`), one side of a series of repeats
/// (`3f9a:A`), or all runs of a label (`label:old filer`). One series alone means all its sides. The first side is
/// the baseline. Each run is one sample: use at least 3 per side, better 5 or more.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  Targets measured in turns (`crumb run … --vs … --repeat 5`):
    crumb compare last
  Two sides by their runs, or by label:
    crumb compare 3f9a,77c0,81aa,90b2,a1c3 4d5e,5e6f,6f70,7081,8192
    crumb compare 'label:old kernel' 'label:new kernel' --report kernels.html
  A gate for CI: exit code 1 when shown to be slower by more than 5%:
    crumb compare label:main label:patch --fail-if-slower 5%
  Another figure than the benchmark's own:
    crumb compare last --metric read_p99_us --json -

Exit codes: 0 fine, 1 slower than --fail-if-slower allows, 2 it could not compare, 3 --fail-if-slower cannot tell.")]
pub struct CompareArgs {
    /// Sides, the baseline first; or one series
    #[arg(required = true, value_name = "SIDE")]
    sides: Vec<String>,
    /// Metric that decides, at 95% confidence of its own, such as read_p99_us; may be given several times. `crumb runs show last --json`
    /// lists those of a run [default: the benchmark's headline metric]
    #[arg(long, value_name = "NAME")]
    metric: Vec<String>,
    /// Exit with code 1 if a side is shown to be slower than the first by more than this
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    fail_if_slower: Option<f64>,
    /// With --fail-if-slower: settings, or `seed`, that may differ between the sides; any other difference gives exit code 3
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', requires = "fail_if_slower")]
    may_differ: Vec<String>,
    /// Write the comparison as JSON, `-` for standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write an HTML report with dot plots
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Runs the verb.
///
/// # Errors
/// All as bad usage: 1 says that a side is slower, and nothing else may be taken for that.
pub fn run(args: CompareArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    compared(args, context).map_err(|error| error.context(BadUsage))
}

fn compared(args: CompareArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    if let (Some(json), Some(report)) = (&args.json, &args.report)
        && (json == report || is_same_place(json, report))
    {
        bail!("--json and --report both name {}; name two", json.display());
    }
    let sides = sides_of(&args.sides, context).map_err(|error| {
        if args.sides.iter().any(|side| is_target(side)) { to_measure(&args.sides) } else { error }
    })?;
    let comparison = report::compare::compare(&sides, &args.metric, declarations::REGISTRY)?;
    let printed = print_comparison(&args, sides, &comparison, context);
    match args.fail_if_slower {
        // A reader that has seen enough, as in `crumb compare … | head -1`, must not open the gate.
        Some(limit_percent) if printed.as_ref().err().is_none_or(is_broken_pipe) => {
            Ok(judged(&comparison, limit_percent, &args.may_differ, context))
        }
        _ => printed.map(|()| ExitStatus::Fine),
    }
}

fn sides_of(names: &[String], context: &Context) -> anyhow::Result<Vec<Side>> {
    // The store's absence is reported as every verb reports it, which the report crate cannot.
    if names.iter().any(|side| !side.ends_with(".json") && !side.contains('/')) {
        drop(context.store_with_runs()?);
    }
    let source = Source::new(|| report::Store::open(&context.store), declarations::REGISTRY);
    Ok(sides::named(names, &source)?)
}

/// Whether a name that is no run is something to measure.
fn is_target(name: &str) -> bool {
    ["nfs://", "pack:"].iter().any(|scheme| name.starts_with(scheme)) || Path::new(name).is_dir()
}

/// What to type where targets were named in the place of runs.
fn to_measure(names: &[String]) -> anyhow::Error {
    let named = names.iter().find(|name| is_target(name)).map_or("", String::as_str);
    let words: Vec<String> = names.iter().map(|name| doctor::shell_word(name)).collect();
    let (first, others) = (&words[0], words.get(1..).filter(|others| !others.is_empty()));
    let others = others.map_or("OTHER".to_owned(), |others| others.join(" "));
    anyhow!(
        "{named}: is storage to measure, and compare takes runs that were measured before; `crumb run shootout {first} {others} \
         --quick` measures targets against each other, `crumb run postmark {first} --vs {others} --sync close` by one benchmark"
    )
}

fn print_comparison(
    args: &CompareArgs,
    sides: Vec<Side>,
    comparison: &Comparison,
    context: &Context,
) -> anyhow::Result<()> {
    let to_stdout = |path: &Option<PathBuf>| path.as_ref().is_some_and(|path| path.as_os_str() == "-");
    if !to_stdout(&args.json) && !to_stdout(&args.report) {
        print(&shown(comparison))?;
    }
    if let Some(path) = &args.json {
        let json = serde_json::to_string_pretty(comparison).context("cannot write the comparison as JSON")?;
        Destination::new(Some(path.clone())).write(context, "the comparison", &format!("{json}\n"))?;
    }
    if let Some(path) = &args.report {
        let runs: Vec<_> = sides.into_iter().flat_map(|side| side.runs).collect();
        let options = Options { comparison: Some(comparison.clone()), ..Options::default() };
        let page = html::render(&runs, declarations::REGISTRY, &options)?;
        Destination::new(Some(path.clone())).write(context, "the report", &page)?;
    }
    Ok(())
}

fn judged(
    comparison: &Comparison,
    limit_percent: f64,
    may_differ: &[String],
    context: &Context,
) -> ExitStatus {
    let (said, status) = match comparison.gate(limit_percent, may_differ) {
        Gate::Passed(remarks) => {
            for remark in remarks {
                note(context, wrapped("note: ", &remark).trim_end());
            }
            return ExitStatus::Fine;
        }
        Gate::Slower(figures) => (
            format!("slower than --fail-if-slower {limit_percent}% allows: {}", figures.join("; ")),
            ExitStatus::Slower,
        ),
        Gate::CannotTell(why) => (
            format!("--fail-if-slower {limit_percent}% cannot tell: {}", why.join("; ")),
            ExitStatus::Invalid,
        ),
    };
    // Not by `note`: it is the reason for the exit code, which --quiet must not hide.
    eprintln!("{}", wrapped("", &said).trim_end());
    status
}

fn percent(text: &str) -> Result<f64, measure::ValueError> {
    match percent_in(0.0..=100.0)(text) {
        Ok(percent) if percent < 100.0 => Ok(percent),
        Err(wrong @ QuantityError::Grouped { .. }) => Err(wrong.to_string().into()),
        _ => Err("expected a percentage from 0 to below 100, such as 5%".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_percentage_with_or_without_its_sign() {
        assert_eq!([percent("5%"), percent("2.5"), percent("0")], [Ok(5.0), Ok(2.5), Ok(0.0)]);
        assert!(["", "%", "-1", "100", "five", "NaN", "1e9"].iter().all(|text| percent(text).is_err()));
    }
}
