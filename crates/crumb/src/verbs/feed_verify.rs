//! `crumb feed verify`: is a spool that `crumb run netnews --keep` left what history and the feed say?

use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use files::Target;
use netnews::spool::{FindingKind, Storage, Verified, Whereabouts, name_of, verify};
use report::count_text;

use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::{named, wrapped};
use crate::openers::FileSystemArgs;
use crate::output::print;
use crate::progress::Progress;
use crate::signals;
use crate::verbs::feed::opened;

#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// The spool's directory, such as /mnt/disk/crumb-netnews-NAME, or the same by nfs://
    #[arg(value_name = "SPOOL")]
    spool: String,
    /// The feed that was stored: compare every article with it, but for Path: and Xref:
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
  Keep a spool, then hold it against the feed it came from:
    crumb run netnews /mnt/disk --feed feed --keep mine
    crumb feed verify /mnt/disk/crumb-netnews-mine --feed feed

Without --feed it is checked that history, active, its index and every file and link agree, and not what is in the
articles. A spool whose run was killed is UNFINISHED; continue it with --resume.
Exit status: 0 all is right, 1 something is not, or could not be looked at, 2 wrong usage, 130 interrupted.";

/// Runs the verb.
pub fn run(args: &VerifyArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let (parent, directory) = split(&args.spool).map_err(|error| error.context(BadUsage))?;
    let name = name_of(Path::new(&directory)).ok_or_else(|| {
        anyhow!("{}: a spool's directory is called crumb-netnews-NAME", args.spool).context(BadUsage)
    })?;
    let stop = signals::stop_flag_of(context)?;
    let open =
        |target: &str| -> anyhow::Result<_> { args.file_system.open(&Target::from_str(target)?, &stop) };
    let spool = open(&parent)?;
    let where_else = Whereabouts::read(&*spool, name)?;
    let history = where_else.history.as_deref().map(open).transpose()?;
    let places = where_else
        .places
        .iter()
        .map(|(hierarchy, target)| Ok((hierarchy.clone(), open(target)?)))
        .collect::<anyhow::Result<_>>()?;
    let feed = args.feed.as_deref().map(opened).transpose()?;

    let mut progress = Progress::new(context.quiet);
    let storage = Storage { spool, history, places };
    let verified = verify(&storage, name, feed.as_ref(), &stop, &mut |done, of| {
        let text = format!("looking at articles: {} of {}", count_text(done), count_text(of));
        progress.step(done, of, text);
    });
    progress.finish();
    let verified = verified?;
    let checked = Checked { verified: &verified, with_feed: feed.is_some(), target: &parent, name };
    let json = args.json.as_ref().map(|path| (path, checked.json()));
    match json {
        Some((path, json)) if path == Path::new("-") => print(&format!("{json:#}\n"))?,
        Some((path, json)) => {
            crate::output::refuse_database(path)?;
            std::fs::write(path, format!("{json:#}\n"))
                .with_context(|| format!("cannot write {}", path.display()))?;
            print(&checked.shown())?;
        }
        None => print(&checked.shown())?,
    }
    if checked.is_unfinished() {
        bail!("{}: the run of this spool was cut short: {}", args.spool, checked.what_to_do());
    }
    if !verified.is_right() {
        let found: u64 = verified.counts.values().sum();
        bail!("{}: {} findings; the spool is not what history says", args.spool, count_text(found));
    }
    Ok(ExitStatus::Fine)
}

/// What holds the spool, as a target, and the name of its directory.
fn split(spool: &str) -> anyhow::Result<(String, String)> {
    let (url, options) = spool.split_once('?').map_or((spool, None), |(url, options)| (url, Some(options)));
    let url = url.trim_end_matches('/');
    let (parent, directory) = url.rsplit_once('/').unwrap_or((".", url));
    if directory.is_empty() {
        bail!("`{spool}`: no spool is named");
    }
    let parent = if parent.is_empty() { "/" } else { parent };
    // An export that is the server's root is written with its slash.
    let bare_host = parent.strip_prefix("nfs://").is_some_and(|rest| !rest.contains('/'));
    let slash = if bare_host { "/" } else { "" };
    let options = options.map_or_else(String::new, |options| format!("?{options}"));
    Ok((format!("{parent}{slash}{options}"), directory.to_owned()))
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
    /// Whether a run was killed in it, so that what is found is what that run left undone.
    fn is_unfinished(&self) -> bool {
        self.verified.counts.contains_key(&FindingKind::NotClosed)
    }

    fn what_to_do(&self) -> String {
        format!(
            "go on with it, which also puts it in order (crumb run netnews {} --resume {}, with the flags of before), then \
             verify it",
            self.target, self.name
        )
    }

    fn verdict(&self) -> String {
        if self.is_unfinished() {
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
        let mut json = json_of(self.verified);
        json["feed_given"] = self.with_feed.into();
        json["unfinished"] = self.is_unfinished().into();
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

fn json_of(verified: &Verified) -> serde_json::Value {
    let kind = |kind: &FindingKind| kind.name().to_owned();
    let counts: serde_json::Map<String, serde_json::Value> =
        verified.counts.iter().map(|(of, count)| (kind(of), (*count).into())).collect();
    let findings: Vec<_> = verified
        .findings
        .iter()
        .map(|finding| serde_json::json!({ "kind": finding.kind.name(), "text": finding.text }))
        .collect();
    serde_json::json!({
        "right": verified.is_right(),
        "articles": verified.articles,
        "names": verified.names,
        "remembered": verified.remembered,
        "groups": verified.groups,
        "compared": verified.compared,
        "counts": counts,
        "findings": findings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spool_is_split_into_its_target_and_its_directory() {
        let split = |spool: &str| split(spool).map_err(|error| error.to_string());
        let is = |parent: &str, directory: &str| Ok((parent.to_owned(), directory.to_owned()));
        assert_eq!(split("/mnt/crumb-netnews-a/"), is("/mnt", "crumb-netnews-a"));
        assert_eq!(split("crumb-netnews-a"), is(".", "crumb-netnews-a"));
        assert_eq!(split("/crumb-netnews-a"), is("/", "crumb-netnews-a"));
        assert_eq!(
            split("nfs://h:2049/x/crumb-netnews-a?proto=udp"),
            is("nfs://h:2049/x?proto=udp", "crumb-netnews-a")
        );
        assert_eq!(split("nfs://h/crumb-netnews-a"), is("nfs://h/", "crumb-netnews-a"));
        assert!(split("/").is_err());
    }
}
