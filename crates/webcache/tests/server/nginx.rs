//! A real origin and a real client: nginx and curl.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use crate::harness::{PATIENCE, Proxy, open_directory};

/// An nginx on a free port, stopped by its own process when dropped.
struct Nginx {
    process: Child,
    directory: tempfile::TempDir,
    address: std::net::SocketAddr,
}

impl Nginx {
    fn start() -> Option<Self> {
        let nginx = testkit::need::program("nginx", "nginx-light")?;
        let directory = open_directory("crumb-nginx");
        let root = directory.path().display().to_string();
        std::fs::create_dir(directory.path().join("html")).unwrap();
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("{kind}_temp_path {root}/{kind};\n"))
            .collect();
        let text = format!(
            "daemon off;\npid {root}/pid;\nerror_log {root}/error;\nworker_processes 1;\nevents {{}}\nhttp {{\n{temporary}\
             access_log {root}/access;\nserver {{ listen {address}; root {root}/html;\n\
             location / {{ add_header Cache-Control max-age=600; }}\n\
             location /stale/ {{ add_header Cache-Control max-age=0; }} }} }}\n"
        );
        std::fs::write(directory.path().join("conf"), text).unwrap();
        let process = Command::new(nginx)
            .args(["-e", &format!("{root}/error"), "-c", &format!("{root}/conf")])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let began = Instant::now();
        while std::net::TcpStream::connect(address).is_err() {
            assert!(began.elapsed() < PATIENCE, "nginx did not start");
            std::thread::yield_now();
        }
        Some(Self { process, directory, address })
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.directory.path().join("html").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        // Changed long ago, so that its date is a strong validator.
        let file = std::fs::File::open(&path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(100_000)).unwrap();
    }

    /// Its log, once it has so many lines: they are written when the reply has left already.
    fn log(&self, lines: usize) -> String {
        let began = Instant::now();
        loop {
            let text = std::fs::read_to_string(self.directory.path().join("access")).unwrap_or_default();
            if text.lines().count() >= lines {
                return text;
            }
            assert!(began.elapsed() < PATIENCE, "fewer than {lines} lines in nginx's log:\n{text}");
            std::thread::yield_now();
        }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its worker ends with it: nginx passes the signal on.
        let _ = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
    }
}

fn curl(args: &[&str]) -> Option<(String, Vec<u8>)> {
    let curl = testkit::need::program("curl", "curl")?;
    let done = Command::new(curl)
        .args(["-s", "-S", "-i", "--max-time", "30", "--noproxy", ""])
        .args(args)
        .output()
        .unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    let end = done.stdout.windows(4).position(|part| part == b"\r\n\r\n").unwrap() + 4;
    let (head, body) = done.stdout.split_at(end);
    Some((String::from_utf8_lossy(head).to_lowercase(), body.to_vec()))
}

#[test]
fn what_nginx_serves_comes_from_the_store_the_second_time_byte_for_byte() {
    let Some(nginx) = Nginx::start() else { return };
    let small: Vec<u8> = (0..10_700_u32).map(|at| (at % 253) as u8).collect();
    let large: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    nginx.write("small", &small);
    nginx.write("large", &large);
    let proxy = Proxy::with(nginx.address, "");
    let (through, origin) = (format!("http://{}", proxy.forward), nginx.address);
    for (name, body) in [("small", &small), ("large", &large)] {
        let url = format!("http://{origin}/{name}");
        let Some((head, got)) = curl(&["-x", &through, &url]) else { return };
        assert!(head.contains("x-cache: miss from crumb") && got == *body, "{head}");
        proxy.settled();
        for _ in 0..2 {
            let (head, got) = curl(&["-x", &through, &url]).unwrap();
            assert!(head.contains("x-cache: hit from crumb") && got == *body, "{head}");
        }
        let (head, got) = curl(&["-x", &through, "-r", "1000-1999", &url]).unwrap();
        assert!(
            head.starts_with("http/1.1 206") && head.contains("x-cache: hit") && got == body[1000..2000],
            "{head}"
        );
    }
    let log = nginx.log(2);
    assert_eq!(log.lines().count(), 2, "{log}");
}

#[test]
fn nginx_is_asked_whether_a_stale_reply_holds_and_its_304_is_enough() {
    let Some(nginx) = Nginx::start() else { return };
    nginx.write("stale/a", b"hello");
    let proxy = Proxy::with(nginx.address, "");
    let url = format!("http://{}/stale/a", proxy.reverse);
    let Some((_, first)) = curl(&[&url]) else { return };
    proxy.settled();
    let (head, second) = curl(&[&url]).unwrap();
    assert_eq!((first.as_slice(), second.as_slice()), (&b"hello"[..], &b"hello"[..]));
    assert!(head.contains("fwd=stale; fwd-status=304"), "{head}");
    // What changed is fetched.
    std::fs::write(nginx.directory.path().join("html/stale/a"), b"changed").unwrap();
    let (head, third) = curl(&[&url]).unwrap();
    assert!(head.contains("fwd-status=200") && third == b"changed", "{head}");
    let statuses: Vec<String> =
        nginx.log(3).lines().filter_map(|line| line.split_whitespace().nth(8).map(str::to_owned)).collect();
    assert_eq!(statuses, ["200", "304", "200"]);
}
