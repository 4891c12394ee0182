//! How many RPCs a file operation costs: the table in `client/fs.rs`, counted; and what the cache remembers.

use std::path::Path;
use std::time::Duration;

use files::{Access, DirectoryOptions, FileSystem, NfsTarget, OpKind, OpenFile, Target};
use nfs::client::{CacheMode, FsCounters, FsOptions, NfsFs, WriteMode};
use nfs::server::{Server, ServerOptions, serve_dir};

const LONG: CacheMode = CacheMode::For(Duration::from_secs(3600));

struct Served {
    folder: tempfile::TempDir,
    _server: Server,
    target: NfsTarget,
}

fn served() -> Served {
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    let folder = tempfile::Builder::new().prefix("crumb-test").tempdir_in(parent).expect("a scratch folder");
    let server = serve_dir(folder.path(), ServerOptions::default(), DirectoryOptions::default()).unwrap();
    let url = format!("nfs://{}/", server.addr());
    let Ok(Target::Nfs(target)) = url.parse() else { panic!("{url}") };
    Served { folder, _server: server, target }
}

impl Served {
    fn fs(&self, cache: CacheMode, writes: WriteMode) -> NfsFs {
        NfsFs::open(&self.target, &FsOptions { cache, writes, ..FsOptions::default() }).expect("mounted")
    }
}

/// The procedures that `work` called, each with its count.
fn calls_of(fs: &NfsFs, work: impl FnOnce()) -> Vec<(&'static str, u64)> {
    let before = fs.counters();
    work();
    let spent: FsCounters = fs.counters().since(&before);
    let kinds = OpKind::ALL.into_iter().filter(|kind| spent.calls(*kind) > 0);
    kinds.map(|kind| (kind.name(), spent.calls(kind))).collect()
}

fn write_all(file: &mut dyn OpenFile, mut bytes: &[u8], piece: usize) {
    while !bytes.is_empty() {
        let written = file.write(&bytes[..piece.min(bytes.len())]).unwrap();
        bytes = &bytes[written..];
    }
}

fn read_all(file: &mut dyn OpenFile, piece: usize) -> usize {
    let mut buf = vec![0; piece];
    let mut all = 0;
    loop {
        match file.read(&mut buf).unwrap() {
            0 => return all,
            bytes => all += bytes,
        }
    }
}

/// PostMark's four operations on a file of 10 KB, in blocks of 512 bytes.
fn postmark_calls(fs: &NfsFs, path: &str) -> [Vec<(&'static str, u64)>; 4] {
    let path = Path::new(path);
    [
        calls_of(fs, || {
            let mut file = fs.create(path).unwrap();
            file.block_bytes().unwrap();
            write_all(&mut *file, &[7; 10_240], 512);
            file.close().unwrap();
        }),
        calls_of(fs, || {
            let mut file = fs.open(path, Access::Read).unwrap();
            file.block_bytes().unwrap();
            assert_eq!(read_all(&mut *file, 512), 10_240);
            file.close().unwrap();
        }),
        calls_of(fs, || {
            let mut file = fs.open(path, Access::Append).unwrap();
            assert_eq!(file.seek_end().unwrap(), 10_240);
            file.block_bytes().unwrap();
            write_all(&mut *file, &[8; 3000], 512);
            file.close().unwrap();
        }),
        calls_of(fs, || fs.unlink(path).unwrap()),
    ]
}

#[test]
fn postmarks_operations_cost_the_calls_that_the_table_says() {
    let served = served();
    for writes in [WriteMode::Unstable, WriteMode::Stable] {
        let create = vec![("write", 1), ("create", 1)];
        let delete = vec![("remove", 1)];
        let cached = postmark_calls(&served.fs(LONG, writes), "file");
        let append = vec![("getattr", 1), ("write", 1)];
        assert_eq!(cached, [create.clone(), vec![("read", 1)], append, delete.clone()]);

        let bare = postmark_calls(&served.fs(CacheMode::Off, writes), "file");
        let append = vec![("getattr", 2), ("lookup", 1), ("write", 1)];
        assert_eq!(bare, [create, vec![("lookup", 1), ("read", 1)], append, delete]);

        // Below two directories the walk costs two LOOKUPs: once, or every time.
        let fs = served.fs(CacheMode::Off, writes);
        fs.mkdir(Path::new("a")).unwrap();
        fs.mkdir(Path::new("a/b")).unwrap();
        let bare = postmark_calls(&fs, "a/b/file");
        assert_eq!(bare[0], [("lookup", 2), ("write", 1), ("create", 1)]);
        assert_eq!(bare[3], [("lookup", 2), ("remove", 1)]);
        let fs = served.fs(LONG, writes);
        fs.stat(Path::new("a/b")).unwrap();
        let cached = postmark_calls(&fs, "a/b/file");
        assert_eq!(
            (cached[0].clone(), cached[3].clone()),
            (vec![("write", 1), ("create", 1)], vec![("remove", 1)])
        );
        fs.rmdir(Path::new("a/b")).unwrap();
        fs.rmdir(Path::new("a")).unwrap();
    }
}

#[test]
fn a_large_file_is_committed_once_and_a_stable_one_never() {
    let served = served();
    let write = |fs: &NfsFs| {
        let mut file = fs.create(Path::new("large")).unwrap();
        write_all(&mut *file, &vec![1; 3 << 20], 5000);
        file.close().unwrap();
    };
    let fs = served.fs(LONG, WriteMode::Unstable);
    assert_eq!(fs.io_bytes_max(), 1 << 20);
    assert_eq!(calls_of(&fs, || write(&fs)), [("write", 3), ("create", 1), ("commit", 1)]);
    // What is kept until it is durable has a bound: 16 MiB.
    let calls = calls_of(&fs, || {
        let mut file = fs.open(Path::new("large"), Access::Write).unwrap();
        write_all(&mut *file, &vec![1; 34 << 20], 1 << 20);
        file.close().unwrap();
    });
    assert_eq!(calls, [("write", 34), ("commit", 3)]);
    fs.unlink(Path::new("large")).unwrap();
    let fs = served.fs(LONG, WriteMode::Stable);
    assert_eq!(calls_of(&fs, || write(&fs)), [("write", 3), ("create", 1)]);
    let counters = fs.counters();
    assert_eq!((counters.written_bytes, counters.rewritten_bytes), (3 << 20, 0));
    assert!(counters.sent_bytes > 3 << 20 && counters.named().iter().any(|(name, _)| name == "calls_write"));
}

#[test]
fn a_jump_in_a_file_fetches_a_page_and_reading_on_from_there_more() {
    let served = served();
    std::fs::write(served.folder.path().join("table"), vec![7; 1 << 20]).unwrap();
    let fs = served.fs(LONG, WriteMode::Unstable);
    let mut file = fs.open(Path::new("table"), Access::Read).unwrap();
    let mut fetched = |offset: Option<u64>| {
        let before = fs.counters().read_bytes;
        if let Some(offset) = offset {
            file.seek(offset).unwrap();
        }
        assert_eq!(file.read(&mut [0; 128]).unwrap(), 128);
        fs.counters().read_bytes - before
    };
    // From the beginning, as a file is read whole; elsewhere, as a table is.
    assert_eq!(fetched(None), 64 << 10);
    assert_eq!(fetched(Some(500_000)), 4 << 10);
    assert_eq!(fetched(Some(900_000)), 4 << 10);
    // To where the last READ ended is no jump but going on.
    for _ in 1..(4 << 10) / 128 {
        assert_eq!(fetched(None), 0);
    }
    assert_eq!(fetched(None), 64 << 10);
}

#[test]
fn what_is_remembered_costs_nothing_until_its_time_is_over() {
    let served = served();
    std::fs::write(served.folder.path().join("file"), b"12345").unwrap();
    let path = Path::new("file");
    let stat = |fs: &NfsFs| calls_of(fs, || assert_eq!(fs.stat(path).unwrap().size, 5));
    let fs = served.fs(LONG, WriteMode::Unstable);
    assert_eq!(stat(&fs), [("lookup", 1)]);
    assert_eq!(stat(&fs), []);
    assert_eq!(fs.counters().cache_hits, 1);
    let fs = served.fs(CacheMode::Off, WriteMode::Unstable);
    assert_eq!((stat(&fs), stat(&fs)), (vec![("lookup", 1)], vec![("lookup", 1)]));
    // The shortest time there is: over before the next call.
    let fs = served.fs(CacheMode::For(Duration::from_nanos(1)), WriteMode::Unstable);
    assert_eq!((stat(&fs), stat(&fs)), (vec![("lookup", 1)], vec![("lookup", 1)]));
}

#[test]
fn another_clients_change_is_seen_after_the_agreed_time_and_own_ones_at_once() {
    let served = served();
    let path = Path::new("file");
    let mine = served.fs(LONG, WriteMode::Unstable);
    let theirs = served.fs(CacheMode::Off, WriteMode::Unstable);
    let write = |fs: &NfsFs, bytes: &[u8]| {
        let mut file = fs.open(path, Access::Append).unwrap();
        write_all(&mut *file, bytes, 512);
        file.close().unwrap();
    };
    mine.create(path).unwrap().close().unwrap();
    write(&mine, b"mine");
    assert_eq!(mine.stat(path).unwrap().size, 4);
    write(&theirs, b"theirs");
    assert_eq!((mine.stat(path).unwrap().size, theirs.stat(path).unwrap().size), (4, 10));
    // To append is to ask first: nothing of theirs is overwritten.
    write(&mine, b"mine");
    assert_eq!(mine.stat(path).unwrap().size, 14);
    assert_eq!(std::fs::read(served.folder.path().join("file")).unwrap(), b"minetheirsmine");
}

#[test]
fn a_stale_handle_that_was_remembered_is_walked_to_once_more() {
    let served = served();
    let (dir, file) = (served.folder.path().join("dir"), served.folder.path().join("dir/file"));
    let make = |bytes: &[u8]| {
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(&file, bytes).unwrap();
    };
    make(b"old");
    let fs = served.fs(LONG, WriteMode::Unstable);
    let read = |access| {
        let mut file = fs.open(Path::new("dir/file"), access).unwrap();
        let mut buf = [0; 16];
        let bytes = file.read(&mut buf).unwrap();
        buf[..bytes].to_vec()
    };
    assert_eq!(read(Access::Read), b"old");
    // Another client makes all of it anew.
    std::fs::remove_dir_all(&dir).unwrap();
    make(b"new");
    assert_eq!(read(Access::Read), b"new");
    assert_eq!(fs.counters().stale_walks, 1);
    std::fs::remove_dir_all(&dir).unwrap();
    make(b"newer");
    let mut open = fs.open(Path::new("dir/file"), Access::Write).unwrap();
    write_all(&mut *open, b"written", 512);
    open.close().unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), b"written");
    // A directory on the way, too.
    std::fs::remove_dir_all(&dir).unwrap();
    make(b"newest");
    fs.create(Path::new("dir/another")).unwrap().close().unwrap();
    assert!(dir.join("another").exists());
    // But not a file of which this client knows that it is gone.
    let mut open = fs.open(Path::new("dir/another"), Access::Read).unwrap();
    fs.unlink(Path::new("dir/another")).unwrap();
    fs.create(Path::new("dir/another")).unwrap().close().unwrap();
    assert_eq!(open.read(&mut [0; 4]).unwrap_err().status(), Some(files::Status::STALE));
}

#[test]
fn threads_share_connections_and_each_call_has_one_to_itself() {
    let served = served();
    let fs = served.fs(LONG, WriteMode::Unstable);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let fs = &fs;
            scope.spawn(move || {
                for number in 0..50 {
                    let name = format!("{thread}-{number}");
                    fs.create(Path::new(&name)).unwrap().close().unwrap();
                    assert_eq!(fs.stat(Path::new(&name)).unwrap().size, 0);
                    fs.unlink(Path::new(&name)).unwrap();
                }
            });
        }
    });
    let counters = fs.counters();
    assert_eq!((counters.calls(OpKind::Create), counters.calls(OpKind::Remove)), (400, 400));
    assert!((1..=8).contains(&counters.connections), "{}", counters.connections);
    assert_eq!(served.folder.path().read_dir().unwrap().count(), 0);
}
