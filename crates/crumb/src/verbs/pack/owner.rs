//! Whose directory a store or a file tree is in.

use std::path::Path;

use disk::LocalDisk;
use rustix::process::geteuid;

/// Says that a directory that is going to be written belongs to another user, and whose the files are that are made there. One rule for
/// stores and trees: what root makes is given to the owner of the directory.
pub fn say_owner(directory: &Path) {
    let Ok(owner) = LocalDisk::open(directory).and_then(|disk| disk.owner()) else { return };
    if let Some(text) = said_of(owner, geteuid().as_raw()) {
        tracing::warn!("{}: {text}", directory.display());
    }
}

fn said_of(owner: u32, user: u32) -> Option<String> {
    match user {
        user if user == owner => None,
        0 => Some(format!("belongs to user {owner}, who gets the files that are made there")),
        user => Some(format!(
            "belongs to user {owner}; files made there are user {user}'s, and user {owner} may be unable to open them"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_user_s_directory_is_named_with_whose_the_files_will_be() {
        assert_eq!(said_of(7, 7), None);
        assert_eq!(said_of(0, 0), None);
        assert!(said_of(7, 0).is_some_and(|text| text.contains("user 7, who gets")));
        assert!(said_of(7, 8).is_some_and(|text| text.contains("user 8's, and user 7 may")));
    }
}
