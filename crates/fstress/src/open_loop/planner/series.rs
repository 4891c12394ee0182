//! Series: a file read or written from its begin to its end, one request after the other.
//!
//! Always holds: one request of a series is in flight at a time, asked at least [`GAP`] after the one before it; the
//! file of a series keeps its slot until the series is over and answered.
//! Source: Fstress paper, section 4 (sequential series).

use files::OpKind;
use quanta::Instant;

use super::{GAP, Planned, Planner, Target, UNCOMMITTED_MAX};
use crate::objects::{FileFlags, FileId};
use crate::workload::WriteStability;

/// A file read or written from its begin to its end, one request after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series {
    file: FileId,
    offset: u64,
    end: u64,
    /// Bytes of each request; none: drawn for each by the workload.
    chunk_bytes: Option<u32>,
    /// When the last request was due.
    last_due: Instant,
    in_flight: bool,
    over: bool,
}

impl Planner {
    /// The whole file.
    pub(super) fn begin_series(&mut self, file: FileId, end: u64, due: Instant) -> u32 {
        self.begin(file, 0, end, None, due)
    }

    /// A request for more than the storage takes at once: as many of the largest as it takes.
    pub(super) fn begin_split(&mut self, file: FileId, offset: u64, count: u32, due: Instant) -> u32 {
        self.begin(file, offset, offset + u64::from(count), Some(self.io_bytes_max), due)
    }

    fn begin(&mut self, file: FileId, offset: u64, end: u64, chunk_bytes: Option<u32>, due: Instant) -> u32 {
        self.set.begin_file_op(file);
        let series = Series { file, offset, end, chunk_bytes, last_due: due, in_flight: false, over: false };
        match self.series_free.pop() {
            Some(slot) => {
                self.series[slot as usize] = series;
                slot
            }
            None => {
                self.series.push(series);
                self.series.len() as u32 - 1
            }
        }
    }

    pub(super) fn end_series(&mut self, slot: u32) {
        let series = &mut self.series[slot as usize];
        series.over = true;
        if !series.in_flight {
            let file = series.file;
            self.series_free.push(slot);
            self.set.end_file_op(file);
        }
    }

    /// A series whose next request may be asked at `due`.
    pub(super) fn next_of_series(&mut self, kind: OpKind, due: Instant) -> Option<u32> {
        loop {
            let queue = if kind == OpKind::Read { &mut self.reads } else { &mut self.writes };
            let slot = *queue.front()?;
            let series = self.series[slot as usize];
            if !self.closed && due < series.last_due + GAP {
                return None;
            }
            queue.pop_front();
            if self.is_going(series.file) {
                self.end_series(slot);
                continue;
            }
            if !series.in_flight {
                return Some(slot);
            }
            // Not answered in all that time: it waits another turn.
            self.overtaken += u64::from(!self.closed);
            self.series[slot as usize].last_due = due;
            let queue = if kind == OpKind::Read { &mut self.reads } else { &mut self.writes };
            queue.push_back(slot);
            return None;
        }
    }

    pub(super) fn plan_chunk(&mut self, planned: &mut Planned, slot: u32, due: Instant) {
        let kind = planned.kind;
        let count = match self.series[slot as usize].chunk_bytes {
            Some(count) => count,
            None => self.chunk_bytes(kind),
        };
        let series = &mut self.series[slot as usize];
        let left = series.end.saturating_sub(series.offset);
        // An empty file is read once all the same: that is how a reader learns that it is empty.
        let count = if left == 0 { count } else { count.min(left.try_into().unwrap_or(u32::MAX)) };
        planned.target = Target::File(series.file);
        (planned.offset, planned.count, planned.extra) = (series.offset, count, slot);
        series.offset += u64::from(count);
        series.last_due = due;
        series.in_flight = true;
        series.over = series.offset >= series.end;
        let (file, reached, over) = (series.file, series.offset, series.over);
        if !over {
            if kind == OpKind::Read { self.reads.push_back(slot) } else { self.writes.push_back(slot) }
        }
        self.touch(file, due);
        if kind == OpKind::Write {
            let size = self.set.file_size_bytes(file);
            self.set.set_file_size_bytes(file, size.max(reached));
            if over {
                self.written(file, due);
            }
        }
    }

    /// Bytes that files are still to get from series under way.
    pub fn bytes_to_come(&self) -> u64 {
        let of_series = |series: &Series| series.end.saturating_sub(self.set.file_size_bytes(series.file));
        self.writes.iter().map(|&slot| of_series(&self.series[slot as usize])).sum()
    }

    pub(super) fn settle_series(&mut self, planned: &Planned, ok: bool) {
        let series = &mut self.series[planned.extra as usize];
        series.in_flight = false;
        if !ok && !series.over {
            // The file may be gone or the disk full: no use in going on with it.
            let queue = if planned.kind == OpKind::Read { &mut self.reads } else { &mut self.writes };
            queue.retain(|&slot| slot != planned.extra);
            series.over = true;
        }
        if series.over {
            self.end_series(planned.extra);
        }
    }

    pub(super) fn written(&mut self, file: FileId, due: Instant) {
        let wanted = self.workload.access.write_stability == WriteStability::Unstable
            && self.workload.mix.has(OpKind::Commit);
        let known = self.set.file_flags(file).contains(FileFlags::UNCOMMITTED);
        if wanted && !known && self.uncommitted.len() < UNCOMMITTED_MAX {
            self.set.mark_file(file, FileFlags::UNCOMMITTED, true);
            self.set.begin_file_op(file);
            self.uncommitted.push_back((due, file));
        }
    }
}
