//! `crumb feed verify`: is a spool that `crumb run netnews --keep` left what history and the feed say?

use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use anyhow::bail;
use clap::Args;
use files::Target;
use netnews::NetnewsError;
use netnews::spool::{SpoolPath, Storage, Verified, Whereabouts, verify};
use report::count_text;

use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::{named, wrapped};
use crate::openers::FileSystemArgs;
use crate::output::{print, refuse_database, write_to};
use crate::progress::Progress;
use crate::signals;
use crate::verbs::feed::opened;

#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// Directory of the spool, such as /mnt/disk/crumb-netnews-NAME, or an nfs:// URL of it
    #[arg(value_name = "SPOOL")]
    spool: String,
    /// Feed that was stored: compare every article with it, except Path: and Xref:
    #[arg(long, value_name = "FEED")]
    feed: Option<PathBuf>,
    /// Write counts and findings as JSON to this file, - for standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    file_system: FileSystemArgs,
}

/// Examples for `--help`.
pub const EXAMPLES: &str = "\
Examples:
  Keep a spool, then compare it with its feed:
    crumb run netnews /mnt/disk --feed feed --keep mine
    crumb feed verify /mnt/disk/crumb-netnews-mine --feed feed

Without --feed it checks that history, active, its index and every file and link agree, but not what is in the
articles. A spool whose run was killed is UNFINISHED; continue it with --resume.
Exit codes: 0 all is right, 1 something is not, or could not be looked at, 2 wrong usage, 130 interrupted.";

/// Runs the verb.
pub fn run(args: &VerifyArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let SpoolPath { target: parent, name } =
        args.spool.parse().map_err(|error: NetnewsError| anyhow::Error::from(error).context(BadUsage))?;
    let stop = signals::stop_flag_of(context)?;
    let open =
        |target: &str| -> anyhow::Result<_> { args.file_system.open(&Target::from_str(target)?, &stop) };
    let spool = open(&parent)?;
    let where_else = Whereabouts::read(&*spool, &name)?;
    let history = where_else.history.as_deref().map(open).transpose()?;
    let places = where_else
        .places
        .iter()
        .map(|(hierarchy, target)| Ok((hierarchy.clone(), open(target)?)))
        .collect::<anyhow::Result<_>>()?;
    let feed = args.feed.as_deref().map(opened).transpose()?;

    let mut progress = Progress::new(context.quiet);
    let storage = Storage { spool, history, places };
    let verified = verify(&storage, &name, feed.as_ref(), &stop, &mut |done, of| {
        let text = format!("looking at articles: {} of {}", count_text(done), count_text(of));
        progress.step(done, of, text);
    });
    progress.finish();
    let verified = verified?;
    let checked = Checked { verified: &verified, with_feed: feed.is_some(), target: &parent, name: &name };
    if let Some(path) = &args.json {
        refuse_database(path)?;
        write_to(path, &format!("{:#}\n", checked.json()))?;
    }
    if args.json.as_deref() != Some(Path::new("-")) {
        print(&checked.shown())?;
    }
    if verified.is_unfinished() {
        bail!("{}: the run of this spool was cut short: {}", args.spool, checked.what_to_do());
    }
    if !verified.is_right() {
        let found: u64 = verified.counts.values().sum();
        bail!("{}: {} findings; the spool is not what history says", args.spool, count_text(found));
    }
    Ok(ExitStatus::Fine)
}

/// What was looked at, and how it was.
struct Checked<'a> {
    verified: &'a Verified,
    with_feed: bool,
    /// Where the spool is, as a run names it.
    target: &'a str,
    name: &'a str,
}

impl Checked<'_> {
    fn what_to_do(&self) -> String {
        format!(
            "continue it, which also repairs it (crumb run netnews {} --resume {}, with the same flags as before), then verify \
             it",
            self.target, self.name
        )
    }

    fn verdict(&self) -> String {
        if self.verified.is_unfinished() {
            return format!(
                "UNFINISHED: its run was cut short, so findings are to be expected; {}",
                self.what_to_do()
            );
        }
        let checked = "history, active, its index and every file and link agree";
        match (self.verified.is_right(), self.with_feed) {
            (false, _) => "WRONG".to_owned(),
            (true, true) => format!("RIGHT: {checked}, and the articles are those of the feed"),
            (true, false) => {
                format!("RIGHT: {checked}; not checked is what is in the articles, as no --feed was given")
            }
        }
    }

    fn shown(&self) -> String {
        let with_feed = self.with_feed;
        shown(self.verified, with_feed) + &named("Verdict", &self.verdict())
    }

    fn json(&self) -> serde_json::Value {
        let mut json = self.verified.to_json();
        json["feed_given"] = self.with_feed.into();
        json
    }
}

fn shown(verified: &Verified, with_feed: bool) -> String {
    let compared = if with_feed { count_text(verified.compared) } else { "not at all: no --feed".to_owned() };
    let mut text = [
        ("Articles", count_text(verified.articles)),
        ("Files and links", count_text(verified.names)),
        ("Ids without files", count_text(verified.remembered)),
        ("Groups", count_text(verified.groups)),
        ("Compared with the feed", compared),
    ]
    .map(|(name, text)| named(name, &text))
    .concat();
    for (kind, count) in &verified.counts {
        text.push_str(&named(kind.name(), &count_text(*count)));
    }
    for finding in &verified.findings {
        text.push_str(&wrapped(&format!("  {}: ", finding.kind), &finding.text));
    }
    text
}
