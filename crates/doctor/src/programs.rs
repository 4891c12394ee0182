//! Which kinds of program will suffer here: what one unit of their work costs by the measured basics.
//!
//! A unit is a fixed list of operations, done one after the other, so `cost` is the time that one thread waits for storage. Real
//! programs overlap operations and add work of their own: the figure ranks storage, and predicts no program.

use serde::Serialize;

use crate::{BasicOp, Facts, Finding, FindingCode};

/// How a kind of program fares.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProgramOutlook {
    /// Kind of program.
    pub program: &'static str,
    /// Its unit of work.
    pub unit: &'static str,
    /// What it does for a unit.
    pub work: &'static str,
    /// Storage time of a unit, in microseconds; none where an operation was not measured.
    pub cost_us: Option<f64>,
    /// How it fares.
    pub outlook: Outlook,
    /// The operation that costs most, or the finding that decides.
    pub because: String,
}

/// A judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outlook {
    /// Nothing speaks against it.
    Fine,
    /// Storage will be a good part of its time.
    Slow,
    /// Storage will be most of its time.
    Suffers,
    /// It fails, or loses what it wrote.
    Fails,
    /// Not measured.
    Unknown,
}

/// What a kind of program does for one unit of work.
struct Kind {
    program: &'static str,
    unit: &'static str,
    work: &'static str,
    operations: &'static [(BasicOp, f64)],
    /// Its directories grow large.
    has_large_directories: bool,
    /// What it writes must last.
    is_durable: bool,
    /// From these times on it is slow, and suffers.
    slow_us: f64,
    suffers_us: f64,
}

use BasicOp::{Create, Fsync, NegativeLookup, ReadCached, ReadDropped, Stat, Unlink};

const KINDS: [Kind; 6] = [
    Kind {
        program: "mail store",
        unit: "a delivery",
        work: "create, write durably, unlink",
        operations: &[(Create, 1.0), (Fsync, 1.0), (Unlink, 1.0)],
        has_large_directories: true,
        is_durable: true,
        slow_us: 5_000.0,
        suffers_us: 20_000.0,
    },
    Kind {
        program: "news spool",
        unit: "an article",
        work: "look its name up, create, unlink",
        operations: &[(NegativeLookup, 1.0), (Create, 1.0), (Unlink, 1.0)],
        has_large_directories: true,
        is_durable: true,
        slow_us: 300.0,
        suffers_us: 2_000.0,
    },
    Kind {
        program: "web cache",
        unit: "an object",
        work: "create, read from the cache, read from the disk",
        operations: &[(Create, 1.0), (ReadCached, 1.0), (ReadDropped, 1.0)],
        has_large_directories: false,
        is_durable: false,
        slow_us: 1_500.0,
        suffers_us: 6_000.0,
    },
    Kind {
        program: "build tree",
        unit: "a source",
        work: "20 stats, 50 lookups of no file, 10 reads from the cache",
        operations: &[(Stat, 20.0), (NegativeLookup, 50.0), (ReadCached, 10.0)],
        has_large_directories: false,
        is_durable: false,
        slow_us: 3_000.0,
        suffers_us: 20_000.0,
    },
    Kind {
        program: "package store",
        unit: "a file",
        work: "stat, create, write durably",
        operations: &[(Stat, 1.0), (Create, 1.0), (Fsync, 1.0)],
        has_large_directories: false,
        is_durable: true,
        slow_us: 5_000.0,
        suffers_us: 20_000.0,
    },
    Kind {
        program: "CI unpack",
        unit: "a file",
        work: "create, unlink",
        operations: &[(Create, 1.0), (Unlink, 1.0)],
        has_large_directories: false,
        is_durable: false,
        slow_us: 300.0,
        suffers_us: 2_000.0,
    },
];

/// All kinds, in a fixed order.
pub fn outlooks(facts: &Facts, findings: &[Finding]) -> Vec<ProgramOutlook> {
    KINDS.iter().map(|kind| kind.outlook(facts, findings)).collect()
}

impl Kind {
    fn outlook(&self, facts: &Facts, findings: &[Finding]) -> ProgramOutlook {
        let costs: Vec<(BasicOp, f64)> = self
            .operations
            .iter()
            .filter_map(|(op, times)| facts.here_us(*op).map(|us| (*op, us * times)))
            .collect();
        // Of a server nothing is dropped, and a read from it is never cached here.
        let missing = self.operations.len() - costs.len();
        let may_lack = usize::from(self.operations.iter().any(|(op, _)| *op == ReadDropped));
        let cost_us = (missing <= may_lack).then(|| costs.iter().map(|(_, us)| us).sum::<f64>());
        let (outlook, because) = self.decided(findings).unwrap_or_else(|| {
            let most = costs.iter().max_by(|a, b| a.1.total_cmp(&b.1));
            match (cost_us, most) {
                (Some(us), Some((op, _))) if us >= self.suffers_us => {
                    (Outlook::Suffers, op.name().to_owned())
                }
                (Some(us), Some((op, _))) if us >= self.slow_us => (Outlook::Slow, op.name().to_owned()),
                (Some(_), _) => (Outlook::Fine, String::new()),
                (None, _) => (Outlook::Unknown, "not measured".to_owned()),
            }
        });
        ProgramOutlook { program: self.program, unit: self.unit, work: self.work, cost_us, outlook, because }
    }

    /// What a finding decides, whatever operations cost.
    fn decided(&self, findings: &[Finding]) -> Option<(Outlook, String)> {
        let is_full = |finding: &&Finding| {
            matches!(finding.code, FindingCode::BytesNearlyGone | FindingCode::InodesNearlyGone)
                && finding.weight >= 90
        };
        let has = |code: FindingCode, weight_min: u32| {
            findings.iter().any(|finding| finding.code == code && finding.weight >= weight_min)
        };
        let creates = self.operations.iter().any(|(op, _)| *op == Create);
        if creates && findings.iter().any(|finding| is_full(&finding)) {
            return Some((Outlook::Fails, "no room".to_owned()));
        }
        if creates && has(FindingCode::ReadOnly, 0) {
            return Some((Outlook::Fails, "read-only".to_owned()));
        }
        if self.is_durable && has(FindingCode::Volatile, 0) {
            return Some((Outlook::Fails, "lost at a reboot".to_owned()));
        }
        if self.has_large_directories && has(FindingCode::DirectoryNearlyFull, 90) {
            return Some((Outlook::Fails, "a full index".to_owned()));
        }
        let is_linear = has(FindingCode::LinearDirectories, 70) || has(FindingCode::LargeDirectory, 70);
        if self.has_large_directories && is_linear {
            return Some((Outlook::Suffers, "large directories".to_owned()));
        }
        if self.has_large_directories && has(FindingCode::LinearDirectories, 0) {
            return Some((Outlook::Slow, "directories once they are large".to_owned()));
        }
        None
    }
}

impl Outlook {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Slow => "slow",
            Self::Suffers => "suffers",
            Self::Fails => "fails",
            Self::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Basic, PlaceFacts};

    fn facts(us: f64, fsync_us: f64) -> Facts {
        let basics = BasicOp::ALL.into_iter().map(|op| {
            let median_us = if op == Fsync { fsync_us } else { us };
            Basic { op, median_us, worst_us: median_us, per_sec: 1e6 / median_us, operations: 1 }
        });
        let here = PlaceFacts { basics: basics.collect(), ..PlaceFacts::default() };
        Facts { places: vec![here], ..Facts::default() }
    }

    fn outlook_of(facts: &Facts, program: &str) -> (Outlook, String) {
        let found = outlooks(facts, &crate::findings(facts));
        let found = found.into_iter().find(|found| found.program == program).unwrap();
        (found.outlook, found.because)
    }

    #[test]
    fn slow_fsync_is_for_mail_and_packages_and_slow_metadata_for_builds() {
        let disk = facts(5.0, 28_000.0);
        assert_eq!(outlook_of(&disk, "mail store"), (Outlook::Suffers, "write 4 KiB + fsync".to_owned()));
        assert_eq!(outlook_of(&disk, "package store").0, Outlook::Suffers);
        assert_eq!(outlook_of(&disk, "build tree").0, Outlook::Fine);
        assert_eq!(outlook_of(&disk, "CI unpack").0, Outlook::Fine);
        let far = facts(2_000.0, 2_000.0);
        assert_eq!(outlook_of(&far, "build tree"), (Outlook::Suffers, "lookup of no file".to_owned()));
        assert_eq!(outlook_of(&far, "CI unpack").0, Outlook::Suffers);
        assert_eq!(outlook_of(&far, "mail store").0, Outlook::Slow);
    }

    #[test]
    fn a_full_or_volatile_place_decides_whatever_it_costs() {
        let mut full = facts(5.0, 5.0);
        full.target.space = Some(crate::SpaceFacts { inodes_total: 100, ..crate::SpaceFacts::default() });
        assert_eq!(outlook_of(&full, "CI unpack"), (Outlook::Fails, "no room".to_owned()));
        assert_eq!(outlook_of(&full, "build tree").0, Outlook::Fine);
        let mut indexed = facts(5.0, 5.0);
        let names_max = Some(crate::NamesMax { low: 1000, high: 1100 });
        indexed.target.largest =
            Some(crate::DirectoryFacts { names: 990, names_max, ..crate::DirectoryFacts::default() });
        assert_eq!(outlook_of(&indexed, "news spool"), (Outlook::Fails, "a full index".to_owned()));
        assert_eq!(outlook_of(&indexed, "CI unpack").0, Outlook::Fine);
        let mut volatile = facts(5.0, 5.0);
        volatile.target.mount = Some(crate::MountFacts { kind: "tmpfs".to_owned(), ..Default::default() });
        assert_eq!(outlook_of(&volatile, "mail store"), (Outlook::Fails, "lost at a reboot".to_owned()));
        assert_eq!(outlook_of(&volatile, "web cache").0, Outlook::Fine);
    }

    #[test]
    fn what_was_not_measured_is_unknown() {
        assert_eq!(outlook_of(&Facts::default(), "mail store").0, Outlook::Unknown);
    }
}
