//! A stopped server leaves no thread, with connections idle, busy and stuck. Alone in its process: it counts threads.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use nfs::server::{ServerOptions, serve_dir, serve_null};

/// For what happens soon, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(20);

fn server_threads() -> Vec<String> {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok())
        .filter(|name| name.starts_with("nfs-"))
        .collect()
}

#[test]
fn stop_ends_every_thread_whatever_its_connection_does() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..2 {
        let server = match round {
            0 => serve_null(ServerOptions::default()).unwrap(),
            _ => serve_dir(folder.path(), ServerOptions::default(), Default::default()).unwrap(),
        };
        let _idle = TcpStream::connect(server.addr()).unwrap();
        // Half a record.
        let mut half = TcpStream::connect(server.addr()).unwrap();
        half.write_all(&[0x80, 0, 0, 40, 1, 2, 3]).unwrap();
        // Calls whose replies nobody reads, until the server's send blocks.
        let mut stuck = TcpStream::connect(server.addr()).unwrap();
        stuck.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut null = vec![0x80, 0, 0, 40];
        for word in [1_u32, 0, 2, 100_003, 3, 0, 0, 0, 0, 0] {
            null.extend_from_slice(&word.to_be_bytes());
        }
        let calls = null.repeat(10_000);
        while stuck.write(&calls).is_ok() {}
        assert!(server_threads().len() >= 4, "{:?}", server_threads());
        // Joins every thread: one that waited for its connection would keep it from returning.
        server.stop();
        // A joined thread is still in /proc until the kernel has removed it.
        let began = Instant::now();
        while !server_threads().is_empty() && began.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        assert_eq!(server_threads(), Vec::<String>::new());
    }
}
