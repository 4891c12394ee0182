//! `crumb run`: one file a benchmark, which turns flags into its settings.

pub mod dirscale;
pub mod fstress;
pub mod netnews;
pub mod postmark;
pub mod webload;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::exit::ExitStatus;

/// Flags of `crumb run`.
#[derive(Args)]
pub struct RunArgs {
    #[command(subcommand)]
    benchmark: RunBenchmark,
}

#[derive(Subcommand)]
enum RunBenchmark {
    /// Latency of a file service against offered load, by an open-loop generator
    Fstress(fstress::FstressArgs),
    /// Many small files made, read, appended to and deleted (PostMark), with latencies and what held it up
    Postmark(postmark::RunPostmarkArgs),
    /// A news feed stored, fed on and expired, pass after pass
    Netnews(Box<netnews::NetnewsArgs>),
    /// What lookups, creation, removal and listing cost by the size of the directory
    Dirscale(dirscale::DirscaleArgs),
    /// HTTP traffic through a caching proxy: rate, response time, hit ratio, and whether every reply is right
    Webload(Box<webload::WebloadArgs>),
}

/// Runs the benchmark that is named.
pub fn run(args: RunArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let done = match args.benchmark {
        RunBenchmark::Fstress(args) => fstress::run(args, context),
        RunBenchmark::Postmark(args) => postmark::run(args, context),
        RunBenchmark::Netnews(args) => netnews::run(*args, context),
        RunBenchmark::Dirscale(args) => dirscale::run(args, context),
        RunBenchmark::Webload(args) => webload::run(*args, context),
    };
    done.map(|status| context.ended(status))
}
