//! What the kernel says of the storage behind a directory to every user: its mount, its room, its own directory.

use std::fs;
use std::path::Path;

use files::{FileSystem, Fsstat};
use measure::proc::MountInfo;

use crate::largest;
use crate::{MountFacts, SpaceFacts, TargetFacts};

/// Looks at the target that `fs` is opened on. Takes up to [`largest::TIME_MAX`] for the directories below it.
pub fn target(fs: &dyn FileSystem, stop: &std::sync::atomic::AtomicBool) -> TargetFacts {
    let path = fs.local_root().and_then(|root| root.canonicalize().ok());
    let place = path.as_ref().map_or_else(|| fs.place(), |path| path.display().to_string());
    let mut facts = TargetFacts {
        place,
        mount: path.as_deref().and_then(mount_of),
        space: fs.statfs().ok().map(|space| SpaceFacts::from(&space)),
        ..TargetFacts::default()
    };
    if let Some(path) = &path {
        facts.directory = largest::directory(path, stop);
        let seen = largest::largest_below(path, stop);
        facts.directories_seen = seen.directories;
        facts.saw_all = seen.is_complete;
        facts.largest = seen.largest.and_then(|path| largest::directory(&path, stop));
    }
    facts.path = path;
    facts
}

/// The mount that holds a resolved path: the deepest one, of equal ones the latest.
pub fn mount_of(path: &Path) -> Option<MountFacts> {
    let mounts = MountInfo::all().ok()?;
    let mut facts = holding(path, &mounts)?;
    if let Some(more) = ext4_options(&facts) {
        facts.options.extend(more);
        facts.options.dedup();
    }
    Some(facts)
}

fn holding(path: &Path, mounts: &[MountInfo]) -> Option<MountFacts> {
    let mount = MountInfo::governing(path, mounts)?;
    let mut options: Vec<String> = Vec::new();
    for option in mount.options.split(',').filter(|option| !option.is_empty()) {
        if !options.iter().any(|known| known == option) {
            options.push(option.to_owned());
        }
    }
    // A mount may be read-only on a file system that is not.
    if options.iter().any(|option| option == "ro") {
        options.retain(|option| option != "rw");
    }
    Some(MountFacts {
        point: mount.point.clone(),
        source: mount.source.display().to_string(),
        kind: mount.kind.clone(),
        options,
    })
}

/// Options of ext4 that the table of mounts leaves out because they are the default, such as `data=ordered` and `barrier`.
fn ext4_options(mount: &MountFacts) -> Option<Vec<String>> {
    let device = Path::new(&mount.source).canonicalize().ok()?;
    let name = device.file_name()?.to_str()?;
    let text = fs::read_to_string(format!("/proc/fs/{}/{name}/options", mount.kind)).ok()?;
    let known = |line: &&str| !line.is_empty() && !mount.has(line) && !matches!(*line, "rw" | "ro");
    Some(text.lines().map(str::trim).filter(known).map(str::to_owned).collect())
}

impl From<&Fsstat> for SpaceFacts {
    fn from(space: &Fsstat) -> Self {
        Self {
            bytes_total: space.bytes_total,
            bytes_free: space.bytes_free,
            bytes_available: space.bytes_available,
            inodes_total: space.files_total,
            inodes_available: space.files_available,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_and_latest_mount_holds_a_path_and_read_only_wins() {
        let mounts: Vec<MountInfo> = [
            &br"1 0 8:1 / / rw,relatime - ext4 /dev/a rw"[..],
            &br"2 1 8:2 / /mnt/my\040disk rw - xfs /dev/b rw,prjquota"[..],
            &br"3 2 0:9 / /mnt/my\040disk ro,noatime - nfs4 filer:/vol rw,vers=4.2,hard"[..],
            &br"4 1 0:9 / /mnt/m rw - tmpfs tmpfs rw"[..],
        ]
        .into_iter()
        .filter_map(MountInfo::parse)
        .collect();
        let found = holding(Path::new("/mnt/my disk/spool"), &mounts).unwrap();
        assert_eq!((found.kind.as_str(), found.source.as_str()), ("nfs4", "filer:/vol"));
        assert_eq!(found.options, ["ro", "noatime", "vers=4.2", "hard"]);
        assert!(found.is_network() && !found.is_fuse());
        assert_eq!(holding(Path::new("/mnt/my"), &mounts).unwrap().source, "/dev/a");
        assert_eq!(holding(Path::new("/mnt/my"), &[]), None);
    }

    #[test]
    fn room_is_counted_as_df_counts_it() {
        let space = SpaceFacts {
            bytes_total: 1000,
            bytes_free: 60,
            bytes_available: 10,
            inodes_total: 100,
            inodes_available: 1,
        };
        assert!((space.bytes_used_share().unwrap() - 940.0 / 950.0).abs() < 1e-9);
        assert_eq!(space.inodes_used_share(), Some(0.99));
        assert_eq!(SpaceFacts::default().bytes_used_share(), None);
        assert_eq!(SpaceFacts::default().inodes_used_share(), None);
    }

    #[test]
    fn this_directory_is_in_a_mount_and_has_room() {
        let folder = tempfile::tempdir().unwrap();
        let fs = files::LocalFs::open(folder.path()).unwrap();
        let facts = target(&fs, &std::sync::atomic::AtomicBool::new(false));
        assert!(facts.mount.is_some() && facts.saw_all, "{facts:?}");
        assert!(facts.space.is_some_and(|space| space.bytes_total > 0));
        assert_eq!(facts.directory.unwrap().names, 0);
    }
}
