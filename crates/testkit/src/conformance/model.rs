//! Random operations, compared with a model in memory after each.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use files::{Access, Status, SyncScope};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Case, Ground, assert_fails, cases, write_all};

pub(super) const CASES: &[Case] = cases![random_operations_do_what_a_model_does,];

const DIRECTORIES: usize = 3;
const NAMES: usize = 8;
const FILE_BYTES_MAX: usize = 150_000;

/// A directory and a name in it.
type Name = (usize, usize);

/// Files by name; two names of one file hold the same `Rc`.
type Files = BTreeMap<Name, Rc<RefCell<Vec<u8>>>>;

struct Run<'g> {
    ground: &'g Ground<'g>,
    rng: Xoshiro256PlusPlus,
    files: Files,
}

fn random_operations_do_what_a_model_does(g: &Ground<'_>) {
    for number in 0..DIRECTORIES {
        g.dir(format!("d{number}"));
    }
    let rng = Xoshiro256PlusPlus::seed_from_u64(g.quirks.seed);
    let mut run = Run { ground: g, rng, files: Files::new() };
    for step in 0..g.quirks.random_operations {
        let kind = run.rng.random_range(0..11_u32);
        let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.step(kind)));
        assert!(said.is_ok(), "seed {}: operation {step} (of kind {kind}) failed", g.quirks.seed);
    }
    for (name, bytes) in &run.files {
        assert!(g.contents(&run.path(*name)) == *bytes.borrow(), "seed {}: {name:?}", g.quirks.seed);
    }
}

impl Run<'_> {
    fn path(&self, (dir, name): Name) -> PathBuf {
        self.ground.at(format!("d{dir}/f{name}"))
    }

    fn name(&mut self) -> Name {
        (self.rng.random_range(0..DIRECTORIES), self.rng.random_range(0..NAMES))
    }

    /// Mostly small, at times beyond what one transfer over UDP carries.
    fn bytes(&mut self) -> Vec<u8> {
        let len = match self.rng.random_range(0..10_u32) {
            0 => 0,
            1..=7 => self.rng.random_range(1..12_000),
            _ => self.rng.random_range(12_000..70_000),
        };
        let salt = self.rng.random();
        super::pattern(len, salt)
    }

    fn step(&mut self, kind: u32) {
        let (fs, name) = (self.ground.fs, self.name());
        let path = self.path(name);
        let known = self.files.get(&name).map(Rc::clone);
        match (kind, known) {
            (0 | 1, None) => {
                let bytes = self.bytes();
                let mut file = fs.create(&path).expect("made");
                write_all(&mut *file, &bytes);
                file.close().expect("closed");
                self.files.insert(name, Rc::new(RefCell::new(bytes)));
            }
            (0 | 1, Some(_)) => assert_fails(fs.create(&path), &[Status::EXIST]),
            (2, Some(model)) if model.borrow().len() < FILE_BYTES_MAX => self.append(&path, &model),
            (3, Some(model)) => self.overwrite(&path, &model),
            (4 | 2, Some(model)) => assert!(self.ground.contents(&path) == *model.borrow()),
            (5, Some(_)) => {
                fs.unlink(&path).expect("unlinked");
                self.files.remove(&name);
            }
            (6, Some(model)) => self.rename(name, &model),
            (7, Some(model)) => {
                let new = self.name();
                let outcome = fs.link(&path, &self.path(new));
                if let std::collections::btree_map::Entry::Vacant(free) = self.files.entry(new) {
                    outcome.expect("linked");
                    free.insert(model);
                } else {
                    assert_fails(outcome, &[Status::EXIST]);
                }
            }
            (8, Some(model)) => {
                let stat = fs.stat(&path).expect("there");
                let links = self.files.values().filter(|other| Rc::ptr_eq(other, &model)).count();
                assert_eq!((stat.size, stat.links as usize), (model.borrow().len() as u64, links));
            }
            (9, _) => {
                let listed = self.ground.listed(&self.ground.at(format!("d{}", name.0)));
                let wanted: Vec<_> = self.files.keys().filter(|(dir, _)| *dir == name.0).collect();
                let wanted: Vec<_> = wanted.iter().map(|(_, name)| format!("f{name}").into_bytes()).collect();
                assert_eq!(listed, wanted);
            }
            (10, Some(model)) => self.read_and_write(&path, &model),
            (5, None) => assert_fails(fs.unlink(&path), &[Status::NOENT]),
            (6, None) => assert_fails(fs.rename(&path, &self.ground.at("d0/new")), &[Status::NOENT]),
            (7, None) => assert_fails(fs.link(&path, &self.ground.at("d0/new")), &[Status::NOENT]),
            (8, None) => assert_fails(fs.stat(&path), &[Status::NOENT]),
            (_, None) => assert_fails(fs.open(&path, Access::ReadWrite), &[Status::NOENT]),
            (_, Some(_)) => {}
        }
    }

    fn append(&mut self, path: &std::path::Path, model: &RefCell<Vec<u8>>) {
        let bytes = self.bytes();
        let mut file = self.ground.fs.open(path, Access::Append).expect("opened");
        if self.rng.random() {
            assert_eq!(file.seek_end().expect("moved"), model.borrow().len() as u64);
        }
        write_all(&mut *file, &bytes);
        file.close().expect("closed");
        model.borrow_mut().extend_from_slice(&bytes);
    }

    fn overwrite(&mut self, path: &std::path::Path, model: &RefCell<Vec<u8>>) {
        let mut model = model.borrow_mut();
        let at = self.rng.random_range(0..=(model.len() + 5000).min(FILE_BYTES_MAX));
        let bytes = self.bytes();
        let mut file = self.ground.fs.open(path, Access::Write).expect("opened");
        file.seek(at as u64).expect("moved");
        write_all(&mut *file, &bytes);
        file.close().expect("closed");
        put(&mut model, at, &bytes);
    }

    fn rename(&mut self, name: Name, model: &Rc<RefCell<Vec<u8>>>) {
        let new = self.name();
        self.ground.fs.rename(&self.path(name), &self.path(new)).expect("renamed");
        // Of two names of one file both stay.
        if self.files.get(&new).is_none_or(|other| !Rc::ptr_eq(other, model)) {
            self.files.remove(&name);
            self.files.insert(new, Rc::clone(model));
        }
    }

    /// Several seeks, reads and writes on one open file.
    fn read_and_write(&mut self, path: &std::path::Path, model: &RefCell<Vec<u8>>) {
        let mut model = model.borrow_mut();
        let mut file = self.ground.fs.open(path, Access::ReadWrite).expect("opened");
        let mut at = 0;
        for _ in 0..6 {
            match self.rng.random_range(0..4_u32) {
                0 => {
                    at = self.rng.random_range(0..=model.len());
                    file.seek(at as u64).expect("moved");
                }
                1 if model.len() < FILE_BYTES_MAX => {
                    let bytes = self.bytes();
                    write_all(&mut *file, &bytes);
                    put(&mut model, at, &bytes);
                    at += bytes.len();
                }
                2 => file.sync(SyncScope::Data).expect("synced"),
                _ => {
                    let mut buf = vec![0; self.rng.random_range(1..20_000)];
                    let read = file.read(&mut buf).expect("read");
                    assert!(buf[..read] == model[at..at + read], "at byte {at}");
                    assert!(read > 0 || at == model.len(), "an end that is none at byte {at}");
                    at += read;
                }
            }
        }
        file.close().expect("closed");
    }
}

/// Writes into a model; what lies between its end and `at` becomes zeros.
fn put(model: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let end = at + bytes.len();
    if model.len() < end {
        model.resize(end, 0);
    }
    model[at..end].copy_from_slice(bytes);
}
