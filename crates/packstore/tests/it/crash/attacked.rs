//! Random damage to indexes and data files of a durable store: no wrong bytes, and a repair only adds to what can be read.
//!
//! 1. A store is filled, and closed or killed. What each key names is known.
//! 2. Data files are damaged in one copy of it; data files in the same way, and indexes, in another one.
//! 3. What can be read of the first is what has its data untouched: a repair of the second must bring back all of it.
//!
//! `CRUMB_ATTACK_SEEDS`: how many stores; `CRUMB_ATTACK_FIRST`: the first seed.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use disk::{Disk, DiskOpen};
use packstore::{OpenOptions, PutOptions, Store, StoreError, StoreOptions, VolumeSpec};
use rand::{Rng, RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use testkit::SimulatedDisk;

const KEYS: u64 = 150;
/// A put and its mark, or pieces with theirs.
const LAST_GROUP_BYTES: usize = 1_500;

/// What each key names, and all that it ever named.
#[derive(Default)]
struct Model {
    now: BTreeMap<Vec<u8>, Vec<u8>>,
    ever: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
}

impl Model {
    fn put(&mut self, key: &[u8], body: &[u8]) {
        self.now.insert(key.to_vec(), body.to_vec());
        self.ever.entry(key.to_vec()).or_default().push(body.to_vec());
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("{number:0width$} key", width = (number % 40) as usize).into_bytes()
}

fn body(rng: &mut impl Rng) -> Vec<u8> {
    let length = match rng.random_range(0..30) {
        0 => rng.random_range(200_000..400_000),
        1..4 => rng.random_range(10_000..40_000),
        _ => rng.random_range(0..3_000),
    };
    let mut bytes = vec![0; length];
    rng.fill_bytes(&mut bytes);
    bytes
}

fn open(disk: &SimulatedDisk, options: OpenOptions) -> Result<Store, StoreError> {
    let store = Store::open(vec![Arc::new(disk.clone())], options)?;
    assert!(store.wait_until_ready(Duration::from_secs(60)));
    Ok(store)
}

fn filled(rng: &mut impl Rng) -> (SimulatedDisk, Model, bool) {
    let disk = SimulatedDisk::new("one");
    let volume = VolumeSpec { disk: Arc::new(disk.clone()), size_bytes: 24 << 20 };
    let packed_blocks = Some((512 << 10) / 64);
    let options = StoreOptions { packed_blocks, memory_bytes_max: 0, ..StoreOptions::default() };
    let mut store = Store::create(vec![volume], options).expect("a store");
    let mut model = Model::default();
    let is_dense = rng.random_range(0..3) == 0;
    for _ in 0..rng.random_range(200..500) {
        let name = key(rng.random_range(0..KEYS));
        match rng.random_range(0..24) {
            0..4 => {
                assert_eq!(store.delete(&name).expect("deleted"), model.now.remove(&name).is_some());
            }
            4 => {
                let second = [&name[..], b" again"].concat();
                if store.link(&name, &second).expect("linked") {
                    let bytes = model.now[&name].clone();
                    model.put(&second, &bytes);
                }
            }
            5 if !is_dense => drop(store.compact(1 << 20).expect("compacted")),
            6 => {
                store.close().expect("closed");
                store = open(&disk, OpenOptions::default()).expect("it opens");
            }
            _ => {
                let bytes = body(rng);
                store.put(&name, &bytes, PutOptions::default()).expect("put");
                model.put(&name, &bytes);
            }
        }
    }
    let is_clean = rng.random_range(0..2) == 0;
    if is_clean {
        store.close().expect("closed");
    } else {
        drop(store);
    }
    (disk.process_end(), model, is_clean)
}

/// Other bytes for a file, or another length.
enum Change {
    Write(String, usize, Vec<u8>),
    Cut(String, usize),
}

fn apply(disk: &SimulatedDisk, change: &Change) {
    let (Change::Write(name, ..) | Change::Cut(name, _)) = change;
    let file = disk.open(name, DiskOpen::Write).expect("it opens");
    match change {
        Change::Write(_, at, bytes) => file.write_at(bytes, *at as u64).expect("written"),
        Change::Cut(_, length) => file.set_length(*length as u64).expect("cut off"),
    }
    file.sync().expect("synced");
}

/// A range within a file, at multiples of a sector, of 8 bytes, or anywhere.
fn range(rng: &mut impl Rng, length: usize) -> Range<usize> {
    let step = [1, 8, 64, 512, 4_096][rng.random_range(0..5)];
    let start = rng.random_range(0..length.max(1)) / step * step;
    let bytes = [40, 512, 4_096, 16_384][rng.random_range(0..4)];
    start..(start + bytes).min(length)
}

/// Damage to one of these files, but not to this many bytes at its end.
fn damage(
    disk: &SimulatedDisk,
    names: &[String],
    spared: usize,
    rng: &mut impl Rng,
) -> (String, Vec<Change>) {
    let pick = |rng: &mut dyn Rng| names[(rng.next_u64() % names.len() as u64) as usize].clone();
    let (name, other) = (pick(rng), pick(rng));
    let used = |name: &str| {
        let bytes = disk.bytes(name).expect("it is there");
        let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        bytes[..used.saturating_sub(spared)].to_vec()
    };
    let (bytes, others) = (used(&name), used(&other));
    let from = range(rng, bytes.len());
    let block = bytes[from.clone()].to_vec();
    let to = range(rng, bytes.len()).start.min(bytes.len() - block.len());
    let write = |name: &str, at: usize, bytes: Vec<u8>| Change::Write(name.to_owned(), at, bytes);
    match rng.random_range(0..9) {
        0 => {
            let zeros = write(&name, from.start, vec![0; from.len()]);
            (format!("{name}: {from:?} moved to {to}"), vec![zeros, write(&name, to, block)])
        }
        1 | 2 => (format!("{name}: {from:?} also at {to}"), vec![write(&name, to, block)]),
        3 => (format!("{name}: zeros at {from:?}"), vec![write(&name, from.start, vec![0; from.len()])]),
        4 => {
            let mut noise = block;
            rng.fill_bytes(&mut noise);
            (format!("{name}: noise at {from:?}"), vec![write(&name, from.start, noise)])
        }
        5 => {
            let bits = (0..rng.random_range(1..20)).map(|_| rng.random_range(0..bytes.len().max(1)));
            let flips = bits.filter_map(|at| Some(write(&name, at, vec![bytes.get(at)? ^ 1 << (at % 8)])));
            (format!("{name}: bits flipped"), flips.collect())
        }
        // After a kill an opening only looks for signs of a cut: a check finds it, as other tests show.
        6 if spared == 0 => (format!("{name}: cut at {}", from.start), vec![Change::Cut(name, from.start)]),
        7 => {
            let bytes = [&name, &other].map(|name| disk.bytes(name).expect("it is there"));
            let [mine, theirs] = bytes;
            let whole = [(name.clone(), theirs), (other.clone(), mine)];
            let [one, two] =
                whole.map(|(name, bytes)| [Change::Cut(name.clone(), 0), write(&name, 0, bytes)]);
            (format!("{name} and {other} swapped"), one.into_iter().chain(two).collect())
        }
        _ => {
            let from = from.start..from.end.min(others.len()).max(from.start);
            let theirs = others.get(from.clone()).unwrap_or_default().to_vec();
            let mine = block[..theirs.len().min(block.len())].to_vec();
            let changes = vec![write(&name, from.start, theirs), write(&other, from.start, mine)];
            (format!("{name} and {other}: {from:?} swapped"), changes)
        }
    }
}

/// What can be read, by key.
fn readable(store: &Store, model: &Model) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let read = |key: &Vec<u8>| {
        let object = store.get(key).ok()??;
        Some((key.clone(), object.read_all().ok()?))
    };
    model.ever.keys().filter_map(read).collect()
}

/// One store: what the damage was, and how many objects came back that had been deleted. `None`: a repair refuses.
fn attack(seed: u64) -> Option<u64> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (disk, model, mut is_clean) = filled(&mut rng);
    let names = disk.names().expect("listed");
    let of = |end: &str| names.iter().filter(|name| name.ends_with(end)).cloned().collect::<Vec<_>>();
    let (data, attacked) = (disk.process_end(), disk.process_end());
    let mut what = format!("seed {seed}, clean {is_clean}: ");
    if rng.random_range(0..2) == 0 {
        let (how, changes) = damage(&disk, &of(".body"), 0, &mut rng);
        what.push_str(&format!("{how}; "));
        changes.iter().for_each(|change| [&data, &attacked].into_iter().for_each(|disk| apply(disk, change)));
    }
    // After a kill the loss of the last group in an index looks like a power cut before it was acknowledged.
    let (is_used, is_closed) = (rng.random_range(0..3) == 0, rng.random_range(0..2) == 0);
    // When it is used in between, the table is gone, and the index may have lost tombstones.
    is_clean &= !is_used || is_closed;
    let spared = if is_clean { 0 } else { LAST_GROUP_BYTES };
    for _ in 0..rng.random_range(1..3) {
        let (how, changes) = damage(&attacked, &of(".index"), spared, &mut rng);
        what.push_str(&format!("{how}; "));
        changes.iter().for_each(|change| apply(&attacked, change));
    }
    let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
    let untouched = match open(&data, read_only.clone()) {
        Ok(store) => readable(&store, &model),
        Err(error) => panic!("{what}{error}"),
    };
    let store = open(&attacked, read_only).unwrap_or_else(|error| panic!("{what}{error}"));
    let before = readable(&store, &model);
    let is_reported = !store.missing_parts().expect("looked for").is_empty();
    compare(&before, &untouched, &model, &what);
    for key in untouched.keys().filter(|key| !before.contains_key(*key)) {
        assert!(
            is_reported || store.get(key).is_err(),
            "{what}nothing reports that {} is missing",
            text(key)
        );
    }
    drop(store);
    if is_used {
        what.push_str(if is_closed { "used and closed; " } else { "used; " });
        use_it(&attacked, is_closed, &what);
    }
    let attacked = attacked.process_end();
    let store = open(&attacked, OpenOptions { move_aside: true, ..OpenOptions::default() });
    let store = store.unwrap_or_else(|error| panic!("{what}{error}"));
    match store.repair(|_, _| {}) {
        Err(StoreError::Misplaced { .. }) => return None,
        Err(error) => panic!("{what}{error}"),
        Ok(report) => {
            assert_eq!(report.left, [], "{what}");
            if std::env::var_os("CRUMB_ATTACK_TOLD").is_some() {
                what.push_str(&format!("{report:?}; "));
            }
        }
    }
    let wanted = untouched.keys().chain(before.keys()).collect::<Vec<_>>();
    let mut back = 0;
    let (mut store, mut disk) = (store, attacked);
    for round in 0..3 {
        let when = format!("{what}opening {round}: ");
        let after = readable(&store, &model);
        compare(&after, &untouched, &model, &when);
        all_there(&store, &after, &wanted, &when);
        back = after.keys().filter(|key| !model.now.contains_key(*key)).count() as u64;
        assert!(back == 0 || !is_clean, "{when}what was deleted is back");
        if round == 1 {
            store.close().expect("closed");
        } else {
            drop(store);
        }
        disk = disk.process_end();
        store = open(&disk, OpenOptions::default()).unwrap_or_else(|error| panic!("{when}{error}"));
    }
    Some(back)
}

/// After a repair.
fn all_there(store: &Store, found: &BTreeMap<Vec<u8>, Vec<u8>>, wanted: &[&Vec<u8>], when: &str) {
    if let Some(key) = wanted.iter().find(|key| !found.contains_key(**key)) {
        let got = store.get(key).map(|object| object.map(|object| object.length()));
        panic!("{when}{} is lost: {got:?}", text(key));
    }
    assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{when}");
}

/// Uses a damaged store before it is repaired.
fn use_it(disk: &SimulatedDisk, is_closed: bool, what: &str) {
    let store = open(disk, OpenOptions::default()).unwrap_or_else(|error| panic!("{what}{error}"));
    let put = |number: u64| store.put(&number.to_le_bytes(), &[1; 9_000], PutOptions::default());
    let refused = (0..60).find_map(|number| put(number).err());
    assert!(refused.is_none_or(|error| matches!(error, StoreError::Full)), "{what}put");
    if is_closed {
        store.close().expect("closed");
    }
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

/// What is read is what was put last where the data of that is untouched, and something that was put else.
fn compare(
    found: &BTreeMap<Vec<u8>, Vec<u8>>,
    untouched: &BTreeMap<Vec<u8>, Vec<u8>>,
    model: &Model,
    when: &str,
) {
    for (key, bytes) in found {
        assert!(model.ever[key].contains(bytes), "{when}{} was never put so", text(key));
        if untouched.contains_key(key) && model.now.contains_key(key) {
            let age = model.ever[key].iter().rev().position(|other| other == bytes);
            assert!(model.now[key] == *bytes, "{when}{} is {age:?} versions old", text(key));
        }
    }
}

#[test]
fn whatever_is_damaged_no_wrong_bytes_are_read_and_a_repair_takes_nothing_and_brings_back_what_is_whole() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("CRUMB_ATTACK_FIRST").unwrap_or(0);
    let seeds = number("CRUMB_ATTACK_SEEDS").unwrap_or(60);
    let (mut refused, mut back, mut failed) = (0, 0, Vec::new());
    for seed in first..first + seeds {
        match std::panic::catch_unwind(|| attack(seed)) {
            Ok(Some(deleted)) => back += deleted,
            Ok(None) => refused += 1,
            Err(_) => failed.push(seed),
        }
    }
    let _ = writeln!(
        std::io::stderr(),
        "{seeds} stores: {refused} repairs refused, {back} deleted objects are back"
    );
    assert!(failed.is_empty(), "seeds {failed:?} failed as shown above");
    assert!(refused <= seeds / 4, "{refused} of {seeds} repairs refused");
}
