//! The built `crumb`, run in a directory of its own with a store of its own, and never for long.

#![allow(dead_code, reason = "every test binary takes what it needs")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use measure::{MACHINE_DISTURBED, Verdict};
use tempfile::TempDir;

/// A directory to run in.
pub struct Bench {
    directory: TempDir,
}

/// What came of a run of the binary.
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    /// It succeeded; what other tests do meanwhile may be a disturbance of the machine, and is no failure.
    pub fn is_fine(&self) -> bool {
        let text = format!("{}{}", self.out, self.err);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.code == 0 || self.code == 3 && words.contains("machine was disturbed")
    }
}

/// Far more than any of these verbs takes on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(60);

impl Bench {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    /// In memory where there is some: for runs that make and delete many files.
    pub fn in_memory() -> Self {
        let shm = Path::new("/dev/shm");
        let parent = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        Self { directory: tempfile::Builder::new().prefix("crumb-test").tempdir_in(parent).unwrap() }
    }

    /// A path inside.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The directory itself.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a file, to be named relatively: the binary runs in this directory.
    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Reads a file.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Runs `crumb ARGS`.
    pub fn crumb(&self, args: &[&str]) -> Said {
        self.crumb_fed(args, "")
    }

    /// Runs `crumb ARGS` with this standard input.
    pub fn crumb_fed(&self, args: &[&str], input: &str) -> Said {
        let mut command = assert_cmd::cargo::cargo_bin_cmd!("crumb");
        command
            .current_dir(self.directory())
            .env("CRUMB_STORE", self.path("runs.db"))
            .env_remove("XDG_DATA_HOME");
        let output = command.args(args).timeout(TIME_LIMIT).write_stdin(input).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Starts a verb that serves until it is stopped, and waits for its line that it is `ready`.
    pub fn started(&self, args: &[&str], ready: &str) -> Child {
        let (child, line) = self.serving(args);
        assert!(line.contains(ready), "{line}");
        child
    }

    /// Serves a directory by NFS until it is stopped; gives the URL as well.
    pub fn nfs_server(&self, directory: &str) -> (Child, String) {
        let (child, line) = self.serving(&["serve", "dir", directory, "--listen", "127.0.0.1:0"]);
        let url = line.split_whitespace().find(|word| word.starts_with("nfs://"));
        (child, url.unwrap_or_else(|| panic!("{line}")).to_owned())
    }

    /// Serves nothing by NFS, as fast as it can, until it is stopped; gives the URL as well.
    pub fn null_server(&self) -> (Child, String) {
        let (child, line) = self.serving(&["serve", "null", "--listen", "127.0.0.1:0"]);
        let url = line.split_whitespace().find(|word| word.starts_with("nfs://"));
        (child, url.unwrap_or_else(|| panic!("{line}")).to_owned())
    }

    /// Starts a verb that serves until it is stopped, and waits for its first line.
    fn serving(&self, args: &[&str]) -> (Child, String) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_crumb"))
            .args(args)
            .current_dir(self.directory())
            .env("CRUMB_STORE", self.path("runs.db"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (child, line)
    }

    /// The same, when it must succeed; gives standard output.
    pub fn fine(&self, args: &[&str]) -> String {
        let said = self.crumb(args);
        assert!(said.is_fine(), "crumb {args:?}\n{} {}{}", said.code, said.out, said.err);
        said.out
    }

    /// The same, when it must fail with this code; gives standard error.
    pub fn fails(&self, code: i32, args: &[&str]) -> String {
        let said = self.crumb(args);
        assert_eq!(said.code, code, "crumb {args:?}\n{}{}", said.out, said.err);
        assert!(!said.err.contains("panicked") && !said.err.contains("RUST_BACKTRACE"), "{}", said.err);
        said.err
    }
}

/// Whether this is one error, with its causes on the lines below it, and none of them is said twice.
pub fn is_one_error(told: &str) -> bool {
    let mut lines = told.lines();
    let first = lines.next().and_then(|line| line.strip_prefix("error: "));
    let causes: Option<Vec<&str>> = lines.map(|line| line.strip_prefix("  because: ")).collect();
    let (Some(first), Some(causes)) = (first, causes) else { return false };
    let layers: Vec<&str> = std::iter::once(first).chain(causes).collect();
    layers.iter().enumerate().all(|(at, layer)| layers[..at].iter().all(|above| !above.contains(layer)))
}

/// Nothing speaks against a run but what other tests did meanwhile.
pub fn is_sound(verdict: &Verdict) -> bool {
    verdict.reasons.iter().all(|reason| !reason.fatal || reason.code == MACHINE_DISTURBED)
}

/// Every line fits in a terminal of 80 columns.
pub fn assert_fits(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}\n\n{text}", line.chars().count());
    }
}
