//! A RunRecord as tables for a terminal of 80 columns: what `crumb run` ends with and `crumb runs show` shows.
//!
//! ```text
//! load_points   a line a load level: latency against load; below it what speaks against a level
//! operations    a line an operation of one load level, as table 4 of the Fstress paper
//! chains        a line a chain of requests of one load level
//! generator     how the generator fared at each level
//! ranks         how each of several generators fared at one level
//! summary       what the run answers, its figures, and the verdict
//! ```
//!
//! Every function gives whole lines; all but [`summary`] end in an empty one, so that blocks can follow each other.
//! Source: Anderson, "Fstress", table 4.

use measure::{
    BOUND_MISSED, Curve, FigureMark, LatencySummary, LevelState, LoadPoint, LoopKind, Phase, RankPart,
    RunRecord, Verdict,
};
use report::{bytes_text, count_text, figure_text, ms_text, number_text, rate_text};

use super::layout::{counted, folded, grid, shortened, wrapped};
pub use super::summary::{answer, summary, verdict};
use crate::declarations::REGISTRY;

/// Leaves room for seven figures in a line of the terminal.
const PHASE_WIDTH_MAX: usize = 26;
/// Ranks shown of a load point; of more the ones that fared worst.
const RANKS_SHOWN: usize = 16;
const HOST_WIDTH_MAX: usize = 14;
/// Remarks shown below a table before the rest is only counted.
const REMARKS_SHOWN: usize = 3;

/// All load points: open-loop ones, then closed-loop ones in a table of their own, as they do not compare.
/// Nothing for a run without load points.
pub fn load_points(record: &RunRecord) -> String {
    let mut text = String::new();
    for kind in [LoopKind::Open, LoopKind::Closed] {
        let points: Vec<&LoadPoint> = record.points.iter().filter(|point| point.loop_kind == kind).collect();
        if points.is_empty() {
            continue;
        }
        let (title, head, rate) = match kind {
            LoopKind::Open => (
                "Latency in ms, of all requests that were due; rates in requests a second",
                "offered",
                "achieved",
            ),
            LoopKind::Closed => (
                "CLOSED LOOP: latency in ms from the send; not comparable with offered rates",
                "outstanding",
                "ops/s",
            ),
        };
        let rows: Vec<Vec<String>> = points
            .iter()
            .map(|point| {
                let mut row = vec![mark(point).to_owned(), load(point), rate_text(point.achieved_per_sec)];
                row.extend(marked(point, latency(&point.latency_us)));
                row
            })
            .collect();
        let heads = ["", head, rate, "mean", "sd", "p50", "p90", "p99", "p99.9", "max"];
        text.push_str(&format!(
            "{title}\n{}{}\n",
            grid(&heads, 1, &rows),
            findings(&points, &record.verdict)
        ));
    }
    text
}

/// The load point to show in detail: the one that answers the question, else the highest load that the storage held,
/// else the last one measured.
pub fn telling_point(record: &RunRecord) -> Option<&LoadPoint> {
    // A search under a bound: levels above its answer may well have been held, but not within the bound.
    if let Some(answer) = record.metrics.get("within_bound_per_sec") {
        let within = |point: &&LoadPoint| point.verdict.valid && point.offered_per_sec == Some(*answer);
        if let Some(point) = record.points.iter().rfind(within) {
            return Some(point);
        }
    }
    let held = record.points.iter().filter(|point| !point.saturated && point.verdict.valid);
    held.max_by(|a, b| a.achieved_per_sec.total_cmp(&b.achieved_per_sec)).or(record.points.last())
}

/// The chains of one load point; nothing for a workload without.
pub fn chains(point: &LoadPoint) -> String {
    if point.chains.is_empty() {
        return String::new();
    }
    let row = |(name, stats): (&String, &measure::ChainStats)| {
        vec![
            name.clone(),
            count_text(stats.begun),
            count_text(stats.complete),
            count_text(stats.failed),
            count_text(stats.unanswered),
            count_text(stats.requests_not_sent),
            if_sampled(&stats.latency_us, stats.latency_us.mean),
            if_sampled(&stats.latency_us, stats.latency_us.p50),
            if_sampled(&stats.latency_us, stats.latency_us.p99),
        ]
    };
    let rows: Vec<Vec<String>> = point.chains.iter().map(row).collect();
    let heads = ["chain", "begun", "complete", "failed", "lost", "not sent", "mean", "p50", "p99"];
    let title = "Chains, from the send of the first request to the last reply; latency in ms";
    let note = "The rate counts a chain once. not sent: requests of chains that ended early.";
    format!("{title}\n{}{note}\n\n", grid(&heads, 1, &rows))
}

/// The operations of one load point, the most frequent first, and below the table their errors by name.
pub fn operations(point: &LoadPoint) -> String {
    let mut ops: Vec<_> = point.ops.iter().collect();
    ops.sort_by(|a, b| b.1.share_percent.total_cmp(&a.1.share_percent).then(a.0.cmp(b.0)));
    let share = |percent: f64| format!("{percent:.2}");
    let rows: Vec<Vec<String>> = ops
        .iter()
        .map(|(name, stats)| {
            vec![
                (*name).clone(),
                share(stats.share_percent),
                share(stats.share_asked_percent),
                if_sampled(&stats.latency_us, stats.latency_us.mean),
                if_sampled(&stats.latency_us, stats.latency_us.sd),
                if_sampled(&stats.latency_us, stats.latency_us.p99),
                share(stats.time_share_percent),
                count_text(stats.attempted),
                count_text(stats.retransmitted),
                count_text(stats.cancelled),
                count_text(stats.errors.values().sum()),
            ]
        })
        .collect();
    let heads = ["op", "mix %", "sent %", "mean", "sd", "p99", "time %", "tried", "again", "lost", "failed"];
    let mut text = format!("Operations at {}; latency in ms\n{}", load_name(point), grid(&heads, 1, &rows));
    for (name, stats) in ops.iter().filter(|(_, stats)| !stats.errors.is_empty()) {
        let errors: Vec<String> =
            stats.errors.iter().map(|(error, count)| format!("{error} {}", count_text(*count))).collect();
        text.push_str(&wrapped(&format!("{name} failed: "), &errors.join(", ")));
    }
    if ops.iter().any(|(_, stats)| stats.retransmitted + stats.cancelled > 0) {
        text.push_str("again: retransmitted. lost: cancelled, or lost with a connection.\n");
    }
    text.push('\n');
    text
}

/// How the generator and the file set fared at each load point.
pub fn generator(record: &RunRecord) -> String {
    // A benchmark without a schedule has no generator to speak of.
    let idle = |point: &LoadPoint| point.lateness_us.count == 0 && point.generator_busy == 0.0;
    if record.points.iter().all(idle) {
        return String::new();
    }
    let rows: Vec<Vec<String>> = record
        .points
        .iter()
        .map(|point| {
            vec![
                load(point),
                rate_text(point.sent_per_sec),
                if_sampled(&point.lateness_us, point.lateness_us.mean),
                if_sampled(&point.lateness_us, point.lateness_us.p99),
                format!("{:.0}", 100.0 * point.generator_busy),
                count_text(point.unsent),
                count_text(point.reconnects),
                count_text(point.bad_replies),
                count_text(point.file_set.files),
                bytes_text(point.file_set.bytes),
            ]
        })
        .collect();
    let heads = ["load", "sent/s", "late", "p99", "busy %", "unsent", "reconn", "bad", "files", "bytes"];
    let title = "The generator: lateness of sending in ms (mean, p99), share of its core; the file set";
    format!("{}{}\n", wrapped("", title), grid(&heads, 0, &rows))
}

/// How the ranks fared at one load point; nothing for a generator that was alone.
pub fn ranks(point: &LoadPoint) -> String {
    if point.parts.is_empty() {
        return String::new();
    }
    let mut parts: Vec<&RankPart> = point.parts.iter().collect();
    if parts.len() > RANKS_SHOWN {
        parts.sort_by(|a, b| {
            a.held.total_cmp(&b.held).then(b.lateness_us.mean.total_cmp(&a.lateness_us.mean))
        });
        parts.truncate(RANKS_SHOWN);
        parts.sort_by_key(|part| part.rank);
    }
    let rows: Vec<Vec<String>> = parts
        .iter()
        .map(|part| {
            vec![
                shortened(&part.host, HOST_WIDTH_MAX),
                part.rank.to_string(),
                part.offered_per_sec.map_or_else(|| "-".to_owned(), rate_text),
                rate_text(part.achieved_per_sec),
                if_sampled(&part.latency_us, part.latency_us.mean),
                if_sampled(&part.latency_us, part.latency_us.p99),
                if_sampled(&part.lateness_us, part.lateness_us.mean),
                format!("{:.0}", 100.0 * part.generator_busy),
                count_text(part.errors),
                ms_text(part.start_skew_us),
            ]
        })
        .collect();
    let heads = ["host", "rank", "offered", "achieved", "mean", "p99", "late", "busy %", "failed", "skew"];
    let title = "Ranks at the same load; latency, lateness of sending and skew of the begin in ms";
    let mut text = format!("{title}\n{}", grid(&heads, 1, &rows));
    if point.parts.len() > RANKS_SHOWN {
        let more = counted(point.parts.len() - RANKS_SHOWN, "rank", "ranks");
        text.push_str(&format!("{more} that fared better are in the record\n"));
    }
    text.push('\n');
    text
}

/// Curves: a table each, a column for each variant, every figure with its unit.
pub fn curves(record: &RunRecord) -> String {
    let table = |curve: &Curve| {
        let metric = record.metric(&curve.name);
        let mut over: Vec<f64> =
            curve.lines.iter().flat_map(|line| line.points.iter().map(|point| point.x)).collect();
        over.sort_by(f64::total_cmp);
        over.dedup();
        let row = |x: &f64| {
            let mut cells = vec![number_text("", *x).0];
            cells.extend(curve.lines.iter().map(|line| {
                let point = line.points.iter().find(|point| point.x == *x);
                point.map_or_else(|| "-".to_owned(), |point| figure_text(&metric.unit, point.y))
            }));
            cells
        };
        let heads: Vec<&str> = std::iter::once(curve.over.as_str())
            .chain(curve.lines.iter().map(|line| line.label.as_str()))
            .collect();
        let rows: Vec<Vec<String>> = over.iter().map(row).collect();
        format!("{}\n{}\n", metric.title, grid(&heads, 0, &rows))
    };
    record.curves.iter().map(table).collect()
}

/// Phases, such as building the file set.
pub fn phases(phases: &[Phase]) -> String {
    if phases.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = phases
        .iter()
        .map(|phase| {
            vec![
                phase.name.clone(),
                phase.pass.to_string(),
                format!("{:.2}", phase.wall_s),
                format!("{:.2}", phase.user_s),
                format!("{:.2}", phase.sys_s),
                count_text(phase.items),
                rate_text(phase.items_per_sec),
                if phase.bytes == 0 { "-".to_owned() } else { bytes_text(phase.bytes) },
            ]
        })
        .collect();
    let heads = ["phase", "pass", "wall s", "user s", "sys s", "items", "items/s", "bytes"];
    format!("{}\n", grid(&heads, 1, &folded(rows, PHASE_WIDTH_MAX)))
}

/// Microseconds in three digits, or all before the point.
pub fn us_text(us: f64) -> String {
    match us {
        us if us < 0.0 => format!("-{}", us_text(-us)),
        us if us >= 100.0 => report::count_text(us.round() as u64),
        us if us >= 10.0 => format!("{us:.1}"),
        us => format!("{us:.2}"),
    }
}

/// In place of a level's reason that the run's verdict gives.
const UNDER_VERDICT: &str = "for the reason given under Verdict";

/// The faults of each point, those that the run's verdict mentions by a reference to it, then the first few remarks. A remark that
/// several points share is printed once.
fn findings(points: &[&LoadPoint], run: &Verdict) -> String {
    let mut text = String::new();
    let mut remarks: Vec<(&str, Vec<&LoadPoint>)> = Vec::new();
    for point in points {
        for reason in &point.verdict.reasons {
            if reason.fatal {
                let said = run.reasons.iter().any(|of_run| of_run.text.contains(&reason.text));
                let why = if said { UNDER_VERDICT } else { &reason.text };
                let line = wrapped(&format!("{} {}: ", mark(point), load_name(point)), why);
                // Of several reasons that the verdict gives, one line.
                if !text.ends_with(&line) {
                    text.push_str(&line);
                }
            } else if let Some((_, sharing)) = remarks.iter_mut().find(|(remark, _)| *remark == reason.text) {
                sharing.push(point);
            } else if reason.code == BOUND_MISSED && point.state() == LevelState::OverBound {
                // Beside its mark, as a fault is.
                text.push_str(&wrapped(&format!("{} {}: ", mark(point), load_name(point)), &reason.text));
            } else {
                remarks.push((&reason.text, vec![point]));
            }
        }
    }
    for (remark, sharing) in remarks.iter().take(REMARKS_SHOWN) {
        let whose = match sharing.as_slice() {
            [one] => load_name(one),
            all if all.len() == points.len() => "all levels".to_owned(),
            several => format!("{} levels", several.len()),
        };
        text.push_str(&wrapped(&format!("  {whose}: "), remark));
    }
    if remarks.len() > REMARKS_SHOWN {
        let more = counted(remarks.len() - REMARKS_SHOWN, "more remark", "more remarks");
        text.push_str(&format!("  {more}; `crumb report` shows all\n"));
    }
    text
}

/// `S`: saturated, a finding about the storage. `B`: over the latency bound of the search. `!`: not to be trusted for another
/// reason.
fn mark(point: &LoadPoint) -> &'static str {
    match point.state() {
        LevelState::Invalid => "!",
        LevelState::Saturated => "S",
        LevelState::OverBound => "B",
        LevelState::Valid => "",
    }
}

fn load(point: &LoadPoint) -> String {
    match point.loop_kind {
        // Without a tenth that is zero: what was asked is mostly a round number.
        LoopKind::Open => {
            let text = rate_text(point.offered_per_sec.unwrap_or(0.0));
            text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
        }
        LoopKind::Closed => count_text(u64::from(point.outstanding.unwrap_or(0))),
    }
}

fn load_name(point: &LoadPoint) -> String {
    match point.loop_kind {
        LoopKind::Open => format!("{}/s", load(point)),
        LoopKind::Closed => format!("{} outstanding", load(point)),
    }
}

fn latency(us: &LatencySummary) -> [String; 7] {
    [us.mean, us.sd, us.p50, us.p90, us.p99, us.p999, us.max].map(|figure| if_sampled(us, figure))
}

/// Marks figures, in the order of [`latency`]: `>` for those that rest on requests that were never answered, which took longer, and
/// `~` for those that the generator's own lateness moved. The deviation is left as it is.
fn marked(point: &LoadPoint, figures: [String; 7]) -> [String; 7] {
    let marks = REGISTRY.figure_marks(point);
    let [mean, sd, p50, p90, p99, p999, max] = figures;
    let with = |mark: FigureMark, figure: String| format!("{}{figure}", mark.sign());
    [
        with(marks.mean, mean),
        sd,
        with(marks.p50, p50),
        with(marks.p90, p90),
        with(marks.p99, p99),
        with(marks.p999, p999),
        with(marks.max, max),
    ]
}

fn if_sampled(of: &LatencySummary, us: f64) -> String {
    if of.count == 0 { "-".to_owned() } else { ms_text(us) }
}

#[cfg(test)]
#[path = "../../tests/it/sample.rs"]
mod sample;

#[cfg(test)]
mod tests {
    use measure::{CurveLine, CurvePoint};

    use super::*;
    use crate::terminal::layout::WIDTH;

    fn assert_fits(text: &str) {
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{} columns: {line}\n{text}", line.chars().count());
        }
    }

    #[test]
    fn every_table_of_large_figures_fits_in_80_columns() {
        let mut record = sample::record("20261121-180000-fstress-3f9a", "a filer");
        for point in &mut record.points {
            point.offered_per_sec = Some(1_234_567.0);
            point.achieved_per_sec = 1_234_567.0;
            point.file_set.files = 12_345_678;
            (point.lateness_us.p99, point.lateness_us.mean) = (123_456.7, 12_345.6);
            point.latency_us.max = 3_600_000_000.0;
            for stats in point.ops.values_mut() {
                stats.attempted = 123_456_789;
                (stats.latency_us.mean, stats.latency_us.sd, stats.latency_us.p99) =
                    (123_456.0, 1_234.0, 9_876_543.0);
            }
        }
        let point = &record.points[0];
        assert_fits(
            &[load_points(&record), generator(&record), operations(point), summary(&record)].concat(),
        );
    }

    #[test]
    fn a_saturated_point_is_marked_so_and_the_run_stays_valid() {
        let record = sample::record("20261121-180000-fstress-3f9a", "a filer");
        let table = load_points(&record);
        assert!(table.contains("\nS    6,000   4,731.5"), "{table}");
        assert!(table.contains("S 6,000/s: 21.1% of"), "{table}");
        let summary = summary(&record);
        assert!(summary.contains("Saturation point        4,000/s\n"), "{summary}");
        assert!(summary.ends_with("Verdict                 VALID\n"), "{summary}");
        assert_eq!(telling_point(&record).and_then(|point| point.offered_per_sec), Some(4_000.0));
    }

    #[test]
    fn a_level_over_the_bound_of_a_search_is_marked_so() {
        let mut record = sample::record("20261121-180000-fstress-3f9a", "a filer");
        record.points[1].verdict.remark(measure::BOUND_MISSED, "over the bound p99 < 1ms: p99 is 1.62 ms");
        let table = load_points(&record);
        let offered = load(&record.points[1]);
        assert!(table.contains(&format!("\nB    {offered}")), "{table}");
        assert!(table.contains(&format!("B {offered}/s: over the bound p99 < 1ms")), "{table}");
    }

    #[test]
    fn figures_that_the_generator_moved_are_marked_and_the_others_are_not() {
        let mut record = sample::record("20261121-180000-fstress-3f9a", "a filer");
        let point = &mut record.points[0];
        let mut without = point.latency_us;
        (without.p999, without.max) = (without.p999 / 2.0 - 50.0, without.max / 2.0 - 50.0);
        let pacing = measure::Pacing { latency_without_lateness_us: without, ..measure::Pacing::default() };
        point.pacing = Some(pacing);
        let table = load_points(&record);
        let line = table.lines().find(|line| line.trim_start().starts_with("2,000")).unwrap();
        let cells: Vec<&str> = line.split_whitespace().collect();
        let marked: Vec<bool> = cells[2..].iter().map(|cell| cell.starts_with('~')).collect();
        assert_eq!(marked, [false, false, false, false, false, true, true], "{line}");
    }

    #[test]
    fn figures_that_rest_on_requests_never_answered_are_marked_as_at_least_that() {
        let mut record = sample::record("20261121-180000-fstress-3f9a", "a filer");
        let point = &mut record.points[0];
        let unanswered = point.latency_us.count / 500;
        point.pacing = Some(measure::Pacing { unanswered, ..measure::Pacing::default() });
        let table = load_points(&record);
        let line = table.lines().find(|line| line.trim_start().starts_with("2,000")).unwrap();
        let cells: Vec<&str> = line.split_whitespace().collect();
        let marked: Vec<bool> = cells[2..].iter().map(|cell| cell.starts_with('>')).collect();
        assert_eq!(
            marked,
            [true, false, false, false, false, true, true],
            "mean sd p50 p90 p99 p99.9 max: {line}"
        );
    }

    /// Symptom: below the answer of `--find-max` stood the operations of another level. Cause: the highest load that was held
    /// at all was taken, and the bound not looked at.
    #[test]
    fn the_operations_shown_are_those_of_the_answer_to_a_search_under_a_bound() {
        let mut record = sample::record("20261121-180000-fstress-3f9a", "a filer");
        let held: Vec<f64> = record
            .points
            .iter()
            .filter(|point| !point.saturated && point.verdict.valid)
            .filter_map(|point| point.offered_per_sec)
            .collect();
        assert!(held.len() > 1, "{held:?}");
        record.metrics.insert("within_bound_per_sec".to_owned(), held[0]);
        assert_eq!(telling_point(&record).and_then(|point| point.offered_per_sec), Some(held[0]));
    }

    /// Symptom: "nothing saturated: it may hold more" beside a level that had failed. Cause: said whenever no saturation point was
    /// found.
    #[test]
    fn nothing_is_said_to_have_saturated_beside_a_failed_level() {
        let mut record = sample::record("20261121-180000-fstress-3f9a", "a filer");
        record.points.retain(|point| point.verdict.valid && !point.saturated);
        let highest = record.points.iter().filter_map(|point| point.offered_per_sec).fold(0.0, f64::max);
        record.metrics.remove("saturation_per_sec");
        record.metrics.insert("held_per_sec".to_owned(), highest);
        assert!(summary(&record).contains("nothing saturated"), "{}", summary(&record));
        let mut failed = record.points[0].clone();
        failed.offered_per_sec = Some(2.0 * highest);
        failed.verdict.invalidate("storage-gone", "the storage is gone");
        record.points.push(failed);
        let text = summary(&record);
        assert!(!text.contains("nothing saturated") && text.contains("no higher level is VALID"), "{text}");
        record.points.last_mut().unwrap().offered_per_sec = Some(1.0);
        assert!(!summary(&record).contains("it may hold more"), "{}", summary(&record));
    }

    #[test]
    fn an_invalid_run_says_why_and_a_closed_loop_says_that_it_is_one() {
        let invalid = sample::invalid_record("20261121-180000-fstress-3f9a", "a filer");
        let text = [load_points(&invalid), summary(&invalid)].concat();
        assert!(
            text.contains("\n!    4,000   3,999.6") && text.contains("INVALID because\n  - at 4000/s"),
            "{text}"
        );
        assert!(text.contains("Incomplete"), "{text}");
        assert_eq!(
            text.matches("late on average").count(),
            1,
            "printed for the point and for the run\n{text}"
        );
        assert_fits(&text);
        let closed = sample::closed_record("20261121-180000-fstress-3f9a", "responder");
        let text = [load_points(&closed), operations(&closed.points[0])].concat();
        assert!(text.starts_with("CLOSED LOOP") && text.contains("Operations at 64 outstanding"), "{text}");
        assert_fits(&text);
    }

    #[test]
    fn a_remark_that_all_levels_share_is_told_once() {
        let mut record = sample::record("20261121-180000-fstress-3f9a", "a filer");
        for (at, point) in record.points.iter_mut().enumerate() {
            point.verdict.remark("debug-build", "measured with a debug build");
            (0..=at).for_each(|n| point.verdict.remark("own", format!("remark {at}.{n}")));
        }
        let text = load_points(&record);
        assert_eq!(text.matches("  all levels: measured with a debug build\n").count(), 1, "{text}");
        assert!(text.contains("  2,000/s: remark 0.0\n") && text.contains("  4 more remarks;"), "{text}");
    }

    #[test]
    fn a_curve_is_a_table_with_a_column_for_each_variant() {
        let line = |label: &str, points: &[(f64, f64)]| CurveLine {
            label: label.to_owned(),
            points: points.iter().map(|&(x, y)| CurvePoint { x, y, ..CurvePoint::default() }).collect(),
        };
        let lines =
            vec![line("flat", &[(1000.0, 35.4), (100_000.0, 2_280.0)]), line("345", &[(100_000.0, 319.0)])];
        let record = sample::record("20261121-180000-fstress-3f9a", "a filer");
        let curve = Curve { name: "add_us".to_owned(), over: "files".to_owned(), lines };
        let text = curves(&RunRecord { curves: vec![curve], ..record });
        assert!(text.contains("\n  1,000  35.4 µs         -\n100,000  2.28 ms  0.319 ms\n"), "{text}");
    }

    #[test]
    fn errors_are_told_by_name_and_a_run_without_points_is_no_table() {
        let record = sample::record("20261121-180000-fstress-3f9a", "a filer");
        let text = operations(&record.points[0]);
        assert!(text.contains("lookup failed: NFS3ERR_NOENT 2, NFS3ERR_STALE 1\n"), "{text}");
        let empty = RunRecord { points: vec![], phases: vec![], ..record };
        assert_eq!([load_points(&empty), generator(&empty), phases(&empty.phases)].concat(), "");
    }
}
