//! Why a directory was not converted.

use std::io;
use std::path::{Path, PathBuf};

use files::Layout;

/// What to do about a set-user-id bit that is missing.
pub(crate) fn mended_by(path: &Path, marked: bool) -> String {
    let path = path.display();
    if marked {
        format!("`crumb check {path} --repair` sets it again")
    } else {
        format!(
            "it has no layout's mark, so only you can tell whether it was managed: if it was, run `chmod u+s {path}`, then \
             `crumb check {path} --repair`; if it never was, leave it as it is"
        )
    }
}

/// What stopped a conversion, or kept it from beginning. Whatever it is: nothing is lost, and the same command goes
/// on from there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// Not there, not a directory, not to be opened.
    #[error("{path}: cannot be opened as a directory", path = path.display())]
    Open {
        /// What was named.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A symbolic link in the place of a directory.
    #[error(
        "{path}: is a symbolic link, which is not followed to change what lies behind it; name the directory itself, \
         {leads_to}", path = path.display(), leads_to = leads_to.display()
    )]
    Link {
        /// What was named.
        path: PathBuf,
        /// Where it leads.
        leads_to: PathBuf,
    },
    /// A running mount would see half of it.
    #[error(
        "{path}: cannot be converted while it is in use by {by}; run `crumb manage --online` (or `unmanage \
         --online`) on the directory's path in that mount, or unmount it (crumb unmount) and run this again", path = path.display()
    )]
    Mounted {
        /// What was named.
        path: PathBuf,
        /// Mount point and what lies below, as far as known.
        by: String,
    },
    /// A serving program whose mount is in no table that can be seen.
    #[error(
        "{path}: cannot be converted while it is served by a `crumb mount` that was detached while in use, or that is in \
         another mount namespace; end the programs that use it, or that `crumb mount`, then run this again",
        path = path.display()
    )]
    StillServed {
        /// What was named.
        path: PathBuf,
    },
    /// What is there to be looked at is a mount's view, without the hidden level.
    #[error(
        "{path}: the mount at {mount_point} hides what lies below; `crumb unmount {mount_point}`, then run this again",
        path = path.display(), mount_point = mount_point.display()
    )]
    Covered {
        /// What was named.
        path: PathBuf,
        /// The mount at, above or in it.
        mount_point: PathBuf,
    },
    /// It was managed, and the bit that says so is gone.
    #[error(
        "{path}: {entries} entries lie in it as in layout {layout}, but its set-user-id bit is missing: chmod, cp -r and \
         tar without -p lose it; {}", mended_by(path, *marked), path = path.display()
    )]
    LostBit {
        /// What was named.
        path: PathBuf,
        /// In which its entries lie.
        layout: Layout,
        /// How many of them.
        entries: u64,
        /// Whether the layout's mark is on it.
        marked: bool,
    },
    /// Somebody else holds the lock.
    #[error(
        "{path}: {at} is locked (flock) by a mount that starts, by another conversion, or by any program of a user who \
         may read it (lslocks lists them); wait for it or end it, and run this again", path = path.display(), at = at.display()
    )]
    Locked {
        /// What was named.
        path: PathBuf,
        /// Which directory of its path is locked.
        at: PathBuf,
    },
    /// The directory is inside the hidden level.
    #[error(
        "{path}: is a subdirectory that {parent} keeps its entries in; name {parent} itself",
        path = path.display(), parent = parent.display()
    )]
    HiddenLevel {
        /// What was named.
        path: PathBuf,
        /// The managed directory.
        parent: PathBuf,
    },
    /// A conversion while mounted was asked for by a user who may not.
    #[error(
        "{path}: {who} may have it converted while it is mounted (it belongs to user {owner}); run this as root",
        path = path.display(), who = who_may(*daemon)
    )]
    NotYours {
        /// What was named.
        path: PathBuf,
        /// User id of the directory.
        owner: u32,
        /// User id of the program that serves the mount.
        daemon: u32,
    },
    /// One conversion at a time.
    #[error(
        "{path}: this mount is converting {other}, and converts one directory at a time; wait for that to end, or stop it \
         (Ctrl-C where it runs), then run this again", path = path.display(), other = other.display()
    )]
    Busy {
        /// What was named.
        path: PathBuf,
        /// What is under way.
        other: PathBuf,
    },
    /// A second mount would show half of it.
    #[error(
        "{path}: cannot be converted while mounted, because another `crumb mount` shows it or a part of it too \
         (`findmnt -t fuse.crumb` lists them); unmount that one, then run this again", path = path.display()
    )]
    AlsoShown {
        /// What was named.
        path: PathBuf,
    },
    /// Listings that are under way are not known.
    #[error(
        "{path}: the mount at {mountpoint} is exclusive with no-open, so that it cannot know which listings are under way; mount it \
         without no-open, then run this again", path = path.display(), mountpoint = mountpoint.display()
    )]
    Unopened {
        /// What was named.
        path: PathBuf,
        /// Where the mount is.
        mountpoint: PathBuf,
    },
    /// Mounted read-only.
    #[error(
        "{path}: the mount at {mountpoint} is read-only; `mount -o remount,rw {mountpoint}`, then run this again",
        path = path.display(), mountpoint = mountpoint.display()
    )]
    ReadOnly {
        /// What was named.
        path: PathBuf,
        /// Where the mount is.
        mountpoint: PathBuf,
    },
    /// The mount is being ended.
    #[error("{path}: the mount that shows it is ending; run this again without --online", path = path.display())]
    Ending {
        /// What was named.
        path: PathBuf,
    },
    /// A program has removed the directory.
    #[error("{path}: was removed while it was converted; nothing is left to do", path = path.display())]
    Removed {
        /// What was named.
        path: PathBuf,
    },
    /// Entries that no program sees.
    #[error(
        "{path}: entries lie beside its hidden level, put there below the mount; unmount, then `crumb check --repair` on \
         it below puts them in their places", path = path.display()
    )]
    Beside {
        /// What was named.
        path: PathBuf,
    },
    /// Neither root nor the owner.
    #[error("{path}: belongs to user {owner}; run this as that user or as root", path = path.display())]
    NotOwner {
        /// What was named.
        path: PathBuf,
        /// User id of the directory.
        owner: u32,
    },
    /// A mount point cannot be renamed.
    #[error(
        "{path}: {mount_point} in it is a mount point, which cannot be moved; unmount it for the conversion",
        path = path.display(), mount_point = mount_point.display()
    )]
    MountPoint {
        /// What was named.
        path: PathBuf,
        /// The entry.
        mount_point: PathBuf,
    },
    /// The name that a conversion needs is taken.
    #[error(
        "{entry}: names that begin with {prefix} are for conversions under way; rename this entry and run this again",
        entry = entry.display(), prefix = super::STAGING_PREFIX
    )]
    ReservedName {
        /// The entry.
        entry: PathBuf,
    },
    /// A hidden directory or a staging directory of another user.
    #[error(
        "{entry}: belongs to user {owner}, and not to user {of} as {path}, so it is not taken for a part of that: \
         the owner of {path} could have put it there; move it away or, if it is part of it, change its owner \
         (chown), and run this again", entry = entry.display(), path = path.display()
    )]
    Foreign {
        /// What was named.
        path: PathBuf,
        /// The other user's directory.
        entry: PathBuf,
        /// Its owner.
        owner: u32,
        /// The owner of what was named.
        of: u32,
    },
    /// Managed already, in another layout.
    #[error(
        "{path}: is managed in layout {there}, or on its way to it; run `crumb unmanage {path}` first to have it in {asked}",
        path = path.display()
    )]
    OtherLayout {
        /// What was named.
        path: PathBuf,
        /// As it is.
        there: Layout,
        /// As asked for.
        asked: Layout,
    },
    /// `flat` was asked of `manage`.
    #[error("{path}: flat is what unmanaged directories are; run `crumb unmanage {path}`", path = path.display())]
    FlatLayout {
        /// What was named.
        path: PathBuf,
    },
    /// The mark names no layout.
    #[error(
        "{path}: its attribute user.crumb.layout cannot be read or names no layout; \
         see `crumb check {path}`", path = path.display()
    )]
    Mark {
        /// What was named.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Subdirectories need inodes and blocks.
    #[error(
        "{path}: no room for {needed} subdirectories: {free} {what} are free; make room and run this again",
        path = path.display()
    )]
    NoRoom {
        /// What was named.
        path: PathBuf,
        /// Subdirectories to make, at most.
        needed: u64,
        /// Inodes or blocks free.
        free: u64,
        /// `inodes` or `blocks`.
        what: &'static str,
    },
    /// Two entries of one name, of which neither is to be lost.
    #[error(
        "{path}: {count} names are there twice, the first is {first} and also {second}; nothing was \
         replaced; rename or remove one of each and run this again",
        path = path.display(), first = first.display(), second = second.display()
    )]
    Collisions {
        /// What was named.
        path: PathBuf,
        /// How many.
        count: u64,
        /// One of them.
        first: PathBuf,
        /// Where its name is taken.
        second: PathBuf,
    },
    /// A call failed.
    #[error(
        "{path}: cannot {doing}; everything is still there, in part under {staging}; fix the cause and run \
         this again to finish, or the opposite (manage, unmanage) to go back",
        path = path.display(), staging = super::STAGING_PREFIX.to_owned() + "*"
    )]
    Step {
        /// What was being worked on.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Who may have a directory converted while it is mounted by a program of this user.
fn who_may(daemon: u32) -> String {
    match daemon {
        0 => "only root".to_owned(),
        _ => format!("only root, or user {daemon}, who serves the mount, of a directory of that user's own,"),
    }
}
