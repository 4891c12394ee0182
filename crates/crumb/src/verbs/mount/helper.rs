//! How mount(8) calls its helper.

use std::ffi::OsString;
use std::path::Path;

/// The command line, as it is or as mount(8) and mount.fuse mean it: called by the name `mount.fuse.crumb`, or with
/// an absolute path where a verb belongs, it is `crumb mount --daemon`.
pub fn as_typed_or_by_mount(mut args: Vec<OsString>) -> Vec<OsString> {
    let called = |args: &[OsString]| {
        let name = Path::new(args.first()?).file_name()?.to_str()?;
        Some(name.starts_with("mount."))
    };
    let by_mount = called(&args) == Some(true);
    let by_fuse = args.get(1).is_some_and(|first| Path::new(first).is_absolute()) && args.len() > 2;
    if by_mount || by_fuse {
        args.splice(1..1, ["mount".into(), "--daemon".into()]);
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &str) -> Vec<OsString> {
        words.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn what_mount_says_to_its_helper_is_understood() {
        let as_helper = as_typed_or_by_mount(line("/sbin/mount.fuse.crumb /news /news -o rw,exclusive"));
        assert_eq!(as_helper[1..], line("mount --daemon /news /news -o rw,exclusive"));
        let by_fuse = as_typed_or_by_mount(line("crumb /news /news -o rw"));
        assert_eq!(by_fuse[1..], line("mount --daemon /news /news -o rw"));
        assert_eq!(as_typed_or_by_mount(line("crumb mount /a /b")), line("crumb mount /a /b"));
        assert_eq!(as_typed_or_by_mount(line("crumb")), line("crumb"));
    }
}
