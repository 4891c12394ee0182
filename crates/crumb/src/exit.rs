//! Exit codes, and how an error is printed: one message with its causes, no backtrace.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | fine |
//! | 1 | the run failed, or could not be kept; of `compare` only: slower than `--fail-if-slower` allows |
//! | 2 | bad usage; of `compare` also all that kept it from comparing |
//! | 3 | done, but the verdict is INVALID |
//! | 130 | interrupted by Ctrl-C, SIGTERM or SIGHUP, whatever had been done by then; servers end with 0 |

use std::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;

use crate::output::harmless;

/// How a verb that came to its end ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// As asked.
    Fine,
    /// Done, but the numbers are not to be trusted.
    Invalid,
    /// Done and shown, but not kept as it should have been.
    Unkept,
    /// Done, and slower than `compare --fail-if-slower` allows.
    Slower,
}

/// Context that marks an error as a mistake in the command line, so that running it again cannot help: exit code 2.
/// `error.context(BadUsage)`; it is not shown.
#[derive(Debug)]
pub struct BadUsage;

impl fmt::Display for BadUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bad usage")
    }
}

/// Exit code of a verb that a signal ended early: 128 and the number of SIGINT, as shells say it.
pub const INTERRUPTED: u8 = 130;

/// The code of how a verb ended.
pub fn number(done: &anyhow::Result<ExitStatus>) -> u8 {
    match done {
        Ok(ExitStatus::Fine) => 0,
        Ok(ExitStatus::Invalid) => 3,
        Ok(ExitStatus::Slower | ExitStatus::Unkept) => 1,
        Err(error) if error.is::<BadUsage>() => 2,
        Err(_) => 1,
    }
}

/// Prints the error, if any, and returns the exit code.
pub fn code(done: anyhow::Result<ExitStatus>, interrupted: bool) -> ExitCode {
    let number = if interrupted { INTERRUPTED } else { number(&done) };
    let Err(error) = done else { return ExitCode::from(number) };
    // As in `crumb runs list | head -1`: the reader has enough. A server's broken pipe is never a bare
    // io::Error: the libraries' errors wrap it.
    if is_broken_pipe(&error) {
        return if interrupted { ExitCode::from(number) } else { ExitCode::SUCCESS };
    }
    // If standard error is closed too, there is nowhere to report it.
    let _ = io::stderr().write_all(message(&error).as_bytes());
    ExitCode::from(number)
}

/// Whether it is standard output that is not read any more.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// The error on the first line, each of its causes on a line below. Errors quote what files, peers and streams hold: control
/// characters but line breaks and tabs are escaped, so that none moves the cursor or colours the screen.
pub fn message(error: &anyhow::Error) -> String {
    let prefixes = std::iter::once("error: ").chain(std::iter::repeat("  because: "));
    prefixes.zip(layers(error)).map(|(prefix, layer)| format!("{prefix}{}\n", harmless(&layer))).collect()
}

/// The error and its causes in one line, for a log or another program.
pub fn in_one_line(error: &anyhow::Error) -> String {
    layers(error).collect::<Vec<_>>().join(": ")
}

/// The error and its causes, without the mark of bad usage. No layer repeats the one below it, so that each cause is printed once.
fn layers(error: &anyhow::Error) -> impl Iterator<Item = String> + '_ {
    let mark = BadUsage.to_string();
    error.chain().map(ToString::to_string).filter(move |layer| *layer != mark)
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn each_cause_is_a_line_below_the_error_or_a_part_of_the_one_line() {
        let error = anyhow!("no such file").context("cannot read x").context("cannot import");
        assert_eq!(
            message(&error),
            "error: cannot import\n  because: cannot read x\n  because: no such file\n"
        );
        assert_eq!(in_one_line(&error), "cannot import: cannot read x: no such file");
    }

    #[test]
    fn what_an_error_quotes_cannot_colour_the_terminal() {
        let error = anyhow!("line 1\n\tline 2: \u{1b}[31mred\u{9b}2J\0\r").context("\u{2603}\u{7}");
        let expected =
            "error: \u{2603}\\u{7}\n  because: line 1\n\tline 2: \\u{1b}[31mred\\u{9b}2J\\u{0}\\r\n";
        assert_eq!(message(&error), expected);
    }

    #[test]
    fn bad_usage_is_a_mark_that_nobody_reads() {
        let error = anyhow!("root").context("top").context(BadUsage).context("above");
        assert_eq!(message(&error), "error: above\n  because: top\n  because: root\n");
        assert!(error.is::<BadUsage>());
        assert_eq!(in_one_line(&error), "above: top: root");
        assert_eq!(message(&anyhow!("wrong").context(BadUsage)), "error: wrong\n");
    }
}
