//! The table of mounts.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// A line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountInfo {
    /// Number of the file system, as `8:1`.
    pub device: String,
    /// What of the file system is mounted, from its root: more than `/` of a bind mount.
    pub root: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
    /// Type of the file system, such as `ext4` or `fuse.crumb`.
    pub kind: String,
    /// A device, or what was named in its place when it was mounted.
    pub source: PathBuf,
    /// Of the mount and of the file system, joined by a comma.
    pub options: String,
}

impl MountInfo {
    /// All mounts that this process can see, later ones over earlier ones.
    ///
    /// # Errors
    /// When `/proc` is not mounted.
    pub fn all() -> io::Result<Vec<Self>> {
        let table = std::fs::read("/proc/self/mountinfo")?;
        Ok(table.split(|byte| *byte == b'\n').filter_map(Self::parse).collect())
    }

    /// `id parent device root POINT options optional... - KIND SOURCE options`.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let device = String::from_utf8_lossy(fields.nth(2)?).into_owned();
        let root = unescaped(fields.next()?).into();
        let point = unescaped(fields.next()?).into();
        let of_mount = String::from_utf8_lossy(fields.next()?);
        let mut after = fields.skip_while(|field| *field != b"-").skip(1);
        let kind = String::from_utf8_lossy(after.next()?).into_owned();
        let source = unescaped(after.next()?).into();
        let of_system = String::from_utf8_lossy(after.next().unwrap_or_default());
        Some(Self { device, root, point, kind, source, options: format!("{of_mount},{of_system}") })
    }

    /// The one of some mounts that a path without symbolic links is seen through.
    pub fn governing<'a>(path: &Path, mounts: &'a [Self]) -> Option<&'a Self> {
        // Later lines cover earlier ones, and of equals the last counts.
        mounts
            .iter()
            .filter(|mount| path.starts_with(&mount.point))
            .max_by_key(|mount| mount.point.components().count())
    }

    /// The paths by which what is at this path, which has no symbolic links, is seen through other mounts of the same file system. What
    /// other mounts cover is among them.
    pub fn other_ways(path: &Path, mounts: &[Self]) -> Vec<PathBuf> {
        let Some(governing) = Self::governing(path, mounts) else { return Vec::new() };
        let Ok(below) = path.strip_prefix(&governing.point) else { return Vec::new() };
        let inside = governing.root.join(below);
        let others = mounts.iter().filter(|mount| mount.device == governing.device);
        let seen = others.filter_map(|mount| Some(mount.point.join(inside.strip_prefix(&mount.root).ok()?)));
        // A path joined with nothing ends with a slash.
        seen.map(|way| way.components().collect()).filter(|way: &PathBuf| way != path).collect()
    }

    /// Those of [`MountInfo::other_ways`] that no other mount covers.
    pub fn open_ways(path: &Path, mounts: &[Self]) -> Vec<PathBuf> {
        let device = Self::governing(path, mounts).map(|mount| &mount.device);
        let is_open = |way: &PathBuf| Self::governing(way, mounts).map(|mount| &mount.device) == device;
        Self::other_ways(path, mounts).into_iter().filter(is_open).collect()
    }

    /// Whether this option is set, `ro` and `sync` for the whole file system too.
    pub fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|one| one == option)
    }
}

/// A name as it is: the tables of mounts write blanks, tabs, newlines and backslashes as three octal digits.
pub fn unescaped(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_is_read_with_its_escapes_and_optional_fields() {
        let line =
            br"36 25 0:31 / /mnt/a\040b rw,nosuid shared:1 master:2 - fuse.crumb /news\134spool rw,user_id=0";
        let line = MountInfo::parse(line).unwrap();
        assert_eq!((line.device.as_str(), &line.root), ("0:31", &"/".into()));
        assert_eq!((&line.point, &line.source), (&"/mnt/a b".into(), &r"/news\spool".into()));
        assert_eq!((line.kind.as_str(), line.options.as_str()), ("fuse.crumb", "rw,nosuid,rw,user_id=0"));
        assert!(line.has("nosuid") && !line.has("no"));
        assert_eq!(MountInfo::parse(b""), None);
        assert_eq!(MountInfo::parse(b"1 2 3"), None);
        assert!(!MountInfo::all().unwrap().is_empty());
    }

    #[test]
    fn a_directory_is_found_by_each_mount_of_its_file_system() {
        let table = [
            "25 1 8:1 / / rw - ext4 /dev/vda rw",
            "26 25 7:0 / /news rw - ext4 /dev/loop0 rw",
            "27 25 7:0 /spool/control /bound rw - ext4 /dev/loop0 rw",
            "28 25 7:0 /other /else rw - ext4 /dev/loop0 rw",
        ];
        let mounts: Vec<_> = table.iter().filter_map(|line| MountInfo::parse(line.as_bytes())).collect();
        let ways = |path: &str| MountInfo::other_ways(Path::new(path), &mounts);
        assert_eq!(ways("/bound"), [Path::new("/news/spool/control")]);
        assert_eq!(ways("/bound/cancel"), [Path::new("/news/spool/control/cancel")]);
        assert_eq!(ways("/news/spool/control"), [Path::new("/bound")]);
        assert_eq!(ways("/news/spool"), [] as [&Path; 0]);
        assert_eq!(ways("/home"), [] as [&Path; 0]);
        let covering = b"29 26 0:40 / /news rw - fuse.crumb /news rw";
        let covered = [mounts, vec![MountInfo::parse(covering).unwrap()]].concat();
        assert_eq!(MountInfo::other_ways(Path::new("/bound"), &covered), [Path::new("/news/spool/control")]);
        assert_eq!(MountInfo::open_ways(Path::new("/bound"), &covered), [] as [&Path; 0]);
    }
}
