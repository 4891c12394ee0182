//! Trees and tar streams in and out of a real store, and what must not happen on the way.

use std::cell::Cell;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use disk::LocalDisk;
use packfs::{Getting, Got, PackFsError, Put, Putting, WatchGet, WatchPut};
use packstore::{PutOptions, Store, StoreOptions, VolumeSpec};
use tempfile::TempDir;

/// What was refused, with the reason.
#[derive(Default)]
struct Refused(Vec<String>);

impl WatchPut for Refused {
    fn refused(&mut self, what: &str, why: &str) {
        self.0.push(format!("{what}: {why}"));
    }

    fn went(&mut self, _put: &Put) {}
}

impl WatchGet for Refused {
    fn refused(&mut self, key: &[u8], why: &str) {
        self.0.push(format!("{}: {why}", packfs::shown(key)));
    }

    fn step(&mut self, _got: &Got, _of: u64) {}
}

struct Place {
    directory: TempDir,
    store: Store,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("store")).expect("made");
        let disk = LocalDisk::open(directory.path().join("store")).expect("it opens");
        let volume = VolumeSpec { disk: Arc::new(disk), size_bytes: 16 << 20 };
        let store = Store::create(vec![volume], StoreOptions::default()).expect("a new store");
        Self { directory, store }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn put(
        &self,
        what: impl FnOnce(&mut Putting<'_>) -> Result<(), PackFsError>,
    ) -> (Result<Put, PackFsError>, Vec<String>) {
        let (stop, mut refused) = (AtomicBool::new(false), Refused::default());
        let own = fs::metadata(self.path("store")).expect("it is there");
        let mut putting = Putting::new(&self.store, vec![(own.dev(), own.ino())], &stop, &mut refused);
        let done = what(&mut putting);
        putting.settle().expect("settled");
        let put = putting.put();
        (done.map(|()| put), refused.0)
    }

    fn get_below(&self, name: &str) -> (Got, Vec<String>) {
        let (stop, mut refused) = (AtomicBool::new(false), Refused::default());
        let mut getting = Getting::new(&self.store, &stop, &mut refused);
        let wanted = getting.wanted(None).expect("listed");
        getting.write_below(&self.path(name), &wanted).expect("written");
        (getting.got(), refused.0)
    }
}

/// An entry whose path the library that makes streams would refuse.
fn add(stream: &mut tar::Builder<Vec<u8>>, kind: tar::EntryType, path: &str, target: &str, body: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
    header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(body.len() as u64);
    header.set_cksum();
    stream.append(&header, body).expect("in memory");
}

#[test]
fn a_stream_that_leads_out_by_names_and_by_links_writes_nothing_outside() {
    let place = Place::new();
    fs::create_dir(place.path("outside")).expect("made");
    let outside = place.path("outside").display().to_string();
    let mut stream = tar::Builder::new(Vec::new());
    add(&mut stream, tar::EntryType::Regular, "../outside/by-name", "", b"1");
    add(&mut stream, tar::EntryType::Symlink, "link", &outside, b"");
    add(&mut stream, tar::EntryType::Regular, "link/by-link", "", b"1");
    add(&mut stream, tar::EntryType::Link, "hard", "../outside/none", b"");
    add(&mut stream, tar::EntryType::Fifo, "pipe", "", b"");
    add(&mut stream, tar::EntryType::Regular, "/absolute", "", b"12345");
    let bytes = stream.into_inner().expect("in memory");
    let (put, refused) = place.put(|putting| putting.tar(&bytes[..]));
    assert_eq!((put.expect("put").files, refused.len()), (2, 3), "{refused:?}");
    for (key, body) in [(&b"../outside/x"[..], b"1"), (b"/outside/x", b"1"), (b"a//b", b"1")] {
        place.store.put(key, body, PutOptions::default()).expect("put");
    }
    let (got, refused) = place.get_below("back");
    assert_eq!(fs::read(place.path("back/absolute")).expect("written"), b"12345");
    // Links come last: the file below one of them is in a directory of its name, and the link is not made over it.
    assert_eq!(fs::read(place.path("back/link/by-link")).expect("written"), b"1");
    assert!(fs::symlink_metadata(place.path("back/link")).expect("there").is_dir());
    assert_eq!((got.files, refused.len()), (2, 4), "{refused:?}");
    assert_eq!(fs::read_dir(place.path("outside")).expect("there").count(), 0);
}

#[test]
fn what_is_there_is_not_written_through() {
    let place = Place::new();
    for key in [&b"directory/file"[..], b"file"] {
        place.store.put(key, b"new", PutOptions::default()).expect("put");
    }
    fs::create_dir_all(place.path("outside")).expect("made");
    fs::write(place.path("outside/kept"), b"old").expect("written");
    fs::create_dir(place.path("back")).expect("made");
    symlink(place.path("outside"), place.path("back/directory")).expect("linked");
    symlink(place.path("outside/kept"), place.path("back/file")).expect("linked");
    let (got, refused) = place.get_below("back");
    assert!(
        got.files == 1 && matches!(&refused[..], [only] if only.contains("is there and no directory")),
        "{refused:?}"
    );
    assert_eq!(fs::read(place.path("back/file")).expect("there"), b"new");
    assert!(!fs::symlink_metadata(place.path("back/file")).expect("there").is_symlink());
    assert_eq!(fs::read(place.path("outside/kept")).expect("there"), b"old");
    assert_eq!(fs::read_dir(place.path("outside")).expect("there").count(), 1);
}

#[test]
fn a_tree_comes_back_by_files_and_by_a_stream_and_the_store_is_never_put_into_itself() {
    let place = Place::new();
    fs::create_dir_all(place.path("tree/deep/empty")).expect("made");
    let large: Vec<u8> = (0..700_000_u32).map(|at| (at % 251) as u8).collect();
    fs::write(place.path("tree/deep/large"), &large).expect("written");
    fs::hard_link(place.path("tree/deep/large"), place.path("tree/twin")).expect("linked");
    symlink("../nowhere", place.path("tree/link")).expect("linked");
    let root = place.directory.path().to_owned();
    let (put, refused) = place.put(|putting| putting.tree(root, Vec::new()));
    let expected = Put { files: 1, bytes: 700_000, directories: 3, symlinks: 1, hard_links: 1, refused: 1 };
    assert_eq!(put.expect("put"), expected, "{refused:?}");
    assert!(refused[0].ends_with("is the store itself"), "{refused:?}");
    let (stop, mut watch) = (AtomicBool::new(false), Refused::default());
    let mut getting = Getting::new(&place.store, &stop, &mut watch);
    let keys: [&[u8]; 1] = [b"tree"];
    let wanted = getting.wanted(Some(&keys)).expect("listed");
    let mut stream = Vec::new();
    getting.write_tar(&mut stream, &wanted).expect("written");
    assert!(getting.looked_below());
    let other = Place::new();
    let (put, refused) = other.put(|putting| putting.tar(&stream[..]));
    assert_eq!((put.expect("put"), refused), (Put { refused: 0, ..expected }, vec![]));
    for place in [&place, &other] {
        let (got, refused) = place.get_below("back");
        assert_eq!((got.files, got.directories, got.links, refused), (1, 3, 2, vec![]));
        let back = |name: &str| fs::metadata(place.path("back/tree").join(name)).expect("there");
        assert!(fs::read(place.path("back/tree/twin")).expect("there") == large);
        assert_eq!((back("twin").ino(), back("twin").nlink()), (back("deep/large").ino(), 2));
        assert!(back("deep/empty").is_dir());
        assert_eq!(fs::read_link(place.path("back/tree/link")).expect("a link"), Path::new("../nowhere"));
    }
}

/// Symptom: of a stream that broke off within an entry, the first half of that entry was an object. Cause: the reader of tar streams takes
/// the stream's end for the entry's, and finds out with the next one.
#[test]
fn a_stream_that_is_empty_breaks_off_or_cannot_be_read_is_an_error_and_what_came_before_is_put() {
    let place = Place::new();
    let (put, _) = place.put(|putting| putting.tar(&b""[..]));
    assert!(matches!(put, Err(PackFsError::EmptyStream)), "{put:?}");
    let mut stream = tar::Builder::new(Vec::new());
    add(&mut stream, tar::EntryType::Regular, "whole", "", b"12345");
    add(&mut stream, tar::EntryType::Regular, "half", "", &[7; 2000]);
    let bytes = stream.into_inner().expect("in memory");
    let (put, _) = place.put(|putting| putting.tar(&bytes[..2048]));
    assert!(matches!(&put, Err(PackFsError::BrokenStream { what, .. }) if what == "half"), "{put:?}");
    let (put, _) = place.put(|putting| putting.tar(&[0xa5; 2048][..]));
    assert!(matches!(put, Err(PackFsError::Stream(_))), "{put:?}");
    assert!(place.store.get(b"whole").expect("readable").is_some());
    assert!(place.store.get(b"half").expect("readable").is_none());
    // One that is streamed, too.
    let mut stream = tar::Builder::new(Vec::new());
    add(&mut stream, tar::EntryType::Regular, "half", "", &vec![7; 900_000]);
    let bytes = stream.into_inner().expect("in memory");
    let (put, _) = place.put(|putting| putting.tar(&bytes[..600_000]));
    assert!(matches!(&put, Err(PackFsError::BrokenStream { .. })), "{put:?}");
    assert!(place.store.get(b"half").expect("readable").is_none());
    struct Broken;
    impl io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("pulled out"))
        }
    }
    let (put, refused) = place.put(|putting| putting.object(Broken, b"key"));
    assert_eq!((put.expect("the others go on").refused, refused), (1, vec!["key: pulled out".to_owned()]));
}

/// Symptom: a stream that was cut off between two entries was put without a word. Cause: the reader of tar streams takes the end
/// of its input for the end blocks. Fix: the input notes that it was read to its end.
#[test]
fn a_stream_cut_off_between_two_entries_is_an_error_and_what_came_before_is_put() {
    let place = Place::new();
    let mut stream = tar::Builder::new(Vec::new());
    add(&mut stream, tar::EntryType::Regular, "first", "", b"12345");
    add(&mut stream, tar::EntryType::Regular, "second", "", &[0; 512]);
    add(&mut stream, tar::EntryType::Regular, "third", "", b"");
    let bytes = stream.into_inner().expect("in memory");
    for (end, last) in [(1024, "first"), (2048, "second"), (2560, "third")] {
        let (put, _) = place.put(|putting| putting.tar(&bytes[..end]));
        assert!(matches!(&put, Err(PackFsError::CutStream { last: told }) if told == last), "{end}: {put:?}");
    }
    assert!(place.store.get(b"second").expect("readable").is_some());
    // One of the two end blocks is enough, and what follows them is not read.
    for rest in [&[0; 512][..], &[0; 1024], &[0; 10_240]] {
        let whole = [&bytes[..2560], rest].concat();
        let (put, refused) = place.put(|putting| putting.tar(&whole[..]));
        assert_eq!((put.expect("put").files, refused.len()), (3, 0));
    }
}

/// Adds a pax header for the next entry.
fn add_pax(stream: &mut tar::Builder<Vec<u8>>, records: &[u8]) {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::XHeader);
    header.set_size(records.len() as u64);
    header.set_cksum();
    stream.append(&header, records).expect("in memory");
}

/// Symptom: `pack put` took as much memory as a tar header claimed. Cause: the reader of tar streams keeps a long name or a pax
/// header in memory, and nothing bounded its length.
#[test]
fn a_tar_header_that_is_too_long_ends_the_stream_before_it_is_read() {
    for kind in [tar::EntryType::XHeader, tar::EntryType::GNULongName, tar::EntryType::XGlobalHeader] {
        let bytes = 600 << 20;
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_size(bytes);
        header.set_cksum();
        let read = Cell::new(0);
        let stream = Counted { from: io::repeat(b'x').take(bytes), read: &read };
        let stream = io::BufReader::new(io::Cursor::new(header.as_bytes().to_vec()).chain(stream));
        let (result, _) = Place::new().put(|putting| putting.tar(stream));
        let error = result.expect_err("it is refused");
        assert!(read.get() < 2 << 20, "{kind:?}: {} bytes read", read.get());
        assert!(format!("{error:?}").contains("bytes"), "{kind:?}: {error:?}");
    }
}

/// A reader that counts what was read.
struct Counted<'a, R> {
    from: R,
    read: &'a Cell<u64>,
}

impl<R: io::Read> io::Read for Counted<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(bytes)?;
        self.read.set(self.read.get() + read as u64);
        Ok(read)
    }
}

/// Symptom: a file was cut short, or took what follows it for its own. Cause: a length in a pax header that is not a number was
/// passed over, and the header's, which may be anything then, was taken.
#[test]
fn a_pax_header_with_a_damaged_record_or_number_ends_the_stream() {
    let damaged: [&[u8]; 5] =
        [b"12 size=1z3\n", b"11 size=-5\n", b"99 size=5\n", b"13 mtime=1.x\n", b"8 uid=\xff\n"];
    for records in damaged {
        let place = Place::new();
        let mut stream = tar::Builder::new(Vec::new());
        add(&mut stream, tar::EntryType::Regular, "before", "", b"12345");
        add_pax(&mut stream, records);
        add(&mut stream, tar::EntryType::Regular, "file", "", b"12345");
        let bytes = stream.into_inner().expect("in memory");
        let (put, _) = place.put(|putting| putting.tar(&bytes[..]));
        let what = records.escape_ascii();
        assert!(
            matches!(&put, Err(PackFsError::BrokenStream { what, .. }) if what == "file"),
            "{what}: {put:?}"
        );
        assert!(place.store.get(b"before").expect("readable").is_some(), "{what}");
        assert!(place.store.get(b"file").expect("readable").is_none(), "{what}");
    }
    let place = Place::new();
    let mut stream = tar::Builder::new(Vec::new());
    add_pax(&mut stream, b"10 size=5\n19 mtime=-1.000001\n7 uid=\n");
    add(&mut stream, tar::EntryType::Regular, "file", "", b"12345");
    let bytes = stream.into_inner().expect("in memory");
    let (put, refused) = place.put(|putting| putting.tar(&bytes[..]));
    assert_eq!((put.expect("put").files, refused.len()), (1, 0), "{refused:?}");
}

#[test]
fn an_entry_without_a_name_and_one_whose_path_holds_a_zero_byte_are_refused_and_told() {
    let place = Place::new();
    let mut stream = tar::Builder::new(Vec::new());
    add(&mut stream, tar::EntryType::Directory, "./", "", b"");
    add(&mut stream, tar::EntryType::Regular, "", "", b"12345");
    add(&mut stream, tar::EntryType::Regular, "/", "", b"12345");
    add_pax(&mut stream, b"12 path=a\0b\n");
    add(&mut stream, tar::EntryType::Regular, "short", "", b"12345");
    add_pax(&mut stream, b"16 linkpath=a\0b\n");
    add(&mut stream, tar::EntryType::Symlink, "link", "short", b"");
    add(&mut stream, tar::EntryType::Regular, "last", "", b"12345");
    let bytes = stream.into_inner().expect("in memory");
    let (put, refused) = place.put(|putting| putting.tar(&bytes[..]));
    assert_eq!(put.expect("put").objects(), 1, "{refused:?}");
    assert!(place.store.get(b"last").expect("readable").is_some());
    let why = |what: &str| refused.iter().filter(|refused| refused.contains(what)).count();
    assert_eq!((why("has no name"), why("holds a zero byte"), refused.len()), (2, 2, 4), "{refused:?}");
}
