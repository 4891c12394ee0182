use harness::{Event, Level, LevelsAfter, Live, PhaseLive, Stage, Step};
use measure::DiskUse;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;

const HINT: &str = "Ctrl-C ends it with what it has";

/// What a terminal of that many columns shows, without the blanks at the ends of lines.
fn shown(view: &LiveView, now: Instant, columns: u16) -> String {
    let frame = view.frame(now, HINT);
    let mut terminal = Terminal::new(TestBackend::new(columns, frame.height())).unwrap();
    terminal.draw(|area| area.render_widget(frame, area.area())).unwrap();
    let screen = terminal.backend().buffer();
    let line = |row| {
        let line: String = (0..columns).map(|column| screen[(column, row)].symbol()).collect();
        format!("{}\n", line.trim_end())
    };
    (0..screen.area.height).map(line).collect()
}

/// Compares with `tests/NAME.txt`; `UPDATE_GOLDENS=1` writes it.
fn holds(name: &str, text: &str) {
    let path = format!("{}/src/terminal/live/tests/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, golden, "{path}: UPDATE_GOLDENS=1 writes it");
}

fn ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}

fn level(number: u32, after: LevelsAfter) -> Event {
    let (warm, measure) = (Duration::from_secs(5), Duration::from_secs(20));
    Event::LevelBegins(Level { offered_per_sec: Some(1500.0), number, of: None, warm, measure, after })
}

/// A level that is overloaded from its tenth second on.
fn live(half_seconds: u32) -> Event {
    let elapsed = Duration::from_millis(500) * half_seconds;
    let is_slow = half_seconds >= 20;
    Event::Live(Live {
        stage: if half_seconds < 10 { Stage::Warm } else { Stage::Measure },
        elapsed,
        sent_per_sec: 1500.0,
        achieved_per_sec: if is_slow { 1120.0 } else { 1500.0 - f64::from(half_seconds % 3) },
        p50: ms(if is_slow { 4.0 } else { 0.21 }),
        p99: ms(if is_slow { 31.5 } else { 1.9 }),
        late_p99: ms(0.02),
        in_flight: if is_slow { 340 } else { 2 },
        errors: u64::from(is_slow),
    })
}

fn disk(busy: f64) -> DiskUse {
    DiskUse { device: "/dev/nvme0n1p2".to_owned(), busy, ..DiskUse::default() }
}

fn level_under_way() -> (LiveView, Instant) {
    let begun = Instant::now();
    let mut view = LiveView::new("fstress: mail on /srv/some/directory".to_owned(), begun);
    let at = |half_seconds: u32| begun + Duration::from_millis(500) * half_seconds;
    view.take(&level(4, LevelsAfter::AtLeast(4)), begun);
    for half_seconds in 1..=26 {
        view.take(&live(half_seconds), at(half_seconds));
        view.device(&disk(f64::from(half_seconds) / 30.0));
    }
    (view, at(26))
}

#[test]
fn a_load_level_shows_its_figures_their_last_moments_and_the_time_left() {
    let (view, now) = level_under_way();
    holds("level-80", &shown(&view, now, 79));
    holds("level-60", &shown(&view, now, 59));
}

#[test]
fn a_phase_of_requests_shows_its_hits_and_the_time_of_all_phases() {
    let begun = Instant::now();
    let mut view = LiveView::new("webload: polymix through http://127.0.0.1:3128".to_owned(), begun);
    for second in 0..=15u32 {
        let done = f64::from(second) / 60.0;
        let live = PhaseLive {
            phase: "top1",
            number: 2,
            of: 5,
            done,
            run_left: Some(Duration::from_secs(200 - u64::from(second))),
            offered_per_sec: 400.0,
            achieved_per_sec: 399.0,
            latency_mean: ms(2.0),
            p50: ms(1.25),
            p99: ms(9.0),
            late_p99: ms(0.1),
            hit_share: 0.58,
            in_flight: 12,
            errors: 0,
        };
        view.take(&Event::PhaseLive(live), begun + Duration::from_secs(second.into()));
    }
    holds("phase-80", &shown(&view, begun + Duration::from_secs(15), 79));
}

#[test]
fn a_piece_of_work_shows_how_far_it_is_and_its_rate() {
    let begun = Instant::now();
    let mut view = LiveView::new("postmark: postmark on /srv".to_owned(), begun);
    let at = |fifths: u32| begun + Duration::from_millis(200) * fifths;
    let step = |done: u64| Step {
        work: "transactions".to_owned(),
        done,
        of: Some(20_000),
        is_estimate: true,
        bytes: 0,
    };
    view.take(&Event::Step(step(0)), begun);
    assert!(shown(&view, at(1), 79).contains("not known yet"), "no rate is known of one look");
    for fifths in 1..=40 {
        view.take(&Event::Step(step(u64::from(fifths) * 120)), at(fifths));
        view.device(&disk(0.43));
    }
    holds("step-80", &shown(&view, at(40), 79));
    holds("step-60", &shown(&view, at(40), 59));
}

#[test]
fn the_time_left_counts_what_levels_took_so_far() {
    let begun = Instant::now();
    let mut view = LiveView::new(String::new(), begun);
    // 25 s by the plan, and 15 s for the files of each.
    (0..3).for_each(|number| {
        view.take(&level(number, LevelsAfter::About(2)), begun + Duration::from_secs(40) * number)
    });
    let now = begun + Duration::from_secs(80);
    let text = shown(&view, now, 79);
    assert!(text.contains("level 25s, all levels about 1m 45s"), "{text}");
    view.take(&level(3, LevelsAfter::About(0)), now);
    let text = shown(&view, now, 79);
    assert!(text.contains("level 25s\n"), "{text}");
}

#[test]
fn a_small_area_shows_its_first_lines_and_breaks_nothing() {
    let (view, now) = level_under_way();
    for (columns, rows) in [(0, 0), (1, 1), (5, 3), (13, 20), (25, 2), (79, 5), (200, 40)] {
        let area = ratatui::layout::Rect::new(0, 0, columns, rows);
        let mut buffer = ratatui::buffer::Buffer::empty(area);
        ratatui::widgets::Widget::render(view.frame(now, HINT), area, &mut buffer);
    }
}
