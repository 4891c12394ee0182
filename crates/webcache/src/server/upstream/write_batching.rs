//! Defers a socket's first write until the other tasks of its loop have read.
//!
//! ```text
//! undeferred  A reads  A writes  B reads  B writes  C reads  C writes     each write wakes the peer, which sleeps again
//! deferred    A reads  B reads  C reads  A writes  B writes  C writes     the first wakes the peer, which finds the others too
//! ```
//!
//! Used towards upstreams. The clients' side does the same in the write state of its `request_guard`.
//!
//! Always holds: only the first write after a read is deferred, and only until the tasks that are ready now were polled: a task that
//! is alone writes at once, and later writes of a long reply are not deferred.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};

/// A socket with deferred writes.
pub struct WriteBatching<T> {
    io: T,
    /// Whether the next write is deferred.
    defer_next: bool,
}

impl<T> WriteBatching<T> {
    /// Defers the first write, as it answers something that another task has read.
    pub fn new(io: T) -> Self {
        Self { io, defer_next: true }
    }

    /// Ready when it may write. A task that wakes itself goes to the end of the run queue, behind all tasks that are ready now.
    fn poll_deferral(&mut self, cx: &Context<'_>) -> Poll<()> {
        if !self.defer_next {
            return Poll::Ready(());
        }
        self.defer_next = false;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<T: Read + Unpin> Read for WriteBatching<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = Pin::new(&mut this.io).poll_read(cx, cursor);
        this.defer_next |= read.is_ready();
        read
    }
}

impl<T: Write + Unpin> Write for WriteBatching<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_deferral(cx));
        Pin::new(&mut this.io).poll_write(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_deferral(cx));
        Pin::new(&mut this.io).poll_write_vectored(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use hyper::rt::ReadBuf;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;

    async fn read(io: &mut WriteBatching<TokioIo<DuplexStream>>) {
        let mut space = [0_u8; 16];
        let mut buffer = ReadBuf::new(&mut space);
        std::future::poll_fn(|cx| Pin::new(&mut *io).poll_read(cx, buffer.unfilled())).await.expect("read");
    }

    async fn write(io: &mut WriteBatching<TokioIo<DuplexStream>>, bytes: &[u8]) {
        let written = std::future::poll_fn(|cx| Pin::new(&mut *io).poll_write(cx, bytes)).await;
        assert_eq!(written.expect("written"), bytes.len());
    }

    /// Runs tasks that each read once and write twice, and returns the order of these operations.
    fn order(count: usize) -> Vec<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let done = Rc::new(RefCell::new(Vec::new()));
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let mut tasks = Vec::new();
            let mut others = Vec::new();
            for name in ["A", "B", "C"].into_iter().take(count) {
                let (near, mut far) = tokio::io::duplex(64);
                far.write_all(b"asked").await.expect("asked");
                others.push(far);
                let done = Rc::clone(&done);
                tasks.push(tokio::task::spawn_local(async move {
                    let mut io = WriteBatching::new(TokioIo::new(near));
                    read(&mut io).await;
                    done.borrow_mut().push(format!("{name} reads"));
                    for _ in 0..2 {
                        write(&mut io, b"said").await;
                        done.borrow_mut().push(format!("{name} writes"));
                    }
                }));
            }
            for task in tasks {
                task.await.expect("no panic");
            }
            for mut far in others {
                let mut said = String::new();
                far.read_to_string(&mut said).await.expect("said");
                assert_eq!(said, "saidsaid");
            }
        });
        done.take()
    }

    #[test]
    fn all_that_are_ready_read_before_the_first_writes() {
        let expected = [
            "A reads", "B reads", "C reads", "A writes", "A writes", "B writes", "B writes", "C writes",
            "C writes",
        ];
        assert_eq!(order(3), expected);
    }

    #[test]
    fn one_alone_writes_at_once() {
        assert_eq!(order(1), ["A reads", "A writes", "A writes"]);
    }
}
