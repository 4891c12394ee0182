//! `crumb advise --predict`: when a directory's index, the inodes and the bytes run out.
//!
//! Not here: how that is found (`dirlimit`).

use std::time::{Duration, SystemTime};

use dirlimit::{
    Basis, Days, DirectoryPrediction, Growth, Limit, Names, Options, Prediction, Resource, Watch,
};
use report::{bytes_text, count_text};

use super::{AdviseArgs, tell};
use crate::context::Context;
use crate::exit::ExitStatus;
use crate::layout::{counted, grid, named, shortened, wrapped};
use crate::progress::Progress;
use crate::signals;

/// Dates further away than this are no dates.
const FAR_DAYS: f64 = 36_525.0;

/// Runs the verb with that flag.
pub(super) fn run(args: &AdviseArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let stop = signals::stop_flag_of(context)?;
    let mut progress = Progress::new(context.quiet);
    let mut show = |directories: u64, names: u64| {
        let directories = counted(directories as usize, "directory", "directories");
        progress.step(0, 1, format!("counting: {directories}, {} names", count_text(names)));
    };
    let options = Options { growth_per_day: args.growth, name_bytes: args.name_length, top: args.top };
    let found = dirlimit::predict(&args.tree, &options, &mut Watch { progress: &mut show, stop: &stop });
    progress.finish();
    let answer = PredictionText { prediction: &found?, now: SystemTime::now() };
    tell(&answer.text(), &answer.json(), args.json.as_deref())
}

/// A prediction, as it is printed on a day.
struct PredictionText<'a> {
    prediction: &'a Prediction,
    now: SystemTime,
}

impl PredictionText<'_> {
    /// For people.
    fn text(&self) -> String {
        let found = self.prediction;
        let mut text = named("Tree", &found.tree.display().to_string());
        text.push_str(&named(
            "Counted",
            &format!(
                "{} in {}",
                counted(found.names as usize, "name", "names"),
                counted(found.directories_counted as usize, "directory", "directories")
            ),
        ));
        if found.unreadable > 0 {
            let unreadable = counted(found.unreadable as usize, "directory", "directories");
            text.push_str(&named("Not readable", &unreadable));
        }
        text.push_str(&named("File system", &file_system_text(found)));
        text.push_str(&named("Growth", &growth_text(&found.growth)));
        if let Some(inodes) = &found.inodes {
            let free = format!("{} free", count_text(inodes.free));
            text.push_str(&named("Inodes", &format!("{free}{}", self.when(inodes))));
        }
        let free = format!("{} free", bytes_text(found.bytes.free));
        text.push_str(&named("Bytes", &format!("{free}{}", self.when(&found.bytes))));
        if !found.directories.is_empty() {
            text.push('\n');
            let rows: Vec<Vec<String>> = found.directories.iter().map(|one| self.row(one)).collect();
            let heads = ["directory", "names", "refuses a name at", "between", "and"];
            text.push_str(&grid(&heads, 1, &rows));
        }
        text.push('\n');
        text.push_str(&named("Verdict", &self.verdict()));
        let notes = found.assumptions.iter().map(|one| wrapped("  note: ", one));
        text + &notes.collect::<String>()
    }

    fn when(&self, resource: &Resource) -> String {
        match &resource.days {
            Some(days) => format!(": {}", self.dates_text(days)),
            None => String::new(),
        }
    }

    fn row(&self, directory: &DirectoryPrediction) -> Vec<String> {
        let path = directory.path.strip_prefix(&self.prediction.tree).unwrap_or(&directory.path);
        let name = if path.as_os_str().is_empty() { ".".to_owned() } else { path.display().to_string() };
        let (from, to) = match &directory.days {
            Some(days) => {
                (self.date(days.from), days.to.map_or_else(|| "never".to_owned(), |to| self.date(to)))
            }
            None => ("-".to_owned(), "-".to_owned()),
        };
        vec![shortened(&name, 20), count_text(directory.names), limit_text(&directory.limit), from, to]
    }

    fn verdict(&self) -> String {
        let found = self.prediction;
        let of_directories = found.directories.iter().filter_map(|one| {
            let Limit::Index(names) = &one.limit else { return None };
            let text = format!("the index of {} is full at {} names", one.path.display(), names_text(names));
            one.days.map(|days| (days, text))
        });
        let of_inodes = found.inodes.and_then(|inodes| inodes.days);
        let of_inodes = of_inodes.map(|days| (days, "the inodes run out".to_owned()));
        let of_bytes = found.bytes.days.map(|days| (days, "the bytes run out".to_owned()));
        let first =
            of_directories.chain(of_inodes).chain(of_bytes).min_by(|a, b| a.0.from.total_cmp(&b.0.from));
        match first {
            Some((days, what)) => format!("first, {what}: {}", self.dates_text(&days)),
            None if found.growth.basis == Basis::Unknown => {
                "no date: the growth is not known; give it with --growth".to_owned()
            }
            None => "nothing runs out: no name was made in the last 7 days".to_owned(),
        }
    }

    fn dates_text(&self, days: &Days) -> String {
        match days.to {
            _ if days.from > FAR_DAYS => "in more than 100 years".to_owned(),
            Some(to) => match (self.date(days.from), self.date(to)) {
                (from, to) if from == to => format!("on {from}"),
                (from, to) => format!("between {from} and {to}"),
            },
            None => format!("not before {}", self.date(days.from)),
        }
    }

    fn date(&self, days: f64) -> String {
        if days > FAR_DAYS {
            return "> 100 years".to_owned();
        }
        let then = self.now + Duration::from_secs_f64(days * 86_400.0);
        jiff::Timestamp::try_from(then)
            .map_or_else(|_| "-".to_owned(), |then| then.strftime("%Y-%m-%d").to_string())
    }

    /// For programs.
    fn json(&self) -> serde_json::Value {
        let found = self.prediction;
        let directory = |one: &DirectoryPrediction| {
            let names = if let Limit::Index(names) = &one.limit { Some(*names) } else { None };
            serde_json::json!({
                "path": one.path.display().to_string(),
                "names": one.names,
                "blocks": one.blocks,
                "name_bytes_mean": one.name_bytes,
                "limit": limit_code(&one.limit),
                "names_when_full_low": names.map(|names| names.low.round()),
                "names_when_full_high": names.map(|names| names.high.round()),
                "growth_per_day": growth_json(&one.growth),
                "full": self.days_json(one.days.as_ref()),
            })
        };
        let resource = |one: &Resource| serde_json::json!({ "free": one.free, "out": self.days_json(one.days.as_ref()) });
        let system = &found.file_system;
        serde_json::json!({
            "tree": found.tree.display().to_string(),
            "names": found.names,
            "directories_counted": found.directories_counted,
            "unreadable": found.unreadable,
            "file_system": system.kind,
            "block_bytes": system.block_bytes,
            "large_dir": system.superblock.map(|features| features.large_dir),
            "metadata_csum": system.superblock.map(|features| features.checksums),
            "growth_per_day": growth_json(&found.growth),
            "inodes": found.inodes.as_ref().map(resource),
            "bytes": resource(&found.bytes),
            "bytes_per_name": found.bytes_per_name,
            "directories": found.directories.iter().map(directory).collect::<Vec<_>>(),
            "assumptions": found.assumptions,
        })
    }

    fn days_json(&self, days: Option<&Days>) -> serde_json::Value {
        let date = |days: f64| (days <= FAR_DAYS).then(|| self.date(days));
        days.map_or(serde_json::Value::Null, |days| {
            serde_json::json!({
                "days_low": days.from,
                "days_high": days.to,
                "date_low": date(days.from),
                "date_high": days.to.and_then(date),
            })
        })
    }
}

fn file_system_text(found: &Prediction) -> String {
    let system = &found.file_system;
    let kind = if system.kind.is_empty() { "unknown" } else { &system.kind };
    let features = match &system.superblock {
        Some(features) => {
            let with = |name: &str, on: bool| format!("{} {name}", if on { "with" } else { "without" });
            format!(
                ", {}, {}",
                with("large_dir", features.large_dir),
                with("metadata_csum", features.checksums)
            )
        }
        None => String::new(),
    };
    format!("{kind}, blocks of {} bytes{features}", count_text(u64::from(system.block_bytes)))
}

fn growth_text(growth: &Growth) -> String {
    let names = |per_day: f64| count_text(per_day.round() as u64);
    match growth.basis {
        Basis::Given => format!("{} names a day, as given", names(growth.per_day)),
        Basis::Unknown => "not known".to_owned(),
        Basis::Sampled { window, sampled, recent, .. } => {
            let window = match window.as_secs_f64() / 3600.0 {
                hours if hours < 47.0 => format!("{hours:.0} h"),
                hours => format!("{:.0} days", hours / 24.0),
            };
            format!(
                "{} names a day (95%: {} to {}): {} of {} sampled names were made in the last {window}",
                names(growth.per_day),
                names(growth.low),
                names(growth.high),
                count_text(recent as u64),
                count_text(sampled as u64)
            )
        }
    }
}

fn growth_json(growth: &Growth) -> serde_json::Value {
    match growth.basis {
        Basis::Unknown => serde_json::Value::Null,
        basis => serde_json::json!({
            "mean": growth.per_day,
            "low": growth.low,
            "high": growth.high,
            "given": basis == Basis::Given,
        }),
    }
}

fn limit_text(limit: &Limit) -> String {
    match limit {
        Limit::Index(names) => names_text(names),
        Limit::LargeDir => "large_dir: inodes first".to_owned(),
        Limit::LargeBlocks => "inodes first".to_owned(),
        Limit::NoIndex => "no index".to_owned(),
        Limit::NoNames => "--name-length needed".to_owned(),
        Limit::None => "no limit".to_owned(),
    }
}

fn limit_code(limit: &Limit) -> &'static str {
    match limit {
        Limit::Index(_) => "index",
        Limit::LargeDir => "large-dir",
        Limit::LargeBlocks => "large-blocks",
        Limit::NoIndex => "no-index",
        Limit::NoNames => "no-names",
        Limit::None => "none",
    }
}

/// Both ends in one unit, rounded outwards to three or four digits.
fn names_text(names: &Names) -> String {
    let (unit, word, digits) = match names.high {
        high if high >= 1e6 => (1e6, " million", 2),
        high if high >= 1e4 => (1e3, ",000", 0),
        _ => (1.0, "", 0),
    };
    let scale = 10_f64.powi(digits);
    let (low, high) =
        ((names.low / unit * scale).floor() / scale, (names.high / unit * scale).ceil() / scale);
    let digits = digits as usize;
    match unit {
        1e3 => format!("{low:.0}{word} to {high:.0}{word}"),
        _ => format!("{low:.digits$} to {high:.digits$}{word}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_names_are_rounded_outwards() {
        let text = |low, high| names_text(&Names { low, high });
        assert_eq!(text(1_476_700.0, 1_556_100.0), "1.47 to 1.56 million");
        assert_eq!(text(246_900.0, 277_100.0), "246,000 to 278,000");
        assert_eq!(text(900.5, 1100.2), "900 to 1101");
    }
}
