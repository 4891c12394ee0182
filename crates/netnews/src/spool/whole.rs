//! Whole files through the seam: read at once, written at once, replaced by a rename.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use files::{Access, FileSystem, FsError, FsOp, OpenFile, Status};

/// Bytes asked for in one read of a file that is scanned from end to end.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// Of an article's file: the largest that an import takes, with our host and `Xref:`.
pub(crate) const ARTICLE_FILE_BYTES_MAX: usize = (1 << 30) + (1 << 20);

/// Bytes as the path they are.
pub(crate) fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Where `path` of a file system is, as the user names it.
pub(crate) fn place_of(fs: &dyn FileSystem, path: &Path) -> PathBuf {
    below_place(&fs.place(), path)
}

/// In a URL the path goes before the query.
fn below_place(place: &str, path: &Path) -> PathBuf {
    let (url, query) = match place.split_once('?') {
        Some((url, query)) if place.contains("://") => (url, format!("?{query}")),
        _ => (place, String::new()),
    };
    let mut whole = Path::new(url).join(path).into_os_string();
    whole.push(query);
    PathBuf::from(whole)
}

/// Writes all of it: one call, unless the storage takes less at a time.
pub(crate) fn write_all(file: &mut dyn OpenFile, mut bytes: &[u8]) -> Result<(), FsError> {
    while !bytes.is_empty() {
        let written = file.write(bytes)?;
        if written == 0 {
            return Err(FsError::Failed {
                op: FsOp::Write,
                path: PathBuf::new(),
                status: Status::NOSPC,
                source: None,
            });
        }
        bytes = &bytes[written.min(bytes.len())..];
    }
    Ok(())
}

/// Appends the whole file to `into`, at most `limit_bytes` of it; how many came.
pub(crate) fn read_whole(
    fs: &dyn FileSystem,
    path: &Path,
    into: &mut Vec<u8>,
    limit_bytes: usize,
) -> Result<usize, FsError> {
    let mut file = fs.open(path, Access::Read)?;
    let begun = into.len();
    // Nothing is zeroed that was used before: `into` keeps its length where the caller reuses it.
    let mut room = into.capacity().max(begun + 4096) - begun;
    loop {
        let end = into.len();
        into.resize(end + room.min(begun + limit_bytes - end), 0);
        if into.len() == end {
            return Ok(end - begun);
        }
        let taken = match file.read(&mut into[end..]) {
            Ok(taken) => taken,
            Err(error) => {
                into.truncate(begun);
                return Err(error);
            }
        };
        into.truncate(end + taken);
        if taken == 0 {
            return Ok(end - begun);
        }
        room = (into.capacity() - into.len()).max(CHUNK_BYTES);
    }
}

/// Makes `path` hold `bytes` at once: a file beside it is written and renamed over it.
pub(crate) fn replace(fs: &dyn FileSystem, path: &str, bytes: &[u8]) -> Result<(), FsError> {
    let new = format!("{path}.new");
    let mut file = create_anew(fs, Path::new(&new))?;
    write_all(&mut *file, bytes)?;
    file.close()?;
    fs.rename(Path::new(&new), Path::new(path))
}

/// Makes a file, also where an interrupted run left one of that name.
pub(crate) fn create_anew(fs: &dyn FileSystem, path: &Path) -> Result<Box<dyn OpenFile>, FsError> {
    match fs.create(path) {
        Err(error) if error.status() == Some(Status::EXIST) => {
            fs.unlink(path)?;
            fs.create(path)
        }
        other => other,
    }
}

/// Makes a directory unless it is there.
pub(crate) fn mkdir_if_missing(fs: &dyn FileSystem, path: &Path) -> Result<(), FsError> {
    match fs.mkdir(path) {
        Err(error) if error.status() == Some(Status::EXIST) => Ok(()),
        other => other,
    }
}

/// Makes a directory and those above it.
pub(crate) fn mkdir_all(fs: &dyn FileSystem, path: &Path) -> Result<(), FsError> {
    match fs.mkdir(path) {
        Err(error) if error.status() == Some(Status::EXIST) => Ok(()),
        Err(error) if error.status() == Some(Status::NOENT) => match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => {
                mkdir_all(fs, parent)?;
                mkdir_if_missing(fs, path)
            }
            _ => Err(error),
        },
        other => other,
    }
}

/// Removes a name, and is content when it was gone.
pub(crate) fn unlink_if_there(fs: &dyn FileSystem, path: &Path) -> Result<bool, FsError> {
    match fs.unlink(path) {
        Err(error) if error.status() == Some(Status::NOENT) => Ok(false),
        other => other.map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: `feed verify nfs://h/x/crumb-netnews-a?proto=tcp` printed `nfs://h/x/crumb-netnews-a/articles?proto=tcp/alt/3`.
    /// Cause: what is below a target was put behind its URL. Fix: it goes before the query.
    #[test]
    fn what_is_below_a_url_goes_before_its_query() {
        let below = |place: &str| below_place(place, Path::new("alt/3")).display().to_string();
        assert_eq!(below("nfs://h/x?proto=tcp&mountport=7"), "nfs://h/x/alt/3?proto=tcp&mountport=7");
        assert_eq!(below("nfs://h/x"), "nfs://h/x/alt/3");
        assert_eq!(below("/mnt/what?"), "/mnt/what?/alt/3");
    }
}
