//! What is in the place of a store's files without being a regular file: a directory, a link, a pipe.
//!
//! Always holds: a link is not followed, and nothing is removed. A repair gives what is in the way another name, under which it stays,
//! and does without the file. Nothing makes up for a data file, which may be elsewhere still: a repair refuses to do without one.

use std::io::ErrorKind;
use std::sync::Arc;

use disk::{Disk, DiskOpen};

use crate::error::StoreError;
use crate::procedures::rebuild::SPILL_NAME;
use crate::segments::volume::{HEAD_NAME, LOCK_NAME, TABLE_NAME, hold};
use crate::segments::volume_copy::COPY_NAME;
use crate::store::opening::number_of;

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Refuse to open the volume.
    Refuse,
    /// Report it, and do without the file.
    Report,
    /// Give it another name.
    MoveAside,
}

/// What is in the way, for people.
#[derive(Default)]
pub(crate) struct InTheWay {
    /// In the place of files that a repair does without.
    pub repairable: Vec<String>,
    /// In the place of data files.
    pub of_data: Vec<String>,
}

/// Sees to it that nothing is in the way, or returns what is.
///
/// # Errors
/// [`StoreError::InTheWay`] and [`StoreError::DataInTheWay`] when that is to be refused; when it cannot be moved.
pub(crate) fn clear_the_way(disk: &Arc<dyn Disk>, way: Way) -> Result<InTheWay, StoreError> {
    let others = in_the_way(disk)?;
    let place = disk.place();
    let error = |(name, what): &(String, &'static str)| {
        let (place, name) = (place.clone(), name.clone());
        match is_data(&name) {
            true => StoreError::DataInTheWay { place, name, what },
            false => StoreError::InTheWay { place, name, what },
        }
    };
    match way {
        Way::Refuse => match others.first() {
            Some(first) => Err(error(first)),
            None => Ok(InTheWay::default()),
        },
        Way::Report => {
            let (of_data, others) = others.iter().partition::<Vec<_>, _>(|(name, _)| is_data(name));
            let text = |other| error(other).to_string();
            Ok(InTheWay {
                repairable: others.into_iter().map(text).collect(),
                of_data: of_data.into_iter().map(text).collect(),
            })
        }
        Way::MoveAside => match others.iter().find(|(name, _)| is_data(name)) {
            Some(data) => Err(error(data)),
            None if others.is_empty() => Ok(InTheWay::default()),
            None => Ok(InTheWay { repairable: move_aside(disk)?, of_data: Vec::new() }),
        },
    }
}

/// Refuses a repair that would take a data file for lost that may be elsewhere, or files that only this user cannot open. To be
/// called for all volumes before anything is changed on any.
///
/// # Errors
/// [`StoreError::DataInTheWay`] and [`StoreError::NoAccess`].
pub(crate) fn refuse_what_may_be_there(disk: &Arc<dyn Disk>) -> Result<(), StoreError> {
    let others = in_the_way(disk)?;
    if let Some((name, what)) = others.iter().find(|(name, _)| is_data(name)) {
        return Err(StoreError::DataInTheWay { place: disk.place(), name: name.clone(), what });
    }
    let mut names = disk.names()?;
    names.retain(|name| is_of_a_store(name) && !others.iter().any(|(other, _)| other == name));
    names.sort_unstable();
    for name in names {
        match disk.open(&name, DiskOpen::Write) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(StoreError::no_access(&error));
            }
            // A process that has the store open may have removed it just now.
            _ => {}
        }
    }
    Ok(())
}

/// What is in the place of files of a volume, by name.
fn in_the_way(disk: &Arc<dyn Disk>) -> Result<Vec<(String, &'static str)>, StoreError> {
    let mut others = disk.other_than_files()?;
    others.retain(|(name, _)| is_of_a_store(name));
    others.sort_unstable();
    Ok(others)
}

fn is_data(name: &str) -> bool {
    number_of(name, ".body").is_some()
}

/// Gives what is in the way other names. Another repair may do so at the same time: only what is still there under the lock is moved.
fn move_aside(disk: &Arc<dyn Disk>) -> Result<Vec<String>, StoreError> {
    let mut moved = Vec::new();
    // First, as without it no lock can be had; no process has the store open then.
    if let Some((name, what)) = in_the_way(disk)?.into_iter().find(|(name, _)| name == LOCK_NAME) {
        let aside = rename_aside(disk, &name, what, &mut moved)?;
        if disk.other_than_files()?.iter().all(|(name, _)| *name != aside) {
            // It is the lock of another repair, which had done so just before.
            disk.rename(&aside, &name)?;
            return Err(StoreError::Locked { place: disk.place() });
        }
    }
    let _lock = hold(disk)?;
    for (name, what) in in_the_way(disk)? {
        if is_data(&name) {
            return Err(StoreError::DataInTheWay { place: disk.place(), name, what });
        }
        rename_aside(disk, &name, what, &mut moved)?;
    }
    disk.sync_names()?;
    Ok(moved)
}

/// Returns the new name.
fn rename_aside(
    disk: &Arc<dyn Disk>,
    name: &str,
    what: &str,
    moved: &mut Vec<String>,
) -> Result<String, StoreError> {
    let names = disk.names()?;
    let aside = (0..).map(|number| match number {
        0 => format!("{name}.aside"),
        number => format!("{name}.aside.{number}"),
    });
    let aside = aside.into_iter().find(|aside| !names.contains(aside)).expect("numbers do not end");
    disk.rename(name, &aside)?;
    let place = disk.place();
    moved.push(format!("{place}: {what} was in the place of the file `{name}`: it is called `{aside}` now"));
    Ok(aside)
}

/// Whether it is the name of a file of a volume.
fn is_of_a_store(name: &str) -> bool {
    let bare = name.strip_suffix(".new").unwrap_or(name);
    [HEAD_NAME, COPY_NAME, TABLE_NAME].contains(&bare)
        || [LOCK_NAME, SPILL_NAME].contains(&name)
        || [".index", ".body", ".body.gone"].iter().any(|end| number_of(bare, end).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_data_file_is_one_that_a_repair_cannot_do_without() {
        assert!(is_data("00000007.body"));
        for name in ["00000007.body.new", "00000007.body.gone", "00000007.index", "volume", "7.body"] {
            assert!(!is_data(name), "{name}");
        }
    }

    #[test]
    fn names_of_a_volume_are_told_from_those_of_others() {
        for name in
            ["volume", "volume.new", "volume.copy.new", "table", "lock", "found.new", "00000007.index"]
        {
            assert!(is_of_a_store(name), "{name}");
        }
        assert!(["00000007.body.new", "00000007.body.gone"].into_iter().all(is_of_a_store));
        for name in ["lost+found", "volumes", "bans", "7.index", "00000007.index.aside", "lock.new"] {
            assert!(!is_of_a_store(name), "{name}");
        }
    }
}
