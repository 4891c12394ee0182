//! Live progress of a run on standard error: a bar on a terminal, a line now and then elsewhere.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use harness::{Event, Level, Live, PhaseLive, Stage, Step};
use indicatif::{ProgressBar, ProgressStyle};
use measure::LoadPoint;

use super::layout::wrapped;
use super::output::say;

/// Shows events as they come.
pub struct Progress {
    style: Style,
    bar: ProgressBar,
    /// Of the load point under way.
    spans: (Duration, Duration),
    title: String,
    said_at: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Quiet,
    Lines,
    Bar,
}

/// How often a run prints to a log that it is alive.
const LINE_EVERY: Duration = Duration::from_secs(30);

impl Progress {
    /// For a run that has not begun.
    pub fn new(quiet: bool) -> Self {
        let style = match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => Style::Quiet,
            (false, true) => Style::Bar,
            (false, false) => Style::Lines,
        };
        let bar = if style == Style::Bar { ProgressBar::new(1) } else { ProgressBar::hidden() };
        let template = "{bar:20.cyan/dim} {wide_msg}";
        bar.set_style(
            ProgressStyle::with_template(template).expect("the template is a constant").progress_chars("━╸─"),
        );
        Self { style, bar, spans: Default::default(), title: String::new(), said_at: Instant::now() }
    }

    /// Takes in what happened.
    pub fn show(&mut self, event: &Event) {
        match event {
            Event::Step(step) => self.work(step),
            Event::LevelBegins(level) => self.level(level),
            Event::Waits(choice) => self.say(wrapped("", &choice.to_string()).trim_end()),
            Event::Live(live) => self.live(live),
            Event::PhaseLive(live) => self.phase_live(live),
            Event::LevelDone(point) => self.say(&point_line(point)),
            Event::Note(text) => self.say(wrapped("", text).trim_end()),
            _ => {}
        }
    }

    /// Clears the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn level(&mut self, level: &Level) {
        self.spans = (level.warm, level.measure);
        let number = level.of.map_or(format!("#{}", level.number), |of| format!("{}/{of}", level.number));
        self.title = match level.offered_per_sec {
            Some(rate) => format!("[{number}] {}/s", report::rate_text(rate)),
            None => format!("[{number}] closed loop"),
        };
    }

    fn work(&mut self, step: &Step) {
        let count = report::count_text;
        let mut text = format!("{}: {}", step.work, count(step.done));
        if let Some(of) = step.of {
            let about = if step.is_estimate { "about " } else { "" };
            text.push_str(&format!(" of {about}{}", count(of)));
        }
        if step.bytes > 0 {
            text.push_str(&format!(", {}", report::bytes_text(step.bytes)));
        }
        let of = step.of.unwrap_or(step.done);
        self.step(step.done.min(of), of, text);
    }

    fn live(&mut self, live: &Live) {
        let (warm, measure) = self.spans;
        let stage = match live.stage {
            Stage::Warm => "warming up",
            Stage::Measure => "measuring",
        };
        let mut text = format!(
            "{} {stage}: {}/s, p50 {} p99 {} ms",
            self.title,
            report::rate_text(live.achieved_per_sec),
            report::ms_text(live.p50.as_secs_f64() * 1e6),
            report::ms_text(live.p99.as_secs_f64() * 1e6),
        );
        text.push_str(&late_text(live.late_p99));
        if live.errors > 0 {
            text.push_str(&format!(", {} errors", report::count_text(live.errors)));
        }
        self.step(live.elapsed.as_millis() as u64, (warm + measure).as_millis() as u64, text);
    }

    fn phase_live(&mut self, live: &PhaseLive) {
        let mut text = format!(
            "{}: {}/s of {}, {} ms, {:.0}% hits",
            live.phase,
            report::rate_text(live.achieved_per_sec),
            report::rate_text(live.offered_per_sec),
            report::ms_text(live.latency_mean.as_secs_f64() * 1e6),
            100.0 * live.hit_share,
        );
        text.push_str(&late_text(live.late_p99));
        if live.errors > 0 {
            text.push_str(&format!(", {} failed", report::count_text(live.errors)));
        }
        self.step((1000.0 * live.done) as u64, 1000, text);
    }

    /// Shows how far something has come: `done` of `of`, and a line about it. A log hears of it now and then.
    pub fn step(&mut self, done: u64, of: u64, text: String) {
        match self.style {
            Style::Quiet => {}
            Style::Bar => {
                self.bar.set_length(of.max(1));
                self.bar.set_position(done);
                self.bar.set_message(text);
            }
            Style::Lines => {
                if self.said_at.elapsed() >= LINE_EVERY {
                    self.say(&text);
                }
            }
        }
    }

    /// A line about something that went wrong, also where the rest is quiet.
    pub fn warn(&mut self, text: &str) {
        self.bar.suspend(|| say(&format!("crumb: {text}")));
    }

    /// Does what prints by itself, without the bar.
    pub fn aside<T>(&self, work: impl FnOnce() -> T) -> T {
        self.bar.suspend(work)
    }

    /// A line that stays.
    pub fn say(&mut self, text: &str) {
        self.said_at = Instant::now();
        match self.style {
            Style::Quiet => {}
            Style::Bar => self.bar.suspend(|| say(text)),
            Style::Lines => say(text),
        }
    }
}

/// How late requests are sent, in an open loop.
fn late_text(late_p99: Duration) -> String {
    if late_p99.is_zero() {
        return String::new();
    }
    format!(", sent late p99 {} ms", report::ms_text(late_p99.as_secs_f64() * 1e6))
}

fn point_line(point: &LoadPoint) -> String {
    let asked = match (point.offered_per_sec, point.outstanding) {
        (Some(rate), _) => format!("{:>9}/s offered", report::rate_text(rate)),
        (None, outstanding) => format!("{:>4} outstanding", outstanding.unwrap_or(0)),
    };
    let verdict = match (point.verdict.valid, point.saturated) {
        (true, _) => "",
        (false, true) => "  saturated",
        (false, false) => "  INVALID",
    };
    format!(
        "{asked}: {:>9}/s achieved, mean {:>6} ms, p99 {:>6} ms{verdict}",
        report::rate_text(point.achieved_per_sec),
        report::ms_text(point.latency_us.mean),
        report::ms_text(point.latency_us.p99),
    )
}
