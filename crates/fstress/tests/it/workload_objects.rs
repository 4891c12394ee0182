//! Weighted sets and the file set against a naive model, and choices against their weights.

use std::collections::{HashMap, HashSet};

use fstress::{DirectoryId, FileFlags, FileId, ObjectSets, WEIGHT_ONE, WeightTree};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

#[derive(Clone, Debug)]
enum Step {
    Push(u32),
    Set(prop::sample::Index, u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let weight = || prop_oneof![Just(0), 1..100u32, any::<u32>()];
    let step = prop_oneof![
        weight().prop_map(Step::Push),
        (any::<prop::sample::Index>(), weight()).prop_map(|(slot, weight)| Step::Set(slot, weight)),
    ];
    prop::collection::vec(step, 1..600)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_weight_tree_chooses_as_a_plain_list_of_weights_would(steps in steps(), points: [u64; 16]) {
        let mut tree = WeightTree::new();
        let mut model: Vec<u32> = Vec::new();
        for step in steps {
            match step {
                Step::Push(weight) => {
                    prop_assert_eq!(tree.push(weight) as usize, model.len());
                    model.push(weight);
                }
                Step::Set(slot, weight) if !model.is_empty() => {
                    let slot = slot.index(model.len());
                    tree.set(slot as u32, weight);
                    model[slot] = weight;
                }
                Step::Set(..) => {}
            }
            let total: u64 = model.iter().copied().map(u64::from).sum();
            prop_assert_eq!(tree.total(), total);
            for point in points.iter().map(|point| point % total.max(1)) {
                let mut left = point;
                let expected = model.iter().position(|weight| {
                    let here = left < u64::from(*weight);
                    left = left.saturating_sub(u64::from(*weight));
                    here
                });
                prop_assert_eq!(tree.at(point).map(|slot| slot as usize), expected);
            }
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(points[0]);
            let at_once = tree.select_many::<5>(&mut rng.clone()).map(|slots| slots.map(Some));
            let one_by_one = [(); 5].map(|()| tree.select(&mut rng));
            prop_assert_eq!(at_once.unwrap_or_default(), one_by_one);
        }
        prop_assert_eq!(tree.at(tree.total()), None);
    }

    #[test]
    fn the_file_set_agrees_with_a_model_that_recounts_everything(
        steps in prop::collection::vec((0..6u8, any::<prop::sample::Index>(), 0..100_000u64), 1..400),
    ) {
        let mut sets = ObjectSets::new("run", WEIGHT_ONE);
        let directories = [DirectoryId::ROOT, sets.insert_directory(DirectoryId::ROOT, 1)];
        let mut model: HashMap<FileId, (u64, DirectoryId)> = HashMap::new();
        let mut live: Vec<FileId> = Vec::new();
        // Files with an operation in flight, some of them removed meanwhile.
        let mut busy: Vec<FileId> = Vec::new();
        for (kind, index, number) in steps {
            let parent = directories[number as usize % 2];
            match kind {
                0 | 1 => {
                    let file = sets.insert_file(parent, number, number as u32 % 5);
                    prop_assert!(!busy.contains(&file), "a slot with an operation in flight was used again");
                    prop_assert!(model.insert(file, (number, parent)).is_none());
                    live.push(file);
                }
                2 if !live.is_empty() => {
                    let file = live.swap_remove(index.index(live.len()));
                    model.remove(&file);
                    sets.remove_file(file);
                }
                3 if !live.is_empty() => {
                    let file = live[index.index(live.len())];
                    model.get_mut(&file).unwrap().0 = number;
                    sets.set_file_size_bytes(file, number);
                }
                4 if !live.is_empty() => {
                    let file = live[index.index(live.len())];
                    sets.begin_file_op(file);
                    busy.push(file);
                }
                5 if !busy.is_empty() => {
                    let file = busy.swap_remove(index.index(busy.len()));
                    // A late reply may still tell a size.
                    if !live.contains(&file) {
                        sets.set_file_size_bytes(file, number);
                    }
                    sets.end_file_op(file);
                }
                _ => {}
            }
            prop_assert_eq!(sets.file_count(), model.len() as u64);
            prop_assert_eq!(sets.file_bytes(), model.values().map(|(size, _)| size).sum::<u64>());
            prop_assert_eq!(sets.files().collect::<HashSet<_>>(), model.keys().copied().collect::<HashSet<_>>());
            for directory in directories {
                let files = model.values().filter(|(_, parent)| *parent == directory).count();
                prop_assert_eq!(sets.directory_children(directory).0 as usize, files);
            }
        }
    }
}

#[test]
fn files_are_chosen_as_often_as_their_weights_say() {
    let mut sets = ObjectSets::new("run", WEIGHT_ONE);
    let weights: Vec<u32> = (0..200u32).map(|i| if i % 5 == 0 { 0 } else { i * i % 97 + 1 }).collect();
    let ids: Vec<_> = weights.iter().map(|weight| sets.insert_file(DirectoryId::ROOT, 1, *weight)).collect();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
    let draws = 1_000_000;
    let mut counts: HashMap<FileId, f64> = HashMap::new();
    for _ in 0..draws {
        *counts.entry(sets.select_file(&mut rng).unwrap()).or_default() += 1.0;
    }
    let total: u32 = weights.iter().sum();
    let mut chi_square = 0.0;
    let mut freedom = -1.0;
    for (id, weight) in ids.iter().zip(&weights) {
        let seen = counts.get(id).copied().unwrap_or_default();
        if *weight == 0 {
            assert_eq!(seen, 0.0, "a file without weight was chosen");
            continue;
        }
        let expected = f64::from(draws) * f64::from(*weight) / f64::from(total);
        chi_square += (seen - expected).powi(2) / expected;
        freedom += 1.0;
    }
    // Mean `freedom`, standard deviation sqrt(2 freedom): four of them, once in 15,000 seeds.
    assert!(chi_square < freedom + 4.0 * (2.0f64 * freedom).sqrt(), "{chi_square} for {freedom}");
}

#[test]
fn a_file_that_lost_its_weight_is_never_chosen_again() {
    let mut sets = ObjectSets::new("run", WEIGHT_ONE);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(4);
    let files: Vec<_> = (0..100).map(|_| sets.insert_file(DirectoryId::ROOT, 1, 1)).collect();
    for (gone, file) in files.iter().enumerate() {
        sets.set_file_weight(*file, 0);
        for _ in 0..5 {
            let chosen = sets.select_file(&mut rng);
            assert_eq!(chosen.is_none(), gone == 99);
            assert!(chosen.is_none_or(|chosen| sets.file_weight(chosen) > 0));
        }
    }
}

#[test]
fn removing_all_files_and_inserting_as_many_uses_the_same_slots_under_new_names() {
    let mut sets = ObjectSets::new("run", WEIGHT_ONE);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let first: Vec<_> = (0..10_000).map(|_| sets.insert_file(DirectoryId::ROOT, 7, 3)).collect();
    assert!(sets.set_file_handle(first[0], b"handle"));
    let memory = sets.memory();
    for file in &first {
        sets.remove_file(*file);
    }
    assert_eq!((sets.file_count(), sets.file_bytes()), (0, 0));
    assert_eq!(sets.select_file(&mut rng), None);
    assert_eq!(sets.select_file_uniformly(&mut rng), None);
    let second: HashSet<_> = (0..10_000).map(|_| sets.insert_file(DirectoryId::ROOT, 7, 3)).collect();
    assert_eq!(second, first.iter().copied().collect());
    assert_eq!(sets.memory(), memory);
    assert_eq!(sets.file_handle(first[0]), None, "a new file must not inherit a handle");
    assert!(second.iter().all(|file| sets.file_name(*file).as_str() >= "f0000010000"));
}

#[test]
fn a_removed_file_keeps_its_handle_until_its_last_operation_ends() {
    let mut sets = ObjectSets::new("run", WEIGHT_ONE);
    let file = sets.insert_file(DirectoryId::ROOT, 100, 5);
    assert!(sets.set_file_handle(file, b"handle"));
    sets.begin_file_op(file);
    sets.mark_file(file, FileFlags::UNCOMMITTED, true);
    sets.remove_file(file);
    assert_eq!(sets.file_handle(file), Some(&b"handle"[..]));
    assert!(sets.file_flags(file).contains(FileFlags::UNCOMMITTED));
    let other = sets.insert_file(DirectoryId::ROOT, 100, 5);
    assert_ne!(other, file);
    sets.end_file_op(file);
    assert_eq!(sets.insert_file(DirectoryId::ROOT, 100, 5), file, "now the slot is free");
}

#[test]
fn directories_are_removed_only_when_empty_and_found_again_when_they_become_so() {
    let mut sets = ObjectSets::new("run", WEIGHT_ONE);
    let outer = sets.insert_directory(DirectoryId::ROOT, 1);
    let inner = sets.insert_directory(outer, 1);
    let link = sets.insert_symlink(inner, 1);
    assert_eq!(sets.directory_depth(inner), 2);
    assert_eq!(sets.directories_deepest_first(), vec![inner, outer]);
    assert_eq!(sets.take_empty_directory(), None);
    assert!(!sets.remove_directory(inner) && !sets.remove_directory(outer));
    assert!(!sets.remove_directory(DirectoryId::ROOT));
    sets.remove_symlink(link);
    assert_eq!(sets.take_empty_directory(), Some(inner));
    assert!(sets.remove_directory(inner));
    assert_eq!(sets.take_empty_directory(), Some(outer));
    assert_eq!(sets.take_empty_directory(), None, "given out once");
    assert!(sets.remove_directory(outer));
    assert_eq!(sets.directory_count(), 1);
    assert_eq!(sets.insert_directory(DirectoryId::ROOT, 1), outer, "the slot freed last is used first");
}

#[test]
fn victims_chosen_uniformly_leave_the_share_of_popular_files_as_it_was() {
    let mut sets = ObjectSets::new("run", WEIGHT_ONE);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
    for number in 0..10_000u32 {
        sets.insert_file(DirectoryId::ROOT, 1, if number % 10 == 0 { WEIGHT_ONE } else { 0 });
    }
    for _ in 0..5_000 {
        let victim = sets.select_file_uniformly(&mut rng).unwrap();
        sets.remove_file(victim);
    }
    let popular = sets.files().filter(|file| sets.file_weight(*file) > 0).count();
    assert!((430..570).contains(&popular), "{popular} of 5000");
}
