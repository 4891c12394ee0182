//! Goes through every file of the articles' directories.

use std::path::{Path, PathBuf};

use files::{FileKind, FileSystem, FsError, Status};

use crate::spool::decimal;

/// Hands over each directory with the numbers that stand in it and are no directories. Whether a number is one is
/// asked of the storage only where `known` does not know it as a file.
pub(crate) fn walk<E: From<FsError>>(
    fs: &dyn FileSystem,
    mut known: impl FnMut(&[u8], u64) -> bool,
    mut each: impl FnMut(&[u8], &[u64]) -> Result<(), E>,
) -> Result<(), E> {
    let mut todo = vec![PathBuf::new()];
    while let Some(directory) = todo.pop() {
        let (mut numbers, mut others) = (Vec::new(), Vec::new());
        let listed = fs.readdir(&directory, &mut |entry| match decimal::parse(entry.name) {
            Some(number) if is_canonical(entry.name) => numbers.push(number),
            _ => others.push(directory.join(crate::spool::whole::path_of(entry.name))),
        });
        match listed {
            // A stray that is no directory: what it is the caller cannot say either.
            Err(error) if error.status() == Some(Status::NOTDIR) => continue,
            other => other?,
        }
        let name = directory.as_os_str().as_encoded_bytes();
        let mut files = Vec::with_capacity(numbers.len());
        for number in numbers {
            let path = directory.join(number.to_string());
            if !known(name, number) && is_directory(fs, &path)? {
                others.push(path);
            } else {
                files.push(number);
            }
        }
        files.sort_unstable();
        each(name, &files)?;
        todo.append(&mut others);
    }
    Ok(())
}

/// `007` is not how a number is written here.
fn is_canonical(digits: &[u8]) -> bool {
    !digits.starts_with(b"0")
}

fn is_directory(fs: &dyn FileSystem, path: &Path) -> Result<bool, FsError> {
    Ok(fs.stat(path)?.kind == FileKind::Directory)
}
