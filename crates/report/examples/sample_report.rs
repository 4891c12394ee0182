//! Writes a page and its SVGs of made-up runs into a directory, to look at while working on the design.
//! `cargo run -p report --example sample_report -- DIR`

#[path = "../tests/sample/mod.rs"]
mod sample;

use std::path::PathBuf;

use report::html::{Options, Plots, render};
use sample::{Sweep, dirscale_run, postmark_series, two_runs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = PathBuf::from(std::env::args().nth(1).ok_or("usage: sample_report DIR")?);
    std::fs::create_dir_all(&directory)?;
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
        ("dirscale-two", vec![dirscale_run("ext2", false), dirscale_run("XFS", true)]),
    ];
    for (name, runs) in pages {
        std::fs::write(directory.join(format!("{name}.html")), render(&runs, &Options::default())?)?;
        let fixed = Options { plots: Plots::Fixed, ..Options::default() };
        std::fs::write(directory.join(format!("{name}-fixed.html")), render(&runs, &fixed)?)?;
        for (file, svg) in report::svg::all(&runs)? {
            std::fs::write(directory.join(format!("{name}-{file}")), svg)?;
        }
    }
    Ok(())
}
