//! One picture of a run.

use std::time::{Duration, Instant};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::widgets::{Sparkline, Widget};
use report::{bytes_text, count_text, ms_text, rate_text};

use super::time_left::{about, text};
use super::{Doing, History, Level, LevelsAfter, Live, LiveView, PhaseLive, Stage, Step};
use crate::forecast::span;
use crate::layout::shortened;

/// Columns of a row's name, and of its value with the gap after it.
const NAME: u16 = 12;
const VALUE: u16 = 13;
/// Columns of the note behind a sparkline, in a view of [`WIDE`] columns.
const NOTE: u16 = 17;
const WIDE: u16 = 70;

/// A run as it is at one moment.
pub struct Frame<'a> {
    pub(super) view: &'a LiveView,
    pub(super) now: Instant,
    pub(super) hint: &'a str,
}

/// A figure, the last moments of it, and what to know of them.
#[derive(Default)]
struct Row<'a> {
    name: &'static str,
    value: String,
    history: Option<&'a History>,
    /// Says the highest value of the history.
    peak: Option<fn(f64) -> String>,
    note: String,
    is_bad: Option<Color>,
}

/// What is above the rows.
struct Head {
    stage: String,
    done: f64,
    right: String,
}

impl Frame<'_> {
    /// Lines that it needs.
    pub fn height(&self) -> u16 {
        // Title, bar, time left, hint.
        4 + self.rows().len() as u16
    }

    fn rows(&self) -> Vec<Row<'_>> {
        let view = self.view;
        let mut rows = match &view.doing {
            Doing::Begins => vec![],
            Doing::Level { level, live } => view.rows_of_level(level, live.as_ref().map(|(_, live)| live)),
            Doing::Phase(live) => view.rows_of_phase(live),
            Doing::Step { step, .. } => view.rows_of_step(step),
        };
        if let Some((device, busy)) = &view.device {
            rows.push(Row {
                name: "device busy",
                value: busy.newest().map_or(String::new(), |busy| format!("{busy:.0}%")),
                history: Some(busy),
                note: device.clone(),
                ..Row::default()
            });
        }
        rows
    }

    fn head(&self) -> Head {
        match &self.view.doing {
            Doing::Begins => Head { stage: "starting".to_owned(), done: 0.0, right: String::new() },
            Doing::Level { level, live } => {
                let stage = match live.map(|(_, live)| live.stage) {
                    None | Some(Stage::Warm) => "warming up",
                    Some(Stage::Measure) => "measuring",
                };
                let of = level.of.map_or(String::new(), |of| format!(" of {of}"));
                let right = format!("level {}{of}", level.number);
                let length = level.warm + level.measure;
                let done = self.elapsed(live.as_ref()).as_secs_f64() / length.as_secs_f64().max(1e-9);
                Head { stage: stage.to_owned(), done, right }
            }
            Doing::Phase(live) => {
                let right = format!("phase {} of {}", live.number, live.of);
                Head { stage: live.phase.to_owned(), done: live.done, right }
            }
            Doing::Step { step, .. } => {
                let done = step.of.map_or(0.0, |of| step.done as f64 / of.max(1) as f64);
                Head { stage: step.work.clone(), done, right: format!("{:.0}%", 100.0 * done.min(1.0)) }
            }
        }
    }

    /// Since the level began: between two reports the clock says it.
    fn elapsed(&self, live: Option<&(Instant, Live)>) -> Duration {
        live.map_or(Duration::ZERO, |(at, live)| live.elapsed + self.now.saturating_duration_since(*at))
    }

    fn time_left(&self) -> String {
        let unknown = || "not known yet".to_owned();
        match &self.view.doing {
            Doing::Begins => unknown(),
            Doing::Level { level, live } => self.time_left_of_level(level, live.as_ref()),
            Doing::Phase(live) => {
                let phase = self.view.pace.left().map_or_else(unknown, text);
                match live.run_left {
                    Some(left) if live.of == live.number => format!("phase {}", about(left)),
                    Some(left) => format!("phase {phase}, all phases {}", about(left)),
                    None => format!("phase {phase}"),
                }
            }
            Doing::Step { step, .. } if step.of.is_none() => unknown(),
            Doing::Step { .. } => {
                self.view.pace.left().map_or_else(unknown, |left| format!("step {}", text(left)))
            }
        }
    }

    fn time_left_of_level(&self, level: &Level, live: Option<&(Instant, Live)>) -> String {
        let of_level = (level.warm + level.measure).saturating_sub(self.elapsed(live));
        let own = match of_level {
            Duration::ZERO => "level ends".to_owned(),
            left => format!("level {}", span(left.as_secs_f64())),
        };
        let all = |levels: u32| about(of_level + levels * self.view.level_takes(level));
        match level.after {
            LevelsAfter::Unknown | LevelsAfter::About(0) => own,
            LevelsAfter::About(levels) => format!("{own}, all levels about {}", all(levels)),
            LevelsAfter::AtLeast(levels) => format!("{own}, search at least {}", all(levels)),
        }
    }
}

impl LiveView {
    fn rows_of_level(&self, level: &Level, live: Option<&Live>) -> Vec<Row<'_>> {
        let offered = level.offered_per_sec;
        let rate = live.map(|live| live.achieved_per_sec);
        let is_behind = live.is_some_and(|live| {
            live.stage == Stage::Measure
                && offered.is_some_and(|offered| live.achieved_per_sec < 0.95 * offered)
        });
        let mut rows = vec![Row {
            name: "offered",
            value: offered.map_or("closed loop".to_owned(), |rate| format!("{}/s", rate_text(rate))),
            ..Row::default()
        }];
        rows.extend(self.rows_of_rate(rate, is_behind));
        rows.extend(self.rows_of_latency(live.map(|live| (live.p50, live.p99))));
        if offered.is_some() {
            rows.push(self.row_of_lateness(live.map(|live| live.late_p99)));
        }
        rows.extend(self.rows_of_requests(live.map(|live| (live.in_flight, live.errors))));
        rows
    }

    fn rows_of_phase(&self, live: &PhaseLive) -> Vec<Row<'_>> {
        let mut rows = vec![Row {
            name: "offered",
            value: format!("{}/s", rate_text(live.offered_per_sec)),
            ..Row::default()
        }];
        rows.extend(self.rows_of_rate(Some(live.achieved_per_sec), false));
        rows.extend(self.rows_of_latency(Some((live.p50, live.p99))));
        rows.push(self.row_of_lateness(Some(live.late_p99)));
        let hits = format!("{:.0}%", 100.0 * live.hit_share);
        rows.push(Row { name: "hits", value: hits, ..Row::default() });
        rows.extend(self.rows_of_requests(Some((live.in_flight, live.errors))));
        rows
    }

    fn rows_of_step(&self, step: &Step) -> Vec<Row<'_>> {
        let about = if step.is_estimate { "about " } else { "" };
        let of = step.of.map_or(String::new(), |of| format!("of {about}{}", count_text(of)));
        let mut rows = vec![
            Row { name: "done", value: count_text(step.done), note: of, ..Row::default() },
            Row {
                name: "rate",
                value: self.rate.newest().map_or(String::new(), |rate| format!("{}/s", rate_text(rate))),
                history: Some(&self.rate),
                peak: Some(|rate| format!("{}/s", rate_text(rate))),
                ..Row::default()
            },
        ];
        if step.bytes > 0 {
            rows.push(Row { name: "bytes", value: bytes_text(step.bytes), ..Row::default() });
        }
        rows
    }

    fn rows_of_rate(&self, rate: Option<f64>, is_behind: bool) -> [Row<'_>; 1] {
        [Row {
            name: "achieved",
            value: rate.map_or(String::new(), |rate| format!("{}/s", rate_text(rate))),
            history: Some(&self.rate),
            peak: Some(|rate| format!("{}/s", rate_text(rate))),
            is_bad: is_behind.then_some(Color::Yellow),
            ..Row::default()
        }]
    }

    fn rows_of_latency(&self, times: Option<(Duration, Duration)>) -> [Row<'_>; 2] {
        let row = |name, time: Option<Duration>, history| Row { name, ..row_of_time(time, history) };
        [row("p50", times.map(|times| times.0), &self.p50), row("p99", times.map(|times| times.1), &self.p99)]
    }

    fn row_of_lateness(&self, late: Option<Duration>) -> Row<'_> {
        let is_late =
            late.is_some_and(|late| self.p50.newest().is_some_and(|p50| late.as_secs_f64() * 1e6 > p50));
        let is_bad = is_late.then_some(Color::Yellow);
        Row { name: "late p99", is_bad, ..row_of_time(late, &self.late) }
    }

    fn rows_of_requests(&self, counts: Option<(u64, u64)>) -> [Row<'_>; 2] {
        let count = |count: Option<u64>| count.map_or(String::new(), count_text);
        let is_bad = counts.and_then(|(_, errors)| (errors > 0).then_some(Color::Red));
        [
            Row {
                name: "in flight",
                value: count(counts.map(|counts| counts.0)),
                history: Some(&self.in_flight),
                peak: Some(|requests| count_text(requests as u64)),
                ..Row::default()
            },
            Row { name: "errors", value: count(counts.map(|counts| counts.1)), is_bad, ..Row::default() },
        ]
    }
}

fn row_of_time(time: Option<Duration>, history: &History) -> Row<'_> {
    Row {
        value: time.map_or(String::new(), |time| format!("{} ms", ms_text(time.as_secs_f64() * 1e6))),
        history: Some(history),
        peak: Some(|us| format!("{} ms", ms_text(us))),
        ..Row::default()
    }
}

impl Widget for Frame<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let mut lines = area.rows();
        let running = format!(
            "running for {}",
            span(self.now.saturating_duration_since(self.view.begun).as_secs_f64())
        );
        if let Some(line) = lines.next() {
            let bold = Style::new().add_modifier(Modifier::BOLD);
            let room = usize::from(line.width).saturating_sub(running.len() + 2);
            both_ends((&shortened(&self.view.title, room), bold), &running, line, buffer);
        }
        if let Some(line) = lines.next() {
            self.head().render(line, buffer);
        }
        for (row, line) in self.rows().iter().zip(&mut lines) {
            row.render(line, buffer);
        }
        if let Some(line) = lines.next() {
            named("time left", &self.time_left(), line, buffer);
        }
        if let Some(line) = lines.next() {
            put(self.hint, dim(), line, buffer);
        }
    }
}

impl Head {
    fn render(&self, line: Rect, buffer: &mut Buffer) {
        let stage = shortened(&self.stage, usize::from(line.width / 2));
        let left = (stage.chars().count() as u16 + 1).max(NAME);
        let right = self.right.chars().count() as u16 + 1;
        both_ends((&stage, Style::new()), &self.right, line, buffer);
        let columns = line.width.saturating_sub(left + right);
        let filled = (f64::from(columns) * self.done.clamp(0.0, 1.0)).round() as u16;
        let at = |from: u16, columns| Rect { x: line.x + left + from, width: columns, ..line };
        put(&"━".repeat(filled.into()), Style::new().fg(Color::Cyan), at(0, filled), buffer);
        put(&"─".repeat((columns - filled).into()), dim(), at(filled, columns - filled), buffer);
    }
}

impl Row<'_> {
    fn render(&self, line: Rect, buffer: &mut Buffer) {
        put(self.name, dim(), Rect { width: NAME.min(line.width), ..line }, buffer);
        let style =
            self.is_bad.map_or(Style::new(), |colour| Style::new().fg(colour).add_modifier(Modifier::BOLD));
        let value =
            Rect { x: line.x + NAME, width: (VALUE - 1).min(line.width.saturating_sub(NAME)), ..line };
        put(&format!("{:>width$}", self.value, width = usize::from(value.width)), style, value, buffer);
        let rest = Rect { x: line.x + NAME + VALUE, width: line.width.saturating_sub(NAME + VALUE), ..line };
        let Some(history) = self.history else {
            return put(&self.note, dim(), rest, buffer);
        };
        let note = if line.width >= WIDE { NOTE } else { 0 };
        let spark = Rect { width: rest.width.saturating_sub(note), ..rest };
        let (bars, peak) = history.bars(spark.width.into());
        Sparkline::default().data(bars).max(8).style(Style::new().fg(Color::Cyan)).render(spark, buffer);
        let text = match self.peak {
            Some(text) if peak > 0.0 => format!("peak {}", text(peak)),
            Some(_) => String::new(),
            None => self.note.clone(),
        };
        let text = shortened(&text, usize::from(note).saturating_sub(1));
        let at = Rect { x: spark.right(), width: note, ..line };
        put(&format!("{text:>width$}", width = usize::from(note)), dim(), at, buffer);
    }
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn put(text: &str, style: Style, at: Rect, buffer: &mut Buffer) {
    buffer.set_stringn(at.x, at.y, text, at.width.into(), style);
}

fn both_ends((left, style): (&str, Style), right: &str, line: Rect, buffer: &mut Buffer) {
    put(left, style, line, buffer);
    let columns = (right.chars().count() as u16).min(line.width);
    put(right, dim(), Rect { x: line.right() - columns, width: columns, ..line }, buffer);
}

fn named(name: &str, value: &str, line: Rect, buffer: &mut Buffer) {
    put(name, dim(), line, buffer);
    put(
        value,
        Style::new(),
        Rect { x: line.x + NAME, width: line.width.saturating_sub(NAME), ..line },
        buffer,
    );
}
