//! Where the socket of an idle connection is kept while everything else of it is freed.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

/// A socket between two requests, while hyper's buffers for it are freed.
pub struct Parked<T> {
    /// The socket.
    pub io: T,
    /// When the client last sent something.
    pub last_read_at: Instant,
}

/// Where a request guard puts the socket that it parks.
pub struct Parking<T>(Arc<Mutex<Option<Parked<T>>>>);

impl<T> Parking<T> {
    /// Empty.
    pub fn new() -> Self {
        Self(Arc::default())
    }

    /// Takes the parked socket.
    pub fn take(&self) -> Option<Parked<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether a socket is parked.
    pub fn is_taken(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    pub(super) fn park(&self, parked: Parked<T>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(parked);
    }
}

impl<T> Clone for Parking<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
