//! `innd` on a port of its own.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{InnRecord, InnStorage, InnTools, Layout, Taken, Wire, give_to_news};

/// A running server with an empty spool.
pub struct Inn {
    tools: InnTools,
    server: Child,
    port: u16,
    folder: TempDir,
}

/// CPU time of the server up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InnCpu {
    /// In user mode, seconds.
    pub user_s: f64,
    /// In the kernel, seconds.
    pub sys_s: f64,
}

/// Articles that the new history's hash table is made for, as the peers' recipe has it.
const HISTORY_LINES: &str = "500000";
const START_MAX: Duration = Duration::from_secs(30);
const STOP_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Inn {
    /// Starts a server below a new directory in `parent`, which the user `news` must be able to pass, with these groups.
    /// An error text says why it cannot be had: not there, not root, no user `news`, did not start.
    pub fn start_in(parent: &Path, groups: &[String]) -> Result<Self, String> {
        Self::start_with(InnStorage::Traditional, parent, groups)
    }

    /// As [`Inn::start_in`], with articles stored in this way.
    pub fn start_with(storage: InnStorage, parent: &Path, groups: &[String]) -> Result<Self, String> {
        let tools = InnTools::find()?;
        if fs::metadata("/proc/self").map_or(true, |meta| meta.uid() != 0) {
            return Err("innd runs as the user news, and only root can start it so".to_owned());
        }
        let folder = tempfile::Builder::new().prefix("inn").tempdir_in(parent);
        let folder = folder.map_err(|error| format!("{}: {error}", parent.display()))?;
        let root = folder.path();
        let articles = root.join("spool/articles");
        let conf = Layout { tools: &tools, root, articles: &articles, storage }.write(groups)?;
        // makedbz becomes the user news as innd does.
        give_to_news(root)?;
        let made = tools.command("makedbz", &conf).args(["-i", "-o", "-s", HISTORY_LINES]).output();
        let made = made.map_err(|error| format!("makedbz: {error}"))?;
        if !made.status.success() {
            return Err(format!("makedbz: {}", String::from_utf8_lossy(&made.stderr).trim()));
        }
        let port = free_port()?;
        let said = File::create(root.join("log/said")).map_err(|error| error.to_string())?;
        let said_too = said.try_clone().map_err(|error| error.to_string())?;
        let mut command = tools.command("innd", &conf);
        command.args(["-f", "-N", "-P", &port.to_string()]);
        let server = command.stdin(Stdio::null()).stdout(said).stderr(said_too).spawn();
        let server = server.map_err(|error| format!("innd: {error}"))?;
        let mut inn = Self { tools, server, port, folder };
        inn.wait_until_ready()?;
        Ok(inn)
    }

    /// Its articles.
    pub fn articles(&self) -> PathBuf {
        self.root().join("spool/articles")
    }

    /// Has INN's `rnews` offer a batch; what it said.
    pub fn rnews(&self, batch: &Path) -> Result<String, String> {
        let mut command = self.tool("rnews");
        command.args(["-N", "-v", "-r", "127.0.0.1", "-P", &self.port.to_string()]).arg(batch);
        let output = command.output().map_err(|error| format!("rnews: {error}"))?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        if output.status.success() { Ok(said) } else { Err(format!("rnews: {}: {said}", output.status)) }
    }

    /// Sends it articles by streaming, as fast as it takes them.
    ///
    /// # Errors
    /// When the connection breaks, or it answers something else than `TAKETHIS` may.
    pub fn take(&self, wire: &Wire) -> std::io::Result<Taken> {
        wire.send_to(self.port)
    }

    /// What the process has used.
    pub fn cpu(&self) -> InnCpu {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.server.id())).unwrap_or_default();
        // Fields 14 and 15 of proc(5), in hundredths of a second, counted from behind the command's name.
        let mut ticks = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11);
        let mut next =
            || ticks.next().and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or_default() / 100.0;
        InnCpu { user_s: next(), sys_s: next() }
    }

    /// Stops it and counts what it did. It crashes at every shutdown after it has written its data, but not the log:
    /// that is flushed before.
    pub fn stop(mut self) -> Result<InnRecord, String> {
        let flushed =
            self.tool("ctlinnd").arg("flushlogs").output().map_err(|error| format!("ctlinnd: {error}"))?;
        if !flushed.status.success() {
            return Err(format!("ctlinnd flushlogs: {}", String::from_utf8_lossy(&flushed.stderr).trim()));
        }
        terminate(&mut self.server);
        InnRecord::read(self.root())
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    fn tool(&self, program: &str) -> Command {
        self.tools.command(program, &self.root().join("etc/inn.conf"))
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            // A greeting of its own: the port may have been taken by somebody else in between.
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", self.port)) {
                let mut greeting = String::new();
                let read = BufReader::new(stream).read_line(&mut greeting);
                if read.is_ok() && greeting.contains("InterNetNews") {
                    return Ok(());
                }
            }
            if let Ok(Some(status)) = self.server.try_wait() {
                let said = fs::read_to_string(self.root().join("log/said")).unwrap_or_default();
                return Err(format!("innd ended with {status}: {}", said.trim()));
            }
            if begun.elapsed() > START_MAX {
                return Err(format!("innd was not ready after {START_MAX:?}"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Inn {
    fn drop(&mut self) {
        terminate(&mut self.server);
    }
}

/// SIGTERM, and SIGKILL when that does not help.
fn terminate(child: &mut Child) {
    if !matches!(child.try_wait(), Ok(None)) {
        return;
    }
    let _gone_already = Command::new("kill").arg(child.id().to_string()).stderr(Stdio::null()).status();
    let begun = Instant::now();
    while begun.elapsed() < STOP_MAX {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let _gone_already = child.kill();
    let _gone_already = child.wait();
}

fn free_port() -> Result<u16, String> {
    let held = TcpListener::bind("127.0.0.1:0").and_then(|held| held.local_addr());
    held.map(|address| address.port()).map_err(|error| format!("no free port on loopback: {error}"))
}
