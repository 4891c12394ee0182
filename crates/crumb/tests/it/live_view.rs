//! The live view of a run, in a real terminal: `script` (util-linux) makes a pseudo-terminal, and a small terminal of our own reads
//! what comes out of it. It knows the few codes that the view may use, and takes any other one for a mistake.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use testkit::need;

use crate::binary::Bench;

/// Far more than any of these runs takes on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Enough files that random transactions do not run out of them.
const LONG: &str = "run postmark a --number 5000 --transactions 100000000 --no-store";
const SHORT: &str = "run fstress a --rate 100..200/100 --files 20 --warm 500ms --measure 2s --no-store";

/// The screen of a terminal with endless lines.
#[derive(Default)]
struct Screen {
    lines: Vec<Vec<char>>,
    row: usize,
    column: usize,
    /// Whether letters come plain: no colour, not bold.
    is_plain: bool,
}

impl Screen {
    fn of(bytes: &str) -> Self {
        let mut screen = Self { is_plain: true, ..Self::default() };
        let mut letters = bytes.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\r' => screen.column = 0,
                '\n' => screen.row += 1,
                '\u{1b}' => {
                    assert_eq!(letters.next(), Some('['), "no other sequence than CSI");
                    let mut code: String =
                        letters.by_ref().take_while_inclusive(|letter| !letter.is_ascii_alphabetic());
                    let end = code.pop().unwrap_or_default();
                    screen.obey(&code, end);
                }
                letter => screen.put(letter),
            }
        }
        screen
    }

    fn line(&mut self) -> &mut Vec<char> {
        if self.lines.len() <= self.row {
            self.lines.resize(self.row + 1, Vec::new());
        }
        &mut self.lines[self.row]
    }

    fn put(&mut self, letter: char) {
        let column = self.column;
        let line = self.line();
        if line.len() <= column {
            line.resize(column + 1, ' ');
        }
        line[column] = letter;
        self.column += 1;
        assert!(self.column <= 80 || !self.text().contains("running for"), "a line of the view is too wide");
    }

    fn obey(&mut self, code: &str, end: char) {
        let number: usize = code.parse().unwrap_or(1);
        let column = self.column;
        match end {
            'F' => {
                assert!(number <= self.row, "above the first line");
                (self.row, self.column) = (self.row - number, 0);
            }
            'K' => self.line().truncate(column),
            'J' => {
                self.line().truncate(column);
                self.lines.truncate(self.row + 1);
            }
            'm' => self.is_plain = code == "0" || self.is_plain && code.is_empty(),
            _ => panic!("an escape code that changes more than the view: {code:?} {end:?}"),
        }
    }

    fn text(&self) -> String {
        let lines = self.lines.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned());
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// `take_while` with the letter that ends it.
trait TakeWhileInclusive: Iterator<Item = char> {
    fn take_while_inclusive(self, more: impl Fn(&char) -> bool) -> String;
}

impl<I: Iterator<Item = char>> TakeWhileInclusive for I {
    fn take_while_inclusive(self, more: impl Fn(&char) -> bool) -> String {
        let mut taken = String::new();
        for letter in self {
            taken.push(letter);
            if !more(&letter) {
                break;
            }
        }
        taken
    }
}

/// A shell in a pseudo-terminal that runs `crumb` between two looks at the terminal's modes.
struct Terminal {
    script: Child,
    out: String,
    begun: Instant,
}

impl Terminal {
    /// None where there is no `script`.
    fn start(bench: &Bench, environment: &str, size: &str, args: &str) -> Option<Self> {
        let script = need::program("script", "bsdutils")?;
        std::fs::create_dir_all(bench.path("a")).unwrap();
        let crumb = env!("CARGO_BIN_EXE_crumb");
        // The trap keeps Ctrl-C from ending the shell, and is not inherited.
        let shell = format!(
            "trap : INT; stty {size}; echo modes-before $(stty -g); {environment} {crumb} {args}; echo code $?; echo modes-after $(stty -g)"
        );
        let script = Command::new(script)
            .args(["--quiet", "--flush", "--return", "--command", &shell, "/dev/null"])
            .current_dir(bench.directory())
            .env("CRUMB_STORE", bench.path("runs.db"))
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Some(Self { script, out: String::new(), begun: Instant::now() })
    }

    /// Reads until `done` says so, or all has ended.
    fn read_until(&mut self, done: impl Fn(&str) -> bool) {
        let mut bytes = self.out.clone().into_bytes();
        let mut buffer = [0; 4096];
        while !done(&self.out) {
            assert!(self.begun.elapsed() < TIME_LIMIT, "{}", self.out);
            let read = self.script.stdout.as_mut().unwrap().read(&mut buffer).unwrap();
            if read == 0 {
                return;
            }
            bytes.extend_from_slice(&buffer[..read]);
            self.out = String::from_utf8_lossy(&bytes).into_owned();
        }
    }

    fn types(&mut self, keys: &[u8]) {
        let stdin = self.script.stdin.as_mut().unwrap();
        stdin.write_all(keys).and_then(|()| stdin.flush()).unwrap();
    }

    /// Reads to the end: all that came, and what the screen shows then. The modes are what they were.
    fn end(mut self) -> (String, String) {
        self.read_until(|out| out.contains("modes-after "));
        drop(self.script.stdin.take());
        self.read_until(|_| false);
        self.script.wait().unwrap();
        let screen = Screen::of(&self.out);
        assert!(screen.is_plain, "it ends in colour");
        let text = screen.text();
        let modes = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        assert!(modes("modes-before ").is_some_and(|modes| modes.contains(':')), "{text}");
        assert_eq!(modes("modes-before "), modes("modes-after "), "{text}");
        (self.out, text)
    }
}

#[test]
fn a_run_shows_its_view_and_takes_it_away_at_the_end() {
    let bench = Bench::in_memory();
    let Some(terminal) = Terminal::start(&bench, "", "rows 24 cols 80", SHORT) else { return };
    let (out, screen) = terminal.end();
    for shown in [
        "achieved",
        "p99",
        "late p99",
        "in flight",
        "time left",
        "level 2 of 2",
        "Ctrl-C ends it with what it has",
    ] {
        assert!(out.contains(shown), "{shown}: {out}");
    }
    assert!(!screen.contains("time left") && !screen.contains("running for"), "the view stays:\n{screen}");
    assert!(
        screen.contains("100/s offered:") || screen.contains("100.0/s offered:"),
        "a note is lost:\n{screen}"
    );
    assert!(screen.contains("Verdict"), "the tables are lost:\n{screen}");
}

#[test]
fn ctrl_c_says_what_the_next_one_does_and_leaves_a_plain_terminal() {
    let bench = Bench::in_memory();
    let Some(mut terminal) = Terminal::start(&bench, "", "rows 16 cols 60", LONG) else { return };
    terminal.read_until(|out| out.contains("transactions") && out.contains("time left"));
    terminal.types(b"\x03");
    let (_, screen) = terminal.end();
    assert!(screen.contains("Ctrl-C again ends it at once and leaves behind:"), "{screen}");
    assert!(screen.contains("code 130"), "{screen}");
    assert!(!screen.contains("time left"), "the view stays:\n{screen}");
}

#[test]
fn sigterm_and_a_hangup_leave_a_plain_terminal_too() {
    for signal in ["TERM", "HUP"] {
        let bench = Bench::in_memory();
        let Some(mut terminal) = Terminal::start(&bench, "", "rows 24 cols 80", LONG) else { return };
        terminal.read_until(|out| out.contains("time left"));
        let store = bench.path("runs.db").display().to_string();
        let crumb = std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
            let id: i32 = entry.file_name().to_str()?.parse().ok()?;
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
            let is_it = name.trim() == "crumb" && String::from_utf8_lossy(&environment).contains(&store);
            is_it.then_some(id)
        });
        let id = rustix::process::Pid::from_raw(crumb.expect("it runs")).unwrap();
        let signal =
            if signal == "TERM" { rustix::process::Signal::TERM } else { rustix::process::Signal::HUP };
        rustix::process::kill_process(id, signal).unwrap();
        let (_, screen) = terminal.end();
        assert!(screen.contains("code 130") && !screen.contains("time left"), "{signal:?}:\n{screen}");
    }
}

#[test]
fn a_plain_or_small_terminal_and_the_flag_keep_the_one_line() {
    for (environment, size, flag) in [
        ("", "rows 24 cols 80", "--no-live"),
        ("TERM=dumb", "rows 24 cols 80", ""),
        ("", "rows 12 cols 80", ""),
        ("", "rows 24 cols 50", ""),
    ] {
        let bench = Bench::in_memory();
        let args = format!("run postmark a --number 100 --transactions 2000 --no-store {flag}");
        let Some(mut terminal) = Terminal::start(&bench, environment, size, &args) else { return };
        terminal.read_until(|out| out.contains("modes-after "));
        assert!(!terminal.out.contains("time left"), "{environment} {size} {flag}: {}", terminal.out);
        assert!(terminal.out.contains("code "), "{}", terminal.out);
        drop(terminal.script.stdin.take());
        terminal.script.wait().unwrap();
    }
}

#[test]
fn without_colours_the_view_has_none() {
    let bench = Bench::in_memory();
    let Some(terminal) = Terminal::start(&bench, "NO_COLOR=1", "rows 24 cols 80", SHORT) else { return };
    let (out, _) = terminal.end();
    let codes: Vec<&str> = out
        .split("\u{1b}[")
        .skip(1)
        .filter_map(|rest| rest.split(|c: char| c.is_ascii_alphabetic()).next())
        .collect();
    assert!(out.contains("time left") && !codes.is_empty(), "{out}");
    assert!(!out.contains("\u{1b}[3") && !out.contains("\u{1b}[1m") && !out.contains("\u{1b}[2m"), "{out}");
}

#[test]
fn a_pipe_gets_plain_lines() {
    let bench = Bench::in_memory();
    std::fs::create_dir(bench.path("a")).unwrap();
    let said = bench.crumb(&SHORT.split(' ').collect::<Vec<_>>());
    assert!(said.is_fine(), "{}{}", said.out, said.err);
    assert!(!said.err.contains('\u{1b}') && !said.out.contains('\u{1b}'), "{}", said.err);
    assert!(said.err.contains("offered:") && !said.err.contains("time left"), "{}", said.err);
}
