//! Same against same: how often does a comparison call equal sides different, and how often does it find a side that is slower?
//!
//! ```text
//! DIR/postmark/*.json  --draw-->  n runs as A, n others as B  --report::compare-->  a difference is shown, or not
//!                                   `-- B's figures worse by 2%, 5%, 20% ------->   B is found to be slower, or not
//! ```
//!
//! 1. A draw takes the runs of both sides, each run once, from all records of a benchmark.
//! 2. `report::compare` judges each draw, as for `crumb compare`. An alarm of the headline is one figure at 95%; an alarm of the
//!    others is any of them, which share 95%.
//! 3. A rate of a slowed side is divided by 1.02, a time is multiplied by it, and so on for the others.
//!
//! `±` is the error of drawing, at 95%. It does not cover that the records are a sample themselves: more records do.
//!
//!     same_against_same DIR [DRAWS]

#![expect(clippy::print_stdout, reason = "its table is what it is for")]

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use crumb::declarations::REGISTRY;
use measure::statistics::median;
use measure::{Better, RunRecord};
use report::compare::{Comparison, Side, Verdict, compare};

/// Runs of each side.
const SIZES: [usize; 2] = [5, 10];
const SLOWER: [f64; 3] = [0.02, 0.05, 0.20];
const DRAWS: u32 = 1000;
/// Standard deviations on each side of 95%.
const TWO_SIDED: f64 = 1.96;

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let directory = args.next().context("usage: same_against_same DIR [DRAWS]")?;
    let draws: u32 = args.next().map_or(Ok(DRAWS), |text| text.parse()).context("DRAWS is a number")?;
    let mut benchmarks: Vec<_> = fs::read_dir(&directory)
        .with_context(|| format!("cannot read {directory}"))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()).filter(|path| path.is_dir()))
        .collect();
    benchmarks.sort();
    let mut any = false;
    for path in benchmarks {
        let runs = records_in(&path)?;
        let largest = SIZES.iter().filter(|size| 2 * **size <= runs.len()).count();
        if largest == 0 {
            continue;
        }
        any = true;
        describe(&runs);
        println!("  sides     draws  alarm, headline  alarm, any other   slower by 2%     by 5%    by 20%");
        for size in &SIZES[..largest] {
            println!("{}", line(&runs, *size, draws)?);
        }
        println!();
    }
    if !any {
        bail!(
            "{directory} has no records: a directory for each benchmark, with {} or more *.json",
            2 * SIZES[0]
        );
    }
    Ok(())
}

/// The records of a directory, without what a comparison does not look at.
fn records_in(directory: &Path) -> anyhow::Result<Vec<RunRecord>> {
    let mut runs = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let shown = path.display();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?;
        let mut run = RunRecord::from_json(&text).with_context(|| format!("{shown} is not a RunRecord"))?;
        for point in &mut run.points {
            point.histogram = Default::default();
            point.ops.clear();
        }
        runs.push(run);
    }
    runs.sort_by(|a, b| a.id.0.cmp(&b.id.0));
    Ok(runs)
}

/// How many there are, and how the figure that answers spreads.
fn describe(runs: &[RunRecord]) {
    let invalid = runs.iter().filter(|run| !run.verdict.valid).count();
    let headline = runs[0].headlines().find(|name| runs[0].metrics.contains_key(*name));
    let name = headline.unwrap_or("no headline").to_owned();
    let mut values: Vec<f64> = runs.iter().filter_map(|run| run.metrics.get(&name)).copied().collect();
    values.sort_by(f64::total_cmp);
    print!("{}: {} runs, {invalid} INVALID; {name}", runs[0].benchmark, runs.len());
    if let Some(middle) = median(&values) {
        let percent = |share: f64| {
            let at = ((values.len() - 1) as f64 * share).round() as usize;
            100.0 * (values[at] / middle - 1.0)
        };
        print!(": median {middle:.4}, 80% of runs within {:+.1}% to {:+.1}%", percent(0.1), percent(0.9));
    }
    println!();
}

fn line(runs: &[RunRecord], size: usize, draws: u32) -> anyhow::Result<String> {
    // The same draws on each run of this program.
    let mut state = 0x5a3e_0000 + size as u64;
    let (mut headline, mut others, mut found) = (0, 0, [0; SLOWER.len()]);
    for _ in 0..draws {
        let [a, b] = drawn(runs, size, &mut state);
        let comparison = compared(a.clone(), b.clone())?;
        headline += u32::from(shows(&comparison, true));
        others += u32::from(shows(&comparison, false));
        for (found, by) in found.iter_mut().zip(SLOWER) {
            let slower = compared(bare(&a, 0.0), bare(&b, by))?;
            let answer = slower.headline(1).map(|figure| figure.against[0].verdict);
            *found += u32::from(answer == Some(Verdict::Slower));
        }
    }
    let percent = |count: u32| 100.0 * f64::from(count) / f64::from(draws);
    let with_error = |count: u32| {
        let share = f64::from(count) / f64::from(draws);
        let error = TWO_SIDED * (share * (1.0 - share) / f64::from(draws)).sqrt();
        format!("{:.1}% ± {:.1}", percent(count), 100.0 * error)
    };
    let [two, five, twenty] = found.map(percent);
    Ok(format!(
        "  {size:2} + {size:<2} {draws:7} {:>16} {:>17} {two:13.1}% {five:8.1}% {twenty:8.1}%",
        with_error(headline),
        with_error(others)
    ))
}

/// Two sides of `size` different runs each.
fn drawn(runs: &[RunRecord], size: usize, state: &mut u64) -> [Vec<RunRecord>; 2] {
    let mut order: Vec<usize> = (0..runs.len()).collect();
    for at in 0..2 * size {
        let left = (order.len() - at) as u64;
        order.swap(at, at + (split_mix(state) % left) as usize);
    }
    let side = |of: &[usize]| of.iter().map(|at| runs[*at].clone()).collect();
    [side(&order[..size]), side(&order[size..2 * size])]
}

/// The figures of runs and nothing else, those of a slower side when `by` is above 0.
fn bare(runs: &[RunRecord], by: f64) -> Vec<RunRecord> {
    let slower = |run: &RunRecord| {
        let mut run = RunRecord { points: vec![], phases: vec![], curves: vec![], ..run.clone() };
        let better: Vec<Better> = run.metrics.keys().map(|name| run.metric(name).better).collect();
        for (value, better) in run.metrics.values_mut().zip(better) {
            match better {
                Better::Higher => *value /= 1.0 + by,
                Better::Lower => *value *= 1.0 + by,
                Better::Unknown => {}
            }
        }
        run
    };
    runs.iter().map(slower).collect()
}

fn compared(a: Vec<RunRecord>, b: Vec<RunRecord>) -> anyhow::Result<Comparison> {
    let side = |name: &str, runs| Side { name: name.to_owned(), label: name.to_owned(), runs };
    Ok(compare(&[side("A", a), side("B", b)], &[], REGISTRY)?)
}

/// Whether a difference is shown, of the figure that answers or of any other one.
fn shows(comparison: &Comparison, headline: bool) -> bool {
    let shown = [Verdict::Faster, Verdict::Slower, Verdict::Differs];
    let judged = comparison.figures.iter().flat_map(|figure| &figure.against);
    judged.filter(|of| of.headline == headline).any(|of| shown.contains(&of.verdict))
}

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
