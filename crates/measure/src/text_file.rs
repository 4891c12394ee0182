//! Reading a file whole that somebody named: it may be a device, a pipe or an image of a disk.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// A description of a workload, or a list of a few names.
pub const SETTINGS_BYTES_MAX: u64 = 1 << 20;
/// RunRecords: a series of a thousand runs has some tens of megabytes.
pub const RECORDS_BYTES_MAX: u64 = 256 << 20;

/// Reads a text file of `bytes_max` at most.
///
/// # Errors
/// When it cannot be read, is longer, or is not UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    text_from(File::open(path)?, bytes_max)
}

/// The same from what is open already, such as standard input.
///
/// # Errors
/// As [`read_text`].
pub fn text_from(from: impl Read, bytes_max: u64) -> io::Result<String> {
    let mut text = Vec::new();
    from.take(bytes_max + 1).read_to_end(&mut text)?;
    if text.len() as u64 > bytes_max {
        let unit = if bytes_max >= 1 << 20 { (bytes_max >> 20, "MiB") } else { (bytes_max, "bytes") };
        let text =
            format!("it has more than {} {}, the most that is read; is it the right file?", unit.0, unit.1);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    String::from_utf8(text).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: `--workload /dev/zero` took all memory of the machine. Cause: the file was read until its end. Fix: a bound.
    #[test]
    fn a_file_without_an_end_is_refused_at_the_bound() {
        let error = read_text(Path::new("/dev/zero"), SETTINGS_BYTES_MAX).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(error.to_string().contains("more than 1 MiB"), "{error}");
    }

    #[test]
    fn a_file_of_just_the_bound_is_read_and_one_byte_more_is_refused() {
        assert_eq!(text_from(&b"abc"[..], 3).unwrap(), "abc");
        assert!(text_from(&b"abcd"[..], 3).is_err());
        assert_eq!(text_from(&b"\xff"[..], 3).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
