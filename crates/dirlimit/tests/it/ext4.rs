//! A directory of ext4 refuses a name within the range that was predicted, long before and shortly before.

use std::fs;
use std::path::{Path, PathBuf};

use dirlimit::{DirectoryPrediction, Limit, Names, directory};
use rustix::io::Errno;
use testkit::LoopImage;

/// An inode has at most 65,000 links.
const LINKS_MAX: u64 = 60_000;

/// A directory that gets names of one length, all of them links to few files.
struct Filled {
    directory: PathBuf,
    sources: PathBuf,
    name_bytes: usize,
    names: u64,
}

impl Filled {
    fn new(image: &LoopImage, name_bytes: usize) -> Self {
        let (directory, sources) = (image.path().join("names"), image.path().join("sources"));
        for path in [&directory, &sources] {
            fs::create_dir(path).expect("an empty image");
        }
        Self { directory, sources, name_bytes, names: 0 }
    }

    /// Makes names until there are `names`, or one is refused; the error of that one.
    fn up_to(&mut self, names: u64) -> Option<Errno> {
        while self.names < names {
            let source = self.sources.join((self.names / LINKS_MAX).to_string());
            if self.names.is_multiple_of(LINKS_MAX) {
                fs::write(&source, "").expect("room for a file");
            }
            let name = self.directory.join(format!("{:0width$}", self.names, width = self.name_bytes));
            if let Err(error) = fs::hard_link(&source, name) {
                return Some(Errno::from_io_error(&error).expect("an error of the kernel"));
            }
            self.names += 1;
        }
        None
    }

    fn predicted(&self) -> Names {
        let predicted = directory(&self.directory).expect("readable");
        assert_eq!((predicted.names, predicted.name_bytes), (self.names, self.name_bytes as f64));
        let Limit::Index(names) = predicted.limit else { panic!("no range: {predicted:?}") };
        names
    }
}

/// What names are hashed with is the same each time: with one that is drawn, about one directory in a hundred is outside of its
/// range by design (see `dirlimit::Names`).
const HASH_SEED: &str = "hash_seed=5eed0f00-0000-4000-8000-000000000001";

fn image(flags: &[&str]) -> Option<LoopImage> {
    let common = ["-b", "1024", "-N", "1024", "-E", HASH_SEED, "-O"];
    LoopImage::needed("ext4", 64 << 20, &[&common, flags].concat())
}

fn assert_predicted(name_bytes: usize, early: u64, late: u64) {
    let Some(image) = image(&["^has_journal"]) else { return };
    let mut filled = Filled::new(&image, name_bytes);
    let ranges = [early, late].map(|names| {
        assert_eq!(filled.up_to(names), None, "{name_bytes}: refused at {}", filled.names);
        filled.predicted()
    });
    assert_eq!(filled.up_to(1_000_000), Some(Errno::NOSPC));
    let space = rustix::fs::statvfs(image.path()).expect("a file system");
    assert!(space.f_bfree > 1000 && space.f_ffree > 500, "it is the index that is full");
    for (range, at) in ranges.iter().zip([early, late]) {
        let width = (range.high - range.low) / range.low.midpoint(range.high);
        assert!(width <= 0.15, "{name_bytes}: from {at} names, {range:?} is {width:.3} wide");
        let refused = filled.names as f64;
        assert!(
            range.low <= refused && refused <= range.high,
            "{name_bytes}: predicted at {at} names, {refused} is outside of {range:?}"
        );
    }
}

#[test]
fn a_directory_of_names_of_16_bytes_refuses_one_within_the_range() {
    assert_predicted(16, 1000, 150_000);
}

#[test]
fn a_directory_of_names_of_40_bytes_refuses_one_within_the_range() {
    assert_predicted(40, 1, 100_000);
}

#[test]
fn where_names_were_removed_the_range_begins_at_what_is_left() {
    let Some(image) = image(&["^has_journal"]) else { return };
    let mut filled = Filled::new(&image, 40);
    assert_eq!(filled.up_to(60_000), None);
    // The oldest, whose hashes are anywhere. A listing would give them in the order of their hashes.
    for number in 0..40_000 {
        fs::remove_file(filled.directory.join(format!("{number:040}"))).expect("a name that is there");
    }
    let predicted = predicted(&filled.directory);
    assert_eq!(predicted.names, 20_000);
    let Limit::Index(range) = predicted.limit else { panic!("no range: {predicted:?}") };
    assert_eq!(filled.up_to(1_000_000), Some(Errno::NOSPC));
    let refused = (filled.names - 40_000) as f64;
    assert!(range.low <= refused && refused <= range.high, "{refused} is outside of {range:?}");
}

fn predicted(path: &Path) -> DirectoryPrediction {
    directory(path).expect("readable")
}

#[test]
fn features_of_the_file_system_decide_whether_there_is_a_limit() {
    for (feature, expected) in [("large_dir", Limit::LargeDir), ("^dir_index", Limit::NoIndex)] {
        let Some(image) = image(&[feature]) else { return };
        let mut filled = Filled::new(&image, 16);
        assert_eq!(filled.up_to(500), None);
        assert_eq!(predicted(&filled.directory).limit, expected, "{feature}");
    }
    let Some(image) = image(&["^metadata_csum"]) else { return };
    let mut filled = Filled::new(&image, 40);
    assert_eq!(filled.up_to(20_000), None);
    let range = filled.predicted();
    assert_eq!(filled.up_to(1_000_000), Some(Errno::NOSPC));
    assert!((range.low..=range.high).contains(&(filled.names as f64)), "{} in {range:?}", filled.names);
}
