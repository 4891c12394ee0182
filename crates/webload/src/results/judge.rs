//! Turns counts into the record's points, phases and metrics, and judges whether they are valid.
//!
//! A load point is INVALID if the generator was late or busy, or if replies had wrong content. If only the proxy did
//! not keep up, that is a finding about the proxy, reported as such (`rate-off`; the point is marked saturated).

use std::collections::BTreeMap;

use harness::open_loop::{
    GENERATOR_BUSY, GENERATOR_LATE, GeneratorLimits, Lateness, Shortfall, TRANSPORT_FULL,
};
use measure::{
    COST_METRICS, CpuTimes, FileSetRecord, LatencyHistogram, LoadPoint, LoopKind, MACHINE_METRICS,
    MetricDeclaration, Pacing, Phase as PhaseRecord, Verdict,
};

use super::curves::Moments;
use super::tally::Tally;
use crate::generator::client::Fault;
use crate::plan::phases::{Pace, Phase};
use crate::run::{Outcome, Pool, WebloadConfig};

/// Share of failed requests above which the figures mean little.
const ERRORS_MAX: f64 = 0.01;
/// Share of requests without a reply in their time above which a tenth of what lies beyond the 99.9th percentile is not known.
const TIMED_OUT_MAX: f64 = 0.0001;
const SAMPLES_MIN: u64 = 1000;
/// Code of a level at which another rate was planned than asked for.
const OFFERED_OFF: &str = "offered-off";
/// Hits over those possible from which an earlier run must have helped; collapsed requests make some as well.
const WARM_MIN: f64 = 1.1;

/// The whole outcome.
pub(crate) fn outcome(
    config: &WebloadConfig,
    tallies: &[Tally],
    moments: &Moments,
    cpu: CpuTimes,
    complete: bool,
) -> Outcome {
    let all = || config.phases.iter().zip(tallies);
    let measured: Vec<(&Phase, &Tally)> =
        all().filter(|(phase, tally)| phase.measured && tally.planned > 0).collect();
    let points: Vec<LoadPoint> =
        measured.iter().map(|(phase, tally)| load_point(config, phase, tally)).collect();
    let answers = answers_of(&points.iter().map(|point| &point.verdict).collect::<Vec<_>>());
    let phases = all()
        .filter(|(_, tally)| tally.planned > 0)
        .map(|(phase, tally)| phase_record(phase, tally))
        .collect();
    let verdict = run_verdict(config, &points, &answers, tallies, complete);
    let mut sum = Tally::default();
    let answering = || measured.iter().zip(&answers).filter(|(_, is_answer)| **is_answer).map(|(one, _)| one);
    answering().for_each(|(_, tally)| sum.merge(tally));
    if answering().any(|(_, tally)| tally.proxy.is_none()) {
        sum.proxy = None;
    }
    // The walls of one phase's generators are the same time; those of phases follow each other.
    let wall_s: f64 = answering().map(|(_, tally)| tally.wall.as_secs_f64()).sum();
    let mut metrics = metrics(&sum, wall_s);
    let cpu_s = (cpu.user + cpu.sys).as_secs_f64();
    metrics.insert("generator_cpu_s".to_owned(), cpu_s);
    Outcome { points, phases, curves: moments.curves(), metrics, verdict, complete }
}

/// Which levels the run's figures and verdict rest on: those that the generator did not spoil, or all where it spoilt all.
fn answers_of(levels: &[&Verdict]) -> Vec<bool> {
    let ours = [GENERATOR_LATE, GENERATOR_BUSY, TRANSPORT_FULL, OFFERED_OFF];
    let is_spoilt = |verdict: &&Verdict| {
        let mut fatal = verdict.reasons.iter().filter(|reason| reason.fatal);
        fatal.any(|reason| ours.contains(&&*reason.code))
    };
    let all_spoilt = levels.iter().all(is_spoilt);
    levels.iter().map(|level| all_spoilt || !is_spoilt(level)).collect()
}

fn percent(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { 100.0 * part as f64 / of as f64 }
}

fn mean_us(histogram: &LatencyHistogram) -> f64 {
    histogram.summary().mean
}

/// What a run emits, by order of interest, and its curves.
pub const METRICS: &[MetricDeclaration] = &[
    MetricDeclaration::rate("requests_per_sec", "Requests").answers(),
    MetricDeclaration::micros("response_mean_us", "Response mean").answers().tile(),
    MetricDeclaration::micros("response_p50_us", "Response latency p50"),
    MetricDeclaration::micros("response_p99_us", "Response latency p99").tile(),
    MetricDeclaration::micros("response_without_think_us", "Response without think"),
    MetricDeclaration::percent("document_hit_percent", "Document hit").tile(),
    MetricDeclaration::percent("document_hit_offered_percent", "Document hit offered"),
    MetricDeclaration::percent("byte_hit_percent", "Byte hit"),
    MetricDeclaration::percent("byte_hit_offered_percent", "Byte hit offered"),
    MetricDeclaration::percent("errors_percent", "Errors").tile(),
    MetricDeclaration::count("false_replies", "False replies"),
    MetricDeclaration::bytes_rate("body_bytes_per_sec", "Body bytes"),
    MetricDeclaration::micros("{kind}_mean_us", "{kind} mean"),
    MetricDeclaration::micros("{kind}_p50_us", "{kind} latency p50"),
    MetricDeclaration::micros("{kind}_p99_us", "{kind} latency p99"),
    MetricDeclaration::seconds("generator_cpu_s", "Generator cpu"),
    MetricDeclaration::micros("proxy_cpu_a_request_us", "Proxy cpu a request"),
    MetricDeclaration::count("proxy_written_a_body_byte", "Proxy written a body byte"),
    MetricDeclaration::new("proxy_resident_bytes", "B", "Proxy resident"),
    MetricDeclaration::micros("response_us", "Response"),
    COST_METRICS[0],
    COST_METRICS[1],
    MACHINE_METRICS[0],
    MACHINE_METRICS[1],
    MACHINE_METRICS[2],
    MACHINE_METRICS[3],
    MACHINE_METRICS[4],
];

/// Figures of all load points together.
fn metrics(sum: &Tally, wall_s: f64) -> BTreeMap<String, f64> {
    let mut metrics = BTreeMap::new();
    if sum.attempted() == 0 || wall_s <= 0.0 {
        return metrics;
    }
    let latency = sum.latency().summary();
    let mut put = |name: &str, value: f64| {
        metrics.insert(name.to_owned(), value);
    };
    put("requests_per_sec", sum.ok() as f64 / wall_s);
    put("body_bytes_per_sec", sum.bytes as f64 / wall_s);
    put("response_mean_us", latency.mean);
    put("response_p50_us", latency.p50);
    put("response_p99_us", latency.p99);
    put("response_without_think_us", mean_us(&sum.without_think));
    put("document_hit_percent", percent(sum.hits, sum.ok()));
    put("document_hit_offered_percent", percent(sum.could_hit, sum.ok()));
    put("byte_hit_percent", percent(sum.hit_bytes, sum.bytes));
    put("byte_hit_offered_percent", percent(sum.could_hit_bytes, sum.asked_bytes));
    put("errors_percent", percent(sum.failed(), sum.attempted()));
    if let Some(used) = sum.proxy {
        put("proxy_cpu_a_request_us", 1e6 * used.cpu_s / sum.ok().max(1) as f64);
        if let Some(written) = used.written_bytes {
            put("proxy_written_a_body_byte", written as f64 / sum.bytes.max(1) as f64);
        }
        put("proxy_resident_bytes", used.resident_bytes as f64);
    }
    let false_content: u64 =
        sum.faults().iter().filter(|(fault, _)| fault.is_false_content()).map(|(_, count)| count).sum();
    put("false_replies", false_content as f64);
    for (name, histogram) in [("hit", &sum.hit_latency), ("miss", &sum.miss_latency)] {
        if histogram.count() > 0 {
            let summary = histogram.summary();
            put(&format!("{name}_mean_us"), summary.mean);
            put(&format!("{name}_p50_us"), summary.p50);
            put(&format!("{name}_p99_us"), summary.p99);
        }
    }
    metrics
}

fn busy(tally: &Tally, threads: usize) -> f64 {
    let walls = tally.wall.as_secs_f64() * threads as f64;
    if walls <= 0.0 { 0.0 } else { (1.0 - tally.idle.as_secs_f64() / walls).clamp(0.0, 1.0) }
}

fn load_point(config: &WebloadConfig, phase: &Phase, tally: &Tally) -> LoadPoint {
    let seconds = tally.wall.as_secs_f64().max(1e-9);
    let histogram = tally.latency();
    let lateness = tally.lateness.beside(histogram.summary());
    let connections = match config.pool {
        Pool::Shared { connections } => Some(connections),
        Pool::Robots { .. } => None,
    };
    let open = phase.pace != Pace::Closed;
    let mut point = LoadPoint {
        loop_kind: if open { LoopKind::Open } else { LoopKind::Closed },
        offered_per_sec: match phase.pace {
            Pace::OfPlan => Some(tally.planned as f64 / seconds),
            _ => phase.rate_mean(),
        },
        outstanding: connections.filter(|_| !open),
        sent_per_sec: tally.attempted() as f64 / seconds,
        achieved_per_sec: tally.ok_within as f64 / seconds,
        warm_s: 0.0,
        measured_s: (seconds * 1e3).round() / 1e3,
        unsent: tally.planned.saturating_sub(tally.attempted()),
        reconnects: tally.reconnects,
        bad_replies: tally.faults().get(&Fault::BadReply).copied().unwrap_or(0),
        generator_busy: busy(tally, config.threads.get()),
        overtaken: 0,
        operations_digest: format!("{:016x}", tally.digest),
        lateness_us: lateness.sending,
        latency_us: histogram.summary(),
        histogram,
        ops: tally.op_stats(),
        chains: Default::default(),
        file_set: FileSetRecord::default(),
        saturated: false,
        verdict: Verdict::valid(),
        parts: vec![],
        pacing: open.then(|| Pacing {
            sent_together_share: lateness.together_share,
            reply_lateness_us: lateness.taking,
            latency_from_planned_us: lateness.from_planned,
            latency_from_sent_us: lateness.from_sent,
            latency_without_lateness_us: lateness.without,
            unanswered: tally.timed_out,
            transport_full_share: full_share(config, tally),
        }),
        // Its phase has it.
        time_series: None,
    };
    judge(&mut point, &lateness, phase, tally);
    point
}

fn full_share(config: &WebloadConfig, tally: &Tally) -> f64 {
    let walls = tally.wall.as_secs_f64() * config.threads.get() as f64;
    (tally.full.as_secs_f64() / walls.max(1e-9)).min(1.0)
}

fn judge(point: &mut LoadPoint, lateness: &Lateness, phase: &Phase, tally: &Tally) {
    let mut verdict = Verdict::valid();
    let open = point.loop_kind == LoopKind::Open;
    // The share that must be answered is that of all open loops: the cache-off's own rules name none.
    let limits = GeneratorLimits::default();
    // Think time keeps some requests in the air when a phase ends; they were answered all the same.
    let answered = tally.ok() + tally.faults().values().sum::<u64>();
    let had_time = tally.planned - tally.cut_off;
    if open {
        let shortfall = Shortfall {
            due: had_time,
            sent: tally.attempted(),
            answered,
            full_share: point.pacing.as_ref().map_or(0.0, |pacing| pacing.transport_full_share),
            sent_p50_us: lateness.from_sent.p50,
            light_p50_us: None,
        };
        let is_saturated =
            shortfall.judge(&limits, "the proxy or server", "give it more --connections", &mut verdict);
        point.saturated = is_saturated == Some(true);
        if !verdict.has(GENERATOR_LATE) {
            lateness.judge(&limits, &mut verdict);
        }
    }
    if point.generator_busy > limits.busy_max {
        let text = format!(
            "the generator used {:.0}% of its core and may be the limit; add --threads or lower the rate",
            100.0 * point.generator_busy
        );
        verdict.invalidate(GENERATOR_BUSY, text);
    }
    content_and_errors(&mut verdict, tally);
    unanswered_in_time(&mut verdict, tally);
    if let (Pace::Open { .. }, Some(asked)) = (phase.pace, point.offered_per_sec) {
        let planned = tally.planned as f64 / tally.wall.as_secs_f64().max(1e-9);
        // Four standard deviations of a Poisson count, and a hundredth.
        let slack = 0.01 + 4.0 / (tally.planned.max(1) as f64).sqrt();
        if (planned / asked - 1.0).abs() > slack {
            verdict.invalidate(OFFERED_OFF, format!("{planned:.1} requests/s were planned, not {asked:.1}"));
        }
    }
    if point.latency_us.count < SAMPLES_MIN {
        let text = format!("{} samples: too few for a 99th percentile to be trusted", point.latency_us.count);
        verdict.remark("few-samples", text);
    }
    if cfg!(debug_assertions) {
        verdict.remark("debug-build", "measured with a debug build: do not trust the figures");
    }
    point.verdict = verdict;
}

/// Requests without a reply in their time: how long they would have taken is not known.
fn unanswered_in_time(verdict: &mut Verdict, tally: &Tally) {
    if tally.timed_out == 0 {
        return;
    }
    let text = format!(
        "{} of {} requests had no reply in their time (--timeout): they are counted with the time that was waited, so that \
         mean, highest percentiles and maximum are those figures at least",
        tally.timed_out,
        tally.attempted()
    );
    if tally.timed_out as f64 > TIMED_OUT_MAX * tally.attempted() as f64 {
        verdict.invalidate("timed-out", text);
    } else {
        verdict.remark("timed-out", text);
    }
}

/// False content in a phase, or too many errors.
fn content_and_errors(verdict: &mut Verdict, tally: &Tally) {
    let faults = tally.faults();
    let (false_content, failed) = (false_of(&faults), tally.failed());
    if false_content > 0 {
        let text = format!(
            "{false_content} replies had wrong, mixed, stale or overlong content ({}): what comes so fast is not the \
             asked for",
            names(faults.iter().filter(|(fault, _)| fault.is_false_content()))
        );
        verdict.invalidate("false-content", text);
    }
    let share = failed as f64 / tally.attempted().max(1) as f64;
    if failed > 0 {
        let unanswered = tally.unanswered();
        let mut most = names(faults.iter());
        if unanswered > 0 {
            most.push_str(&format!(
                "{}{unanswered} unanswered at the end",
                if most.is_empty() { "" } else { ", " }
            ));
        }
        let text =
            format!("{failed} of {} requests failed ({:.3}%): {most}", tally.attempted(), 100.0 * share);
        if share > ERRORS_MAX { verdict.invalidate("errors", text) } else { verdict.remark("errors", text) }
    }
}

fn false_of(faults: &BTreeMap<Fault, u64>) -> u64 {
    faults.iter().filter(|(fault, _)| fault.is_false_content()).map(|(_, count)| count).sum()
}

fn names<'a>(faults: impl Iterator<Item = (&'a Fault, &'a u64)>) -> String {
    let mut by_count: Vec<(&Fault, &u64)> = faults.collect();
    by_count.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    by_count.iter().map(|(fault, count)| format!("{} {count}", fault.name())).collect::<Vec<_>>().join(", ")
}

fn phase_record(phase: &Phase, tally: &Tally) -> PhaseRecord {
    let wall_s = tally.wall.as_secs_f64();
    let mut counters = BTreeMap::new();
    let mut put = |name: &str, value: f64| {
        counters.insert(name.to_owned(), value);
    };
    if let Some(rate) = phase.rate_mean() {
        put("offered_per_sec", rate);
    }
    put("response_mean_us", mean_us(&tally.latency()));
    put("response_without_think_us", mean_us(&tally.without_think));
    put("document_hit_percent", percent(tally.hits, tally.ok()));
    put("document_hit_offered_percent", percent(tally.could_hit, tally.ok()));
    put("byte_hit_percent", percent(tally.hit_bytes, tally.bytes));
    put("byte_hit_offered_percent", percent(tally.could_hit_bytes, tally.asked_bytes));
    put("validated_hits", tally.validated as f64);
    put("errors", tally.failed() as f64);
    for (fault, count) in tally.faults() {
        put(&format!("errors_{}", fault.name().to_lowercase()), count as f64);
    }
    put("connections", tally.connections as f64);
    if let Some(used) = tally.proxy {
        put("proxy_cpu_s", used.cpu_s);
        if let Some(written) = used.written_bytes {
            put("proxy_written_bytes", written as f64);
        }
        put("proxy_resident_bytes", used.resident_bytes as f64);
    }
    PhaseRecord {
        time_series: tally.steps.clone().series(tally.wall),
        name: phase.name.to_owned(),
        pass: 1,
        wall_s,
        user_s: 0.0,
        sys_s: 0.0,
        items: tally.ok(),
        bytes: tally.bytes,
        items_per_sec: if wall_s > 0.0 { tally.ok() as f64 / wall_s } else { 0.0 },
        counters,
    }
}

/// What speaks against single levels: all of it where the figures rest on them, else only what is false in any case.
fn levels(
    config: &WebloadConfig,
    points: &[LoadPoint],
    answers: &[bool],
    tallies: &[Tally],
    verdict: &mut Verdict,
) {
    let names: Vec<&str> = config
        .phases
        .iter()
        .zip(tallies)
        .filter(|(p, t)| p.measured && t.planned > 0)
        .map(|(p, _)| p.name)
        .collect();
    let levels = || points.iter().zip(&names).zip(answers);
    let others: Vec<String> = levels()
        .filter(|(_, is_answer)| !**is_answer)
        .filter_map(|((point, name), _)| {
            let reason = point.verdict.reasons.iter().find(|reason| reason.fatal)?;
            Some(format!("{name} ({})", reason.code))
        })
        .collect();
    if !others.is_empty() {
        let list = others.join(", ");
        verdict.remark("other-levels", format!("not to be trusted, and no part of the figures: {list}"));
    }
    for ((point, name), is_answer) in levels() {
        // Whatever the generator did, false content is false.
        let counts = |code: &str| *is_answer || ["false-content", "errors"].contains(&code);
        for reason in point.verdict.reasons.iter().filter(|reason| counts(&reason.code)) {
            let text = format!("in {name}: {}", reason.text);
            if reason.fatal {
                verdict.invalidate(&reason.code, text);
            } else if !verdict.has(&reason.code) {
                verdict.remark(&reason.code, reason.text.clone());
            }
        }
    }
}

fn run_verdict(
    config: &WebloadConfig,
    points: &[LoadPoint],
    answers: &[bool],
    tallies: &[Tally],
    complete: bool,
) -> Verdict {
    let mut verdict = Verdict::valid();
    if points.is_empty() {
        verdict.invalidate("no-points", "no phase that counts was measured");
    }
    levels(config, points, answers, tallies, &mut verdict);
    // False content is false whenever it comes.
    for (phase, tally) in config.phases.iter().zip(tallies).filter(|(phase, _)| !phase.measured) {
        let found = false_of(&tally.faults());
        if found > 0 {
            let text =
                format!("in {}: {found} replies had wrong, mixed, stale or overlong content", phase.name);
            verdict.invalidate("false-content", text);
        } else if tally.failed() as f64 > ERRORS_MAX * tally.attempted() as f64 {
            let text =
                format!("in {}: {} of {} requests failed", phase.name, tally.failed(), tally.attempted());
            verdict.remark("errors-before", text);
        }
    }
    let (hits, could_hit) =
        tallies.iter().fold((0, 0), |sum, tally| (sum.0 + tally.hits, sum.1 + tally.could_hit));
    if hits as f64 > WARM_MIN * could_hit as f64 + 100.0 {
        let text = format!(
            "{hits} hits where an empty cache could have had {could_hit}: it held objects of an earlier run; empty it, or \
             choose another --seed"
        );
        verdict.remark("cache-warm", text);
    }
    if let Some(process) = config.watch
        && tallies.iter().any(|tally| !tally.wall.is_zero() && tally.proxy.is_none())
    {
        let text = format!("process {process} ended during the run: what it used from then on is left out");
        verdict.remark("watched-process-ended", text);
    }
    if !complete {
        verdict.remark("incomplete", "the run did not reach its end; it holds what was measured until then");
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_the_generator_spoilt_is_no_part_of_the_figures_unless_all_are() {
        let level = |code: &str| {
            let mut verdict = Verdict::valid();
            verdict.invalidate(code, "for a test");
            verdict
        };
        let (late, false_content, good) = (level(GENERATOR_LATE), level("false-content"), Verdict::valid());
        assert_eq!(answers_of(&[&late, &good]), [false, true]);
        assert_eq!(answers_of(&[&late, &late]), [true, true]);
        assert_eq!(answers_of(&[&false_content, &good]), [true, true], "what the proxy did counts");
    }
}
