//! What a metric is: its unit, its title, which direction is better, and whether it answers the run's question.
//!
//! ```text
//! MetricDeclaration (static, one list per benchmark; `{op}_p50_us` stands for a family)
//!    -> RunRecord::declare -> Metric (owned, in the record) -> tables, page, comparison
//! ```
//!
//! A benchmark declares its metrics beside where it computes them. Code that shows a record reads the record's own
//! declarations and knows no benchmark. What no list declares is read off its name ([`Metric::undeclared`]), so that a
//! record of another version is still shown.

use serde::{Deserialize, Serialize};

/// Which direction is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Rates.
    Higher,
    /// Times, and what an operation costs.
    Lower,
    /// Neither is known to be: such figures only differ.
    #[default]
    Unknown,
}

/// One metric of a record, declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// As in `metrics`, or a curve's name.
    pub name: String,
    /// `/s`, `B`, `B/s`, `us`, `ms`, `s`, `min`, `%`, `us/article` (microseconds for each), empty for a count.
    pub unit: String,
    /// Its name for people, without the unit.
    pub title: String,
    /// Which direction is better.
    #[serde(default)]
    pub better: Better,
    /// Whether it answers the run's question; of several, the first that a record has.
    #[serde(default)]
    pub headline: bool,
}

/// A metric that a benchmark may emit, or with `{…}` in its name a family of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricDeclaration {
    /// Its name; `{…}` stands for one or more letters, as in `{op}_p50_us`.
    pub name: &'static str,
    /// As in [`Metric`].
    pub unit: &'static str,
    /// As in [`Metric`]; `{…}` is replaced by what stands for it in the name.
    pub title: &'static str,
    /// Which direction is better.
    pub better: Better,
    /// Whether it answers the run's question.
    pub headline: bool,
    /// Whether a page shows it large, beside the first metric that answers.
    pub tile: bool,
}

impl MetricDeclaration {
    /// A metric whose direction its unit does not tell.
    pub const fn new(name: &'static str, unit: &'static str, title: &'static str) -> Self {
        Self { name, unit, title, better: Better::Unknown, headline: false, tile: false }
    }

    /// Something a second.
    pub const fn rate(name: &'static str, title: &'static str) -> Self {
        Self { better: Better::Higher, ..Self::new(name, "/s", title) }
    }

    /// Bytes a second.
    pub const fn bytes_rate(name: &'static str, title: &'static str) -> Self {
        Self { better: Better::Higher, ..Self::new(name, "B/s", title) }
    }

    /// Microseconds.
    pub const fn micros(name: &'static str, title: &'static str) -> Self {
        Self { better: Better::Lower, ..Self::new(name, "us", title) }
    }

    /// Seconds.
    pub const fn seconds(name: &'static str, title: &'static str) -> Self {
        Self { better: Better::Lower, ..Self::new(name, "s", title) }
    }

    /// Minutes.
    pub const fn minutes(name: &'static str, title: &'static str) -> Self {
        Self { better: Better::Lower, ..Self::new(name, "min", title) }
    }

    /// 0 to 100.
    pub const fn percent(name: &'static str, title: &'static str) -> Self {
        Self::new(name, "%", title)
    }

    /// A number of things.
    pub const fn count(name: &'static str, title: &'static str) -> Self {
        Self::new(name, "", title)
    }

    /// The same with another direction than its unit implies.
    #[must_use]
    pub const fn better(self, better: Better) -> Self {
        Self { better, ..self }
    }

    /// The same, answering the run's question.
    #[must_use]
    pub const fn answers(self) -> Self {
        Self { headline: true, ..self }
    }

    /// The same, shown large on a page.
    #[must_use]
    pub const fn tile(self) -> Self {
        Self { tile: true, ..self }
    }

    /// Whether it stands for several names.
    pub fn is_family(&self) -> bool {
        self.name.contains('{')
    }

    /// The metric called `name`, if it is this one or of this family.
    pub fn metric(&self, name: &str) -> Option<Metric> {
        let (begin, rest) = match self.name.split_once('{') {
            None if self.name == name => return Some(self.with(name, self.title.to_owned())),
            None => return None,
            Some(parts) => parts,
        };
        let (_, end) = rest.split_once('}')?;
        let own = name.strip_prefix(begin)?.strip_suffix(end).filter(|own| !own.is_empty())?;
        let title = match (self.title.split_once('{'), self.title.split_once('}')) {
            (Some((before, _)), Some((_, after))) => format!("{before}{}{after}", in_words(own)),
            _ => self.title.to_owned(),
        };
        Some(self.with(name, capitalised(&title)))
    }

    fn with(&self, name: &str, title: String) -> Metric {
        Metric {
            name: name.to_owned(),
            unit: self.unit.to_owned(),
            title,
            better: self.better,
            headline: self.headline,
        }
    }
}

impl Metric {
    /// One that no list declares: unit and direction are read off the name's ending, the title is the name in words.
    pub fn undeclared(name: &str) -> Self {
        const UNITS: [(&str, &str); 9] = [
            ("_bytes_per_sec", "B/s"),
            ("_per_sec", "/s"),
            ("_us_per_article", "us/article"),
            ("_us", "us"),
            ("_ms", "ms"),
            ("_minutes", "min"),
            ("_percent", "%"),
            ("_bytes", "B"),
            ("_s", "s"),
        ];
        let (stem, unit) = UNITS
            .iter()
            .find_map(|(ending, unit)| Some((name.strip_suffix(ending)?, *unit)))
            .unwrap_or((name, ""));
        // Bytes are named in the title too: `read_bytes_per_sec` is not a rate of reads.
        let stem = if unit.starts_with("B/") { name.strip_suffix("_per_sec").unwrap_or(stem) } else { stem };
        let title = match stem.rsplit_once('_') {
            Some((of, percentile)) if is_percentile(percentile) && !of.ends_with("latency") => {
                format!("{of} latency {percentile}")
            }
            _ => stem.to_owned(),
        };
        Self {
            name: name.to_owned(),
            unit: unit.to_owned(),
            title: capitalised(&title.replace('_', " ")),
            better: Better::of(name),
            headline: false,
        }
    }
}

impl Better {
    /// Read off the unit in a name.
    pub fn of(name: &str) -> Self {
        let times = ["_us", "_ms", "_s", "_minutes"];
        if name.ends_with("_per_sec") {
            Self::Higher
        } else if times.iter().any(|unit| name.ends_with(unit) || name.contains(&format!("{unit}_per_")))
            || name.contains("_bytes_per_")
        {
            Self::Lower
        } else {
            Self::Unknown
        }
    }
}

/// The declaration of `name`: one of that very name before a family.
pub fn declared(known: &[MetricDeclaration], name: &str) -> Option<Metric> {
    declaration(known, name)?.metric(name)
}

/// As [`declared`], the declaration itself.
pub(crate) fn declaration<'k>(known: &'k [MetricDeclaration], name: &str) -> Option<&'k MetricDeclaration> {
    let exact = known.iter().find(|one| one.name == name);
    exact.or_else(|| known.iter().find(|one| one.metric(name).is_some()))
}

fn is_percentile(text: &str) -> bool {
    text.strip_prefix('p')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// `34_56` is `34/56`, as a layout is called; elsewhere an underscore stands for a space.
fn in_words(own: &str) -> String {
    let letters: Vec<char> = own.chars().collect();
    let digit = |at: Option<usize>| at.and_then(|at| letters.get(at)).is_some_and(char::is_ascii_digit);
    let word = |(at, letter): (usize, &char)| match letter {
        '_' if digit(at.checked_sub(1)) && digit(Some(at + 1)) => '/',
        '_' => ' ',
        letter => *letter,
    };
    letters.iter().enumerate().map(word).collect()
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [MetricDeclaration; 4] = [
        MetricDeclaration::rate("{op}_per_sec", "{op}"),
        MetricDeclaration::rate("read_per_sec", "Files read").answers(),
        MetricDeclaration::micros("day_cost_{layout}_us", "Mean operation of a day, {layout}"),
        MetricDeclaration::micros("{op}_p50_us", "{op} latency p50"),
    ];

    #[test]
    fn a_metric_of_its_own_name_comes_before_a_family_and_a_family_fills_in_its_title() {
        let title = |name| declared(&KNOWN, name).map(|metric| metric.title);
        assert_eq!(title("read_per_sec").unwrap(), "Files read");
        assert!(declared(&KNOWN, "read_per_sec").unwrap().headline);
        assert_eq!(title("set_attr_per_sec").unwrap(), "Set attr");
        assert_eq!(title("day_cost_34_56_us").unwrap(), "Mean operation of a day, 34/56");
        assert_eq!(title("create_p50_us").unwrap(), "Create latency p50");
        assert_eq!([title("_per_sec"), title("day_cost__us"), title("total_s")], [None, None, None]);
    }

    #[test]
    fn what_is_not_declared_is_read_off_its_name() {
        let read = |name| {
            let metric = Metric::undeclared(name);
            (metric.title, metric.unit, metric.better)
        };
        let expect = |title: &str, unit: &str, better| (title.to_owned(), unit.to_owned(), better);
        assert_eq!(read("read_bytes_per_sec"), expect("Read bytes", "B/s", Better::Higher));
        assert_eq!(read("create_p99_us"), expect("Create latency p99", "us", Better::Lower));
        assert_eq!(read("flush_s"), expect("Flush", "s", Better::Lower));
        assert_eq!(read("unbatch_sys_us_per_article"), expect("Unbatch sys", "us/article", Better::Lower));
        assert_eq!(read("hard_links"), expect("Hard links", "", Better::Unknown));
        assert_eq!(read("busy_percent"), expect("Busy", "%", Better::Unknown));
    }

    #[test]
    fn a_rate_is_better_when_higher_and_a_time_when_lower() {
        use Better::{Higher as H, Lower as L, Unknown as U};
        let names = ["x_per_sec", "read_bytes_per_sec", "p99_us", "wall_ms", "total_s", "net_bytes_per_op"];
        assert_eq!(names.map(Better::of), [H, H, L, L, L, L]);
        assert_eq!(["cpu_us_per_op", "busy_percent", "files"].map(Better::of), [L, U, U]);
    }
}
