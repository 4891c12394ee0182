//! `crumb`: measures how well storage handles workloads of many small files.
//!
//! ```text
//! command line -> Cli -> verbs::<verb>::run(args, &Context) -> ExitStatus
//!                              |-> stdout: results        (output)
//!                              `-> stderr: progress, notes, errors
//! ```
//!
//! Always holds: flags in, reports out, no measuring here; the environment is read here alone (`context`);
//! exit codes are those of `exit`; a reader that closes our standard output is no error.
//! Not here: benchmarks (`fstress`), protocols (`nfs`), the store and the pictures (`report`). A library, so that
//! `crumb-mpi` is the same program on many machines: what it needs is named below, the rest is nobody's.

// Standard error is where a program talks to its user.
#![allow(clippy::print_stderr)]
// Helpers of the verbs that a build leaves out stay.
#![cfg_attr(not(all(feature = "mount", feature = "proxy")), allow(dead_code))]

mod addresses;
mod context;
mod cpus;
pub mod declarations;
mod exit;
mod forecast;
mod help_texts;
mod names;
#[cfg(any(feature = "mount", feature = "proxy"))]
mod notify;
mod pipeline;
mod quantities;
mod quick;
mod series;
mod shootout;
mod signals;
mod terminal;
mod verbs;
mod waiting;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches as _, Parser, Subcommand};

// Verbs name these by their short paths.
use self::pipeline::{openers, outcome, ranks, room};
use self::terminal::{layout, output, progress, tables};

pub use crate::context::{Context, GlobalArgs};
pub use crate::exit::{BadUsage, ExitStatus, INTERRUPTED, message as error_message, number as exit_number};
pub use crate::signals::{stop_flag, stop_flag_of};
pub use crate::verbs::run::fstress::FstressArgs;
pub use crate::verbs::run::netnews::NetnewsArgs;
pub use crate::verbs::run::postmark::RunPostmarkArgs;

/// Version and commit, such as `0.1.0 (8f3a2b1c9d0e)`: of this program, and of `crumb-mpi`, whose ranks compare it.
pub const VERSION: &str = env!("CRUMB_VERSION_TEXT");

#[derive(Parser)]
#[command(
    name = "crumb",
    version = VERSION,
    about = "Measure how well storage handles workloads of many small files",
    max_term_width = 100,
    after_help = "\
At which load does my filer saturate? In three commands, the first of which takes one to two hours:
  crumb run fstress nfs://filer/export --workload web-server --rate auto
  crumb runs show last
  crumb report last -o report.html

No filer at hand? In another terminal, which prints the nfs:// URL to use:
  crumb serve dir /tmp/scratch

Counts are written 20000, 20k or 1.5M; sizes 512, 64KiB (of 1024 bytes) or 64k (of 1000 bytes); times
1.5s, 200ms, 2m or 1h; lists 500,1000,4000. A comma separates values in arguments: write
20000, although output has 20,000.

Exit codes: 0 fine, 1 the run failed, 2 wrong usage, 3 done but the verdict is INVALID, 130 interrupted."
)]
struct Cli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    Doctor(verbs::doctor::DoctorArgs),
    /// Run a benchmark and keep its record
    Run(Box<verbs::run::RunArgs>),
    Clean(verbs::clean::CleanArgs),
    Mark(verbs::mark::MarkArgs),
    /// List, show, export, import and delete stored runs
    Runs(verbs::runs::RunsArgs),
    /// Make, multiply and inspect the news feeds that `crumb run netnews` stores
    Feed(verbs::feed::FeedArgs),
    Compare(verbs::compare::CompareArgs),
    /// Draw runs as one HTML file that works offline
    Report(verbs::report::ReportArgs),
    /// Mount a directory tree with its huge directories spread over many small ones (FUSE)
    #[cfg(feature = "mount")]
    Mount(Box<verbs::mount::MountArgs>),
    /// End a mount made by `crumb mount`
    #[cfg(feature = "mount")]
    Unmount(verbs::unmount::UnmountArgs),
    #[cfg(feature = "mount")]
    Manage(verbs::manage::ManageArgs),
    #[cfg(feature = "mount")]
    Unmanage(verbs::unmanage::UnmanageArgs),
    #[cfg(feature = "mount")]
    Check(verbs::check::CheckArgs),
    #[cfg(feature = "mount")]
    Advise(verbs::advise::AdviseArgs),
    /// Create, fill, inspect and repair a packed store: millions of small objects in few files
    #[cfg(feature = "pack")]
    Pack(verbs::pack::PackArgs),
    /// Run a caching web proxy, forward or reverse, on a packed store
    #[cfg(feature = "proxy")]
    Proxy(Box<verbs::proxy::ProxyArgs>),
    /// Serve a directory or a null responder by NFSv3, or a web origin, for benchmarks
    Serve(verbs::serve::ServeArgs),
    /// List, show and derive workloads of `crumb run fstress`
    Workload(verbs::workload::WorkloadArgs),
    Postmark(verbs::postmark::PostmarkArgs),
    Generate(verbs::generate::GenerateArgs),
}

/// The program: reads the command line, runs the verb, returns how it ended.
pub fn main() -> ExitCode {
    let words = std::env::args_os().collect();
    #[cfg(feature = "mount")]
    let words = verbs::mount::as_typed_or_by_mount(words);
    let typed = quantities::with_negative_numbers(command()).try_get_matches_from::<Vec<_>, _>(words);
    let typed = typed.unwrap_or_else(|error| with_way_to_benchmarks(error).exit());
    let cli = Cli::from_arg_matches(&typed).unwrap_or_else(|error| error.exit());
    let context = Context::new(cli.global);
    context.start_log();
    context.screen.clear_before_panics();
    let done = match cli.verb {
        Some(verb) => dispatch(verb, &context),
        // Alone, as someone types who wants to know what this is: no mistake to complain about.
        None => output::print(&command().render_help().to_string()).map(|()| ExitStatus::Fine),
    };
    #[cfg(feature = "pack")]
    verbs::pack::place::remove_unused();
    let has_no_reader = done.as_ref().err().is_some_and(exit::is_broken_pipe);
    let interruption = &context.interruption;
    exit::code(done, if has_no_reader { interruption.is_seen_or_comes() } else { interruption.is_seen() })
}

/// A benchmark that was typed as a verb: names the command that runs it.
fn with_way_to_benchmarks(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let word = word.clone();
    let is_benchmark = Cli::command()
        .find_subcommand("run")
        .is_some_and(|run| run.get_subcommands().any(|benchmark| benchmark.get_name() == word));
    if is_benchmark {
        let tip = format!(
            "{word} is a benchmark: `crumb run {word}` runs it, and `crumb run {word} --help` explains it"
        );
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

fn command() -> clap::Command {
    help_texts::for_terminals(Cli::command())
}

fn dispatch(verb: Verb, context: &Context) -> anyhow::Result<ExitStatus> {
    match verb {
        Verb::Doctor(args) => verbs::doctor::run(&args, context),
        Verb::Run(args) => verbs::run::run(*args, context),
        Verb::Clean(args) => verbs::clean::run(&args, context),
        Verb::Mark(args) => verbs::mark::run(&args, context),
        Verb::Runs(args) => verbs::runs::run(args, context),
        Verb::Report(args) => verbs::report::run(args, context),
        #[cfg(feature = "mount")]
        Verb::Mount(args) => verbs::mount::run(*args, context),
        #[cfg(feature = "mount")]
        Verb::Unmount(args) => verbs::unmount::run(&args, context),
        #[cfg(feature = "mount")]
        Verb::Manage(args) => verbs::manage::run(&args, context),
        #[cfg(feature = "mount")]
        Verb::Unmanage(args) => verbs::unmanage::run(&args, context),
        #[cfg(feature = "mount")]
        Verb::Check(args) => verbs::check::run(&args, context),
        #[cfg(feature = "mount")]
        Verb::Advise(args) => verbs::advise::run(&args, context),
        #[cfg(feature = "pack")]
        Verb::Pack(args) => verbs::pack::run(args, context),
        #[cfg(feature = "proxy")]
        Verb::Proxy(args) => verbs::proxy::run(&args, context),
        Verb::Serve(args) => verbs::serve::run(args, context),
        Verb::Workload(args) => verbs::workload::run(args, context),
        Verb::Compare(args) => verbs::compare::run(args, context),
        Verb::Feed(args) => verbs::feed::run(args, context),
        Verb::Postmark(args) => verbs::postmark::run(args, context),
        Verb::Generate(args) => verbs::generate::run(&args, command(), context),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_flag_or_verb_is_declared_twice_or_without_its_partner() {
        Cli::command().debug_assert();
    }

    /// Symptom: examples of 90 columns, which a terminal wrapped into two commands.
    #[test]
    fn commands_in_help_texts_fit_a_terminal() {
        fn check(command: &clap::Command, path: &str, seen: &mut usize) {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in text.lines().filter(|line| line.starts_with("    ")) {
                *seen += 1;
                assert!(line.chars().count() <= 80, "{path}: {line}");
            }
            command
                .get_subcommands()
                .for_each(|verb| check(verb, &format!("{path} {}", verb.get_name()), seen));
        }
        let mut seen = 0;
        check(&command(), "crumb", &mut seen);
        assert!(seen > 100, "{seen} lines");
    }

    /// Symptom: `crumb pack ls --store FILE` was refused although its help shows `--store`. Cause: an argument of the verb's own
    /// had the same id and took its place.
    #[test]
    fn what_the_help_of_a_verb_shows_for_every_verb_the_verb_takes() {
        fn check(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            for name in ["store", "quiet", "verbose"] {
                let own = command.get_arguments().find(|arg| arg.get_id() == name);
                let long = own.map(|arg| arg.get_long());
                assert!(long.is_none_or(|long| long == Some(name)), "`{path}` has another argument `{name}`");
            }
            command.get_subcommands().for_each(|verb| check(verb, &path));
        }
        check(&Cli::command(), "");
        let taken = Cli::try_parse_from(["crumb", "pack", "ls", "/objects", "--store", "runs.db"]).unwrap();
        assert_eq!(taken.global.store, Some("runs.db".into()));
    }

    #[test]
    fn every_verb_has_examples_in_its_help() {
        fn check(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            if command.has_subcommands() {
                command.get_subcommands().for_each(|verb| check(verb, &path));
            } else {
                let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(after.contains("Examples:"), "`{path} --help` shows no examples");
            }
        }
        Cli::command().get_subcommands().for_each(|verb| check(verb, "crumb"));
    }

    /// A help text begins with a verb or a noun phrase, and has none of the words of `tests/house/words.txt`.
    #[test]
    fn help_texts_begin_with_a_verb_or_a_noun_and_use_plain_words() {
        const NO_BEGIN: [&str; 20] = [
            "What", "How", "Where", "Which", "Who", "Whose", "When", "Whether", "Nothing", "Nobody",
            "The same", "As ", "All ", "It ", "This", "Also", "Only", "Tell", "Say", "In ",
        ];
        fn check(text: &str, of: &str, words: &[&str], wrong: &mut Vec<String>) {
            let lower = text.to_lowercase();
            let first = text.chars().next().unwrap_or_default();
            let begins = NO_BEGIN.iter().find(|begin| text.starts_with(**begin));
            if begins.is_some() || text.is_empty() {
                wrong.push(format!("{of}: begins neither with a verb nor with a noun: {text}"));
            }
            if !(first.is_uppercase() || text.starts_with("nfs://")) {
                wrong.push(format!("{of}: does not begin with a capital: {text}"));
            }
            let is_word =
                |word: &str| lower.split(|char: char| !char.is_alphanumeric()).any(|one| one == word);
            let private = words
                .iter()
                .find(|word| if word.contains(' ') { lower.contains(**word) } else { is_word(word) });
            if let Some(word) = private {
                wrong.push(format!("{of}: `{word}`: {text}"));
            }
        }
        fn walk(command: &clap::Command, path: &str, words: &[&str], wrong: &mut Vec<String>) {
            let path = format!("{path} {}", command.get_name()).trim().to_owned();
            check(&command.get_about().map(ToString::to_string).unwrap_or_default(), &path, words, wrong);
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string);
                check(&help.unwrap_or_default(), &format!("{path} {}", arg.get_id()), words, wrong);
            }
            command.get_subcommands().for_each(|verb| walk(verb, &path, words, wrong));
        }
        let list = include_str!("../tests/house/words.txt");
        let groups = list
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .filter(|(group, _)| !group.starts_with('#'));
        let words: Vec<&str> = groups.flat_map(|(_, words)| words.split('|')).collect();
        assert!(words.len() > 10, "{words:?}");
        let mut wrong = Vec::new();
        walk(&Cli::command(), "", &words, &mut wrong);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
