//! What can be read of a damaged tree, copied into a new one. The damaged one is not changed.
//!
//! 1. Every directory, file, link, device and pipe that a path leads to, with its attributes; names of one file are names of one file again.
//! 2. A file with a damaged piece: what can be read, at its place, and a hole of zeros where the piece was. It is reported.
//!
//! Always holds: what could not be copied as it was is reported, each by its path.
//! Not here: names and contents that the journal and the runs no longer have; with the inode of a directory, what was in it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use files::{FileSystem, FsError};

use crate::engine::piece_is_whole;
use crate::error::{Refusal, TreeError};
use crate::file_system::PackTree;
use crate::format::{Change, NodeKind, Record};
use crate::replay::TreeFault;
use crate::table::{Body, Content, Inode, Kind, Listed, Name, Node, ROOT};

/// Names that are read under one lock.
const NAMES_AT_ONCE: usize = 1024;

/// What [`salvage`] did.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Salvaged {
    /// Files that were copied, each once whatever its names.
    pub files: u64,
    /// Names that they and symbolic links have.
    pub names: u64,
    /// Directories.
    pub directories: u64,
    /// Bytes of contents that were copied.
    pub bytes: u64,
    /// What is not as it was, or not where it was.
    pub faults: Vec<TreeFault>,
}

/// Why a copy ended early. What was copied until then is there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SalvageError {
    /// The new tree has names already.
    #[error("{place}: not empty; what can be read is copied into an empty tree")]
    NotEmpty {
        /// The new tree.
        place: String,
    },
    /// The caller asked for it.
    #[error("stopped before all was copied")]
    Stopped,
    /// The damaged tree could not be read, or the new one not be written.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The new tree could not be written.
    #[error(transparent)]
    Write(#[from] FsError),
}

/// Copies what can be read of `from` into the empty tree `to`. `progress` is called with objects done and objects in all, and
/// returns whether to continue.
///
/// # Errors
/// When `to` is not empty or cannot be written.
pub fn salvage(
    from: &PackTree,
    to: &PackTree,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Salvaged, SalvageError> {
    let mut is_empty = true;
    to.readdir(Path::new(""), &mut |_| is_empty = false)?;
    if !is_empty {
        return Err(SalvageError::NotEmpty { place: to.place() });
    }
    let of = from.tree.engine.read().table.inodes;
    let done = Salvaged::default();
    let mut copy = Copy { from, to, new: HashMap::new(), done, of, progress };
    copy.new.insert(ROOT, ROOT);
    copy.below(ROOT, PathBuf::new())?;
    to.sync_all()?;
    Ok(copy.done)
}

struct Copy<'a> {
    from: &'a PackTree,
    to: &'a PackTree,
    /// Old inode, and the one that it is now.
    new: HashMap<Inode, Inode>,
    done: Salvaged,
    of: u64,
    progress: &'a mut dyn FnMut(u64, u64) -> bool,
}

impl Copy<'_> {
    /// An inode, or why it cannot be read.
    fn found(&self, inode: Inode) -> Result<Arc<Node>, String> {
        match self.from.tree.engine.look(|state| state.table.node(inode)) {
            Ok(Some(node)) => Ok(node),
            Ok(None) => Err("a name of nothing".to_owned()),
            Err(refusal) => Err(refusal.reason()),
        }
    }

    /// Names of a directory, as far as they can be read.
    fn names_in(&mut self, directory: Inode, path: &Path) -> Vec<(Box<[u8]>, Inode)> {
        let mut names: Vec<(Box<[u8]>, Inode)> = Vec::new();
        let mut lost = None;
        loop {
            let after = names.last().map_or(Box::default(), |(last, _)| last.clone());
            let listed =
                self.from.tree.engine.look(|state| state.table.list(directory, &after, NAMES_AT_ONCE));
            match listed {
                Ok(Listed { names: some, is_end, damaged }) => {
                    let is_over = is_end || some.is_empty();
                    names.extend(some.into_iter().map(|(name, named)| (name, named.inode)));
                    lost = lost.or(damaged);
                    if is_over {
                        break;
                    }
                }
                Err(refusal) => {
                    lost = lost.or(Some(refusal));
                    break;
                }
            }
        }
        if let Some(lost) = lost {
            self.fault(path, &format!("names in it are lost: {}", lost.reason()));
        }
        names
    }

    /// Copies what is in a directory whose copy is there, and what is below it.
    fn below(&mut self, directory: Inode, path: PathBuf) -> Result<(), SalvageError> {
        let mut rest = vec![(directory, path)];
        while let Some((directory, path)) = rest.pop() {
            let into = self.new[&directory];
            for (name, inode) in self.names_in(directory, &path) {
                let path = path.join(OsStr::from_bytes(&name));
                if self.entry(into, &name, inode, &path)? {
                    rest.push((inode, path));
                }
            }
            // Names that were made in it changed its times.
            if let Ok(node) = self.found(directory) {
                self.set_attributes(into, &node, &path)?;
            }
        }
        Ok(())
    }

    /// Copies one name and, when it is the first one, what it names. Whether that is a directory which was not copied before.
    fn entry(
        &mut self,
        directory: Inode,
        name: &[u8],
        inode: Inode,
        path: &Path,
    ) -> Result<bool, SalvageError> {
        let name = Name { directory, name: name.into() };
        let found = match self.found(inode) {
            Ok(found) => found,
            Err(why) => {
                self.fault(path, &format!("{why}; it is left out"));
                return Ok(false);
            }
        };
        let is_directory = found.is_directory();
        match self.new.get(&inode) {
            Some(_) if is_directory => {
                self.fault(path, "a second name of a directory; it is left out");
                return Ok(false);
            }
            Some(&inode) => self.change(path, |state| {
                let Name { directory, name } = name.clone();
                state.commit(&Record::Link { time: found.ctime, directory, name, inode }).map(drop)
            })?,
            None => {
                let new = self.make(name, &found, path)?;
                self.new.insert(inode, new);
                if !(self.progress)(self.new.len() as u64, self.of) {
                    return Err(SalvageError::Stopped);
                }
            }
        }
        match is_directory {
            true => self.done.directories += 1,
            false => self.done.names += 1,
        }
        Ok(is_directory)
    }

    fn make(&mut self, name: Name, found: &Node, path: &Path) -> Result<Inode, SalvageError> {
        let (time, mode, owner, kind) = (found.ctime, found.mode, found.owner, kind_of(found));
        let inode = self.change(path, |state| {
            let Name { directory, name } = name.clone();
            let (inode, kind) = (state.table.next_inode, kind.clone());
            state.commit(&Record::Make { time, directory, name, inode, mode, owner, kind })?;
            Ok(inode)
        })?;
        if let Some(content) = found.content() {
            self.done.files += 1;
            self.contents(inode, content, path)?;
        }
        self.set_attributes(inode, found, path)?;
        Ok(inode)
    }

    fn contents(&mut self, inode: Inode, content: &Content, path: &Path) -> Result<(), SalvageError> {
        let mut piece = Vec::new();
        for extent in content.extents.all() {
            let (start, end) = (extent.offset, extent.end());
            if !piece_is_whole(&self.from.tree.engine.file, &extent.piece, &mut piece) {
                self.fault(path, &format!("bytes {start} to {end} are damaged, and zeros in the copy"));
                continue;
            }
            let mut done = 0;
            while done < piece.len() {
                let at = Some(start + done as u64);
                let written = self.to.tree.engine.write_file(inode, at, &piece[done..]);
                done += written.map_err(|refusal| self.to.refused_write(path, refusal))?.1;
            }
            self.done.bytes += piece.len() as u64;
        }
        let sized = self.to.tree.engine.truncate(inode, content.size);
        Ok(sized.map_err(|refusal| self.to.refused_write(path, refusal))?)
    }

    /// Gives a copy what the original has beside its contents. The time of the last change of attributes is that of the original too.
    fn set_attributes(&self, inode: Inode, found: &Node, path: &Path) -> Result<(), SalvageError> {
        let time = found.ctime;
        for (name, value) in &found.xattrs {
            let record = Record::Xattr { time, inode, name: name.clone(), value: Some(value.clone()) };
            self.change(path, |state| state.commit(&record).map(drop))?;
        }
        let change = Change {
            mode: Some(found.mode),
            uid: Some(found.owner.uid),
            gid: Some(found.owner.gid),
            atime: Some(found.atime),
            mtime: Some(found.mtime),
        };
        let record = Record::Set { time, inode, change };
        self.change(path, |state| state.commit(&record).map(drop))
    }

    fn change<T>(
        &self,
        path: &Path,
        make: impl FnMut(&mut crate::engine::State) -> Result<T, Refusal>,
    ) -> Result<T, SalvageError> {
        let changed = self.to.tree.engine.change(make);
        Ok(changed.map_err(|refusal| self.to.refused_write(path, refusal))?)
    }

    fn fault(&mut self, path: &Path, what: &str) {
        let path = path.to_string_lossy().escape_debug().to_string();
        self.done.faults.push(TreeFault::of(format!("{path}: {what}")));
    }
}

fn kind_of(node: &Node) -> NodeKind {
    match &node.body {
        Body::File(_) => NodeKind::File,
        Body::Directory(_) => NodeKind::Directory,
        Body::Symlink(text) => NodeKind::Symlink(text.clone()),
        Body::Special(special) => {
            let (major, minor) = (special.major, special.minor);
            match special.kind {
                Kind::CharDevice => NodeKind::CharDevice { major, minor },
                Kind::BlockDevice => NodeKind::BlockDevice { major, minor },
                Kind::Socket => NodeKind::Socket,
                _ => NodeKind::Fifo,
            }
        }
    }
}
