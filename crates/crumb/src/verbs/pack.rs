//! `crumb pack`: packed object stores made, filled, read, looked at and kept well.
//!
//! ```text
//! PackArgs -> create grow    create    a store, and more directories for it
//!          -> put get cat rm put, get, remove   files, trees, tar streams and single bodies
//!          -> ls stat        ls, stat  what is in it, and what it takes
//!          -> check repair   check     what is damaged
//!          -> compact        compact   room given back
//!          -> bench          bench     this store's place beside one file an object
//! ```
//!
//! Always holds: an interrupted verb closes the store cleanly; what could not be done is reported, counted and fails.

mod bench;
mod check;
mod compact;
mod create;
mod get;
mod ls;
mod member;
mod object;
mod owner;
pub mod place;
mod put;
mod remove;
mod stat;
pub mod tree;

use std::path::Path;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use packstore::{Store, StoreError};

use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::counted;
use crate::output::Destination;

/// Create, fill, inspect and repair a packed store: millions of small objects in few files.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  crumb pack create /srv/objects --size 10G
  crumb pack put /srv/objects images
  crumb pack get /srv/objects --all -o restored")]
pub struct PackArgs {
    #[command(subcommand)]
    verb: PackVerb,
}

#[derive(Subcommand, Debug)]
enum PackVerb {
    /// Create an empty store
    Create(create::CreateArgs),
    /// Store files, trees or a tar stream
    Put(put::PutArgs),
    /// Write objects as files, or as a tar stream
    Get(get::GetArgs),
    /// Write the bodies of objects to standard output
    Cat(get::CatArgs),
    /// List objects in the order of their keys
    Ls(ls::LsArgs),
    /// Delete objects
    Rm(remove::RmArgs),
    /// Print statistics of a store, or of objects
    Stat(stat::StatArgs),
    /// Verify the whole store against its checksums
    Check(check::CheckArgs),
    /// Verify, and delete damaged objects
    Repair(check::RepairArgs),
    /// Empty segments that are mostly free, and give their space back
    Compact(compact::CompactArgs),
    /// Add a directory to a store
    Grow(create::GrowArgs),
    /// Remove a directory of a store, continue without a lost one, or replace one
    Member(member::MemberArgs),
    /// Measure a directory: packed objects beside one file per object
    Bench(bench::BenchArgs),
}

/// Runs the verb.
pub fn run(args: PackArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    match args.verb {
        PackVerb::Create(args) => create::create(&args, context),
        PackVerb::Put(args) => put::run(&args, context),
        PackVerb::Get(args) => get::run(&args, context),
        PackVerb::Cat(args) => get::cat(&args),
        PackVerb::Ls(args) => ls::list(&args, context),
        PackVerb::Rm(args) => remove::remove(&args, context),
        PackVerb::Stat(args) => stat::stat(&args, context),
        PackVerb::Check(args) => check::check(&args, context),
        PackVerb::Repair(args) => check::repair(&args, context),
        PackVerb::Compact(args) => compact::compact(&args, context),
        PackVerb::Grow(args) => create::grow(&args, context),
        PackVerb::Member(args) => member::run(&args, context),
        PackVerb::Bench(args) => bench::run(&args, context),
    }
}

/// What fails a verb that was to show all there is, when a part of the store is known to be missing.
fn all_is_there(store: &Store, path: &Path) -> anyhow::Result<()> {
    let faults = store.missing_parts()?;
    let Some(first) = faults.first() else { return Ok(()) };
    let file = first.file.map(|file| format!("segment {file:08}: ")).unwrap_or_default();
    let more = match faults.len() - 1 {
        0 => String::new(),
        more => format!(", and {}", counted(more, "more fault", "more faults")),
    };
    bail!(
        "{}: objects may be missing: {file}{}{more}; `crumb pack check` lists every fault, and `crumb pack repair` repairs what it can",
        path.display(),
        first.what
    )
}

/// Closes a store whatever happened before, which is reported first.
fn close_after<T>(store: Store, done: anyhow::Result<T>) -> anyhow::Result<T> {
    let closed = closed(store);
    let done = done?;
    closed.map(|()| done)
}

fn closed(store: Store) -> anyhow::Result<()> {
    store.close().context("the store was not closed cleanly; it is looked through when it is opened next")
}

/// Marks an invalid setting as bad usage.
fn with_usage_marked(error: StoreError) -> anyhow::Error {
    match error {
        StoreError::Setting { .. } => anyhow::Error::new(error).context(BadUsage),
        error => error.into(),
    }
}

fn write_json(to: &Destination, context: &Context, value: &serde_json::Value) -> anyhow::Result<()> {
    to.write(context, "the figures", &format!("{value:#}\n"))
}
