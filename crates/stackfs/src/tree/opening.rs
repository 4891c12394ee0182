//! Opening files and directories, and what is done to open files without the kernel's pass-through.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use files::Layout;
use rustix::fs::{FallocateFlags, FileType, IFlags, Mode, OFlags, SeekFrom, Statx};
use rustix::io::{Errno, ReadWriteFlags};

use super::converting::{Conversion, Side, Step};
use super::identity::Caller;
use super::listing::{Entries, ListedEntry, Listing, hidden, there};
use super::nodes::{Kind, lock};
use super::opened::OpenDirectory;
use super::recording::{Recorder, Recording, record};
use super::unopened::{Of, Reached};
use super::{Done, Tree};
use crate::convert::state::is_reserved;

/// How a request writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writing {
    /// Set-user-id bits are cleared.
    pub(crate) kills_bits: bool,
    /// The program has opened the file to append to it.
    pub(crate) appends: bool,
}

impl Tree {
    /// Opens a regular file with these flags (access mode and synchronous writing).
    pub(crate) fn open(&self, id: u64, flags: OFlags) -> Done<OwnedFd> {
        let opened = self
            .by_name(id, |parent, name| self.open_leaf(id, parent, name, flags).map(|(opened, _)| opened));
        match opened {
            // The file has no name any more: reopen it by /proc/self/fd.
            Err(Errno::STALE) => {
                let file = self.nameless_file(id).ok_or(Errno::STALE)?;
                let flags = (flags - OFlags::NOFOLLOW) | OFlags::CLOEXEC;
                let path = super::hidden::by_descriptor(&*file);
                self.with_descriptors(|| rustix::fs::open(&path, flags, Mode::empty()))
            }
            other => other,
        }
    }

    /// Opens a non-directory by one of its names and returns its attributes. An error counts only if the name still leads to
    /// the node: the name may now belong to a FIFO without readers, or to a running program.
    pub(super) fn open_leaf(
        &self,
        id: u64,
        parent: impl AsFd,
        name: &[u8],
        flags: OFlags,
    ) -> Done<(OwnedFd, Statx)> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::openat(&parent, name, flags, Mode::empty()) {
            Ok(opened) => {
                let attributes = self.is_number(id, &opened)?;
                Ok((opened, attributes))
            }
            Err(refused) => {
                self.is_still(id, parent, name)?;
                Err(refused)
            }
        }
    }

    /// Opens a directory to be read.
    pub(crate) fn open_directory(&self, id: u64) -> Done<u64> {
        Ok(self.opened.add_directory(self.listing_of(id)?))
    }

    pub(super) fn listing_of(&self, id: u64) -> Done<OpenDirectory> {
        let inside = self.inside(id)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(&inside.directory, c".", flags, Mode::empty());
        let opened = self.with_descriptors(open)?;
        let parent = self.nodes.place(id).ok_or(Errno::STALE)?.parent;
        let attributes = rustix::fs::statx(&opened, c".", super::LOOK, super::WANTED)?;
        let device = super::device(&attributes);
        let listing = match inside.kind {
            Kind::Managed(layout) => Listing::managed(opened, layout),
            Kind::Leaf | Kind::Plain | Kind::Unreadable | Kind::Converting => Listing::plain(opened),
        };
        let dots = (self.shown(id), self.shown(parent));
        let listing = Mutex::new(listing.with_dots(dots));
        Ok(OpenDirectory { id, device, listing })
    }

    /// Passes entries of a directory from `position` on to `emit`, until it returns false (no room for the entry).
    pub(crate) fn list(
        &self,
        of: Of,
        position: u64,
        mut emit: impl FnMut(&OpenDirectory, &ListedEntry<'_>) -> Done<bool>,
    ) -> Done<()> {
        self.listing_at(of, position, |directory| {
            let _passed = self.pass(directory.id);
            let mut listing = lock(&directory.listing);
            if position == 0 {
                self.begin_listing(directory.id, &mut listing)?;
            } else if !listing.is_recorded()
                && !listing.is_under_way()
                && self.conversions.of(directory.id).is_some()
            {
                // Opened again to continue there, as NFS servers do: before the conversion that position meant something.
                return Err(Errno::STALE);
            }
            let mut behind = position;
            let noting = |listed: &ListedEntry<'_>| {
                let taken = emit(directory, listed)?;
                if taken {
                    behind = listed.position;
                }
                Ok(taken)
            };
            listing.read(position, &self.hidden_opener(), noting)?;
            Ok(((), behind))
        })
    }

    /// The directory as it is now; one that is being converted is written down.
    fn begin_listing(&self, id: u64, listing: &mut Listing) -> Done<()> {
        match self.now(id) {
            Ok((_, Some((conversion, step)))) if !matches!(step, Step::OverFlat | Step::OverManaged) => {
                listing.continue_from(&self.recorded_in_conversion(&conversion, step)?);
            }
            Ok((Kind::Managed(layout), _)) => listing.begin(Some(layout)),
            Ok((Kind::Plain, _)) => listing.begin(None),
            // What cannot be shown could not be opened; a directory that is open can be read to its end.
            _ => {}
        }
        Ok(())
    }

    /// All entries of a directory under conversion. Nothing moves meanwhile.
    fn recorded_in_conversion(&self, conversion: &Conversion, step: Step) -> Done<Arc<Recording>> {
        let _paused = conversion.pause();
        let directory = conversion.to_read()?;
        record(&directory, |recorder| {
            recorder.add(b".", FileType::Directory, 0, 1)?;
            recorder.add(b"..", FileType::Directory, 0, 2)?;
            let mut position = 2;
            let mut names = |recorder: &mut Recorder<'_>, at: &OwnedFd| {
                let mut entries = Entries::default();
                while entries.fill(at)? {
                    while let Some(entry) = entries.next() {
                        if !matches!(entry.name, b"." | b"..") && !is_reserved(entry.name) {
                            position += 1;
                            recorder.add(entry.name, entry.kind, entry.inode, position)?;
                        }
                    }
                }
                Ok(())
            };
            for side in step.sides() {
                let root = match conversion.root_of(*side) {
                    Err(Errno::NOENT) => continue,
                    root => root?,
                };
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let root = rustix::fs::openat(root, c".", flags, Mode::empty())?;
                if *side == Side::Flat {
                    names(recorder, &root)?;
                    continue;
                }
                let open = self.hidden_opener();
                for (_, path) in hidden(&root, conversion.layout, 0, &open)? {
                    if let Some(level) = there(open(&root, &path))? {
                        names(recorder, &level)?;
                    }
                }
            }
            Ok(())
        })
    }

    /// Gives the listings of a directory that are under way a recording to continue from. From now on others begin with
    /// one of their own, and nothing has moved yet.
    pub(crate) fn record_listings(&self, id: u64, layout: Option<Layout>) -> Done<()> {
        let open = self.opened.directories_of(id);
        let under_way: Vec<_> = open.into_iter().filter(|one| lock(&one.listing).is_under_way()).collect();
        let Some(first) = under_way.first() else { return Ok(()) };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let again = || rustix::fs::openat(lock(&first.listing).itself(), c".", flags, Mode::empty());
        let (near, read) = (self.with_descriptors(again)?, self.with_descriptors(again)?);
        let recording = record(&near, |recorder| {
            let mut listing = Listing::plain(read);
            listing.begin(layout);
            listing.read(0, &self.hidden_opener(), |entry| {
                recorder.add(entry.name, entry.kind, entry.inode, entry.position)?;
                Ok(true)
            })
        })?;
        for one in under_way {
            let mut listing = lock(&one.listing);
            // Begun again meanwhile, it has a recording of its own, with other positions.
            if listing.is_under_way() {
                listing.continue_from(&recording);
            }
        }
        Ok(())
    }

    fn hidden_opener(&self) -> impl Fn(&OwnedFd, &[u8]) -> Done<OwnedFd> {
        |managed, path| self.open_hidden(managed, path, OFlags::RDONLY)
    }

    /// Reads until `buffer` is full or the file ends.
    pub(crate) fn read(&self, of: Of, offset: u64, buffer: &mut [u8]) -> Done<usize> {
        let file = self.file_of(of, OFlags::RDONLY)?;
        let mut done = 0;
        while done < buffer.len() {
            match rustix::io::pread(&file.descriptor, &mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Writes `bytes`. A program that appends gets the offset from the kernel, which takes the size for what it was when
    /// the file was last looked at; where no request opens files that may be long ago, so that the end is asked for. And whether
    /// that cleared set-user-id bits.
    pub(crate) fn write(&self, of: Of, offset: u64, bytes: &[u8], how: Writing) -> Done<(usize, bool)> {
        let file = self.file_of(of, OFlags::RDWR)?;
        let clears = how.kills_bits && has_identity_bits(&file.descriptor);
        let at_end = self.unopened.files && how.appends;
        let write = || {
            let mut done = 0;
            while done < bytes.len() {
                let (rest, offset) = (IoSlice::new(&bytes[done..]), offset + done as u64);
                let written = if at_end {
                    rustix::io::pwritev2(&file.descriptor, &[rest], offset, ReadWriteFlags::APPEND)
                } else {
                    rustix::io::pwrite(&file.descriptor, &rest, offset)
                };
                match written {
                    Ok(0) => break,
                    Ok(written) => done += written,
                    Err(Errno::INTR) => {}
                    Err(errno) if done == 0 => return Err(errno),
                    Err(_) => break,
                }
            }
            Ok(done)
        };
        self.writing(&file, how.kills_bits, write).map(|done| (done, clears))
    }

    /// Set-user-id bits go when somebody else than root writes. Who opened the file is unknown where the kernel opens it by itself, so
    /// `kills_bits` says who writes. The kernel asks for it with a write, and leaves it to us with all else that changes contents.
    fn writing<T>(&self, file: &Reached, kills_bits: bool, work: impl FnOnce() -> T) -> T {
        if kills_bits || file.by_ordinary_user {
            self.identity.without_fsetid(work)
        } else {
            self.identity.with_fsetid(work)
        }
    }

    pub(crate) fn sync(&self, of: Of, contents_only: bool) -> Done<()> {
        let file = self.file_of(of, OFlags::RDONLY)?;
        if contents_only {
            rustix::fs::fdatasync(&file.descriptor)
        } else {
            rustix::fs::fsync(&file.descriptor)
        }
    }

    /// Makes a directory's entries durable, wherever they lie.
    pub(crate) fn sync_directory(&self, of: Of) -> Done<()> {
        self.with_directory(of, |directory| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            // By a descriptor of its own: the listing may be anywhere, and its lock is not held over a flush.
            let again = || rustix::fs::openat(lock(&directory.listing).itself(), c".", flags, Mode::empty());
            let lower = self.with_descriptors(again)?;
            let _passed = self.pass(directory.id);
            match self.now(directory.id) {
                // Its entries are on their way.
                Ok((_, Some(_))) => rustix::fs::syncfs(&lower),
                Ok((Kind::Managed(layout), None)) => {
                    let open = self.hidden_opener();
                    for (_, path) in hidden(&lower, layout, 0, &open)? {
                        if let Some(opened) = there(open(&lower, &path))? {
                            rustix::fs::fsync(&opened)?;
                        }
                    }
                    rustix::fs::fsync(&lower)
                }
                _ => rustix::fs::fsync(&lower),
            }
        })
    }

    pub(crate) fn allocate(&self, of: Of, kills_bits: bool, mode: u32, offset: u64, len: u64) -> Done<()> {
        let file = self.file_of(of, OFlags::RDWR)?;
        let mode = FallocateFlags::from_bits_retain(mode);
        self.writing(&file, kills_bits, || rustix::fs::fallocate(&file.descriptor, mode, offset, len))
    }

    /// The inode flags of what is open.
    pub(crate) fn flags(&self, of: Of) -> Done<u32> {
        self.by_handle(of, |opened| Ok(rustix::fs::ioctl_getflags(opened)?.bits()))
    }

    /// The same in their longer form, `struct fsxattr`.
    pub(crate) fn extended_flags(&self, of: Of) -> Done<[u8; sys::EXTENDED_FLAGS_BYTES]> {
        self.by_handle(of, |opened| {
            sys::extended_flags(opened).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        })
    }

    /// Sets the flags. The caller's ownership was checked by the kernel.
    pub(crate) fn set_flags(&self, of: Of, flags: u32, caller: Caller) -> Done<()> {
        if let Ok((Kind::Managed(_) | Kind::Unreadable | Kind::Converting, _)) = self.now(of.0) {
            // They would hold for the managed directory and not for the hidden ones, where the entries are.
            return Err(Errno::OPNOTSUPP);
        }
        let flags = IFlags::from_bits_retain(flags);
        self.by_handle(of, |opened| {
            // As the kernel does: these take a capability, which the daemon has and an ordinary caller has not.
            let privileged = IFlags::IMMUTABLE | IFlags::APPEND;
            let changed = rustix::fs::ioctl_getflags(opened)? ^ flags;
            if caller.uid != 0 && changed.intersects(privileged) {
                return Err(Errno::PERM);
            }
            rustix::fs::ioctl_setflags(opened, flags)
        })
    }

    /// Runs `work` on an open file or directory.
    fn by_handle<T>(&self, of: Of, work: impl FnOnce(&OwnedFd) -> Done<T>) -> Done<T> {
        if self.nodes.kind(of.0) == Some(Kind::Leaf) {
            return work(&self.file_of(of, OFlags::RDONLY)?.descriptor);
        }
        self.with_directory(of, |directory| work(lock(&directory.listing).itself()))
    }

    /// Finds data or a hole.
    pub(crate) fn seek(&self, of: Of, offset: u64, data: bool) -> Done<u64> {
        let file = self.file_of(of, OFlags::RDONLY)?;
        rustix::fs::seek(&file.descriptor, if data { SeekFrom::Data(offset) } else { SeekFrom::Hole(offset) })
    }

    pub(crate) fn copy(&self, from: (Of, u64), to: (Of, u64), kills_bits: bool, len: usize) -> Done<usize> {
        let (source, target) = (self.file_of(from.0, OFlags::RDONLY)?, self.file_of(to.0, OFlags::RDWR)?);
        let (mut read_at, mut write_at) = (from.1, to.1);
        self.writing(&target, kills_bits, || {
            let (source, target) = (&source.descriptor, &target.descriptor);
            rustix::fs::copy_file_range(source, Some(&mut read_at), target, Some(&mut write_at), len)
        })
    }
}

/// Whether a program in this file would run with its owner's or group's rights.
fn has_identity_bits(file: impl AsFd) -> bool {
    let bits = Mode::SUID | Mode::SGID;
    rustix::fs::fstat(file).is_ok_and(|stat| Mode::from_raw_mode(stat.st_mode).intersects(bits))
}
