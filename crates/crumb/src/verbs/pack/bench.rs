//! `crumb pack bench`: the same objects packed and one a file, in the same directory, in turns.
//!
//! 1. A round puts all objects, reads all in another order, reads all once more, and asks for as many that are not there.
//! 2. One side does that first, then the other; the next round starts with the other side. Medians of the rounds are printed.
//!
//! Caches stay as the step before left them. `get` reads what was just put: a side whose writes bypass the page cache reads
//! the disk there. `get again` is warm on both sides, unless the objects need more memory than there is. Files are in 256
//! directories by a hash of their names, written and closed, without a sync unless `--durable`; the store then waits for each
//! put too.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context as _, bail};
use bytesize::ByteSize;
use clap::Args;
use disk::LocalDisk;
use packstore::{PutOptions, Store, StoreOptions, VolumeSpec};
use report::{bytes_text, count_text, rate_text};
use serde_json::{Value, json};

use super::{print_json, told};
use crate::context::Context;
use crate::exit::ExitStatus;
use crate::layout::{grid, wrapped};
use crate::output::{note, print};
use crate::progress::Progress;
use crate::signals;

/// Measure a directory: objects packed, beside one file an object.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  crumb pack bench /srv/objects
  With every put durable before the next:
    crumb pack bench /srv/objects --durable --objects 500

Works in a directory of its own there, gone at the end. A look at the place, no benchmark to publish: for that there
is `crumb run postmark pack:/path`.")]
pub struct BenchArgs {
    /// A directory: of a store, or where one may be
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Objects of a round
    #[arg(long, value_name = "COUNT", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(10..=10_000_000))]
    objects: u32,

    /// Mean of their sizes, which are exponentially distributed
    #[arg(long, value_name = "BYTES", default_value = "10KB")]
    mean: ByteSize,

    /// Rounds
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Each put survives power loss before the next begins
    #[arg(long)]
    durable: bool,

    /// As JSON
    #[arg(long)]
    json: bool,
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
    let load = Load::drawn(args);
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
    tell(args, context, &load, &mut rates)
}

fn tell(args: &BenchArgs, context: &Context, load: &Load, rates: &mut Rates) -> anyhow::Result<ExitStatus> {
    let bytes = load.sizes.iter().map(|size| *size as u64).sum::<u64>();
    let mean = bytes as f64 / load.sizes.len() as f64;
    let medians = rates.each_mut().map(|steps| steps.each_mut().map(|rates| median(rates)));
    if args.json {
        let side = |side: usize| {
            let steps = STEPS.iter().enumerate().map(|(step, name)| {
                (
                    format!("{}_per_sec", name.replace(' ', "_")),
                    json!({ "median": medians[side][step], "rounds": rates[side][step] }),
                )
            });
            Value::Object(steps.collect())
        };
        print_json(&json!({
            "directory": args.directory, "objects": load.sizes.len(), "bytes": bytes, "rounds": args.rounds,
            "durable": args.durable, "packed": side(0), "files": side(1),
        }))?;
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

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    match rates.len() {
        0 => 0.0,
        count if count % 2 == 1 => rates[count / 2],
        count => (rates[count / 2 - 1] + rates[count / 2]) / 2.0,
    }
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

/// What is put: sizes, keys, and bytes to cut from.
struct Load {
    sizes: Vec<usize>,
    keys: Vec<String>,
    missing: Vec<String>,
    /// Order of reading.
    order: Vec<usize>,
    bytes: Vec<u8>,
}

impl Load {
    fn drawn(args: &BenchArgs) -> Self {
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = move || {
            // xorshift64*: the same objects in every run.
            random ^= random >> 12;
            random ^= random << 25;
            random ^= random >> 27;
            random.wrapping_mul(0x2545_F491_4F6C_DD1D)
        };
        let mean = args.mean.as_u64().clamp(1, 64 << 20) as f64;
        let unit = |bits: u64| (bits >> 11) as f64 / (1_u64 << 53) as f64;
        let count = args.objects as usize;
        let sizes: Vec<usize> = (0..count)
            .map(|_| (-mean * (1.0 - unit(next())).ln()).clamp(1.0, mean * 20.0) as usize)
            .collect();
        let keys = (0..count)
            .map(|number| format!("{:02x}/{number:08}-{:08x}", next() & 0xff, next() as u32))
            .collect();
        let missing = (0..count).map(|number| format!("{:02x}/none-{number:08}", next() & 0xff)).collect();
        let mut order: Vec<usize> = (0..count).collect();
        for at in (1..count).rev() {
            order.swap(at, (next() % (at as u64 + 1)) as usize);
        }
        let most = sizes.iter().copied().max().unwrap_or(0);
        let bytes = (0..most + 4096).map(|_| next() as u8).collect();
        Self { sizes, keys, missing, order, bytes }
    }

    fn body(&self, number: usize) -> &[u8] {
        &self.bytes[number % 4096..][..self.sizes[number]]
    }
}

fn step_number(name: &str) -> usize {
    STEPS.iter().position(|step| *step == name).expect("one of the steps")
}

fn go_on(stop: &AtomicBool) -> anyhow::Result<()> {
    if stop.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}

fn packed(
    ground: &Path,
    load: &Load,
    durable: bool,
    stop: &AtomicBool,
) -> anyhow::Result<[f64; STEPS.len()]> {
    let path = ground.join("packed");
    fs::create_dir(&path)?;
    let bytes = load.sizes.iter().map(|size| *size as u64 + 300).sum::<u64>();
    let spec = VolumeSpec { disk: Arc::new(LocalDisk::open(&path)?), size_bytes: bytes * 2 + (64 << 20) };
    let store = Store::create(vec![spec], StoreOptions::default()).map_err(told)?;
    let mut seconds = [0.0; STEPS.len()];
    let begun = Instant::now();
    let mut pending = std::collections::VecDeque::new();
    for (number, key) in load.keys.iter().enumerate() {
        go_on(stop)?;
        let put = store.put_deferred(key.as_bytes(), load.body(number), PutOptions::default())?;
        if durable {
            put.wait()?;
        } else {
            pending.push_back(put);
        }
    }
    seconds[0] = begun.elapsed().as_secs_f64();
    for put in pending {
        put.wait()?;
    }
    for step in ["get", "get again"] {
        let begun = Instant::now();
        for &number in &load.order {
            go_on(stop)?;
            let object = store.get(load.keys[number].as_bytes())?.context("an object is gone")?;
            if object.length() != load.sizes[number] as u64 {
                bail!("an object has another length");
            }
        }
        seconds[step_number(step)] = begun.elapsed().as_secs_f64();
    }
    let begun = Instant::now();
    for key in &load.missing {
        if store.get(key.as_bytes())?.is_some() {
            bail!("an object is there that was never put");
        }
    }
    seconds[MISS] = begun.elapsed().as_secs_f64();
    store.close()?;
    fs::remove_dir_all(&path)?;
    Ok(seconds)
}

fn unpacked(
    ground: &Path,
    load: &Load,
    durable: bool,
    stop: &AtomicBool,
) -> anyhow::Result<[f64; STEPS.len()]> {
    let root = ground.join("files");
    fs::create_dir(&root)?;
    for number in 0..256 {
        fs::create_dir(root.join(format!("{number:02x}")))?;
    }
    let mut seconds = [0.0; STEPS.len()];
    let begun = Instant::now();
    for (number, key) in load.keys.iter().enumerate() {
        go_on(stop)?;
        let mut file = File::create_new(root.join(key))?;
        file.write_all(load.body(number))?;
        if durable {
            file.sync_data()?;
            // The name too, or it may be gone.
            File::open(root.join(&key[..2]))?.sync_all()?;
        }
    }
    seconds[0] = begun.elapsed().as_secs_f64();
    for step in ["get", "get again"] {
        let begun = Instant::now();
        for &number in &load.order {
            go_on(stop)?;
            if fs::read(root.join(&load.keys[number]))?.len() != load.sizes[number] {
                bail!("a file has another length");
            }
        }
        seconds[step_number(step)] = begun.elapsed().as_secs_f64();
    }
    let begun = Instant::now();
    for key in &load.missing {
        if File::open(root.join(key)).is_ok() {
            bail!("a file is there that was never made");
        }
    }
    seconds[MISS] = begun.elapsed().as_secs_f64();
    fs::remove_dir_all(&root)?;
    Ok(seconds)
}
