//! The MOUNT protocol, version 3: from an export's path to its root handle (RFC 1813, section 5).

use files::HandleRef;

use super::xdr::{put_bool, put_opaque, put_u32};
use super::{WireError, XdrReader};

/// RPC program number.
pub const PROGRAM: u32 = 100_005;
/// Program version.
pub const VERSION: u32 = 3;
/// Longest path, bytes.
pub const PATH_BYTES_MAX: u32 = 1024;
/// Longest host or group name, bytes.
pub const NAME_BYTES_MAX: u32 = 255;

const FLAVOURS_MAX: u32 = 64;

/// The procedures, by their numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // The names are the RFC's.
pub enum Procedure {
    Null = 0,
    Mnt = 1,
    Dump = 2,
    Umnt = 3,
    Umntall = 4,
    Export = 5,
}

impl Procedure {
    /// The procedure with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Null, Self::Mnt, Self::Dump, Self::Umnt, Self::Umntall, Self::Export]
            .get(number as usize)
            .copied()
    }
}

/// Why an export could not be mounted (`mountstat3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MountStatus(pub u32);

#[allow(missing_docs)] // The names are the RFC's.
impl MountStatus {
    pub const PERM: Self = Self(1);
    pub const NOENT: Self = Self(2);
    pub const IO: Self = Self(5);
    pub const ACCES: Self = Self(13);
    pub const NOTDIR: Self = Self(20);
    pub const INVAL: Self = Self(22);
    pub const NAMETOOLONG: Self = Self(63);
    pub const NOTSUPP: Self = Self(10_004);
    pub const SERVERFAULT: Self = Self(10_006);
}

impl std::fmt::Display for MountStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match *self {
            Self::PERM => "MNT3ERR_PERM",
            Self::NOENT => "MNT3ERR_NOENT",
            Self::IO => "MNT3ERR_IO",
            Self::ACCES => "MNT3ERR_ACCES",
            Self::NOTDIR => "MNT3ERR_NOTDIR",
            Self::INVAL => "MNT3ERR_INVAL",
            Self::NAMETOOLONG => "MNT3ERR_NAMETOOLONG",
            Self::NOTSUPP => "MNT3ERR_NOTSUPP",
            Self::SERVERFAULT => "MNT3ERR_SERVERFAULT",
            Self(other) => return write!(f, "MNT3ERR_{other}"),
        })
    }
}

/// Appends the argument of MNT or UMNT.
pub fn put_path(out: &mut Vec<u8>, path: &[u8]) {
    put_opaque(out, path);
}

/// Reads the argument of MNT or UMNT.
///
/// # Errors
/// When it is no path.
pub fn decode_path(args: &[u8]) -> Result<&[u8], WireError> {
    let mut reader = XdrReader::new(args);
    let path = reader.opaque(PATH_BYTES_MAX)?;
    reader.finish()?;
    Ok(path)
}

/// What MNT brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mounted<'a> {
    /// The export's root.
    pub root: HandleRef<'a>,
    flavours: &'a [u8],
}

impl<'a> Mounted<'a> {
    /// The credential flavours that the export takes, best first. Some servers tell none.
    pub fn flavours(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.flavours.as_chunks::<4>().0.iter().map(|flavour| u32::from_be_bytes(*flavour))
    }
}

/// Appends the results of MNT.
pub fn put_mounted(out: &mut Vec<u8>, mounted: Result<(HandleRef<'_>, &[u32]), MountStatus>) {
    match mounted {
        Ok((root, flavours)) => {
            put_u32(out, 0);
            put_opaque(out, root.0);
            put_u32(out, flavours.len() as u32);
            flavours.iter().for_each(|flavour| put_u32(out, *flavour));
        }
        Err(status) => put_u32(out, status.0),
    }
}

/// Reads the results of MNT.
///
/// # Errors
/// When they are malformed.
pub fn decode_mounted(results: &[u8]) -> Result<Result<Mounted<'_>, MountStatus>, WireError> {
    let mut reader = XdrReader::new(results);
    let status = reader.u32()?;
    if status != 0 {
        reader.finish()?;
        return Ok(Err(MountStatus(status)));
    }
    let root = HandleRef(reader.opaque(files::Handle::BYTES_MAX as u32)?);
    let flavours_len = reader.u32()?;
    if flavours_len > FLAVOURS_MAX {
        return Err(WireError::Long);
    }
    let flavours = reader.take(4 * flavours_len as usize)?;
    reader.finish()?;
    Ok(Ok(Mounted { root, flavours }))
}

/// A mount that a server remembers, or an export with one of its groups, depending on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount<'a> {
    /// Who mounted.
    pub host: &'a [u8],
    /// What.
    pub path: &'a [u8],
}

/// Appends the results of DUMP.
pub fn put_mounts<'a>(out: &mut Vec<u8>, mounts: impl IntoIterator<Item = Mount<'a>>) {
    for mount in mounts {
        put_bool(out, true);
        put_opaque(out, mount.host);
        put_opaque(out, mount.path);
    }
    put_bool(out, false);
}

/// Reads the results of DUMP: an iterator that ends after its first error.
pub fn decode_mounts(results: &[u8]) -> impl Iterator<Item = Result<Mount<'_>, WireError>> {
    list(results, |r| Ok(Mount { host: r.opaque(NAME_BYTES_MAX)?, path: r.opaque(PATH_BYTES_MAX)? }))
}

/// An export and who may mount it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export<'a> {
    /// Its path.
    pub path: &'a [u8],
    groups: &'a [u8],
}

impl<'a> Export<'a> {
    /// The hosts or groups that may mount it; none means everyone.
    pub fn groups(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        list(self.groups, |r| r.opaque(NAME_BYTES_MAX)).map_while(Result::ok)
    }
}

/// Appends the results of EXPORT: paths, each with the groups that may mount it.
pub fn put_exports<'a>(out: &mut Vec<u8>, exports: impl IntoIterator<Item = (&'a [u8], &'a [&'a [u8]])>) {
    for (path, groups) in exports {
        put_bool(out, true);
        put_opaque(out, path);
        for group in groups {
            put_bool(out, true);
            put_opaque(out, group);
        }
        put_bool(out, false);
    }
    put_bool(out, false);
}

/// Reads the results of EXPORT: an iterator that ends after its first error.
pub fn decode_exports(results: &[u8]) -> impl Iterator<Item = Result<Export<'_>, WireError>> {
    list(results, |r| {
        let path = r.opaque(PATH_BYTES_MAX)?;
        let groups = r.remaining();
        while r.bool()? {
            r.opaque(NAME_BYTES_MAX)?;
        }
        Ok(Export { path, groups: &groups[..groups.len() - r.remaining().len()] })
    })
}

/// Walks a linked list in XDR: each item behind `true`, the end behind `false`.
fn list<'a, T>(
    encoded: &'a [u8],
    item: impl Fn(&mut XdrReader<'a>) -> Result<T, WireError>,
) -> impl Iterator<Item = Result<T, WireError>> {
    let mut reader = Some(XdrReader::new(encoded));
    std::iter::from_fn(move || {
        let r = reader.as_mut()?;
        let step = match r.bool() {
            Ok(true) => item(r).map(Some),
            Ok(false) => r.finish().map(|()| None),
            Err(error) => Err(error),
        };
        if !matches!(step, Ok(Some(_))) {
            reader = None;
        }
        step.transpose()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_and_mounts_read_back() {
        let groups: &[&[u8]] = &[b"10.0.0.0/8", b"host"];
        let mut out = Vec::new();
        put_exports(&mut out, [(&b"/vol"[..], groups), (b"/home", &[])]);
        let exports: Vec<_> = decode_exports(&out).map(Result::unwrap).collect();
        assert_eq!(exports.iter().map(|export| export.path).collect::<Vec<_>>(), [&b"/vol"[..], b"/home"]);
        assert_eq!(exports[0].groups().collect::<Vec<_>>(), groups);
        assert_eq!(exports[1].groups().count(), 0);
        assert!(decode_exports(&out[..out.len() - 4]).last().unwrap().is_err(), "the end is missing");

        let mount = Mount { host: b"client", path: b"/vol" };
        let mut out = Vec::new();
        put_mounts(&mut out, [mount, mount]);
        assert_eq!(decode_mounts(&out).collect::<Vec<_>>(), [Ok(mount), Ok(mount)]);
    }

    #[test]
    fn a_root_handle_reads_back_with_its_flavours_and_a_failure_with_its_name() {
        let mut out = Vec::new();
        put_mounted(&mut out, Ok((HandleRef(b"root-handle"), &[1, 0])));
        let mounted = decode_mounted(&out).unwrap().unwrap();
        assert_eq!(mounted.root, HandleRef(b"root-handle"));
        assert_eq!(mounted.flavours().collect::<Vec<_>>(), [1, 0]);
        let mut out = Vec::new();
        put_mounted(&mut out, Err(MountStatus::ACCES));
        assert_eq!(decode_mounted(&out).unwrap().unwrap_err().to_string(), "MNT3ERR_ACCES");
    }
}
