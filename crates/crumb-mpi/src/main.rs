//! `crumb-mpi`: the runs of `crumb` from many machines as one generator, joined by MPI.
//!
//! ```text
//! main thread: MPI            <-- requests --   thread "crumb": the verb, as in the program crumb
//! post (parts, clocks, beats) --- replies -->   courier (the Exchange of its Ensemble)
//! ```
//!
//! Always holds: MPI is called by the main thread alone, and inside a measured interval nothing crosses; rank 0
//! alone shows progress, keeps and writes the run; a rank that is lost ends all, and no process is left behind.
//! Not here: how load is divided and parts are added up (`fstress::ensemble`), the verbs (`crumb`).

// Standard error is where a program talks to its user.
#![allow(clippy::print_stderr)]

mod courier;
mod post;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use crumb::{BadUsage, Context, ExitStatus, FstressArgs, GlobalArgs};
use fstress::ensemble::{Ensemble, Hello, Share};
use mpi::Threading;
use mpi::traits::Communicator as _;

use crate::courier::Courier;
use crate::post::Post;

#[derive(Parser)]
#[command(
    name = "crumb-mpi",
    version,
    about = "Runs crumb's benchmarks from many machines as one, joined by MPI.",
    max_term_width = 100,
    after_help = EXAMPLES
)]
struct Cli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a benchmark and keep its record, on rank 0
    Run(Box<RunArgs>),
}

#[derive(Args)]
struct RunArgs {
    #[command(subcommand)]
    benchmark: RunBenchmark,
}

#[derive(Subcommand)]
enum RunBenchmark {
    /// Latency of a file service against offered load; rates, files and requests outstanding are those of the whole
    #[command(after_help = EXAMPLES)]
    Fstress(TogetherArgs),
}

#[derive(Args)]
struct TogetherArgs {
    #[command(flatten)]
    fstress: FstressArgs,

    /// How the load is divided: even, or cores: by the processors that each rank may use
    #[arg(long, default_value = "even", value_name = "even|cores", help_heading = "Many machines")]
    share: Share,

    /// A rank that is silent for longer than this, outside of measured intervals, has failed
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration, value_name = "TIME",
        help_heading = "Many machines")]
    patience: Duration,
}

const EXAMPLES: &str = "\
Examples:
  Mail from eight generators on four machines, 10,000 to 200,000 requests a second in all:
    mpirun -n 8 -hosts a,b,c,d crumb-mpi run fstress nfs://filer/vol --workload mail --rate 10000..200000/10000
  Machines of different size:
    mpirun -hosts big:8,small:2 crumb-mpi run fstress nfs://filer/vol --share cores

All flags are those of `crumb run fstress`. The record, the report and the store are rank 0's; `crumb runs`,
`crumb compare` and `crumb report` read them.";

/// Shorter than this a busy machine is taken for a dead one.
const PATIENCE_MIN: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let Some((universe, _)) = mpi::initialize_with_threading(Threading::Funneled) else {
        eprintln!("error: MPI does not start; was this built with the MPI that `mpirun` belongs to?");
        return ExitCode::FAILURE;
    };
    let world = universe.world();
    let rank = world.rank();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // All typed the same: one complaint is enough.
            if rank == 0 {
                let _ = error.print();
            }
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    let Verb::Run(run) = cli.verb;
    let RunBenchmark::Fstress(together) = run.benchmark;
    let mut context = Context::new(cli.global);
    "crumb-mpi".clone_into(&mut context.command[0]);
    context.start_log();
    if rank != 0 {
        context = context.silenced();
    }
    let code = match crumb::stop_flag() {
        Ok(stop) => joined(&world, together, context, &stop),
        Err(error) => told(&Err(error), true),
    };
    // Ends MPI, which all do together.
    drop(universe);
    ExitCode::from(code)
}

/// Runs the verb in a thread of its own while this one does what MPI is needed for.
fn joined(
    world: &mpi::topology::SimpleCommunicator,
    together: TogetherArgs,
    context: Context,
    stop: &Arc<AtomicBool>,
) -> u8 {
    let patience = together.patience.max(PATIENCE_MIN);
    let (courier, mut post) = Post::new(world, patience, Arc::clone(stop));
    let stop = Arc::clone(stop);
    let verb = move || {
        let leave = courier.leave();
        let rank = courier.rank;
        let mut ensemble = None;
        let done = run(courier, together, &context, &stop, &mut ensemble);
        let lost = ensemble.as_ref().and_then(Ensemble::lost);
        // Where rank 0 is the one that is lost, the next one says so.
        let speaker = lost.map_or(0, |lost| u32::from(lost.rank == 0));
        let code = told(&done, rank == speaker);
        leave.say(code);
        code
    };
    let verb = match std::thread::Builder::new().name("crumb".to_owned()).spawn(verb) {
        Ok(verb) => verb,
        Err(error) => {
            eprintln!("error: cannot start a thread: {error}");
            post.abort(1);
        }
    };
    post.serve();
    match verb.join() {
        Ok(code) => code,
        // It has told by itself.
        Err(_) => post.abort(101),
    }
}

fn run(
    courier: Courier,
    together: TogetherArgs,
    context: &Context,
    stop: &Arc<AtomicBool>,
    joined: &mut Option<Ensemble>,
) -> anyhow::Result<ExitStatus> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let hello = Hello { host: post::host(), version: crumb::VERSION.to_owned(), cores };
    let ensemble =
        Ensemble::join(Box::new(courier), hello, together.share).context("the ranks do not join")?;
    together.fstress.run_in(joined.insert(ensemble), stop, context)
}

/// The exit code, and the error told by the rank that speaks.
fn told(done: &anyhow::Result<ExitStatus>, speaks: bool) -> u8 {
    match done {
        Ok(ExitStatus::Fine) => 0,
        Ok(ExitStatus::Invalid) => 3,
        Ok(ExitStatus::Slower) => 1,
        Err(error) => {
            if speaks {
                eprint!("{}", crumb::error_message(error));
            }
            if error.is::<BadUsage>() { 2 } else { 1 }
        }
    }
}
