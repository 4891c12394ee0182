//! Live progress on standard error: of a run the live view, of other work a bar on a terminal, elsewhere a line now and then.

use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use harness::{Event, Heard, Level, Live, PhaseLive, Stage, Step};
use indicatif::{ProgressBar, ProgressStyle};
use measure::{DiskMeter, LevelState, LoadPoint};
use ratatui::buffer::Buffer;
use ratatui::layout::{Rect, Size};
use ratatui::widgets::Widget as _;

use super::layout::wrapped;
use super::live::LiveView;
use super::output::{harmless, say};
use super::screen::Screen;
use crate::context::Context;
use crate::signals::Interruption;

/// Shows events as they come.
pub struct Progress {
    style: Style,
    bar: ProgressBar,
    /// Of the load point under way.
    spans: (Duration, Duration),
    title: String,
    said_at: Instant,
    live: Option<Box<LiveProgress>>,
}

/// A run's live view, and what it needs.
struct LiveProgress {
    view: LiveView,
    screen: Screen,
    interruption: Interruption,
    /// Of the device under the target.
    disk: Option<DiskMeter>,
    disk_due: Instant,
    frame_due: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Quiet,
    Lines,
    Bar,
    Live,
}

/// How often a run prints to a log that it is alive.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// Four frames a second.
const FRAME_EVERY: Duration = Duration::from_millis(250);
/// How often the counters of the device are read: they count in milliseconds.
const DISK_EVERY: Duration = Duration::from_secs(1);
/// The live view needs a terminal of this size.
const LIVE_MIN: Size = Size { width: 60, height: 16 };
/// A wider view is no easier to read.
const LIVE_COLUMNS_MAX: u16 = 100;

impl Progress {
    /// The live view of a run, where the user and the terminal want one; `directory` is what the run works in.
    pub fn of_run(context: &Context, title: String, directory: Option<&Path>) -> Option<Self> {
        let (drawing, size) = (context.drawing?, Screen::size()?);
        if context.quiet || size.width < LIVE_MIN.width || size.height < LIVE_MIN.height {
            return None;
        }
        context.screen.prepare(drawing);
        let now = Instant::now();
        let live = LiveProgress {
            view: LiveView::new(title, now),
            screen: context.screen.clone(),
            interruption: context.interruption.clone(),
            disk: directory.and_then(DiskMeter::start),
            disk_due: now + DISK_EVERY,
            frame_due: now,
        };
        Some(Self { style: Style::Live, live: Some(Box::new(live)), ..Self::new(true) })
    }

    /// The next event of a run; none once it is over. Meanwhile the live view is drawn.
    pub fn next_of(&mut self, heard: &mut Heard) -> Option<Event> {
        let Some(live) = &mut self.live else { return heard.next() };
        loop {
            live.draw_if_due(Instant::now());
            match heard.next_until(live.frame_due) {
                Ok(event) => return Some(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// For work that has not begun.
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
        Self {
            style,
            bar,
            spans: Default::default(),
            title: String::new(),
            said_at: Instant::now(),
            live: None,
        }
    }

    /// Takes in what happened.
    pub fn show(&mut self, event: &Event) {
        if let Some(live) = &mut self.live {
            live.view.take(event, Instant::now());
        }
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

    /// Clears the bar, or the view.
    pub fn finish(&self) {
        if let Some(live) = &self.live {
            live.screen.clear();
        }
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
            Style::Quiet | Style::Live => {}
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
        self.say_aloud(&format!("crumb: {text}"));
    }

    /// Does what prints by itself, without the bar or the view.
    pub fn aside<T>(&self, work: impl FnOnce() -> T) -> T {
        if let Some(live) = &self.live {
            live.screen.clear();
        }
        self.bar.suspend(work)
    }

    /// A line that stays.
    pub fn say(&mut self, text: &str) {
        self.said_at = Instant::now();
        match self.style {
            Style::Quiet => {}
            Style::Bar | Style::Live | Style::Lines => self.say_aloud(text),
        }
    }

    fn say_aloud(&self, text: &str) {
        match &self.live {
            Some(live) => live.screen.print(format!("{}\n", harmless(text)).as_bytes()),
            None => self.bar.suspend(|| say(text)),
        }
    }
}

impl LiveProgress {
    fn draw_if_due(&mut self, now: Instant) {
        if now < self.frame_due {
            return;
        }
        self.frame_due = now + FRAME_EVERY;
        if let Some(disk) = &mut self.disk
            && now >= self.disk_due
        {
            self.disk_due = now + DISK_EVERY;
            self.view.device(&disk.lap());
        }
        let Some(Size { width, height }) = Screen::size() else { return };
        let frame = self.view.frame(now, self.interruption.next_ctrl_c());
        // The last column stays free, as some terminals wrap there, and the last line, for the cursor.
        let width = width.saturating_sub(1).min(LIVE_COLUMNS_MAX);
        let area = Rect { x: 0, y: 0, width, height: frame.height().min(height.saturating_sub(1)) };
        let mut buffer = Buffer::empty(area);
        frame.render(area, &mut buffer);
        self.screen.draw(&buffer);
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
        (true, _) if point.state() == LevelState::OverBound => "  over the bound",
        (true, _) => "",
        (false, true) => "  saturated",
        (false, false) => "  INVALID",
    };
    format!(
        "{asked}: {:>9}/s achieved, mean {:>5} ms, p99 {:>5} ms{verdict}",
        report::rate_text(point.achieved_per_sec),
        report::ms_text(point.latency_us.mean),
        report::ms_text(point.latency_us.p99),
    )
}
