//! `crumb-mpi`: the runs of `crumb` from many machines as one generator, joined by MPI.
//!
//! ```text
//! main thread: MPI            <-- requests --   thread "crumb": the verb, as in the program crumb
//! message_loop                --- replies -->   channel (the Exchange of its RankGroup)
//! ```
//!
//! All this in a process below the one that was started, see `watch`.
//!
//! Always holds: MPI is called by the main thread alone, and inside a measured interval nothing crosses; rank 0
//! alone shows progress, keeps and writes the run; a rank that is lost ends all, and no process is left behind.
//! Not here: how load is divided and parts are added up (`harness::ranks`), the verbs (`crumb`).

// Standard error is where a program talks to its user.
#![allow(clippy::print_stderr)]

mod channel;
mod message_loop;
mod mpi_end;
mod watch;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use crumb::{Context, ExitStatus, FstressArgs, GlobalArgs, NetnewsArgs, RunPostmarkArgs};
use harness::ranks::{Fate, Hello, Lost, RankGroup, Share};
use mpi::Threading;
use mpi::traits::Communicator as _;
use rustix::thread::CpuSet;

use crate::channel::{LastWord, MpiChannel};
use crate::message_loop::MessageLoop;

#[derive(Parser)]
#[command(
    name = "crumb-mpi",
    version = crumb::VERSION,
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
    Run {
        #[command(subcommand)]
        benchmark: Box<Benchmark>,
    },
}

#[derive(Subcommand)]
enum Benchmark {
    /// Latency of a file service against offered load; rates, files and requests outstanding are those of the whole
    #[command(after_help = EXAMPLES)]
    Fstress(FstressTogether),
    /// PostMark as replicas, one a rank, each with files of its own; figures count while all work
    #[command(after_help = EXAMPLES)]
    Postmark(ReplicasOf<RunPostmarkArgs>),
    /// The news spool as replicas, one a rank, each with a spool of its own; figures count while all work
    #[command(after_help = EXAMPLES)]
    Netnews(ReplicasOf<NetnewsArgs>),
}

#[derive(Args)]
struct FstressTogether {
    #[command(flatten)]
    fstress: FstressArgs,

    /// How the load is divided: even, or cores: by the processors that each rank may use
    #[arg(long, default_value = "even", value_name = "even|cores", help_heading = "Many machines")]
    share: Share,

    #[command(flatten)]
    ranks: RanksArgs,
}

#[derive(Args)]
struct ReplicasOf<A: Args> {
    #[command(flatten)]
    one: A,

    #[command(flatten)]
    ranks: RanksArgs,
}

#[derive(Args)]
struct RanksArgs {
    /// A rank that is silent for longer than this, outside of measured intervals, has failed
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration, value_name = "TIME",
        help_heading = "Many machines")]
    patience: Duration,
}

impl Benchmark {
    fn name(&self) -> &'static str {
        match self {
            Self::Fstress(_) => "fstress",
            Self::Postmark(_) => "postmark",
            Self::Netnews(_) => "netnews",
        }
    }

    fn share(&self) -> Share {
        match self {
            Self::Fstress(together) => together.share,
            Self::Postmark(_) | Self::Netnews(_) => Share::Even,
        }
    }

    fn patience(&self) -> Duration {
        match self {
            Self::Fstress(together) => together.ranks.patience,
            Self::Postmark(replicas) => replicas.ranks.patience,
            Self::Netnews(replicas) => replicas.ranks.patience,
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  Mail from eight generators on four machines, 10,000 to 200,000 requests a second in all:
    mpirun -n 8 -hosts a,b,c,d crumb-mpi run fstress nfs://filer/vol --workload mail --rate 10000..200000/10000
  Machines of different size:
    mpirun -hosts big:8,small:2 crumb-mpi run fstress nfs://filer/vol --share cores
  PostMark by eight clients, each in a folder of its own:
    mpirun -n 8 -hosts a,b,c,d crumb-mpi run postmark nfs://filer/vol --preset 2001
  Four news spools at once:
    mpirun -n 4 -hosts a,b,c,d crumb-mpi run netnews nfs://filer/vol --quick

Exit status of each rank: that of `crumb run`, 130 where any rank was interrupted; mpirun makes one of all.
All flags are those of `crumb run`. The record, the report and the store are rank 0's; `crumb runs`,
`crumb compare` and `crumb report` read them.";

/// Shorter than this a busy machine is taken for a dead one.
const PATIENCE_MIN: Duration = Duration::from_secs(2);
/// Where nobody could say how much.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let stay = || message_loop::to_notice_and_clean_up(silence_max(std::env::args_os()));
    if let Some(code) = watch::watched(stay) {
        return code;
    }
    let Some((universe, _)) = mpi::initialize_with_threading(Threading::Funneled) else {
        say("error: MPI does not start; was this built with the MPI that `mpirun` belongs to?");
        return ExitCode::FAILURE;
    };
    let world = universe.world();
    let rank = world.rank();
    let typed = Cli::try_parse().map(|Cli { global, verb: Verb::Run { benchmark } }| {
        let mut context = Context::new(global);
        "crumb-mpi".clone_into(&mut context.command[0]);
        context.start_log();
        (if rank == 0 { context } else { context.silenced() }, benchmark)
    });
    let stop = match &typed {
        Ok((context, _)) => crumb::stop_flag_of(context),
        Err(_) => crumb::stop_flag(),
    };
    let stop = match stop {
        Ok(stop) => stop,
        Err(error) => {
            eprint!("{}", crumb::error_message(&error));
            return ExitCode::FAILURE;
        }
    };
    let code = match typed {
        Ok((context, benchmark)) => {
            let (patience, stop_verb) = (benchmark.patience().max(PATIENCE_MIN), Arc::clone(&stop));
            joined(&world, patience, &stop, move |channel| verb(channel, *benchmark, &context, &stop_verb))
        }
        Err(error) => joined(&world, PATIENCE, &stop, move |channel| wrong_usage(channel.rank, &error)),
    };
    let begun = std::time::Instant::now();
    // Ends MPI, which all do together.
    drop(universe);
    tracing::debug!(rank, took = ?begun.elapsed(), "MPI has ended");
    ExitCode::from(code)
}

/// A line on standard error, in one write: all ranks may say something at once, and the launcher passes on what it reads.
fn say(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// How long a rank may be dead before any other misses it. Nobody listens inside an interval; that of replicas has no silence.
fn silence_max(command_line: impl IntoIterator<Item = OsString>) -> Duration {
    let Ok(matches) = Cli::command().try_get_matches_from(command_line) else { return PATIENCE };
    let (mut of_verb, mut silence) = (&matches, Duration::ZERO);
    while let Some((_, below)) = of_verb.subcommand() {
        of_verb = below;
        let spans = ["warm", "measure", "patience"].map(|flag| below.try_get_one::<Duration>(flag));
        silence += spans.into_iter().flatten().flatten().sum::<Duration>();
    }
    silence.max(PATIENCE_MIN)
}

/// Does `verb` in a thread of its own while this one does what MPI is needed for.
fn joined(
    world: &mpi::topology::SimpleCommunicator,
    patience: Duration,
    stop: &Arc<AtomicBool>,
    verb: impl FnOnce(MpiChannel) -> LastWord + Send + 'static,
) -> u8 {
    let (channel, mut message_loop) = MessageLoop::new(world, patience, Arc::clone(stop));
    let verb = move || {
        let leave = channel.leave();
        leave.say(verb(channel));
    };
    let verb = match std::thread::Builder::new().name("crumb".to_owned()).spawn(verb) {
        Ok(verb) => verb,
        Err(error) => {
            say(&format!("error: cannot start a thread: {error}"));
            message_loop.abort(1);
        }
    };
    let code = message_loop.serve();
    match verb.join() {
        Ok(()) => code,
        // It has reported by itself.
        Err(_) => message_loop.abort(101),
    }
}

/// The verb, and how it ended.
fn verb(channel: MpiChannel, benchmark: Benchmark, context: &Context, stop: &Arc<AtomicBool>) -> LastWord {
    let rank = channel.rank;
    let mut group = None;
    let done = run(channel, benchmark, context, stop, &mut group);
    let lost = group.as_ref().and_then(RankGroup::lost).or_else(|| lost_in(&done));
    let code = exit_code_of(&done, rank == speaker(lost));
    // As in `crumb`: whatever had been done by then. What ends well although it was asked to stop was interrupted on another
    // rank: one that fails there is an error here too.
    let was_stopped = done.is_ok() && stop.load(Ordering::Relaxed);
    let code = if context.interruption.is_seen() || was_stopped { crumb::INTERRUPTED } else { code };
    // What came out of a collective all know; a rank that was lost, too.
    let all_know = lost.is_some() || group.as_ref().is_none_or(RankGroup::all_know);
    let unreported = done.err().filter(|_| !all_know).map(|error| in_one_line(&crumb::error_message(&error)));
    LastWord { code, unreported }
}

fn run(
    channel: MpiChannel,
    benchmark: Benchmark,
    context: &Context,
    stop: &Arc<AtomicBool>,
    joined: &mut Option<RankGroup>,
) -> anyhow::Result<ExitStatus> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let may = rustix::thread::sched_getaffinity(None);
    let may = may.map(|may| (0..CpuSet::MAX_CPU).filter(|&cpu| may.is_set(cpu)).collect());
    let hello = Hello {
        host: message_loop::host(),
        version: crumb::VERSION.to_owned(),
        cores,
        cpus: may.unwrap_or_default(),
    };
    let group =
        RankGroup::join(Box::new(channel), hello, benchmark.share()).context("the ranks do not join")?;
    let group = joined.insert(group);
    group.same_terms(vec![("benchmark".to_owned(), benchmark.name().to_owned())])?;
    let done = match benchmark {
        Benchmark::Fstress(together) => together.fstress.run_in(group, stop, context),
        Benchmark::Postmark(replicas) => replicas.one.run_in(group, stop, context),
        Benchmark::Netnews(replicas) => replicas.one.run_in(group, stop, context),
    };
    done.map(|status| context.ended(status))
}

/// The rank that was lost before there was a rank group to know it.
fn lost_in(done: &anyhow::Result<ExitStatus>) -> Option<&Lost> {
    done.as_ref().err()?.chain().find_map(|error| error.downcast_ref())
}

/// The rank that prints: the next one if rank 0 is lost, unless rank 0 came to its end and prints by itself.
fn speaker(lost: Option<&Lost>) -> u32 {
    u32::from(lost.is_some_and(|lost| lost.rank == 0 && matches!(lost.fate, Fate::Gone(_))))
}

/// The exit code, and the error reported by the rank that speaks.
fn exit_code_of(done: &anyhow::Result<ExitStatus>, speaks: bool) -> u8 {
    if let Err(error) = done
        && speaks
    {
        eprint!("{}", crumb::error_message(error));
    }
    crumb::exit_number(done)
}

/// Mostly all typed the same: one complaint is enough. Where only another rank's is wrong, rank 0 prints that one's error.
fn wrong_usage(rank: u32, error: &clap::Error) -> LastWord {
    if rank == 0 {
        let _ = error.print();
    }
    let complaint = error.to_string();
    let complaint = complaint.split("\n\n").next().unwrap_or_default();
    LastWord { code: error.exit_code() as u8, unreported: error.use_stderr().then(|| in_one_line(complaint)) }
}

/// An error with its causes, for a sentence.
fn in_one_line(message: &str) -> String {
    let bare = |line: &str| {
        let line = line.trim();
        line.strip_prefix("error: ").or(line.strip_prefix("because: ")).unwrap_or(line).to_owned()
    };
    message.lines().map(bare).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use harness::ranks::RanksError;

    use super::*;

    #[test]
    fn no_flag_or_verb_is_declared_twice() {
        Cli::command().debug_assert();
    }

    /// Symptom: a rank killed early in a long interval was named, and all files stayed and no finished load point was kept.
    /// Cause: its supervisor stayed for a minute, and then the launcher ended the others, who could not have noticed yet. Fix: it
    /// stays for the longest interval as well.
    #[test]
    fn a_watcher_stays_until_the_others_can_have_missed_its_rank() {
        let silence_max = |words: &str| silence_max(words.split(' ').map(OsString::from));
        let seconds = Duration::from_secs;
        let long = "crumb-mpi run fstress null: --warm 1m --measure 10m --patience 5s";
        assert_eq!(silence_max(long), seconds(665));
        assert!(message_loop::to_notice_and_clean_up(silence_max(long)) > seconds(665 + 30));
        // Two minutes and four by default.
        assert_eq!(silence_max("crumb-mpi run fstress null:"), seconds(370));
        // Replicas beat all the time.
        assert_eq!(silence_max("crumb-mpi run postmark null: --patience 3s"), seconds(3));
        assert_eq!(silence_max("crumb-mpi run what"), PATIENCE);
    }

    /// Symptom: rank 0 was lost while the ranks joined, and all others ended without a word. Cause: only a rank group knew who
    /// was lost, and there was none yet. Fix: the error knows it too.
    #[test]
    fn the_next_rank_tells_when_rank_0_is_lost_before_all_have_joined() {
        let failed = |fate| -> anyhow::Result<ExitStatus> {
            let lost = Lost { rank: 0, host: "a".to_owned(), fate };
            Err(anyhow::Error::from(RanksError::from(lost)).context("the ranks do not join"))
        };
        let speaker = |done| speaker(lost_in(&done));
        assert_eq!(speaker(failed(Fate::Gone("has not been heard of for 10 s".to_owned()))), 1);
        assert_eq!(speaker(failed(Fate::Ended("no such file".to_owned()))), 0);
        assert_eq!((speaker(Ok(ExitStatus::Fine)), speaker(Err(anyhow::anyhow!("no thread")))), (0, 0));
    }

    #[test]
    fn an_error_with_its_causes_becomes_one_line() {
        assert_eq!(
            in_one_line("error: cannot import\n  because: no such file\n"),
            "cannot import: no such file"
        );
    }
}
