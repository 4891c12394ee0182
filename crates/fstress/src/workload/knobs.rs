//! Numbers of a workload by name: what `--set` changes, and what a sensitivity figure varies.
//!
//! ```text
//! memory-hit=0.4                a setting: one knob, one value
//! memory-hit=0..1/0.1           a range: FROM..TO/STEP, both ends included
//! disk-hit=0,0.5,1              a range: a list
//! ```
//!
//! `memory-hit` and `disk-hit` are those of the paper's web proxy. A request that the proxy's memory answers is one getattr
//! at the file service; any other is a lookup, followed by reads when the proxy's disk cache has the object, and by create,
//! writes, commit and remove when it has not. Both are shares of the proxy's requests, not of the file server's cache.
//!
//! Always holds: a setting that was applied leaves a workload that can be run; what is not set stays as it was.
//! Source: Anderson, "Fstress", sections 5.2 (web proxy), 6.7 and figures 3 and 9.

use std::fmt;
use std::str::FromStr;

use files::OpKind;

use super::derive::{self, Ratio};
use super::distribution::{Dimension, Distribution, parse_number, parse_quantity, quantity_text};
use super::mix::Mix;
use super::{FilesPerOp, Workload};
use crate::error::{FstressError, ValueProblem, nearest};

/// A number of a workload that can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    /// Share of a web proxy's requests that its memory answers.
    MemoryHit,
    /// Share of the remaining requests that its disk cache answers.
    DiskHit,
    /// Zipf exponent of file popularity.
    Skew,
    /// Reads for each write.
    ReadWrite,
    /// Factor of all file sizes.
    SizeScale,
    /// Bytes of every file.
    FileSize,
    /// Bytes of every read.
    ReadSize,
    /// Bytes of every write.
    WriteSize,
    /// Bytes a file may reach by appending.
    AppendMax,
    /// Steps from the root to the deepest directory.
    DepthMax,
    /// Files directly in each directory.
    FilesPerDirectory,
    /// Directories directly in each directory.
    DirectoriesPerDirectory,
    /// Files for each request a second that is offered.
    FilesPerOp,
    /// Files there are at least.
    FilesMin,
    /// Percent of one operation in the mix; the others keep their proportions.
    Share(OpKind),
}

/// Names and meanings of all knobs but the shares of operations, in the order of lists.
const NAMED: [(&str, Knob, &str); 14] = [
    ("memory-hit", Knob::MemoryHit, "share of a web proxy's requests that its memory answers, 0 to 1"),
    ("disk-hit", Knob::DiskHit, "share of the remaining requests that its disk cache answers, 0 to 1"),
    ("skew", Knob::Skew, "Zipf exponent of file popularity, 0 (all files alike) to 3"),
    ("read-write", Knob::ReadWrite, "reads for each write"),
    ("size-scale", Knob::SizeScale, "factor by which all file sizes are multiplied, above 0"),
    ("file-size", Knob::FileSize, "size of every file, such as 16KiB"),
    ("read-size", Knob::ReadSize, "size of every read request, such as 8KiB"),
    ("write-size", Knob::WriteSize, "size of every write request, such as 8KiB"),
    ("append-max", Knob::AppendMax, "size at which an appended file starts again from its begin"),
    ("depth-max", Knob::DepthMax, "levels of directories below the root, 0 to 65535"),
    ("files-per-directory", Knob::FilesPerDirectory, "files directly in each directory, above 0"),
    ("directories-per-directory", Knob::DirectoriesPerDirectory, "directories directly in each directory"),
    ("files-per-op", Knob::FilesPerOp, "files for each offered request per second"),
    ("files-min", Knob::FilesMin, "files of the set at least, a whole number"),
];
/// How the share of an operation is called.
const SHARE: &str = "mix.";
/// Values of one range at most.
const VALUES_MAX: usize = 100;

impl Knob {
    /// Names and meanings, the shares of operations as one.
    pub fn all() -> Vec<(String, &'static str)> {
        let named = NAMED.iter().map(|(name, _, about)| ((*name).to_owned(), *about));
        let share = (
            format!("{SHARE}OPERATION"),
            "percent of the operation, such as mix.read; the others keep their proportions",
        );
        named.chain([share]).collect()
    }

    fn is_bytes(self) -> bool {
        matches!(self, Self::FileSize | Self::ReadSize | Self::WriteSize | Self::AppendMax)
    }

    /// Reads a value; which values a workload takes shows when it is applied.
    fn value(self, text: &str) -> Result<f64, ValueProblem> {
        match self.is_bytes() {
            true => parse_quantity(text, Dimension::Bytes),
            false => {
                parse_number(text.trim()).ok_or_else(|| ValueProblem::new(text, "a number of 0 or more"))
            }
        }
    }

    /// A value as it is written.
    pub fn value_text(self, value: f64) -> String {
        if self.is_bytes() { quantity_text(value, Dimension::Bytes) } else { format!("{value}") }
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(op) => write!(f, "{SHARE}{}", op.name()),
            knob => {
                f.write_str(NAMED.iter().find(|(_, named, _)| named == knob).map_or("", |(name, ..)| name))
            }
        }
    }
}

impl FromStr for Knob {
    type Err = measure::ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(op) = text.strip_prefix(SHARE) {
            return OpKind::from_name(op).map(Self::Share).ok_or_else(|| {
                let known: Vec<_> = OpKind::ALL.iter().map(|op| op.name()).collect();
                format!("no operation is called `{op}`; there are {}", known.join(", ")).into()
            });
        }
        let known = NAMED.map(|(name, ..)| name);
        let found = NAMED.iter().find(|(name, ..)| *name == text).map(|(_, knob, _)| *knob);
        found.ok_or_else(|| {
            let near =
                nearest(text, &known).map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
            format!("no knob is called `{text}`{near}; there are {}, and {SHARE}OPERATION", known.join(", "))
                .into()
        })
    }
}

/// A knob with a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Which.
    pub knob: Knob,
    /// Bytes of a size, the number itself of anything else.
    pub value: f64,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.knob, self.knob.value_text(self.value))
    }
}

impl FromStr for Setting {
    type Err = measure::ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (knob, value) = parted(text, "KNOB=VALUE, such as memory-hit=0.4")?;
        let value = knob.value(value).map_err(|problem| format!("{knob}: {problem}"))?;
        Ok(Self { knob, value })
    }
}

/// A knob with the values it takes in turn.
#[derive(Clone, Debug, PartialEq)]
pub struct KnobRange {
    /// Which.
    pub knob: Knob,
    /// As given, each once.
    pub values: Vec<f64>,
}

impl FromStr for KnobRange {
    type Err = measure::ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (knob, given) =
            parted(text, "KNOB=FROM..TO/STEP or KNOB=VALUE,VALUE,…, such as memory-hit=0..1/0.1")?;
        let value = |text: &str| knob.value(text).map_err(|problem| format!("{knob}: {problem}"));
        let values = match given.split_once("..") {
            None => given.split(',').map(value).collect::<Result<Vec<_>, _>>()?,
            Some((from, rest)) => {
                let (to, step) = rest
                    .split_once('/')
                    .ok_or_else(|| format!("`{given}`: no step; write FROM..TO/STEP, such as 0..1/0.1"))?;
                let (from, to, step) = (value(from)?, value(to)?, value(step)?);
                if to < from || step <= 0.0 {
                    return Err(
                        format!("`{given}`: write FROM..TO/STEP with FROM first and a step above 0").into()
                    );
                }
                let count = ((to - from) / step + 1e-9).floor();
                if count >= VALUES_MAX as f64 {
                    return Err(
                        format!("`{given}`: more than {VALUES_MAX} values; choose a longer step").into()
                    );
                }
                // 0.30000000000000004 is 0.3 for everyone.
                (0..=count as u32).map(|nth| ((from + f64::from(nth) * step) * 1e9).round() / 1e9).collect()
            }
        };
        if values.len() > VALUES_MAX {
            return Err(format!("{knob}: more than {VALUES_MAX} values").into());
        }
        for (at, value) in values.iter().enumerate() {
            if values[..at].contains(value) {
                return Err(format!("{knob}: {} is given twice", knob.value_text(*value)).into());
            }
        }
        Ok(Self { knob, values })
    }
}

fn parted<'a>(text: &'a str, expected: &str) -> Result<(Knob, &'a str), measure::ValueError> {
    let (knob, value) = text.split_once('=').ok_or_else(|| format!("`{text}`: expected {expected}"))?;
    Ok((knob.trim().parse()?, value.trim()))
}

/// `base` with these settings. Of `memory-hit` and `disk-hit`, the one that is not set is taken from the mix of `base`.
///
/// # Errors
/// When a value is out of range, a knob is set twice, or what comes of it cannot be run.
pub fn apply(base: &Workload, settings: &[Setting]) -> Result<Workload, FstressError> {
    for (at, setting) in settings.iter().enumerate() {
        if settings[..at].iter().any(|before| before.knob == setting.knob) {
            return Err(refused(base, ValueProblem::new(setting.knob, "each knob once")));
        }
    }
    let value_of = |knob| settings.iter().find(|setting| setting.knob == knob).map(|setting| setting.value);
    let mut workload = base.clone();
    let hits = (value_of(Knob::MemoryHit), value_of(Knob::DiskHit));
    if hits != (None, None) {
        let (memory, disk) = hit_ratios(base);
        let ratio = |given: Option<f64>, of_mix| {
            Ratio::new(given.unwrap_or(of_mix)).map_err(|problem| refused(base, problem))
        };
        workload = derive::web_proxy(&workload, ratio(hits.0, memory)?, ratio(hits.1, disk)?)?;
    }
    for setting in settings {
        workload = set(workload, *setting)?;
    }
    if !settings.is_empty() {
        let words: Vec<String> = settings.iter().map(Setting::to_string).collect();
        workload.name = format!("{} {}", base.name, words.join(" "));
        workload.about = format!("{} with {}", base.name, words.join(", "));
        // What no run could use is refused here, where the settings are known.
        Workload::from_toml(&workload.to_toml(), &format!("{} with {}", base.name, words.join(", ")), None)?;
    }
    Ok(workload)
}

/// Memory and disk hit ratio for which the web-proxy model gives the shares of `base` of getattr, lookup and create.
fn hit_ratios(base: &Workload) -> (f64, f64) {
    let share = |op| base.mix.share(op);
    let part = |of: f64, all: f64| if all > 0.0 { (of / all).clamp(0.0, 1.0) } else { 0.0 };
    let memory = part(share(OpKind::Getattr), share(OpKind::Getattr) + share(OpKind::Lookup));
    let disk = part(share(OpKind::Lookup) - share(OpKind::Create), share(OpKind::Lookup));
    (memory, disk)
}

fn set(mut workload: Workload, setting: Setting) -> Result<Workload, FstressError> {
    let Setting { knob, value } = setting;
    let out_of_range = |expected| Err(refused(&workload, ValueProblem::new(setting, expected)));
    let of_bytes = |value| Distribution::constant(value, Dimension::Bytes);
    let count = |value| Distribution::constant(value, Dimension::Count);
    match knob {
        // Both at once, before all others.
        Knob::MemoryHit | Knob::DiskHit => {}
        Knob::Skew => return derive::skew(&workload, value),
        Knob::ReadWrite => return derive::reads_per_write(&workload, value),
        Knob::SizeScale => return derive::file_size_scale(&workload, value),
        Knob::FileSize => workload.sizes.file = of_bytes(value),
        Knob::ReadSize => workload.sizes.read = of_bytes(value),
        Knob::WriteSize => workload.sizes.write = of_bytes(value),
        Knob::AppendMax => workload.access.append_bytes_max = Some(value.round() as u64),
        Knob::DepthMax if value.fract() == 0.0 && value <= f64::from(u16::MAX) => {
            workload.tree.depth_max = value as u16;
        }
        Knob::DepthMax => return out_of_range("a whole number from 0 to 65535"),
        Knob::FilesPerDirectory => workload.tree.files_per_directory = count(value),
        Knob::DirectoriesPerDirectory => workload.tree.directories_per_directory = count(value),
        Knob::FilesPerOp => {
            workload.scale.files_per_op =
                FilesPerOp::new(value).map_err(|problem| refused(&workload, problem))?;
        }
        Knob::FilesMin if value.fract() == 0.0 && value < 1e15 => workload.scale.files_min = value as u64,
        Knob::FilesMin => return out_of_range("a whole number"),
        Knob::Share(op) => workload.mix = with_share(&workload, op, value, setting)?,
    }
    Ok(workload)
}

/// The mix with `percent` of one operation, all others scaled to the rest.
fn with_share(workload: &Workload, op: OpKind, percent: f64, setting: Setting) -> Result<Mix, FstressError> {
    let mix = &workload.mix;
    let others = 1.0 - mix.share(op);
    if percent > 100.0 {
        return Err(refused(workload, ValueProblem::new(setting, "a percentage from 0 to 100")));
    }
    if others <= 1e-9 && percent < 100.0 {
        return Err(refused(workload, ValueProblem::new(setting, "100, as the mix has no other operation")));
    }
    let share = |kind: OpKind| match kind {
        kind if kind == op => percent,
        kind if others > 1e-9 => mix.share(kind) / others * (100.0 - percent),
        _ => 0.0,
    };
    let rows = OpKind::ALL.into_iter().map(|kind| (kind, (share(kind) * 1e4).round() / 1e4));
    Mix::new(rows.filter(|(_, percent)| *percent > 0.0)).map_err(|problem| refused(workload, problem))
}

fn refused(base: &Workload, problem: ValueProblem) -> FstressError {
    FstressError::Derive { workload: base.name.clone(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(base: &str, settings: &[&str]) -> Result<Workload, FstressError> {
        let settings: Vec<Setting> = settings.iter().map(|text| text.parse().unwrap()).collect();
        apply(&Workload::builtin(base).unwrap(), &settings)
    }

    #[test]
    fn a_range_has_both_ends_and_no_digits_of_binary_fractions() {
        let range: KnobRange = "memory-hit=0..1/0.1".parse().unwrap();
        assert_eq!(range.values, [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]);
        let sizes: KnobRange = "file-size=4KiB,64KiB".parse().unwrap();
        assert_eq!(sizes.values, [4096.0, 65536.0]);
        assert_eq!(sizes.knob.value_text(65536.0), "64KiB");
    }

    #[test]
    fn an_unknown_knob_is_refused_with_those_that_exist() {
        let wrong = "memory-hits=1".parse::<Setting>().unwrap_err().to_string();
        assert!(
            wrong.contains("did you mean `memory-hit`?") && wrong.contains("files-per-directory"),
            "{wrong}"
        );
        assert!("mix.reed=1".parse::<Setting>().unwrap_err().to_string().contains("readdirplus"));
        for text in ["memory-hit", "skew=x", "skew=0..1", "skew=1..0/1", "skew=1,1", "skew=0..1/0.001"] {
            assert!(text.parse::<KnobRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn memory_hits_of_one_leave_only_attribute_checks_of_the_model() {
        let all = applied("web-proxy", &["memory-hit=1", "disk-hit=0.5"]).unwrap();
        assert!(!all.mix.has(OpKind::Lookup) && !all.mix.has(OpKind::Read) && !all.mix.has(OpKind::Create));
        let none = applied("web-proxy", &["memory-hit=0", "disk-hit=1"]).unwrap();
        assert!(!none.mix.has(OpKind::Getattr) && none.mix.has(OpKind::Read) && !none.mix.has(OpKind::Write));
        assert_eq!(all.name, "web-proxy memory-hit=1 disk-hit=0.5");
    }

    /// 18 getattr and 14 lookup, 11 of which end in a create.
    #[test]
    fn the_ratio_that_is_not_set_is_the_one_of_the_mix() {
        let given = applied("web-proxy", &["memory-hit=0.5625"]).unwrap();
        let both = applied("web-proxy", &["memory-hit=0.5625", "disk-hit=0.214285714"]).unwrap();
        for (op, share) in both.mix.shares() {
            assert!((given.mix.share(op) - share).abs() < 1e-4, "{}", op.name());
        }
    }

    #[test]
    fn a_share_is_what_was_asked_for_and_the_others_keep_their_proportions() {
        let base = Workload::builtin("mail").unwrap();
        let set = applied("mail", &["mix.read=50"]).unwrap();
        assert!((set.mix.share(OpKind::Read) - 0.5).abs() < 1e-4);
        let proportion = |of: &Workload| of.mix.share(OpKind::Lookup) / of.mix.share(OpKind::Commit);
        assert!((proportion(&set) - proportion(&base)).abs() < 1e-3);
    }

    #[test]
    fn what_cannot_be_run_is_refused_before_it_is() {
        for settings in [
            &["memory-hit=1.5"][..],
            &["depth-max=1.5"],
            &["mix.read=101"],
            &["skew=4"],
            &["size-scale=0"],
            &["files-per-directory=0"],
            &["skew=1", "skew=1"],
        ] {
            assert!(applied("mail", settings).is_err(), "{settings:?}");
        }
    }
}
