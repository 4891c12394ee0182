//! Letters as articles: mail names no newsgroups, so its group comes from its folder, its list, or the user.
//!
//! ```text
//! folder    Maildir/.lists.dev/cur/17      lists.dev         archive/dev-2004.mbox.gz     archive.dev-2004
//! list-id   List-Id: Developers <dev.example.org>            dev.example.org
//! ```
//!
//! Always holds: a group's name comes out well-formed, whatever the folder is called.

use std::path::{Component, Path};
use std::str::FromStr;

use crate::article::{Fields, GROUP_BYTES_MAX, is_group};

/// Which group a letter without `Newsgroups:` belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LetterGroups {
    /// That of its folder: the directory of its file, or the mailbox that it is in.
    Folder,
    /// The one that its `List-Id:` names; one without is set aside.
    ListId,
    /// This one.
    Named(String),
}

/// Longest part of a group's name that a folder is made to.
const PART_BYTES_MAX: usize = 100;

impl FromStr for LetterGroups {
    type Err = measure::ValueError;

    fn from_str(text: &str) -> Result<Self, measure::ValueError> {
        match text {
            "folder" => Ok(Self::Folder),
            "list-id" => Ok(Self::ListId),
            name if is_group(name.as_bytes()) => Ok(Self::Named(name.to_owned())),
            _ => Err("expected folder, list-id, or a group's name such as mail.lists".into()),
        }
    }
}

impl LetterGroups {
    /// The group of a letter that was found in `path` below `source`; `in_mailbox` when the file has several letters.
    pub(super) fn of(&self, letter: &[u8], source: &Path, path: &Path, in_mailbox: bool) -> Option<String> {
        match self {
            Self::Named(name) => Some(name.clone()),
            Self::ListId => list_id(letter),
            Self::Folder => {
                let root = if source.is_dir() { source } else { source.parent().unwrap_or(source) };
                let below = path.strip_prefix(root).unwrap_or(path);
                let folder = if in_mailbox { Some(below) } else { below.parent() };
                let group = group_of(folder.unwrap_or(below));
                group.or_else(|| group_of(Path::new(root.file_name()?))).or_else(|| Some("mail".to_owned()))
            }
        }
    }
}

/// `dev.example.org` of `List-Id: Developers <dev.example.org>` (RFC 2919).
fn list_id(letter: &[u8]) -> Option<String> {
    let mut fields = Fields::new(letter);
    while let Ok(Some(field)) = fields.next_field() {
        if field.is("list-id") {
            let value = String::from_utf8_lossy(field.value);
            let id = value.rsplit_once('<').map_or(&*value, |(_, id)| id);
            let parts = id.trim_end().trim_end_matches('>').split('.');
            return joined(parts.map(str::to_owned));
        }
    }
    None
}

/// A folder's path as a group: `cur`, `new` and the endings of mailboxes left out.
fn group_of(folder: &Path) -> Option<String> {
    let mut parts = Vec::new();
    for component in folder.components() {
        let Component::Normal(name) = component else { continue };
        let name = name.to_string_lossy();
        let mut name = &*name;
        if matches!(name, "cur" | "new" | "tmp") {
            continue;
        }
        for ending in [".gz", ".mbox", ".mbx"] {
            name = name.strip_suffix(ending).unwrap_or(name);
        }
        // Maildir++ has dots between folders.
        parts.extend(name.split('.').map(str::to_owned));
    }
    joined(parts.into_iter())
}

fn joined(parts: impl Iterator<Item = String>) -> Option<String> {
    let plain = |letter: char| match letter {
        'a'..='z' | '0'..='9' | '+' | '_' => letter,
        'A'..='Z' => letter.to_ascii_lowercase(),
        _ => '-',
    };
    let part = |part: String| -> String { part.trim().chars().take(PART_BYTES_MAX).map(plain).collect() };
    let parts: Vec<String> = parts.map(part).filter(|part| !part.is_empty()).collect();
    let mut name = parts.join(".");
    while name.len() > GROUP_BYTES_MAX {
        name.truncate(name.rfind('.')?);
    }
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_a_group_whatever_it_is_called() {
        for (path, in_mailbox, expected) in [
            ("Lists/Dev Team/42", false, "lists.dev-team"),
            (".INBOX.Sent/cur/1:2,S", false, "inbox.sent"),
            ("new/1", false, "usr"),
            ("archive/dev-2004.mbox.gz", true, "archive.dev-2004"),
            ("2020/\u{e4}.mbox", true, "2020.-"),
        ] {
            let found =
                LetterGroups::Folder.of(b"", Path::new("/usr"), &Path::new("/usr").join(path), in_mailbox);
            assert_eq!(found.as_deref(), Some(expected), "{path}");
            assert!(is_group(expected.as_bytes()));
        }
        let deep = "x".repeat(200) + "/" + &"y".repeat(99) + "/" + &["z"; 300].join("/") + "/1";
        let long = LetterGroups::Folder.of(b"", Path::new("/"), &Path::new("/").join(deep), false).unwrap();
        assert!(is_group(long.as_bytes()) && long.len() <= GROUP_BYTES_MAX, "{long}");
    }

    #[test]
    fn a_list_is_a_group_by_its_id() {
        let of = |value: &str| {
            let letter = format!("Subject: s\nList-Id: {value}\n\nbody\n");
            LetterGroups::ListId.of(letter.as_bytes(), Path::new("/"), Path::new("/1"), false)
        };
        assert_eq!(of("Developers <Dev.Example.org>").as_deref(), Some("dev.example.org"));
        assert_eq!(of("\"a <b> list\"\n <users.example.org>").as_deref(), Some("users.example.org"));
        assert_eq!(of("bare.example.org").as_deref(), Some("bare.example.org"));
        assert_eq!(
            LetterGroups::ListId.of(b"Subject: s\n\nx\n", Path::new("/"), Path::new("/1"), false),
            None
        );
        assert!("no group".parse::<LetterGroups>().is_err());
    }
}
