//! Marks that a user sets on runs under way: `crumb mark TEXT` in another terminal writes to the socket of each of them.
//!
//! ```text
//! run:  DIRECTORY/RUN.sock, listened at by a thread      <- one line of text
//!       Annotation { when the line came, text }          -> "ok 4.213", or "no REASON"
//! mark: each socket of the directory -> a line, its answer; a socket that no process listens at is removed
//! ```
//!
//! 1. The directory is this user's alone (mode 0700); one that belongs to another user, is a link or is open to others is refused.
//! 2. A socket gets its name once it is listened at, so that a refused connection means: the run was killed.
//! 3. A text has at most [`TEXT_BYTES_MAX`] bytes and no character that a terminal would obey; both ends check it.
//!
//! Always holds: a run measures whether it can be marked or not; the listener reads no clock of the benchmark and waits in a
//! thread of its own; a run keeps at most [`MARKS_MAX`] marks and refuses more by a reason.
//! Not here: which directory it is (the binary reads the environment), how a mark is drawn (crate `report`).

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use measure::Annotation;
use rustix::event::{PollFd, PollFlags, poll};

/// Bytes of a mark's text.
pub const TEXT_BYTES_MAX: usize = 200;
/// Marks of one run.
pub const MARKS_MAX: usize = 1000;
/// How long either end waits for the other one.
const PATIENCE: Duration = Duration::from_secs(2);
const ENDING: &str = "sock";

/// Why there can be no mark.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MarkError {
    /// The text is not one for a picture.
    #[error("a mark needs a text, such as: crumb mark 'cache flushed'")]
    Empty,
    /// Too long.
    #[error("the text has {bytes} bytes, and a mark has at most {TEXT_BYTES_MAX}; write less")]
    Long {
        /// Its length.
        bytes: usize,
    },
    /// A character that terminals and pictures obey instead of showing it.
    #[error("the text has a control character ({character}); write it without")]
    Control {
        /// In escaped form.
        character: String,
    },
    /// The directory of the sockets.
    #[error("{}: cannot be used for the sockets of marks: {why}", path.display())]
    Directory {
        /// Where.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Something else.
    #[error("{}: cannot {what}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
}

/// What a run said to a mark.
#[derive(Clone, Debug, PartialEq)]
pub enum MarkAnswer {
    /// The mark is set, this many seconds after the run's begin.
    Set(f64),
    /// It is not, for this reason.
    Refused(String),
}

/// A run that was asked, and its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Marked {
    /// The run.
    pub run: String,
    /// What it said.
    pub answer: MarkAnswer,
}

/// Listens for marks on one run, until it is dropped.
#[derive(Debug)]
pub struct MarkListener {
    marks: Arc<Mutex<Vec<Annotation>>>,
    socket: PathBuf,
    /// Closed to end the thread.
    awake: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// A text that can be a mark.
///
/// # Errors
/// When it is empty, too long or not plain.
pub fn checked_text(text: &str) -> Result<&str, MarkError> {
    let text = text.trim();
    let is_obeyed = |letter: &char| {
        letter.is_control()
            || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    match text.chars().find(is_obeyed) {
        _ if text.is_empty() => Err(MarkError::Empty),
        _ if text.len() > TEXT_BYTES_MAX => Err(MarkError::Long { bytes: text.len() }),
        Some(letter) => Err(MarkError::Control { character: letter.escape_unicode().to_string() }),
        None => Ok(text),
    }
}

/// Makes the directory, or sees that the one that is there is this user's alone.
///
/// # Errors
/// When it cannot be made or is not.
pub fn own_directory(path: &Path) -> Result<(), MarkError> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(MarkError::Io { path: path.to_owned(), what: "be made", source: error });
        }
        _ => {}
    }
    checked_directory(path)
}

/// Sees that a directory is this user's alone.
fn checked_directory(path: &Path) -> Result<(), MarkError> {
    let found = fs::symlink_metadata(path);
    let found = found.map_err(|source| MarkError::Io { path: path.to_owned(), what: "be read", source })?;
    let why = if !found.is_dir() {
        "it is no directory"
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        "it belongs to another user"
    } else if found.mode() & 0o077 != 0 {
        "other users can enter it; chmod 700 it"
    } else {
        return Ok(());
    };
    Err(MarkError::Directory { path: path.to_owned(), why: why.to_owned() })
}

impl MarkListener {
    /// Listens for marks on `run`, whose sockets are in `directory`; `since_begin` says how many seconds the run is old.
    ///
    /// # Errors
    /// When the directory is not this user's alone, or the socket cannot be made.
    pub fn start(
        directory: &Path,
        run: &str,
        since_begin: impl Fn() -> f64 + Send + 'static,
    ) -> Result<Self, MarkError> {
        let socket = directory.join(format!("{run}.{ENDING}"));
        let begun = directory.join(format!(".{run}.{}", std::process::id()));
        let failed = |what, source| MarkError::Io { path: socket.clone(), what, source };
        // Only one that is listened at has the name by which it is found.
        let attempt = || {
            own_directory(directory)?;
            remove_those_of_killed_runs(directory);
            UnixListener::bind(&begun).map_err(|source| failed("be listened at", source))
        };
        // A run that ends meanwhile takes the empty directory with it.
        let listener = attempt().or_else(|_| attempt())?;
        if let Err(source) = fs::rename(&begun, &socket) {
            let _ = fs::remove_file(&begun);
            return Err(failed("be made", source));
        }
        let marks = Arc::new(Mutex::new(Vec::new()));
        let (awake, woken) = UnixStream::pair().map_err(|source| failed("be listened at", source))?;
        let kept = Arc::clone(&marks);
        let thread = std::thread::Builder::new()
            .name("marks".to_owned())
            .spawn(move || listen(&listener, &woken, &kept, &since_begin));
        match thread {
            Ok(thread) => Ok(Self { marks, socket, awake: Some(awake), thread: Some(thread) }),
            Err(source) => {
                let _ = fs::remove_file(&socket);
                Err(failed("be listened at", source))
            }
        }
    }

    /// The marks so far, in the order of time.
    pub fn marks(&self) -> Vec<Annotation> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for MarkListener {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
        // The last one; with another's socket in it, it stays.
        let _ = self.socket.parent().map(fs::remove_dir);
        drop(self.awake.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing to say, and a panic in it is no reason to lose a run.
            let _ = thread.join();
        }
    }
}

fn listen(
    listener: &UnixListener,
    woken: &UnixStream,
    marks: &Mutex<Vec<Annotation>>,
    since_begin: &dyn Fn() -> f64,
) {
    loop {
        let mut fds =
            [PollFd::new(listener, PollFlags::IN), PollFd::from_borrowed_fd(woken.as_fd(), PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) => {}
        }
        if !fds[1].revents().is_empty() {
            return;
        }
        let Ok((stream, _)) = listener.accept() else { continue };
        // When it was set, and not when its text was read.
        let at_s = since_begin();
        // A client that is gone, or says nothing, has set no mark.
        let _ = take(&stream, at_s, marks);
    }
}

fn take(mut stream: &UnixStream, at_s: f64, marks: &Mutex<Vec<Annotation>>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = Vec::new();
    // One more than there may be: what is longer is refused and not cut.
    BufReader::new(stream).take(TEXT_BYTES_MAX as u64 + 2).read_until(b'\n', &mut line)?;
    let text = String::from_utf8(line).map_err(|_| "the text is not UTF-8".to_owned());
    let text = text.and_then(|line| {
        let checked = checked_text(line.trim_end_matches('\n'));
        checked.map(str::to_owned).map_err(|error| error.to_string())
    });
    let mut marks = marks.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = match text {
        Err(why) => format!("no {why}"),
        Ok(_) if marks.len() >= MARKS_MAX => format!("no it has {MARKS_MAX} marks, and that is the most"),
        Ok(text) => {
            marks.push(Annotation { at_s, text });
            format!("ok {at_s:.3}")
        }
    };
    drop(marks);
    stream.write_all(format!("{answer}\n").as_bytes())
}

/// Sets a mark on each run whose socket is in one of `directories`, in the order of their names; a directory that is not there
/// has none.
///
/// # Errors
/// When the text is refused, or a directory is not this user's alone.
pub fn mark_all(directories: &[PathBuf], text: &str) -> Result<Vec<Marked>, MarkError> {
    let text = checked_text(text)?;
    let mut marked = Vec::new();
    for directory in directories {
        for (run, socket) in sockets(directory)? {
            match mark(&socket, text) {
                Ok(answer) => marked.push(Marked { run, answer }),
                Err(error) if is_of_a_killed_run(&error) => drop(fs::remove_file(&socket)),
                // It ended just now.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let answer = MarkAnswer::Refused(format!("it does not answer: {error}"));
                    marked.push(Marked { run, answer });
                }
            }
        }
    }
    Ok(marked)
}

/// Names of the runs and their sockets, sorted.
fn sockets(directory: &Path) -> Result<Vec<(String, PathBuf)>, MarkError> {
    if !directory.try_exists().unwrap_or(true) {
        return Ok(vec![]);
    }
    checked_directory(directory)?;
    let failed = |source| MarkError::Io { path: directory.to_owned(), what: "be read", source };
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let run = path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned);
        if let (Some(run), true) = (run, path.extension().is_some_and(|ending| ending == ENDING)) {
            found.push((run, path));
        }
    }
    found.sort();
    Ok(found)
}

fn mark(socket: &Path, text: &str) -> io::Result<MarkAnswer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{text}\n").as_bytes())?;
    let mut answer = String::new();
    BufReader::new(&stream).take(1024).read_line(&mut answer)?;
    let answer = answer.trim_end();
    Ok(match answer.split_once(' ') {
        Some(("ok", at_s)) => MarkAnswer::Set(at_s.parse().unwrap_or(0.0)),
        Some(("no", why)) => MarkAnswer::Refused(why.to_owned()),
        _ => MarkAnswer::Refused("it ended before it answered".to_owned()),
    })
}

fn is_of_a_killed_run(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

/// Killed runs leave their sockets.
fn remove_those_of_killed_runs(directory: &Path) {
    for (_, socket) in sockets(directory).unwrap_or_default() {
        if UnixStream::connect(&socket).is_err_and(|error| is_of_a_killed_run(&error)) {
            let _ = fs::remove_file(&socket);
        }
    }
}

#[cfg(test)]
mod tests;
