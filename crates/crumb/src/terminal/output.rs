//! Words for people and programs: results on standard output, notes on standard error, files by `-o`.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::IntoRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use crate::context::Context;
use crate::exit::BadUsage;

/// Writes to standard output as it is, and at once: a script may wait for it.
///
/// # Errors
/// When it cannot be written. If the reader has closed the pipe, a bare broken pipe, which `exit` does not report.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(error.into()),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}

/// Writes a result to the file that the user named for it; `-` is standard output.
///
/// # Errors
/// As [`print`], or when the file cannot be written.
pub fn write_to(path: &Path, text: &str) -> anyhow::Result<()> {
    if path == Path::new("-") {
        return print(text);
    }
    write_file(path, text)
}

/// Makes a file for results, or empties the one that is there. A pipe is opened as it is, if somebody reads from it.
///
/// # Errors
/// When it cannot be opened; at once where that would wait for a reader.
pub fn create_file(path: &Path) -> anyhow::Result<fs::File> {
    let cannot = || format!("cannot write {}", path.display());
    let mut how = fs::OpenOptions::new();
    // As a number: std has no type for flags.
    how.write(true).create(true).truncate(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
    let file = how.open(path).map_err(|error| of_pipe(path, error)).with_context(cannot)?;
    // Only opening may not wait: what a reader takes slowly is written slowly.
    let flags = fcntl_getfl(&file).with_context(cannot)?;
    fcntl_setfl(&file, flags.difference(OFlags::NONBLOCK)).with_context(cannot)?;
    Ok(file)
}

/// Writes a result to the file that the user named for it.
///
/// # Errors
/// As [`create_file`], or when it cannot be written.
pub fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut file = create_file(path)?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

/// Opening a pipe without a reader gives ENXIO, whose text (`No such device or address`) would mislead.
fn of_pipe(path: &Path, error: io::Error) -> anyhow::Error {
    if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) && is_pipe(path) {
        return anyhow!(
            "no program reads from this pipe; start its reader first, as in `cat {} &`",
            path.display()
        );
    }
    error.into()
}

fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|there| there.file_type().is_fifo())
}

/// Prints a note on standard error, unless `--quiet`.
pub fn note(context: &Context, text: &str) {
    if !context.quiet {
        say(text);
    }
}

/// Writes a line to standard error. A failed write is ignored: when the terminal is gone, the verb must still remove its
/// files.
pub fn say(text: &str) {
    let text = harmless(text);
    let _ = writeln!(io::stderr(), "{text}");
}

/// Finds out whether a file can be written, and leaves it as it is, or away. A pipe is held open until the process ends, so that
/// its reader does not see an end before the result. Devices are taken on trust.
///
/// # Errors
/// When it cannot.
pub fn can_be_written(path: &Path) -> anyhow::Result<()> {
    parent_is_there(path)?;
    if is_pipe(path) {
        let _held = create_file(path)?.into_raw_fd();
        return Ok(());
    }
    let there = fs::metadata(path);
    if there.as_ref().is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        return Ok(());
    }
    refuse_dangling(path)?;
    // What another user puts there meanwhile is not followed.
    let mut how = fs::OpenOptions::new();
    if there.is_err() { how.write(true).create_new(true) } else { how.append(true) }
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    if there.is_err() {
        fs::remove_file(path).with_context(|| format!("cannot remove {} again", path.display()))?;
    }
    Ok(())
}

/// Refuses a symbolic link to nothing: what is written there would be made wherever somebody wants it.
///
/// # Errors
/// When it is one.
pub fn refuse_dangling(path: &Path) -> anyhow::Result<()> {
    let is_link = fs::symlink_metadata(path).is_ok_and(|link| link.is_symlink());
    if is_link && fs::metadata(path).is_err() {
        anyhow::bail!(
            "{}: this is a symbolic link to a file that is not there; remove it or name another",
            path.display()
        );
    }
    Ok(())
}

/// A directory for results, for `value_parser`: it may be missing, and then it is made; what it is to be in must be there.
///
/// # Errors
/// In words, when it could not be made.
pub fn results_directory(text: &str) -> Result<PathBuf, measure::ValueError> {
    let path = PathBuf::from(text);
    parent_is_there(&path).map_err(|error| format!("{error:#}"))?;
    if path.exists() && !path.is_dir() {
        return Err(format!("{text}: this is a file; name a directory").into());
    }
    Ok(path)
}

/// Results make no directories above the one that is named: a mistyped path would go unseen.
fn parent_is_there(path: &Path) -> anyhow::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match parent {
        Some(parent) if !parent.is_dir() => {
            let (path, parent) = (path.display(), parent.display());
            anyhow::bail!(
                "{path}: there is no directory {parent}; make it (mkdir -p {parent}) or name another"
            )
        }
        _ => Ok(()),
    }
}

/// Refuses to write a result over a store of runs, which would lose every run that is kept there.
///
/// # Errors
/// When the file is an SQLite database, or where the store of this process is or will be.
pub fn refuse_store(context: &Context, path: &Path) -> anyhow::Result<()> {
    refuse_database(path)?;
    if is_same_place(path, &context.store) {
        return Err(lost_runs(path));
    }
    Ok(())
}

/// As [`refuse_store`], of files that are there.
///
/// # Errors
/// When the file is an SQLite database.
pub fn refuse_database(path: &Path) -> anyhow::Result<()> {
    let mut begins = [0; SQLITE_HEAD.len()];
    // A pipe is not read: that may wait, and takes what is not ours.
    let is_file = fs::metadata(path).is_ok_and(|there| there.is_file());
    let is_read = is_file && fs::File::open(path).is_ok_and(|mut file| file.read_exact(&mut begins).is_ok());
    if is_read && begins == *SQLITE_HEAD {
        return Err(lost_runs(path));
    }
    Ok(())
}

fn lost_runs(path: &Path) -> anyhow::Error {
    let path = path.display();
    anyhow!(
        "{path}: runs are kept in this file, and a result written to it would lose them; name another file"
    )
    .context(BadUsage)
}

/// How an SQLite database begins (SQLite's file format, 1.3).
const SQLITE_HEAD: &[u8; 16] = b"SQLite format 3\0";

/// Whether two paths name one file, which need not be there yet.
pub fn is_same_place(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        fs::canonicalize(path).ok().or_else(|| {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            Some(fs::canonicalize(parent.unwrap_or(Path::new("."))).ok()?.join(path.file_name()?))
        })
    };
    place(one).is_some_and(|one| Some(one) == place(other))
}

/// Writes a piece of text where it belongs.
pub type Writer = Box<dyn FnMut(&str) -> anyhow::Result<()>>;

/// Where `-o` sends something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// `-`, or no `-o` at all.
    Stdout,
    /// A file, overwritten when it is there.
    File(PathBuf),
}

impl Destination {
    /// What `-o` says; `-` is standard output.
    pub fn new(path: Option<PathBuf>) -> Self {
        path.filter(|path| path != Path::new("-")).map_or(Self::Stdout, Self::File)
    }

    /// Opens it for text that comes in pieces.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn opened(&self, context: &Context) -> anyhow::Result<Writer> {
        let Self::File(path) = self else { return Ok(Box::new(print)) };
        refuse_store(context, path)?;
        let path = path.clone();
        let failed = move |path: &Path| format!("cannot write {}", path.display());
        let mut file = create_file(&path)?;
        Ok(Box::new(move |text| file.write_all(text.as_bytes()).with_context(|| failed(&path))))
    }

    /// Writes all of `text`. For a file, prints a note with `what` and its name.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, context: &Context, what: &str, text: &str) -> anyhow::Result<()> {
        match self {
            Self::Stdout => print(text),
            Self::File(path) => {
                refuse_store(context, path)?;
                write_file(path, text).with_context(|| format!("cannot write {what}"))?;
                note(context, &format!("wrote {what} to {}", path.display()));
                Ok(())
            }
        }
    }
}

/// What `--json` takes, for `value_parser`.
pub fn destination(text: &str) -> Result<Destination, measure::ValueError> {
    match text {
        "" => Err("name a file, or - for standard output".into()),
        text => Ok(Destination::new(Some(text.into()))),
    }
}

/// Text of which no control character but line breaks and tabs reaches a terminal, nor what reverses, hides or joins the
/// letters around it: names and messages come from files and peers.
pub fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\t' => out.push(letter),
            letter if has_no_shape(letter) => out.extend(letter.escape_default()),
            letter => out.push(letter),
        }
    }
    out
}

/// Control characters, and those of Unicode that change how the text around them looks (category Cf; UAX #9, UTR #36).
pub fn has_no_shape(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_refused_where_its_directory_is_missing_and_that_is_not_made() {
        let bench = tempfile::tempdir().unwrap();
        let missing = bench.path().join("no");
        let messages = [
            format!("{:#}", can_be_written(&missing.join("run.json")).unwrap_err()),
            results_directory(missing.join("plots").to_str().unwrap()).unwrap_err().to_string(),
        ];
        for message in messages {
            assert!(message.contains(&format!("make it (mkdir -p {})", missing.display())), "{message}");
        }
        assert!(!missing.exists());
        let plots = bench.path().join("plots");
        assert_eq!(results_directory(plots.to_str().unwrap()), Ok(plots.clone()));
        assert!(!plots.exists(), "made when there is something to put in");
        fs::write(&plots, "").unwrap();
        assert!(
            results_directory(plots.to_str().unwrap()).unwrap_err().to_string().contains("this is a file")
        );
    }

    /// Symptom: a run store named by a link to nothing, which another user had put there, became an empty file where the link
    /// led, and the link was removed.
    #[test]
    fn a_link_to_nothing_is_refused_and_not_followed() {
        let bench = tempfile::tempdir().unwrap();
        let [link, end] = ["link", "end"].map(|name| bench.path().join(name));
        std::os::unix::fs::symlink(&end, &link).unwrap();
        assert!(can_be_written(&link).unwrap_err().to_string().contains("symbolic link"));
        assert!(!end.exists() && link.is_symlink());
        fs::write(&end, "kept").unwrap();
        can_be_written(&link).unwrap();
        assert_eq!(fs::read_to_string(&end).unwrap(), "kept");
    }

    /// Symptom: a run with `--json PIPE` waited at its begin or end for somebody to read from the pipe.
    #[test]
    fn a_pipe_that_nobody_reads_is_refused_at_once_and_a_read_one_gets_the_result_whole() {
        let bench = tempfile::tempdir().unwrap();
        let pipe = bench.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        for refused in [can_be_written(&pipe), write_to(&pipe, "x"), create_file(&pipe).map(|_| ())] {
            let wrong = format!("{:#}", refused.unwrap_err());
            assert!(wrong.contains("no program reads from this pipe"), "{wrong}");
        }
        // Larger than a pipe holds: it must be written as slowly as it is read.
        let text = "result ".repeat(100_000);
        let (path, wanted) = (pipe.clone(), text.len());
        let reader = std::thread::spawn(move || {
            let mut read = vec![0; wanted];
            fs::File::open(path).unwrap().read_exact(&mut read).map(|()| read)
        });
        // Until the reader is there.
        while can_be_written(&pipe).is_err() {
            std::thread::yield_now();
        }
        write_to(&pipe, &text).unwrap();
        assert!(reader.join().unwrap().unwrap() == text.as_bytes());
    }

    /// Symptom: a label with U+202E turned the rest of its line around. Cause: only control characters were replaced, and
    /// those of direction are format characters.
    #[test]
    fn what_turns_or_hides_text_is_shown_as_its_number() {
        for letter in
            ['\u{202e}', '\u{202a}', '\u{2066}', '\u{2069}', '\u{200e}', '\u{200f}', '\u{feff}', '\u{61c}']
        {
            assert_eq!(harmless(&format!("a{letter}b")), format!("a{}b", letter.escape_unicode()));
        }
        assert_eq!(harmless("\u{1b}[31m"), "\\u{1b}[31m");
        let words = "Größe 1\u{202f}000 µs, файл, 파일, ファイル, مجلد\n\t";
        assert_eq!(harmless(words), words, "letters of any script stay");
    }
}
