//! `crumb pack member`: directories that leave a store, or are replaced.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::{Args, Subcommand};
use packstore::{OpenOptions, Store};
use report::{bytes_text, count_text};

use super::place::Place;
use super::{close_after, with_usage_marked};
use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::{counted, wrapped};
use crate::output::note;
use crate::quantities::size;

/// Remove a directory of a store, continue without a lost one, or replace one.
#[derive(Args, Debug)]
pub struct MemberArgs {
    #[command(subcommand)]
    verb: MemberVerb,
}

#[derive(Subcommand, Debug)]
enum MemberVerb {
    /// Move a directory's objects to the others, then remove it from the store
    Remove(RemoveArgs),
    /// Continue without directories that are lost; their objects are gone
    GiveUp(GiveUpArgs),
    /// Replace a directory by a new one: move its objects, or give them up if it is lost
    Replace(ReplaceArgs),
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  crumb pack member remove /srv/objects /disk3/objects

The other directories need space for its objects. The store's own directory cannot be removed.")]
struct RemoveArgs {
    /// Directory of the store
    #[arg(id = "place", value_name = "STORE")]
    store: PathBuf,

    /// Directory to remove
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  crumb pack member give-up /srv/objects /disk3/objects

Name all missing directories. The store refuses them if they come back.")]
struct GiveUpArgs {
    /// Directory of the store
    #[arg(id = "place", value_name = "STORE")]
    store: PathBuf,

    /// Directories that are lost
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  crumb pack member replace /srv/objects /disk3/objects /disk4/objects")]
struct ReplaceArgs {
    /// Directory of the store
    #[arg(id = "place", value_name = "STORE")]
    store: PathBuf,

    /// Directory to replace, or one that is lost
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// New directory; created if missing
    #[arg(value_name = "NEW")]
    new: PathBuf,

    /// Space that the store may use of it [default: as of the one that it replaces]
    #[arg(long, value_name = "SIZE", value_parser = size::<u64>)]
    size: Option<u64>,
}

/// Runs the verb.
pub fn run(args: &MemberArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    match &args.verb {
        MemberVerb::Remove(args) => remove(args, context),
        MemberVerb::GiveUp(args) => give_up(args, context),
        MemberVerb::Replace(args) => replace(args, context),
    }
}

fn remove(args: &RemoveArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let mut place = Place::read(&args.store)?;
    let directory = place.member(&args.directory)?;
    let store = place.open(OpenOptions::default())?;
    let done = take_out(&store, &directory, context);
    close_after(store, done)?;
    place.forget(&[directory])?;
    Ok(ExitStatus::Fine)
}

fn take_out(store: &Store, directory: &Path, context: &Context) -> anyhow::Result<()> {
    let moved = store.remove_volume(&directory.display().to_string()).map_err(with_usage_marked)?;
    let text = format!(
        "{}: {} of {} moved; it is no part of the store any more",
        directory.display(),
        counted(moved.records_moved as usize, "record", "records"),
        bytes_text(moved.bytes_moved)
    );
    note(context, wrapped("", &text).trim_end());
    Ok(())
}

fn give_up(args: &GiveUpArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let mut place = Place::read(&args.store)?;
    let named = args.directories.iter().map(|directory| place.member(directory));
    let named = named.collect::<anyhow::Result<Vec<_>>>()?;
    let store = place.open(OpenOptions { without_missing: true, ..OpenOptions::default() })?;
    let done = give_up_all(&store, &place, &named, context);
    close_after(store, done)?;
    place.forget(&named)?;
    Ok(ExitStatus::Fine)
}

/// Those that are away, which must be those that were named.
fn give_up_all(store: &Store, place: &Place, named: &[PathBuf], context: &Context) -> anyhow::Result<()> {
    let here = store.volumes().into_iter().map(|volume| volume.place).collect::<Vec<_>>();
    let is_here = |directory: &Path| here.contains(&directory.display().to_string());
    if let Some(there) = named.iter().find(|directory| is_here(directory)) {
        let why = anyhow!("{}: is there; `crumb pack member remove` moves what is in it", there.display());
        return Err(why.context(BadUsage));
    }
    let also = place
        .directories()
        .into_iter()
        .find(|directory| !is_here(directory) && !named.iter().any(|one| one == directory));
    if let Some(also) = also {
        let why = anyhow!("{}: is not there either; bring it, or name it too", also.display());
        return Err(why.context(BadUsage));
    }
    let records = store.give_up_missing().map_err(with_usage_marked)?;
    let lost = match records {
        Some(records) => format!("{} records were on it at the last clean stop", count_text(records)),
        None => "how much was on it is not known, as the last stop was not clean".to_owned(),
    };
    let text = format!("given up: {lost}; `crumb pack check` lists objects of which a part is missing");
    note(context, wrapped("", &text).trim_end());
    Ok(())
}

fn replace(args: &ReplaceArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let mut place = Place::read(&args.store)?;
    let directory = place.member(&args.directory)?;
    let store = place.open(OpenOptions { without_missing: true, ..OpenOptions::default() })?;
    let done = (|| {
        let volumes = store.volumes();
        let old = volumes.iter().find(|volume| volume.place == directory.display().to_string());
        let size_bytes = args.size.unwrap_or_else(|| old.unwrap_or(&volumes[0]).size_bytes);
        if old.is_none() {
            give_up_all(&store, &place, std::slice::from_ref(&directory), context)?;
        }
        place.grow(&store, &args.new, size_bytes)?;
        match old {
            Some(_) => take_out(&store, &directory, context),
            None => Ok(()),
        }
    })();
    close_after(store, done)?;
    place.forget(&[directory])?;
    Ok(ExitStatus::Fine)
}
