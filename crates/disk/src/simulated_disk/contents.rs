//! One file: what is read from it, what is durable, and all that happened in between.

use std::sync::Arc;

/// Something that happened to the contents.
#[derive(Clone)]
pub(super) enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Length(u64),
    Release { offset: u64, bytes: u64 },
    Nothing,
}

#[derive(Clone, Default)]
pub(super) struct Contents {
    seen: Pages,
    durable: Pages,
    /// Since the last sync, with the operation's number.
    changes: Vec<(u64, Change)>,
    /// Pages that have room, written or reserved.
    roomy: Vec<bool>,
}

impl Contents {
    /// As after a power cut. What was reserved has its room still, as far as the file is long.
    pub(super) fn durable_of(pages: Pages, before: &Self) -> Self {
        let length = pages.length.div_ceil(PAGE) as usize;
        let is_written = |page: usize| pages.pages.get(page).is_some_and(Option::is_some);
        let was_roomy = |page: usize| before.roomy.get(page).copied().unwrap_or(false);
        let roomy = (0..length).map(|page| is_written(page) || was_roomy(page)).collect();
        Self { seen: pages.clone(), durable: pages, changes: Vec::new(), roomy }
    }

    pub(super) fn length(&self) -> u64 {
        self.seen.length
    }

    pub(super) fn read(&self, bytes: &mut [u8], offset: u64) -> usize {
        self.seen.read(bytes, offset)
    }

    pub(super) fn change(&mut self, time: u64, change: Change) {
        match &change {
            Change::Write { offset, bytes } => self.reserve(*offset, bytes.len() as u64),
            Change::Release { offset, bytes } => {
                // Whole pages only.
                let (first, end) = (offset.div_ceil(PAGE), (offset + bytes) / PAGE);
                let end = (end as usize).min(self.roomy.len());
                self.roomy.iter_mut().take(end).skip(first as usize).for_each(|page| *page = false);
            }
            Change::Length(length) => self.roomy.truncate(length.div_ceil(PAGE) as usize),
            Change::Nothing => return,
        }
        self.seen.apply(&change);
        self.changes.push((time, change));
    }

    pub(super) fn sync(&mut self) {
        for (_, change) in self.changes.drain(..) {
            self.durable.apply(&change);
        }
    }

    /// What was written stays to be read, and no later sync makes it durable.
    pub(super) fn lose(&mut self) {
        self.changes.clear();
    }

    pub(super) fn flip(&mut self, bit: u64) -> bool {
        self.durable.flip(bit);
        self.seen.flip(bit)
    }

    pub(super) fn reserve(&mut self, offset: u64, bytes: u64) {
        if bytes > 0 {
            let end = (offset + bytes).div_ceil(PAGE) as usize;
            if self.roomy.len() < end {
                self.roomy.resize(end, false);
            }
            self.roomy[(offset / PAGE) as usize..end].fill(true);
        }
    }

    pub(super) fn unwritten_at(&self, offset: u64) -> u64 {
        let first = (offset / PAGE) as usize;
        let is_written = |page: usize| self.seen.pages.get(page).is_some_and(Option::is_some);
        let pages = self.roomy.iter().enumerate().skip(first);
        let end = first + pages.take_while(|(page, roomy)| **roomy && !is_written(*page)).count();
        (end as u64 * PAGE).saturating_sub(offset)
    }

    pub(super) fn room_bytes(&self) -> u64 {
        self.roomy.iter().filter(|&&roomy| roomy).count() as u64 * PAGE
    }

    /// What a range needs beyond what it has.
    pub(super) fn room_wanted_bytes(&self, offset: u64, bytes: u64) -> u64 {
        let pages = offset / PAGE..(offset + bytes).div_ceil(PAGE);
        pages.filter(|&page| !self.roomy.get(page as usize).copied().unwrap_or(false)).count() as u64 * PAGE
    }

    pub(super) fn durable(&self) -> &Pages {
        &self.durable
    }

    pub(super) fn changes(&self) -> &[(u64, Change)] {
        &self.changes
    }
}

/// Bytes, shared page by page between the states of a file and between disks.
#[derive(Clone, Default)]
pub(super) struct Pages {
    /// None: zeros.
    pages: Vec<Option<Arc<[u8; PAGE as usize]>>>,
    pub(super) length: u64,
}

impl Pages {
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { offset, bytes } => {
                self.put(*offset, bytes);
                self.length = self.length.max(offset + bytes.len() as u64);
            }
            Change::Length(length) => self.set_length(*length),
            Change::Release { offset, bytes } => self.clear(*offset, *bytes),
            Change::Nothing => {}
        }
    }

    pub(super) fn set_length(&mut self, length: u64) {
        if length < self.length {
            self.clear(length, self.length - length);
            self.pages.truncate(length.div_ceil(PAGE) as usize);
        }
        self.length = length;
    }

    /// Bytes alone; the length stays.
    pub(super) fn put(&mut self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (page, within) = ((at / PAGE) as usize, (at % PAGE) as usize);
            let some = (PAGE as usize - within).min(bytes.len() - done);
            if self.pages.len() <= page {
                self.pages.resize(page + 1, None);
            }
            let page = self.pages[page].get_or_insert_with(|| Arc::new([0; PAGE as usize]));
            Arc::make_mut(page)[within..within + some].copy_from_slice(&bytes[done..done + some]);
            done += some;
        }
    }

    /// Zeros; the length stays.
    pub(super) fn clear(&mut self, offset: u64, bytes: u64) {
        let end = (offset + bytes).min(self.pages.len() as u64 * PAGE);
        let mut at = offset;
        while at < end {
            let (page, within) = ((at / PAGE) as usize, at % PAGE);
            let some = (PAGE - within).min(end - at);
            if some == PAGE {
                self.pages[page] = None;
            } else if let Some(page) = &mut self.pages[page] {
                Arc::make_mut(page)[within as usize..(within + some) as usize].fill(0);
            }
            at += some;
        }
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> usize {
        let some = self.length.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let mut done = 0;
        while done < some {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let part = (PAGE as usize - within).min(some - done);
            let into = &mut bytes[done..done + part];
            match self.pages.get((at / PAGE) as usize) {
                Some(Some(page)) => into.copy_from_slice(&page[within..within + part]),
                _ => into.fill(0),
            }
            done += part;
        }
        some
    }

    fn flip(&mut self, bit: u64) -> bool {
        let there = bit / 8 < self.length;
        if there {
            let mut byte = [0];
            self.read(&mut byte, bit / 8);
            self.put(bit / 8, &[byte[0] ^ (1 << (bit % 8))]);
        }
        there
    }
}

const PAGE: u64 = 4096;
