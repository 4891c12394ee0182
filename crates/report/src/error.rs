//! What can go wrong between a record and its picture.

use measure::RecordError;

/// An error of the store or of drawing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The directory that should hold the store cannot be made.
    #[error("{path}: cannot make the directory of the run store; name another file with --store")]
    Directory {
        /// Path of the store.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is no SQLite database.
    #[error("{path}: not a run store, or a damaged one; move it away, or name another file with --store")]
    NotAStore {
        /// Path of the file.
        path: String,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The file is not empty and no SQLite database.
    #[error("{path}: not a run store; name another file with --store")]
    NoDatabase {
        /// Path of the file.
        path: String,
    },
    /// A database whose pages do not fit together.
    #[error("{path}: the run store is damaged ({found}); move it away, or name another file with --store")]
    DamagedStore {
        /// Path of the file.
        path: String,
        /// What SQLite found first.
        found: String,
    },
    /// A database of another program.
    #[error("{path}: a database of another program, not a run store; name another file with --store")]
    Foreign {
        /// Path of the file.
        path: String,
    },
    /// Written by a newer Crumb.
    #[error("{path}: run store of version {found}; this Crumb knows up to {known}: use a newer one")]
    Newer {
        /// Path of the store.
        path: String,
        /// Version of the file.
        found: i64,
        /// Newest version known here.
        known: i64,
    },
    /// Any other refusal by SQLite: locked, full, read-only.
    #[error("{path}: cannot {doing}")]
    Sqlite {
        /// Path of the store.
        path: String,
        /// What was tried.
        doing: &'static str,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// A run of this name is there already.
    #[error("{path}: run {id} is in the store already; remove it first with `crumb runs rm {id}`")]
    Duplicate {
        /// Path of the store.
        path: String,
        /// Name of the run.
        id: String,
    },
    /// A record whose JSON does not read back: it would only be found out when it is wanted.
    #[error("run {id} cannot be stored, as it would not read back (is there a number that is not finite?)")]
    Unreadable {
        /// Name of the run.
        id: String,
        /// What reading said.
        source: RecordError,
    },
    /// The text given for import is not a record.
    #[error("cannot import the text")]
    Import(#[source] RecordError),
    /// A row of the store does not hold a record any more.
    #[error("{path}: run {id} is damaged; remove it with `crumb runs rm {id}`")]
    Damaged {
        /// Path of the store.
        path: String,
        /// Name of the run.
        id: String,
        /// What reading said.
        source: RecordError,
    },
    /// The store holds no run at all.
    #[error("{path}: no runs yet; make one with `crumb run`")]
    Empty {
        /// Path of the store.
        path: String,
    },
    /// No run is named so.
    #[error("no run begins or ends with {wanted:?}; `crumb runs list` shows all runs in the store ({runs})")]
    NoRun {
        /// What was asked for.
        wanted: String,
        /// Runs in the store.
        runs: usize,
    },
    /// Several runs are named so.
    #[error("{wanted:?} names {} runs; say which: {}", .candidates.len(), some(.candidates))]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// The runs it could be, newest first.
        candidates: Vec<String>,
    },
    /// Names that make no two sides.
    #[error("there is nothing to compare with: name two or more sides, or one series of sides A and B")]
    OneSide,
    /// A side without runs.
    #[error("side {side} has no runs")]
    EmptySide {
        /// Name of the side.
        side: String,
    },
    /// A run cannot be compared with itself.
    #[error("run {id} is on sides {sides}: a run cannot be compared with itself")]
    OnTwoSides {
        /// Name of the run.
        id: String,
        /// The sides.
        sides: String,
    },
    /// Runs that measured different things.
    #[error("these runs cannot be compared: {reason}")]
    NotComparable {
        /// What differs.
        reason: String,
    },
    /// A metric was named that the sides do not share.
    #[error("no metric {wanted:?} that the sides share; there are: {}", some(.known))]
    NoMetric {
        /// What was asked for.
        wanted: String,
        /// What there is.
        known: Vec<String>,
    },
    /// No run has this label.
    #[error("no run is labelled {label:?}; `crumb runs list` shows the labels")]
    NoLabel {
        /// What was asked for.
        label: String,
    },
    /// A run that was made alone.
    #[error("{wanted:?} is no series: give runs to compare it with, or a run made with --repeat or --vs")]
    NoSeries {
        /// What was asked for.
        wanted: String,
    },
    /// A series without that side.
    #[error("series {of} has no side {side:?}; it has {}", some(.there))]
    NoSide {
        /// The series.
        of: String,
        /// What was asked for.
        side: String,
        /// The sides there are.
        there: Vec<String>,
    },
    /// A file that should hold a record cannot be read.
    #[error("{path}: cannot read this RunRecord")]
    File {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file that should hold a record holds something else.
    #[error("{path}: not to be compared")]
    NoRecord {
        /// The file.
        path: String,
        /// What reading said.
        source: RecordError,
    },
    /// A record that is to be imported has a name that no run is given.
    #[error(
        "{id:?} is not a valid name of a run: only letters, digits, `-`, `_` and `.` are allowed, and at least one"
    )]
    NoName {
        /// The name.
        id: String,
    },
    /// A report of nothing.
    #[error("there is no run to report on; name one, or `last`")]
    NothingToDraw,
    /// The template does not hold together: a bug of Crumb.
    #[error("cannot fill in the report's template")]
    Template(#[from] minijinja::Error),
    /// Plotters refused.
    #[error("cannot draw the {plot} plot: {reason}")]
    Draw {
        /// Name of the plot.
        plot: String,
        /// What plotters said.
        reason: String,
    },
}

/// Names enough candidates to choose from without filling the screen.
fn some(candidates: &[String]) -> String {
    const SHOWN: usize = 8;
    let mut text = candidates[..candidates.len().min(SHOWN)].join(", ");
    if candidates.len() > SHOWN {
        text.push_str(&format!(" and {} more", candidates.len() - SHOWN));
    }
    text
}
