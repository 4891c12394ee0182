//! Workloads made from others by turning one knob: cache hit ratios, skew, reads against writes, file size.
//!
//! ```text
//! request -> in the proxy's memory?  yes: getattr (has the file changed?)
//!                  | no: lookup
//!            in its disk cache?      yes: read, read, ... to the end of the file
//!                  | no: fetch from the origin, create, write, write, ..., commit, remove (another file)
//! ```
//!
//! Pure functions: nothing is read or written. What the model does not speak of (access, fsstat, readdir of a
//! web proxy) keeps its share of the requests.
//! Source: Anderson, "Fstress", section 5 ("adjust along one or more dimensions") and figure 3.

use files::OpKind;

use super::Workload;
use super::distribution::Distribution;
use super::mix::Mix;
use crate::error::{FstressError, ValueProblem};

/// A share from 0 to 1, such as a hit ratio.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Ratio(f64);

impl Ratio {
    /// Checks that it is one.
    pub fn new(ratio: f64) -> Result<Self, ValueProblem> {
        if (0.0..=1.0).contains(&ratio) {
            Ok(Self(ratio))
        } else {
            Err(ValueProblem::new(ratio, "a ratio from 0 to 1"))
        }
    }

    /// The share.
    pub fn share(self) -> f64 {
        self.0
    }
}

impl std::str::FromStr for Ratio {
    type Err = ValueProblem;

    fn from_str(text: &str) -> Result<Self, ValueProblem> {
        let ratio = text.parse().map_err(|_| ValueProblem::new(text, "a ratio from 0 to 1"))?;
        Self::new(ratio)
    }
}

const PROXY_MODEL: [OpKind; 7] = [
    OpKind::Getattr,
    OpKind::Lookup,
    OpKind::Read,
    OpKind::Create,
    OpKind::Write,
    OpKind::Commit,
    OpKind::Remove,
];

/// A caching proxy with these hit ratios, `disk_hit` being of what the memory did not have. Files and requests
/// are those of `base`, normally the built-in web-proxy.
pub fn web_proxy(base: &Workload, memory_hit: Ratio, disk_hit: Ratio) -> Result<Workload, FstressError> {
    let memory_miss = 1.0 - memory_hit.0;
    let disk_hits = memory_miss * disk_hit.0;
    let disk_misses = memory_miss * (1.0 - disk_hit.0);
    let per_request = |op| match op {
        OpKind::Getattr => memory_hit.0,
        OpKind::Lookup => memory_miss,
        OpKind::Read => disk_hits * base.sizes.file.requests_per_file(base.sizes.read.mean()),
        OpKind::Write => disk_misses * base.sizes.file.requests_per_file(base.sizes.write.mean()),
        _ => disk_misses,
    };
    for (what, size) in [("sizes.read", &base.sizes.read), ("sizes.write", &base.sizes.write)] {
        if size.mean() < 1.0 {
            return Err(refused(
                base,
                ValueProblem::new(format_args!("{what} = {size}"), "at least one byte"),
            ));
        }
    }
    let modelled: f64 = PROXY_MODEL.iter().map(|op| per_request(*op)).sum();
    let others: f64 =
        OpKind::ALL.iter().filter(|op| !PROXY_MODEL.contains(op)).map(|op| base.mix.share(*op)).sum();
    if others >= 1.0 {
        let expected = "a workload that has some of getattr, lookup, read, create, write, commit, remove";
        return Err(refused(base, ValueProblem::new(format_args!("the mix of {}", base.name), expected)));
    }
    let share = |op| {
        if PROXY_MODEL.contains(&op) {
            per_request(op) / modelled * (1.0 - others)
        } else {
            base.mix.share(op)
        }
    };
    let about = format!("web proxy with memory hit ratio {}, disk hit ratio {}", memory_hit.0, disk_hit.0);
    let name = format!("{}-m{}-d{}", base.name, memory_hit.0, disk_hit.0);
    Ok(Workload { name, about, mix: percent(base, share)?, ..base.clone() })
}

/// File popularity by Zipf's law with this exponent, from 0 (all files alike) to 3.
pub fn skew(base: &Workload, alpha: f64) -> Result<Workload, FstressError> {
    let file = Distribution::zipf(alpha).map_err(|problem| refused(base, problem))?;
    let mut derived = base.clone();
    derived.popularity.file = file;
    derived.name = format!("{}-alpha{alpha}", base.name);
    derived.about = format!("{} with file popularity zipf {alpha}", base.name);
    Ok(derived)
}

/// Sets the number of reads per write to `ratio`. Reads and writes together keep their share; commits follow the writes,
/// and all shares are normalised afterwards.
pub fn reads_per_write(base: &Workload, ratio: f64) -> Result<Workload, FstressError> {
    if !ratio.is_finite() || ratio < 0.0 {
        return Err(refused(base, ValueProblem::new(ratio, "a number of reads for each write, 0 or more")));
    }
    let (reads, writes) = (base.mix.share(OpKind::Read), base.mix.share(OpKind::Write));
    if reads + writes <= 0.0 {
        return Err(refused(base, ValueProblem::new("no reads and no writes", "a mix that has some")));
    }
    let writes_new = (reads + writes) / (1.0 + ratio);
    let commits = base.mix.share(OpKind::Commit);
    let share = |op| match op {
        OpKind::Read => reads + writes - writes_new,
        OpKind::Write => writes_new,
        // Without writes to follow there is nothing to scale by.
        OpKind::Commit if writes > 0.0 => commits * writes_new / writes,
        _ => base.mix.share(op),
    };
    let mut derived = Workload { mix: percent(base, share)?, ..base.clone() };
    derived.name = format!("{}-rw{ratio}", base.name);
    derived.about = format!("{} with {ratio} reads for each write", base.name);
    Ok(derived)
}

/// All file sizes multiplied by `factor`.
pub fn file_size_scale(base: &Workload, factor: f64) -> Result<Workload, FstressError> {
    if !factor.is_finite() || factor <= 0.0 {
        return Err(refused(base, ValueProblem::new(factor, "a factor above 0")));
    }
    let mut derived = base.clone();
    derived.sizes.file = base.sizes.file.scaled(factor);
    derived.name = format!("{}-size{factor}", base.name);
    derived.about = format!("{} with files {factor} times as large", base.name);
    Ok(derived)
}

/// A mix in percent, rounded to what can be read; zero shares are left out.
fn percent(base: &Workload, share: impl Fn(OpKind) -> f64) -> Result<Mix, FstressError> {
    let total: f64 = OpKind::ALL.iter().map(|op| share(*op)).sum();
    let rows = OpKind::ALL.into_iter().map(|op| (op, (share(op) / total * 1e6).round() / 1e4));
    Mix::new(rows.filter(|(_, percent)| *percent > 0.0)).map_err(|problem| refused(base, problem))
}

fn refused(base: &Workload, problem: ValueProblem) -> FstressError {
    FstressError::Derive { workload: base.name.clone(), problem }
}
