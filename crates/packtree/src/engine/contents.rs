//! The bytes of files: written to new blocks, or behind the last piece where that is free; read with every checksum compared.
//!
//! ```text
//! write -> extent grows where it is (append, blocks behind it free)      -> record: the piece, longer
//!       -> old bytes of pieces that are only partly overwritten are read  -> new pieces -> record: what replaces them
//! ```
//!
//! Always holds: bytes that a record names are never overwritten; appends to a file of many short pieces make them fewer.
//! Not here: truncation and holes that are punched (`reshaping`).

use std::sync::Arc;

use files::Status;

use super::Engine;
use crate::error::{Refusal, TreeError};
use crate::format::{BLOCK_BYTES, PIECE_BYTES_MAX, Piece, Record, blocks_of, crc, crc_of_both};
use crate::space::Run;
use crate::spare::is_full;
use crate::table::{Content, Extent, Extents, Inode, Node};
use crate::time::now;

/// Most that one write takes; the rest is for the next.
const WRITE_BYTES_MAX: usize = 1 << 20;
/// Most pieces of one write, where space is in short runs.
pub(super) const PIECES_MAX: usize = 128;
/// A file with more pieces has the last ones put together when it is appended to.
const PIECES_FEW: usize = 8;
/// Longest file: 16 TiB. Its pieces are listed in one value of a run.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 44;

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
        let node = self.file_node(inode)?;
        let content = content_of(&node)?;
        let start = offset.unwrap_or(content.size);
        if start.checked_add(bytes.len() as u64).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(Status::FBIG.into());
        }
        let plan = plan(&content.extents, start, bytes.len() as u64);
        let (from, pieces, written) = match plan {
            Plan::Grow(extent, room) => match self.grow_piece(extent, &bytes[..room as usize])? {
                Some(piece) => {
                    // The rest, if any, is the next call's.
                    (extent.offset, vec![piece], room as usize)
                }
                None => {
                    self.replace(inode, start, bytes, &folded(&content.extents, start, bytes.len() as u64))?
                }
            },
            Plan::Replace(old) => self.replace(inode, start, bytes, &old)?,
        };
        // Otherwise the change would copy it.
        drop(node);
        let record = Record::Write { time: now(), inode, offset: from, pieces };
        self.commit_contents(inode, &record)?;
        Ok((start, written))
    }

    /// Of a file.
    pub(crate) fn size_of(&self, inode: Inode) -> Result<u64, Refusal> {
        Ok(content_of(&*self.file_node(inode)?)?.size)
    }

    pub(super) fn file_node(&self, inode: Inode) -> Result<Arc<Node>, Refusal> {
        self.look(|state| state.table.node(inode)?.ok_or(Status::STALE.into()))
    }

    /// Journals a change of contents whose stripe is held. When it is refused, its new pieces are free again.
    pub(super) fn commit_contents(&self, inode: Inode, record: &Record) -> Result<(), Refusal> {
        let committed = self.change(|state| state.commit_to(inode, record));
        if let Err(Refusal::Status(_) | Refusal::Dangling(_)) = committed {
            let node = self.file_node(inode);
            let named = node.as_ref().ok().and_then(|node| node.content());
            let named = named.map_or(&[][..], |content| content.extents.all());
            // Of a piece that grew, the blocks stay unused until the next opening.
            let is_new = |piece: &&Piece| named.iter().all(|extent| extent.piece.block != piece.block);
            let mut state = self.write();
            record.pieces().filter(is_new).for_each(|piece| state.space.unused(piece.run()));
        }
        committed
    }

    /// Writes behind a piece where it is; `None` when the blocks there are not free.
    fn grow_piece(&self, extent: Extent, bytes: &[u8]) -> Result<Option<Piece>, Refusal> {
        let old = extent.piece;
        let (length, added) = (u64::from(old.bytes), bytes.len() as u64);
        let more = blocks_of(length + added) - blocks_of(length);
        if !self.write().space.extend(old.run().end(), more) {
            return Ok(None);
        }
        if let Err(refusal) = self.write_contents(bytes, old.block * BLOCK_BYTES + length) {
            self.write().space.unused(Run { start: old.run().end(), blocks: more });
            return Err(refusal);
        }
        let crc = crc_of_both(old.crc, crc(bytes), added);
        Ok(Some(Piece { block: old.block, bytes: (length + added) as u32, crc }))
    }

    /// A failed write of contents is not the end: no record names them. A full disk is reported as such.
    fn write_contents(&self, bytes: &[u8], offset: u64) -> Result<(), Refusal> {
        self.check_going()?;
        let mut written = self.file.write_at(bytes, offset);
        // In a hole that was made when the disk was full. Blocks elsewhere may have room that can be given up for it.
        if written.as_ref().is_err_and(is_full) && self.give_back()? > 0 {
            written = self.file.write_at(bytes, offset);
        }
        match written {
            Err(error) if is_full(&error) => Err(error.into()),
            written => self.stopping(written).map_err(Refusal::from),
        }
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
        Ok((from, self.write_pieces(content)?, bytes.len()))
    }

    /// Writes bytes to new pieces. After an error none is in use.
    pub(super) fn write_pieces(&self, content: &[u8]) -> Result<Vec<Piece>, Refusal> {
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
        Ok(pieces)
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
            let node = self.file_node(inode)?;
            let content = content_of(&node)?;
            let end = offset.saturating_add(into.len() as u64);
            let extent = content.extents.within(offset, end).first().copied();
            let (size, hole_end) = (content.size, end.min(extent.map_or(end, |first| first.offset)));
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
        let node = self.file_node(inode);
        let content = node.as_ref().ok().and_then(|node| node.content());
        !content.is_some_and(|content| content.extents.all().contains(extent))
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

/// The last extents that an append at `start` puts together with itself, so that their number stays small.
fn folded(extents: &Extents, start: u64, length: u64) -> Vec<Extent> {
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

fn content_of(node: &Node) -> Result<&Content, Refusal> {
    node.content().ok_or(Status::STALE.into())
}

/// A piece that is only read to be compared, as `check` does.
pub(crate) fn piece_is_whole(file: &Arc<dyn disk::DiskFile>, piece: &Piece, scratch: &mut Vec<u8>) -> bool {
    scratch.resize(piece.bytes as usize, 0);
    let read = file.read_at(scratch, piece.block * BLOCK_BYTES);
    read.is_ok_and(|read| read == scratch.len()) && crc(scratch) == piece.crc
}
