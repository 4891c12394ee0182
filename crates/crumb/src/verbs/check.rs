//! `crumb check`: is a lower tree as a mount needs it?

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use report::count_text;
use stackfs::check::{CheckWatch, Checked, Finding, Mended, check};

use crate::context::Context;
use crate::exit::ExitStatus;
use crate::layout::{counted, named, wrapped};
use crate::output::{print, refuse_database, write_to};
use crate::progress::Progress;
use crate::signals;

/// Find and repair damage in a tree with managed directories.
///
/// Finds files in the wrong subdirectory or beside the subdirectories, interrupted conversions, subdirectories with
/// other permissions than their directory, and layout marks that contradict the entries. Repair renames and never
/// replaces a file: where a name is taken, both files stay and are reported.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    /// Tree with managed directories, or one directory of it
    #[arg(value_name = "TREE")]
    tree: PathBuf,

    /// Repair what is found; first end a `crumb mount` of the tree (`crumb unmount`)
    #[arg(long)]
    repair: bool,

    /// Write counts and findings as JSON to this file, - for standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  crumb check /news
  Repair what can be repaired without overwriting anything:
    crumb check /news --repair
  crumb check /news --json - | jq '.findings[].path'

Exit codes: 0 all is right, or is now; 1 something is not, or could not be looked at; 2 wrong usage; 130 interrupted.";

/// Runs the verb.
pub fn run(args: &CheckArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let stop = signals::stop_flag_of(context)?;
    let mut progress = Progress::new(context.quiet);
    let mut show = |directories: u64, entries: u64, path: &Path| {
        let text = format!(
            "{}, {} managed entries, at {}",
            counted(directories as usize, "directory", "directories"),
            count_text(entries),
            path.display()
        );
        progress.step(0, 1, text);
    };
    let checked = check(&args.tree, args.repair, &mut CheckWatch { progress: &mut show, stop: &stop });
    progress.finish();
    let checked = checked?;
    if let Some(path) = &args.json {
        refuse_database(path)?;
        write_to(path, &format!("{:#}\n", json_of(&checked)))?;
    }
    if args.json.as_deref() != Some(Path::new("-")) {
        print(&shown(&checked, context.verbose > 0))?;
    }
    let tree = args.tree.display();
    if !checked.complete {
        let so_far = if args.repair { "what was repaired stays; " } else { "" };
        let looked = counted(checked.directories as usize, "directory", "directories");
        bail!(
            "{tree}: interrupted after {looked}, the rest was not looked at; {so_far}run it again for all of it"
        );
    }
    if !checked.is_right() {
        let open = counted(checked.open as usize, "problem remains", "problems remain");
        if args.repair {
            bail!("{tree}: {open}; the fix is listed with each");
        }
        let open = counted(checked.open as usize, "problem", "problems");
        bail!("{tree}: {open} found; `crumb check {tree} --repair` repairs what can be repaired");
    }
    Ok(ExitStatus::Fine)
}

fn shown(checked: &Checked, verbose: bool) -> String {
    let mut text = named("Directories", &count_text(checked.directories));
    text.push_str(&named("Managed", &count_text(checked.managed)));
    text.push_str(&named("Entries in them", &count_text(checked.entries)));
    if verbose {
        text.push_str(&named("Empty subdirectories", &count_text(checked.empty_subdirectories)));
    }
    for (kind, count) in &checked.counts {
        text.push_str(&named(&format!("Found: {kind}"), &count_text(*count)));
    }
    for finding in &checked.findings {
        text.push_str(&wrapped("  - ", &line_of(finding)));
    }
    let found: u64 = checked.counts.iter().map(|(_, count)| count).sum();
    if let Some(more) = found.checked_sub(checked.findings.len() as u64).filter(|more| *more > 0) {
        text.push_str(&format!("  and {} more\n", count_text(more)));
    }
    let verdict = match (checked.is_right(), found) {
        (false, _) => "WRONG",
        (true, 0) => "RIGHT",
        (true, _) => "RIGHT now",
    };
    text + &named("Verdict", verdict)
}

fn line_of(finding: &Finding) -> String {
    let mended = match &finding.mended {
        Mended::NotTried => String::new(),
        Mended::Done => ": repaired".to_owned(),
        Mended::Not(why) => format!(": not repaired: {why}"),
    };
    format!("{}: {}{mended}", finding.path.display(), finding.text)
}

fn json_of(checked: &Checked) -> serde_json::Value {
    let counts: serde_json::Map<String, serde_json::Value> =
        checked.counts.iter().map(|(kind, count)| (kind.name().to_owned(), (*count).into())).collect();
    let finding = |finding: &Finding| {
        let (mended, why) = match &finding.mended {
            Mended::NotTried => (None, None),
            Mended::Done => (Some(true), None),
            Mended::Not(why) => (Some(false), Some(why)),
        };
        serde_json::json!({
            "kind": finding.kind.name(),
            "path": finding.path.display().to_string(),
            "text": finding.text,
            "mended": mended,
            "why_not": why,
        })
    };
    serde_json::json!({
        "right": checked.is_right(),
        "complete": checked.complete,
        "directories": checked.directories,
        "managed": checked.managed,
        "entries": checked.entries,
        "empty_subdirectories": checked.empty_subdirectories,
        "open": checked.open,
        "counts": counts,
        "findings": checked.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}
