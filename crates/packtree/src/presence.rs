//! What is known of a directory before a tree in it is opened: whether there is one, a part of one, or something in the way of one.
//!
//! Always holds: no link is followed, no pipe waited for, and nothing is written. What may be a tree is never called "nothing".

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use disk::{Disk, DiskError, LocalDisk, open_regular, other_than_file};

use crate::clean_stop;
use crate::copying::COPYING;
use crate::creation::is_unused;
use crate::error::TreeError;
use crate::format::TREE_MAGIC;
use crate::locking::LOCK;
use crate::names::{MANIFEST, is_of_names};
use crate::opening::{HEAD, HEAD_NEW, SPACE};
use crate::spare;
use crate::version1;

/// What a directory has of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// A tree, of any version.
    Tree,
    /// Contents of a tree whose file `tree` is missing.
    HeadMissing,
    /// What a creation left that did not end. Nothing is in it.
    Unfinished,
    /// None of a tree's files.
    Nothing,
}

/// Whether a directory has a tree, of any version. Cheap: two files are looked at.
///
/// # Errors
/// When there are contents of a tree, and in the place of its file `tree` is something else ([`TreeError::InTheWay`]), a file that is
/// damaged ([`TreeError::HeadDamaged`]), or one that cannot be read.
pub fn is_tree(directory: &Path) -> Result<bool, TreeError> {
    let place = || directory.display().to_string();
    // Without them it may be anyone's file or directory of that name.
    let has_contents =
        || [SPACE, MANIFEST].iter().any(|name| directory.join(name).symlink_metadata().is_ok());
    let path = directory.join(HEAD);
    if let Some(what) = other_than_file(&path) {
        return match has_contents() {
            true => Err(TreeError::InTheWay { place: place(), name: HEAD.to_owned(), what }),
            false => Ok(false),
        };
    }
    let mut magic = [0; TREE_MAGIC.len()];
    let read =
        open_regular(OpenOptions::new().read(true), &path).and_then(|mut file| file.read_exact(&mut magic));
    match read {
        Ok(()) if magic == *TREE_MAGIC => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        _ if !has_contents() => Ok(false),
        Ok(()) => Err(TreeError::HeadDamaged { place: place() }),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            Err(TreeError::HeadDamaged { place: place() })
        }
        Err(source) => {
            Err(DiskError { place: place(), name: HEAD.to_owned(), operation: "open", source }.into())
        }
    }
}

/// What a directory has of a tree. A directory that is missing or cannot be listed has nothing.
///
/// # Errors
/// As [`is_tree`], and when the contents of a tree without a head cannot be read.
pub fn presence(directory: &Path) -> Result<Presence, TreeError> {
    if is_tree(directory)? {
        return Ok(Presence::Tree);
    }
    let Ok(disk) = LocalDisk::open(directory) else { return Ok(Presence::Nothing) };
    let Ok(names) = disk.names() else { return Ok(Presence::Nothing) };
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    if !has(SPACE) || has(HEAD) {
        return Ok(Presence::Nothing);
    }
    nothing_in_the_way(&disk)?;
    Ok(if is_unused(&disk)? { Presence::Unfinished } else { Presence::HeadMissing })
}

/// Refuses a tree that has something else in the place of one of its files.
///
/// # Errors
/// [`TreeError::InTheWay`].
pub(crate) fn nothing_in_the_way(disk: &dyn Disk) -> Result<(), TreeError> {
    let mut others = disk.other_than_files()?;
    others.retain(|(name, _)| is_of_tree(name));
    others.sort_unstable();
    match others.into_iter().next() {
        Some((name, what)) => Err(TreeError::InTheWay { place: disk.place(), name, what }),
        None => Ok(()),
    }
}

/// Whether a file of this name is one of a tree, of any version.
pub(crate) fn is_of_tree(name: &str) -> bool {
    [SPACE, HEAD, HEAD_NEW, LOCK, COPYING, clean_stop::NAME, clean_stop::NEW, spare::NAME].contains(&name)
        || version1::NAMES.contains(&name)
        || is_of_names(name)
}
