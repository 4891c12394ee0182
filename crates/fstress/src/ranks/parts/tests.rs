//! Adding up parts, and what it costs for a thousand ranks.

use std::time::Instant;

use files::Outcome;
use proptest::prelude::*;

use super::*;
use crate::results::raw::RawFile;

/// A rank's load point in which each operation took what `samples_ns` says, by kind.
fn measured(samples_ns: &[(OpKind, u64)], rank: u64) -> Measured {
    let mut tallies = Tallies::empty();
    let mut lateness = harness::open_loop::LatenessLog::default();
    for (kind, ns) in samples_ns {
        let tally = tallies.of(*kind);
        tally.attempted += 1;
        if ns % 17 == 0 {
            tally.error(Cow::Borrowed(if ns % 2 == 0 { "IO" } else { "NOENT" }));
        } else {
            tally.ok += 1;
            tally.bytes += ns % 8192;
            tally.histogram.record(Duration::from_nanos(*ns));
        }
        lateness.sending.record(Duration::from_nanos(ns / 100));
        lateness.from_sent.record(Duration::from_nanos(*ns));
        lateness.without.record(Duration::from_nanos(ns / 2));
    }
    let all = samples_ns.len() as u64;
    Measured {
        tallies,
        lateness,
        late_ranks: vec![],
        full: Duration::ZERO,
        planned: all + rank,
        sent: all,
        answered_within: all / 2,
        ok_within: all / 2,
        warmed: Duration::from_secs(1),
        measured: Duration::from_secs(2),
        busy: 0.01 * rank as f64,
        counters: TransportCounters { reconnects: rank, sent_bytes: all * 100, ..Default::default() },
        overtaken: rank,
        chains: vec![chain_tally(samples_ns)],
        digest: rank + 1,
        set_bytes_made: all * 1000,
        set_bytes_to_come: rank,
        absence: Absence { away: Duration::from_millis(rank), ..Absence::default() },
        machine: MachineUse { wall: Duration::from_secs(3), ..MachineUse::default() },
        cut_short: None,
        steps: StepCounts::default(),
    }
}

/// A chain whose latencies are all samples.
fn chain_tally(samples_ns: &[(OpKind, u64)]) -> ChainTally {
    let mut tally = ChainTally { begun: samples_ns.len() as u64, requests: 3, ..ChainTally::default() };
    samples_ns.iter().for_each(|(_, ns)| tally.histogram.record(Duration::from_nanos(*ns)));
    tally
}

fn part(measured: &Measured, rank: u32) -> PointPart {
    let row = RankPart { rank, host: format!("host{rank}"), ..RankPart::default() };
    let file_set = FileSetRecord { files: 10, files_asked: 11, ..FileSetRecord::default() };
    PointPart { measured: MeasuredPart::of(measured), file_set, rows: vec![row] }
}

/// There and back again, as between processes.
fn sent(part: &PointPart) -> PointPart {
    postcard::from_bytes(&postcard::to_stdvec(part).unwrap()).unwrap()
}

const KINDS: [OpKind; 4] = [OpKind::Read, OpKind::Write, OpKind::Lookup, OpKind::Create];

fn samples() -> impl Strategy<Value = Vec<(OpKind, u64)>> {
    prop::collection::vec((prop::sample::select(&KINDS[..]), 0u64..20_000_000_000), 0..120)
}

proptest! {
    #[test]
    fn the_sum_of_ranks_is_what_one_generator_would_have_counted(ranks in prop::collection::vec(samples(), 1..8)) {
        let each: Vec<Measured> = ranks.iter().zip(0..).map(|(samples, rank)| measured(samples, rank)).collect();
        let parts = each.iter().zip(0..).map(|(measured, rank)| sent(&part(measured, rank))).collect();
        let whole = sent(&PointPart::sum(parts));
        let together = measured(&ranks.concat(), 0);
        prop_assert_eq!(whole.rows.len(), ranks.len());
        prop_assert_eq!(whole.file_set.files, 10 * ranks.len() as u64);
        let merged = whole.measured.into_measured(measured(&[], 0), &whole.rows, 0);
        prop_assert_eq!(merged.tallies.histogram(), together.tallies.histogram());
        prop_assert_eq!(&merged.lateness, &together.lateness);
        for ((kind, one), (other_kind, other)) in merged.tallies.iter().zip(together.tallies.iter()) {
            prop_assert_eq!(kind, other_kind);
            prop_assert_eq!(&one.histogram, &other.histogram);
            prop_assert_eq!(&one.errors, &other.errors);
            prop_assert_eq!((one.attempted, one.ok, one.bytes), (other.attempted, other.ok, other.bytes));
        }
        let highest = (ranks.len() - 1) as u64;
        prop_assert_eq!(merged.overtaken, highest * (highest + 1) / 2);
        let (chains, of_one) = (&merged.chains[0], &together.chains[0]);
        prop_assert_eq!((&chains.histogram, chains.begun), (&of_one.histogram, of_one.begun));
        prop_assert_eq!(chains.requests, 3 * ranks.len() as u64);
        prop_assert_eq!(merged.planned, together.planned + merged.overtaken);
        prop_assert_eq!(merged.busy, 0.01 * highest as f64);
    }

    #[test]
    fn the_histogram_of_all_ranks_is_that_of_all_the_raw_samples_they_wrote(
        ranks in prop::collection::vec(samples(), 1..8),
    ) {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let prefix = folder.path().join("run");
        let part_of = |(samples, rank): (&Vec<_>, u32)| sent(&part(&measured(samples, rank.into()), rank));
        let parts: Vec<PointPart> = ranks.iter().zip(0..).map(part_of).collect();
        for (samples, rank) in ranks.iter().zip(0..) {
            let mut raw = RawFile::create(&prefix, rank, &[], Duration::ZERO).unwrap();
            for (kind, ns) in samples {
                let outcome = if ns % 17 == 0 { Outcome::Cancelled } else { Outcome::Ok(files::Reply::Null) };
                raw.samples.push(*kind, Duration::ZERO, Duration::from_nanos(*ns), &outcome);
            }
            raw.write(1).unwrap();
        }
        let whole = PointPart::sum(parts);
        let merged = whole.measured.into_measured(measured(&[], 0), &whole.rows, 0);
        let mut of_kinds: BTreeMap<String, LatencyHistogram> = BTreeMap::new();
        for rank in 0..ranks.len() {
            let text = std::fs::read_to_string(format!("{}-rank-{rank}.csv", prefix.display())).unwrap();
            for line in text.lines().skip(1) {
                let fields: Vec<&str> = line.split(',').collect();
                let [_, kind, _, ns, outcome] = fields[..] else { panic!("{line}") };
                let of_kind = of_kinds.entry(kind.to_owned()).or_default();
                if outcome == "ok" {
                    of_kind.record(Duration::from_nanos(ns.parse().unwrap()));
                }
            }
        }
        for (kind, tally) in merged.tallies.iter() {
            let of_kind = of_kinds.remove(kind.name()).unwrap_or_default();
            prop_assert_eq!(of_kind, tally.histogram.clone(), "{}", kind.name());
        }
        prop_assert!(of_kinds.is_empty());
    }
}

#[test]
fn the_rank_that_lost_its_storage_stands_for_all_and_the_digest_knows_the_order() {
    let mut lost = measured(&[], 1);
    let why = RanksError::Elsewhere { rank: 9, host: "x".to_owned(), why: "cable pulled".to_owned() }.into();
    lost.cut_short = Some(CutShort::Gone(why));
    let mut stopped = measured(&[], 2);
    stopped.cut_short = Some(CutShort::Stopped);
    let parts = vec![part(&stopped, 0), part(&lost, 1), part(&measured(&[], 3), 2)];
    let whole = PointPart::sum(parts.clone());
    let turned = PointPart::sum(vec![parts[1].clone(), parts[0].clone(), parts[2].clone()]);
    assert_ne!(whole.measured.digest, turned.measured.digest);
    let merged = whole.measured.into_measured(measured(&[], 0), &whole.rows, 0);
    let Some(CutShort::Gone(error)) = merged.cut_short else { panic!("the storage is gone") };
    let message = error.to_string();
    assert!(message.contains("rank 1 on host1") && message.contains("cable pulled"), "{message}");
}

/// The bar is 20 load points of 1,000 ranks in 10 s and 1 GB, in a release build: half a millisecond and a megabyte for
/// each part. Here some of them; `CRUMB_MERGE_RANKS` and `CRUMB_MERGE_POINTS` ask for more.
#[test]
#[allow(clippy::print_stderr, reason = "time and memory are what it is run for")]
fn the_parts_of_many_ranks_are_added_up_in_little_time_and_memory() {
    const PART_TIME_MAX: Duration = Duration::from_micros(500);
    const PART_KIB_MAX: u64 = 1024;
    let samples: Vec<(OpKind, u64)> =
        (0..20_000u64).map(|n| (KINDS[n as usize % 4], 200_000 + n * n * 40 % 90_000_000)).collect();
    let one = postcard::to_stdvec(&part(&measured(&samples, 1), 1)).unwrap();
    let asked = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u32>().ok());
    let ranks = asked("CRUMB_MERGE_RANKS").unwrap_or(50);
    let points = asked("CRUMB_MERGE_POINTS").unwrap_or(5);
    let (mut quickest, mut kib) = (Duration::MAX, 0);
    let begun = Instant::now();
    for _ in 0..points {
        let (began, kib_before) = (Instant::now(), resident_kib());
        let parts: Vec<PointPart> = (0..ranks).map(|_| postcard::from_bytes(&one).unwrap()).collect();
        kib = kib.max(resident_kib().saturating_sub(kib_before));
        let whole = PointPart::sum(parts);
        let merged = whole.measured.into_measured(measured(&[], 0), &whole.rows, 0);
        assert_eq!(merged.sent, u64::from(ranks) * 20_000);
        quickest = quickest.min(began.elapsed());
    }
    let took = begun.elapsed();
    eprintln!(
        "{points} points of {ranks} ranks: {took:?}; a part: {} bytes, {:?}",
        one.len(),
        quickest / ranks
    );
    // Others compute here as well: the quickest counts. A build without optimisation takes its time, and on a machine with
    // five times as much to do as it has processors that is five times as long.
    let slower = if cfg!(debug_assertions) { 20 } else { 1 };
    assert!(quickest / ranks < PART_TIME_MAX * slower, "{:?} for a part", quickest / ranks);
    // So do other tests; they need a few megabytes.
    assert!(kib < u64::from(ranks) * PART_KIB_MAX, "{kib} KiB for {ranks} parts");
}

/// Memory that this process has now.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
