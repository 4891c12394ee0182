//! What was put and is not durable yet. A store in store mode shows an object only then, a file system at once: so the
//! bytes are read from here meanwhile.
//!
//! Always holds: at most [`BYTES_MAX`] wait, and [`FILES_MAX`] files; beyond, a put waits for the oldest.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use packstore::{Pending, StoreError};

use super::locked;
use super::tree::NodeId;

const BYTES_MAX: usize = 16 << 20;
const FILES_MAX: usize = 4096;

#[derive(Default)]
pub(super) struct Settling(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    files: HashMap<NodeId, (u64, Arc<Vec<u8>>)>,
    order: VecDeque<(NodeId, u64, Pending, usize)>,
    bytes: usize,
    next: u64,
}

impl Settling {
    /// The bytes of a file whose last put is under way.
    pub(super) fn bytes_of(&self, node: NodeId) -> Option<Arc<Vec<u8>>> {
        locked(&self.0).files.get(&node).map(|(_, bytes)| bytes.clone())
    }

    /// A put is under way.
    pub(super) fn add(&self, node: NodeId, bytes: Arc<Vec<u8>>, pending: Pending) -> Result<(), StoreError> {
        {
            let mut waiting = locked(&self.0);
            waiting.next += 1;
            let (number, length) = (waiting.next, bytes.len());
            waiting.bytes += length;
            waiting.files.insert(node, (number, bytes));
            waiting.order.push_back((node, number, pending, length));
        }
        self.wait_while(|waiting| waiting.bytes > BYTES_MAX || waiting.order.len() > FILES_MAX)
    }

    /// A file is gone, or was put in another way.
    pub(super) fn forget(&self, node: NodeId) {
        locked(&self.0).files.remove(&node);
    }

    /// Returns when all are durable.
    pub(super) fn wait_all(&self) -> Result<(), StoreError> {
        self.wait_while(|waiting| !waiting.order.is_empty())
    }

    /// Returns when this one is.
    pub(super) fn wait_for(&self, node: NodeId) -> Result<(), StoreError> {
        self.wait_while(|waiting| waiting.files.contains_key(&node))
    }

    fn wait_while(&self, more: impl Fn(&Waiting) -> bool) -> Result<(), StoreError> {
        loop {
            let (node, number, pending) = {
                let mut waiting = locked(&self.0);
                if !more(&waiting) {
                    return Ok(());
                }
                let Some((node, number, pending, length)) = waiting.order.pop_front() else { return Ok(()) };
                waiting.bytes -= length;
                (node, number, pending)
            };
            let settled = pending.wait();
            let mut waiting = locked(&self.0);
            if waiting.files.get(&node).is_some_and(|(last, _)| *last == number) {
                waiting.files.remove(&node);
            }
            drop(waiting);
            settled?;
        }
    }
}
