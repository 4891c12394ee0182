//! `crumb mark`: says of the runs under way what happened just now.

use anyhow::{Context as _, bail};
use clap::Args;
use harness::marks::{MarkAnswer, Marked, mark_all};

use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::counted;
use crate::output::{harmless, print};

/// Set a mark, with a text, on the runs that are under way
///
/// Each run of this user on this machine gets it. The mark is in the run's record with its time, in the report as a
/// numbered line across the time series, and in `crumb runs export --csv`. A run under crumb-mpi is marked on the
/// machine of its rank 0.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  crumb mark server stopped
  systemctl restart nfs-server && crumb mark 'nfs-server restarted'

Exit codes: 0 every run under way is marked, 1 no run is under way or one refused the mark, 2 the text is refused.")]
pub struct MarkArgs {
    /// Text of the mark: up to 200 bytes without control characters; several words are joined by spaces
    #[arg(required = true, value_name = "TEXT")]
    text: Vec<String>,
}

/// Runs the verb.
pub fn run(args: &MarkArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let text = args.text.join(" ");
    harness::marks::checked_text(&text).context(BadUsage)?;
    let asked = mark_all(&context.mark_directories, &text)?;
    let mut refused = Vec::new();
    let mut set = String::new();
    for Marked { run, answer } in &asked {
        match answer {
            MarkAnswer::Set(at_s) => set.push_str(&format!("  {run}, {at_s:.2} s after its begin\n")),
            MarkAnswer::Refused(why) => refused.push(format!("run {run}: not marked: {}", harmless(why))),
        }
    }
    if asked.is_empty() {
        bail!(
            "no run of this user is under way on this machine; start one by `crumb run`, and mark it while it measures"
        );
    }
    if !set.is_empty() && !context.quiet {
        print(&format!("marked {}:\n{set}", counted(asked.len() - refused.len(), "run", "runs")))?;
    }
    if !refused.is_empty() {
        bail!("{}", refused.join("\n"));
    }
    Ok(ExitStatus::Fine)
}
