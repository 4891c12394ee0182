//! The run store: one SQLite file of RunRecords.
//!
//! ```text
//! runs | id | benchmark | label | target | started_us | complete | valid | points | metrics | record |
//!        what a list needs, so that it opens no record                     JSON      the whole, JSON
//! ```
//!
//! Always holds: `record` is the whole truth and the other columns only repeat it; a file of a newer
//! version, of another program or damaged is refused and left as it is. A plain rollback journal and no
//! WAL, since home directories lie on network file systems, where WAL fails.
//! Not here: where the file lies, and what a run's figures mean.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use measure::{BenchmarkRegistry, RunId, RunRecord, SeriesPlace};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, TransactionBehavior, params};

use crate::{ReportError, Result};

/// Version of the tables, kept in `PRAGMA user_version`.
const STORE_VERSION: i64 = 1;
/// Marks the file as ours in `PRAGMA application_id`: "Crmb".
const APPLICATION_ID: i64 = 0x4372_6d62;
/// How an SQLite database begins (SQLite's file format, 1.3).
const SQLITE_HEAD: &[u8; 16] = b"SQLite format 3\0";
/// A file of this size is checked in a tenth of a second or so.
const CHECKED_BYTES_MAX: u64 = 64 << 20;
/// How long to wait for another Crumb that is just writing.
const BUSY_WAIT: Duration = Duration::from_secs(10);

const TABLES: &str = "
    CREATE TABLE runs (
        id TEXT PRIMARY KEY, benchmark TEXT NOT NULL, label TEXT NOT NULL, target TEXT NOT NULL,
        started_us INTEGER NOT NULL, complete INTEGER NOT NULL, valid INTEGER NOT NULL,
        points INTEGER NOT NULL, metrics TEXT NOT NULL, record TEXT NOT NULL
    ) STRICT;
    CREATE INDEX runs_started ON runs (started_us);
";
const SUMMARY: &str =
    "SELECT id, benchmark, label, target, started_us, complete, valid, points, metrics FROM runs";
/// The same with a run's place in its series, for which the whole record is read.
const SUMMARY_WITH_SERIES: &str =
    "SELECT id, benchmark, label, target, started_us, complete, valid, points, metrics,
     CASE WHEN json_valid(record) THEN json_extract(record, '$.series') END AS series FROM runs";
const NEWEST_FIRST: &str = "ORDER BY started_us DESC, id DESC";
const OLDEST_FIRST: &str = "ORDER BY started_us, id";

/// An open run store.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    sqlite: Connection,
    registry: BenchmarkRegistry,
}

/// What a list shows of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSummary {
    /// Name of the run.
    pub id: RunId,
    /// Name of the benchmark.
    pub benchmark: String,
    /// What the user calls it.
    pub label: String,
    /// Target URL as given.
    pub target: String,
    /// Begin of the run, UTC.
    pub started: Timestamp,
    /// False when it was cut short.
    pub complete: bool,
    /// False when the verdict is INVALID.
    pub valid: bool,
    /// Load points measured; of a run that has none, the sizes that its curves are drawn over.
    pub points: usize,
    /// The flat list of figures, units in the names.
    pub metrics: BTreeMap<String, f64>,
    /// Its place among the runs that one command made; only [`Store::list`] fills it in.
    pub series: Option<SeriesPlace>,
}

impl Store {
    /// Finds out whether a run can be kept: writes what is there already, and takes it back.
    ///
    /// # Errors
    /// When the file or its directory is read-only, or the file is in use for too long.
    pub fn check_writable(&self) -> Result<()> {
        let text = format!("BEGIN IMMEDIATE; PRAGMA user_version = {STORE_VERSION}; ROLLBACK");
        self.sqlite.execute_batch(&text).map_err(|source| ReportError::Sqlite {
            path: self.path.display().to_string(),
            doing: "write the run store",
            source,
        })
    }

    /// Finds out whether the store is whole enough to list the runs that it has and to take more. The structure of a small
    /// one is looked through; of a larger one what a list reads.
    ///
    /// # Errors
    /// When it is damaged, or SQLite cannot read.
    pub fn check_whole(&self) -> Result<()> {
        if fs::metadata(&self.path).is_ok_and(|file| file.len() <= CHECKED_BYTES_MAX) {
            let first = self.sqlite.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
            let found = first.map_err(|source| self.failed("check the run store", source))?;
            if found != "ok" {
                // SQLite breaks its sentences into lines.
                let found = found.split_whitespace().collect::<Vec<_>>().join(" ");
                return Err(ReportError::DamagedStore { path: self.shown(), found });
            }
        }
        self.list().map(drop)
    }

    /// Opens the store at `path`, making it and its directories when there is none.
    ///
    /// # Errors
    /// When the file is not a run store, is of a newer version, or cannot be made or read.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let shown = path.display().to_string();
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(parent)
                .map_err(|source| ReportError::Directory { path: shown.clone(), source })?;
        }
        if !is_empty_or_database(&path) {
            return Err(ReportError::NoDatabase { path: shown });
        }
        let failed = |source: rusqlite::Error| match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                ReportError::NotAStore { path: shown.clone(), source }
            }
            _ => ReportError::Sqlite { path: shown.clone(), doing: "open the run store", source },
        };
        let mut sqlite = Connection::open(&path).map_err(failed)?;
        sqlite.busy_timeout(BUSY_WAIT).map_err(failed)?;
        let version = pragma(&sqlite, "user_version").map_err(failed)?;
        let application = pragma(&sqlite, "application_id").map_err(failed)?;
        if version > STORE_VERSION && application == APPLICATION_ID {
            return Err(ReportError::Newer { path: shown, found: version, known: STORE_VERSION });
        }
        if version == STORE_VERSION && application == APPLICATION_ID {
            return Ok(Self { path, sqlite, registry: BenchmarkRegistry::NONE });
        }
        // Two that start at once both come here; the lock lets one make the tables and the other see them.
        let making = sqlite.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let tables: i64 =
            making.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
        if tables == 0 {
            making.execute_batch(TABLES).map_err(failed)?;
            making.pragma_update(None, "user_version", STORE_VERSION).map_err(failed)?;
            making.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
            making.commit().map_err(failed)?;
        } else {
            let application = pragma(&making, "application_id").map_err(failed)?;
            drop(making);
            if application != APPLICATION_ID {
                return Err(ReportError::Foreign { path: shown });
            }
        }
        Ok(Self { path, sqlite, registry: BenchmarkRegistry::NONE })
    }

    /// Reads records that declare no metrics with the lists of `registry`, as those of earlier versions do not.
    #[must_use]
    pub fn declaring(mut self, registry: BenchmarkRegistry) -> Self {
        self.registry = registry;
        self
    }

    /// Where the store lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps a record.
    ///
    /// # Errors
    /// When a run of this name is there already, when the record would not read back, or when SQLite
    /// cannot write.
    pub fn insert(&self, record: &RunRecord) -> Result<()> {
        self.put("INSERT", record, &readable(record)?)
    }

    /// Keeps a record in place of what was kept of the same run before.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn replace(&self, record: &RunRecord) -> Result<()> {
        self.put("INSERT OR REPLACE", record, &readable(record)?)
    }

    /// Keeps the record that `text` holds as JSON, or all of a list of them, and returns their names.
    ///
    /// # Errors
    /// When the text is not a record, a name is not one that runs have, and as for [`Store::insert`]; then nothing is kept.
    pub fn import(&self, text: &str) -> Result<Vec<RunId>> {
        let records = RunRecord::all_from_json(text).map_err(ReportError::Import)?;
        let failed = |source| self.failed("store the runs", source);
        let all = self.sqlite.unchecked_transaction().map_err(failed)?;
        for record in &records {
            let is_fine = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
            if record.id.0.is_empty() || !record.id.0.chars().all(is_fine) {
                return Err(ReportError::NoName { id: record.id.0.clone() });
            }
            // Serialized again and not stored as given, so that what is stored has this version's shape.
            self.put("INSERT", record, &record.to_json())?;
        }
        all.commit().map_err(failed)?;
        Ok(records.into_iter().map(|record| record.id).collect())
    }

    fn put(&self, verb: &str, record: &RunRecord, text: &str) -> Result<()> {
        let metrics = serde_json::to_string(&record.metrics).expect("names and numbers are always JSON");
        let done = self.sqlite.execute(
            &format!("{verb} INTO runs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"),
            params![
                record.id.0,
                record.benchmark,
                record.label,
                record.target,
                record.started.as_microsecond(),
                record.complete,
                record.verdict.valid,
                points_of(record) as i64,
                metrics,
                text,
            ],
        );
        match done {
            Ok(_) => Ok(()),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                Err(ReportError::Duplicate { path: self.shown(), id: record.id.0.clone() })
            }
            Err(source) => Err(self.failed("store the run", source)),
        }
    }

    /// All runs, newest first.
    ///
    /// # Errors
    /// When SQLite cannot read.
    pub fn list(&self) -> Result<Vec<RunSummary>> {
        self.summaries(&format!("{SUMMARY_WITH_SERIES} {NEWEST_FIRST}"), params![])
    }

    /// The one run that `wanted` names: `last` for the newest, else its name or a beginning or end of it.
    ///
    /// # Errors
    /// When no run or several are named so, or the record is damaged.
    pub fn find(&self, wanted: &str) -> Result<RunRecord> {
        let found = if wanted == "last" {
            self.summaries(&format!("{SUMMARY} {NEWEST_FIRST} LIMIT 1"), params![])?
        } else {
            let named = format!(
                "{SUMMARY} WHERE ?1 <> '' AND (substr(id, 1, length(?1)) = ?1 OR substr(id, -length(?1)) = ?1) \
                 {NEWEST_FIRST}"
            );
            self.summaries(&named, params![wanted])?
        };
        if let Some(exact) = found.iter().find(|run| run.id.0 == wanted) {
            return self.record(&exact.id);
        }
        match found.as_slice() {
            [one] => self.record(&one.id),
            [] => match self.list()?.len() {
                0 => Err(ReportError::Empty { path: self.shown() }),
                runs => Err(ReportError::NoRun { wanted: wanted.to_owned(), runs }),
            },
            several => Err(ReportError::Ambiguous {
                wanted: wanted.to_owned(),
                candidates: several.iter().map(|run| run.id.0.clone()).collect(),
            }),
        }
    }

    /// All runs with exactly this label, in the order measured.
    ///
    /// # Errors
    /// When there is none, one is damaged, or SQLite cannot read.
    pub fn labelled(&self, label: &str) -> Result<Vec<RunRecord>> {
        let runs = self.summaries(&format!("{SUMMARY} WHERE label = ?1 {OLDEST_FIRST}"), params![label])?;
        if runs.is_empty() {
            return Err(ReportError::NoLabel { label: label.to_owned() });
        }
        runs.iter().map(|run| self.record(&run.id)).collect()
    }

    /// All runs of a series in the order measured: named by `last`, by one of its runs, or by the name of the series
    /// itself, even when its first run is there no more. Each name may be cut to a beginning or an end.
    ///
    /// # Errors
    /// When no run or several are named so, when the run was made alone, and as for [`Store::labelled`].
    pub fn series(&self, wanted: &str) -> Result<Vec<RunRecord>> {
        // A damaged record is no JSON, and must not hide the others.
        const OF: &str = "CASE WHEN json_valid(record) THEN json_extract(record, '$.series.of') END";
        let failed = |source| self.failed("look for the series", source);
        let matching = format!(
            "SELECT DISTINCT {OF} AS named FROM runs WHERE ?1 NOT IN ('', 'last') AND named IS NOT NULL \
             AND (substr(named, 1, length(?1)) = ?1 OR substr(named, -length(?1)) = ?1)"
        );
        let mut statement = self.sqlite.prepare(&matching).map_err(failed)?;
        let rows = statement.query_map(params![wanted], |row| row.get::<_, String>(0)).map_err(failed)?;
        let mut named = rows.collect::<rusqlite::Result<Vec<String>>>().map_err(failed)?;
        if let Some(exact) = named.iter().find(|of| *of == wanted) {
            named = vec![exact.clone()];
        }
        let of = match named.as_slice() {
            [one] => one.clone(),
            [] => {
                let series = self.find(wanted)?.series;
                series.ok_or_else(|| ReportError::NoSeries { wanted: wanted.to_owned() })?.of.0
            }
            _ => return Err(ReportError::Ambiguous { wanted: wanted.to_owned(), candidates: named }),
        };
        let runs = self.summaries(&format!("{SUMMARY} WHERE {OF} = ?1 {OLDEST_FIRST}"), params![of])?;
        let mut records = runs.iter().map(|run| self.record(&run.id)).collect::<Result<Vec<_>>>()?;
        records.sort_by_key(|record| record.series.as_ref().map(|series| series.turn));
        Ok(records)
    }

    /// Forgets a run.
    ///
    /// # Errors
    /// When there is none of this name, or SQLite cannot write.
    pub fn remove(&self, id: &RunId) -> Result<()> {
        let removed = self.sqlite.execute("DELETE FROM runs WHERE id = ?1", params![id.0]);
        match removed.map_err(|source| self.failed("remove the run", source))? {
            0 => Err(ReportError::NoRun { wanted: id.0.clone(), runs: self.list()?.len() }),
            _ => Ok(()),
        }
    }

    fn record(&self, id: &RunId) -> Result<RunRecord> {
        let text: Option<String> = self
            .sqlite
            .query_row("SELECT record FROM runs WHERE id = ?1", params![id.0], |row| row.get(0))
            .optional()
            .map_err(|source| self.failed("read the run", source))?;
        // Gone between the two queries: another Crumb removed it.
        let text = text.ok_or_else(|| ReportError::NoRun { wanted: id.0.clone(), runs: 0 })?;
        let record = RunRecord::from_json(&text).map_err(|source| ReportError::Damaged {
            path: self.shown(),
            id: id.0.clone(),
            source,
        })?;
        Ok(record.declared_by(self.registry))
    }

    fn summaries(&self, query: &str, parameters: &[&dyn rusqlite::ToSql]) -> Result<Vec<RunSummary>> {
        let failed = |source| self.failed("list the runs", source);
        let mut statement = self.sqlite.prepare(query).map_err(failed)?;
        let rows = statement.query_map(parameters, summary).map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    fn failed(&self, doing: &'static str, source: rusqlite::Error) -> ReportError {
        match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                ReportError::NotAStore { path: self.shown(), source }
            }
            _ => ReportError::Sqlite { path: self.shown(), doing, source },
        }
    }

    fn shown(&self) -> String {
        self.path.display().to_string()
    }
}

/// SQLite takes a file of less than a page for an empty database, and writes over it.
fn is_empty_or_database(path: &Path) -> bool {
    let mut head = Vec::new();
    let read =
        fs::File::open(path).and_then(|file| file.take(SQLITE_HEAD.len() as u64).read_to_end(&mut head));
    // What is not there, or cannot be read, is for SQLite to say.
    read.is_err() || head.is_empty() || head == SQLITE_HEAD
}

/// The record's JSON, if it can be read again: JSON has no NaN, which is written as null, and no field of numbers takes that
/// back.
fn readable(record: &RunRecord) -> Result<String> {
    let text = record.to_json();
    match RunRecord::from_json(&text) {
        Ok(_) => Ok(text),
        Err(source) => Err(ReportError::Unreadable { id: record.id.0.clone(), source }),
    }
}

fn pragma(sqlite: &Connection, name: &str) -> rusqlite::Result<i64> {
    sqlite.pragma_query_value(None, name, |row| row.get(0))
}

/// Load points; where there are none, the most points that a line of a curve has.
fn points_of(record: &RunRecord) -> usize {
    let lines = record.curves.iter().flat_map(|curve| &curve.lines);
    let of_curves = || lines.map(|line| line.points.len()).max().unwrap_or(0);
    if record.points.is_empty() { of_curves() } else { record.points.len() }
}

fn summary(row: &Row<'_>) -> rusqlite::Result<RunSummary> {
    let metrics: String = row.get("metrics")?;
    // Not a column of every query.
    let series: Option<String> = row.get("series").unwrap_or_default();
    Ok(RunSummary {
        id: RunId(row.get("id")?),
        benchmark: row.get("benchmark")?,
        label: row.get("label")?,
        target: row.get("target")?,
        started: Timestamp::from_microsecond(row.get("started_us")?).unwrap_or(Timestamp::UNIX_EPOCH),
        complete: row.get("complete")?,
        valid: row.get("valid")?,
        points: usize::try_from(row.get::<_, i64>("points")?).unwrap_or(0),
        // The list still shows a run whose figures are damaged; reading the record will say so.
        metrics: serde_json::from_str(&metrics).unwrap_or_default(),
        series: series.and_then(|series| serde_json::from_str(&series).ok()),
    })
}
