//! A proxy on a store in memory, an origin that does as it is told, and a client that sees bytes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use packstore::{Mode, Store, StoreOptions, VolumeSpec};
use testkit::SimulatedDisk;
use webcache::config;
use webcache::server::{Counters, Server, Side};

/// Far more than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A listener that opens once.
#[derive(Default)]
pub struct Gate(Mutex<bool>, Condvar);

impl Gate {
    pub fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }

    pub fn wait(&self) {
        let (open, late) =
            self.1.wait_timeout_while(self.0.lock().unwrap(), PATIENCE, |open| !*open).unwrap();
        assert!(*open && !late.timed_out(), "the gate was never opened");
    }
}

/// A request as an origin sees it.
#[derive(Clone, Debug)]
pub struct AdmissionFilter {
    pub method: String,
    pub target: String,
    /// Names in small letters.
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl AdmissionFilter {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// What an origin does.
pub enum Step {
    Send(Vec<u8>),
    Wait(Arc<Gate>),
    /// Sends back what comes from here on.
    Echo,
    /// Closes the connection in order.
    Close,
    /// Closes it as a crash does.
    Reset,
}

/// Text as steps.
pub fn send(text: impl AsRef<[u8]>) -> Vec<Step> {
    vec![Step::Send(text.as_ref().to_vec())]
}

/// A reply with a body of known length.
pub fn reply(fields: &str, body: impl AsRef<[u8]>) -> Vec<Step> {
    let body = body.as_ref();
    send(
        [format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n", body.len()).as_bytes(), body]
            .concat(),
    )
}

/// An origin on a free port.
pub struct Origin {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<AdmissionFilter>>>,
}

impl Origin {
    pub fn new(answer: impl Fn(&AdmissionFilter, usize) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (answer, told) = (Arc::new(answer), Arc::clone(&seen));
        let count = Arc::new(AtomicUsize::new(0));
        // It ends with the test's process: accept has no end of its own.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, told, count) = (Arc::clone(&answer), Arc::clone(&told), Arc::clone(&count));
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    let mut stream = stream;
                    while let Some(request) = read_request(&mut reader) {
                        told.lock().unwrap().push(request.clone());
                        let number = count.fetch_add(1, Ordering::SeqCst);
                        for step in answer(&request, number) {
                            match step {
                                Step::Send(bytes) => {
                                    if stream.write_all(&bytes).is_err() {
                                        return;
                                    }
                                }
                                Step::Wait(gate) => gate.wait(),
                                Step::Echo => {
                                    let _ = std::io::copy(&mut reader, &mut stream);
                                    return;
                                }
                                Step::Close => {
                                    let _ = stream.shutdown(Shutdown::Both);
                                    return;
                                }
                                Step::Reset => {
                                    // What was sent and not read makes the kernel send RST.
                                    return;
                                }
                            }
                        }
                    }
                });
            }
        });
        Self { address, seen }
    }

    pub fn seen(&self) -> Vec<AdmissionFilter> {
        self.seen.lock().unwrap().clone()
    }

    pub fn forget(&self) {
        self.seen.lock().unwrap().clear();
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<AdmissionFilter> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let fields = read_fields(reader)?;
    let mut body = Vec::new();
    let field = |name: &str| fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    if let Some(length) = field("content-length") {
        body.resize(length.parse().ok()?, 0);
        reader.read_exact(&mut body).ok()?;
    } else if field("transfer-encoding").is_some() {
        body = read_chunked(reader)?;
    }
    Some(AdmissionFilter { method, target, fields, body })
}

fn read_fields(reader: &mut impl std::io::BufRead) -> Option<Vec<(String, String)>> {
    let mut fields = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            return Some(fields);
        }
        let (name, value) = line.split_once(':')?;
        fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

fn read_chunked(reader: &mut impl std::io::BufRead) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let size = usize::from_str_radix(line.trim().split(';').next()?, 16).ok()?;
        let mut chunk = vec![0; size];
        reader.read_exact(&mut chunk).ok()?;
        reader.read_line(&mut line).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(&chunk);
    }
}

/// A reply as a client sees it.
#[derive(Debug)]
pub struct Got {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The body ended as its framing says.
    pub whole: bool,
}

impl Got {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Whether the store answered.
    pub fn is_hit(&self) -> bool {
        self.field("x-cache").is_some_and(|value| value.starts_with("HIT"))
    }
}

/// A client's connection.
pub struct Connection {
    pub stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Connection {
    pub fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { reader: BufReader::new(stream.try_clone().unwrap()), stream }
    }

    pub fn send(&mut self, text: impl AsRef<[u8]>) {
        // Whoever is refused early may find the connection closed.
        let _ = self.stream.write_all(text.as_ref());
    }

    /// The next reply; nothing when the connection has ended.
    pub fn receive(&mut self, to_head: bool) -> Option<Got> {
        let (status, fields) = self.receive_head()?;
        let field = |name: &str| fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        let mut body = Vec::new();
        let bodiless = to_head || status == 304 || status == 204;
        let whole = match (field("content-length"), field("transfer-encoding")) {
            _ if bodiless => true,
            (_, Some(_)) => match read_chunked(&mut self.reader) {
                Some(read) => {
                    body = read;
                    true
                }
                None => false,
            },
            (Some(length), None) => {
                let length: u64 = length.parse().unwrap();
                let read = (&mut self.reader).take(length).read_to_end(&mut body);
                read.is_ok_and(|read| read as u64 == length)
            }
            (None, None) => self.reader.read_to_end(&mut body).is_ok(),
        };
        Some(Got { status, fields, body, whole })
    }

    /// The next reply's head alone.
    pub fn receive_head(&mut self) -> Option<(u16, Vec<(String, String)>)> {
        let mut line = String::new();
        if self.reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let status = line.split_whitespace().nth(1)?.parse().ok()?;
        Some((status, read_fields(&mut self.reader)?))
    }

    /// So many bytes more.
    pub fn receive_bytes(&mut self, bytes: usize) -> Vec<u8> {
        let mut read = vec![0; bytes];
        self.reader.read_exact(&mut read).unwrap();
        read
    }

    /// A chunked body after its head; nothing when it ends without its last chunk.
    pub fn receive_chunked(&mut self) -> Option<Vec<u8>> {
        read_chunked(&mut self.reader)
    }

    /// The most of what was sent that can have left the proxy: what lies here unread, and what its socket may hold.
    pub fn left_the_proxy_at_most(&self) -> u64 {
        let here = rustix::io::ioctl_fionread(&self.stream).unwrap() + self.reader.buffer().len() as u64;
        let limits = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").unwrap();
        let there: u64 = limits.split_whitespace().next_back().unwrap().parse().unwrap();
        // And what hyper has taken of the body to write next.
        here + there + (1 << 20)
    }

    /// Whether the other side has ended it.
    pub fn has_ended(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// An address at which nobody listens, and nobody else can as long as this is held.
pub struct Nobody {
    pub address: SocketAddr,
    _socket: std::os::fd::OwnedFd,
}

impl Nobody {
    pub fn new() -> Self {
        use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = getsockname(&socket).unwrap().try_into().unwrap();
        Self { address, _socket: socket }
    }
}

/// A directory of a real server, which serves as another user when it was started as root.
pub fn open_directory(prefix: &str) -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    let directory = tempfile::Builder::new().prefix(prefix).tempdir_in(parent).unwrap();
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    directory
}

/// A proxy in front of an origin, forward and reverse.
pub struct Proxy {
    server: Option<Server>,
    pub forward: SocketAddr,
    pub reverse: SocketAddr,
    flags: String,
    _directory: tempfile::TempDir,
}

impl Proxy {
    pub fn new(origin: &Origin) -> Self {
        Self::with(origin.address, "")
    }

    /// With further configuration, in TOML.
    pub fn with(origin: SocketAddr, more: &str) -> Self {
        let disk = Arc::new(SimulatedDisk::new("cache"));
        let volume = VolumeSpec { disk, size_bytes: 64 << 20 };
        let options = StoreOptions { mode: Mode::Cache, ..StoreOptions::default() };
        let store = Store::create(vec![volume], options).unwrap();
        Self::on(Arc::new(store), origin, more)
    }

    pub fn on(store: Arc<Store>, origin: SocketAddr, more: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // An empty list of bans: a store that holds objects and has none bans them all.
        std::fs::write(directory.path().join("bans"), "checksum 2d06800538d394c2\n").unwrap();
        let flags = format!(
            "forward.listen = ['127.0.0.1:0']\nreverse.listen = ['127.0.0.1:0']\nproxy.loops = 2\n\
             cache.directories = ['{}']\nproxy.drain_s = 10\n\
             site = [{{ hosts = ['*'], origins = ['http://{origin}'] }}]\n",
            directory.path().display()
        );
        let server = Server::start(read(&flags, more), store).unwrap();
        let address = |wanted: Side| {
            server.addresses().iter().find(|(_, side)| *side == wanted).map(|(address, _)| *address).unwrap()
        };
        let (forward, reverse) = (address(Side::Forward), address(Side::Reverse { tls: false }));
        Self { server: Some(server), forward, reverse, flags, _directory: directory }
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub fn reload(&self, more: &str) -> Vec<&'static str> {
        self.server().reload(read(&self.flags, more)).unwrap()
    }

    /// Ends it and gives its store back.
    pub fn stop(mut self) -> Arc<Store> {
        self.server.take().unwrap().stop().expect("nothing holds the store any more")
    }

    /// A request of the reverse side, on a connection of its own.
    pub fn ask(&self, method: &str, path: &str, fields: &str) -> Got {
        let mut connection = Connection::new(self.reverse);
        connection
            .send(format!("{method} {path} HTTP/1.1\r\nHost: site\r\nConnection: close\r\n{fields}\r\n"));
        connection.receive(method == "HEAD").unwrap_or_else(|| panic!("no reply to {method} {path}"))
    }

    pub fn get(&self, path: &str) -> Got {
        self.ask("GET", path, "")
    }

    /// A GET of the forward side.
    pub fn get_url(&self, url: &str, fields: &str) -> Got {
        get_url(self.forward, url, fields)
    }

    /// A counter, all loops together.
    pub fn count(&self, of: impl Fn(&Counters) -> u64) -> u64 {
        self.server().shared().counters.iter().map(|counters| of(counters)).sum()
    }

    /// Waits until a condition holds: what it looks at happens in other threads.
    pub fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !holds(self) {
            assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
            std::thread::yield_now();
        }
    }

    /// Waits until nothing is on its way to the store.
    pub fn settled(&self) {
        self.until("all fills have ended", |proxy| proxy.server().shared().collapse_table.is_empty());
    }
}

/// A GET of a whole URL, as of a proxy, on a connection of its own.
pub fn get_url(proxy: SocketAddr, url: &str, fields: &str) -> Got {
    let mut connection = Connection::new(proxy);
    let host = url.split('/').nth(2).unwrap();
    connection.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n"));
    connection.receive(false).unwrap_or_else(|| panic!("no reply to GET {url}"))
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            if std::thread::panicking() {
                // What waits at a gate would be waited for.
                std::mem::forget(server);
            } else {
                drop(server.stop());
            }
        }
    }
}

fn read(flags: &str, more: &str) -> config::Config {
    config::read(more, flags.parse().unwrap()).unwrap()
}
