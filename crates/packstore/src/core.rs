//! What all parts of a store share, and how a change gets from a caller to what counts.
//!
//! ```text
//! caller --stage--> Group --> writer: bodies, control blocks, [sync] --> settle: table, counts --> caller told
//!                     cache mode: settled when staged, read from the group until written
//! ```
//!
//! Locks, in order: keys (by hash), a volume's turn, links, a volume's staging, files. None is held across disk access but the
//! keys' and the turn.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Instant, SystemTime};

use crate::error::StoreError;
use crate::format::{Control, Manifest, Put, RecordHead, Victim, body_salt};
use crate::group::{After, Change, Gate, Group, Held, Run};
use crate::keys::{BusyKeys, locked};
use crate::options::{CacheOptions, Mode, Shape, Verify};
use crate::packed::{Filling, Packed, Session};
use crate::signatures::{Place, Signatures};
use crate::spot::{Spot, place};
use crate::touched::Touched;
use crate::volume::{Staging, Volume};

/// A group is written when it has so many bytes, or when there is nothing to wait for.
const GROUP_BYTES: usize = 1 << 20;
/// Store mode: who stages waits when so much is waiting already.
const GROUP_BYTES_MAX: usize = 16 << 20;
/// Files filled side by side: those before the last take what fits into their gaps.
const FILLINGS_MAX: usize = 4;
/// Files looked through for a stretch longer than the other.
const LONG_TRIES_MAX: usize = 6;
const SHORT_BYTES: usize = 1024;

pub(crate) struct Core {
    pub store: u128,
    pub hash_seed: u64,
    pub mode: Mode,
    pub read_only: bool,
    pub shape: Shape,
    pub cache: CacheOptions,
    pub verify: Verify,
    pub volumes: RwLock<Vec<Arc<Volume>>>,
    pub files: RwLock<Vec<Option<Arc<Packed>>>>,
    pub table: Signatures,
    pub touched: Touched,
    pub keys: BusyKeys,
    /// Names of each shared object.
    pub links: Mutex<HashMap<u64, u32>>,
    /// Puts on disk that never counted: power was lost before they were whole.
    pub torn: Mutex<HashSet<u64>>,
    /// Large objects that somebody reads.
    pub open: Mutex<HashMap<u64, Opened>>,
    pub sequence: AtomicU64,
    pub objects: AtomicI64,
    pub damaged_reads: AtomicU64,
    /// Control blocks, and whole index files, that failed their checksums when the store was opened.
    pub damaged_controls: AtomicU64,
    pub damaged_files: AtomicU64,
    pub disk_reads: AtomicU64,
    pub reads: AtomicU64,
    /// Some volume is away: what makes its records void must be kept.
    pub volumes_missing: AtomicBool,
    pub openings: AtomicU64,
    turn: AtomicU64,
    ready: (Mutex<Option<Result<(), StoreError>>>, Condvar),
    is_ready: AtomicBool,
    pub closing: AtomicBool,
}

/// A large object that is being read.
#[derive(Default)]
pub(crate) struct Opened {
    pub readers: u32,
    /// Its pieces go when the last reader does.
    pub gone: Option<Manifest>,
}

/// A record to be written.
pub(crate) struct NewRecord<'a> {
    pub head: RecordHead,
    pub key: &'a [u8],
    pub meta: &'a [u8],
    pub body: &'a [u8],
    pub hash: u64,
    pub id: u64,
    pub length: u64,
    /// What it replaces.
    pub old: Option<Held>,
    /// It is the same object elsewhere: it counts only if the old one still does.
    pub moved: bool,
}

/// Blocks of a file being filled, and how a place tells them.
type Taken = (Arc<Session>, u32, Place);

/// Seconds since 1970.
pub(crate) fn now_s() -> u32 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u32::try_from(since.as_secs()).unwrap_or(u32::MAX))
}

pub(crate) struct CoreParts {
    pub store: u128,
    pub hash_seed: u64,
    pub mode: Mode,
    pub read_only: bool,
    pub shape: Shape,
    pub cache: CacheOptions,
    pub verify: Verify,
    pub volumes: Vec<Arc<Volume>>,
    pub files: Vec<Option<Arc<Packed>>>,
    pub table: Signatures,
    pub objects_expected: u64,
    pub volumes_missing: bool,
    pub openings: u64,
}

impl Core {
    pub(crate) fn new(parts: CoreParts) -> Self {
        let evicts = parts.mode == Mode::Cache && !parts.read_only;
        Self {
            store: parts.store,
            hash_seed: parts.hash_seed,
            mode: parts.mode,
            read_only: parts.read_only,
            shape: parts.shape,
            cache: parts.cache,
            verify: parts.verify,
            volumes: RwLock::new(parts.volumes),
            files: RwLock::new(parts.files),
            table: parts.table,
            touched: Touched::new(if evicts { parts.objects_expected } else { 0 }),
            keys: BusyKeys::new(),
            links: Mutex::default(),
            torn: Mutex::default(),
            open: Mutex::default(),
            sequence: AtomicU64::new(1),
            objects: AtomicI64::new(0),
            damaged_reads: AtomicU64::new(0),
            damaged_controls: AtomicU64::new(0),
            damaged_files: AtomicU64::new(0),
            disk_reads: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            volumes_missing: AtomicBool::new(parts.volumes_missing),
            openings: AtomicU64::new(parts.openings),
            turn: AtomicU64::new(0),
            ready: Default::default(),
            is_ready: AtomicBool::new(false),
            closing: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_ready(&self, result: Result<(), StoreError>) {
        if result.is_ok() {
            self.is_ready.store(true, Ordering::Release);
        }
        *locked(&self.ready.0) = Some(result);
        self.ready.1.notify_all();
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// Waits until all that is on disk is known.
    pub(crate) fn wait_ready(&self) -> Result<(), StoreError> {
        if self.is_ready() {
            return Ok(());
        }
        let mut ready = locked(&self.ready.0);
        loop {
            if let Some(result) = &*ready {
                return result.clone();
            }
            ready = self.ready.1.wait(ready).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn file(&self, number: u32) -> Option<Arc<Packed>> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).get(number as usize)?.clone()
    }

    pub(crate) fn all_files(&self) -> Vec<Arc<Packed>> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).iter().flatten().cloned().collect()
    }

    pub(crate) fn all_volumes(&self) -> Vec<Arc<Volume>> {
        self.volumes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn volume(&self, index: usize) -> Arc<Volume> {
        self.volumes.read().unwrap_or_else(PoisonError::into_inner)[index].clone()
    }

    pub(crate) fn body_salt(&self, file: u32) -> u32 {
        body_salt(self.store, file)
    }

    /// Whether the table says that an object with this hash lies at this block of this file.
    pub(crate) fn place_of(&self, hash: u64, file: u32, block: u32) -> Option<Place> {
        self.table.find(hash).find(|&place| {
            let spot = Spot::of(place, self.shape);
            spot.file == file && spot.block == block
        })
    }

    /// Whether what makes this file's records void must still be told.
    pub(crate) fn is_needed(&self, victim: Victim) -> bool {
        match self.file(victim.file) {
            Some(file) => victim.generation >= file.since.load(Ordering::SeqCst),
            None => self.volumes_missing.load(Ordering::Relaxed),
        }
    }

    /// What a change that makes `held` void must name.
    pub(crate) fn victim_of(&self, held: &Held) -> Option<Victim> {
        let file = self.file(Spot::of(held.place, self.shape).file)?;
        Some(Victim { file: file.number, generation: file.generation.load(Ordering::SeqCst) })
    }

    /// A volume that takes writes, in turn by size, and what is wrong when there is none.
    fn choose(&self) -> Result<Arc<Volume>, StoreError> {
        let volumes = self.volumes.read().unwrap_or_else(PoisonError::into_inner);
        if self.read_only {
            return Err(StoreError::ReadOnly { why: "the store was opened read-only".to_owned() });
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let usable =
            |volume: &&Arc<Volume>| volume.failed.get().is_none() && !volume.full.load(Ordering::Relaxed);
        if let [only] = &volumes[..] {
            return match only.failed.get() {
                None => Ok(only.clone()),
                Some(why) => Err(StoreError::ReadOnly { why: format!("{}: {why}", only.disk.place()) }),
            };
        }
        let total = volumes.iter().filter(usable).map(|v| v.size_bytes.load(Ordering::Relaxed)).sum::<u64>();
        // Fractions of the golden section spread the turns evenly.
        let mut at =
            ((u128::from(turn.wrapping_mul(0x9e37_79b9_7f4a_7c15)) * u128::from(total)) >> 64) as u64;
        for volume in volumes.iter().filter(usable) {
            let size = volume.size_bytes.load(Ordering::Relaxed);
            if at < size {
                return Ok(volume.clone());
            }
            at -= size;
        }
        match volumes.iter().find(|volume| volume.failed.get().is_none()) {
            Some(volume) => Ok(volume.clone()),
            None => {
                let why = volumes.iter().find_map(|volume| volume.failed.get()).map(|why| why.to_string());
                Err(StoreError::ReadOnly { why: why.unwrap_or_else(|| "there is none".to_owned()) })
            }
        }
    }

    /// Writes records and makes voids, all on one volume and in one group. Cache mode: they count at once. `keys`: given
    /// back when they count.
    pub(crate) fn stage(
        &self,
        records: &[NewRecord<'_>],
        voids: &[(u64, Held)],
        more: Vec<Change>,
        keys: Vec<u64>,
    ) -> Result<Arc<Gate>, StoreError> {
        let give_back = |keys: &[u64]| keys.iter().for_each(|&hash| self.keys.give_back(hash));
        let result = self.stage_on_some(records, voids, more, &keys);
        if result.is_err() || self.mode == Mode::Cache {
            give_back(&keys);
        }
        result
    }

    fn stage_on_some(
        &self,
        records: &[NewRecord<'_>],
        voids: &[(u64, Held)],
        more: Vec<Change>,
        keys: &[u64],
    ) -> Result<Arc<Gate>, StoreError> {
        let mut tries = 0;
        loop {
            if self.closing.load(Ordering::Relaxed) {
                return Err(StoreError::Closed);
            }
            let volume = self.choose()?;
            match self.stage_on(&volume, records, voids, &more, keys) {
                Err(StoreError::Full | StoreError::VolumeFailed { .. })
                    if tries < self.all_volumes().len() * 2 =>
                {
                    tries += 1;
                }
                result => return result,
            }
        }
    }

    fn stage_on(
        &self,
        volume: &Arc<Volume>,
        records: &[NewRecord<'_>],
        voids: &[(u64, Held)],
        more: &[Change],
        keys: &[u64],
    ) -> Result<Arc<Gate>, StoreError> {
        let bytes_max = match self.mode {
            Mode::Store => GROUP_BYTES_MAX,
            Mode::Cache => (self.cache.behind_bytes_max / 2).min(1 << 30) as usize,
        };
        let mut staging = locked(&volume.staging);
        while staging.group.bytes.len() > bytes_max && staging.writing && volume.failed.get().is_none() {
            staging = volume.room.wait(staging).unwrap_or_else(PoisonError::into_inner);
        }
        // All places first: a group is staged whole or not at all.
        let mut taken: Vec<Taken> = Vec::with_capacity(records.len());
        for record in records {
            let blocks = self.shape.blocks(record.head.record_bytes());
            let spot;
            (staging, spot) = self.take(volume, staging, blocks)?;
            taken.push(spot);
        }
        // A void needs an index to be told in.
        let mut void_session = None;
        if !voids.is_empty() {
            let session;
            (staging, session) = self.session(volume, staging)?;
            void_session = Some(session);
        }
        let Staging { group, .. } = &mut *staging;
        let mut changes = Vec::with_capacity(records.len() + voids.len() + more.len());
        for (record, (session, block, place)) in records.iter().zip(taken) {
            self.append(group, record, &session, block);
            let visible = !record.head.internal;
            let blocks = self.shape.blocks(record.head.record_bytes());
            let new = Held { hash: record.hash, place, blocks, visible };
            changes.push(match record.old {
                Some(old) if record.moved => Change::Move { new, old },
                old => Change::Put { new, old },
            });
        }
        for (sequence, held) in voids {
            if let (Some(victim), Some(session)) = (self.victim_of(held), &void_session) {
                let control = Control::Tombstone { sequence: *sequence, hash: held.hash, victim };
                control.encode(session.index_salt, group.control_of(session));
            }
            changes.push(Change::Remove(*held));
        }
        changes.extend_from_slice(more);
        let gate = group.gate.clone();
        let mut after = Vec::new();
        match self.mode {
            Mode::Store => group.keys.extend_from_slice(keys),
            Mode::Cache => {
                volume.dirty.store(true, Ordering::SeqCst);
                after.extend(changes.iter().filter_map(|change| self.settle(change)));
            }
        }
        group.changes.append(&mut changes);
        let wake = match self.mode {
            Mode::Store => true,
            Mode::Cache => staging.oldest.is_none() || staging.group.bytes.len() >= GROUP_BYTES,
        };
        staging.oldest.get_or_insert_with(Instant::now);
        if wake && !staging.writing {
            volume.work.notify_one();
        }
        drop(staging);
        after.iter().for_each(|after| self.do_after(after));
        Ok(gate)
    }

    /// Tells that objects are void, which they are already. The caller flushes.
    pub(crate) fn stage_voids(&self, voids: &[(u64, u64, Victim)]) -> Result<(), StoreError> {
        let volume = self.choose()?;
        let (mut staging, session) = self.session(&volume, locked(&volume.staging))?;
        let Staging { group, .. } = &mut *staging;
        for &(sequence, hash, victim) in voids {
            let control = Control::Tombstone { sequence, hash, victim };
            control.encode(session.index_salt, group.control_of(&session));
        }
        staging.oldest.get_or_insert_with(Instant::now);
        volume.work.notify_one();
        Ok(())
    }

    /// Room in a file being filled, or in the next.
    fn take<'a>(
        &self,
        volume: &'a Volume,
        mut staging: MutexGuard<'a, Staging>,
        blocks: u32,
    ) -> Result<(MutexGuard<'a, Staging>, Taken), StoreError> {
        let mut tries = 0;
        loop {
            if let Some(failure) = volume.failure() {
                return Err(failure);
            }
            let taken = staging.fillings.iter_mut().find_map(|filling| {
                let block = filling.take(blocks)?;
                Some((filling.session.clone(), block, filling.bitmap.free() < filling.free_first / 4))
            });
            if let Some((session, block, nearly_full)) = taken {
                if nearly_full && staging.fillings.len() == 1 && staging.next.is_none() && !staging.want_next
                {
                    (staging.want_next, staging.want_blocks) = (true, blocks);
                    volume.work.notify_one();
                }
                let place = place(session.packed.number, block, blocks, self.shape);
                return Ok((
                    staging,
                    (session, block, place.expect("a store has fewer blocks than a place can say")),
                ));
            }
            tries += 1;
            // A long stretch is not looked for in all files: whoever wants it can do with shorter ones.
            if tries > LONG_TRIES_MAX && blocks as usize * self.shape.block_bytes as usize > SHORT_BYTES {
                return Err(StoreError::Full);
            }
            staging = self.more_room(volume, staging, blocks)?;
        }
    }

    /// Waits until a file is being filled, to write control blocks to.
    fn session<'a>(
        &self,
        volume: &'a Volume,
        mut staging: MutexGuard<'a, Staging>,
    ) -> Result<(MutexGuard<'a, Staging>, Arc<Session>), StoreError> {
        loop {
            if let Some(failure) = volume.failure() {
                return Err(failure);
            }
            if let Some(filling) = staging.fillings.last() {
                let session = filling.session.clone();
                return Ok((staging, session));
            }
            staging = self.more_room(volume, staging, 0)?;
        }
    }

    /// One file more to fill.
    fn more_room<'a>(
        &self,
        volume: &'a Volume,
        mut staging: MutexGuard<'a, Staging>,
        blocks: u32,
    ) -> Result<MutexGuard<'a, Staging>, StoreError> {
        if staging.stop {
            return Err(StoreError::Closed);
        }
        if let Some(next) = staging.next.take() {
            let nearly_none = self.shape.packed_blocks / 64;
            while let Some(at) =
                staging.fillings.iter().position(|filling| filling.bitmap.free() <= nearly_none)
            {
                staging.fillings.remove(at).retire();
            }
            // A cache makes room anyway; and in a small volume those held here would be missed.
            let most = match self.mode {
                Mode::Store => FILLINGS_MAX,
                Mode::Cache => 1,
            };
            if staging.fillings.len() >= most {
                let fullest = (0..most).min_by_key(|&at| staging.fillings[at].bitmap.free());
                staging.fillings.remove(fullest.expect("there are some")).retire();
            }
            staging.fillings.push(next);
            return Ok(staging);
        }
        // The next one looks again: readers may have let go of a file meanwhile.
        if volume.full.swap(false, Ordering::SeqCst) {
            if blocks == 0 || staging.fillings.is_empty() {
                return Err(StoreError::Full);
            }
            // What was deleted in these since they were opened can be had once they are opened anew.
            staging.fillings.drain(..).for_each(Filling::retire);
        }
        (staging.want_next, staging.want_blocks) = (true, blocks);
        volume.work.notify_one();
        Ok(volume.room.wait(staging).unwrap_or_else(PoisonError::into_inner))
    }

    fn append(&self, group: &mut Group, record: &NewRecord<'_>, session: &Arc<Session>, block: u32) {
        let block_bytes = self.shape.block_bytes as usize;
        let start = group.bytes.len();
        record.head.encode(record.key, record.meta, session.body_salt, &mut group.bytes);
        group.bytes.extend_from_slice(record.body);
        let len = group.bytes.len() - start;
        group.bytes.resize(start + len.next_multiple_of(block_bytes), 0);
        let len = group.bytes.len() - start;
        let offset = u64::from(block) * block_bytes as u64;
        match group.runs.last_mut() {
            Some(run) if Arc::ptr_eq(&run.session, session) && run.offset + run.len as u64 == offset => {
                run.len += len
            }
            _ => group.runs.push(Run { session: session.clone(), offset, start, len }),
        }
        if self.mode == Mode::Cache {
            group.records.insert((session.packed.number, block), (start, len));
        }
        let put = Put {
            kind: record.head.kind,
            name: crate::format::Name { internal: record.head.internal, key: record.key },
            sequence: record.head.sequence,
            victim: record.old.as_ref().and_then(|old| self.victim_of(old)),
            block,
            meta_len: record.head.meta_len,
            body_len: record.head.body_len,
            created_s: record.head.created_s,
            expires_s: record.head.expires_s,
            id: record.id,
            length: record.length,
        };
        Control::Put(put).encode(session.index_salt, group.control_of(session));
    }

    /// Makes a change count. Returns what is to be done after it, without locks.
    pub(crate) fn settle(&self, change: &Change) -> Option<After> {
        match change {
            Change::Put { new, old } => {
                let file = self.file(Spot::of(new.place, self.shape).file);
                if let Some(file) = file {
                    file.gain(new.blocks);
                }
                match old {
                    Some(old) if self.table.replace(new.hash, old.place, new.place) => self.let_go(old),
                    _ => {
                        self.table.insert(new.hash, new.place);
                        self.objects.fetch_add(i64::from(new.visible), Ordering::Relaxed);
                    }
                }
            }
            Change::Remove(held) => {
                self.remove(held);
            }
            Change::Move { new, old } => {
                if self.table.replace(new.hash, old.place, new.place) {
                    if let Some(file) = self.file(Spot::of(new.place, self.shape).file) {
                        file.gain(new.blocks);
                    }
                    self.let_go(old);
                }
            }
            Change::Pieces(manifest) => return Some(After::Pieces(manifest.clone())),
            Change::Link(id) => *locked(&self.links).entry(*id).or_insert(0) += 1,
            Change::Unlink(id) => {
                let mut links = locked(&self.links);
                let left = links.get_mut(id)?;
                *left = left.saturating_sub(1);
                if *left == 0 {
                    links.remove(id);
                    return Some(After::Forget(*id));
                }
            }
        }
        None
    }

    pub(crate) fn do_after(&self, after: &After) {
        match after {
            After::Forget(id) => self.forget_shared(*id),
            After::Pieces(manifest) => self.remove_pieces(manifest),
        }
    }

    /// False when it was not there any more.
    pub(crate) fn remove(&self, held: &Held) -> bool {
        let there = self.table.remove(held.hash, held.place);
        if there {
            self.objects.fetch_sub(i64::from(held.visible), Ordering::Relaxed);
            self.let_go(held);
        }
        there
    }

    /// The blocks of a record that counts no more.
    pub(crate) fn let_go(&self, held: &Held) {
        let Some(file) = self.file(Spot::of(held.place, self.shape).file) else { return };
        file.lose(held.blocks);
        self.volume(file.volume).full.store(false, Ordering::SeqCst);
    }
}

/// Where new objects go.
pub(crate) fn filling(session: Session, bitmap: crate::bitmap::Bitmap) -> Filling {
    let free_first = bitmap.free();
    Filling { session: Arc::new(session), bitmap, free_first, vain: u32::MAX }
}
