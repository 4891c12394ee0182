//! What is in the place of a store's files without being a regular file: a directory, a link, a pipe.
//!
//! Always holds: a link is not followed, and nothing is removed. A repair gives what is in the way another name, under which it stays.

use std::collections::HashSet;
use std::sync::Arc;

use disk::Disk;

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

/// Sees to it that nothing is in the way, or returns what is, for people.
///
/// # Errors
/// [`StoreError::InTheWay`] when that is to be refused; when it cannot be moved.
pub(crate) fn clear_the_way(disk: &Arc<dyn Disk>, way: Way) -> Result<Vec<String>, StoreError> {
    let mut others = disk.other_than_files()?;
    others.retain(|(name, _)| is_of_a_store(name));
    others.sort_unstable();
    let place = disk.place();
    match (others.first(), way) {
        (None, _) => Ok(Vec::new()),
        (Some((name, what)), Way::Refuse) => Err(StoreError::InTheWay { place, name: name.clone(), what }),
        (_, Way::Report) => {
            let text = |(name, what)| {
                format!(
                    "{place}: {what} is in the place of the file `{name}`; `crumb pack repair` moves it aside"
                )
            };
            Ok(others.into_iter().map(text).collect())
        }
        (_, Way::MoveAside) => move_aside(disk, others),
    }
}

fn move_aside(disk: &Arc<dyn Disk>, others: Vec<(String, &str)>) -> Result<Vec<String>, StoreError> {
    let mut names = HashSet::<String>::from_iter(disk.names()?);
    let mut moved = Vec::new();
    let mut rename = |name: &str, what: &str| {
        let aside = (0..).map(|number| match number {
            0 => format!("{name}.aside"),
            number => format!("{name}.aside.{number}"),
        });
        let aside = aside.into_iter().find(|aside| !names.contains(aside)).expect("numbers do not end");
        disk.rename(name, &aside)?;
        moved.push(format!(
            "{}: {what} was in the place of the file `{name}`: it is called `{aside}` now",
            disk.place()
        ));
        names.insert(aside);
        Ok::<_, StoreError>(())
    };
    // First, as without it no lock can be had; no process has the store open then.
    for (name, what) in others.iter().filter(|(name, _)| name == LOCK_NAME) {
        rename(name, what)?;
    }
    let _lock = hold(disk)?;
    for (name, what) in others.iter().filter(|(name, _)| name != LOCK_NAME) {
        rename(name, what)?;
    }
    disk.sync_names()?;
    Ok(moved)
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
