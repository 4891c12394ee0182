//! A session in PostMark's command language, prompts included: what the original's process does.
//!
//! ```text
//! configuration file --+
//!                      +--> line -> language -> Settings, or: run -> engine -> report -> output or a file
//! input, after `pm>` --+
//! ```
//!
//! Errors are handled better than in the original: if a run fails, the session prints why on standard error, continues
//! with the next command, and ends with a status other than 0; an interrupted run removes its files and ends the session.
//!
//! Always holds: `idle` is false exactly while a run or a shell command is on, so that a signal can end an idle
//! session at once and leave a busy one to clean up.

pub(super) mod language;
pub(super) mod lines;
pub(super) mod report;

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use files::{FileSystem, FsError};
use measure::error_chain;

use self::language::Command;
use self::lines::next_line;
use crate::engine::{self, Ending, Event, Outcome, Phase, Place, RunOptions};
use crate::{Figures, PostmarkError, Settings};

/// Opens a location as storage.
pub type OpenLocation<'a> = &'a dyn Fn(&Path) -> Result<Arc<dyn FileSystem>, FsError>;

/// What a session needs of the world around it.
pub struct Surroundings<'a> {
    /// Standard output.
    pub out: &'a mut dyn Write,
    /// Standard error.
    pub err: &'a mut dyn Write,
    /// Where relative names begin, and where runs without a location work.
    pub working_directory: &'a Path,
    /// Opens a location, given from the working directory.
    pub open: OpenLocation<'a>,
    /// How runs are done: the clock, and what the language does not know of.
    pub how: RunOptions,
    /// Ends the run that is on.
    pub stop: &'a AtomicBool,
    /// Nothing is on that would have to clean up. Kept by the session.
    pub idle: &'a AtomicBool,
    /// What `!cmd` writes to.
    pub shell: Shell,
}

/// Where a shell command's output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    /// To this process's own standard output and error; it may read the standard input too.
    Inherits,
    /// To the session's writers, when the command is done.
    Captured,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// All runs could be done.
    Fine,
    /// Some runs failed.
    Failed {
        /// How many.
        runs: u32,
    },
    /// A run was interrupted.
    Interrupted,
}

/// Banner and name of the version whose counts these are; parsers look for it.
const BANNER: &str = "PostMark v1.51 : 8/14/01\n";
const PROMPT: &str = "pm>";
/// Read when no configuration file is named, if it is there.
const DEFAULT_CONFIGURATION: &str = ".pmrc";
/// Files that load files that load files: one that loads itself ends here.
const LOAD_DEPTH_MAX: u32 = 16;
const OUT_OF_FILES: &str = "out of files!\n\
    For this workload, either increase the number of files or\ndecrease the number of transactions.\n";

/// A conversation.
pub struct Session<'a> {
    around: Surroundings<'a>,
    settings: Settings,
    runs_failed: u32,
    interrupted: bool,
}

/// What to do after a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Line,
    Quit,
}

impl<'a> Session<'a> {
    /// A session with the default settings.
    pub fn new(around: Surroundings<'a>) -> Self {
        Self { around, settings: Settings::default(), runs_failed: 0, interrupted: false }
    }

    /// The whole conversation: the banner, the configuration file (`.pmrc` when none is named), the input.
    ///
    /// # Errors
    /// When the input cannot be read or the output not written.
    pub fn converse(
        mut self,
        configuration: Option<&Path>,
        input: &mut dyn BufRead,
    ) -> io::Result<SessionEnd> {
        self.print(BANNER.as_bytes())?;
        let configuration = configuration.unwrap_or(Path::new(DEFAULT_CONFIGURATION));
        // One that is not there is passed over without a word, as the original does.
        let mut next = match File::open(self.around.working_directory.join(configuration)) {
            Ok(file) => self.obey_file(configuration, file, 0)?,
            Err(_) => Next::Line,
        };
        let mut buffer = Vec::new();
        while next == Next::Line {
            self.print(PROMPT.as_bytes())?;
            match next_line(input, &mut buffer)? {
                Some(line) => next = self.obey(line, 0)?,
                None => break,
            }
        }
        self.around.out.flush()?;
        Ok(match self.runs_failed {
            _ if self.interrupted => SessionEnd::Interrupted,
            0 => SessionEnd::Fine,
            runs => SessionEnd::Failed { runs },
        })
    }

    fn obey_file(&mut self, path: &Path, file: File, depth: u32) -> io::Result<Next> {
        let name = path.as_os_str().as_bytes();
        self.print(&[b"Reading configuration from file '", name, b"'\n"].concat())?;
        let (mut input, mut buffer) = (BufReader::new(file), Vec::new());
        loop {
            match next_line(&mut input, &mut buffer) {
                Ok(Some(line)) => {
                    if self.obey(line, depth + 1)? == Next::Quit {
                        return Ok(Next::Quit);
                    }
                }
                Ok(None) => return Ok(Next::Line),
                Err(error) => {
                    let why = error.to_string();
                    self.complain(
                        &[b"cannot read configuration file '", name, b"': ", why.as_bytes()].concat(),
                    )?;
                    return Ok(Next::Line);
                }
            }
        }
    }

    fn obey(&mut self, line: &[u8], depth: u32) -> io::Result<Next> {
        // To the original a line ends at a zero byte.
        let line = line.split(|byte| *byte == 0).next().unwrap_or_default();
        if let Some(program) = line.strip_prefix(b"!") {
            self.shell(OsStr::from_bytes(program))?;
            return Ok(Next::Line);
        }
        let Some((command, parameter)) = language::command(line) else {
            self.print(b"Eh?\n")?;
            return Ok(Next::Line);
        };
        match command {
            Command::Set(setting) => {
                if let Err(complaint) = setting.set(&mut self.settings, parameter) {
                    self.complain(&complaint)?;
                }
            }
            Command::Run => self.run(parameter)?,
            Command::Load => self.load(parameter, depth)?,
            Command::Show => self.show(parameter)?,
            Command::Help => self.print(language::help(parameter).as_bytes())?,
            Command::Quit => return Ok(Next::Quit),
        }
        Ok(if self.interrupted { Next::Quit } else { Next::Line })
    }

    /// `quit` in a loaded file ends that file alone.
    fn load(&mut self, parameter: Option<&[u8]>, depth: u32) -> io::Result<()> {
        let Some(name) = parameter else { return self.complain(b"no configuration file specified") };
        let path = Path::new(OsStr::from_bytes(name));
        match File::open(self.around.working_directory.join(path)) {
            Ok(_) if depth >= LOAD_DEPTH_MAX => self.complain(
                &[b"cannot read configuration file '", name, b"': it loads itself, or files nest too deep"]
                    .concat(),
            ),
            Ok(file) => self.obey_file(path, file, depth).map(drop),
            Err(_) => self.complain(&[b"cannot read configuration file '", name, b"'"].concat()),
        }
    }

    fn show(&mut self, parameter: Option<&[u8]>) -> io::Result<()> {
        let mut file = self.redirect(parameter)?;
        let working_directory = self.around.working_directory.as_os_str();
        let [before, locations, after] = language::shown(&self.settings, working_directory);
        self.report(&mut file, &before)?;
        self.print(&locations)?;
        self.report(&mut file, &after)
    }

    /// The file that a report goes to; with none, or one that cannot be written, standard output.
    fn redirect(&mut self, parameter: Option<&[u8]>) -> io::Result<Option<File>> {
        let Some(name) = parameter else { return Ok(None) };
        match OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.around.working_directory.join(OsStr::from_bytes(name)))
        {
            Ok(file) => Ok(Some(file)),
            Err(_) => {
                self.complain(&[b"Cannot direct output to file '", name, b"'"].concat())?;
                Ok(None)
            }
        }
    }

    fn report(&mut self, file: &mut Option<File>, text: &[u8]) -> io::Result<()> {
        match file {
            Some(file) => match file.write_all(text) {
                Ok(()) => Ok(()),
                Err(error) => self.complain(format!("the report is not written: {error}").as_bytes()),
            },
            None => self.print(text),
        }
    }

    fn run(&mut self, parameter: Option<&[u8]>) -> io::Result<()> {
        let mut file = self.redirect(parameter)?;
        self.around.idle.store(false, Ordering::SeqCst);
        let done = self.benchmark();
        self.around.idle.store(true, Ordering::SeqCst);
        let outcome = match done? {
            Ok(outcome) => outcome,
            Err(error) => {
                self.runs_failed += 1;
                // Interrupted, and not even cleaning up went well.
                self.interrupted = self.around.stop.load(Ordering::Relaxed);
                return self.complain(error_chain(&error).as_bytes());
            }
        };
        match outcome.ending {
            Ending::Complete => {
                self.report(&mut file, Figures::of(&outcome).report(self.settings.report).as_bytes())
            }
            Ending::OutOfFiles => Ok(()),
            Ending::Failed => unreachable!("a run that failed is an error"),
            Ending::Interrupted => {
                self.interrupted = true;
                let (done, asked) = (outcome.transactions_done, self.settings.transactions);
                let made = outcome.counts.created();
                self.complain(
                    format!(
                        "interrupted after {made} files created and {done} of {asked} transactions; \
                         all files of this run are removed"
                    )
                    .as_bytes(),
                )
            }
        }
    }

    fn benchmark(&mut self) -> io::Result<Result<Outcome, PostmarkError>> {
        let places = match self.places() {
            Ok(places) => places,
            Err(error) => return Ok(Err(error)),
        };
        let (out, err) = (&mut *self.around.out, &mut *self.around.err);
        let mut written = Ok(());
        let done = engine::run(&self.settings, &places, &self.around.how, self.around.stop, &mut |event| {
            if written.is_ok() {
                written = tell(out, err, &event);
                if written.is_err() {
                    // The output is gone: the rest of the run would be lost.
                    self.around.stop.store(true, Ordering::Relaxed);
                }
            }
        });
        written.map(|()| done)
    }

    fn places(&self) -> Result<Vec<Place>, PostmarkError> {
        let here = [(PathBuf::new(), NonZeroU32::MIN)];
        let locations =
            if self.settings.locations.is_empty() { &here[..] } else { &self.settings.locations[..] };
        let opened = locations.iter().map(|(location, weight)| {
            let location = self.around.working_directory.join(location);
            match (self.around.open)(&location) {
                Ok(fs) => Ok(Place { fs, weight: *weight }),
                Err(source) => Err(PostmarkError::Location { location, source }),
            }
        });
        opened.collect()
    }

    fn shell(&mut self, program: &OsStr) -> io::Result<()> {
        if program.is_empty() {
            return Ok(());
        }
        self.around.out.flush()?;
        let mut shell = Program::new("/bin/sh");
        shell.arg("-c").arg(program).current_dir(self.around.working_directory);
        // While it is on, signals are the program's own business, as with system(3).
        self.around.idle.store(false, Ordering::SeqCst);
        let ran = match self.around.shell {
            Shell::Inherits => shell.status().map(drop),
            Shell::Captured => match shell.stdin(std::process::Stdio::null()).output() {
                Ok(output) => {
                    self.around.out.write_all(&output.stdout)?;
                    self.around.err.write_all(&output.stderr)
                }
                Err(error) => Err(error),
            },
        };
        self.around.stop.store(false, Ordering::SeqCst);
        self.around.idle.store(true, Ordering::SeqCst);
        match ran {
            Ok(()) => Ok(()),
            Err(error) => self.complain(format!("cannot run a shell: {error}").as_bytes()),
        }
    }

    fn print(&mut self, text: &[u8]) -> io::Result<()> {
        self.around.out.write_all(text)?;
        self.around.out.flush()
    }

    fn complain(&mut self, text: &[u8]) -> io::Result<()> {
        self.around.err.write_all(&[b"Error: ", text, b"\n"].concat())?;
        self.around.err.flush()
    }
}

fn tell(out: &mut dyn Write, err: &mut dyn Write, event: &Event) -> io::Result<()> {
    match event {
        Event::Begins(Phase::MakeDirectories) => out.write_all(b"Creating subdirectories...")?,
        Event::Begins(Phase::Create) => out.write_all(b"Creating files...")?,
        Event::Begins(Phase::Transactions) => out.write_all(b"Performing transactions")?,
        Event::Begins(Phase::Delete) => out.write_all(b"Deleting files...")?,
        Event::Begins(Phase::RemoveDirectories) => out.write_all(b"Deleting subdirectories...")?,
        Event::Tenth => out.write_all(b".")?,
        Event::OutOfFiles => out.write_all(OUT_OF_FILES.as_bytes())?,
        Event::Ends { well: true, out_of_files: true, .. } => {}
        Event::Ends { well: true, .. } => out.write_all(b"Done\n")?,
        Event::Ends { well: false, .. } => out.write_all(b"failed\n")?,
        Event::Trouble(error) => {
            out.flush()?;
            err.write_all(format!("Error: {}\n", error_chain(error)).as_bytes())?;
        }
    }
    out.flush()
}
