//! How often the intervals hold the truth, by simulation with fixed seeds, and what they do at their edges.

use super::*;

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
struct Draws(u64);

impl Draws {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64 + 1e-17
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

type Law = (&'static str, fn(&mut Draws) -> f64);

/// What runs of benchmarks look like: steady, spread, and with two states of the machine.
const LAWS: [Law; 5] = [
    ("normal 5%", |d| 1.0 + 0.05 * d.normal()),
    ("lognormal 20%", |d| (0.2 * d.normal()).exp()),
    ("bimodal 50:50", |d| (if d.uniform() < 0.5 { 1.0 } else { 1.3 }) * (1.0 + 0.02 * d.normal())),
    ("bimodal 80:20", |d| (if d.uniform() < 0.8 { 1.0 } else { 1.3 }) * (1.0 + 0.02 * d.normal())),
    ("exponential tail", |d| 1.0 - 0.2 * d.uniform().ln()),
];

fn samples(draws: &mut Draws, law: Law, n: usize) -> Vec<f64> {
    (0..n).map(|_| law.1(draws)).collect()
}

/// Share of pairs of samples of one law whose interval holds 1.
fn held(law: Law, (na, nb): (usize, usize), confidence: f64, tries: u32) -> f64 {
    let mut draws = Draws(42);
    let holds = (0..tries).filter(|_| {
        let (a, b) = (samples(&mut draws, law, na), samples(&mut draws, law, nb));
        let found = ratio_interval_at(&a, &b, confidence).unwrap();
        found.low <= 1.0 && 1.0 <= found.high
    });
    holds.count() as f64 / f64::from(tries)
}

#[test]
fn two_samples_of_one_law_are_told_apart_in_at_most_7_of_100_cases() {
    for law in LAWS {
        for n in [(3, 3), (4, 4), (5, 5), (10, 10), (20, 20), (5, 10), (3, 20)] {
            let share = held(law, n, 0.95, 1500);
            assert!(share >= 0.93, "{} with {n:?} runs: 1 is held in {:.1}% only", law.0, 100.0 * share);
        }
    }
}

#[test]
fn among_ten_comparisons_hardly_more_than_one_family_in_twenty_raises_a_false_alarm() {
    for law in LAWS {
        for n in [(5, 5), (10, 10)] {
            let missed = 1.0 - held(law, n, 0.995, 3000);
            // 0.5% is asked for; 1% would be one family of ten in ten.
            assert!(missed <= 0.01, "{} with {n:?} runs: {:.2}% are false alarms", law.0, 100.0 * missed);
        }
    }
}

#[test]
fn a_true_tenth_more_is_shown_by_ten_runs_of_5_percent_spread() {
    let mut draws = Draws(7);
    let (mut shown, mut held) = (0, 0);
    for _ in 0..500 {
        let a = samples(&mut draws, LAWS[0], 10);
        let b: Vec<f64> = samples(&mut draws, LAWS[0], 10).iter().map(|sample| sample * 1.1).collect();
        let found = ratio_interval(&a, &b).unwrap();
        shown += u32::from(found.low > 1.0);
        held += u32::from(found.low <= 1.1 && 1.1 <= found.high);
    }
    assert!(shown > 430 && held >= 470, "shown {shown} times, held {held} times of 500");
}

#[test]
fn a_median_lies_in_its_interval_as_often_as_asked() {
    let truth = [1.0, 1.0, f64::NAN, f64::NAN, 1.0 + 0.2 * std::f64::consts::LN_2];
    for (law, truth) in LAWS.into_iter().zip(truth).filter(|(_, truth)| truth.is_finite()) {
        for n in [6, 8, 12, 30] {
            let mut draws = Draws(11);
            let holds = (0..2000).filter(|_| {
                let found = median_interval(&samples(&mut draws, law, n), 0.95).unwrap();
                found.low <= truth && truth <= found.high
            });
            let share = holds.count() as f64 / 2000.0;
            assert!((0.935..0.985).contains(&share), "{} with {n} runs: {:.1}%", law.0, 100.0 * share);
        }
    }
}

#[test]
fn too_few_samples_give_no_interval_and_nonsense_gives_none_either() {
    assert_eq!(ratio_interval(&[1.0, 2.0], &[1.0, 2.0, 3.0]), None);
    assert_eq!(ratio_interval(&[1.0, 2.0, 0.0], &[1.0, 2.0, 3.0]), None);
    assert_eq!(ratio_interval(&[1.0, 2.0, f64::NAN], &[1.0, 2.0, 3.0]), None);
    assert_eq!(median_interval(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.95), None);
    assert_eq!((median(&[]), median(&[f64::NAN]), median(&[3.0, 1.0, 2.0, 4.0])), (None, None, Some(2.5)));
    assert!(median_interval(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.9).is_some());
}

#[test]
fn equal_runs_are_sure_and_say_so_without_a_width() {
    let same = ratio_interval(&[5.0; 5], &[5.0; 5]).unwrap();
    assert_eq!((same.ratio, same.low, same.high), (1.0, 1.0, 1.0));
    let double = ratio_interval(&[5.0; 5], &[10.0; 5]).unwrap();
    assert!((double.ratio - 2.0).abs() < 1e-12 && (double.low - 2.0).abs() < 1e-9, "{double:?}");
    let interval = median_interval(&[5.0; 8], 0.95).unwrap();
    assert_eq!((interval.low, interval.high, relative_half_width(interval)), (5.0, 5.0, 0.0));
}

#[test]
fn the_two_directions_of_a_ratio_mirror_each_other() {
    let (a, b) = ([10.0, 11.0, 12.0, 13.0, 14.0, 17.0], [9.0, 12.0, 15.0, 16.0, 20.0]);
    let (ab, ba) = (ratio_interval(&a, &b).unwrap(), ratio_interval(&b, &a).unwrap());
    assert!(
        (ab.ratio * ba.ratio - 1.0).abs() < 1e-12 && (ab.low * ba.high - 1.0).abs() < 1e-6,
        "{ab:?} {ba:?}"
    );
    assert_eq!(ratio_interval(&a, &b), Some(ab), "nothing is drawn");
    let wider = ratio_interval_at(&a, &b, 0.999).unwrap();
    assert!(wider.low < ab.low && wider.high > ab.high);
}

#[test]
fn a_half_width_is_a_share_of_the_middle() {
    let interval = Interval { low: 95.0, high: 105.0, confidence: 0.95 };
    assert!((relative_half_width(interval) - 0.05).abs() < 1e-12);
    assert_eq!(relative_half_width(Interval { low: 0.0, ..interval }), f64::INFINITY);
}
