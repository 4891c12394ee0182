//! What a layer over a file system costs: the same calls on the lower file system and through each layer, in turns.
//!
//! ```text
//! cargo bench -p stackfs --bench layers -- native=DIRECTORY [crumb=DIRECTORY [bindfs=DIRECTORY …]]
//!     [--rounds N] [--files N] [--listed N] [--stream-mib N] [--package DIRECTORY]
//!     [--make-target TARGET] [--parts small,listing,stream,package] [--records DIRECTORY]
//! ```
//!
//! Each directory is one that is mounted already (`scripts/bench-stackfs.sh` does that); the first is what the others are
//! compared with, and those called `crumb…` are compared with the rest. A round has four parts, each measured on all
//! directories one after another, the order turned by one from round to round: small files (2 KB) made, looked up cold
//! and warm, read warm and removed; a listing with the stat of each entry, cold; a stream written, read cold and warm; a
//! package configured and made. Cold: the kernel's caches are dropped before (root; else those rows are left out). Prints
//! the seconds of each, then a table; --records writes a run record a layer and round, for `crumb runs import`, `crumb report`
//! and `crumb compare`. Without `--bench`, as `cargo test` starts it, the sizes are tiny and the figures mean nothing.
#![allow(clippy::print_stdout)]

mod record;
mod rows;
mod table;

use std::path::PathBuf;

use jiff::Timestamp;

use crate::rows::{Part, Sizes};

struct Layer {
    name: String,
    directory: PathBuf,
}

struct Options {
    layers: Vec<Layer>,
    rounds: usize,
    sizes: Sizes,
    /// Where records of the layers go.
    records: Option<PathBuf>,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self { layers: Vec::new(), rounds: 1, sizes: Sizes::tiny(), records: None };
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
                "--parts" => {
                    options.sizes.parts = value.split(',').map(Part::named).collect::<Result<_, _>>()?;
                }
                "--records" => options.records = Some(value.into()),
                "--make-target" => options.sizes.make_target = Some(value),
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
    let started = Timestamp::now();
    let rows = rows::all(&options.sizes);
    let layers = options.layers.len();
    // seconds[row][layer]: one figure a round.
    let mut seconds = vec![vec![Vec::new(); layers]; rows.len()];
    for round in 0..options.rounds {
        for part in Part::of(&options.sizes) {
            // The layers close to one another in time: other work on the machine meets all of them.
            for turn in 0..layers {
                let at = (turn + round) % layers;
                let layer = &options.layers[at];
                let figures = part.measure(&options.sizes, &layer.directory);
                let mut line = format!("round {} {:<11}", round + 1, layer.name);
                for (row, took) in part.rows().zip(figures) {
                    line += &took.map_or_else(|| "         -".to_owned(), |took| format!(" {took:>9.3}"));
                    seconds[row][at].extend(took);
                }
                println!("{line}");
            }
        }
    }
    if let Some(directory) = &options.records {
        record::write(directory, started, &rows, &options.layers, &seconds).expect("the records are written");
    }
    table::print(&rows, &options.layers, &seconds, options.rounds);
}
