//! Directories that were managed and have lost the bit that says so: by chmod, `cp -r`, or tar without `-p`.
//!
//! The layout's mark is lost with most copies too, so the entries themselves are looked at: a directory is taken for one
//! that lost its bit when nearly all that lies in it lies where a layout's hidden level has it, names that are numbers
//! above all. Directories of users that are merely called like subdirectories of a layout hold other names.
//!
//! A user may have sorted files by hand as a layout does, so places alone are no proof: the bit is set again only where
//! the mark is still there.
//!
//! Not here: what is done about it (`check` sets the bit again, `manage` and `unmanage` refuse).

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::LazyLock;

use files::Layout;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::levels::{Levels, joined};
use super::state::{Names, open_own};
use crate::managed::{is_managed, layout_mark};

/// What shows that a directory was managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// In which layout.
    pub(crate) layout: Layout,
    /// Entries that lie where it has them.
    pub(crate) entries: u64,
    /// The layout's mark is on it, which nobody puts there by chance.
    pub(crate) marked: bool,
}

/// Entries by whether they are in the places of one layout.
#[derive(Default)]
struct Places {
    right: u64,
    /// Those of `right` that a user would not have put there by chance.
    significant: u64,
    wrong: u64,
}

/// One misplaced entry is accepted per this many in their places: entries created since the bit was lost.
const RIGHT_FOR_EACH_WRONG: u64 = 9;
/// The places of a hash have only 256 names, those of digits say the digits.
const SIGNIFICANT_BY_HASH: u64 = 3;

/// All layouts' hidden levels: a check asks of each directory of a tree.
pub(crate) fn levels_of(layout: Layout) -> &'static Levels {
    static ALL: LazyLock<Vec<Levels>> = LazyLock::new(|| {
        let layouts = Layout::ALL.into_iter().filter(|layout| *layout != Layout::Flat);
        layouts.map(Levels::of).collect()
    });
    ALL.iter().find(|levels| levels.layout() == layout).expect("a hidden level has a layout")
}

/// Whether a directory without the bit has what looks like a hidden level.
pub(crate) fn lost_bit(directory: &File) -> rustix::io::Result<Option<Lost>> {
    let stat = rustix::fs::fstat(directory)?;
    if is_managed(stat.st_mode) {
        return Ok(None);
    }
    // A mark that cannot be read says nothing, as where copying has lost it.
    let marked = layout_mark(directory).ok().flatten();
    for layout in Layout::ALL.into_iter().filter(|layout| *layout != Layout::Flat) {
        if marked.is_some_and(|marked| marked != layout) {
            continue;
        }
        let mut places = Places::default();
        places.count(directory, b"", levels_of(layout), stat.st_uid)?;
        let significant = match marked {
            Some(_) => places.right >= 1,
            None if layout == Layout::Hash2 => places.significant >= SIGNIFICANT_BY_HASH,
            None => places.significant >= 1,
        };
        if significant && places.right >= RIGHT_FOR_EACH_WRONG * places.wrong {
            return Ok(Some(Lost { layout, entries: places.right, marked: marked.is_some() }));
        }
    }
    Ok(None)
}

impl Places {
    fn count(&mut self, level: impl AsFd, at: &[u8], levels: &Levels, owner: u32) -> rustix::io::Result<()> {
        for entry in Names::of(&level)? {
            let (name, kind) = entry?;
            let path = joined(at, name.to_bytes());
            if kind == FileType::Directory && levels.is_level(&path) {
                // Another user's is no subdirectory of ours.
                match open_own(&level, &name, owner) {
                    Ok(inner) => self.count(inner, &path, levels, owner)?,
                    Err(Errno::PERM) => self.wrong += 1,
                    // A program removed it, or put something else in its place, since it was listed.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                    Err(error) => return Err(error),
                }
            } else if levels.is_leaf(at) && levels.leaf_of(name.to_bytes()) == at {
                self.right += 1;
                // All names that are no numbers lie together, and all small numbers.
                let anywhere = at == Layout::OTHERS.as_bytes() || at.iter().all(|byte| b"0/".contains(byte));
                self.significant += u64::from(!anywhere || levels.layout() == Layout::Hash2);
            } else {
                self.wrong += 1;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;
    use crate::managed::{open_directory, set_layout_mark};

    fn tree(files: &[&str]) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        for file in files {
            let path = place.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        place
    }

    #[test]
    fn subdirectories_that_programs_remove_meanwhile_are_no_error() {
        let place = tree(&["1", "2"]);
        let directory = open_directory(place.path()).unwrap();
        let over = std::sync::atomic::AtomicBool::new(false);
        let inner = place.path().join("12");
        std::thread::scope(|scope| {
            let program = scope.spawn(|| {
                let mut times = 0;
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    fs::create_dir(&inner).unwrap();
                    fs::remove_dir(&inner).unwrap();
                    times += 1;
                }
                times
            });
            let results: Vec<_> = (0..20_000).map(|_| lost_bit(&directory)).collect();
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(program.join().unwrap() > 100);
            assert!(
                results.iter().all(|result| matches!(result, Ok(None))),
                "{:?}",
                results.iter().find(|one| one.is_err())
            );
        });
    }

    fn lost(place: &Path) -> Option<Layout> {
        lost_bit(&open_directory(place).unwrap()).unwrap().map(|lost| lost.layout)
    }

    #[test]
    fn entries_in_the_places_of_a_layout_show_that_the_bit_was_lost() {
        for layout in Layout::ALL.into_iter().filter(|layout| *layout != Layout::Flat) {
            let names = ["123450", "123461", "7", ".overview", "alt.2600"];
            let placed: Vec<String> = names
                .iter()
                .map(|name| {
                    let mut place = Vec::new();
                    layout.place(name.as_bytes(), &mut place);
                    String::from_utf8(place).unwrap()
                })
                .collect();
            let place = tree(&placed.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(lost(place.path()), Some(layout));
            fs::set_permissions(place.path(), fs::Permissions::from_mode(0o4755)).unwrap();
            assert_eq!(lost(place.path()), None, "{layout}: the bit is there");
        }
    }

    #[test]
    fn directories_of_users_that_are_called_like_a_hidden_level_are_theirs() {
        for files in [
            &["345/1", "345/2", "944/17"][..],
            &["aaa/notes", "aaa/more"],
            &["01/05/photo.jpg", "02/11/photo.jpg"],
            &["000/1", "000/2"],
            &["4f/0c8e2b", "a1/9d77"],
            &["345/123456", "one", "two"],
            &[],
        ] {
            assert_eq!(lost(tree(files).path()), None, "{files:?}");
        }
    }

    #[test]
    fn with_its_mark_a_directory_without_numbers_is_known_too() {
        let place = tree(&["aaa/notes", "aaa/more"]);
        let directory = open_directory(place.path()).unwrap();
        if set_layout_mark(&directory, Layout::D456).is_err() {
            return;
        }
        assert_eq!(lost(place.path()), Some(Layout::D456));
    }
}
