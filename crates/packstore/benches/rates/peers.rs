//! Who is compared, all by the same calls: one file an object, rows of a database, the packed store.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use disk::{Disk, LocalDisk};
use packstore::{Mode, OpenOptions, Pending, PutOptions, Store, StoreOptions, VolumeSpec};
use rusqlite::{Connection, OptionalExtension as _};

use crate::load::{Load, key};

/// Holds objects by number.
pub trait Peer: Sync {
    /// Puts one. A durable peer returns when it survives loss of power.
    fn put(&self, at: usize, body: &[u8]);
    /// Puts several, which all survive loss of power when it returns, in the way that this peer has for it.
    fn put_durably(&self, from: usize, bodies: &[&[u8]]);
    /// All that was put is written, or at least handed to the kernel.
    fn flush(&self);
    /// The whole body; false when there is none.
    fn get(&self, at: usize, body: &mut Vec<u8>) -> bool;
}

/// How to come by one.
pub struct Kind {
    pub name: &'static str,
    /// In an empty directory, durable or not.
    pub make: fn(&Path, &Load, bool) -> Box<dyn Peer>,
    /// Where one was made and dropped; it has nothing in memory.
    pub open: fn(&Path) -> Box<dyn Peer>,
}

/// The first is what the others are compared with.
pub const KINDS: [Kind; 4] = [
    Kind {
        name: "files",
        make: |dir, _, durable| Box::new(Files::make(dir, durable)),
        open: |dir| Box::new(Files { dir: dir.to_owned(), durable: false }),
    },
    Kind {
        name: "SQLite",
        make: |dir, load, durable| Box::new(Rows::make(dir, load, durable)),
        open: |dir| Box::new(Rows::open(dir)),
    },
    Kind {
        name: "store",
        make: |dir, load, durable| Box::new(Packed::make(dir, load, durable)),
        open: |dir| Box::new(Packed::open(dir)),
    },
    // Whether it gains anything today to split one disk into many small volumes, as the KOTETU talk did (disk splicing).
    Kind {
        name: "in 8 parts",
        make: |dir, load, durable| Box::new(Packed::make_in_parts(dir, load, durable)),
        open: |dir| Box::new(Packed::open_in_parts(dir)),
    },
];

const PARTS: usize = 8;

/// One file an object, in 1,024 directories by number.
struct Files {
    dir: PathBuf,
    durable: bool,
}

impl Files {
    fn make(dir: &Path, durable: bool) -> Self {
        let files = Self { dir: dir.to_owned(), durable };
        (0..1024).for_each(|at| {
            fs::create_dir_all(files.path(at).parent().expect("a directory")).expect("made");
        });
        files
    }

    fn path(&self, at: usize) -> PathBuf {
        self.dir.join(format!("{:02x}/{:02x}/{at:09}", at % 16, at / 16 % 64))
    }
}

impl Peer for Files {
    fn put(&self, at: usize, body: &[u8]) {
        let mut file = File::create_new(self.path(at)).expect("made");
        file.write_all(body).expect("written");
        if self.durable {
            file.sync_all().expect("synced");
        }
    }

    /// A file is synced by itself.
    fn put_durably(&self, from: usize, bodies: &[&[u8]]) {
        bodies.iter().enumerate().for_each(|(at, body)| self.put(from + at, body));
    }

    fn flush(&self) {}

    fn get(&self, at: usize, body: &mut Vec<u8>) -> bool {
        let Ok(mut file) = File::open(self.path(at)) else { return false };
        body.resize(file.metadata().expect("told").len() as usize, 0);
        file.read_exact(body).expect("read");
        true
    }
}

/// Bodies as BLOBs of a table with the key as its primary one, in WAL mode; not durable, 256 puts are one transaction.
struct Rows {
    connection: Mutex<(Connection, u32)>,
    durable: bool,
}

const PUTS_OF_TRANSACTION: u32 = 256;

impl Rows {
    fn make(dir: &Path, load: &Load, durable: bool) -> Self {
        let connection = Connection::open(dir.join("objects.db")).expect("made");
        let synchronous = if durable { "FULL" } else { "OFF" };
        // As much memory as would hold all pages, so that both are served from memory when it is warm.
        let cache_kib = load.total_bytes() / 512;
        connection
            .execute_batch(&format!(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; PRAGMA cache_size = -{cache_kib};
                 CREATE TABLE objects (key TEXT PRIMARY KEY, body BLOB NOT NULL);"
            ))
            .expect("a table");
        Self { connection: Mutex::new((connection, 0)), durable }
    }

    fn open(dir: &Path) -> Self {
        let connection = Connection::open(dir.join("objects.db")).expect("it opens");
        Self { connection: Mutex::new((connection, 0)), durable: false }
    }
}

impl Peer for Rows {
    fn put(&self, at: usize, body: &[u8]) {
        let mut turn = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let (connection, open) = &mut *turn;
        if !self.durable && *open == 0 {
            connection.execute_batch("BEGIN").expect("begun");
        }
        let mut insert = connection.prepare_cached("INSERT INTO objects VALUES (?1, ?2)").expect("right");
        insert.execute((key(at), body)).expect("put");
        drop(insert);
        *open += 1;
        if !self.durable && *open == PUTS_OF_TRANSACTION {
            connection.execute_batch("COMMIT").expect("committed");
            *open = 0;
        }
    }

    /// One transaction.
    fn put_durably(&self, from: usize, bodies: &[&[u8]]) {
        let mut turn = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = turn.0.transaction().expect("begun");
        for (at, body) in bodies.iter().enumerate() {
            let mut insert =
                transaction.prepare_cached("INSERT INTO objects VALUES (?1, ?2)").expect("right");
            insert.execute((key(from + at), body)).expect("put");
        }
        transaction.commit().expect("committed");
    }

    fn flush(&self) {
        let mut turn = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.durable && std::mem::take(&mut turn.1) > 0 {
            turn.0.execute_batch("COMMIT").expect("committed");
        }
    }

    fn get(&self, at: usize, body: &mut Vec<u8>) -> bool {
        let turn = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let mut select = turn.0.prepare_cached("SELECT body FROM objects WHERE key = ?1").expect("right");
        let found = select
            .query_row([key(at)], |row| {
                body.clear();
                body.extend_from_slice(row.get_ref(0)?.as_blob()?);
                Ok(())
            })
            .optional();
        found.expect("asked").is_some()
    }
}

/// The packed store: as a cache when it is not durable.
pub struct Packed {
    pub store: Store,
}

pub fn disk(dir: &Path) -> Arc<dyn Disk> {
    Arc::new(LocalDisk::open(dir).expect("it opens"))
}

impl Packed {
    pub fn make(dir: &Path, load: &Load, durable: bool) -> Self {
        Self::make_on(vec![disk(dir)], load, durable)
    }

    pub fn open(dir: &Path) -> Self {
        Self::open_on(vec![disk(dir)])
    }

    fn parts(dir: &Path) -> Vec<Arc<dyn Disk>> {
        let part = |number| {
            let part = dir.join(format!("part-{number}"));
            fs::create_dir_all(&part).expect("made");
            disk(&part)
        };
        (0..PARTS).map(part).collect()
    }

    fn make_in_parts(dir: &Path, load: &Load, durable: bool) -> Self {
        Self::make_on(Self::parts(dir), load, durable)
    }

    fn open_in_parts(dir: &Path) -> Self {
        Self::open_on(Self::parts(dir))
    }

    /// The volumes together are as large as one would be.
    fn make_on(disks: Vec<Arc<dyn Disk>>, load: &Load, durable: bool) -> Self {
        let mode = if durable { Mode::Store } else { Mode::Cache };
        let size_bytes = (load.total_bytes() * 3 / 2 + (64 << 20)) / disks.len() as u64;
        let volumes = disks.into_iter().map(|disk| VolumeSpec { disk, size_bytes }).collect();
        let options =
            StoreOptions { mode, object_bytes_mean: load.mean_bytes().max(1), ..StoreOptions::default() };
        let store = Store::create(volumes, options).expect("made");
        // The first segment is made with the first put.
        store.put(b"first", b"", PutOptions::default()).expect("put");
        Self { store }
    }

    fn open_on(disks: Vec<Arc<dyn Disk>>) -> Self {
        let store = Self { store: Store::open(disks, OpenOptions::default()).expect("it opens") };
        // A cache that was not closed misses until it knows what it has.
        store.store.flush().expect("nothing to flush");
        store.store.iter().map(drop).expect("it knows what it has");
        store
    }
}

impl Peer for Packed {
    fn put(&self, at: usize, body: &[u8]) {
        self.store.put(key(at).as_bytes(), body, PutOptions::default()).expect("put");
    }

    /// All on their way at once.
    fn put_durably(&self, from: usize, bodies: &[&[u8]]) {
        let put = |(at, body): (usize, &&[u8])| {
            self.store.put_deferred(key(from + at).as_bytes(), body, PutOptions::default()).expect("put")
        };
        let pending: Vec<Pending> = bodies.iter().enumerate().map(put).collect();
        pending.into_iter().for_each(|put| put.wait().expect("durable"));
    }

    fn flush(&self) {
        self.store.flush().expect("flushed");
    }

    fn get(&self, at: usize, body: &mut Vec<u8>) -> bool {
        let Some(object) = self.store.get(key(at).as_bytes()).expect("whole") else { return false };
        match object.whole() {
            // Read for us already.
            Some(bytes) => {
                std::hint::black_box(bytes);
            }
            None => *body = object.read_all().expect("read"),
        }
        true
    }
}
