//! Turns measurements into a load point, and judges whether it is valid.
//!
//! A point is *saturated* when the storage did not answer 99.5% of what was due in time: that is a finding about
//! the storage, reported in the point's verdict and expected at the end of a sweep. A point is INVALID for other reasons
//! if the generator, and not the storage, determined the figures.
//!
//! Sources: docs/guide/trust.md (what makes a figure count); SPEC SFS 3.0 run rules (overall response time); Fstress paper,
//! section 6.2 (mix within 0.1 points).

use std::collections::BTreeMap;
use std::time::Duration;

use files::Status;
use harness::open_loop::{
    GENERATOR_BUSY, GENERATOR_LATE, GeneratorLimits, Lateness, RATE_OFF, Shortfall, TRANSPORT_FULL,
};
use harness::series::MEASURED_AGAIN;
use measure::{
    BOUND_MISSED, ChainStats, FileSetRecord, LoadPoint, LoopKind, MACHINE_DISTURBED, Pacing, RankPart,
    TimeSeries, Verdict,
};

use crate::load::{LatencyBound, Load};
use crate::open_loop::metronome::{Absence, CutShort, Measured};
use crate::workload::chains::Chain;
use crate::workload::mix::Mix;

/// What a load point was asked to be.
pub(crate) struct Asked<'a> {
    /// Requests a second; none in a closed loop.
    pub rate: Option<f64>,
    /// Requests outstanding; none in an open loop.
    pub outstanding: Option<u32>,
    /// Shares of all requests.
    pub mix: &'a Mix,
    pub chains: &'a [Chain],
    pub file_set: FileSetRecord,
    /// How long replies were waited for after the interval.
    pub drain: Duration,
    /// Lowest median latency from the moment really sent among this run's earlier levels, microseconds.
    pub light_p50_us: Option<f64>,
    /// The storage is a local file system, and no server.
    pub is_local: bool,
}

/// Percentage points by which an operation's share may differ from the one asked.
const MIX_POINTS_MAX: f64 = 0.1;
/// The shares of a mix are whole parts of a large number, so that a percentage asked is off by a little.
const MIX_OPERATIONS_NOISE: f64 = 1e-3;
/// Share of failed operations above which latencies mean little.
const ERRORS_MAX: f64 = 0.01;
/// Samples below which a 99th percentile rests on fewer than ten.
const SAMPLES_MIN: u64 = 1000;
/// The same above any percentile.
const SAMPLES_ABOVE_MIN: f64 = 10.0;
const FEW_SAMPLES: &str = "few-samples";
/// The warm-up takes in what is below; a begin further apart than this shows in the figures of a bare second.
const SKEW_US_MAX: f64 = 10_000.0;
/// Share by which the number of files may differ from the one asked.
const FILES_OFF_MAX: f64 = 0.01;

/// Share of the bytes it was made with that a file set may lack, because the writes of the mix do not fill the files that
/// its creates make.
const BYTES_LACKING_MAX: f64 = 0.3;

/// One rank's row; who it is and how it began is the rank group's to say.
pub(crate) fn rank_part(measured: &Measured, rate: Option<f64>) -> RankPart {
    let seconds = measured.measured.as_secs_f64().max(1e-9);
    RankPart {
        offered_per_sec: rate,
        sent_per_sec: measured.sent as f64 / seconds,
        achieved_per_sec: measured.ok_within as f64 / seconds,
        held: held(measured),
        lateness_us: measured.lateness.sending.summary(),
        latency_us: measured.tallies.histogram().summary(),
        generator_busy: measured.busy,
        errors: measured.tallies.sum(|tally| tally.errors_total() + tally.cancelled),
        ..RankPart::default()
    }
}

/// Share of what was due that was answered in time, an error that the storage gave for an answer among them: many of those
/// spoil a level too, by a reason of their own.
fn held(measured: &Measured) -> f64 {
    measured.answered_within as f64 / measured.planned.max(1) as f64
}

/// Whether the storage held the level: it answered in time, and hardly ever with an error.
pub(crate) fn was_held(point: &LoadPoint) -> bool {
    let (attempted, failed) = point.ops.values().fold((0, 0), |(attempted, failed), stats| {
        (attempted + stats.attempted, failed + stats.cancelled + stats.errors.values().sum::<u64>())
    });
    !point.saturated
        && !was_interrupted(point)
        && !point.verdict.has(RATE_OFF)
        && failed as f64 <= ERRORS_MAX * attempted as f64
}

/// Whether the level ended so early, by the user or because the storage went away, that it says nothing of what the storage
/// holds.
pub(crate) fn was_interrupted(point: &LoadPoint) -> bool {
    [INTERRUPTED, STORAGE_GONE, STOPPED].iter().any(|code| point.verdict.has(code))
}

/// Code of a level that was stopped before what was due could be answered.
const INTERRUPTED: &str = "interrupted";
/// Code of a level that was stopped when all that was due had been answered. A part of an interval is no answer either.
const STOPPED: &str = "stopped";
/// Code of a level in which the storage went away.
const STORAGE_GONE: &str = "storage-gone";

/// How a rank was late, if it was by too much.
pub(crate) fn lateness_text(measured: &Measured) -> Option<String> {
    lateness_of(measured).text(&GeneratorLimits::default())
}

fn lateness_of(measured: &Measured) -> Lateness {
    measured.lateness.beside(measured.tallies.histogram().summary())
}

/// Whether the level failed by what the storage did.
pub(crate) fn was_failed_by_storage(point: &LoadPoint) -> bool {
    let is_ours = was_spoilt_by_others(point) || is_fatal(point, TRANSPORT_FULL);
    !was_held(point) && !was_interrupted(point) && (point.saturated || !is_ours)
}

fn is_fatal(point: &LoadPoint, code: &str) -> bool {
    point.verdict.reasons.iter().any(|reason| reason.fatal && reason.code == code)
}

/// The load point for the record; `parts` has the rows of the ranks when there were several.
pub(crate) fn load_point(measured: &Measured, asked: &Asked<'_>, parts: Vec<RankPart>) -> LoadPoint {
    let seconds = measured.measured.as_secs_f64().max(1e-9);
    let mut histogram = measured.tallies.histogram();
    if measured.is_storage_gone() {
        // What could not be sent, as the storage was gone, was not answered either.
        let unsent = measured.planned - measured.sent;
        histogram.add_buckets(&[(asked.drain.as_nanos() as u64, unsent)]);
    }
    let lateness = measured.lateness.beside(histogram.summary());
    let mut point = LoadPoint {
        loop_kind: if asked.rate.is_some() { LoopKind::Open } else { LoopKind::Closed },
        offered_per_sec: asked.rate,
        outstanding: asked.outstanding,
        sent_per_sec: measured.sent as f64 / seconds,
        achieved_per_sec: measured.ok_within as f64 / seconds,
        warm_s: round_ms(measured.warmed),
        measured_s: round_ms(measured.measured),
        unsent: measured.planned - measured.sent,
        reconnects: measured.counters.reconnects,
        bad_replies: measured.counters.bad_replies,
        generator_busy: measured.busy,
        overtaken: measured.overtaken,
        operations_digest: format!("{:016x}", measured.digest),
        lateness_us: lateness.sending,
        latency_us: histogram.summary(),
        histogram,
        ops: measured.tallies.op_stats(asked.mix),
        chains: chain_stats(measured, asked.chains),
        file_set: asked.file_set,
        saturated: false,
        verdict: Verdict::valid(),
        parts,
        pacing: asked.rate.map(|_| Pacing {
            sent_together_share: lateness.together_share,
            reply_lateness_us: lateness.taking,
            latency_from_planned_us: lateness.from_planned,
            latency_from_sent_us: lateness.from_sent,
            latency_without_lateness_us: lateness.without,
            unanswered: unanswered(measured),
            transport_full_share: full_share(measured),
        }),
        time_series: time_series(measured),
    };
    judge(&mut point, &lateness, measured, asked);
    point
}

/// With the warm-up, as a level that begins badly says why.
fn time_series(measured: &Measured) -> Option<TimeSeries> {
    let series = measured.steps.clone().series(measured.warmed + measured.measured)?;
    Some(TimeSeries { measured_from_s: measured.warmed.as_secs_f64(), ..series })
}

fn chain_stats(measured: &Measured, chains: &[Chain]) -> BTreeMap<String, ChainStats> {
    let of_each = chains.iter().zip(&measured.chains);
    of_each.map(|(chain, tally)| (chain.name(), tally.stats(chain.steps().len()))).collect()
}

/// What chains did not send because an earlier request of them failed or was not answered.
fn remark_chains(point: &LoadPoint, verdict: &mut Verdict) {
    let sum = |of: fn(&ChainStats) -> u64| point.chains.values().map(of).sum::<u64>();
    let left = sum(|chain| chain.requests_not_sent);
    if left > 0 {
        let (begun, failed, unanswered) =
            (sum(|chain| chain.begun), sum(|chain| chain.failed), sum(|chain| chain.unanswered));
        verdict.remark(
            "chains-ended-early",
            format!(
                "{} of {begun} chains ended early ({failed} by an error, {unanswered} without an answer): {left} of their requests \
                 were not sent",
                failed + unanswered
            ),
        );
    }
}

/// Requests that were waited for to the end without an answer; with a storage that went away, also those that it could not be
/// sent.
fn unanswered(measured: &Measured) -> u64 {
    let cancelled = measured.tallies.sum(|tally| tally.cancelled);
    match measured.cut_short {
        Some(CutShort::Stopped) => 0,
        _ if measured.is_storage_gone() => cancelled + (measured.planned - measured.sent),
        _ => cancelled,
    }
}

fn remark_unanswered(measured: &Measured, due: u64, verdict: &mut Verdict) {
    let unanswered = unanswered(measured);
    if unanswered > 0 {
        verdict.remark(
            "unanswered",
            format!(
                "{unanswered} of {due} requests were not answered: they count with the time that was waited for them, so that \
                 mean, highest percentiles and maximum are those figures at least"
            ),
        );
    }
}

/// How the storage went away without an error of the transport.
fn absence_text(measured: &Measured) -> String {
    let Absence { away, is_away_still, silent } = measured.absence;
    let how = match (is_away_still, silent.is_zero()) {
        (true, _) => format!(
            "the connection to the storage was lost for {:.1} s of the measured interval, and not regained after it",
            away.as_secs_f64()
        ),
        (false, true) => format!(
            "the connection to the storage was lost for {:.1} s of the measured interval",
            away.as_secs_f64()
        ),
        (false, false) => {
            format!("the storage answered nothing in the last {:.1} s of waiting", silent.as_secs_f64())
        }
    };
    format!("{how}; is the server still running?")
}

fn full_share(measured: &Measured) -> f64 {
    (measured.full.as_secs_f64() / measured.measured.as_secs_f64().max(1e-9)).min(1.0)
}

fn judge(point: &mut LoadPoint, lateness: &Lateness, measured: &Measured, asked: &Asked<'_>) {
    let attempted = measured.tallies.sum(|tally| tally.attempted);
    let is_stopped = matches!(measured.cut_short, Some(CutShort::Stopped));
    let is_gone = measured.is_storage_gone();
    let cancelled = measured.tallies.sum(|tally| tally.cancelled);
    // What was not waited for any more has not failed.
    let (cut_off, cancelled) = if is_stopped { (cancelled, 0) } else { (0, cancelled) };
    let failed = measured.tallies.sum(|tally| tally.errors_total()) + cancelled;
    let mut verdict = Verdict::valid();

    match &measured.cut_short {
        Some(CutShort::Gone(error)) => verdict.invalidate(STORAGE_GONE, measure::error_chain(error)),
        Some(CutShort::Stopped) => verdict.remark(STOPPED, "stopped by the user before its end"),
        None if is_gone => verdict.invalidate(STORAGE_GONE, absence_text(measured)),
        None => {}
    }
    if is_gone {
        // That nothing was answered any more says neither where the storage saturates nor how well this sends.
        remark_unanswered(measured, measured.planned, &mut verdict);
        point.verdict = verdict;
        return;
    }
    if attempted == 0 {
        verdict.invalidate("nothing-sent", "nothing was sent in the measured interval");
        point.verdict = verdict;
        return;
    }

    let limits = GeneratorLimits::default();
    let is_open = point.loop_kind == LoopKind::Open;
    let held = held(measured);
    if is_stopped
        && (is_open && held < limits.held_min || cut_off as f64 > (1.0 - limits.held_min) * attempted as f64)
    {
        // Requests that were under way at that moment are no finding about the storage.
        verdict.invalidate(
            INTERRUPTED,
            format!(
                "interrupted after {:.1} s of measuring, before what was due by then was answered; this says nothing of the \
                 storage",
                point.measured_s
            ),
        );
    } else if is_open {
        let shortfall = Shortfall {
            due: measured.planned,
            sent: measured.sent,
            answered: measured.answered_within,
            full_share: full_share(measured),
            sent_p50_us: lateness.from_sent.p50,
            light_p50_us: asked.light_p50_us,
        };
        let more_room = if asked.is_local { "give it more --threads" } else { "give it more --connections" };
        let is_saturated = shortfall.judge(&limits, "the storage", more_room, &mut verdict);
        point.saturated = is_saturated == Some(true);
    }
    if is_open && !point.parts.is_empty() && !is_stopped {
        judge_ranks(&point.parts, &measured.late_ranks, held, &limits, &mut verdict);
        if !verdict.has(GENERATOR_LATE) {
            lateness.remark(&limits, &mut verdict);
        }
    } else if is_open && !verdict.has(GENERATOR_LATE) {
        lateness.judge(&limits, &mut verdict);
    }
    measured.machine.judge(&mut verdict);
    remark_unanswered(measured, attempted, &mut verdict);
    remark_chains(point, &mut verdict);
    if is_open && point.parts.is_empty() && measured.busy > limits.busy_max {
        verdict.invalidate(
            GENERATOR_BUSY,
            format!("the generator used {:.0}% of its core and may be the limit", 100.0 * measured.busy),
        );
    }
    for (name, stats) in &point.ops {
        let off = stats.share_percent - stats.share_asked_percent;
        if is_mix_off(off.abs(), attempted, point.parts.len()) {
            verdict.invalidate(
                "mix-off",
                format!(
                    "{name} was {:.2}% of the requests, not {:.2}%",
                    stats.share_percent, stats.share_asked_percent
                ),
            );
        }
    }
    let failed_share = failed as f64 / attempted as f64;
    if failed_share > ERRORS_MAX {
        let most = commonest_error(point, asked.is_local);
        verdict.invalidate("errors", format!("{:.1}% of the operations failed{most}", 100.0 * failed_share));
    } else if failed > 0 {
        let most = commonest_error(point, asked.is_local);
        verdict.remark("errors", format!("{failed} of {attempted} operations failed{most}"));
    }
    let garbage = measured.counters.garbage;
    if garbage > 0 {
        let share = garbage as f64 / attempted as f64;
        let text = format!(
            "{garbage} messages, {:.1}% as many as the operations, were no replies of NFS: look at the server and at the way \
             to it",
            100.0 * share
        );
        if share > ERRORS_MAX {
            verdict.invalidate("garbage", text);
        } else {
            verdict.remark("garbage", text);
        }
    }
    let set = &point.file_set;
    if (set.files as f64 - set.files_asked as f64).abs() > (FILES_OFF_MAX * set.files_asked as f64).max(10.0)
    {
        verdict
            .invalidate("file-set-off", format!("the set had {} files, not {}", set.files, set.files_asked));
    }
    // Sizes are drawn, so that a set of few files gains and loses bytes by chance: what counts is that bytes are lacking and
    // that they are waited for.
    let (made, to_come) = (measured.set_bytes_made as f64, measured.set_bytes_to_come as f64);
    if made > 0.0
        && to_come > BYTES_LACKING_MAX * made
        && (set.bytes as f64) < (1.0 - BYTES_LACKING_MAX) * made
    {
        verdict.invalidate(
            "set-bytes-off",
            format!(
                "the set held {:.0} MB, made with {:.0} MB: files that were created wait for {:.0} MB more, as the writes are too \
                 few or too small to fill them; use larger transfers (TCP instead of UDP), or smaller files (--file-size)",
                set.bytes as f64 / 1e6,
                made / 1e6,
                to_come / 1e6
            ),
        );
    }
    if point.latency_us.count < SAMPLES_MIN {
        verdict.remark(
            FEW_SAMPLES,
            format!("{} samples: too few for a 99th percentile to be trusted", point.latency_us.count),
        );
    }
    if point.overtaken > 0 {
        verdict.remark(
            "overtaken",
            format!(
                "{} requests were replaced by others, as what they depend on was not answered yet: another run with this seed \
                 may differ there",
                point.overtaken
            ),
        );
    }
    if cfg!(debug_assertions) {
        verdict.remark("debug-build", "measured with a debug build: do not trust the figures");
    }
    point.verdict = verdict;
}

/// Whether the share of an operation is off by too many percentage points.
fn is_mix_off(points: f64, attempted: u64, ranks: usize) -> bool {
    // Two operations more or less are no deviation, however short the interval; each rank deals for itself.
    let operations = points / 100.0 * attempted as f64;
    points > MIX_POINTS_MAX && operations > 2.0 * ranks.max(1) as f64 + MIX_OPERATIONS_NOISE
}

/// What speaks against single ranks, the worst of them by name.
fn judge_ranks(
    parts: &[RankPart],
    late: &[(u32, String)],
    held: f64,
    limits: &GeneratorLimits,
    verdict: &mut Verdict,
) {
    let others = |count: usize| match count {
        0 | 1 => String::new(),
        2 => ", and another rank too".to_owned(),
        more => format!(", and {} other ranks too", more - 1),
    };
    let lateness =
        |rank: u32| parts.iter().find(|part| part.rank == rank).map_or(0.0, |part| part.lateness_us.mean);
    if let Some((rank, text)) = late.iter().max_by(|a, b| lateness(a.0).total_cmp(&lateness(b.0))) {
        let host = parts.iter().find(|part| part.rank == *rank).map_or("", |part| &part.host);
        verdict.invalidate(
            GENERATOR_LATE,
            format!(
                "rank {rank} on {host} {text}{}; give each rank a core of its own or lower the rate",
                others(late.len())
            ),
        );
    }
    let busy: Vec<_> = parts.iter().filter(|part| part.generator_busy > limits.busy_max).collect();
    let worst = busy.iter().max_by(|a, b| a.generator_busy.total_cmp(&b.generator_busy));
    if let Some(RankPart { rank, host, generator_busy, .. }) = worst {
        verdict.invalidate(
            GENERATOR_BUSY,
            format!(
                "rank {rank} on {host} used {:.0}% of its core and may be the limit{}; use more ranks",
                100.0 * generator_busy,
                others(busy.len())
            ),
        );
    }
    // Where all are short it is the storage; where only some are, it is they or their way to it.
    let short: Vec<_> = parts.iter().filter(|part| part.held < limits.held_min).collect();
    let worst = short.iter().min_by(|a, b| a.held.total_cmp(&b.held));
    if let Some(RankPart { rank, host, held: of_rank, .. }) = worst
        && (held >= limits.held_min || short.len() < parts.len())
    {
        verdict.invalidate(
            "rank-short",
            format!(
                "of what rank {rank} on {host} was to ask {:.1}% was not answered in time, of the whole {:.1}%{}; look \
                 at its way to the storage",
                100.0 * (1.0 - of_rank),
                100.0 * (1.0 - held),
                others(short.len())
            ),
        );
    }
    let skewed = |part: &RankPart| part.start_skew_us + part.clock_uncertainty_us;
    if let Some(part) = parts.iter().max_by(|a, b| skewed(a).total_cmp(&skewed(b)))
        && skewed(part) > SKEW_US_MAX
    {
        verdict.remark(
            "start-skew",
            format!(
                "rank {} on {} began {:.1} ms after the common moment, give or take {:.1} ms",
                part.rank,
                part.host,
                part.start_skew_us / 1e3,
                part.clock_uncertainty_us / 1e3
            ),
        );
    }
}

/// Whether a level's latencies meet a bound, each operation that failed taken as one that took forever.
pub(crate) fn is_within(point: &LoadPoint, bound: &LatencyBound) -> bool {
    bound.is_met_by(&point.histogram, errors(point))
}

/// Says of a level that its latencies missed the bound of the search. One that was not held failed by that already.
pub(crate) fn note_bound(point: &mut LoadPoint, bound: &LatencyBound) {
    if is_within(point, bound) || !was_held(point) {
        return;
    }
    let quantile_us = point.histogram.quantile(bound.quantile).as_secs_f64() * 1e6;
    let reached = measure::numbers::figure_text("us", quantile_us);
    let failed = errors(point);
    let among = if failed == 0 { String::new() } else { format!(", and {failed} requests failed") };
    let percentile = bound.percentile_text();
    point.verdict.remark(BOUND_MISSED, format!("over the bound {bound}: {percentile} is {reached}{among}"));
}

fn errors(point: &LoadPoint) -> u64 {
    point.ops.values().map(|stats| stats.errors.values().sum::<u64>()).sum()
}

/// Whether the generator or the machine around it, and not the storage, made a point what it is.
pub(crate) fn was_spoilt_by_others(point: &LoadPoint) -> bool {
    [GENERATOR_LATE, GENERATOR_BUSY, MACHINE_DISTURBED].iter().any(|code| point.verdict.has(code))
}

/// What made a level INVALID, in a few words: of each reason what stands before its figures.
pub(crate) fn briefly(point: &LoadPoint) -> String {
    let first = |text: &str| text.split_once(": ").map_or(text, |(first, _)| first).to_owned();
    let reasons = point.verdict.reasons.iter().filter(|reason| reason.fatal);
    let texts: Vec<String> = reasons.map(|reason| first(&reason.text)).collect();
    format!("INVALID ({})", texts.join("; "))
}

/// Says of a level that it was measured again, and why.
pub(crate) fn note_repeat(point: &mut LoadPoint, why: &str) {
    point.verdict.remark(MEASURED_AGAIN, format!("measured again, as it was {why}"));
}

/// A level that the answer rests on, that others than the storage spoilt, and that was not measured again yet: its place.
pub(crate) fn answer_to_repeat(points: &[LoadPoint], load: &Load) -> Option<usize> {
    let is_to_repeat = |point: &LoadPoint| was_spoilt_by_others(point) && !point.verdict.has(MEASURED_AGAIN);
    rests_on(points, load).into_iter().find(|index| is_to_repeat(&points[*index]))
}

/// The name of the error met most, with what to do about it, as the end of a sentence.
fn commonest_error(point: &LoadPoint, is_local: bool) -> String {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, count) in point.ops.values().flat_map(|stats| &stats.errors) {
        *counts.entry(name).or_insert(0) += count;
    }
    let Some((name, _)) = counts.into_iter().max_by_key(|&(_, count)| count) else { return String::new() };
    let status = Status::from_name(name);
    if is_local && let Some((words, advice)) = status.and_then(Status::local_words) {
        // The tables call it by its name in NFSv3, as every kind of storage does.
        let advice = if advice.is_empty() { String::new() } else { format!(": {advice}") };
        return format!(", most with {name}, here {words}{advice}");
    }
    match status.map(Status::advice) {
        Some(advice) if !advice.is_empty() => format!(", most with {name}: {advice}"),
        _ => format!(", most with {name}"),
    }
}

fn level(point: &LoadPoint) -> String {
    match (point.offered_per_sec, point.outstanding) {
        (Some(rate), _) => format!("{rate}/s"),
        (None, outstanding) => format!("{} outstanding", outstanding.unwrap_or(0)),
    }
}

/// Whether a headline may come from this level: the storage held it, and nothing else spoilt it.
pub(crate) fn is_answer(point: &LoadPoint) -> bool {
    was_held(point) && point.verdict.valid
}

/// Whether the storage held a level and kept to the bound that was searched for.
fn is_met(point: &LoadPoint, load: &Load) -> bool {
    let is_within = match load {
        Load::FindMax { bound, .. } => is_within(point, bound),
        Load::Sweep(_) | Load::Auto { .. } | Load::Max { .. } => true,
    };
    was_held(point) && is_within
}

/// The levels that the answer of a run rests on, by their place: the highest that was held and the lowest that failed. One that
/// was spoilt below another that held is not needed for the answer.
fn rests_on(points: &[LoadPoint], load: &Load) -> Vec<usize> {
    let rate = |index: usize| points[index].offered_per_sec.unwrap_or(0.0);
    let by_rate = |a: &usize, b: &usize| rate(*a).total_cmp(&rate(*b));
    let counted = || (0..points.len()).filter(|index| !was_interrupted(&points[*index]));
    let held = counted().filter(|index| is_met(&points[*index], load)).max_by(by_rate);
    let above = |index: &usize| held.is_none_or(|held| rate(*index) > rate(held));
    let failed = counted().filter(|index| !is_met(&points[*index], load)).filter(above).min_by(by_rate);
    held.into_iter().chain(failed).collect()
}

/// Says so when a bound was judged by few samples.
fn remark_few_samples(point: &LoadPoint, bound: &LatencyBound, verdict: &mut Verdict) {
    let samples = point.latency_us.count;
    let above = (1.0 - bound.quantile) * samples as f64;
    if above < SAMPLES_ABOVE_MIN {
        verdict.remark(
            FEW_SAMPLES,
            format!(
                "at {}: whether {bound} was judged by {samples} samples, of which {above:.1} lie above that percentile; a longer \
                 --measure judges it better",
                level(point)
            ),
        );
    }
}

/// The verdict on the whole run.
///
/// It rests on the levels that the answer rests on, the highest held and the lowest failed. Other levels that are INVALID
/// keep their mark and give no headline. A sweep is meant to end in saturation, which does not spoil it; but some level must
/// have held.
pub(crate) fn run_verdict(points: &[LoadPoint], complete: bool, load: &Load) -> Verdict {
    let mut verdict = Verdict::valid();
    if points.is_empty() {
        verdict.invalidate("no-points", "no load point was measured");
        return verdict;
    }
    if points.iter().all(was_interrupted) && !points.iter().any(|point| point.verdict.has(STORAGE_GONE)) {
        verdict.invalidate(INTERRUPTED, "the run was interrupted before a load level had been measured");
    }
    let answers = rests_on(points, load);
    let mut others: Vec<String> = Vec::new();
    for (index, point) in points.iter().enumerate() {
        // What the run's end cut off does not spoil the levels before it.
        let apart = [RATE_OFF, INTERRUPTED];
        // Past saturation replies come late and files fill up; only who was at fault matters there.
        let is_ours =
            |code: &str| code.starts_with("generator") || [TRANSPORT_FULL, MACHINE_DISTURBED].contains(&code);
        let spoilt: Vec<_> = point
            .verdict
            .reasons
            .iter()
            .filter(|reason| reason.fatal && !apart.contains(&&*reason.code))
            .filter(|reason| !point.saturated || is_ours(&reason.code))
            .collect();
        if answers.contains(&index) || point.verdict.has(STORAGE_GONE) {
            for reason in spoilt {
                verdict.invalidate(&reason.code, format!("at {}: {}", level(point), reason.text));
            }
        } else if let Some(reason) = spoilt.first() {
            others.push(format!("{} ({})", level(point), reason.code));
        }
    }
    if let Load::FindMax { bound, .. } = load {
        answers.iter().for_each(|index| remark_few_samples(&points[*index], bound, &mut verdict));
    }
    if points.iter().all(|point| point.saturated) {
        verdict.invalidate("all-saturated", "every load point was past saturation; start with a lower rate");
    }
    if !others.is_empty() {
        let list = others.join(", ");
        verdict.remark("other-levels", format!("not to be trusted, and no part of the answer: {list}"));
    }
    if !complete {
        verdict.remark("incomplete", "the run did not reach its end; it holds what was measured until then");
    }
    verdict
}

/// Area under the curve of mean latency against offered load, divided by the highest load held: SPEC's overall
/// response time. Below the lowest point measured, its latency is taken. Microseconds; none without a point that held.
pub(crate) fn overall_response_time_us(points: &[LoadPoint]) -> Option<f64> {
    let mut held: Vec<(f64, f64)> = points
        .iter()
        .filter(|point| is_answer(point))
        .filter_map(|point| Some((point.offered_per_sec?, point.latency_us.mean)))
        .collect();
    held.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (&(first_rate, first_us), &(last_rate, _)) = (held.first()?, held.last()?);
    let area: f64 = held.windows(2).map(|pair| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0).sum();
    Some((area + first_rate * first_us) / last_rate)
}

fn round_ms(duration: Duration) -> f64 {
    duration.as_millis() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: short runs of several ranks had a false `mix-off`. Cause: the grace of two operations was that of one
    /// generator, and each rank deals its own.
    #[test]
    fn the_grace_of_two_operations_is_each_ranks() {
        assert!(!is_mix_off(0.2, 1000, 0) && is_mix_off(0.31, 1000, 0), "a generator alone");
        assert!(!is_mix_off(1.6, 1000, 8) && is_mix_off(1.7, 1000, 8));
        assert!(!is_mix_off(MIX_POINTS_MAX, 1_000_000, 8) && is_mix_off(0.11, 1_000_000, 8));
    }

    /// Symptom: 108 of 200 requests where 110 were asked was a `mix-off`. Cause: the share asked is 55.00000001%, as the
    /// mix deals in whole parts of a large number, so that two operations were 2.00000002. Fix: a thousandth is allowed.
    #[test]
    fn two_operations_are_two_whatever_the_rounding_of_the_share_asked() {
        let asked = 55.000_000_01;
        assert!(!is_mix_off(asked - 100.0 * 108.0 / 200.0, 200, 0));
        assert!(is_mix_off(asked - 100.0 * 107.0 / 200.0, 200, 0), "three are");
    }
}
