//! `crumb run`: one file a benchmark, which turns flags into its settings.

pub mod cell;
pub mod dirscale;
pub mod fstress;
pub mod netnews;
pub mod overhead;
pub mod postmark;
pub mod shootout;
pub mod webload;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::exit::ExitStatus;

/// The seed of every benchmark, and of feeds that are made up, unless `--seed` says otherwise.
pub const SEED_DEFAULT: u32 = 1;

/// Flags of `crumb run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(subcommand)]
    benchmark: RunBenchmark,
}

#[derive(Subcommand, Debug)]
enum RunBenchmark {
    Fstress(Box<fstress::FstressArgs>),
    Postmark(postmark::RunPostmarkArgs),
    Netnews(Box<netnews::NetnewsArgs>),
    Dirscale(dirscale::DirscaleArgs),
    Overhead(overhead::OverheadArgs),
    Webload(Box<webload::WebloadArgs>),
    Shootout(shootout::ShootoutArgs),
}

/// Runs the benchmark that is named.
pub fn run(args: RunArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let done = match args.benchmark {
        RunBenchmark::Fstress(args) => fstress::run(*args, context),
        RunBenchmark::Postmark(args) => postmark::run(args, context),
        RunBenchmark::Netnews(args) => netnews::run(*args, context),
        RunBenchmark::Dirscale(args) => dirscale::run(args, context),
        RunBenchmark::Overhead(args) => overhead::run(args, context),
        RunBenchmark::Webload(args) => webload::run(*args, context),
        RunBenchmark::Shootout(args) => shootout::run(&args, context),
    };
    done.map(|status| context.ended(status))
}
