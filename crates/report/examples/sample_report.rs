//! Writes a page and its SVGs of made-up runs into a directory, to look at while working on the design.
//! `cargo run -p report --example sample_report -- DIR`; with RunRecord files behind it, a page of those alone.

#[path = "../tests/it/made_up.rs"]
mod made_up;
#[path = "../tests/it/sample.rs"]
mod sample;

use std::path::{Path, PathBuf};

use made_up::REGISTRY;
use measure::RunRecord;
use report::Reference;
use report::html::{Options, Plots, render};
use sample::{Sweep, dirscale_run, postmark_series, rounds_run, tally_run, two_runs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("usage: sample_report DIR [RECORD.json ...]")?);
    std::fs::create_dir_all(&directory)?;
    let mut given: Vec<RunRecord> = Vec::new();
    for name in arguments {
        // `--json` of a series writes a list.
        let text = std::fs::read_to_string(&name)?;
        match text.trim_start().starts_with('[') {
            true => given.extend(serde_json::from_str::<Vec<RunRecord>>(&text)?),
            false => given.push(RunRecord::from_json(&text)?),
        }
    }
    if !given.is_empty() {
        return write(&directory, "given", &given);
    }
    let mut three = two_runs();
    three.push(
        Sweep::new("null responder, closed loop", 60.0, 5_000.0)
            .rates(&[])
            .outstanding(&[1, 4, 16, 64])
            .record(),
    );
    let pages = [
        ("two", two_runs()),
        ("three", three),
        ("one", two_runs()[..1].to_vec()),
        ("postmark", postmark_series(1.09)),
        ("postmark-one", postmark_series(1.0)[..1].to_vec()),
        ("dirscale", vec![dirscale_run("ext4 without dir_index", false)]),
        ("rounds", vec![rounds_run("/mnt/a", 14, 20_000.0, 1.0), rounds_run("/mnt/b", 14, 15_000.0, 2.5)]),
        ("rounds-quick", vec![rounds_run("/mnt/a", 5, 20_000.0, 1.0)]),
        ("tally", vec![tally_run("the server")]),
        ("dirscale-two", vec![dirscale_run("ext2", false), dirscale_run("XFS", true)]),
    ];
    for (name, runs) in pages {
        write(&directory, name, &runs)?;
    }
    Ok(())
}

/// The page as it is by default, with fixed plots, with all published values; and the SVG files.
fn write(directory: &Path, name: &str, runs: &[RunRecord]) -> Result<(), Box<dyn std::error::Error>> {
    let page = |suffix: &str, options: &Options| -> Result<(), Box<dyn std::error::Error>> {
        Ok(std::fs::write(directory.join(format!("{name}{suffix}.html")), render(runs, REGISTRY, options)?)?)
    };
    page("", &Options::default())?;
    page("-fixed", &Options { plots: Plots::Fixed, ..Options::default() })?;
    page("-published", &Options { reference: Reference::On, ..Options::default() })?;
    for (file, svg) in report::svg::all(runs, REGISTRY, Reference::Auto)? {
        std::fs::write(directory.join(format!("{name}-{file}")), svg)?;
    }
    for (file, svg) in report::svg::all(runs, REGISTRY, Reference::On)? {
        if file.starts_with("rounds-") {
            std::fs::write(directory.join(format!("{name}-published-{file}")), svg)?;
        }
    }
    Ok(())
}
