//! The thread that writes the access log.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use crate::error::WebcacheError;

/// Most lines that may wait to be written.
const LINES_MAX: usize = 16_384;

enum Word {
    Line(String),
    Reopen { rotate_bytes: Option<u64>, keep: u32 },
    Stop,
}

/// Accepts lines. Dropping it ends the thread.
pub struct LogWriter {
    lines: SyncSender<Word>,
    thread: Option<JoinHandle<()>>,
}

struct LogFile {
    path: PathBuf,
    out: BufWriter<Box<dyn Write + Send>>,
    bytes: u64,
    rotate_bytes: Option<u64>,
    keep: u32,
}

impl LogWriter {
    /// Opens a file (`-`: standard output) and starts the thread.
    ///
    /// # Errors
    /// When either fails.
    pub fn start(path: &Path, rotate_bytes: Option<u64>, keep: u32) -> Result<Self, WebcacheError> {
        let (out, bytes) =
            open(path).map_err(|source| WebcacheError::Log { file: path.display().to_string(), source })?;
        let file = LogFile { path: path.to_owned(), out, bytes, rotate_bytes, keep };
        let (lines, words) = sync_channel(LINES_MAX);
        let name = "access-log".to_owned();
        let thread = std::thread::Builder::new().name(name.clone());
        let thread = thread
            .spawn(move || file.write_all(&words))
            .map_err(|source| WebcacheError::Thread { name, source })?;
        Ok(Self { lines, thread: Some(thread) })
    }

    /// Queues a line; false when it is dropped.
    pub fn write(&self, line: String) -> bool {
        self.lines.try_send(Word::Line(line)).is_ok()
    }

    /// Opens the file again after it was moved, and applies new rotation settings.
    pub fn reopen(&self, rotate_bytes: Option<u64>, keep: u32) {
        let _ = self.lines.send(Word::Reopen { rotate_bytes, keep });
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        let _ = self.lines.send(Word::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn open(path: &Path) -> io::Result<(BufWriter<Box<dyn Write + Send>>, u64)> {
    if path == Path::new("-") {
        return Ok((BufWriter::new(Box::new(io::stdout())), 0));
    }
    let file = OpenOptions::new().append(true).create(true).open(path)?;
    let bytes = file.metadata()?.len();
    Ok((BufWriter::with_capacity(64 << 10, Box::new(file) as Box<dyn Write + Send>), bytes))
}

impl LogFile {
    fn write_all(mut self, words: &Receiver<Word>) {
        loop {
            let word = match words.try_recv() {
                Ok(word) => word,
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {
                    self.tell(|file| file.out.flush());
                    match words.recv() {
                        Ok(word) => word,
                        Err(_) => return,
                    }
                }
            };
            match word {
                Word::Line(line) => {
                    self.bytes += line.len() as u64;
                    self.tell(|file| file.out.write_all(line.as_bytes()));
                    // Standard output cannot be rotated.
                    let is_file = self.path != Path::new("-");
                    if is_file && self.rotate_bytes.is_some_and(|most| self.bytes >= most) {
                        self.tell(Self::rotate);
                    }
                }
                Word::Reopen { rotate_bytes, keep } => {
                    (self.rotate_bytes, self.keep) = (rotate_bytes, keep);
                    self.tell(Self::reopen);
                }
                Word::Stop => {
                    self.tell(|file| file.out.flush());
                    return;
                }
            }
        }
    }

    fn tell(&mut self, work: impl FnOnce(&mut Self) -> io::Result<()>) {
        if let Err(error) = work(self) {
            tracing::warn!(path = %self.path.display(), %error, "the access log cannot be written");
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.out.flush()?;
        (self.out, self.bytes) = open(&self.path)?;
        Ok(())
    }

    /// Renames `log` to `log.1`, `log.1` to `log.2` and so on; the last is overwritten.
    fn rotate(&mut self) -> io::Result<()> {
        self.out.flush()?;
        let aside = |number: u32| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        for number in (1..self.keep).rev() {
            if aside(number).exists() {
                std::fs::rename(aside(number), aside(number + 1))?;
            }
        }
        if self.keep == 0 {
            File::create(&self.path)?;
        } else {
            std::fs::rename(&self.path, aside(1))?;
        }
        self.reopen()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_put_aside_as_was_last_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let log = LogWriter::start(&path, None, 5).expect("a log");
        assert!(log.write("one\n".to_owned()));
        log.reopen(Some(8), 1);
        for line in ["two\n", "three\n", "four\n"] {
            assert!(log.write(line.to_owned()));
        }
        drop(log);
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).ok();
        assert_eq!(read("log").as_deref(), Some(""));
        assert_eq!(read("log.1").as_deref(), Some("three\nfour\n"));
        assert_eq!(read("log.2"), None, "one is kept");
    }
}
