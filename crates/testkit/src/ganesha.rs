//! A real NFS server for tests: nfs-ganesha with its own ports and folders.
//!
//! Ganesha insists on registering with a portmapper, so an `rpcbind` is started on 127.0.0.2 when none answers.
//! Both are stopped by their own process ids when the value is dropped.

use std::fmt::Write as _;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A running server that exports one directory.
pub struct Ganesha {
    server: Child,
    rpcbind: Option<Child>,
    nfs_port: u16,
    mount_port: u16,
    export: PathBuf,
    _folder: TempDir,
}

const START_MAX: Duration = Duration::from_secs(30);
const STOP_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Ganesha {
    /// Starts a server over a fresh directory in `parent` (which should not be on the root file system when much is
    /// to be deleted). An error text says why it cannot be had: not installed, not root, did not start.
    pub fn start_in(parent: &Path) -> Result<Self, String> {
        for program in ["/usr/bin/ganesha.nfsd", "/sbin/rpcbind"] {
            if !Path::new(program).exists() {
                return Err(format!(
                    "{program} is not installed (apt-get install nfs-ganesha nfs-ganesha-vfs rpcbind)"
                ));
            }
        }
        if !crate::need::is_root() {
            return Err("nfs-ganesha needs root".to_owned());
        }
        let folder =
            tempfile::Builder::new().prefix("ganesha").tempdir_in(parent).map_err(|e| e.to_string())?;
        let export = folder.path().join("export");
        for dir in [
            export.as_path(),
            &folder.path().join("rec/v4recov"),
            &folder.path().join("rec/v4old"),
            Path::new("/run/ganesha"),
        ] {
            fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        }
        let rpcbind = if TcpStream::connect(("127.0.0.1", 111)).is_ok() {
            None
        } else {
            let started = Command::new("/sbin/rpcbind")
                .args(["-f", "-w", "-h", "127.0.0.2"])
                .stderr(Stdio::null())
                .spawn();
            Some(started.map_err(|error| format!("rpcbind: {error}"))?)
        };
        let [nfs_port, mount_port, nlm_port, rquota_port] = free_ports();
        let conf = folder.path().join("ganesha.conf");
        let plugins = ["/usr/lib/x86_64-linux-gnu/ganesha", "/usr/lib/aarch64-linux-gnu/ganesha"]
            .into_iter()
            .find(|dir| Path::new(dir).exists())
            .unwrap_or("/usr/lib/ganesha");
        let mut text = String::new();
        write!(
            text,
            r#"NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {nfs_port}; MNT_Port = {mount_port}; NLM_Port = {nlm_port};
  Rquota_Port = {rquota_port}; Bind_addr = 127.0.0.1; Enable_UDP = true; Enable_NLM = false; Enable_RQUOTA = false;
  Plugins_Dir = "{plugins}"; mount_path_pseudo = true; }}
NFSv4 {{ RecoveryBackend = fs; RecoveryRoot = "{root}/rec"; Graceless = true; Grace_Period = 0; }}
EXPORT_DEFAULTS {{ Access_Type = RW; Squash = No_Root_Squash; SecType = sys, none; Transports = UDP, TCP; Protocols = 3; }}
EXPORT {{ Export_Id = 1; Path = "{root}/export"; Pseudo = "/vfs"; FSAL {{ Name = VFS; }} }}
MDCACHE {{ Entries_HWMark = 500000; LRU_Run_Interval = 5; FD_HWMark_Percent = 50; FD_LWMark_Percent = 20; }}
LOG {{ Default_Log_Level = EVENT; }}
"#,
            root = folder.path().display()
        )
        .expect("writing to a string cannot fail");
        fs::write(&conf, text).map_err(|error| error.to_string())?;
        let log = folder.path().join("ganesha.log");
        let server = Command::new("/usr/bin/ganesha.nfsd")
            .arg("-F")
            .arg("-f")
            .arg(&conf)
            .arg("-L")
            .arg(&log)
            .arg("-p")
            .arg(folder.path().join("pid"))
            .args(["-N", "NIV_EVENT"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("ganesha.nfsd: {error}"))?;
        let mut ganesha = Self { server, rpcbind, nfs_port, mount_port, export, _folder: folder };
        ganesha.wait_until_ready(&log)?;
        Ok(ganesha)
    }

    /// As [`start_in`](Self::start_in), for a test that needs it: where it cannot be had, the test is skipped or fails.
    pub fn needed(parent: &Path) -> Option<Self> {
        crate::need(Self::start_in(parent))
    }

    /// The target URL of the export.
    pub fn url(&self) -> String {
        format!("nfs://127.0.0.1:{}/vfs?mountport={}", self.nfs_port, self.mount_port)
    }

    /// The directory behind the export.
    pub fn export(&self) -> &Path {
        &self.export
    }

    /// Ends the server at once, as a crash would.
    pub fn kill(&mut self) {
        let _gone_already = self.server.kill();
        let _gone_already = self.server.wait();
    }

    fn wait_until_ready(&mut self, log: &Path) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let answers = |port| TcpStream::connect(("127.0.0.1", port)).is_ok();
            let says_so = fs::read_to_string(log).is_ok_and(|text| text.contains("NFS SERVER INITIALIZED"));
            if answers(self.nfs_port) && answers(self.mount_port) && says_so {
                return Ok(());
            }
            if let Ok(Some(status)) = self.server.try_wait() {
                let tail = fs::read_to_string(log).unwrap_or_default();
                let tail: Vec<&str> = tail.lines().rev().take(5).collect();
                return Err(format!("ganesha.nfsd ended with {status}: {}", tail.join(" | ")));
            }
            if begun.elapsed() > START_MAX {
                return Err(format!("ganesha.nfsd was not ready after {START_MAX:?}"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Ganesha {
    fn drop(&mut self) {
        for child in std::iter::once(&mut self.server).chain(&mut self.rpcbind) {
            terminate(child);
        }
    }
}

/// SIGTERM, and SIGKILL when that does not help.
fn terminate(child: &mut Child) {
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

fn free_ports() -> [u16; 4] {
    // All four are held until all are known, so that they differ.
    let held = [(); 4].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port on loopback"));
    held.each_ref().map(|listener| listener.local_addr().expect("a bound address").port())
}
