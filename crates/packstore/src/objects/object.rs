//! An object as its reader has it.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::error::{StoreError, printable};
use crate::format::{Manifest, Name};
use crate::index::address::Address;
use crate::objects::Objects;
use crate::objects::read::{Depth, Record};

/// What is known of an object without its body. Times in seconds since 1970; 0: never, or not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Length of the body.
    pub length: u64,
    /// Length of the attributes.
    pub meta_bytes: u32,
    /// When it was created.
    pub created_s: u32,
    /// When it was last requested, as a rule to a day: a request moves it only when it is a day old. [`Store::touch`] moves it always.
    ///
    /// [`Store::touch`]: crate::Store::touch
    pub requested_s: u32,
    /// When it expires.
    pub expires_s: u32,
    /// Higher than that of all that was put before.
    pub sequence: u64,
}

/// An object that was found. It stays readable whatever becomes of the key.
pub struct Object {
    pub(crate) stat: Stat,
    /// Attributes, and the body unless it is in pieces.
    pub(crate) record: Arc<Record>,
    pub(crate) meta: std::ops::Range<usize>,
    pub(crate) body: std::ops::Range<usize>,
    pub(crate) pieces: Option<Pieces>,
}

pub(crate) struct Pieces {
    pub objects: Arc<Objects>,
    pub manifest: Manifest,
    pub key: Vec<u8>,
    pub address: Address,
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.objects.close_large(self.manifest.id);
    }
}

impl Pieces {
    fn piece(&self, part: usize) -> Result<(Vec<u8>, usize), StoreError> {
        let name = Name::of(&self.key);
        let gone = || match self.objects.setup.cyclic {
            true => StoreError::Overwritten { key: printable(&self.key) },
            false => self.objects.damaged(name, self.address, "a piece of it is gone"),
        };
        let record =
            self.objects.find_internal(self.manifest.id, part as u32, Depth::Whole)?.ok_or_else(gone)?;
        if record.head.body_len != self.manifest.piece_lens[part] {
            return Err(gone());
        }
        let (start, end) = (record.body_start(), record.body_start() + record.head.body_len as usize);
        let mut bytes = record.bytes;
        bytes.truncate(end);
        Ok((bytes, start))
    }
}

impl Object {
    pub(crate) fn of(stat: Stat, record: Arc<Record>, pieces: Option<Pieces>) -> Self {
        let meta = record.meta_start()..record.body_start();
        let body = record.body_start()..record.body_start() + record.head.body_len as usize;
        Self { stat, record, meta, body, pieces }
    }

    /// Length, times.
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Attributes that were put with it.
    pub fn meta(&self) -> &[u8] {
        &self.record.bytes[self.meta.clone()]
    }

    /// Length of the body.
    pub fn length(&self) -> u64 {
        self.stat.length
    }

    /// The body, when it is in memory as a whole: up to 256 KB it is. Longer ones are to be streamed.
    pub fn whole(&self) -> Option<&[u8]> {
        self.pieces.is_none().then(|| &self.record.bytes[self.body.clone()])
    }

    /// The memory that holds the body, and where in it, when it is there as a whole: to hand on without a copy.
    ///
    /// # Errors
    /// The object itself, when it is in pieces.
    pub fn into_whole(self) -> Result<(Vec<u8>, std::ops::Range<usize>), Box<Self>> {
        match self.pieces {
            None => {
                let record = Arc::try_unwrap(self.record);
                Ok((record.map_or_else(|shared| shared.bytes.clone(), |own| own.bytes), self.body))
            }
            Some(_) => Err(Box::new(self)),
        }
    }

    /// As [`Object::into_whole`], of memory that the store's memory tier shares: never a copy.
    ///
    /// # Errors
    /// The object itself, when it is in pieces.
    pub fn into_shared(self) -> Result<Body, Box<Self>> {
        match self.pieces {
            None => Ok(Body { record: self.record, range: self.body }),
            Some(_) => Err(Box::new(self)),
        }
    }

    /// All of the body.
    ///
    /// # Errors
    /// When a piece is damaged.
    pub fn read_all(&self) -> Result<Vec<u8>, StoreError> {
        let mut body = Vec::new();
        for chunk in self.chunks() {
            body.extend_from_slice(chunk?.as_slice());
        }
        Ok(body)
    }

    /// Fills `bytes` from `offset` of the body on; fewer only where it ends.
    ///
    /// # Errors
    /// When a piece is damaged.
    pub fn read_range(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, StoreError> {
        if offset >= self.stat.length {
            return Ok(0);
        }
        let Some(pieces) = &self.pieces else {
            let from = &self.record.bytes[self.body.clone()][offset as usize..];
            let len = from.len().min(bytes.len());
            bytes[..len].copy_from_slice(&from[..len]);
            return Ok(len);
        };
        let (mut done, mut piece_start) = (0, 0);
        for (part, &len) in pieces.manifest.piece_lens.iter().enumerate() {
            let piece_end = piece_start + u64::from(len);
            let at = offset + done as u64;
            if at < piece_end && done < bytes.len() {
                let (piece, start) = pieces.piece(part)?;
                let from = &piece[start + (at - piece_start) as usize..];
                let len = from.len().min(bytes.len() - done);
                bytes[done..done + len].copy_from_slice(&from[..len]);
                done += len;
            }
            piece_start = piece_end;
        }
        Ok(done)
    }

    /// The body in chunks of at most 256 KB, each compared with its checksum before it is given.
    pub fn chunks(&self) -> Chunks<'_> {
        Chunks { object: self, next: 0 }
    }

    /// Writes the body to a descriptor, as to a socket, and returns its length. Each chunk is compared with its checksum
    /// first, which reads it; sending an unread one from within the kernel would save a copy and the proof with it.
    ///
    /// # Errors
    /// When a piece is damaged (as [`io::ErrorKind::InvalidData`]), or the descriptor takes no more.
    pub fn send_to(&self, descriptor: BorrowedFd<'_>) -> io::Result<u64> {
        let mut sent = 0;
        for chunk in self.chunks() {
            let chunk = chunk.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let mut rest = chunk.as_slice();
            while !rest.is_empty() {
                match rustix::io::write(descriptor, rest) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => rest = &rest[written..],
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            sent += chunk.as_slice().len() as u64;
        }
        Ok(sent)
    }
}

/// A body in memory, shared with the store's memory tier.
#[derive(Clone)]
pub struct Body {
    record: Arc<Record>,
    range: std::ops::Range<usize>,
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.record.bytes[self.range.clone()]
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Body").field("length", &self.range.len()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Object {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = self.pieces.as_ref().map(|pieces| printable(&pieces.key));
        formatter
            .debug_struct("Object")
            .field("stat", &self.stat)
            .field("large", &key)
            .finish_non_exhaustive()
    }
}

/// The chunks of a body.
pub struct Chunks<'a> {
    object: &'a Object,
    next: usize,
}

/// One chunk of a body.
pub enum Chunk<'a> {
    /// All of a small one.
    Whole(&'a [u8]),
    /// A piece of a large one, from this offset of the memory on.
    Piece(Vec<u8>, usize),
}

impl Chunk<'_> {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Whole(bytes) => bytes,
            Self::Piece(bytes, start) => &bytes[*start..],
        }
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Result<Chunk<'a>, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let part = self.next;
        self.next += 1;
        match &self.object.pieces {
            None => {
                (part == 0).then(|| Ok(Chunk::Whole(&self.object.record.bytes[self.object.body.clone()])))
            }
            Some(pieces) if part < pieces.manifest.piece_lens.len() => {
                let piece = pieces.piece(part);
                if piece.is_err() {
                    self.next = usize::MAX / 2;
                }
                Some(piece.map(|(bytes, start)| Chunk::Piece(bytes, start)))
            }
            Some(_) => None,
        }
    }
}
