//! Names in a managed directory that are beside its hidden level, and that nobody sees through the mount.
//!
//! They come there when the set-user-id bit is set by hand on a directory that has entries, or when somebody works on the
//! tree below. When such a directory is first opened, the log says so.

use std::collections::HashSet;
use std::sync::Mutex;

use rustix::fs::FileType;

use crate::convert::lost::levels_of;
use crate::convert::state::Names;
use crate::tree::nodes::{Kind, lock};
use crate::tree::{Done, Tree};

/// Which directories were looked at.
#[derive(Default)]
pub(super) struct Strangers {
    looked_at: Mutex<HashSet<u64>>,
}

impl Strangers {
    /// Looks at a directory that was opened, the first time.
    pub(super) fn look(&self, tree: &Tree, id: u64) {
        let Some(Kind::Managed(layout)) = tree.nodes.kind(id) else { return };
        if !lock(&self.looked_at).insert(id) {
            return;
        }
        let count = || -> Done<()> {
            let directory = tree.directory(id)?;
            let levels = levels_of(layout);
            let (mut count, mut first) = (0, String::new());
            for entry in Names::of(&directory)? {
                let (name, kind) = entry?;
                if kind != FileType::Directory || !levels.is_level(name.to_bytes()) {
                    count += 1;
                    if count == 1 {
                        first = name.to_string_lossy().into_owned();
                    }
                }
            }
            if count > 0 {
                let path = std::fs::read_link(crate::tree::by_descriptor(&directory)).unwrap_or_default();
                tracing::warn!(
                    "{0} is managed (its set-user-id bit is set), and {count} names in it are not shown, {first} \
                     among them: they are not in the subdirectories of layout {layout}; unmount, then \
                     `crumb check {0} --repair` puts them there, or chmod u-s if it was not to be managed",
                    path.display()
                );
            }
            Ok(())
        };
        if let Err(errno) = count() {
            tracing::debug!("what lies beside the hidden level of a managed directory is not known: {errno}");
        }
    }
}
