//! Crash points: power is lost at each operation of a history, and what is there afterwards is compared.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use packstore::{Mode, PutOptions, Store};
use testkit::SimulatedDisk;

use super::model::{Model, body, mixed};
use super::scenario::{Scenario, found};

#[test]
fn power_lost_at_any_operation_costs_nothing_that_was_acknowledged_and_mixes_nothing() {
    let asked = |name: &str| std::env::var(name).ok();
    let number = |name, default| asked(name).map_or(default, |text| text.parse().expect(name));
    if let Some(only) = asked("CRUMB_CRASH_ONLY") {
        let (seed, operation) = only.split_once(':').expect("seed:operation");
        return crash_at(&Scenario::of(seed.parse().expect("a seed")), operation.parse().expect("a number"));
    }
    let (wanted, first) = (number("CRUMB_CRASH_POINTS", 10_000), number("CRUMB_CRASH_SEED", 1));
    let failed = AtomicU64::new(0);
    let (points, seeds) = (AtomicU64::new(0), AtomicU64::new(first));
    // More than processors: a history mostly waits for the store's own threads.
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get).clamp(2, 4) * 4;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while points.load(Ordering::Relaxed) < wanted
                    && failed.load(Ordering::Relaxed) < FAILURES_TOLD
                {
                    let scenario = Scenario::of(seeds.fetch_add(1, Ordering::Relaxed));
                    for operation in operations(&scenario) {
                        let crashed = std::panic::catch_unwind(|| crash_at(&scenario, operation));
                        if crashed.is_err() && failed.fetch_add(1, Ordering::Relaxed) >= FAILURES_TOLD {
                            return;
                        }
                        if points.fetch_add(1, Ordering::Relaxed) >= wanted {
                            return;
                        }
                    }
                }
            });
        }
    });
    let (points, seeds) = (points.into_inner(), seeds.into_inner());
    let _ = writeln!(std::io::stderr(), "{points} crash points of seeds {first} to {}", seeds - 1);
    assert_eq!(failed.into_inner(), 0, "crash points failed, as told above");
    assert!(points >= wanted);
}

/// A cache acknowledges a put before it is written. When the disk stopped before that, and the caller was so slow that the
/// store's writer noticed first, a read in the same process found nothing where the simulator allowed only versions that had
/// been put: seen once, on a busy machine. The cache is right to miss there. It must not miss while the disk works.
#[test]
fn a_cache_misses_what_its_stopped_disk_did_not_take_and_nothing_before_that() {
    let scenario = Scenario { caller_is_slow: true, ..Scenario::of(24) };
    assert!(scenario.mode == Mode::Cache && !scenario.evicts, "{scenario:?} tests nothing of this");
    let operations = operations(&scenario);
    let next = AtomicU64::new(operations.start);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let operation = next.fetch_add(1, Ordering::Relaxed);
                    if !operations.contains(&operation) {
                        return;
                    }
                    crash_at(&scenario, operation);
                }
            });
        }
    });
}

/// Those at which the history can be stopped, after the store was made.
fn operations(scenario: &Scenario) -> std::ops::Range<u64> {
    let machine = SimulatedDisk::new("machine");
    let mut model = Model::of(scenario.expires);
    let store = scenario.create(&machine, &model).expect("a new store");
    let first = machine.operations();
    let store = scenario.play(&machine, store, &mut model, 0);
    let store = store.unwrap_or_else(|error| panic!("{scenario:?}: nothing was wrong, but: {error}"));
    if scenario.cyclic {
        let oldest = store.get(b"filler 0").expect("readable");
        assert!(oldest.is_none(), "{scenario:?}: nothing was overwritten, so it tests nothing of this");
    }
    store.close().unwrap_or_else(|error| panic!("{scenario:?}: nothing was wrong, but: {error}"));
    first..machine.operations()
}

fn crash_at(scenario: &Scenario, operation: u64) {
    let machine = SimulatedDisk::new("machine");
    let mut model = Model::of(scenario.expires);
    let store = scenario.create(&machine, &model).expect("a new store");
    machine.stop_at(operation);
    match scenario.play(&machine, store, &mut model, 0) {
        // Threads of the store may have needed fewer operations this time.
        Ok(store) => {
            machine.stop();
            drop(store);
        }
        Err(error) => assert!(machine.has_stopped(), "{scenario:?} at {operation}: {error}"),
    }
    for image in 0..4 {
        let seed = mixed(scenario.seed ^ operation << 20 ^ image << 50);
        let when = format!("{scenario:?} stopped at operation {operation}, image {image}");
        let (after, for_good) = match image {
            2 => (machine.process_end(), false),
            _ => (machine.power_cut(seed), true),
        };
        let mut model = model.elsewhere();
        if image == 3 {
            let Some(name) = lose_an_index(scenario, &after, seed) else { continue };
            let when = format!("{when}, and {name} is lost");
            model.index_lost = scenario.mode == Mode::Store;
            // A cache begins empty.
            model.evicts |= scenario.mode == Mode::Cache;
            let store = recovered(scenario, &after, &mut model, true, &when);
            let some = Scenario { steps: 8, evicts: model.evicts, ..*scenario };
            let store = some.play(&after, store, &mut model, 1_000_000);
            let store = store.unwrap_or_else(|error| panic!("{when}, going on: {error}"));
            after.stop();
            drop(store);
            // What came out is what counts from then on.
            drop(recovered(
                &some,
                &after.power_cut(seed ^ 1),
                &mut model,
                true,
                &format!("{when}, and once more"),
            ));
            continue;
        }
        let store = recovered(scenario, &after, &mut model, for_good, &when);
        if image == 0 {
            // It goes on where it was, and loses power once more.
            let some = Scenario { steps: 8, ..*scenario };
            let store = some.play(&after, store, &mut model, 1_000_000);
            let store = store.unwrap_or_else(|error| panic!("{when}, going on: {error}"));
            after.stop();
            drop(store);
            let again = after.power_cut(seed ^ 1);
            drop(recovered(scenario, &again, &mut model, true, &format!("{when}, and once more")));
        }
    }
}

/// Removes one of the index files, if there are any.
fn lose_an_index(scenario: &Scenario, machine: &SimulatedDisk, seed: u64) -> Option<String> {
    let disks = scenario.disks(machine);
    let names = disks.iter().flat_map(|disk| {
        let names = disk.names().expect("listed");
        names.into_iter().map(move |name| (disk, name))
    });
    let mut indexes = names.filter(|(_, name)| name.ends_with(".index")).collect::<Vec<_>>();
    indexes.sort_by_key(|(disk, name)| (disk.place(), name.clone()));
    let (disk, name) = indexes.get(seed as usize % indexes.len().max(1))?;
    disk.remove(name).expect("removed");
    disk.sync_names().expect("durable");
    Some(format!("{}/{name}", disk.place()))
}

fn recovered(
    scenario: &Scenario,
    machine: &SimulatedDisk,
    model: &mut Model,
    for_good: bool,
    when: &str,
) -> Store {
    let store =
        scenario.open(machine, model).unwrap_or_else(|error| panic!("{when}: it does not open: {error}"));
    if scenario.mode == Mode::Cache {
        // A cache misses until it knows what is there; a put waits for that.
        model.begin(b"ready", Some(144));
        store
            .put(b"ready", &body(144), PutOptions::default())
            .unwrap_or_else(|error| panic!("{when}: {error}"));
    }
    let mut there = BTreeSet::new();
    for key in model.keys().map(<[u8]>::to_vec).collect::<Vec<_>>() {
        let found = found(&store, model, &key, when).unwrap_or_else(|error| panic!("{when}: {error}"));
        model.settle(&key, found, for_good && key != b"ready");
        if found.is_some() {
            there.insert(key);
        }
    }
    if scenario.cyclic {
        let checked = store.check(|_, _| ()).unwrap_or_else(|error| panic!("{when}: {error}"));
        assert_eq!(checked.faults.len(), 0, "{when}: {:?}", checked.faults.first());
    }
    if !scenario.evicts {
        let listed =
            store.iter().and_then(|entries| entries.map(|entry| entry.map(|entry| entry.key)).collect());
        let listed: Vec<_> = listed.unwrap_or_else(|error| panic!("{when}: {error}"));
        assert_eq!(listed.len(), there.len(), "{when}: what is listed is what can be had");
        assert_eq!(BTreeSet::from_iter(listed), there, "{when}: what is listed is what can be had");
        let checked = store.check(|_, _| ()).unwrap_or_else(|error| panic!("{when}: {error}"));
        assert_eq!(checked.faults.len(), 0, "{when}: {:?}", checked.faults.first());
    }
    store
}

/// More of them are seldom news.
const FAILURES_TOLD: u64 = 10;
