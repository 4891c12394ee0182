//! A real process that writes until it is killed, two hundred times.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use disk::{Disk, LocalDisk};
use packstore::{OpenOptions, PutOptions, Store, StoreOptions, VolumeSpec};

use super::model::{Model, body, meta, mixed};
use super::scenario::found;

const KILLS: u64 = 200;
const FOLDER: &str = "CRUMB_CRASH_CHILD_FOLDER";
const ROUND: &str = "CRUMB_CRASH_CHILD_ROUND";

fn key(number: u64) -> Vec<u8> {
    format!("key {}", number % 50).into_bytes()
}

fn disks(folder: &Path) -> Vec<Arc<dyn Disk>> {
    vec![Arc::new(LocalDisk::open(folder).expect("a folder"))]
}

/// Writes without an end, and says before and after each operation what it is; nothing at all unless it is the child.
#[test]
fn the_child_writes_until_it_is_killed() {
    let (Ok(folder), Ok(round)) = (std::env::var(FOLDER), std::env::var(ROUND)) else { return };
    let round: u64 = round.parse().expect("a number");
    let store = Store::open(disks(Path::new(&folder)), OpenOptions::default()).expect("it opens");
    let said = |line: String| {
        let mut out = std::io::stdout().lock();
        out.write_all(line.as_bytes()).and_then(|()| out.flush()).expect("the parent listens");
    };
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let (store, said) = (&store, &said);
            scope.spawn(move || {
                for step in 0.. {
                    let drawn = mixed(round << 32 | writer << 28 | step);
                    // Each thread has keys of its own, so that what it says of them is in order.
                    let number = drawn % 16 * 3 + writer;
                    let version = round << 32 | writer << 28 | (step + 1);
                    if drawn.is_multiple_of(5) {
                        said(format!("\n@begin {number} 0\n"));
                        store.delete(&key(number)).expect("deleted");
                    } else {
                        said(format!("\n@begin {number} {version}\n"));
                        let options = PutOptions { meta: &meta(version), ..PutOptions::default() };
                        store.put(&key(number), &body(version), options).expect("put");
                    }
                    said(format!("\n@done {number}\n"));
                }
            });
        }
    });
}

fn child(folder: &Path, round: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args([
        "--exact",
        "crash::kills::the_child_writes_until_it_is_killed",
        "--nocapture",
        "--test-threads=1",
    ]);
    command.env(FOLDER, folder).env(ROUND, round.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command.spawn().expect("a child")
}

#[test]
fn a_process_that_is_killed_two_hundred_times_keeps_all_that_it_acknowledged() {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let folder = folder.expect("a folder");
    let volume = VolumeSpec { disk: disks(folder.path()).remove(0), size_bytes: 32 << 20 };
    let options = StoreOptions { packed_blocks: Some((1 << 20) / 64), ..StoreOptions::default() };
    Store::create(vec![volume], options).expect("a new store").close().expect("closed");
    let mut model = Model::default();
    let mut acknowledged = 0;
    for round in 1..=KILLS {
        let mut child = child(folder.path(), round);
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        // Now and then before it has opened the store.
        let enough = mixed(round) % 60;
        let mut done = 0;
        if enough == 0 {
            child.kill().expect("killed");
        }
        for line in lines {
            // The last line may be half a one.
            let line = line.unwrap_or_default();
            let mut words = line.split(' ');
            let word = words.next();
            let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
            match (word, number(), number()) {
                (Some("@begin"), Some(of), Some(version)) => {
                    model.begin(&key(of), (version != 0).then_some(version));
                }
                (Some("@done"), Some(of), None) => {
                    model.done(&key(of));
                    done += 1;
                    if done == enough {
                        child.kill().expect("killed");
                    }
                }
                _ => {}
            }
        }
        child.wait().expect("it ended");
        acknowledged += done;
        assert!(done >= enough, "round {round}: the child ended by itself after {done} of {enough}");
        let when = format!("killed {round} times");
        let store = Store::open(disks(folder.path()), OpenOptions::default());
        let store = store.unwrap_or_else(|error| panic!("{when}: {error}"));
        for key in model.keys().map(<[u8]>::to_vec).collect::<Vec<_>>() {
            let found = found(&store, &model, &key, &when).unwrap_or_else(|error| panic!("{when}: {error}"));
            model.settle(&key, found, true);
        }
        if round.is_multiple_of(3) {
            store.close().unwrap_or_else(|error| panic!("{when}: {error}"));
        }
    }
    assert!(acknowledged > KILLS * 10, "{acknowledged}");
}
