//! What a run will do and leave, reckoned before it begins: the line at its start, and `--dry-run`.
//!
//! Always holds: nothing here touches a target; what cannot be known before the run is left out, never guessed silently: a range
//! is given, or the rate that a time supposes.
//! Not here: whether results can be written (`outcome`), whether the target has room (`room`).

use std::time::Duration;

use anyhow::Context as _;
use measure::numbers::round_rate_text;
use report::{bytes_text, count_text};
use serde::Serialize;

use crate::context::Context;
use crate::exit::ExitStatus;
use crate::layout::{counted, named, wrapped};
use crate::openers::directory_is_there;
use crate::outcome::OutputArgs;
use crate::output::{print, say, write_to};
use crate::series::SeriesArgs;

/// What one run will do.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Forecast {
    /// The benchmark.
    pub benchmark: &'static str,
    /// Its target, as given.
    pub target: String,
    /// What is done, in a sentence.
    pub what: String,
    /// Load levels, sizes or passes.
    pub levels: Option<Levels>,
    /// What the schedule takes; none for a closed loop, which takes as long as the storage does.
    pub seconds: Option<Seconds>,
    /// Operations on files or requests, where they and not a schedule say how long it takes.
    pub operations: Option<u64>,
    /// Work that takes time besides, such as `the time to make the files`.
    pub besides: String,
    /// Files at once, at most.
    pub files: Option<u64>,
    /// Bytes in them, about.
    pub bytes: Option<u64>,
    /// A search's set, which grows with the rate; how far is not known before.
    pub growing: Option<Growing>,
    /// The directory in the target that the run works in.
    pub work_directory: Option<String>,
    /// The directory outlives the run, as asked for.
    pub is_kept: bool,
}

/// A set of files at the first rate of a search, and in proportion at other rates.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Growing {
    /// The first rate, requests a second.
    pub rate: f64,
    /// Files at this rate.
    pub files: u64,
    /// Bytes in them, about.
    pub bytes: u64,
}

/// How many steps a run has.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Levels {
    /// What they are: `load levels`.
    pub what: &'static str,
    /// At least.
    pub least: u64,
    /// At most.
    pub most: u64,
}

/// How long a schedule takes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Seconds {
    /// At least.
    pub least: f64,
    /// At most.
    pub most: f64,
}

/// What all runs of a series take together; nothing where the figures decide how many there are.
#[derive(Debug, Default, Serialize)]
struct Total {
    seconds: Option<Seconds>,
    operations: Option<u64>,
}

/// By which the time of a closed loop is reckoned, said beside it.
pub const OPERATIONS_PER_SEC: f64 = 1000.0;

/// All that `--dry-run --json` says.
#[derive(Serialize)]
struct DryRun<'a> {
    dry_run: bool,
    /// Runs on all sides together, at most.
    runs_max: u64,
    /// What all of them take together.
    total: Total,
    /// One for each side.
    sides: &'a [Forecast],
    writes: Vec<String>,
}

impl Forecast {
    /// Steps, time, files and place, in a sentence.
    pub fn totals(&self) -> String {
        let files = match (self.files, self.bytes) {
            (Some(0), _) | (None, None) => None,
            (Some(files), Some(bytes)) => {
                Some(format!("{} of about {}", counted(files as usize, "file", "files"), bytes_text(bytes)))
            }
            (Some(files), None) => Some(counted(files as usize, "file", "files")),
            (None, Some(bytes)) => Some(format!("about {}", bytes_text(bytes))),
        };
        let files = files.or_else(|| self.growing.map(|set| set.text(" files")));
        let place = self.work_directory.as_ref().map(|directory| format!("in {directory}"));
        let made: Vec<String> = files.into_iter().chain(place).collect();
        let first = [self.levels.map(Levels::text), self.time()];
        let first: Vec<String> = first.into_iter().flatten().collect();
        [first.join(", "), made.join(" ")]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// Looks whether the directory is there that files would be made in. A proxy is no directory.
    fn look(&self) -> anyhow::Result<()> {
        if self.bytes.is_some() || self.growing.is_some() { directory_is_there(&self.target) } else { Ok(()) }
    }

    /// How long it takes.
    fn time(&self) -> Option<String> {
        let timed = match (self.seconds, self.operations) {
            (Some(seconds), _) => Some(seconds.text()),
            (None, Some(operations)) => Some(format!(
                "{} operations, as fast as the target answers ({} at {} a second)",
                count_text(operations),
                span(operations as f64 / OPERATIONS_PER_SEC),
                count_text(OPERATIONS_PER_SEC as u64)
            )),
            (None, None) => None,
        };
        match (timed, self.besides.as_str()) {
            (timed, "") => timed,
            (Some(timed), besides) => Some(format!("{timed} and {besides}")),
            (None, besides) => Some(besides.to_owned()),
        }
    }

    /// The lines at the start of a run.
    pub fn announced(&self) -> Vec<String> {
        let end = "Ctrl-C ends it with what it has".to_owned();
        let totals = Some(self.totals()).filter(|totals| !totals.is_empty());
        let second = totals.map_or(end.clone(), |totals| format!("{totals}; {end}"));
        vec![self.what.clone(), second]
    }

    fn lines(&self) -> String {
        let mut text = wrapped("", &format!("Would run {}: {}", self.benchmark, self.what));
        let mut line = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                text.push_str(&named(&format!("  {name}"), &value));
            }
        };
        line("levels", self.levels.map(Levels::text));
        line("time", self.time());
        line("files", self.files.filter(|files| *files > 0).map(count_text));
        line(
            "bytes",
            self.bytes.filter(|bytes| *bytes > 0).map(|bytes| format!("about {}", bytes_text(bytes))),
        );
        line("files", self.growing.map(|set| set.text("")));
        let end =
            if self.is_kept { "kept at the end" } else { "removed at the end; after a kill by crumb clean" };
        line(
            "works in",
            self.work_directory.as_ref().map(|name| format!("{name} in {}: {end}", self.target)),
        );
        text
    }
}

impl Total {
    fn of(forecasts: &[Forecast], series: &SeriesArgs) -> Self {
        if series.until_ci.is_some() {
            return Self::default();
        }
        let rounds = series.runs_max(forecasts.len()) / forecasts.len().max(1) as u64;
        let seconds = forecasts.iter().map(|side| side.seconds).collect::<Option<Vec<_>>>();
        let sum = |of: fn(&Seconds) -> f64| {
            seconds.as_ref().map(|all| rounds as f64 * all.iter().map(of).sum::<f64>())
        };
        let seconds = sum(|one| one.least).zip(sum(|one| one.most));
        let operations = forecasts.iter().map(|side| side.operations).sum::<Option<u64>>();
        Self {
            seconds: seconds.map(|(least, most)| Seconds { least, most }),
            operations: operations.map(|one| one.saturating_mul(rounds)),
        }
    }

    /// In words, with what takes time besides.
    fn text(&self, besides: &str) -> Option<String> {
        let Self { seconds, operations } = *self;
        Forecast { seconds, operations, besides: besides.to_owned(), ..Forecast::default() }.time()
    }
}

impl Growing {
    fn text(self, things: &str) -> String {
        let Self { rate, files, bytes } = self;
        format!(
            "{}{things} of about {} at {} requests/s, in proportion at other rates",
            count_text(files),
            bytes_text(bytes),
            round_rate_text(rate)
        )
    }
}

impl Levels {
    /// Exactly this number.
    pub fn exactly(what: &'static str, number: u64) -> Self {
        Self { what, least: number, most: number }
    }

    fn text(self) -> String {
        let Self { what, least, most } = self;
        if least == most {
            // "1 load level", "4 load levels".
            let what = if most == 1 { what.trim_end_matches('s').to_owned() } else { what.to_owned() };
            format!("{} {what}", count_text(most))
        } else {
            format!("{} to {} {what}", count_text(least), count_text(most))
        }
    }
}

impl Seconds {
    fn text(self) -> String {
        let (least, most) = (span(self.least), span(self.most));
        if least == most {
            format!("about {least}")
        } else if self.least == 0.0 {
            format!("at most {most}")
        } else {
            format!("{least} to {most}")
        }
    }
}

/// Whole seconds below ten minutes, whole minutes above.
pub fn span(seconds: f64) -> String {
    let unit = if seconds < 600.0 { 1.0 } else { 60.0 };
    // More than a thousand years is shown as a thousand.
    let seconds = ((seconds / unit).ceil() * unit).clamp(0.0, 3e10);
    humantime::format_duration(Duration::from_secs(seconds as u64)).to_string()
}

/// Says what the runs would do, and checks that their results could be written.
///
/// # Errors
/// When they could not, or this cannot be written.
pub fn show(
    forecasts: &[Forecast],
    series: &SeriesArgs,
    output: &OutputArgs,
    context: &Context,
) -> anyhow::Result<ExitStatus> {
    output.check(context)?;
    if context.silent {
        return Ok(ExitStatus::Fine);
    }
    let runs_max = series.runs_max(forecasts.len());
    let writes = output.places(context);
    let total = Total::of(forecasts, series);
    if let Some(path) = &output.json {
        let dry = DryRun { dry_run: true, runs_max, total, sides: forecasts, writes };
        let json = serde_json::to_string_pretty(&dry).context("cannot write the forecast as JSON")? + "\n";
        write_to(path, &json)?;
        forecasts.iter().try_for_each(Forecast::look)?;
        return Ok(ExitStatus::Fine);
    }
    let mut text: String = forecasts.iter().map(Forecast::lines).collect();
    if runs_max > 1 {
        let again = "a run beside which the machine is disturbed is measured again once";
        let runs = format!("{} at most, on all sides together; {again}", count_text(runs_max));
        text.push_str(&named("  runs", &runs));
        let in_all = match series.until_ci {
            Some(_) => {
                Some(format!("no round begins after {}", humantime::format_duration(series.time_limit)))
            }
            None => total.text(forecasts.first().map_or("", |first| &first.besides)),
        };
        text.extend(in_all.map(|in_all| named("  in all", &in_all)));
    }
    if !writes.is_empty() {
        text.push_str(&named("  writes", &writes.join(", ")));
    }
    print(&text)?;
    forecasts.iter().try_for_each(Forecast::look)?;
    if !context.quiet {
        say("Nothing was done; leave out --dry-run to run it.");
    }
    Ok(ExitStatus::Fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_name_levels_time_files_and_place() {
        let forecast = Forecast {
            levels: Some(Levels { what: "load levels", least: 8, most: 16 }),
            seconds: Some(Seconds { least: 2880.0, most: 5920.0 }),
            besides: "the time to make the files".to_owned(),
            files: Some(2000),
            bytes: Some(21_000_000),
            work_directory: Some("crumb-fstress-3f9a".to_owned()),
            ..Forecast::default()
        };
        let text = forecast.totals();
        assert!(
            text.starts_with("8 to 16 load levels, 48m to 1h 39m and the time to make the files; "),
            "{text}"
        );
        assert!(text.contains("files of about ") && text.ends_with(" in crumb-fstress-3f9a"), "{text}");
    }

    #[test]
    fn a_closed_loop_says_the_rate_that_its_time_supposes() {
        let forecast = Forecast { operations: Some(6000), ..Forecast::default() };
        assert_eq!(
            forecast.totals(),
            "6,000 operations, as fast as the target answers (6s at 1,000 a second)"
        );
        assert_eq!(Forecast::default().totals(), "");
    }
}
