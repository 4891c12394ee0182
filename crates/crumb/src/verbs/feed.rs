//! `crumb feed`: the articles that `crumb run netnews` stores: brought in, multiplied, made up, described.

mod flags;
mod texts;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use netnews::NetnewsError;
use netnews::feed::import::{ImportConfig, Order, import};
use netnews::feed::synthesize::{SynthesisConfig, synthesize};
use netnews::feed::{Feed, FeedProgress, Stat, Watch, clone, stat};
use report::{bytes_text, count_text};

pub use self::flags::FeedArgs;
use self::flags::{OrderFlag, What};
use self::texts::{comparison_text, feed_text, figure_text, import_text, mostly_broken, stat_text};
use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::{named, wrapped};
use crate::output::{note, print, write_file};
use crate::progress::Progress;
use crate::signals;
use crate::verbs::feed_verify;

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
                article_bytes_max: args.article_max,
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

fn write_json(path: &Path, feed: &Feed, stat: &Stat, top: usize) -> anyhow::Result<()> {
    let value = serde_json::json!({ "feed": feed.manifest(), "stat": stat });
    let mut json = serde_json::to_string_pretty(&value).context("cannot write the figures as JSON")?;
    json.push('\n');
    if path == Path::new("-") {
        return print(&json);
    }
    crate::output::refuse_database(path)?;
    write_file(path, &json)?;
    print(&(feed_text(feed) + &stat_text(stat, top)))
}
