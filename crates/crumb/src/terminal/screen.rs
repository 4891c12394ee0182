//! Standard error as a place that the notes of a run, its log, the words of a signal and a live view share.
//!
//! ```text
//! a note that was printed before
//! another note                        print: the view is taken away, the text written, the view put below it again
//! +--------------------------+
//! | the view, redrawn where  |        draw: up by its lines, then each line that changed
//! | it is                    |
//! +--------------------------+
//! _ the cursor between two frames
//! ```
//!
//! Always holds: the terminal's modes, its cursor and its alternate screen are left alone, and each frame ends with plain
//! text and the cursor at the start of a line. So nothing needs to be restored, however the process ends or is stopped.
//! `ratatui`'s own inline viewport asks the terminal where the cursor is: that takes raw mode, reads what the user types, and
//! stops a process in the background. So the view is drawn into a `ratatui` buffer and written from here.
//! Not here: what the view shows (see `live`).

use std::io::{self, IsTerminal as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use crossterm::cursor::MoveToPreviousLine;
use crossterm::style::{Attribute, Color as TermColor, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::{queue, terminal};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Size;
use ratatui::style::{Color, Modifier};
use ratatui::text::Span;
use rustix::termios::{tcgetpgrp, tcgetwinsize};

/// A handle on standard error. Clones are the same screen.
#[derive(Clone, Debug, Default)]
pub struct Screen {
    shared: Arc<Mutex<Shared>>,
    /// The process was stopped and continues: a shell wrote below the view meanwhile.
    continued: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The view's lines as they are on the screen; none when there is no view.
    lines: Vec<Line>,
    /// Columns of the terminal when they were written.
    columns: u16,
    how: Drawing,
    is_prepared: bool,
    /// No view is drawn any more.
    is_closed: bool,
}

/// A line of the view: its bytes with escape codes, and how many columns it fills.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Line {
    bytes: Vec<u8>,
    columns: u16,
}

/// How a terminal is drawn on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drawing {
    /// Colours and bold text are wanted.
    pub styled: bool,
    /// The terminal wraps lines again when it becomes narrower.
    pub rewraps: bool,
}

impl Screen {
    /// The size of the terminal on standard error; none if standard error is not a terminal.
    pub fn size() -> Option<Size> {
        let stderr = io::stderr();
        if !stderr.is_terminal() {
            return None;
        }
        let size = tcgetwinsize(&stderr).ok()?;
        Some(Size { width: size.ws_col, height: size.ws_row })
    }

    /// Says how to draw, and listens to the process being continued after a stop.
    pub fn prepare(&self, how: Drawing) {
        let mut shared = self.lock();
        shared.how = how;
        if std::mem::replace(&mut shared.is_prepared, true) {
            return;
        }
        // Without it a view is drawn over what the shell wrote, once.
        let _ = signal_hook::flag::register(signal_hook::consts::SIGCONT, Arc::clone(&self.continued));
    }

    /// Writes text that stays, above the view. A failed write is ignored, as the terminal may be gone.
    pub fn print(&self, text: &[u8]) {
        let mut shared = self.lock();
        let lines = self.take_lines(&mut shared);
        let size = Self::size();
        let mut out = Vec::with_capacity(text.len());
        shared.take_away(&lines, size, &mut out);
        out.extend_from_slice(text);
        let fits = size.is_some_and(|size| size.width == shared.columns);
        if !lines.is_empty() && fits && text.ends_with(b"\n") {
            shared.put(&[], lines, &mut out);
        }
        let _ = io::stderr().write_all(&out);
    }

    /// Draws the view in place of the one that is there.
    pub fn draw(&self, view: &Buffer) {
        if !is_in_foreground() {
            // Another program has the terminal. What it writes is not to be overwritten later.
            self.continued.store(true, Ordering::Relaxed);
            return;
        }
        let mut shared = self.lock();
        if shared.is_closed {
            return;
        }
        let before = self.take_lines(&mut shared);
        let styled = shared.how.styled;
        let lines = (0..view.area.height).map(|row| Line::of(view, row, styled)).collect();
        let size = Self::size();
        let mut out = Vec::new();
        let same = size.is_some_and(|size| size.width == shared.columns);
        if !same {
            shared.take_away(&before, size, &mut out);
        } else if !before.is_empty() {
            let _ = queue!(out, MoveToPreviousLine(before.len() as u16));
        }
        shared.columns = size.map_or(0, |size| size.width);
        shared.put(if same { &before } else { &[] }, lines, &mut out);
        let _ = io::stderr().write_all(&out);
    }

    /// Takes the view away.
    pub fn clear(&self) {
        let mut shared = self.lock();
        self.clear_locked(&mut shared);
    }

    /// Takes the view away for good: the process ends.
    pub fn close(&self) {
        let mut shared = self.lock();
        shared.is_closed = true;
        self.clear_locked(&mut shared);
    }

    /// Takes the view away before a panic prints its message, unless the panic came from drawing it.
    pub fn clear_before_panics(&self) {
        let screen = self.clone();
        let next = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            match screen.shared.try_lock() {
                Ok(mut shared) => screen.clear_locked(&mut shared),
                Err(TryLockError::Poisoned(poisoned)) => screen.clear_locked(&mut poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
            next(panic);
        }));
    }

    /// A writer for whole lines above the view.
    pub fn writer(&self) -> ScreenWriter {
        ScreenWriter(self.clone())
    }

    fn clear_locked(&self, shared: &mut Shared) {
        let lines = self.take_lines(shared);
        let mut out = Vec::new();
        shared.take_away(&lines, Self::size(), &mut out);
        let _ = io::stderr().write_all(&out);
    }

    /// The lines on the screen; none when they are no longer right above the cursor.
    fn take_lines(&self, shared: &mut Shared) -> Vec<Line> {
        let lines = std::mem::take(&mut shared.lines);
        if self.continued.swap(false, Ordering::Relaxed) { Vec::new() } else { lines }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Moves to where the view begins and clears all from there.
    fn take_away(&self, lines: &[Line], size: Option<Size>, out: &mut Vec<u8>) {
        if lines.is_empty() {
            return;
        }
        let columns = size.map_or(self.columns, |size| size.width).max(1);
        let rows = |line: &Line| {
            if self.how.rewraps && columns < self.columns { line.columns.div_ceil(columns).max(1) } else { 1 }
        };
        let _ = queue!(
            out,
            MoveToPreviousLine(lines.iter().map(rows).sum()),
            terminal::Clear(terminal::ClearType::FromCursorDown)
        );
    }

    /// Writes the view from where the cursor is, but for lines that are there already.
    fn put(&mut self, before: &[Line], lines: Vec<Line>, out: &mut Vec<u8>) {
        for (at, line) in lines.iter().enumerate() {
            if before.get(at) != Some(line) {
                out.extend_from_slice(&line.bytes);
                let _ = queue!(out, terminal::Clear(terminal::ClearType::UntilNewLine));
            }
            out.extend_from_slice(b"\r\n");
        }
        // What was below it, and what the user typed.
        let _ = queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown));
        self.lines = lines;
    }
}

impl Line {
    fn of(view: &Buffer, row: u16, styled: bool) -> Self {
        let cells: Vec<&Cell> =
            (0..view.area.width).map(|column| &view[(view.area.x + column, view.area.y + row)]).collect();
        let columns = cells.iter().rposition(|cell| cell.symbol() != " ").map_or(0, |last| last + 1);
        let mut bytes = Vec::new();
        let mut look = (Color::Reset, Modifier::empty());
        let mut hidden = 0;
        for cell in &cells[..columns] {
            if hidden > 0 {
                hidden -= 1;
                continue;
            }
            let wanted = (cell.fg, cell.modifier);
            if styled && wanted != look {
                change_look(wanted, &mut bytes);
                look = wanted;
            }
            bytes.extend_from_slice(cell.symbol().as_bytes());
            // A wide letter fills the next cell too.
            hidden = Span::raw(cell.symbol()).width().saturating_sub(1);
        }
        if look != (Color::Reset, Modifier::empty()) {
            let _ = queue!(bytes, SetAttribute(Attribute::Reset));
        }
        Self { bytes, columns: columns as u16 }
    }
}

fn change_look((colour, modifier): (Color, Modifier), out: &mut Vec<u8>) {
    let colour = match colour {
        Color::Red => Some(TermColor::DarkRed),
        Color::Yellow => Some(TermColor::DarkYellow),
        Color::Cyan => Some(TermColor::DarkCyan),
        _ => None,
    };
    let _ = queue!(out, SetAttribute(Attribute::Reset));
    if modifier.contains(Modifier::BOLD) {
        let _ = queue!(out, SetAttribute(Attribute::Bold));
    }
    if modifier.contains(Modifier::DIM) {
        let _ = queue!(out, SetAttribute(Attribute::Dim));
    }
    let _ = match colour {
        Some(colour) => queue!(out, SetForegroundColor(colour)),
        None => queue!(out, ResetColor),
    };
}

/// Whether this process may write to its terminal without disturbing another one.
fn is_in_foreground() -> bool {
    // A terminal that is not the controlling one has no foreground.
    tcgetpgrp(io::stderr()).map_or(true, |foreground| foreground == rustix::process::getpgrp())
}

/// Writes whole lines above the view.
pub struct ScreenWriter(Screen);

impl Write for ScreenWriter {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.print(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ratatui::style::Style;

    use super::*;

    fn line(text: &str) -> Line {
        Line { bytes: text.into(), columns: text.len() as u16 }
    }

    #[test]
    fn a_line_ends_with_its_last_letter_and_plain_text() {
        let mut view = Buffer::with_lines(["ab  ", "    "]);
        view.set_style(ratatui::layout::Rect::new(1, 0, 1, 1), Style::new().fg(Color::Red));
        let styled = Line::of(&view, 0, true);
        let text = String::from_utf8(styled.bytes).unwrap();
        assert!(
            text.starts_with('a') && text.contains("\u{1b}[38;5;1mb") && text.ends_with("\u{1b}[0m"),
            "{text:?}"
        );
        assert_eq!(Line::of(&view, 0, false), line("ab"));
        assert_eq!(Line::of(&view, 1, true), line(""));
        let wide = Line::of(&Buffer::with_lines(["日本x"]), 0, false);
        assert_eq!((String::from_utf8(wide.bytes).unwrap().as_str(), wide.columns), ("日本x", 5));
    }

    #[test]
    fn only_lines_that_changed_are_written_again() {
        let (mut shared, mut out) = (Shared::default(), Vec::new());
        shared.put(&[line("one"), line("two")], vec![line("one"), line("TWO")], &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "\r\nTWO\u{1b}[K\r\n\u{1b}[J");
    }

    #[test]
    fn a_narrower_terminal_has_wrapped_the_view_where_it_does_that() {
        for (rewraps, up) in [(true, "\u{1b}[4F"), (false, "\u{1b}[2F")] {
            let shared = Shared { columns: 80, how: Drawing { rewraps, styled: true }, ..Shared::default() };
            let lines = [line(&"x".repeat(70)), line("y")];
            let mut out = Vec::new();
            shared.take_away(&lines, Some(Size { width: 30, height: 20 }), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("{up}\u{1b}[J"));
        }
    }
}
