//! The socket by which a mount reports its counts: `table` or `prometheus` in, text out; and `exclusive`, whether it is to
//! be alone with its tree: `yes` or `no`.
//!
//! Its name is in Linux's abstract space and made of the mount point, so there is no file to find, to protect or to
//! leave behind. Any local user may read the counts. A conversion of what it shows (`conversion`) can be asked for by root, and by
//! the user of both daemon and directory; nothing else can be changed through it. Any local user can take the name
//! first, too: only an answer of root's, of the caller's own or of who mounted is believed, and none is waited for long.

use std::io::{BufRead as _, BufReader, ErrorKind, IsTerminal as _, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use stackfs::Watch;
use stackfs::online::Online;

use super::conversion;
use crate::exit::ExitStatus;
use crate::output::print;
use crate::signals::stop_flag;

const YES: &str = "yes";
const NO: &str = "no";
/// Longest request that is read: a path in hexadecimal digits.
const REQUEST_BYTES_MAX: u64 = 16 << 10;
/// Clients that follow a conversion at the same time.
const FOLLOWERS_MAX: usize = 8;
/// A client that says nothing is let go.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest wait for a whole answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(4);
/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Longest wait for a program whose mount is gone: it may have to write its census first.
const ENDED_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A socket's name has 108 bytes; the end of a longer path distinguishes mounts better than its beginning.
const PATH_BYTES_MAX: usize = 90;

/// Answers until it is dropped.
pub struct Control {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    pub fn listen(mountpoint: &Path, exclusive: bool, watch: Watch, online: Online) -> anyhow::Result<Self> {
        let address = address(mountpoint)?;
        let listener = UnixListener::bind_addr(&address).context("its socket's name is taken")?;
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let followers = Arc::new(());
        let answer = move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                // A client that goes away is its own affair.
                let _ = stream.and_then(|stream| reply(stream, exclusive, &watch, &online, &followers));
            }
        };
        let thread = std::thread::Builder::new().name("control".to_owned()).spawn(answer)?;
        Ok(Self { address, over, thread: Some(thread) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes the thread, which then sees that it is over.
        let woken = UnixStream::connect_addr(&self.address).is_ok();
        if let Some(thread) = self.thread.take()
            && woken
        {
            let _ = thread.join();
        }
    }
}

fn reply(
    stream: UnixStream,
    exclusive: bool,
    watch: &Watch,
    online: &Online,
    followers: &Arc<()>,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = String::new();
    BufReader::new((&stream).take(REQUEST_BYTES_MAX)).read_line(&mut request)?;
    if conversion::is_request(&request) {
        return follow(stream, request, online.clone(), Arc::clone(followers));
    }
    let text = match request.trim() {
        "prometheus" => watch.census().prometheus(),
        "exclusive" => format!("{}\n", if exclusive { YES } else { NO }),
        _ => super::table::table(&watch.census()),
    };
    (&stream).write_all(text.as_bytes())
}

/// Serves a client that asks for a conversion in a thread of its own. `followers` counts them by its references.
fn follow(
    mut stream: UnixStream,
    request: String,
    online: Online,
    followers: Arc<()>,
) -> std::io::Result<()> {
    // Beside this one: the listening thread's.
    if Arc::strong_count(&followers) > FOLLOWERS_MAX + 1 {
        return writeln!(
            stream,
            "failed {FOLLOWERS_MAX} programs follow a conversion already; end one of them"
        );
    }
    let work = move || {
        let _counted = followers;
        // A client that goes away is its own affair.
        let _ = conversion::serve(stream, &request, &online);
    };
    std::thread::Builder::new().name("conversion".to_owned()).spawn(work).map(drop)
}

/// Asks the mount at this place, once or again and again.
pub fn show(mountpoint: &Path, prometheus: bool, every: Duration) -> anyhow::Result<ExitStatus> {
    let place = std::path::absolute(mountpoint)?;
    let place = stackfs::mounts::mounted()?
        .into_iter()
        .map(|one| one.mountpoint)
        .find(|one| *one == place || place.canonicalize().is_ok_and(|real| real == *one))
        .ok_or_else(|| stackfs::StackError::NotMounted { mountpoint: mountpoint.into() })?;
    if prometheus || !std::io::stdout().is_terminal() {
        print(&ask(&place, if prometheus { "prometheus" } else { "table" })?)?;
        return Ok(ExitStatus::Fine);
    }
    let stop = stop_flag()?;
    let screen = ProgressBar::new_spinner();
    screen.set_style(ProgressStyle::with_template("{msg}").expect("the template is a constant"));
    while !stop.load(Ordering::Relaxed) {
        match ask(&place, "table") {
            Ok(text) => screen.set_message(text),
            // It was unmounted meanwhile: what was last drawn stays.
            Err(_) => break,
        }
        screen.tick();
        std::thread::park_timeout(every);
    }
    screen.abandon();
    Ok(ExitStatus::Fine)
}

/// Waits until the program behind a mount that was just ended has ended too, or is at least done with the place: then its record is
/// stored and its socket is free.
///
/// A stranger who has taken the socket's name is not waited for. `owner` is the user who mounted.
pub fn wait_for_end(mountpoint: &Path, owner: Option<u32>) {
    let until = Instant::now() + ENDED_WITHIN;
    while Instant::now() < until && matches!(connect(mountpoint, owner, until), Ok(Ok(_))) {
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// The user whose mount is at this place.
pub fn owner_of(mountpoint: &Path) -> Option<u32> {
    let mut all = stackfs::mounts::mounted().unwrap_or_default().into_iter().rev();
    let real = mountpoint.canonicalize().or_else(|_| std::path::absolute(mountpoint)).ok()?;
    all.find(|one| one.mountpoint == real)?.owner
}

/// Whether nothing else may change the tree of the mount at this place; none where its program does not say.
pub fn is_exclusive(mountpoint: &Path) -> Option<bool> {
    match ask(mountpoint, "exclusive").ok()?.trim() {
        YES => Some(true),
        NO => Some(false),
        // An earlier version's table.
        _ => None,
    }
}

fn ask(mountpoint: &Path, what: &str) -> anyhow::Result<String> {
    let until = Instant::now() + ANSWERS_WITHIN;
    let late = |error: std::io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => anyhow!(
            "{}: its program did not answer within {} s; it is busy, or others keep its socket busy: try again",
            mountpoint.display(),
            ANSWERS_WITHIN.as_secs()
        ),
        _ => anyhow!("{}: its program does not answer ({error}); was it killed?", mountpoint.display()),
    };
    let stream = connect(mountpoint, owner_of(mountpoint), until)?.map_err(late)?;
    (&stream).write_all(format!("{what}\n").as_bytes()).map_err(late)?;
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    while answer.len() < ANSWER_BYTES_MAX {
        let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        stream.set_read_timeout(Some(left.ok_or(ErrorKind::TimedOut).map_err(|kind| late(kind.into()))?))?;
        match (&stream).read(&mut part) {
            Ok(0) => break,
            Ok(len) => answer.extend_from_slice(&part[..len]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(late(error)),
        }
    }
    // Nothing that a terminal obeys.
    let text = String::from_utf8_lossy(&answer).into_owned();
    Ok(text.chars().map(|letter| if letter.is_control() && letter != '\n' { '?' } else { letter }).collect())
}

/// A connection to the program that serves the mount at this place: the outer error when it is another user's.
pub(super) fn connect(
    mountpoint: &Path,
    owner: Option<u32>,
    until: Instant,
) -> anyhow::Result<std::io::Result<UnixStream>> {
    let name = SocketAddrUnix::new_abstract_name(&name(mountpoint))?;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Where many wait to be let in, connecting would take for ever.
    let left = until.saturating_duration_since(Instant::now()).max(LOOK_EVERY);
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(left))?;
    if let Err(errno) = rustix::net::connect(&socket, &name) {
        return Ok(Err(errno.into()));
    }
    let peer = sockopt::socket_peercred(&socket)?.uid.as_raw();
    let believed = [Some(0), Some(rustix::process::geteuid().as_raw()), owner];
    anyhow::ensure!(
        believed.contains(&Some(peer)),
        "{}: user {peer}, who is neither root nor who mounted it, holds the name of its socket, so that its program \
         cannot be asked; end that user's program, then mount again",
        mountpoint.display()
    );
    Ok(Ok(socket.into()))
}

fn address(mountpoint: &Path) -> anyhow::Result<SocketAddr> {
    Ok(SocketAddr::from_abstract_name(name(mountpoint))?)
}

fn name(mountpoint: &Path) -> Vec<u8> {
    let path = mountpoint.as_os_str().as_bytes();
    let end = &path[path.len().saturating_sub(PATH_BYTES_MAX)..];
    [b"crumb-mount:", end].concat()
}
