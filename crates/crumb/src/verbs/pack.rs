//! `crumb pack`: packed object stores made, filled, read, looked at and kept well.
//!
//! ```text
//! PackArgs -> create grow    place     which directories make up a store
//!          -> put get cat rm put, get  files, trees, tar streams and single bodies
//!          -> ls stat        figures
//!          -> check repair compact     upkeep
//!          -> bench          bench     this store's place beside one file an object
//! ```
//!
//! Always holds: an interrupted verb closes the store cleanly; what could not be done is told, counted and fails.

mod bench;
mod figures;
mod get;
mod member;
pub mod place;
mod put;
mod upkeep;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, anyhow, bail};
use bytesize::ByteSize;
use clap::{Args, Subcommand, ValueEnum};
use packstore::{Mode, OpenOptions, StoreError, StoreOptions};
use report::{bytes_text, count_text};
use serde_json::json;

use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::{counted, wrapped};
use crate::output::{note, print};
use crate::progress::Progress;
use crate::signals;

use self::place::Place;

/// Make, fill, look at and mend a packed object store: millions of small objects in few files.
#[derive(Args, Debug)]
pub struct PackArgs {
    #[command(subcommand)]
    verb: PackVerb,
}

#[derive(Subcommand, Debug)]
enum PackVerb {
    /// Make an empty store
    Create(CreateArgs),
    /// Store files, trees or a tar stream
    Put(put::PutArgs),
    /// Write objects as files, or as a tar stream
    Get(get::GetArgs),
    /// Write the bodies of objects to standard output
    Cat(get::CatArgs),
    /// List objects in the order of their keys
    Ls(figures::LsArgs),
    /// Delete objects
    Rm(RmArgs),
    /// Tell what a store holds and takes, or what is known of objects
    Stat(figures::StatArgs),
    /// Read everything and compare it with its checksums
    Check(upkeep::CheckArgs),
    /// Check, and delete what is damaged
    Repair(upkeep::RepairArgs),
    /// Empty segments that are mostly free, and give their room back
    Compact(upkeep::CompactArgs),
    /// Add a directory to a store
    Grow(GrowArgs),
    /// Remove, give up or replace a directory of a store
    Member(member::MemberArgs),
    /// Measure a directory: objects packed, beside one file an object
    Bench(bench::BenchArgs),
}

/// Runs the verb.
pub fn run(args: PackArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    match args.verb {
        PackVerb::Create(args) => create(&args, context),
        PackVerb::Put(args) => put::run(&args, context),
        PackVerb::Get(args) => get::run(&args, context),
        PackVerb::Cat(args) => get::cat(&args),
        PackVerb::Ls(args) => figures::list(&args, context),
        PackVerb::Rm(args) => remove(&args, context),
        PackVerb::Stat(args) => figures::stat(&args, context),
        PackVerb::Check(args) => upkeep::check(&args, context),
        PackVerb::Repair(args) => upkeep::repair(&args, context),
        PackVerb::Compact(args) => upkeep::compact(&args, context),
        PackVerb::Grow(args) => grow(&args, context),
        PackVerb::Member(args) => member::run(&args, context),
        PackVerb::Bench(args) => bench::run(&args, context),
    }
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  Ten gigabytes in a directory:
    crumb pack create /srv/objects --size 10G
  On three disks, the last one larger:
    crumb pack create /disk1/objects --size 10G --volume /disk2/objects --volume /disk3/objects=40G
  A cache that evicts when it is full, as KOTETU packed it:
    crumb pack create /srv/cache --size 2G --mode cache --block-size 8KiB --packed-blocks 1500")]
struct CreateArgs {
    /// Directory of the store; made when it is not there
    #[arg(value_name = "STORE")]
    store: PathBuf,

    /// Bytes that the store may use of its directory, and of each further one that names no size of its own
    #[arg(long, value_name = "BYTES")]
    size: ByteSize,

    /// A further directory, on this or another disk, and how much of it
    #[arg(long, value_name = "DIR[=BYTES]")]
    volume: Vec<place::SizedVolume>,

    /// store: what is put survives power loss, and a full store says so; cache: written behind, evicts when full
    #[arg(long, value_enum, default_value = "store")]
    mode: ModeArg,

    /// Unit of space: a power of two from 64 bytes to 64 KiB
    #[arg(long, value_name = "BYTES", default_value = "64B")]
    block_size: ByteSize,

    /// Blocks in a segment [default: as make 256 files of the largest directory, of 1 MiB to 1 GiB each]
    #[arg(long, value_name = "COUNT")]
    packed_blocks: Option<u32>,

    /// Mean size of the objects to come: the memory for finding them is laid out by it
    #[arg(long, value_name = "BYTES", default_value = "8KiB")]
    object_mean: ByteSize,

    /// Tell what was made as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeArg {
    Store,
    Cache,
}

fn create(args: &CreateArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let small = |bytes: ByteSize| u32::try_from(bytes.as_u64()).unwrap_or(u32::MAX);
    let options = StoreOptions {
        mode: match args.mode {
            ModeArg::Store => Mode::Store,
            ModeArg::Cache => Mode::Cache,
        },
        block_bytes: small(args.block_size),
        packed_blocks: args.packed_blocks,
        object_bytes_mean: small(args.object_mean),
        ..StoreOptions::default()
    };
    let (place, store) = Place::create(&args.store, args.size.as_u64(), &args.volume, options)?;
    let (block_bytes, packed_blocks) = store.shape();
    let size_bytes = store.usage().size_bytes;
    closed(store)?;
    if args.json {
        print_json(&json!({
            "store": place.store(), "volumes": place.directories(), "size_bytes": size_bytes,
            "block_bytes": block_bytes, "packed_blocks": packed_blocks,
            "mode": format!("{:?}", args.mode).to_lowercase(),
        }))?;
        return Ok(ExitStatus::Fine);
    }
    let text = format!(
        "{}: a store of {} in {}, segments of {}",
        place.store().display(),
        bytes_text(size_bytes),
        counted(place.directories().len(), "directory", "directories"),
        bytes_text(u64::from(block_bytes) * u64::from(packed_blocks)),
    );
    note(context, wrapped("", &text).trim_end());
    Ok(ExitStatus::Fine)
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  crumb pack grow /srv/objects --volume /disk4/objects --size 20G")]
struct GrowArgs {
    /// Directory of the store
    #[arg(value_name = "STORE")]
    store: PathBuf,

    /// Directory to add; made when it is not there
    #[arg(long, value_name = "DIR")]
    volume: PathBuf,

    /// Bytes that the store may use of it
    #[arg(long, value_name = "BYTES")]
    size: ByteSize,

    /// Tell what the store has now as JSON
    #[arg(long)]
    json: bool,
}

fn grow(args: &GrowArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let mut place = Place::read(&args.store)?;
    let store = place.open(OpenOptions::default())?;
    let grown = place.grow(&store, &args.volume, args.size.as_u64());
    let usage = store.usage();
    let volumes = store.volumes().len();
    closed(store)?;
    grown?;
    if args.json {
        print_json(
            &json!({ "store": place.store(), "volumes": place.directories(), "size_bytes": usage.size_bytes }),
        )?;
    } else {
        let volumes = counted(volumes, "directory", "directories");
        let text = format!("{}: {} in {volumes} now", place.store().display(), bytes_text(usage.size_bytes));
        note(context, wrapped("", &text).trim_end());
    }
    Ok(ExitStatus::Fine)
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  crumb pack rm /srv/objects logo.png old/notes.txt
  A whole tree:
    crumb pack rm /srv/objects --prefix old/")]
struct RmArgs {
    /// Directory of the store
    #[arg(value_name = "STORE")]
    store: PathBuf,

    /// Keys of the objects
    #[arg(value_name = "KEY", required_unless_present = "prefix")]
    keys: Vec<OsString>,

    /// All objects whose keys begin so
    #[arg(long, value_name = "TEXT")]
    prefix: Option<OsString>,

    /// Tell how many were deleted as JSON
    #[arg(long)]
    json: bool,
}

fn remove(args: &RmArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let stop = signals::stop_flag_of(context)?;
    let store = Place::read(&args.store)?.open(OpenOptions::default())?;
    let mut keys: Vec<Vec<u8>> = args.keys.iter().map(|key| key.as_bytes().to_vec()).collect();
    let mut progress = Progress::new(context.quiet);
    let done = (|| {
        if let Some(prefix) = &args.prefix {
            let entries = store.iter_ordered(prefix.as_bytes())?;
            if let Some(error) = entries.failures().first() {
                return Err(error.clone().into());
            }
            keys.extend(entries.map(|entry| entry.key));
        }
        let (mut deleted, mut missing) = (0_u64, 0_u64);
        for (at, key) in keys.iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                bail!("interrupted; {} objects are deleted", count_text(deleted));
            }
            progress.step(at as u64, keys.len() as u64, format!("{} deleted", count_text(deleted)));
            // Not waited for one by one: closing makes all of them durable.
            let (was_there, _pending) = store.delete_deferred(key)?;
            if was_there {
                deleted += 1;
            } else {
                missing += 1;
                note(context, &format!("error: {}: no such object", packfs::shown(key)));
            }
        }
        Ok((deleted, missing))
    })();
    progress.finish();
    let (deleted, missing) = close_after(store, done)?;
    if args.json {
        print_json(&json!({ "deleted": deleted, "missing": missing }))?;
    } else {
        note(context, &format!("{} deleted", counted(deleted as usize, "object", "objects")));
    }
    match missing {
        0 => Ok(ExitStatus::Fine),
        _ => Err(anyhow!("{} not there", counted(missing as usize, "object was", "objects were"))),
    }
}

/// What fails a verb that was to show all there is, when a part of the store is known to be missing.
fn all_is_there(store: &packstore::Store, path: &std::path::Path) -> anyhow::Result<()> {
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

/// Closes a store whatever happened before, which is told first.
fn close_after<T>(store: packstore::Store, done: anyhow::Result<T>) -> anyhow::Result<T> {
    let closed = closed(store);
    let done = done?;
    closed.map(|()| done)
}

fn closed(store: packstore::Store) -> anyhow::Result<()> {
    store.close().context("the store was not closed cleanly; it is looked through when it is opened next")
}

/// A setting that cannot be is bad usage.
fn told(error: StoreError) -> anyhow::Error {
    match error {
        StoreError::Setting { .. } => anyhow::Error::new(error).context(BadUsage),
        error => error.into(),
    }
}

fn print_json(value: &serde_json::Value) -> anyhow::Result<()> {
    print(&format!("{value:#}\n"))
}
