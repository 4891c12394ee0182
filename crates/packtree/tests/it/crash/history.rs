//! A history of calls drawn from a seed, played on a tree and on the model at once.

use std::path::Path;
use std::rc::Rc;

use files::{Access, FileSystem, FsError, FsOp, OpenFile, Status, SyncScope};
use packtree::{NewKind, NewNode, NodeError, PackTree, RenameHow, SetAttributes, TreeNodes, XattrHow};

use super::model::{Item, Model, Moment, XATTR};
use crate::scenario::{mixed, pattern};

/// Plays calls until one fails.
pub struct Player<'a> {
    tree: &'a PackTree,
    model: &'a mut Model,
    drawn: u64,
    next_file: u64,
    /// Files that stay open, some without a name.
    open: Vec<(Box<dyn OpenFile>, u64)>,
    may_be_full: bool,
    /// Calls that were refused, as the disk was full.
    refused: usize,
}

impl<'a> Player<'a> {
    pub fn new(tree: &'a PackTree, model: &'a mut Model, seed: u64) -> Self {
        let next_file = model.now().files.keys().max().map_or(1, |last| last + 1);
        Self { tree, model, drawn: seed, next_file, open: Vec::new(), may_be_full: false, refused: 0 }
    }

    /// Continues after a call that finds the disk full.
    pub fn on_a_disk_that_may_be_full(mut self, may_be_full: bool) -> Self {
        self.may_be_full = may_be_full;
        self
    }

    /// Returns how many calls were refused, as the disk was full.
    pub fn play(mut self, steps: usize) -> Result<usize, FsError> {
        for _ in 0..steps {
            match self.step() {
                Err(error) if self.may_be_full && error.status() == Some(Status::NOSPC) => self.refused += 1,
                done => done?,
            }
        }
        Ok(self.refused)
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.drawn = mixed(self.drawn);
        self.drawn % below.max(1)
    }

    /// One call that changes the tree as `next` says.
    fn call<T>(
        &mut self,
        next: Moment,
        call: impl FnOnce(&PackTree) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        self.model.begin(next);
        let value = call(self.tree).inspect_err(|error| {
            if self.may_be_full && error.status() == Some(Status::NOSPC) {
                self.model.refused();
            }
        })?;
        self.model.acknowledged();
        Ok(value)
    }

    fn one_of(&mut self, wanted: impl Fn(&Item) -> bool) -> Option<String> {
        let names = &self.model.now().names;
        let paths: Vec<String> =
            names.iter().filter(|(_, item)| wanted(item)).map(|(path, _)| path.clone()).collect();
        let at = self.draw(paths.len() as u64) as usize;
        paths.get(at).cloned()
    }

    /// A path that may be taken or not, in some directory.
    fn some_path(&mut self) -> String {
        let directory =
            self.one_of(|item| *item == Item::Directory).filter(|path| path.matches('/').count() < 3);
        let name = format!("n{}", self.draw(12));
        match directory {
            Some(directory) if self.draw(3) > 0 => format!("{directory}/{name}"),
            _ => name,
        }
    }

    fn free_path(&mut self) -> Option<String> {
        Some(self.some_path()).filter(|path| !self.model.now().names.contains_key(path))
    }

    fn step(&mut self) -> Result<(), FsError> {
        match self.draw(26) {
            kind @ 0..20 => self.step_by_path(kind),
            20 | 21 => self.reshape(),
            22 => self.set(),
            23 => self.set_xattr(),
            24 => self.exchange(),
            _ => {
                let mut next = self.model.now().clone();
                let name = format!("n{}", self.draw(12));
                if next.names.insert(name.clone(), Item::Fifo).is_some() {
                    return Ok(());
                }
                let new = NewNode { kind: NewKind::Fifo, mode: 0o600, uid: 1, gid: 2 };
                let made = |tree: &PackTree| tree.nodes().make(TreeNodes::ROOT, name.as_bytes(), &new);
                self.call(next, |tree| made(tree).map(drop).map_err(failed))
            }
        }
    }

    /// A file with a name, and its inode.
    fn some_file(&mut self) -> Result<Option<(u64, u64)>, FsError> {
        let Some(path) = self.one_of(|item| matches!(item, Item::File(_))) else { return Ok(None) };
        let Item::File(file) = self.model.now().names[&path] else { unreachable!("it is a file") };
        Ok(Some((file, self.tree.stat(Path::new(&path))?.fileid)))
    }

    /// Cuts a file or makes it longer, or makes a hole in it.
    fn reshape(&mut self) -> Result<(), FsError> {
        let Some((file, inode)) = self.some_file()? else { return Ok(()) };
        let mut next = self.model.now().clone();
        let bytes = Rc::make_mut(next.files.get_mut(&file).expect("it has a name"));
        let at = self.draw(bytes.len() as u64 + 800) as usize;
        if self.draw(2) == 0 {
            bytes.resize(at, 0);
            let set = SetAttributes { size: Some(at as u64), ..SetAttributes::default() };
            return self.call(next, |tree| tree.nodes().set(inode, &set).map(drop).map_err(failed));
        }
        let length = self.draw(3000) as usize;
        let end = bytes.len().min(at + length);
        bytes[at.min(end)..end].fill(0);
        self.call(next, |tree| tree.nodes().punch_hole(inode, at as u64, length as u64).map_err(failed))
    }

    fn set(&mut self) -> Result<(), FsError> {
        let Some((file, inode)) = self.some_file()? else { return Ok(()) };
        let mut next = self.model.now().clone();
        let (mode, uid, atime) = (self.draw(0o10000) as u16, self.draw(1 << 32) as u32, self.drawn as i64);
        next.sets.entry(file).or_default().attributes = Some((mode, uid, atime));
        let (mode, uid, atime_ns) = (Some(mode), Some(uid), Some(atime));
        let set = SetAttributes { mode, uid, atime_ns, ..SetAttributes::default() };
        self.call(next, |tree| tree.nodes().set(inode, &set).map(drop).map_err(failed))
    }

    fn set_xattr(&mut self) -> Result<(), FsError> {
        let Some((file, inode)) = self.some_file()? else { return Ok(()) };
        let mut next = self.model.now().clone();
        let value = &mut next.sets.entry(file).or_default().xattr;
        if value.take().is_some() && self.draw(2) == 0 {
            return self.call(next, |tree| tree.nodes().remove_xattr(inode, XATTR).map_err(failed));
        }
        let bytes = pattern(self.draw(4097) as usize, self.drawn);
        next.sets.entry(file).or_default().xattr = Some(bytes.clone());
        let set = |tree: &PackTree| tree.nodes().set_xattr(inode, XATTR, &bytes, XattrHow::Set);
        self.call(next, |tree| set(tree).map_err(failed))
    }

    /// Exchanges two names of the root.
    fn exchange(&mut self) -> Result<(), FsError> {
        let mut next = self.model.now().clone();
        let (one, other) = (format!("n{}", self.draw(12)), format!("n{}", self.draw(12)));
        if one == other || !next.names.contains_key(&one) || !next.names.contains_key(&other) {
            return Ok(());
        }
        for (from, to) in [(&*one, "\0"), (&other, &one), ("\0", &other)] {
            next.rename(from, to);
        }
        let (from, to) = ((TreeNodes::ROOT, one.as_bytes()), (TreeNodes::ROOT, other.as_bytes()));
        self.call(next, |tree| tree.nodes().rename(from, to, RenameHow::Exchange).map_err(failed))
    }

    fn step_by_path(&mut self, kind: u64) -> Result<(), FsError> {
        let mut next = self.model.now().clone();
        match kind {
            0..4 => self.create(next),
            4..7 => self.write(next),
            7 => self.replace(),
            8 => {
                let (Some(file), Some(new)) =
                    (self.one_of(|item| matches!(item, Item::File(_))), self.free_path())
                else {
                    return Ok(());
                };
                let item = next.names[&file].clone();
                next.names.insert(new.clone(), item);
                self.call(next, |tree| tree.link(Path::new(&file), Path::new(&new)))
            }
            9 | 10 => {
                let Some(path) = self.one_of(|item| *item != Item::Directory) else { return Ok(()) };
                next.names.remove(&path);
                next.forget();
                self.call(next, |tree| tree.unlink(Path::new(&path)))
            }
            11 => {
                let Some(path) = self.free_path() else { return Ok(()) };
                next.names.insert(path.clone(), Item::Directory);
                self.call(next, |tree| tree.mkdir(Path::new(&path)))
            }
            12 => {
                let Some(path) = self.one_of(|item| *item == Item::Directory) else { return Ok(()) };
                if next.names.keys().any(|other| other.starts_with(&format!("{path}/"))) {
                    return Ok(());
                }
                next.names.remove(&path);
                self.call(next, |tree| tree.rmdir(Path::new(&path)))
            }
            13 | 14 => self.rename(next),
            15..18 => {
                // Long ones fill the rooms of the journal.
                let Some(path) = self.free_path() else { return Ok(()) };
                let text = "to/".repeat(1 + self.draw(1300) as usize);
                next.names.insert(path.clone(), Item::Symlink(text.clone()));
                self.call(next, |tree| tree.symlink(Path::new(&text), Path::new(&path)))
            }
            18 => self.sync(),
            _ => {
                let some = self.draw(3) as usize;
                self.open.drain(..some.min(self.open.len()));
                Ok(())
            }
        }
    }

    fn create(&mut self, mut next: Moment) -> Result<(), FsError> {
        let Some(path) = self.free_path() else { return Ok(()) };
        let file = self.next_file;
        self.next_file += 1;
        next.names.insert(path.clone(), Item::File(file));
        next.files.insert(file, Rc::default());
        let opened = self.call(next, |tree| tree.create(Path::new(&path)))?;
        self.open.push((opened, file));
        let at = self.open.len() - 1;
        self.write_open(at, 0)
    }

    /// Writes through an open file, also one without a name.
    fn write_open(&mut self, at: usize, offset: u64) -> Result<(), FsError> {
        let length = 1 + self.draw(3000) as usize;
        let bytes = pattern(length, self.drawn);
        let file = self.open[at].1;
        let mut next = self.model.now().clone();
        if let Some(old) = next.files.get_mut(&file) {
            put(Rc::make_mut(old), offset as usize, &bytes);
        }
        let (mut opened, _) = self.open.swap_remove(at);
        opened.seek(offset)?;
        self.call(next, |_| opened.write(&bytes)).inspect(|written| assert_eq!(*written, length))?;
        self.open.push((opened, file));
        Ok(())
    }

    fn write(&mut self, mut next: Moment) -> Result<(), FsError> {
        if self.draw(4) == 0 && !self.open.is_empty() {
            let at = self.draw(self.open.len() as u64) as usize;
            let offset = self.draw(5000);
            return self.write_open(at, offset);
        }
        let Some(path) = self.one_of(|item| matches!(item, Item::File(_))) else { return Ok(()) };
        let Item::File(file) = next.names[&path] else { unreachable!("it is a file") };
        let bytes = pattern(1 + self.draw(4000) as usize, self.drawn);
        let old = Rc::make_mut(next.files.get_mut(&file).expect("it has a name"));
        let append = self.draw(3) > 0;
        let offset = if append { old.len() as u64 } else { self.draw(old.len() as u64 + 500) };
        put(old, offset as usize, &bytes);
        let access = if append { Access::Append } else { Access::Write };
        let mut opened = self.tree.open(Path::new(&path), access)?;
        opened.seek(offset)?;
        self.call(next, |_| opened.write(&bytes)).inspect(|written| assert_eq!(*written, bytes.len()))?;
        if self.draw(8) == 0 {
            opened.sync(SyncScope::Data)?;
            self.model.safe();
        }
        Ok(())
    }

    /// As editors do: a new file, renamed over the old one. The name shows one of both, whole.
    fn replace(&mut self) -> Result<(), FsError> {
        let Some(path) = self.one_of(|item| matches!(item, Item::File(_))) else { return Ok(()) };
        let mut next = self.model.now().clone();
        if next.names.contains_key("new") {
            return Ok(());
        }
        let file = self.next_file;
        self.next_file += 1;
        next.names.insert("new".to_owned(), Item::File(file));
        next.files.insert(file, Rc::default());
        let opened = self.call(next, |tree| tree.create(Path::new("new")))?;
        self.open.push((opened, file));
        self.write_open(self.open.len() - 1, 0)?;
        let mut next = self.model.now().clone();
        next.names.remove(&path);
        next.rename("new", &path);
        self.call(next, |tree| tree.rename(Path::new("new"), Path::new(&path)))
    }

    fn rename(&mut self, mut next: Moment) -> Result<(), FsError> {
        let Some(from) = self.one_of(|_| true) else { return Ok(()) };
        let to = self.some_path();
        let is_directory = next.names[&from] == Item::Directory;
        let over = next.names.get(&to);
        let fits = match over {
            None => true,
            Some(Item::Directory) => {
                is_directory && !next.names.keys().any(|other| other.starts_with(&format!("{to}/")))
            }
            Some(item) => !is_directory && *item != next.names[&from],
        };
        if !fits || to == from || to.starts_with(&format!("{from}/")) {
            return Ok(());
        }
        next.names.remove(&to);
        next.rename(&from, &to);
        self.call(next, |tree| tree.rename(Path::new(&from), Path::new(&to)))
    }

    fn sync(&mut self) -> Result<(), FsError> {
        match self.draw(2) {
            0 => self.tree.sync_all()?,
            _ => self.tree.sync_dir(Path::new(""))?,
        }
        self.model.safe();
        Ok(())
    }
}

fn failed(error: NodeError) -> FsError {
    let status = match error {
        NodeError::Status(status) => status,
        _ => Status::IO,
    };
    FsError::Failed { op: FsOp::Write, path: error.to_string().into(), status, source: None }
}

fn put(into: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    into.resize(into.len().max(offset + bytes.len()), 0);
    into[offset..offset + bytes.len()].copy_from_slice(bytes);
}
