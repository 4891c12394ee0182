//! Stores one article: numbers, the file, its links.
//!
//! ```text
//! feed:   Path: a!b!poster              stored:  Path: ourhost!a!b!poster
//!         Xref: elsewhere x:1                    …
//!         (empty line)                           Xref: ourhost comp.os:42 alt.2600:7
//!         body                                   (empty line), body
//!
//! comp/os/42 <- the file        alt/2600/7 <- hard link; a symbolic link where the group lies in another place,
//!                                             or the storage refuses the hard one
//! ```
//!
//! The article is put together in one buffer that is used again and written by one call.
//!
//! Always holds: a number is given once; a file's `Xref:` names all its names; when storing fails, at most names that
//! history does not have are left, and the numbers are not used again.
//! Source: spec `netnews.md`, spool; RFC 1036, sections 2.1.6 and 2.2.13.

use std::str::FromStr;

use files::{FileKind, FsError, Status, SyncScope};

use crate::NetnewsError;
use crate::article::Article;
use crate::spool::config::SyncWhen;
use crate::spool::decimal;
use crate::spool::groups::{Group, GroupId, Groups};
use crate::spool::layout::places::Places;
use crate::spool::results::counts::counts;
use crate::spool::whole::{mkdir_all, path_of, write_all};

/// How a cross-post gets its other names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkKind {
    /// Hard links; symbolic ones where these are not to be had.
    #[default]
    Hard,
    /// Symbolic links always.
    Symlink,
}

counts! {
    /// What storing has come to.
    pub struct StoreCounts {
        /// Files made.
        pub files: u64,
        /// Bytes written to them.
        pub bytes: u64,
        /// Hard links made.
        pub hard_links: u64,
        /// Symbolic links made: across places, asked for, or because a hard one was refused.
        pub symlinks: u64,
        /// Of these, the ones where the storage refused a hard link.
        pub links_refused: u64,
        /// Numbers left out because a group's directory has that name (`alt.2600` in `alt`).
        pub numbers_taken: u64,
    }
}

/// One name of an article: a group and a number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) group: GroupId,
    pub(crate) number: u64,
}

/// Buffers and rules of storing.
pub(crate) struct Storer {
    host: Box<[u8]>,
    link: LinkKind,
    /// Each file is durable before it is closed.
    syncs: bool,
    composed: Vec<u8>,
    path: Vec<u8>,
    link_path: Vec<u8>,
    names: Vec<Name>,
    counts: StoreCounts,
}

/// A group whose directory cannot be made because an article has its name.
const FLAG_UNUSABLE: u8 = b'x';
/// Numbers tried when names are taken. Each is a group's directory: there are not many.
const TRIES_MAX: u32 = 1000;

impl LinkKind {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hard => "hard",
            Self::Symlink => "symlink",
        }
    }
}

impl FromStr for LinkKind {
    type Err = measure::ValueError;

    fn from_str(text: &str) -> Result<Self, measure::ValueError> {
        match text {
            "hard" => Ok(Self::Hard),
            "symlink" => Ok(Self::Symlink),
            _ => Err("expected hard or symlink".into()),
        }
    }
}

impl Storer {
    pub(crate) fn new(host: &str, link: LinkKind, sync: SyncWhen) -> Self {
        Self {
            host: host.as_bytes().into(),
            link,
            syncs: sync == SyncWhen::Article,
            composed: Vec::new(),
            path: Vec::new(),
            link_path: Vec::new(),
            names: Vec::new(),
            counts: StoreCounts::default(),
        }
    }

    pub(crate) fn counts(&self) -> StoreCounts {
        self.counts
    }

    /// Makes sure that a group's directory is there; false when it cannot be had.
    pub(crate) fn prepare(&self, places: &Places, group: &mut Group) -> Result<bool, FsError> {
        if group.made {
            return Ok(true);
        }
        if group.flag == FLAG_UNUSABLE {
            return Ok(false);
        }
        let (fs, directory) = (places.root(group.place), path_of(&group.directory));
        let made = match mkdir_all(fs, directory) {
            Ok(()) => fs.stat(directory)?.kind == FileKind::Directory,
            Err(error) if error.status() == Some(Status::NOTDIR) => false,
            Err(error) => return Err(error),
        };
        group.made = made;
        if !made {
            group.flag = FLAG_UNUSABLE;
        }
        Ok(made)
    }

    /// Stores an article in groups that are prepared, at least one; its names, the file's own first.
    pub(crate) fn store(
        &mut self,
        article: &Article<'_>,
        places: &Places,
        groups: &mut Groups,
        wanted: &[GroupId],
    ) -> Result<&[Name], NetnewsError> {
        let mut tries = 0;
        'again: loop {
            self.names.clear();
            for &group in wanted {
                let entry = groups.get_mut(group);
                entry.high += 1;
                self.names.push(Name { group, number: entry.high });
            }
            compose(&mut self.composed, article, &self.host, &self.names, groups);
            for at in 0..self.names.len() {
                let made =
                    if at == 0 { self.make_file(places, groups) } else { self.make_link(places, groups, at) };
                match made {
                    Ok(()) => {}
                    Err(error) if error.status() == Some(Status::EXIST) && tries < TRIES_MAX => {
                        // The Xref says what the names are: all are given up, or none.
                        for done in 0..at {
                            self.remove(places, groups, done)?;
                        }
                        self.counts.numbers_taken += 1;
                        tries += 1;
                        continue 'again;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            return Ok(&self.names);
        }
    }

    fn make_file(&mut self, places: &Places, groups: &Groups) -> Result<(), FsError> {
        let name = self.names[0];
        let group = groups.get(name.group);
        put_path(&mut self.path, group, name.number);
        let mut file = places.root(group.place).create(path_of(&self.path))?;
        write_all(&mut *file, &self.composed)?;
        if self.syncs {
            file.sync(SyncScope::All)?;
        }
        file.close()?;
        self.counts.files += 1;
        self.counts.bytes += self.composed.len() as u64;
        Ok(())
    }

    /// Needs `self.path` to be the file's.
    fn make_link(&mut self, places: &Places, groups: &Groups, at: usize) -> Result<(), FsError> {
        let (first, name) = (self.names[0], self.names[at]);
        let (home, group) = (groups.get(first.group).place, groups.get(name.group));
        put_path(&mut self.link_path, group, name.number);
        let fs = places.root(group.place);
        if home == group.place && self.link == LinkKind::Hard {
            match fs.link(path_of(&self.path), path_of(&self.link_path)) {
                Ok(()) => {
                    self.counts.hard_links += 1;
                    return Ok(());
                }
                Err(error) if is_refusal(&error) => self.counts.links_refused += 1,
                Err(error) => return Err(error),
            }
        }
        let target = symlink_target(places, groups, first, name.group);
        fs.symlink(path_of(&target), path_of(&self.link_path))?;
        self.counts.symlinks += 1;
        Ok(())
    }

    fn remove(&mut self, places: &Places, groups: &Groups, at: usize) -> Result<(), FsError> {
        let group = groups.get(self.names[at].group);
        put_path(&mut self.link_path, group, self.names[at].number);
        places.root(group.place).unlink(path_of(&self.link_path))
    }
}

/// The storage cannot have a hard link there, and a symbolic one may do.
fn is_refusal(error: &FsError) -> bool {
    matches!(error.status(), Some(Status::XDEV | Status::MLINK | Status::NOTSUPP | Status::PERM))
}

/// What a symbolic link in `from` holds to lead to the file: a path up and down within a place, a whole one across.
pub(crate) fn symlink_target(places: &Places, groups: &Groups, file: Name, from: GroupId) -> Vec<u8> {
    let (home, from) = (groups.get(file.group), groups.get(from));
    let mut target = Vec::new();
    if home.place == from.place {
        let levels = 1 + from.directory.iter().filter(|byte| **byte == b'/').count();
        (0..levels).for_each(|_| target.extend_from_slice(b"../"));
    } else {
        target.extend_from_slice(places.root(home.place).place().as_bytes());
        target.push(b'/');
    }
    target.extend_from_slice(&home.directory);
    target.push(b'/');
    decimal::push(&mut target, file.number);
    target
}

/// `comp/os/42`.
pub(crate) fn put_path(path: &mut Vec<u8>, group: &Group, number: u64) {
    path.clear();
    path.extend_from_slice(&group.directory);
    path.push(b'/');
    decimal::push(path, number);
}

/// The article as it is stored.
pub(crate) fn compose(
    out: &mut Vec<u8>,
    article: &Article<'_>,
    host: &[u8],
    names: &[Name],
    groups: &Groups,
) {
    out.clear();
    let (bytes, head_end) = (article.bytes(), article.head_end());
    let path_at = article.path().map(|path| path.value_at.start);
    let xref = article.xref().map_or(head_end..head_end, |xref| xref.lines.clone());
    let put_host = |out: &mut Vec<u8>| {
        out.extend_from_slice(host);
        out.push(b'!');
    };
    match path_at {
        None => {
            out.extend_from_slice(b"Path: ");
            put_host(out);
            out.extend_from_slice(b"not-for-mail\n");
            out.extend_from_slice(&bytes[..xref.start]);
            out.extend_from_slice(&bytes[xref.end..head_end]);
        }
        Some(at) if at < xref.start => {
            out.extend_from_slice(&bytes[..at]);
            put_host(out);
            out.extend_from_slice(&bytes[at..xref.start]);
            out.extend_from_slice(&bytes[xref.end..head_end]);
        }
        Some(at) => {
            out.extend_from_slice(&bytes[..xref.start]);
            out.extend_from_slice(&bytes[xref.end..at]);
            put_host(out);
            out.extend_from_slice(&bytes[at..head_end]);
        }
    }
    out.extend_from_slice(b"Xref: ");
    out.extend_from_slice(host);
    for name in names {
        out.push(b' ');
        out.extend_from_slice(&groups.get(name.group).name);
        out.push(b':');
        decimal::push(out, name.number);
    }
    out.push(b'\n');
    out.extend_from_slice(&bytes[head_end..]);
}

#[cfg(test)]
mod tests;
