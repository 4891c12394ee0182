//! Keeps RunRecords, lists them, and draws them.
//!
//! ```text
//! RunRecord -> Store (SQLite) -> RunRecord -> series -> html: one file, uPlot or inlined SVG
//!                                                   \-> svg:  files for papers and mails
//!           -> sections: what the benchmark's own crate shows, as data -^
//! table of cells -> grid_page: one file, for tables that join several benchmarks
//! points of a knob -> sensitivity: one file, one SVG: latency against a setting, a line for each value of another
//! names -> sides -> compare: Comparison -> terminal table, JSON, dot plots
//! ```
//!
//! Always holds: no benchmark is known here by name, and what is said of one comes from the registry that the program hands
//! over (`measure::BenchmarkRegistry`); a record is kept whole, as its JSON; a page asks nothing of the network; what a user
//! named (labels, targets) is text on the page and never markup; closed-loop points are called so.
//! Not here: where the store lies (the binary says), measuring (see `measure`), terminal tables.

mod axis;
mod captions;
pub mod compare;
mod dots;
mod error;
pub mod grid_page;
pub mod html;
mod lines;
mod passes;
mod sections;
pub mod sensitivity;
mod series;
pub mod sides;
mod store;
pub mod svg;
mod time_series;
mod views;

pub use error::ReportError;
pub(crate) use measure::numbers as figures;
pub use measure::numbers::{
    bytes_text, count_text, figure_text, metric_text, ms_text, number_text, number_text_beside, rate_text,
};
pub use passes::Reference;
pub use store::{RunSummary, Store};
pub use time_series::csv as time_series_csv;

/// What this crate's functions return.
pub type Result<T> = std::result::Result<T, ReportError>;
