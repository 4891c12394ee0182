//! The tree behind a mount: operations by node number on the lower tree, with managed directories seen through.
//!
//! ```text
//! number --nodes--> parent, name --descriptors--> lower directory, 345/123456 --> one system call there
//! ```
//!
//! Every operation by number uses the node's name and checks that it leads to the expected inode. If the lower tree was
//! changed underneath, the operation fails with ESTALE, and the kernel looks the name up again; it never reaches another file.
//!
//! Always holds: only open nodes and a bounded number of directories keep a descriptor. Only the system call that opens
//! hidden directories (`holders`) gets a path of more than one component.
//! Not here: the protocol (`adapter`), names to places (`files::Layout`), directory reading (`listing`).
//! An operation passes the gate of the directory it works in (`gate`), so that a conversion knows when it has ended.
//! Locks: a rename holds `renames` shared over its system call. An operation that found a stale name takes it exclusively:
//! then no rename is under way and the node's name is current. `hiding` is held while a hidden directory is created.
//! Within both, the leaf locks of `nodes` and `descriptors`.

mod attributes;
pub(super) mod converting;
pub(super) mod descriptors;
mod extended;
pub(super) mod gate;
pub(super) mod hidden;
mod holders;
pub(super) mod identity;
pub(super) mod listing;
mod naming;
pub(super) mod nodes;
pub(super) mod opened;
mod opening;
mod recording;
pub(super) mod shares;
mod stamps;
mod unopened;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;

use files::Layout;
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;

use self::converting::{Conversions, Half};
use self::descriptors::Descriptors;
use self::gate::Passed;
use self::identity::Identity;
use self::nodes::{Kind, Nodes, Place, ROOT};
use self::opened::Opened;
use self::stamps::Stamps;
use self::unopened::Unopened;
use crate::convert::state::unfinished;
use crate::managed;
use holders::Holders;

pub(crate) use attributes::{Change, Set};
pub(crate) use hidden::by_descriptor;
pub(crate) use naming::New;
pub(crate) use opening::Writing;
pub(crate) use unopened::Of;

/// The result of an operation.
pub(crate) type Done<T> = Result<T, Errno>;

/// The lower tree and its cached state.
pub(crate) struct Tree {
    root: Arc<OwnedFd>,
    /// Device and inode of the root.
    root_of: (u64, u64),
    pub(crate) nodes: Nodes,
    pub(crate) descriptors: Descriptors,
    pub(crate) holders: Holders,
    pub(crate) opened: Opened,
    pub(crate) unopened: Unopened,
    pub(crate) conversions: Conversions,
    /// Gives up descriptors that are kept elsewhere; false when there are none.
    pub(crate) spared: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
    pub(crate) identity: Identity,
    /// For directories that are managed, unmarked and empty.
    layout_new: Layout,
    stamps: Stamps,
    renames: RwLock<()>,
    hiding: Mutex<()>,
}

/// A node and its attributes, as returned to the kernel.
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    /// Distinguishes an inode from a later one with the same number.
    pub(crate) generation: u64,
    pub(crate) attributes: Statx,
    /// It was named by a directory whose entries are in that directory itself.
    pub(crate) is_in_plain: bool,
}

/// A directory an operation works in.
pub(crate) struct Inside<'t> {
    pub(crate) id: u64,
    pub(crate) directory: Arc<OwnedFd>,
    pub(crate) kind: Kind,
    /// Its conversion, if one is under way.
    half: Option<Half>,
    /// Until it is dropped, a conversion relies on nothing newer than this operation.
    _passed: Passed<'t>,
}

impl Tree {
    /// The tree at `root`, a descriptor of a directory. Names below are believed for `trusted_for`.
    pub(crate) fn new(
        root: OwnedFd,
        layout_new: Layout,
        directories_max: usize,
        trusted_for: Duration,
    ) -> std::io::Result<Self> {
        let attributes = rustix::fs::statx(&root, c".", LOOK, WANTED)?;
        let kind = if managed::is_managed(attributes.stx_mode.into()) {
            Kind::Managed(managed::layout_of(&root)?)
        } else {
            Kind::Plain
        };
        Ok(Self {
            root_of: (device(&attributes), attributes.stx_ino),
            root: Arc::new(root),
            nodes: Nodes::new(kind),
            descriptors: Descriptors::new(directories_max),
            holders: Holders::new(hidden_max(directories_max), trusted_for),
            opened: Opened::default(),
            unopened: Unopened::new(false, false),
            conversions: Conversions::new(),
            spared: OnceLock::new(),
            identity: Identity::of_this_process(),
            layout_new,
            stamps: Stamps::default(),
            renames: RwLock::default(),
            hiding: Mutex::default(),
        })
    }

    /// The same tree, of which no request opens files, or directories.
    pub(crate) fn with_unopened(self, files: bool, directories: bool) -> Self {
        Self { unopened: Unopened::new(files, directories), ..self }
    }

    /// Whether the lower tree's file system may itself lie on another one, as the kernel counts it.
    pub(crate) fn is_over_a_stack(&self) -> bool {
        const STACKED: [i64; 3] = [OVERLAYFS, ECRYPTFS, FUSE];
        const OVERLAYFS: i64 = 0x794c_7630;
        const ECRYPTFS: i64 = 0xf15f;
        const FUSE: i64 = 0x6573_5546;
        // If the query fails, assume the worse case.
        rustix::fs::fstatfs(&self.root).map_or(true, |of| STACKED.contains(&of.f_type))
    }

    /// The number of the inode with these attributes: its own on the root's file system.
    pub(crate) fn number(&self, attributes: &Statx) -> u64 {
        let of = (device(attributes), attributes.stx_ino);
        if of == self.root_of {
            return ROOT;
        }
        self.number_on(of.0, of.1)
    }

    /// The same for a directory entry, which has no device number: `device` is the directory's.
    pub(crate) fn number_on(&self, device: u64, inode: u64) -> u64 {
        if device == self.root_of.0 && inode > ROOT && inode >> 63 == 0 {
            return inode;
        }
        // Other file systems mounted below, and subvolumes, reuse inode numbers. Hash device and inode into the upper
        // half, which lower file systems do not use.
        let mixed = (device.rotate_left(32) ^ inode).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29) | 1 << 63
    }

    /// The number of an inode of the root's device.
    pub(crate) fn number_on_root(&self, inode: u64) -> u64 {
        if inode == self.root_of.1 { ROOT } else { self.number_on(self.root_of.0, inode) }
    }

    /// Whether a node is on the root's device: numbers of others are hashes.
    pub(crate) fn is_on_root_device(&self, id: u64) -> bool {
        id >> 63 == 0
    }

    /// The lower tree's root.
    pub(crate) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// What the kernel shows as a directory's inode number: the root's is not its number in the protocol.
    pub(crate) fn shown(&self, id: u64) -> u64 {
        if id == ROOT { self.root_of.1 } else { id }
    }

    /// The directory with this number, to work in.
    pub(crate) fn inside(&self, id: u64) -> Done<Inside<'_>> {
        // Before its kind: it may show only when it is opened that it is half converted.
        let directory = self.directory(id)?;
        let passed = self.pass(id);
        match self.now(id)? {
            (Kind::Leaf, _) => Err(Errno::NOTDIR),
            (Kind::Unreadable, _) => Err(Errno::IO),
            // Only between the end of a conversion and its last word: none of its operations is left.
            (Kind::Converting, None) => Err(Errno::STALE),
            (kind, half) => Ok(Inside { id, directory, kind, half, _passed: passed }),
        }
    }

    /// A descriptor of the directory with this number.
    pub(crate) fn directory(&self, id: u64) -> Done<Arc<OwnedFd>> {
        if id == ROOT {
            return Ok(Arc::clone(&self.root));
        }
        if let Some(found) = self.descriptors.find(id) {
            return Ok(found);
        }
        let opened = self.by_name(id, |parent, name| {
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            // To be read where that is allowed: extended attributes can be asked for by such a descriptor.
            let opened = match rustix::fs::openat(parent, name, flags | OFlags::RDONLY, Mode::empty()) {
                Err(Errno::ACCESS) => rustix::fs::openat(parent, name, flags | OFlags::PATH, Mode::empty()),
                other => other,
            }?;
            self.is_number(id, &opened)?;
            Ok(opened)
        })?;
        self.note_half_way(id, &opened);
        Ok(self.descriptors.keep(id, opened))
    }

    /// Does something to a node by its name: `attempt` gets a directory and a path in it, and says ESTALE when what
    /// it finds there is something else.
    pub(crate) fn by_name<T>(
        &self,
        id: u64,
        mut attempt: impl FnMut(BorrowedFd<'_>, &[u8]) -> Done<T>,
    ) -> Done<T> {
        if id == ROOT {
            return attempt(self.root.as_fd(), b".");
        }
        let mut place = self.nodes.place(id).ok_or(Errno::STALE)?;
        loop {
            let outcome = self.at_place(&place, &mut attempt);
            if !matches!(outcome, Err(Errno::NOENT | Errno::STALE | Errno::NOTDIR | Errno::LOOP)) {
                return outcome;
            }
            // The name may just be changing: wait for the renames under way.
            drop(self.renames.write());
            let now = self.nodes.place(id).ok_or(Errno::STALE)?;
            if now == place && !self.nodes.next_place(id, &place) {
                return Err(Errno::STALE);
            }
            place = self.nodes.place(id).ok_or(Errno::STALE)?;
        }
    }

    fn at_place<T>(
        &self,
        place: &Place,
        attempt: &mut impl FnMut(BorrowedFd<'_>, &[u8]) -> Done<T>,
    ) -> Done<T> {
        let parent = self.inside(place.parent)?;
        self.at(&parent, &place.name, |holder| attempt(holder.as_fd(), &place.name))
    }

    /// A descriptor for look-ups (`O_PATH`) of any node.
    pub(crate) fn handle(&self, id: u64) -> Done<Arc<OwnedFd>> {
        if self.nodes.kind(id) != Some(Kind::Leaf) {
            return self.directory(id);
        }
        let by_name = self.by_name(id, |parent, name| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(parent, name, flags, Mode::empty())?;
            self.is_number(id, &opened)?;
            Ok(Arc::new(opened))
        });
        match by_name {
            Err(Errno::STALE) => self.removed(id),
            other => other,
        }
    }

    /// A descriptor of a node that has no name any more: of a file any that is open, of anything else the one kept
    /// when it was removed.
    fn removed(&self, id: u64) -> Done<Arc<OwnedFd>> {
        self.nameless_file(id).or_else(|| self.descriptors.find(id)).ok_or(Errno::STALE)
    }

    /// ESTALE unless the descriptor is of the inode with this number.
    pub(crate) fn is_number(&self, id: u64, descriptor: impl AsFd) -> Done<Statx> {
        let attributes = rustix::fs::statx(descriptor, c"", LOOK | AtFlags::EMPTY_PATH, WANTED)?;
        if self.number(&attributes) == id { Ok(attributes) } else { Err(Errno::STALE) }
    }

    /// What `name` in the directory below that holds it turned out to be.
    pub(crate) fn entry(&self, holder: impl AsFd, name: &[u8], attributes: Statx) -> Entry {
        let id = self.number(&attributes);
        let open = |flags| self.with_descriptors(|| rustix::fs::openat(&holder, name, flags, Mode::empty()));
        let kind = self.kind_of(id, &attributes, open);
        let born = &attributes.stx_btime;
        // Inode numbers come back after deletion; the time of birth, where the file system has it, does not.
        let generation = (born.tv_sec as u64).wrapping_mul(1_000_000_007).wrapping_add(born.tv_nsec.into());
        let attributes = self.as_seen(attributes);
        Entry { id, kind, generation: generation & u64::MAX >> 1, attributes, is_in_plain: false }
    }

    /// What a name looked up turned out to be; the kernel gets a reference to it.
    pub(crate) fn refer(&self, parent: u64, holder: &OwnedFd, name: &[u8], attributes: Statx) -> Entry {
        let mut entry = self.entry(holder, name, attributes);
        self.nodes.refer(entry.id, parent, name, entry.kind);
        entry.is_in_plain = self.is_plain(parent);
        entry
    }

    /// The attributes without a trace of the hidden level.
    pub(crate) fn as_seen(&self, mut attributes: Statx) -> Statx {
        if managed::is_managed(attributes.stx_mode.into()) {
            attributes.stx_mode &= !(managed::MANAGED_BIT as u16);
            // Links count the hidden directories, and counting the visible ones would mean to read them all. One
            // says "not counted", as btrfs does, and find(1) understands; 0 is a directory removed while open.
            attributes.stx_nlink = attributes.stx_nlink.min(1);
        }
        if u32::from(attributes.stx_mode) & 0o170_000 == 0o040_000 {
            self.without_moves(&mut attributes);
        }
        attributes
    }

    fn kind_of(&self, id: u64, attributes: &Statx, open: impl FnOnce(OFlags) -> Done<OwnedFd>) -> Kind {
        if u32::from(attributes.stx_mode) & 0o170_000 != 0o040_000 {
            return Kind::Leaf;
        }
        if let Some(kind) = self.kind_in_conversion(id) {
            return kind;
        }
        let is_managed = managed::is_managed(attributes.stx_mode.into());
        let known = self.nodes.kind(id);
        match known {
            Some(Kind::Unreadable) => {}
            Some(known @ Kind::Managed(_)) if is_managed => return known,
            _ if is_managed => {}
            _ => return Kind::Plain,
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = open(flags).map_err(std::io::Error::from);
        if known == Some(Kind::Unreadable) && opened.as_ref().is_ok_and(|of| unfinished(of).is_some()) {
            return Kind::Unreadable;
        }
        match opened.and_then(|of| if is_managed { managed::layout_of(of).map(Some) } else { Ok(None) }) {
            Ok(None) => Kind::Plain,
            Ok(Some(layout)) => Kind::Managed(layout),
            Err(error) => {
                tracing::error!(
                    "managed directory (inode {}) cannot be shown, its layout mark cannot be read: {error}; \
                     run `crumb check`",
                    attributes.stx_ino
                );
                Kind::Unreadable
            }
        }
    }
}

impl Tree {
    /// A directory that a conversion has left half way shows nothing at all, with an error, until that is finished:
    /// part of its entries lie elsewhere, and what is made here meanwhile could be there twice.
    fn note_half_way(&self, id: u64, opened: &OwnedFd) {
        // Unless this mount converts it. If that has just ended, the staging directory is gone when looked for again.
        let is_ours = || self.conversions.of(id).is_some() || unfinished(opened).is_none();
        if let Some(verb) = unfinished(opened)
            && !is_ours()
        {
            let path = std::fs::read_link(hidden::by_descriptor(opened)).unwrap_or_default();
            tracing::error!(
                "{0} is half converted and is not shown: unmount, then `crumb {verb} {0}` finishes it, or `crumb {verb} --online` on \
                 its path in the mount",
                path.display()
            );
            self.nodes.set_kind(id, Kind::Unreadable);
        }
    }
}

/// How many hidden directories have a descriptor kept: a managed one has a thousand or more of them. At most a quarter
/// of what this process may have open.
fn hidden_max(directories_max: usize) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    (directories_max * HIDDEN_FOR_EACH).min(usize::try_from(limit / 4).unwrap_or(usize::MAX))
}

/// Descriptors of hidden directories for each of a directory.
const HIDDEN_FOR_EACH: usize = 4;

fn device(attributes: &Statx) -> u64 {
    rustix::fs::makedev(attributes.stx_dev_major, attributes.stx_dev_minor)
}

/// How attributes are asked for: of the name itself, without waking automounters.
pub(crate) const LOOK: AtFlags = AtFlags::SYMLINK_NOFOLLOW.union(AtFlags::NO_AUTOMOUNT);
/// Which attributes.
pub(crate) const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);
