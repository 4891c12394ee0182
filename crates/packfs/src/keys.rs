//! Keys as paths, paths as keys, and keys as people read them.
//!
//! Always holds: names of a key lead to a place below the directory that they are taken to begin at.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use packstore::KEY_BYTES_MAX;

/// Shown of what is too long to be a key.
const BEGIN_BYTES: usize = 64;

/// A path as a key, without `./` and a leading `/`.
///
/// # Errors
/// Why it cannot be one.
pub fn key_of(path: &Path) -> Result<Vec<u8>, &'static str> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part.as_bytes()),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                return Err("a key cannot hold `..`; give a path from further up, with -C");
            }
        }
    }
    Ok(parts.join(&b'/'))
}

/// The names of a key that is a path below a directory.
///
/// # Errors
/// Why it is none.
pub fn names_of(key: &[u8]) -> Result<Vec<&[u8]>, &'static str> {
    if key.first() == Some(&b'/') {
        return Err("it begins with `/` and would lead out of the directory");
    }
    let parts: Vec<&[u8]> = key.split(|byte| *byte == b'/').collect();
    if parts.contains(&&b".."[..]) {
        return Err("it holds `..` and would lead out of the directory");
    }
    if parts.iter().any(|part| part.is_empty() || *part == b"." || part.contains(&0)) {
        return Err("it is no path: a name in it is empty, `.` or holds a zero byte");
    }
    Ok(parts)
}

/// A key for people: it cannot move the cursor. One that is not UTF-8 is escaped as the shell's `$'...'` takes it. Of one that is
/// too long to be a key only the beginning is shown.
pub fn shown(key: &[u8]) -> String {
    if let Some(begin) = key.get(..BEGIN_BYTES).filter(|_| key.len() > KEY_BYTES_MAX) {
        // Not within a character.
        let begin =
            str::from_utf8(begin).map_or_else(|error| &begin[..error.valid_up_to().max(1)], |_| begin);
        return format!("{}… ({} bytes)", shown(begin), key.len());
    }
    match str::from_utf8(key) {
        Ok(key) => key.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect(),
        Err(_) => key.escape_ascii().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_becomes_a_key_without_its_beginning_and_one_that_leads_up_becomes_none() {
        let key = |path: &str| key_of(Path::new(path)).ok().map(|key| String::from_utf8(key).expect("text"));
        for (path, expected) in [("a/b", "a/b"), ("/a/b/", "a/b"), ("./a/./b", "a/b"), (".", ""), ("/", "")] {
            assert_eq!(key(path).as_deref(), Some(expected), "{path}");
        }
        for path in ["..", "../a", "a/../b", "/.."] {
            assert_eq!(key(path), None, "{path}");
        }
    }

    #[test]
    fn no_key_leads_out_of_the_directory_that_it_is_written_below() {
        assert_eq!(names_of(b"a/b\xff/c").expect("a path"), [&b"a"[..], b"b\xff", b"c"]);
        for key in [&b"/a"[..], b"../a", b"a/..", b"a/../../b", b"", b"a//b", b"a/", b"./a", b"a/.", b"a\0b"]
        {
            assert!(names_of(key).is_err(), "{}", key.escape_ascii());
        }
        assert!(names_of(b"..a/...").is_ok());
    }

    #[test]
    fn a_key_is_shown_so_that_it_cannot_move_the_cursor_and_never_at_length_when_it_is_none() {
        assert_eq!(shown("a\u{1b}[2J \u{2603}".as_bytes()), "a?[2J \u{2603}");
        assert_eq!(shown(b"caf\xe9\x1b"), "caf\\xe9\\x1b");
        assert_eq!(shown(&[b'k'; KEY_BYTES_MAX]).len(), KEY_BYTES_MAX);
        let long = "\u{2603}".repeat(2000);
        assert_eq!(shown(long.as_bytes()), format!("{}… (6000 bytes)", "\u{2603}".repeat(21)));
        assert!(shown(&[0xff; 5000]).len() < 300);
    }
}
