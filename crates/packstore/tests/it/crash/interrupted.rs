//! A repair that power ends anywhere, and another one after it: what one whole repair brings back is there.

use std::sync::Arc;
use std::time::Duration;

use disk::{Disk, DiskOpen};
use packstore::{Mode, OpenOptions, Store};
use testkit::SimulatedDisk;

use super::lost::{body_of, numbers, several_files};

type Damage = (&'static str, fn(&SimulatedDisk));

/// Each is of the first segment.
const DAMAGES: [Damage; 5] = [
    ("an index cut off", |disk| {
        let index = disk.open("00000000.index", DiskOpen::Write).expect("there");
        index.set_length(index.length().expect("its length") / 3).expect("cut off");
    }),
    ("the head of an index damaged", |disk| {
        disk.open("00000000.index", DiskOpen::Write)
            .and_then(|index| index.write_at(&[0; 64], 0))
            .expect("damaged");
    }),
    ("an index missing", |disk| disk.remove("00000000.index").expect("removed")),
    ("a data file missing", |disk| disk.remove("00000000.body").expect("removed")),
    ("a data file damaged", |disk| {
        disk.open("00000000.body", DiskOpen::Write)
            .and_then(|data| data.write_at(&[0xa5; 5_000], 10_000))
            .expect("damaged");
    }),
];

fn repaired(disk: &SimulatedDisk, when: &str) -> Store {
    let options = OpenOptions { move_aside: true, ..OpenOptions::default() };
    let store =
        Store::open(vec![Arc::new(disk.clone())], options).unwrap_or_else(|error| panic!("{when}: {error}"));
    assert!(store.wait_until_ready(Duration::from_secs(60)));
    let repaired = store.repair(|_, _| {}).unwrap_or_else(|error| panic!("{when}: {error}"));
    assert_eq!(repaired.left, [], "{when}");
    store
}

#[test]
fn a_repair_that_power_ends_anywhere_is_made_good_by_the_next_one() {
    for (clean, (damage, make)) in [true, false].into_iter().flat_map(|clean| DAMAGES.map(|one| (clean, one)))
    {
        let (disk, _) = several_files(Mode::Store, clean);
        make(&disk);
        let store = repaired(&disk.process_end(), damage);
        let expected = numbers().map(|number| (number, body_of(&store, number))).collect::<Vec<_>>();
        drop(store);
        let mut ahead = 0;
        loop {
            let image = disk.process_end();
            image.stop_at(image.operations() + ahead);
            let options = OpenOptions { move_aside: true, ..OpenOptions::default() };
            let done = Store::open(vec![Arc::new(image.clone())], options).and_then(|store| {
                store.repair(|_, _| {})?;
                store.close()
            });
            let ended = !image.has_stopped();
            assert!(done.is_ok() || !ended, "{damage}, clean {clean}, operation {ahead}: {done:?}");
            image.stop();
            for seed in 0..2 {
                let when = format!("{damage}, clean {clean}, operation {ahead}, image {seed}");
                let store = repaired(&image.power_cut(seed), &when);
                for (number, wanted) in &expected {
                    let found = body_of(&store, *number);
                    // What was deleted may be back where an index was lost, and stays away once it is.
                    assert!(found == *wanted || wanted.is_none(), "{when}: {number} is lost");
                }
            }
            if ended {
                break;
            }
            ahead += 1 + ahead / 8;
        }
        assert!(ahead > 5, "{damage}, clean {clean}: {ahead}");
    }
}
