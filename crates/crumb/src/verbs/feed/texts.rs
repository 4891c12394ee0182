//! What `crumb feed` says of feeds, as tables.

use netnews::article::Broken;
use netnews::feed::import::{ImportConfig, Imported};
use netnews::feed::synthesize::Comparison;
use netnews::feed::{Feed, Sizes, Stat};
use report::{bytes_text, count_text};

use crate::layout::{grid, named, shortened, wrapped};

pub(super) fn feed_text(feed: &Feed) -> String {
    let manifest = feed.manifest();
    let mut text = named("Feed", &feed.path().display().to_string());
    text.push_str(&named("From", &manifest.origin.to_string()));
    let packed =
        if manifest.packed { format!(", packed {}", bytes_text(manifest.file_bytes)) } else { String::new() };
    text.push_str(&named(
        "Articles",
        &format!("{}, {}{packed}", count_text(feed.articles()), bytes_text(feed.bytes())),
    ));
    text.push_str(&named("Batches", &count_text(feed.batch_count())));
    text
}

pub(super) fn import_text(imported: &Imported) -> String {
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
        text.push_str(&named("Rejected", &format!("{} in {}:", count_text(broken), place.display())));
        for (why, count) in &imported.broken {
            text.push_str(&wrapped(
                &format!("{:>12}  ", count_text(*count)),
                &format!("{}: {why}", why.name()),
            ));
        }
    }
    text
}

/// What to say, and to do, when more was rejected than imported.
pub(super) fn mostly_broken(config: &ImportConfig, imported: &Imported, broken: u64) -> String {
    let taken = count_text(imported.feed.articles());
    let mut text = format!("{} were rejected and {taken} imported", count_text(broken));
    let without_groups = imported.broken.get(&Broken::NoNewsgroups).copied().unwrap_or(0);
    if 2 * without_groups >= broken {
        text.push_str(&format!(", {} of them because they name no newsgroups", count_text(without_groups)));
        text.push_str(match config.letters {
            None => {
                "; when they are letters, --letters folder, --letters list-id or --letters GROUP takes them"
            }
            Some(_) => " and have no List-Id; --letters folder or --letters GROUP takes them",
        });
    }
    wrapped("warning: ", &text)
}

pub(super) fn comparison_text(comparison: &Comparison) -> String {
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

pub(super) fn figure_text(figure: f64) -> String {
    match figure.abs() {
        size if size >= 99.5 => count_text(figure.round() as u64),
        size if size >= 9.95 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

pub(super) fn stat_text(stat: &Stat, top: usize) -> String {
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
