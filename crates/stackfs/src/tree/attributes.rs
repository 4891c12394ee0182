//! Reads and changes attributes by node number.

use std::os::fd::OwnedFd;

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Gid, Mode, OFlags, StatVfs, Statx, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, Uid,
};
use rustix::io::Errno;

use super::converting::Conversion;
use super::hidden::by_descriptor;
use super::holders::owner;
use super::identity::Caller;
use super::nodes::{Kind, lock};
use super::{Done, LOOK, Tree, WANTED};
use crate::managed::MANAGED_BIT;

/// What is to be changed; what is `None` stays.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) accessed: Option<Set>,
    pub(crate) modified: Option<Set>,
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    Now,
    At { seconds: i64, nanoseconds: u32 },
}

impl Tree {
    /// The attributes of a node.
    pub(crate) fn attributes(&self, id: u64) -> Done<Statx> {
        let kind = self.nodes.kind(id).ok_or(Errno::STALE)?;
        if kind != Kind::Leaf {
            let _passed = self.pass(id);
            let attributes = self.is_number(id, self.directory(id)?)?;
            self.note_kind(id, kind, &attributes);
            return Ok(self.as_seen(attributes));
        }
        let by_name = self.by_name(id, |parent, name| {
            let attributes = rustix::fs::statx(parent, name, LOOK, WANTED)?;
            if self.number(&attributes) == id { Ok(attributes) } else { Err(Errno::STALE) }
        });
        match by_name {
            Err(Errno::STALE) => self.is_number(id, self.removed(id)?),
            other => other,
        }
    }

    /// Whether the daemon itself may use a node so: the mount is its user's alone.
    pub(crate) fn allows(&self, id: u64, wanted: Access) -> Done<()> {
        let node = self.handle(id)?;
        rustix::fs::accessat(CWD, by_descriptor(&*node), wanted, AtFlags::EACCESS)
    }

    /// Changes attributes, through the open file if there is one, and returns the new ones.
    pub(crate) fn change(
        &self,
        id: u64,
        handle: Option<u64>,
        change: &Change,
        caller: Caller,
    ) -> Done<Statx> {
        let open = handle.and_then(|handle| self.opened.file(handle));
        if let Some(size) = change.size {
            let cut = || match &open {
                Some(file) => rustix::fs::ftruncate(&file.descriptor, size),
                None => rustix::fs::ftruncate(self.writable(id)?, size),
            };
            if caller.uid == 0 { self.identity.with_fsetid(cut) } else { self.identity.without_fsetid(cut) }?;
        }
        let by_name;
        let node: &OwnedFd = match &open {
            Some(file) => &file.descriptor,
            None => {
                by_name = self.handle(id)?;
                &by_name
            }
        };
        let _passed = self.pass(id);
        let (kind, half) = self.now(id)?;
        let conversion = half.map(|(conversion, _)| conversion);
        // The conversion changes the mode too, and its hidden directories follow this one.
        let _paused = conversion.as_ref().map(|conversion| conversion.pause());
        let owner_in_conversion = conversion.as_ref().map(|_| owner(node)).transpose()?;
        let managed = match kind {
            Kind::Managed(layout)
                if change.uid.is_some() || change.gid.is_some() || change.mode.is_some() =>
            {
                Some((layout, owner(node)?))
            }
            _ => None,
        };
        // Nobody shall take the hidden directories for a stranger's before they have followed.
        let hiding = managed.map(|_| ()).or(conversion.as_ref().map(|_| ())).map(|()| lock(&self.hiding));
        // The owner before the mode, as chown clears bits that the same call may set.
        if change.uid.is_some() || change.gid.is_some() {
            let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            let owned = || rustix::fs::chownat(node, c"", uid, gid, AtFlags::EMPTY_PATH);
            self.identity.with_fsetid(owned)?;
        }
        if let Some(mode) = change.mode {
            let mode = self.mode_below(id, kind, node, mode)?;
            self.identity.with_fsetid(|| rustix::fs::chmod(by_descriptor(node), mode))?;
        }
        set_times(node, change, conversion.as_deref())?;
        if let Some((layout, owner_before)) = managed {
            self.follow(node, layout, Some(owner_before))?;
        }
        if let (Some(conversion), Some(before)) = (&conversion, owner_in_conversion)
            && (change.uid.is_some() || change.gid.is_some() || change.mode.is_some())
        {
            self.follow_in_conversion(conversion, before)?;
        }
        drop(hiding);
        let attributes = rustix::fs::statx(node, c"", LOOK | AtFlags::EMPTY_PATH, WANTED)?;
        Ok(self.as_seen(attributes))
    }

    /// Space and inodes of the file system a node lies on.
    pub(crate) fn room(&self, id: u64) -> Done<StatVfs> {
        rustix::fs::fstatvfs(self.handle(id)?)
    }

    /// Where a symbolic link leads.
    pub(crate) fn target(&self, id: u64) -> Done<Vec<u8>> {
        let link = self.handle(id)?;
        Ok(rustix::fs::readlinkat(&*link, c"", Vec::new())?.into_bytes())
    }

    /// The mode a node gets below. The managed bit is not the mount's to change: it would show entries that lie
    /// elsewhere, or hide those that are there.
    fn mode_below(&self, id: u64, kind: Kind, node: &OwnedFd, mode: u32) -> Done<Mode> {
        if kind == Kind::Leaf {
            return Ok(Mode::from_raw_mode(mode & 0o7777));
        }
        if mode & MANAGED_BIT != 0 {
            let name = self.nodes.place(id).map(|place| String::from_utf8_lossy(&place.name).into_owned());
            tracing::warn!(
                "chmod u+s of directory `{}` through the mount refused: run `crumb manage --online` on it",
                name.unwrap_or_default()
            );
            return Err(Errno::PERM);
        }
        let bit = match kind {
            Kind::Managed(_) => MANAGED_BIT,
            // As the conversion has it now.
            Kind::Converting => {
                let attributes = rustix::fs::statx(node, c"", LOOK | AtFlags::EMPTY_PATH, WANTED)?;
                u32::from(attributes.stx_mode) & MANAGED_BIT
            }
            _ => 0,
        };
        Ok(Mode::from_raw_mode(mode & 0o7777 | bit))
    }

    /// A directory may have been managed, or not any more, below the mount: nothing hidden yet, or all moved.
    fn note_kind(&self, id: u64, kind: Kind, attributes: &Statx) {
        let again = |_| self.directory(id)?.try_clone().map_err(|_| Errno::MFILE);
        let now = self.kind_of(id, attributes, again);
        if now != kind {
            self.nodes.set_kind(id, now);
        }
    }

    fn writable(&self, id: u64) -> Done<OwnedFd> {
        let opened = self.by_name(id, |parent, name| {
            let (opened, attributes) = self.open_leaf(id, parent, name, OFlags::WRONLY)?;
            match FileType::from_raw_mode(attributes.stx_mode.into()) {
                FileType::RegularFile => Ok(opened),
                _ => Err(Errno::INVAL),
            }
        });
        match opened {
            Err(Errno::STALE) => {
                let file = self.nameless_file(id).ok_or(Errno::STALE)?;
                Ok(rustix::fs::open(by_descriptor(&*file), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?)
            }
            other => other,
        }
    }
}

/// Sets the times that are to be changed; of a directory under conversion also the one that is shown.
fn set_times(node: &OwnedFd, change: &Change, conversion: Option<&Conversion>) -> Done<()> {
    if change.accessed.is_none() && change.modified.is_none() {
        return Ok(());
    }
    let times = Timestamps {
        last_access: change.accessed.map_or(KEPT, Set::spec),
        last_modification: change.modified.map_or(KEPT, Set::spec),
    };
    rustix::fs::utimensat(node, c"", &times, AtFlags::EMPTY_PATH)?;
    if let (Some(conversion), Some(modified)) = (conversion, change.modified) {
        conversion.set_modified(modified.moment());
    }
    Ok(())
}

impl Set {
    /// The time itself.
    fn moment(self) -> Timespec {
        match self {
            Self::Now => {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
                Timespec { tv_sec: now.tv_sec, tv_nsec: now.tv_nsec }
            }
            at => at.spec(),
        }
    }

    fn spec(self) -> Timespec {
        match self {
            Self::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
            Self::At { seconds, nanoseconds } => Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() },
        }
    }
}

const KEPT: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
