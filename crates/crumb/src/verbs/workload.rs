//! `crumb workload`: what `crumb run fstress` can ask of storage.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::{ArgGroup, Args, Subcommand};
use fstress::derive::{self, Ratio};
use fstress::{FstressError, Workload};

use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::{grid, wrapped};
use crate::output::{Destination, print};
use crate::quantities::{number_in, refuse_grouped};

#[derive(Args, Debug)]
pub struct WorkloadArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// List the workloads that come with Crumb
    #[command(after_help = "\
Examples:
  crumb workload list")]
    List,
    /// Print a workload's file, as a start for your own
    #[command(after_help = "\
Examples:
  crumb workload show mail
  crumb workload show mail > ours.toml
  crumb workload show ours.toml --mix")]
    Show {
        /// A built-in name, a TOML file, or a directory of value:weight files
        #[arg(value_name = "NAME|FILE")]
        workload: String,
        /// Print only the operations, with their shares of the requests (percent)
        #[arg(long)]
        mix: bool,
    },
    /// List the numbers of a workload that `crumb run fstress` sets with --set and varies with --vary
    #[command(after_help = "\
Examples:
  crumb workload knobs
  crumb run fstress /mnt/disk --workload mail --set skew=0.8 --set file-size=16KiB")]
    Knobs,
    /// Derive a workload from another one
    #[command(
        override_usage = "crumb workload derive <NAME|FILE> <KNOBS> [-o FILE]",
        after_help = "\
Examples:
  A web proxy with a better cache:
    crumb workload derive web-proxy --memory-hit 0.4 --disk-hit 0.5 -o proxy.toml
  The web server with a more even popularity, and files twice as large:
    crumb workload derive web-server --skew 0.6 --size-scale 2 --name even -o even.toml
  A database that reads 9 times for each write:
    crumb workload derive database --read-write 9:1 -o reads.toml
  Then:
    crumb run fstress nfs://filer/export --workload proxy.toml"
    )]
    Derive(Knobs),
}

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("knob").required(true).multiple(true)
    .args(["memory_hit", "disk_hit", "skew", "read_write", "size_scale"]))]
struct Knobs {
    /// A built-in name, a TOML file, or a directory of value:weight files
    #[arg(value_name = "NAME|FILE")]
    workload: String,
    /// Share of a web proxy's requests that its memory answers, 0 to 1
    #[arg(long, value_name = "SHARE", requires = "disk_hit", value_parser = ratio)]
    memory_hit: Option<Ratio>,
    /// Share of the remaining requests that its disk answers, 0 to 1
    #[arg(long, value_name = "SHARE", requires = "memory_hit", value_parser = ratio)]
    disk_hit: Option<Ratio>,
    /// Zipf exponent of file popularity, 0 (all files alike) to 3
    #[arg(long, value_name = "ALPHA", value_parser = number_in(0.0..=3.0))]
    skew: Option<f64>,
    /// Reads for each write, as R:W or one number, such as 9:1 or 2.5
    #[arg(long, value_name = "R:W", value_parser = reads_per_write)]
    read_write: Option<f64>,
    /// Factor by which all file sizes are multiplied
    #[arg(long, value_name = "FACTOR", value_parser = number_in(0.0..=1e9))]
    size_scale: Option<f64>,
    /// Name of the new workload [default: the old name with the changes]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// File to write, `-` for standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the verb.
pub fn run(args: WorkloadArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    match args.what {
        What::List => print(&list()?)?,
        What::Show { workload, mix: true } => print(&mix(&find(&workload)?))?,
        What::Show { workload, mix: false } => match Workload::builtin_toml(&workload) {
            Some(text) => print(text)?,
            None => print(&find(&workload)?.to_toml())?,
        },
        What::Knobs => {
            let rows = fstress::knobs::Knob::all();
            let rows = rows.iter().map(|(name, about)| wrapped(&format!("{name:<28}"), about));
            print(&rows.collect::<String>())?;
        }
        What::Derive(knobs) => {
            let derived = derived(&knobs)?;
            let what = format!("workload {}", derived.name);
            Destination::new(knobs.output).write(context, &what, &derived.to_toml())?;
        }
    }
    Ok(ExitStatus::Fine)
}

fn list() -> anyhow::Result<String> {
    let mut text = String::new();
    for name in Workload::builtin_names() {
        let workload = Workload::builtin(name)?;
        let shares = workload.requests().shares();
        let main: Vec<String> =
            shares.iter().take(5).map(|(op, share)| format!("{} {:.0}%", op.name(), share * 100.0)).collect();
        let more = if shares.len() > main.len() { ", ..." } else { "" };
        text.push_str(&wrapped(&format!("{name:<12}"), &workload.about));
        text.push_str(&wrapped(&" ".repeat(12), &format!("{}{more}", main.join(", "))));
    }
    text.push_str("\n`crumb workload show NAME` shows one; a file of your own is named by its path.\n");
    Ok(text)
}

fn mix(workload: &Workload) -> String {
    let row = |(name, share): (&str, f64)| vec![name.to_owned(), format!("{:.2}", share * 100.0)];
    let requests = workload.requests().shares();
    let rows: Vec<_> = requests.iter().map(|(op, share)| row((op.name(), *share))).collect();
    let chains = workload.chain_shares();
    let rows_of_chains: Vec<_> = chains.iter().map(|(name, share)| row((name, *share))).collect();
    let of_chains = match chains.is_empty() {
        true => String::new(),
        false => format!("\n{}", grid(&["chain", "% of the schedule"], 1, &rows_of_chains)),
    };
    grid(&["operation", "% of requests"], 1, &rows) + &of_chains
}

fn derived(knobs: &Knobs) -> anyhow::Result<Workload> {
    let mut workload = find(&knobs.workload)?;
    let usage = |error: FstressError| anyhow::Error::new(error).context(BadUsage);
    if let (Some(memory_hit), Some(disk_hit)) = (knobs.memory_hit, knobs.disk_hit) {
        workload = derive::web_proxy(&workload, memory_hit, disk_hit).map_err(usage)?;
    }
    if let Some(ratio) = knobs.read_write {
        workload = derive::reads_per_write(&workload, ratio).map_err(usage)?;
    }
    if let Some(alpha) = knobs.skew {
        workload = derive::skew(&workload, alpha).map_err(usage)?;
    }
    if let Some(factor) = knobs.size_scale {
        workload = derive::file_size_scale(&workload, factor).map_err(usage)?;
    }
    if let Some(name) = &knobs.name {
        workload.name = name.clone();
    }
    // What a run would refuse is better refused here, where the knobs are still at hand.
    Workload::from_toml(&workload.to_toml(), &format!("derived workload {}", workload.name), None).map_err(
        |error| anyhow!(error).context("these knobs make a workload that cannot be run").context(BadUsage),
    )
}

/// An unknown name is bad usage; a file with a mistake in it is not.
fn find(name: &str) -> anyhow::Result<Workload> {
    Workload::find(name).map_err(|error| match error {
        FstressError::UnknownWorkload { .. } => anyhow::Error::new(error).context(BadUsage),
        error => error.into(),
    })
}

fn ratio(text: &str) -> Result<Ratio, measure::ValueError> {
    let share = number_in(0.0..=1.0)(text).map_err(|wrong| wrong.to_string())?;
    Ratio::new(share).map_err(|wrong| wrong.to_string().into())
}

fn reads_per_write(text: &str) -> Result<f64, measure::ValueError> {
    refuse_grouped(text).map_err(|wrong| wrong.to_string())?;
    let number =
        |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    let ratio = match text.split_once(':') {
        Some((reads, writes)) => number(reads)
            .zip(number(writes).filter(|writes| *writes > 0.0))
            .map(|(reads, writes)| reads / writes),
        None => number(text),
    };
    ratio.ok_or_else(|| {
        "expected reads and writes such as 9:1 (writes above 0), or reads for each write such as 2.5".into()
    })
}
