//! Writes of one open file on their way: gathered, sent, and kept until they are known to be durable.
//!
//! ```text
//! write -> held (one WRITE's worth) --full, seek, read, sync, close--> WRITE -> kept (not yet durable) --COMMIT--> gone
//!                                                                        ^                               |
//!                                                                        '---- verifier changed ---------'
//! ```
//!
//! Always holds: `held` is one run of bytes; at most [`KEPT_BYTES_MAX`] and one WRITE more are kept; what the server
//! lost in a restart, as its write verifier says, is written again before a COMMIT counts (RFC 1813, 3.3.7 and
//! 3.3.21). A failure leaves everything where it is, to be sent with
//! another handle or given up for good (`spoil`): then the same failure is reported until the file is closed.

use files::{Handle, Reply, Request, Stability, Status};

use super::calls::Fail;
use super::counters::add;
use super::{NfsFs, WriteMode};

/// Bytes not yet durable before they are committed without being asked.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// COMMITs of one sync before a server whose verifier keeps changing is given up.
const COMMITS_MAX: u32 = 5;

#[derive(Default)]
pub(super) struct WriteBack {
    held: Vec<u8>,
    held_at: u64,
    kept: Vec<Kept>,
    kept_bytes: usize,
    spoilt: Option<Status>,
}

struct Kept {
    offset: u64,
    bytes: Vec<u8>,
    verifier: [u8; 8],
}

impl WriteBack {
    /// Bytes that wait to be sent.
    pub(super) fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// Whether sync or close have nothing to do.
    pub(super) fn is_clean(&self) -> bool {
        self.held.is_empty() && self.kept.is_empty()
    }

    /// Fails when an earlier write did.
    pub(super) fn check(&self) -> Result<(), Fail> {
        self.spoilt.map_or(Ok(()), |status| Err(Fail::of(status)))
    }

    /// Takes as many bytes to be written at `offset` as fit one WRITE with what is held, which they must follow on.
    /// Returns how many it took, and whether it is full.
    pub(super) fn hold(&mut self, fs: &NfsFs, offset: u64, bytes: &[u8]) -> (usize, bool) {
        if self.held.is_empty() {
            self.held_at = offset;
        }
        debug_assert_eq!(self.held_at + self.held.len() as u64, offset, "held bytes are one run");
        let taken = bytes.len().min(fs.shared.io_bytes_max - self.held.len());
        self.held.extend_from_slice(&bytes[..taken]);
        (taken, self.held.len() == fs.shared.io_bytes_max)
    }

    /// Sends what is held.
    pub(super) fn send(&mut self, fs: &NfsFs, file: &Handle) -> Result<(), Fail> {
        let stability = match fs.shared.writes {
            WriteMode::Unstable => Stability::Unstable,
            WriteMode::Stable => Stability::FileSync,
        };
        self.send_as(fs, file, stability)?;
        if self.kept_bytes >= KEPT_BYTES_MAX { self.commit(fs, file) } else { Ok(()) }
    }

    /// Makes everything durable. When all there is fits one WRITE, it goes `FILE_SYNC` and saves the COMMIT.
    pub(super) fn finish(&mut self, fs: &NfsFs, file: &Handle) -> Result<(), Fail> {
        self.check()?;
        if self.kept.is_empty() {
            self.send_as(fs, file, Stability::FileSync)?;
        } else {
            self.send(fs, file)?;
        }
        self.commit(fs, file)
    }

    fn send_as(&mut self, fs: &NfsFs, file: &Handle, stability: Stability) -> Result<(), Fail> {
        self.check()?;
        if self.held.is_empty() {
            return Ok(());
        }
        match write(fs, file, self.held_at, &self.held, stability)?.verifier {
            None => self.held.clear(),
            Some(verifier) => {
                let bytes = std::mem::take(&mut self.held);
                self.kept_bytes += bytes.len();
                self.kept.push(Kept { offset: self.held_at, bytes, verifier });
            }
        }
        Ok(())
    }

    fn commit(&mut self, fs: &NfsFs, file: &Handle) -> Result<(), Fail> {
        for _ in 0..COMMITS_MAX {
            if self.kept.is_empty() {
                return Ok(());
            }
            let request = Request::Commit { file: file.by_ref(), offset: 0, count: 0 };
            let (wcc, verifier) = fs.shared.calls.call(&request, |reply| match reply {
                Reply::Commit { file, verifier } => Some((file, verifier)),
                _ => None,
            })?;
            fs.changed(file, &wcc);
            self.kept.retain(|kept| kept.verifier != verifier);
            self.kept_bytes = self.kept.iter().map(|kept| kept.bytes.len()).sum();
            self.write_again(fs, file)?;
        }
        if self.kept.is_empty() { Ok(()) } else { Err(Fail::of(Status::IO)) }
    }

    /// What is still kept was lost by the server.
    fn write_again(&mut self, fs: &NfsFs, file: &Handle) -> Result<(), Fail> {
        let lost = std::mem::take(&mut self.kept);
        self.kept_bytes = 0;
        for kept in lost {
            add(&fs.shared.calls.tally.rewritten_bytes, kept.bytes.len() as u64);
            let written = write(fs, file, kept.offset, &kept.bytes, Stability::FileSync)?;
            if let Some(verifier) = written.verifier {
                self.kept_bytes += kept.bytes.len();
                self.kept.push(Kept { verifier, ..kept });
            }
        }
        Ok(())
    }

    /// Gives up what is under way, and reports this failure from now on.
    pub(super) fn spoil(&mut self, fail: &Fail) {
        self.spoilt = Some(fail.status().unwrap_or(Status::IO));
        self.held = Vec::new();
        self.kept = Vec::new();
        self.kept_bytes = 0;
    }
}

/// What became of a write: durable already (`None`), or to be committed while the verifier is this.
struct Written {
    verifier: Option<[u8; 8]>,
}

/// Writes all of `bytes`, in as many WRITEs as the server makes of it.
fn write(
    fs: &NfsFs,
    file: &Handle,
    offset: u64,
    bytes: &[u8],
    stability: Stability,
) -> Result<Written, Fail> {
    let mut done = 0;
    let mut first_verifier = None;
    while done < bytes.len() {
        let rest = &bytes[done..];
        let request =
            Request::Write { file: file.by_ref(), offset: offset + done as u64, bytes: rest, stability };
        let (wcc, count, durable, verifier) = fs.shared.calls.call(&request, |reply| match reply {
            Reply::Write { file, count, stability, verifier } => Some((file, count, stability, verifier)),
            _ => None,
        })?;
        fs.changed(file, &wcc);
        let count = count as usize;
        if count == 0 || count > rest.len() {
            return Err(Fail::of(Status::SERVERFAULT));
        }
        add(&fs.shared.calls.tally.written_bytes, count as u64);
        if durable != Stability::FileSync {
            // Should the pieces' verifiers differ, COMMIT's differs from the first, and all of it is written again.
            first_verifier.get_or_insert(verifier);
        }
        done += count;
    }
    Ok(Written { verifier: first_verifier })
}
