//! Names of files, and what happened to them.

use std::collections::BTreeMap;

pub(super) type FileNumber = usize;
pub(super) type Names = BTreeMap<String, FileNumber>;

#[derive(Clone)]
pub(super) enum NameChange {
    Create { name: String, number: FileNumber },
    Rename { from: String, to: String, number: FileNumber },
    Remove { name: String, number: FileNumber },
}

impl NameChange {
    /// Whether it is one of the directory whose names begin so.
    pub(super) fn is_under(&self, directory: &str) -> bool {
        let (Self::Create { name, .. } | Self::Rename { to: name, .. } | Self::Remove { name, .. }) = self;
        name.starts_with(directory)
    }

    /// Also after some of the changes before it were lost: a file has one name at most, and a name goes with the file
    /// that had it.
    pub(super) fn apply(&self, names: &mut Names) {
        match self {
            Self::Create { name, number } => {
                names.insert(name.clone(), *number);
            }
            Self::Rename { from, to, number } => {
                names.retain(|name, held| held != number || (name != from && name == to));
                names.insert(to.clone(), *number);
            }
            Self::Remove { name, number } => {
                if names.get(name) == Some(number) {
                    names.remove(name);
                }
            }
        }
    }
}
