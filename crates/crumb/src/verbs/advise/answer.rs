//! The answer of `crumb advise`: which directories gain, how much, and what that rests on.
//!
//! Not here: what is measured (see `measuring`), what is concluded of one directory (`stackfs::advise`).

mod verdict;

use std::path::Path;
use std::time::Duration;

use dirscale::Frequencies;
use files::Layout;
use report::count_text;
use stackfs::advise::{Advice, Scan, Total, Worth};

use self::verdict::{seconds_text, verdict};
use super::FILES_MIN;
use super::measured::Measured;
use crate::layout::{counted, grid, named, shortened, wrapped};

/// The answer, with what was asked.
pub struct Answer<'a> {
    /// The tree as it was typed.
    pub tree: &'a Path,
    /// The layout that is weighed against flat directories.
    pub layout: Layout,
    /// Whether caches were dropped before each measurement.
    pub cold: bool,
    /// How many directories to list.
    pub top: usize,
    /// Operations a day by kind: their proportions count.
    pub day: Frequencies,
    /// Operations a day in the whole tree.
    pub operations: f64,
    /// The mount's run that the day was taken from, and for how long it counted.
    pub from: Option<(String, Duration)>,
    /// What the tree holds.
    pub scan: &'a Scan,
    /// Each large directory, the one that gains most first.
    pub worth: Vec<Worth>,
    /// All of them together.
    pub total: Total,
    /// What operations cost; none where no directory is large.
    pub measured: Option<Measured>,
}

impl Answer<'_> {
    /// For people.
    pub fn text(&self) -> String {
        let Self { scan, worth, measured, .. } = self;
        let mut text = named("Tree", &self.tree.display().to_string());
        text.push_str(&named(
            "Counted",
            &format!(
                "{} files in {}; the largest holds {}",
                count_text(scan.files),
                counted(scan.directories as usize, "directory", "directories"),
                count_text(scan.largest)
            ),
        ));
        if scan.unreadable > 0 {
            text.push_str(&named(
                "Not readable",
                &counted(scan.unreadable as usize, "directory", "directories"),
            ));
        }
        let Some(measured) = measured else {
            let verdict = format!("nothing to gain: no directory holds {FILES_MIN} files or more");
            return text + &named("Verdict", &verdict);
        };
        text.push_str(&self.conditions(measured));
        text.push('\n');
        let rows: Vec<Vec<String>> =
            worth.iter().take(self.top).map(|worth| row_of(worth, self.tree)).collect();
        let heads = ["directory", "advice", "files", "gain a day", "95%"];
        text.push_str(&grid(&heads, 2, &rows));
        if let Some(more) = worth.len().checked_sub(self.top).filter(|more| *more > 0) {
            text.push_str(&format!("{} more directories; --top N lists more\n", count_text(more as u64)));
        }
        text.push('\n');
        text.push_str(&named("Verdict", &verdict(worth, &self.total)));
        text + &self.notes(measured)
    }

    /// The day, and what was measured of it.
    fn conditions(&self, measured: &Measured) -> String {
        let (mut text, day) = (String::new(), &self.day);
        let proportions = day.per_day();
        let share = |count: f64| format!("{:.1}%", 100.0 * count / proportions);
        text.push_str(&named(
            "A day",
            &format!(
                "{} operations: {} lookups, {} creations, {} removals, {} listings",
                count_text(self.operations.round() as u64),
                share(day.lookup),
                share(day.create),
                share(day.unlink),
                share(day.readdir)
            ),
        ));
        if let Some((run, counted)) = &self.from {
            let counted = humantime::format_duration(Duration::from_secs(counted.as_secs().max(1)));
            text.push_str(&named("Counted by", &format!("mount {run}, in {counted}, and taken to go on so")));
        }
        if let Ok(mount) = &measured.mount {
            let files = self.scan.largest as f64;
            let (small, large) = (mount.at(0.0).us, mount.at(files).us);
            text.push_str(&named(
                "A mount adds",
                &format!(
                    "{small:.0} µs to an operation of the day in a small directory, {large:.0} in one of {} files",
                    count_text(self.scan.largest)
                ),
            ));
        }
        text.push_str(&named("Caches", if self.cold { "cold" } else { "warm (--cold for the other end)" }));
        if let Some((flat, managed)) = measured.curve(Layout::Flat).zip(measured.curve(self.layout)) {
            let cut = if measured.cut_short { ", then the time was up" } else { "" };
            text.push_str(&named(
                "Measured",
                &format!(
                    "{}, up to {} files flat and {} managed, in {:.0} s{cut}",
                    counted(flat.sizes(), "size", "sizes"),
                    count_text(flat.largest() as u64),
                    count_text(managed.largest() as u64),
                    measured.took.as_secs_f64()
                ),
            ));
        }
        text
    }

    fn notes(&self, measured: &Measured) -> String {
        let mut text = String::new();
        if let Some(pays) = &measured.pays {
            let sentence = format!("layout {} pays for the whole day {pays}", self.layout);
            text.push_str(&wrapped("  note: ", &sentence));
        }
        if self.worth.iter().any(|worth| worth.beyond_measured) {
            let sentence = "≥ and ~: larger than any size measured. ~ assumes that costs grow on as they last did. ≥ is the lower \
                            end of the interval: costs that stay as they were, or that keep three quarters of their growth \
                            where three sizes show that each file adds to them. Measure larger sizes with --time";
            text.push_str(&wrapped("  note: ", sentence));
        }
        for remark in &measured.remarks {
            text.push_str(&wrapped("  note: ", remark));
        }
        if self.worth.iter().all(|worth| worth.advice != Advice::Manage) {
            let sentence = "the whole day above is weighed, with its listings and what the mount adds. crumb doctor looks at a \
                            single lookup in the largest directory, which may be slow there although the day gains nothing";
            text.push_str(&wrapped("  note: ", sentence));
        }
        let sentence = match &measured.mount {
            Ok(_) => "operations are taken to fall on files evenly; gains are less what the mount itself adds to each \
                      operation"
                .to_owned(),
            Err(why) => format!(
                "operations are taken to fall on files evenly; what the mount itself adds to each operation, in any \
                 directory of the tree, is not in the figures: {why}"
            ),
        };
        text + &wrapped("  note: ", &sentence)
    }

    /// For programs.
    pub fn json(&self) -> serde_json::Value {
        let directory = |worth: &Worth| {
            serde_json::json!({
                "path": worth.path.display().to_string(),
                "files": worth.files,
                "managed": worth.managed,
                "advice": worth.advice.name(),
                "operations_per_day": worth.operations_per_day,
                "gain_s_per_day": worth.gain_s,
                "gain_s_per_day_low": worth.gain_s_range.0,
                "gain_s_per_day_high": worth.gain_s_range.1,
                "mount_s_per_day": worth.mount_s,
                "beyond_measured": worth.beyond_measured,
            })
        };
        let measured = self.measured.as_ref();
        serde_json::json!({
            "tree": self.tree.display().to_string(),
            "files": self.scan.files,
            "directories_counted": self.scan.directories,
            "unreadable": self.scan.unreadable,
            "layout": self.layout.name(),
            "mix_per_day": self.day.to_string(),
            "mix_from": self.from.as_ref().map(|(run, _)| run),
            "operations_per_day": self.operations,
            "caches": if self.cold { "cold" } else { "warm" },
            "cost_us": measured.map(|measured| serde_json::to_value(&measured.day).unwrap_or_default()),
            "gain_s_per_day": self.total.gain_s,
            "mount_elsewhere_s_per_day": self.total.elsewhere_s,
            "mount_us": measured.and_then(|measured| measured.mount.as_ref().ok()).map(|mount| mount.at(0.0).us),
            "mount_us_at_the_largest": measured
                .and_then(|measured| measured.mount.as_ref().ok())
                .map(|mount| mount.at(self.scan.largest as f64).us),
            "pays": measured.and_then(|measured| measured.pays.as_ref()),
            "cut_short": measured.is_some_and(|measured| measured.cut_short),
            "remarks": measured.map(|measured| measured.remarks.clone()),
            "directories": self.worth.iter().map(directory).collect::<Vec<_>>(),
        })
    }
}

/// Where nothing is shown about a managed directory, it stays as it is.
fn advice_text(worth: &Worth) -> &'static str {
    match worth.advice {
        Advice::NotShown if worth.managed => "managed",
        advice => advice.name(),
    }
}

fn row_of(worth: &Worth, tree: &Path) -> Vec<String> {
    let tree = tree.canonicalize().unwrap_or_else(|_| tree.to_owned());
    let path = worth.path.strip_prefix(&tree).unwrap_or(&worth.path);
    let name = if path.as_os_str().is_empty() { ".".to_owned() } else { path.display().to_string() };
    let (low, high) = worth.gain_s_range;
    let (bound, gain_s) = match worth.beyond_measured {
        true if low > 0.0 => ("≥ ", low),
        true => ("~ ", worth.gain_s),
        false => ("", worth.gain_s),
    };
    vec![
        shortened(&name, 26),
        advice_text(worth).to_owned(),
        count_text(worth.files),
        format!("{bound}{}", seconds_text(gain_s)),
        format!("{} to {}", seconds_text(low), seconds_text(high)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_managed_directory_about_which_nothing_is_shown_is_called_managed() {
        let row = |managed, advice| {
            let (files, operations_per_day, gain_s, mount_s) = (600, 10.0, 0.0, 0.0);
            let gain_s_range = (-1.0, 1.0);
            let (path, beyond_measured) = ("d".into(), false);
            let worth = Worth {
                path,
                files,
                managed,
                operations_per_day,
                gain_s,
                gain_s_range,
                mount_s,
                beyond_measured,
                advice,
            };
            row_of(&worth, Path::new("/"))[1].clone()
        };
        assert_eq!(row(true, Advice::NotShown), "managed");
        assert_eq!(row(false, Advice::NotShown), "not shown");
        assert_eq!(row(true, Advice::KeepManaged), "keep managed");
    }
}
