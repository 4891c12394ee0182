//! One run of a benchmark of storage, made from the words that its own verb takes: for verbs that run several benchmarks.
//!
//! ```text
//! postmark /mnt/a --quick -> Cell::of -> foreseen, reach, supply -> measure -> Run
//! ```
//!
//! Always holds: a word that the benchmark's own verb refuses is refused here, with its message.
//! Not here: which runs, in which order (see `shootout`).

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::anyhow;
use clap::{Parser, Subcommand};
use files::Target;

use super::dirscale::DirscaleArgs;
use super::fstress::FstressArgs;
use super::netnews::NetnewsArgs;
use super::postmark::RunPostmarkArgs;
use crate::context::Context;
use crate::exit::BadUsage;
use crate::forecast::Forecast;
use crate::outcome::Run;
use crate::pipeline::Around;
use crate::series::Turn;

/// A run that can be made.
pub trait Cell {
    /// What it will do.
    ///
    /// # Errors
    /// When its settings do not go together.
    fn foreseen(&self) -> anyhow::Result<Forecast>;

    /// Opens the storage and closes it again.
    ///
    /// # Errors
    /// When it cannot be used, or has no room for the run.
    fn reach(&self, stop: &Arc<AtomicBool>) -> anyhow::Result<()>;

    /// Makes what runs of the same workload on several targets share.
    ///
    /// # Errors
    /// When it cannot be made.
    fn supply(
        &mut self,
        _supplies: &mut Supplies,
        _context: &Context,
        _stop: &AtomicBool,
    ) -> anyhow::Result<()> {
        Ok(())
    }

    /// Makes the run.
    ///
    /// # Errors
    /// When nothing was measured because of an error.
    fn measure(&self, turn: Turn<'_>, around: Around<'_>) -> anyhow::Result<Run>;
}

/// What the runs of one workload share; removed when it is dropped.
pub struct Supplies {
    /// All targets of the workload.
    pub targets: Vec<Target>,
    /// A feed, once it is made.
    pub feed: Option<PathBuf>,
    /// What holds it.
    pub held: Vec<Box<dyn Any>>,
}

/// Names of the benchmarks that [`of`] knows.
pub const BENCHMARKS: [&str; 4] = ["fstress", "postmark", "netnews", "dirscale"];

#[derive(Parser)]
#[command(name = "crumb run", no_binary_name = true)]
struct Words {
    #[command(subcommand)]
    benchmark: Known,
}

#[derive(Subcommand)]
enum Known {
    Fstress(Box<FstressArgs>),
    Postmark(Box<RunPostmarkArgs>),
    Netnews(Box<NetnewsArgs>),
    Dirscale(Box<DirscaleArgs>),
}

/// The run that `crumb run` would make from these words.
///
/// # Errors
/// When the benchmark's verb does not take them.
pub fn of(words: &[String]) -> anyhow::Result<Box<dyn Cell>> {
    let parsed = Words::try_parse_from(words).map_err(|wrong| {
        let text = wrong.to_string();
        let first = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
        anyhow!("{}", first.split_whitespace().collect::<Vec<_>>().join(" ")).context(BadUsage)
    })?;
    let cell: Box<dyn Cell> = match parsed.benchmark {
        Known::Fstress(args) => args,
        Known::Postmark(args) => args,
        Known::Netnews(args) => args,
        Known::Dirscale(args) => args,
    };
    Ok(cell)
}
