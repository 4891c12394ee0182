//! What a layer over a file system costs: the same calls on the lower file system and through each layer, in turns.
//!
//! ```text
//! cargo bench -p stackfs --bench layers -- native=DIRECTORY [crumb=DIRECTORY [bindfs=DIRECTORY …]]
//!     [--rounds N] [--files N] [--listed N] [--stream-mib N] [--package DIRECTORY]
//! ```
//!
//! Each directory is one that is mounted already (`scripts/bench-stackfs.sh` does that); the first is what the others are
//! compared with. A round measures all rows on each directory, the order turned by one from round to round. Rows: making,
//! stat (cold and warm), open + read + close (warm) and removal of small files (2 KB), listing a directory with the stat
//! of each entry (cold), writing and reading a stream (cold and warm), configure and make of a package. Cold: the kernel's
//! caches are dropped before (root; else those rows are left out and said so). Prints a line a round, then the medians and
//! the ratio of each to the first with its 95% interval. Without `--bench`, as `cargo test` starts it, the sizes are tiny
//! and the figures mean nothing.
#![allow(clippy::print_stdout)]

mod rows;

use std::path::PathBuf;

use measure::statistics::{median, ratio_interval};

use crate::rows::{Row, Sizes};

struct Layer {
    name: String,
    directory: PathBuf,
}

struct Options {
    layers: Vec<Layer>,
    rounds: usize,
    sizes: Sizes,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self { layers: Vec::new(), rounds: 1, sizes: Sizes::tiny() };
        let mut given = Vec::new();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--bench" => (options.rounds, options.sizes) = (5, Sizes::full()),
                flag if flag.starts_with("--") => {
                    let value = args.next().ok_or_else(|| format!("{flag} wants a value"))?;
                    given.push((flag.to_owned(), value));
                }
                layer => {
                    let (name, directory) =
                        layer.split_once('=').ok_or_else(|| format!("{layer}: expected NAME=DIRECTORY"))?;
                    options.layers.push(Layer { name: name.to_owned(), directory: directory.into() });
                }
            }
        }
        for (flag, value) in given {
            let number = || value.parse::<usize>().map_err(|error| format!("{flag} {value}: {error}"));
            match flag.as_str() {
                "--rounds" => options.rounds = number()?,
                "--files" => options.sizes.files = number()?,
                "--listed" => options.sizes.listed = number()?,
                "--stream-mib" => options.sizes.stream_mib = number()?,
                "--package" => options.sizes.package = Some(value.into()),
                _ => return Err(format!("{flag}: no such flag")),
            }
        }
        Ok(options)
    }
}

fn main() {
    let mut options = Options::parse(std::env::args().skip(1)).unwrap_or_else(|wrong| panic!("{wrong}"));
    let scratch;
    if options.layers.is_empty() {
        // As a test: any directory does.
        scratch = tempfile::tempdir().expect("a directory");
        options.layers.push(Layer { name: "native".to_owned(), directory: scratch.path().to_owned() });
    }
    let rows = rows::all(&options.sizes);
    let layers = options.layers.len();
    // seconds[row][layer]: one figure a round.
    let mut seconds = vec![vec![Vec::new(); layers]; rows.len()];
    for round in 0..options.rounds {
        for turn in 0..layers {
            let at = (turn + round) % layers;
            let layer = &options.layers[at];
            let mut line = format!("round {:>2} {:<14}", round + 1, layer.name);
            for (row, figures) in
                rows::measure(&rows, &options.sizes, &layer.directory).iter().zip(&mut seconds)
            {
                if let Some(took) = row {
                    figures[at].push(*took);
                    line += &format!(" {took:>8.3}");
                } else {
                    line += "        -";
                }
            }
            println!("{line}");
        }
    }
    println!(
        "\nmedians of {} rounds; in brackets the ratio of rates to {}",
        options.rounds, options.layers[0].name
    );
    for (row, figures) in rows.iter().zip(&seconds) {
        print_row(row, &options.layers, figures);
    }
}

fn print_row(row: &Row, layers: &[Layer], figures: &[Vec<f64>]) {
    println!("{}, {}", row.title, row.unit);
    for (layer, mine) in layers.iter().zip(figures) {
        let Some(middle) = median(mine) else {
            println!("  {:<14} not measured", layer.name);
            continue;
        };
        let rate = |seconds: f64| if row.amount > 0.0 { row.amount / seconds } else { seconds };
        // Time of the first over time of this one: a rate twice as high is 2.
        let ratio = median(&figures[0]).map_or(f64::NAN, |first| first / middle);
        let interval = ratio_interval(mine, &figures[0])
            .map_or(String::new(), |found| format!(", {:.3} to {:.3}", found.low, found.high));
        println!("  {:<14} {:>12.1} ({ratio:.3}{interval})", layer.name, rate(middle));
    }
}
