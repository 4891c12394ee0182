//! `crumb pack create` and `grow`: a store, and more directories for it.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use disk::{Disk as _, LocalDisk};
use packstore::{Mode, OpenOptions, StoreOptions};
use report::bytes_text;
use serde_json::json;

use super::place::{Place, SizedVolume};
use super::{closed, tree, write_json};
use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::{counted, wrapped};
use crate::output::{Destination, destination, note};
use crate::quantities::{count, size};

/// Create an empty store
#[derive(Args, Debug)]
#[command(
    override_usage = "crumb pack create --size <SIZE> [OPTIONS] <STORE>\n       crumb pack create --tree <STORE>",
    after_help = "\
Examples:
  Ten gigabytes in a directory:
    crumb pack create /srv/objects --size 10G
  On three disks, the last one larger:
    crumb pack create /disk1/objects --size 10G --volume /disk2/objects --volume /disk3/objects=40G
  A cache that evicts when it is full, in blocks as large as KOTETU's (2000):
    crumb pack create /srv/cache --size 2G --mode cache --block-size 8KiB --packed-blocks 1500
  Objects with a time to live, as in `crumb pack put --ttl 3d`:
    crumb pack create /srv/recent --size 10G --expires
  The newest articles of a stream, in ten gigabytes:
    crumb pack create /srv/spool --size 10G --cyclic
  A file tree for benchmarks of pack:/srv/spool, which grows as it is filled:
    crumb pack create /srv/spool --tree

Exit codes: 0 created, 1 failed, 2 wrong usage."
)]
pub struct CreateArgs {
    /// Directory of the store; created if missing
    #[arg(id = "place", value_name = "STORE")]
    store: PathBuf,

    /// Space to use in the store's directory, and in each --volume without =SIZE; needed unless --tree is given
    #[arg(long, value_name = "SIZE", value_parser = size::<u64>, required_unless_present = "tree")]
    size: Option<u64>,

    /// Create a file tree instead, for benchmarks that rename, append and link: names in a journal, contents in one file that grows. Both
    /// kinds are targets pack:STORE; neither can be mounted
    #[arg(long, conflicts_with_all = ["size", "volume", "mode", "expires", "cyclic", "block_size", "packed_blocks", "object_mean"])]
    tree: bool,

    /// Additional directory, on this or another disk, and the space to use in it
    #[arg(long, value_name = "DIR[=SIZE]")]
    volume: Vec<SizedVolume>,

    /// Durability: store (puts survive power loss; a full store refuses puts) or cache (written behind; a full store evicts)
    #[arg(long, value_enum, default_value = "store")]
    mode: ModeArg,

    /// Let objects expire: `crumb pack put --ttl` gives them a time to live, after which they are gone and their space is used again.
    /// Only with --mode store; earlier versions of this program refuse such a store
    #[arg(long)]
    expires: bool,

    /// Overwrite the oldest objects when the store is full, as the news server's CNFS does: the newest 95% of its size stay, if objects are of
    /// 10 KB or more. Each directory goes round for itself. Only with --mode store; earlier versions of this program refuse such a store
    #[arg(long)]
    cyclic: bool,

    /// Block size: a power of two from 64 bytes to 64 KiB
    #[arg(long, value_name = "SIZE", default_value = "64B", value_parser = size::<u32>)]
    block_size: u32,

    /// Blocks in a segment, the unit in which the store takes and gives back space [default: by the size: segments of 1 MiB to 1 GiB, so that the largest directory holds at least 16 of them]
    #[arg(long, value_name = "N", value_parser = count::<u32>)]
    packed_blocks: Option<u32>,

    /// Expected mean size of the objects; sizes the index in memory
    #[arg(long, value_name = "SIZE", default_value = "8KiB", value_parser = size::<u32>)]
    object_mean: u32,

    /// Print the result as JSON; with --json=FILE write it to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-", value_parser = destination)]
    json: Option<Destination>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeArg {
    Store,
    Cache,
}

/// Makes a store.
pub fn create(args: &CreateArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let Some(size) = args.size else {
        return tree::create(&args.store, args.json.as_ref(), context);
    };
    tree::refuse(&args.store)?;
    if args.cyclic && matches!(args.mode, ModeArg::Cache) {
        return Err(anyhow!("--cyclic needs --mode store: a cache chooses what it evicts by requests")
            .context(BadUsage));
    }
    if args.expires && matches!(args.mode, ModeArg::Cache) {
        return Err(
            anyhow!("--expires needs --mode store: a cache evicts what was not requested").context(BadUsage)
        );
    }
    let options = StoreOptions {
        mode: match args.mode {
            ModeArg::Store => Mode::Store,
            ModeArg::Cache => Mode::Cache,
        },
        expires: args.expires,
        cyclic: args.cyclic,
        block_bytes: args.block_size,
        packed_blocks: args.packed_blocks,
        object_bytes_mean: args.object_mean,
        ..StoreOptions::default()
    };
    let (place, store) = Place::create(&args.store, size, &args.volume, options)?;
    let (block_bytes, packed_blocks) = store.shape();
    let size_bytes = store.usage().size_bytes;
    closed(store)?;
    place.directories().into_iter().zip(sizes(args, size)).for_each(say_short_room);
    if let Some(json) = &args.json {
        write_json(
            json,
            context,
            &json!({
                "store": place.store(), "volumes": place.directories(), "size_bytes": size_bytes,
                "block_bytes": block_bytes, "packed_blocks": packed_blocks,
                "mode": format!("{:?}", args.mode).to_lowercase(), "expires": args.expires, "cyclic": args.cyclic,
            }),
        )?;
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

/// What each directory was given, the store's own first.
fn sizes(args: &CreateArgs, size: u64) -> impl Iterator<Item = u64> {
    std::iter::once(size).chain(args.volume.iter().map(move |volume| volume.size_or(size)))
}

/// Warns of a directory whose file system has less room than the store may use there.
fn say_short_room((directory, size_bytes): (&Path, u64)) {
    let Ok(room) = LocalDisk::open(directory).and_then(|disk| disk.room()) else { return };
    if room.free_bytes < size_bytes {
        tracing::warn!(
            "{}: the store may use {}, and {} are free there: puts fail, or evict, when these are used",
            directory.display(),
            bytes_text(size_bytes),
            bytes_text(room.free_bytes)
        );
    }
}

/// Add a directory to a store
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  crumb pack grow /srv/objects --volume /disk4/objects --size 20G")]
pub struct GrowArgs {
    /// Directory of the store
    #[arg(id = "place", value_name = "STORE")]
    store: PathBuf,

    /// Directory to add; created if missing
    #[arg(long, value_name = "DIR")]
    volume: PathBuf,

    /// Space that the store may use of it
    #[arg(long, value_name = "SIZE", value_parser = size::<u64>)]
    size: u64,

    /// Print the result as JSON; with --json=FILE write it to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-", value_parser = destination)]
    json: Option<Destination>,
}

/// Adds a directory.
pub fn grow(args: &GrowArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let mut place = Place::read(&args.store)?;
    let store = place.open(OpenOptions::default())?;
    let grown = place.grow(&store, &args.volume, args.size);
    let usage = store.usage();
    let volumes = store.volumes().len();
    closed(store)?;
    grown?;
    if let Some(json) = &args.json {
        write_json(
            json,
            context,
            &json!({ "store": place.store(), "volumes": place.directories(), "size_bytes": usage.size_bytes }),
        )?;
    } else {
        let volumes = counted(volumes, "directory", "directories");
        let text = format!("{}: {} in {volumes} now", place.store().display(), bytes_text(usage.size_bytes));
        note(context, wrapped("", &text).trim_end());
    }
    Ok(ExitStatus::Fine)
}
