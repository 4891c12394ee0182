//! The bytes of files: written to new blocks, or behind the last piece where that is free; read with every checksum compared.
//!
//! ```text
//! write -> extent grows where it is (append, blocks behind it free)      -> record: the piece, longer
//!       -> old bytes of pieces that are only partly overwritten are read  -> new pieces -> record: what replaces them
//! ```
//!
//! Always holds: bytes that a record names are never overwritten; appends to a file of many short pieces make them fewer.
//! Not here: truncation, holes punched; the seam has neither.

use std::sync::Arc;

use files::Status;

use super::{Engine, State};
use crate::error::{Refusal, TreeError};
use crate::format::{BLOCK_BYTES, PIECE_BYTES_MAX, Piece, Record, blocks_of, crc, crc_of_both};
use crate::space::Run;
use crate::table::{Extent, Extents, Inode};
use crate::time::now;

/// Most that one write takes; the rest is for the next.
const WRITE_BYTES_MAX: usize = 1 << 20;
/// Most pieces of one write, where space is in short runs.
const PIECES_MAX: usize = 128;
/// A file with more pieces has the last ones put together when it is appended to.
const PIECES_FEW: usize = 8;
/// Longest file.
const FILE_BYTES_MAX: u64 = 1 << 50;

/// The piece read last through an open file.
#[derive(Default)]
pub(crate) struct Cached {
    piece: Option<Piece>,
    bytes: Vec<u8>,
}

/// What a write is going to do.
enum Plan {
    /// Grow this extent by that many bytes, and write the rest behind it.
    Grow(Extent, u64),
    /// Replace these extents, whose ends that stay are read first.
    Replace(Vec<Extent>),
}

impl Engine {
    /// Writes at `offset`, or at the end. Returns where it wrote, and how many bytes.
    pub(crate) fn write_file(
        &self,
        inode: Inode,
        offset: Option<u64>,
        bytes: &[u8],
    ) -> Result<(u64, usize), Refusal> {
        self.check_writable()?;
        let bytes = &bytes[..bytes.len().min(WRITE_BYTES_MAX)];
        let _stripe = self.stripe(inode);
        let (start, plan) = {
            let state = self.read();
            let extents = state.table.extents(inode).ok_or(Status::STALE)?;
            let start = offset.unwrap_or(extents.size());
            if start.checked_add(bytes.len() as u64).is_none_or(|end| end > FILE_BYTES_MAX) {
                return Err(Status::FBIG.into());
            }
            (start, plan(extents, start, bytes.len() as u64))
        };
        let (from, pieces, written) = match plan {
            Plan::Grow(extent, room) => match self.grow_piece(extent, &bytes[..room as usize])? {
                Some(piece) => {
                    // The rest, if any, is the next call's.
                    (extent.offset, vec![piece], room as usize)
                }
                None => self.replace(inode, start, bytes, &self.folded(inode, start, bytes.len() as u64))?,
            },
            Plan::Replace(old) => self.replace(inode, start, bytes, &old)?,
        };
        let record = Record::Write { time: now(), inode, offset: from, pieces };
        match self.change(|state| state.commit_write(inode, &record)) {
            Ok(()) => Ok((start, written)),
            Err(refusal) => {
                self.give_back(inode, &record, &refusal);
                Err(refusal)
            }
        }
    }

    /// Frees the pieces of a record that was refused. Of a piece that grew, the blocks stay unused until the next opening.
    fn give_back(&self, inode: Inode, record: &Record, refusal: &Refusal) {
        let (Refusal::Status(_), Record::Write { pieces, .. }) = (refusal, record) else { return };
        let mut state = self.write();
        let State { table, space, .. } = &mut *state;
        let named = table.extents(inode).map_or(&[][..], Extents::all);
        let is_new = |piece: &&Piece| named.iter().all(|extent| extent.piece.block != piece.block);
        pieces.iter().filter(is_new).for_each(|piece| space.unused(piece.run()));
    }

    /// Writes behind a piece where it is; `None` when the blocks there are not free.
    fn grow_piece(&self, extent: Extent, bytes: &[u8]) -> Result<Option<Piece>, Refusal> {
        let old = extent.piece;
        let (length, added) = (u64::from(old.bytes), bytes.len() as u64);
        let more = blocks_of(length + added) - blocks_of(length);
        if !self.write().space.extend(old.run().end(), more) {
            return Ok(None);
        }
        self.write_contents(bytes, old.block * BLOCK_BYTES + length)?;
        let crc = crc_of_both(old.crc, crc(bytes), added);
        Ok(Some(Piece { block: old.block, bytes: (length + added) as u32, crc }))
    }

    /// A failed write of contents is not the end: no record names them. A full disk is reported as such.
    fn write_contents(&self, bytes: &[u8], offset: u64) -> Result<(), Refusal> {
        self.check_going()?;
        self.stopping(self.file.write_at(bytes, offset)).map_err(Refusal::from)
    }

    /// The last extents that an append at `start` puts together with itself, so that their number stays small.
    fn folded(&self, inode: Inode, start: u64, length: u64) -> Vec<Extent> {
        let state = self.read();
        let Some(extents) = state.table.extents(inode) else { return Vec::new() };
        let all = extents.all();
        let mut first = all.len();
        let mut bytes = length;
        let mut from = start;
        while first > 0 && all.len() - first < PIECES_MAX && all.len() > PIECES_FEW {
            let extent = &all[first - 1];
            let own = u64::from(extent.piece.bytes);
            if extent.end() != from || own > bytes || own + bytes > PIECE_BYTES_MAX {
                break;
            }
            (first, bytes, from) = (first - 1, bytes + own, extent.offset);
        }
        all[first..].to_vec()
    }

    /// Writes new pieces for the range of `old` and of `bytes` at `start`. Returns where they begin, the pieces, and how many of `bytes`
    /// they hold.
    fn replace(
        &self,
        inode: Inode,
        start: u64,
        bytes: &[u8],
        old: &[Extent],
    ) -> Result<(u64, Vec<Piece>, usize), Refusal> {
        let end = start + bytes.len() as u64;
        let from = old.first().map_or(start, |first| first.offset.min(start));
        let to = old.last().map_or(end, |last| last.end().max(end));
        let mut whole;
        let content = if (from, to) == (start, end) {
            bytes
        } else {
            whole = vec![0; (to - from) as usize];
            for extent in old.iter().filter(|extent| extent.offset < start || extent.end() > end) {
                let at = (extent.offset - from) as usize;
                let into = &mut whole[at..at + extent.piece.bytes as usize];
                self.read_piece(inode, extent, into)?;
            }
            let at = (start - from) as usize;
            whole[at..at + bytes.len()].copy_from_slice(bytes);
            &whole[..]
        };
        let mut pieces: Vec<Piece> = Vec::new();
        let mut done = 0;
        while done < content.len() {
            let wanted = ((content.len() - done) as u64).min(PIECE_BYTES_MAX);
            let placed =
                if pieces.len() < PIECES_MAX { self.allocate(wanted) } else { Err(Status::NOSPC.into()) };
            let placed = placed.and_then(|run| {
                let some = wanted.min(run.blocks * BLOCK_BYTES) as usize;
                let part = &content[done..done + some];
                let piece = Piece { block: run.start, bytes: some as u32, crc: crc(part) };
                pieces.push(piece);
                self.write_contents(part, run.start * BLOCK_BYTES).map(|()| some)
            });
            match placed {
                Ok(some) => done += some,
                Err(refusal) => {
                    let mut state = self.write();
                    pieces.iter().for_each(|piece| state.space.unused(piece.run()));
                    return Err(refusal);
                }
            }
        }
        Ok((from, pieces, bytes.len()))
    }

    /// Blocks for up to this many bytes.
    fn allocate(&self, bytes: u64) -> Result<Run, Refusal> {
        let blocks = blocks_of(bytes);
        loop {
            let segments = {
                let mut state = self.write();
                if let Some(run) = state.space.allocate(blocks, false) {
                    return Ok(run);
                }
                state.space.segments
            };
            match self.grow(segments) {
                // The disk is full: whatever is free in the file will do.
                Err(Refusal::Status(Status::NOSPC)) => {
                    let run = self.write().space.allocate(blocks, true);
                    return run.ok_or(Status::NOSPC.into());
                }
                grown => grown?,
            }
        }
    }

    /// Reads at `offset`; 0 bytes only at the end.
    pub(crate) fn read_file(
        &self,
        inode: Inode,
        offset: u64,
        into: &mut [u8],
        cached: &mut Cached,
    ) -> Result<usize, Refusal> {
        loop {
            let (size, extent, hole_end) = {
                let state = self.read();
                let extents = state.table.extents(inode).ok_or(Status::STALE)?;
                let end = offset.saturating_add(into.len() as u64);
                let first = extents.within(offset, end).first().copied();
                (extents.size(), first, end.min(first.map_or(end, |first| first.offset)))
            };
            if offset >= size || into.is_empty() {
                return Ok(0);
            }
            let Some(extent) = extent.filter(|extent| extent.offset <= offset) else {
                let length = (hole_end.min(size) - offset) as usize;
                into[..length].fill(0);
                return Ok(length);
            };
            let length = (extent.end() - offset).min(into.len() as u64) as usize;
            let within = (offset - extent.offset) as usize;
            let read = if within == 0 && length == extent.piece.bytes as usize {
                self.read_piece(inode, &extent, &mut into[..length])
            } else if cached.piece == Some(extent.piece) {
                into[..length].copy_from_slice(&cached.bytes[within..within + length]);
                Ok(())
            } else {
                cached.piece = None;
                cached.bytes.resize(extent.piece.bytes as usize, 0);
                self.read_piece(inode, &extent, &mut cached.bytes).map(|()| {
                    cached.piece = Some(extent.piece);
                    into[..length].copy_from_slice(&cached.bytes[within..within + length]);
                })
            };
            match read {
                Ok(()) => return Ok(length),
                // Replaced meanwhile, and its blocks used again: there are other pieces now.
                Err(_) if self.is_replaced(inode, &extent) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn is_replaced(&self, inode: Inode, extent: &Extent) -> bool {
        let state = self.read();
        let extents = state.table.extents(inode).map_or(&[][..], Extents::all);
        !extents.contains(extent)
    }

    /// Reads a whole piece and compares its checksum.
    pub(crate) fn read_piece(&self, inode: Inode, extent: &Extent, into: &mut [u8]) -> Result<(), TreeError> {
        let read = self.file.read_at(into, extent.piece.block * BLOCK_BYTES)?;
        if read < into.len() || crc(into) != extent.piece.crc {
            let (place, offset_bytes) = (self.place.clone(), extent.offset);
            return Err(TreeError::Damaged { place, inode, offset_bytes });
        }
        Ok(())
    }
}

fn plan(extents: &Extents, start: u64, length: u64) -> Plan {
    let old = extents.within(start, start + length);
    if !old.is_empty() {
        return Plan::Replace(old.to_vec());
    }
    match extents.within(start.saturating_sub(1), start).first() {
        Some(before) if u64::from(before.piece.bytes) < PIECE_BYTES_MAX => {
            let room = PIECE_BYTES_MAX - u64::from(before.piece.bytes);
            Plan::Grow(*before, room.min(length))
        }
        _ => Plan::Replace(Vec::new()),
    }
}

/// A piece that is only read to be compared, as `check` does.
pub(crate) fn piece_is_whole(file: &Arc<dyn disk::DiskFile>, piece: &Piece, scratch: &mut Vec<u8>) -> bool {
    scratch.resize(piece.bytes as usize, 0);
    let read = file.read_at(scratch, piece.block * BLOCK_BYTES);
    read.is_ok_and(|read| read == scratch.len()) && crc(scratch) == piece.crc
}
