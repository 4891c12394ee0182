//! `crumb pack bench`: the same objects packed and one a file, in the same directory, in turns.
//!
//! 1. A round puts all objects, reads all in another order, reads all once more, and asks for as many that are not there.
//! 2. One side does that first, then the other; the next round starts with the other side. Medians of the rounds are printed.
//!
//! Caches stay as the step before left them. `get` reads what was just put: a side whose writes bypass the page cache reads
//! the disk there. `get again` is warm on both sides, unless the objects need more memory than there is. Files are in 256
//! directories by a hash of their names, written and closed, without a sync unless `--durable`; the store then waits for each
//! put too.

mod load;
mod sides;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use measure::statistics::median;
use report::{bytes_text, count_text, rate_text};
use serde_json::{Value, json};

use self::load::Load;
use self::sides::{packed, unpacked};
use super::write_json;
use crate::context::Context;
use crate::exit::ExitStatus;
use crate::layout::{grid, wrapped};
use crate::output::{Destination, destination, note, print};
use crate::progress::Progress;
use crate::quantities::{count_in, size};
use crate::signals;

/// Measure a directory: packed objects beside one file per object.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  crumb pack bench /srv/objects
  With every put durable before the next:
    crumb pack bench /srv/objects --durable --objects 500

Works in a directory of its own there, gone at the end. A look at the place, no benchmark to publish: for that there
is `crumb run postmark pack:/path`.")]
pub struct BenchArgs {
    /// Directory to measure in, with or without a store
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Objects per round
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = count_in::<u32>(10..=10_000_000))]
    objects: u32,

    /// Mean object size; sizes are exponentially distributed
    #[arg(long, value_name = "SIZE", default_value = "10KB", value_parser = size::<u64>)]
    mean: u64,

    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = count_in::<u32>(1..=1000))]
    rounds: u32,

    /// Make each put durable before the next begins
    #[arg(long)]
    durable: bool,

    /// Print JSON; with --json=FILE write it to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-", value_parser = destination)]
    json: Option<Destination>,
}

const SIDES: [&str; 2] = ["packed", "one file an object"];
const STEPS: [&str; 4] = ["put", "get", "get again", "miss"];
const MISS: usize = 3;

/// Objects a second, by side and step, one for each round.
type Rates = [[Vec<f64>; STEPS.len()]; 2];

/// Runs the verb.
pub fn run(args: &BenchArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let stop = signals::stop_flag_of(context)?;
    let ground = Ground::below(&args.directory)?;
    let load = Load::drawn(args.objects as usize, args.mean);
    let mut progress = Progress::new(context.quiet);
    let mut rates = Rates::default();
    let measured: anyhow::Result<()> = (|| {
        for round in 0..args.rounds {
            for turn in 0..2 {
                let side = (turn + round as usize) % 2;
                let text = format!("round {} of {}: {}", round + 1, args.rounds, SIDES[side]);
                progress.step(u64::from(round) * 2 + turn as u64, u64::from(args.rounds) * 2, text);
                let took = match side {
                    0 => packed(&ground.path, &load, args.durable, &stop)?,
                    _ => unpacked(&ground.path, &load, args.durable, &stop)?,
                };
                for (step, seconds) in took.into_iter().enumerate() {
                    rates[side][step].push(load.sizes.len() as f64 / seconds.max(1e-9));
                }
            }
        }
        Ok(())
    })();
    progress.finish();
    drop(ground);
    measured?;
    tell(args, context, &load, &rates)
}

fn tell(args: &BenchArgs, context: &Context, load: &Load, rates: &Rates) -> anyhow::Result<ExitStatus> {
    let bytes = load.sizes.iter().map(|size| *size as u64).sum::<u64>();
    let mean = bytes as f64 / load.sizes.len() as f64;
    let medians = rates.each_ref().map(|steps| steps.each_ref().map(|rates| median(rates).unwrap_or(0.0)));
    if let Some(json) = &args.json {
        let side = |side: usize| {
            let steps = STEPS.iter().enumerate().map(|(step, name)| {
                (
                    format!("{}_per_sec", name.replace(' ', "_")),
                    json!({ "median": medians[side][step], "rounds": rates[side][step] }),
                )
            });
            Value::Object(steps.collect())
        };
        write_json(
            json,
            context,
            &json!({
                "directory": args.directory, "objects": load.sizes.len(), "bytes": bytes, "rounds": args.rounds,
                "durable": args.durable, "packed": side(0), "files": side(1),
            }),
        )?;
        return Ok(ExitStatus::Fine);
    }
    let row = |step: usize| {
        let (packed, files) = (medians[0][step], medians[1][step]);
        let mb = |rate: f64| if step == MISS { "-".to_owned() } else { format!("{:.1}", rate * mean / 1e6) };
        vec![
            STEPS[step].to_owned(),
            rate_text(packed),
            mb(packed),
            rate_text(files),
            mb(files),
            format!("{:.2}", packed / files.max(1e-9)),
        ]
    };
    let heads = ["", "packed/s", "MB/s", "files/s", "MB/s", "times"];
    print(&grid(&heads, 1, &(0..STEPS.len()).map(row).collect::<Vec<_>>()))?;
    let text = format!(
        "{} objects, {}, in each of {} rounds in turns; medians; caches as the step before left them; puts {}",
        count_text(load.sizes.len() as u64),
        bytes_text(bytes),
        args.rounds,
        if args.durable { "durable one by one" } else { "not waited for" }
    );
    note(context, wrapped("", &text).trim_end());
    Ok(ExitStatus::Fine)
}

/// A directory of our own, gone with us.
struct Ground {
    path: PathBuf,
}

impl Ground {
    fn below(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join(format!("crumb-bench-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("{}: cannot be made", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
