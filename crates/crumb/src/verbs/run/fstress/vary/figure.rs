//! What the runs of a sensitivity figure say: the figure for the report, the table for the terminal, and CSV.

use measure::numbers::round_rate_text;
use measure::{LevelState, RunRecord};
use report::ms_text;
use report::sensitivity::{Line, Point, Sensitivity, Stat, State};

use super::plan::{Plan, Planned};
use crate::layout::{WIDTH, grid, wrapped};
use crate::shootout::plan::shell_line;

/// The figure of `points`, which are in the order of the plan.
pub fn of(plan: &Plan, points: &[Option<RunRecord>], command: &[String]) -> Sensitivity {
    let of_line = |(at, (planned, records)): (usize, (&[Planned], &[Option<RunRecord>]))| Line {
        label: plan.line_label(at),
        points: planned
            .iter()
            .zip(records)
            .map(|(planned, record)| point(plan, planned, record.as_ref()))
            .collect(),
    };
    let per_line = plan.line_points();
    let lines = plan.points.chunks(per_line).zip(points.chunks(per_line)).enumerate().map(of_line);
    let lines: Vec<Line> = lines.collect();
    Sensitivity {
        title: plan.title.clone(),
        sentence: sentence(plan, &lines),
        captions: vec![format!("{} requests/s offered at every point", round_rate_text(plan.rate))],
        x: plan.vary.knob.to_string(),
        lines,
        how: vec![
            "Each point is a run of its own with a new file set. Crumb measured the points in an order drawn from the seed, so that \
             what changes on the machine with time does not look like an effect of the knob."
                .to_owned(),
            format!("This page was made by: {}", shell_line(command)),
        ],
    }
}

fn point(plan: &Plan, planned: &Planned, record: Option<&RunRecord>) -> Point {
    let of_plan = Point {
        x: planned.x,
        x_text: plan.vary.knob.value_text(planned.x),
        command: shell_line(&planned.command),
        ..Point::default()
    };
    let Some((record, level)) = record.and_then(|record| Some((record, record.points.first()?))) else {
        return of_plan;
    };
    let latency = &level.latency_us;
    let has_any = level.histogram.count() > 0;
    let ms = |us: f64| Some(us / 1e3).filter(|_| has_any);
    let state = state(record);
    let why = level.verdict.reasons.iter().filter(|reason| reason.fatal && state != State::Valid);
    Point {
        mean_ms: ms(latency.mean),
        p50_ms: ms(latency.p50),
        p99_ms: ms(latency.p99),
        achieved_per_sec: Some(level.achieved_per_sec),
        state,
        why: why.map(|reason| reason.text.clone()).collect(),
        run: record.id.to_string(),
        ..of_plan
    }
}

fn state(record: &RunRecord) -> State {
    match record.points.first().map(|level| level.state()) {
        None => State::Missing,
        Some(LevelState::Saturated) => State::Saturated,
        Some(LevelState::Invalid) => State::Invalid,
        Some(_) if !record.verdict.valid => State::Invalid,
        Some(_) => State::Valid,
    }
}

/// A point's figures for the line of progress.
pub fn in_words(record: &RunRecord) -> String {
    let Some(level) = record.points.first() else { return "nothing measured".to_owned() };
    let word = state(record).word();
    let word = if word.is_empty() { String::new() } else { format!(", {word}") };
    format!("mean {} ms, p99 {} ms{word}", ms_text(level.latency_us.mean), ms_text(level.latency_us.p99))
}

/// How far each line goes between its outermost VALID points.
fn sentence(plan: &Plan, lines: &[Line]) -> String {
    let knob = plan.vary.knob;
    let ends = |line: &Line| {
        let valid = || line.points.iter().filter(|point| point.state.is_valid());
        let (first, last) = (valid().next()?, valid().next_back()?);
        let text = |point: &Point| Some(ms_text(point.latency_ms(Stat::Mean)? * 1e3));
        if first.x == last.x {
            return None;
        }
        let of = if lines.len() > 1 { format!("{}: ", line.label) } else { String::new() };
        Some(format!(
            "{of}{} ms at {knob} {}, {} ms at {}",
            text(first)?,
            first.x_text,
            text(last)?,
            last.x_text
        ))
    };
    let said: Vec<String> = lines.iter().filter_map(ends).collect();
    let points = || lines.iter().flat_map(|line| &line.points);
    let bad = points().filter(|point| !point.state.is_valid()).count();
    let bad = match bad {
        0 => String::new(),
        bad => format!(" {bad} of {} points are not VALID.", points().count()),
    };
    match said.is_empty() {
        true => format!("No line has two VALID points.{bad}"),
        false => format!("Mean latency at {}/s: {}.{bad}", round_rate_text(plan.rate), said.join("; ")),
    }
}

/// For a terminal of 80 columns: lines beside each other where they fit, else every point in a row.
pub fn terminal(figure: &Sensitivity, plan: &Plan) -> String {
    let mut text = wrapped("", &figure.sentence) + "\n";
    let tables = [Stat::Mean, Stat::P99].map(|stat| wide(figure, stat));
    if figure.lines.len() > 1
        && tables.iter().all(|table| table.lines().all(|line| line.chars().count() <= WIDTH))
    {
        for (stat, table) in [Stat::Mean, Stat::P99].into_iter().zip(tables) {
            text.push_str(&format!("{}\n{table}\n", stat.title()));
        }
    } else {
        text.push_str(&(long(figure, plan) + "\n"));
    }
    for line in &figure.lines {
        for point in line.points.iter().filter(|point| !point.why.is_empty()) {
            let of = format!("  {}, {} {}: ", line.label, figure.x, point.x_text);
            text.push_str(&wrapped("", &format!("{of}{}", point.why.join("; "))));
        }
    }
    text
}

fn wide(figure: &Sensitivity, stat: Stat) -> String {
    let heads: Vec<&str> = std::iter::once(figure.x.as_str())
        .chain(figure.lines.iter().map(|line| line.label.as_str()))
        .collect();
    let count = figure.lines.iter().map(|line| line.points.len()).max().unwrap_or(0);
    let row = |at: usize| -> Vec<String> {
        let first = figure.lines.first().map_or_else(String::new, |line| line.points[at].x_text.clone());
        std::iter::once(first).chain(figure.lines.iter().map(|line| cell(&line.points[at], stat))).collect()
    };
    grid(&heads, 0, &(0..count).map(row).collect::<Vec<_>>())
}

/// A latency, with a word in front when it is not to be believed.
fn cell(point: &Point, stat: Stat) -> String {
    let ms = point.latency_ms(stat).map(|ms| ms_text(ms * 1e3));
    [point.state.word().to_owned(), ms.unwrap_or_default()].join(" ").trim().to_owned()
}

fn long(figure: &Sensitivity, plan: &Plan) -> String {
    let mut rows = Vec::new();
    for line in &figure.lines {
        for point in &line.points {
            let ms = |ms: Option<f64>| ms.map_or_else(String::new, |ms| ms_text(ms * 1e3));
            let of = plan.line_knob().map(|_| line.label.clone()).unwrap_or_default();
            rows.push(vec![
                of,
                point.x_text.clone(),
                ms(point.mean_ms),
                ms(point.p50_ms),
                ms(point.p99_ms),
                point.state.word().to_owned(),
            ]);
        }
    }
    grid(&["", &figure.x, "mean ms", "p50 ms", "p99 ms", ""], 1, &rows)
}

/// A row for each point.
pub fn csv(figure: &Sensitivity, plan: &Plan) -> String {
    let line_knob = plan.line_knob().map_or_else(|| "line".to_owned(), |knob| knob.to_string());
    let mut text = format!(
        "{},{line_knob},offered_per_sec,achieved_per_sec,mean_us,p50_us,p99_us,state,run\n",
        figure.x
    );
    let value = |number: Option<f64>, factor: f64| {
        number.map_or_else(String::new, |number| format!("{:.3}", number * factor))
    };
    for (at, line) in figure.lines.iter().enumerate() {
        let of = plan.lines.as_ref().map_or_else(String::new, |lines| lines.values[at].to_string());
        for point in &line.points {
            let state = match point.state {
                State::Valid => "valid",
                State::Saturated => "saturated",
                State::Invalid => "invalid",
                State::Missing => "missing",
            };
            let latencies = [point.mean_ms, point.p50_ms, point.p99_ms].map(|ms| value(ms, 1e3)).join(",");
            let achieved = value(point.achieved_per_sec, 1.0);
            text.push_str(&format!(
                "{},{of},{},{achieved},{latencies},{state},{}\n",
                point.x, plan.rate, point.run
            ));
        }
    }
    text
}
