//! Truncation, and holes that are punched: pieces at the ends that are cut are written again, the others go.
//!
//! ```text
//! piece |#######|#######|#######|       hole or end in the middle of a piece: what stays of it is a new piece
//!           |---- hole ----|
//! new   |##|                |##|        one record: both new pieces, and what lies between is gone
//! ```

use files::Status;

use super::Engine;
use super::contents::{FILE_BYTES_MAX, PIECES_MAX};
use crate::error::Refusal;
use crate::format::{Piece, Record};
use crate::table::{Extent, Inode};
use crate::time::now;

impl Engine {
    /// Makes a file as long as this: what is behind goes, what is missing is a hole.
    pub(crate) fn truncate(&self, inode: Inode, size: u64) -> Result<(), Refusal> {
        if size > FILE_BYTES_MAX {
            return Err(Status::FBIG.into());
        }
        self.reshape(inode, size, u64::MAX, Some(size))
    }

    /// Makes a range of a file a hole. Its size stays.
    pub(crate) fn punch_hole(&self, inode: Inode, start: u64, bytes: u64) -> Result<(), Refusal> {
        let end = start.checked_add(bytes).ok_or(Status::INVAL)?;
        self.reshape(inode, start, end, None)
    }

    /// Takes the bytes from `start` to `end` away; then the file has `size` bytes, or as many as before.
    fn reshape(&self, inode: Inode, start: u64, end: u64, size: Option<u64>) -> Result<(), Refusal> {
        self.check_writable()?;
        let _stripe = self.stripe(inode);
        let node = self.file_node(inode)?;
        let content = node.content().ok_or(Status::STALE)?;
        let size = size.unwrap_or(content.size);
        let old = content.extents.within(start, end).to_vec();
        let from = old.first().map_or(start, |first| first.offset.min(start));
        let to = old.last().map_or(from, Extent::end);
        drop(node);
        let mut pieces = Vec::new();
        let kept = self.keep_ends(inode, &old, start, end, &mut pieces);
        if let Err(refusal) = kept {
            let mut state = self.write();
            pieces.iter().for_each(|(_, piece)| state.space.unused(piece.run()));
            return Err(refusal);
        }
        let record = Record::Reshape { time: now(), inode, start: from, end: to, size, pieces };
        self.commit_contents(inode, &record)
    }

    /// Writes what stays of the first and of the last extent to new pieces.
    fn keep_ends(
        &self,
        inode: Inode,
        old: &[Extent],
        start: u64,
        end: u64,
        pieces: &mut Vec<(u64, Piece)>,
    ) -> Result<(), Refusal> {
        let mut whole = Vec::new();
        for extent in old.iter().filter(|extent| extent.offset < start || extent.end() > end) {
            whole.resize(extent.piece.bytes as usize, 0);
            self.read_piece(inode, extent, &mut whole)?;
            let before = extent.offset..start.min(extent.end());
            let behind = end.max(extent.offset)..extent.end();
            for kept in [before, behind].into_iter().filter(|kept| !kept.is_empty()) {
                let bytes =
                    &whole[(kept.start - extent.offset) as usize..(kept.end - extent.offset) as usize];
                let mut at = kept.start;
                for piece in self.write_pieces(bytes)? {
                    pieces.push((at, piece));
                    at += u64::from(piece.bytes);
                }
                // More are not in one record. It takes a disk whose free space is in crumbs.
                if pieces.len() > PIECES_MAX {
                    return Err(Status::NOSPC.into());
                }
            }
        }
        Ok(())
    }
}
