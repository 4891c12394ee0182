//! The deck keeps the mix over any stretch of operations, for any mix.

use files::OpKind;
use fstress::{Mix, OpDeck, Workload};
use proptest::prelude::*;

fn mixes() -> impl Strategy<Value = Mix> {
    // Shares from a hundredth of a percent to everything, one to all operations.
    prop::sample::subsequence(OpKind::ALL.to_vec(), 1..=OpKind::COUNT)
        .prop_flat_map(|ops| {
            let weights = prop::collection::vec(prop_oneof![0.01..1.0f64, 1.0..100.0f64], ops.len());
            (Just(ops), weights)
        })
        .prop_map(|(ops, weights)| Mix::new(ops.into_iter().zip(weights)).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// The bound that can be proven: each of k kinds is off by less than one interval of its own, and by its
    /// share of what the others are off.
    #[test]
    fn after_any_number_of_draws_no_kind_is_off_by_more_than_the_proven_bound(mix in mixes(), seed: u64) {
        let mut deck = OpDeck::new(&mix, seed);
        let mut counts = [0u64; OpKind::COUNT];
        let kinds = mix.shares().len() as f64;
        for n in 1..=5_000u64 {
            counts[deck.draw() as usize] += 1;
            for (op, share) in mix.shares() {
                let off = counts[op as usize] as f64 - share * n as f64;
                let bound = 1.0 + share * (kinds - 2.0).max(1.0);
                prop_assert!(off.abs() <= bound, "{} off by {off} of {n}, bound {bound}", op.name());
            }
        }
    }
}

#[test]
fn every_builtin_mix_is_within_a_tenth_of_a_point_from_4000_draws_on() {
    for name in Workload::builtin_names() {
        let mix = Workload::builtin(name).unwrap().mix;
        let (mut worst_2000, mut worst_4000) = (0.0f64, 0.0f64);
        for seed in 0..20 {
            let mut deck = OpDeck::new(&mix, seed);
            let mut counts = [0u64; OpKind::COUNT];
            for n in 1..=20_000u64 {
                counts[deck.draw() as usize] += 1;
                if n < 2_000 {
                    continue;
                }
                for (op, share) in mix.shares() {
                    let points = (counts[op as usize] as f64 / n as f64 - share).abs() * 100.0;
                    worst_2000 = worst_2000.max(points);
                    if n >= 4_000 {
                        worst_4000 = worst_4000.max(points);
                    }
                }
            }
        }
        assert!(worst_4000 <= 0.1, "{name}: {worst_4000} points");
        assert!(worst_2000 <= 0.2, "{name}: {worst_2000} points");
    }
}

/// A measured interval begins anywhere: what was dealt before it must not matter.
#[test]
fn a_window_anywhere_in_the_deal_keeps_the_mix() {
    let mix = Workload::builtin("sfs97").unwrap().mix;
    let mut deck = OpDeck::new(&mix, 5);
    for window in 0..200 {
        for _ in 0..window * 7 % 1013 {
            deck.draw();
        }
        let mut counts = [0u64; OpKind::COUNT];
        for _ in 0..10_000 {
            counts[deck.draw() as usize] += 1;
        }
        for (op, share) in mix.shares() {
            let points = (counts[op as usize] as f64 / 10_000.0 - share).abs() * 100.0;
            assert!(points <= 0.1, "window {window}, {}: {points} points off", op.name());
        }
    }
}
