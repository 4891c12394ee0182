//! Makes two files durable at once: while one waits for the device, so does the other, and a journal writes both with one
//! commit.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use disk::{DiskError, DiskFile};

/// Where syncs take less, handing one over takes longer than it saves.
const WORTH_IT: Duration = Duration::from_micros(100);

/// The thread that syncs the second file, and what syncs took lately.
#[derive(Default)]
pub(crate) struct Syncing {
    helper: Option<Helper>,
    took: Duration,
}

struct Helper {
    files: Option<SyncSender<Arc<dyn DiskFile>>>,
    synced: Receiver<Result<(), DiskError>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncing {
    /// Syncs both.
    pub(crate) fn both(
        &mut self,
        one: &Arc<dyn DiskFile>,
        other: &Arc<dyn DiskFile>,
    ) -> Result<(), DiskError> {
        let begun = Instant::now();
        let helper = if self.took > WORTH_IT { self.helper() } else { None };
        let synced = match helper
            .and_then(|helper| helper.files.as_ref()?.send(other.clone()).ok().map(|()| helper))
        {
            None => one.sync().and_then(|()| other.sync()),
            Some(helper) => {
                let first = one.sync();
                // A helper that is gone has synced nothing.
                let second = helper.synced.recv().unwrap_or_else(|_| other.sync());
                first.and(second)
            }
        };
        self.took = (self.took * 3 + begun.elapsed()) / 4;
        synced
    }

    fn helper(&mut self) -> Option<&Helper> {
        if self.helper.is_none() {
            let (files, to_sync) = sync_channel::<Arc<dyn DiskFile>>(1);
            let (tell, synced) = sync_channel(1);
            let thread = std::thread::Builder::new().name("pack-sync".to_owned()).spawn(move || {
                for file in to_sync {
                    if tell.send(file.sync()).is_err() {
                        return;
                    }
                }
            });
            let thread = thread.ok()?;
            self.helper = Some(Helper { files: Some(files), synced, thread: Some(thread) });
        }
        self.helper.as_ref()
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.files = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
