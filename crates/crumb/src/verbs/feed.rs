//! `crumb feed`: the articles that `crumb run netnews` stores: brought in, multiplied, made up, described.

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use bytesize::ByteSize;
use clap::{Args, Subcommand};
use netnews::NetnewsError;
use netnews::article::Broken;
use netnews::feed::import::{ImportConfig, Imported, LetterGroups, Order, import};
use netnews::feed::synthesize::{Comparison, GROUPS_MAX, GROUPS_MIN, SynthesisConfig, synthesize};
use netnews::feed::{Feed, FeedProgress, FeedShape, Origin, Sizes, Stat, Watch, clone, stat};
use report::{bytes_text, count_text};

use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::{grid, named, shortened, wrapped};
use crate::output::{note, print};
use crate::progress::Progress;
use crate::signals;
use crate::verbs::feed_verify::{self, VerifyArgs};

#[derive(Args, Debug)]
pub struct FeedArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Make a feed of real articles: a tree of files, a spool, a mailbox, rnews batches
    ///
    /// What a file is shows in its first bytes; gzip is unpacked. What is no article is counted, and set aside in
    /// FEED/broken with its reason. Articles whose message id came before are kept: duplicates are part of a feed.
    #[command(after_help = "\
Examples:
  A news server's spool; cross-posts, which are links there, come once:
    crumb feed import /var/spool/news/articles -o feed
  A mailbox of an archive, and batches of another server:
    crumb feed import comp.misc.mbox.gz -o feed
    crumb feed import batches/ --order path -o feed
  Mail, each folder as a group, or all of it as one:
    crumb feed import ~/Maildir --letters folder -o feed
    crumb feed import list.mbox --letters mail.list -o feed
  Then:
    crumb feed stat feed

Exit status: 0 fine, 1 nothing was made, 2 wrong usage, 3 made, but more was set aside than taken.")]
    Import(ImportArgs),
    /// Multiply a feed: the same articles again by other message ids
    ///
    /// Message-ID, Supersedes and the target of a cancel get a clone number behind their host; nothing else changes.
    #[command(after_help = "\
Examples:
  Three times the articles, as the paper made a week out of half a week:
    crumb feed clone feed 2 -o feed-x3")]
    Clone(CloneArgs),
    /// Make up a feed of any size from a model of real ones; no download
    ///
    /// Sizes, groups, cross-posts, paths, duplicates, cancels and arrivals follow real statistics; names and text are
    /// made up. Same model, seed and number: same bytes.
    #[command(after_help = "\
Examples:
  As many articles as the paper's half week of August 1995 (0.9 GB):
    crumb feed synthesize --articles 300150 --seed 1 -o feed
  A small one to try things with:
    crumb feed synthesize --articles 10000 --seed 1 -o small")]
    Synthesize(SynthesizeArgs),
    /// Describe a feed: counts, sizes, groups, cross-posts, duplicates, cancels
    #[command(after_help = "\
Examples:
  crumb feed stat feed
  crumb feed stat feed --top 50
  crumb feed stat feed --json - | jq .stat.article_bytes")]
    Stat(StatArgs),
    /// Check a spool that `crumb run netnews --keep` left: every file against history, and against its feed
    #[command(after_help = feed_verify::EXAMPLES)]
    Verify(Box<VerifyArgs>),
}

/// How a feed is cut and packed.
#[derive(Args, Debug)]
struct ShapeArgs {
    /// Directory to make
    #[arg(short, long, value_name = "FEED")]
    output: PathBuf,
    /// Articles a batch; the paper's batches had 109
    #[arg(long, value_name = "N", default_value = "109")]
    batch_articles: NonZeroU64,
    /// Pack the batches by gzip
    #[arg(long)]
    gzip: bool,
}

impl ShapeArgs {
    fn shape(&self) -> FeedShape {
        FeedShape { batch_articles: self.batch_articles, packed: self.gzip }
    }
}

#[derive(Args, Debug)]
struct ImportArgs {
    /// A file or a directory
    #[arg(value_name = "SOURCE")]
    source: PathBuf,
    #[command(flatten)]
    shape: ShapeArgs,
    /// In which order the files of a tree become a feed
    #[arg(long, value_enum, default_value = "date", value_name = "ORDER")]
    order: OrderFlag,
    /// Set larger articles aside, such as 1MiB
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = article_max)]
    article_max: ByteSize,
    /// Take mail, which names no newsgroups: into a group for each folder, for each List-Id, or into this one
    #[arg(long, value_name = "folder|list-id|GROUP", value_parser = LetterGroups::from_str)]
    letters: Option<LetterGroups>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum OrderFlag {
    /// By the Date of the first article in a file, as a feed mixes its groups
    Date,
    /// By path, numbers by value: for batches, and for trees too large to keep their names in memory
    Path,
}

#[derive(Args, Debug)]
struct CloneArgs {
    /// The feed to multiply
    #[arg(value_name = "FEED")]
    feed: PathBuf,
    /// Copies besides the original
    #[arg(value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    clones: u64,
    /// Directory to make
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Pack the batches by gzip
    #[arg(long)]
    gzip: bool,
}

#[derive(Args, Debug)]
struct SynthesizeArgs {
    /// Articles to make, duplicates and cancels among them; about 3 KB each
    #[arg(long, value_name = "N")]
    articles: NonZeroU64,
    /// Same seed, same bytes
    #[arg(long, value_name = "S", default_value = "42")]
    seed: u64,
    /// Groups that articles can name
    #[arg(long, value_name = "N", default_value = "2000",
        value_parser = clap::value_parser!(u32).range(i64::from(GROUPS_MIN)..=i64::from(GROUPS_MAX)))]
    groups: u32,
    #[command(flatten)]
    shape: ShapeArgs,
}

#[derive(Args, Debug)]
struct StatArgs {
    /// A feed's directory
    #[arg(value_name = "FEED")]
    feed: PathBuf,
    /// Groups to list, the largest first
    #[arg(long, value_name = "N", default_value = "10")]
    top: usize,
    /// Write all figures as JSON to this file, - for standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the verb.
pub fn run(args: FeedArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    match args.what {
        What::Verify(args) => return feed_verify::run(&args, context),
        What::Import(args) => {
            let config = ImportConfig {
                source: args.source,
                shape: args.shape.shape(),
                order: match args.order {
                    OrderFlag::Date => Order::Date,
                    OrderFlag::Path => Order::Path,
                },
                article_bytes_max: usize::try_from(args.article_max.as_u64()).unwrap_or(usize::MAX),
                letters: args.letters,
            };
            let imported = watched(context, "articles", |watch| import(&config, &args.shape.output, watch))?;
            print(&import_text(&imported))?;
            let broken: u64 = imported.broken.values().sum();
            if broken > imported.feed.articles() {
                note(context, mostly_broken(&config, &imported, broken).trim_end());
                return Ok(ExitStatus::Invalid);
            }
        }
        What::Clone(args) => {
            let feed = opened(&args.feed)?;
            let work = |watch: &mut Watch<'_>| clone(&feed, args.clones, &args.output, args.gzip, watch);
            let cloned = watched(context, "articles", work)?;
            let (first, last) = cloned.numbers;
            let numbers = if first == last { format!("{first}") } else { format!("{first} to {last}") };
            print(&(feed_text(&cloned.feed) + &named("Clone numbers", &numbers)))?;
        }
        What::Synthesize(args) => {
            let config = SynthesisConfig {
                articles: args.articles,
                seed: args.seed,
                groups: args.groups,
                shape: args.shape.shape(),
            };
            let made = watched(context, "articles", |watch| synthesize(&config, &args.shape.output, watch))?;
            print(&(feed_text(&made.feed) + "\n" + &comparison_text(&made.comparison)))?;
            for figure in made.comparison.off() {
                note(
                    context,
                    wrapped(
                        "warning: ",
                        &format!(
                            "{}: {} and not {}, as the model has it; {} are allowed for a feed of this size",
                            figure.name,
                            figure_text(figure.feed),
                            figure_text(figure.model),
                            figure_text(figure.allowed)
                        ),
                    )
                    .trim_end(),
                );
            }
        }
        What::Stat(args) => {
            let feed = opened(&args.feed)?;
            let found = watched(context, "articles read", |watch| stat(&feed, watch))?;
            match &args.json {
                Some(path) => write_json(path, &feed, &found, args.top)?,
                None => print(&(feed_text(&feed) + &stat_text(&found, args.top)))?,
            }
        }
    }
    Ok(ExitStatus::Fine)
}

/// A feed named wrongly is bad usage.
pub(in crate::verbs) fn opened(path: &Path) -> anyhow::Result<Feed> {
    Feed::open(path).map_err(|error| match error {
        NetnewsError::NoFeed { .. } => anyhow::Error::new(error).context(BadUsage),
        error => error.into(),
    })
}

/// Does `work` under a bar, ended by Ctrl-C.
fn watched<T>(
    context: &Context,
    what: &str,
    work: impl FnOnce(&mut Watch<'_>) -> Result<T, NetnewsError>,
) -> anyhow::Result<T> {
    let stop = signals::stop_flag_of(context)?;
    let stop: &AtomicBool = &stop;
    let mut progress = Progress::new(context.quiet);
    let mut show = |now: FeedProgress| {
        let of = now.articles_total.map(|total| format!(" of {}", count_text(total))).unwrap_or_default();
        if now.files_sorted > 0 {
            let text = format!("{} files looked at for their dates", count_text(now.files_sorted));
            return progress.step(0, 1, text);
        }
        let text = format!("{}{of} {what}, {}", count_text(now.articles), bytes_text(now.bytes));
        progress.step(now.articles, now.articles_total.unwrap_or(0).max(now.articles), text);
    };
    let done = work(&mut Watch { progress: &mut show, stop });
    progress.finish();
    done.map_err(|error| match error {
        NetnewsError::FeedExists { .. }
        | NetnewsError::NoDirectoryFor { .. }
        | NetnewsError::NotEmpty { .. }
        | NetnewsError::SourceIsFeed { .. } => anyhow::Error::new(error).context(BadUsage),
        error => error.into(),
    })
}

fn feed_text(feed: &Feed) -> String {
    let manifest = feed.manifest();
    let mut text = named("Feed", &feed.path().display().to_string());
    text.push_str(&named("From", &origin_text(&manifest.origin)));
    let packed =
        if manifest.packed { format!(", packed {}", bytes_text(manifest.file_bytes)) } else { String::new() };
    text.push_str(&named(
        "Articles",
        &format!("{}, {}{packed}", count_text(feed.articles()), bytes_text(feed.bytes())),
    ));
    text.push_str(&named("Batches", &count_text(feed.batch_count())));
    text
}

fn origin_text(origin: &Origin) -> String {
    match origin {
        Origin::Import { source, .. } => format!("import of {source}"),
        Origin::Synthesize { model, seed } => format!("model {model}, seed {seed}"),
        Origin::Clone { source, clones, of } => {
            format!("{source} and {clones} of its clones; that from {}", origin_text(of))
        }
    }
}

fn import_text(imported: &Imported) -> String {
    let mut text = feed_text(&imported.feed);
    text.push_str(&named("Files read", &count_text(imported.files)));
    let some = |text: &mut String, name: &str, count: u64, what: &str| {
        if count > 0 {
            text.push_str(&named(name, &format!("{}{what}", count_text(count))));
        }
    };
    some(&mut text, "Hard links", imported.hard_links, " further names of files read: cross-posts");
    some(&mut text, "Not followed", imported.skipped, " symbolic links, devices, hidden names");
    some(&mut text, "CRLF made LF", imported.crlf, " articles");
    some(&mut text, "Letters", imported.letters, " given a group");
    some(
        &mut text,
        "Duplicates kept",
        imported.feed.manifest().duplicates,
        " articles with an id that came before",
    );
    let broken: u64 = imported.broken.values().sum();
    if broken > 0 {
        let place = imported.feed.path().join("broken");
        text.push_str(&named("Set aside", &format!("{} in {}:", count_text(broken), place.display())));
        for (why, count) in &imported.broken {
            text.push_str(&wrapped(
                &format!("{:>12}  ", count_text(*count)),
                &format!("{}: {why}", why.name()),
            ));
        }
    }
    text
}

/// What to say, and to do, when more was set aside than taken.
fn mostly_broken(config: &ImportConfig, imported: &Imported, broken: u64) -> String {
    let taken = count_text(imported.feed.articles());
    let mut text = format!("{} were set aside and {taken} taken", count_text(broken));
    let without_groups = imported.broken.get(&Broken::NoNewsgroups).copied().unwrap_or(0);
    if 2 * without_groups >= broken {
        text.push_str(&format!(", {} of them for they name no newsgroups", count_text(without_groups)));
        text.push_str(match config.letters {
            None => {
                "; when they are letters, --letters folder, --letters list-id or --letters GROUP takes them"
            }
            Some(_) => " and have no List-Id; --letters folder or --letters GROUP takes them",
        });
    }
    wrapped("warning: ", &text)
}

fn comparison_text(comparison: &Comparison) -> String {
    let rows: Vec<Vec<String>> = comparison
        .figures
        .iter()
        .map(|figure| {
            vec![
                figure.name.to_owned(),
                figure_text(figure.model),
                figure_text(figure.feed),
                format!("±{}", figure_text(figure.allowed)),
                if figure.is_off() { "OFF" } else { "ok" }.to_owned(),
            ]
        })
        .collect();
    grid(&["figure", "model", "feed", "allowed", ""], 1, &rows)
}

fn figure_text(figure: f64) -> String {
    match figure.abs() {
        size if size >= 99.5 => count_text(figure.round() as u64),
        size if size >= 9.95 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

fn stat_text(stat: &Stat, top: usize) -> String {
    let share = |count: u64| {
        let percent = 100.0 * count as f64 / stat.articles.max(1) as f64;
        format!("{} ({percent:.2}%)", count_text(count))
    };
    let mut text = String::new();
    if let Some((first, last)) = stat.dated {
        let day = |unix| {
            jiff::Timestamp::from_second(unix)
                .map_or_else(|_| unix.to_string(), |at| at.strftime("%Y-%m-%d").to_string())
        };
        text.push_str(&named("Dated", &format!("{} to {}", day(first), day(last))));
    }
    text.push_str(&named("Cross-posted", &share(stat.cross_posted)));
    text.push_str(&named("Duplicates", &share(stat.duplicates)));
    text.push_str(&named("Cancels", &share(stat.cancels)));
    text.push_str(&named("Other control messages", &share(stat.other_controls)));
    text.push_str(&named("Supersedes", &share(stat.supersedes)));
    text.push_str(&named("Hosts in Path", &format!("{:.1}", stat.path_hosts_mean)));
    let malformed = match stat.groups_malformed {
        0 => String::new(),
        count => format!(", and {} malformed names", count_text(count)),
    };
    text.push_str(&named("Groups", &(count_text(stat.groups) + &malformed)));
    text.push_str(&named(
        "Names in the spool",
        &format!("{} files and links", count_text(stat.group_entries)),
    ));
    for (why, count) in &stat.broken {
        text.push_str(&named("No article", &format!("{}: {why}", share(*count))));
    }
    text.push('\n');
    let sizes = |name: &str, of: &Sizes| {
        let mean = count_text(of.mean.round() as u64);
        let mut row = vec![name.to_owned()];
        row.extend([of.min, of.p10, of.p50].map(count_text));
        row.push(mean);
        row.extend([of.p90, of.p99, of.max].map(count_text));
        row
    };
    let rows = [sizes("article", &stat.article_bytes), sizes("header", &stat.head_bytes)];
    text.push_str(&grid(&["bytes", "min", "p10", "median", "mean", "p90", "p99", "max"], 1, &rows));
    text.push('\n');
    let rows: Vec<Vec<String>> = stat
        .articles_by_group_count
        .iter()
        .map(|(groups, articles)| {
            let percent = 100.0 * *articles as f64 / stat.articles.max(1) as f64;
            vec![count_text(*groups), count_text(*articles), format!("{percent:.2}")]
        })
        .collect();
    text.push_str(&grid(&["groups named", "articles", "%"], 0, &rows));
    if top > 0 {
        text.push('\n');
        let row = |group: &netnews::feed::GroupStat| {
            vec![shortened(&group.name, 50), count_text(group.articles), bytes_text(group.bytes)]
        };
        let rows: Vec<Vec<String>> = stat.by_group.iter().take(top).map(row).collect();
        text.push_str(&grid(&["group", "articles", "bytes"], 1, &rows));
        if let Some(more) = stat.by_group.len().checked_sub(top).filter(|more| *more > 0) {
            text.push_str(&format!("{} more groups; --top N lists more\n", count_text(more as u64)));
        }
    }
    text
}

fn write_json(path: &Path, feed: &Feed, stat: &Stat, top: usize) -> anyhow::Result<()> {
    let value = serde_json::json!({ "feed": feed.manifest(), "stat": stat });
    let mut json = serde_json::to_string_pretty(&value).context("cannot write the figures as JSON")?;
    json.push('\n');
    if path == Path::new("-") {
        return print(&json);
    }
    crate::output::refuse_database(path)?;
    std::fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
    print(&(feed_text(feed) + &stat_text(stat, top)))
}

fn article_max(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse()?;
    let range = ByteSize::kib(1)..=ByteSize::gib(1);
    if range.contains(&size) { Ok(size) } else { Err("expected 1KiB to 1GiB".to_owned()) }
}
