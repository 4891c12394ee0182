//! Reads by io_uring on real files, and on a pipe, which says when a read is done.

use std::fs::File;
use std::io::Write as _;
use std::rc::Rc;
use std::time::Duration;

use sys::Reads;
use tokio::task::LocalSet;

/// Runs it on a loop of its own, with reads; the test is skipped where the kernel refuses rings.
fn on_a_loop<F: Future<Output = ()>>(work: impl FnOnce(Rc<Reads>) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        match Reads::start() {
            Some(reads) => {
                assert!(Reads::are_possible());
                tokio::time::timeout(Duration::from_secs(60), work(reads)).await.expect("no read hangs");
            }
            None => {
                assert!(!Reads::are_possible());
                let missing = "the kernel refuses io_uring";
                let _ = testkit::need::host::<()>(testkit::need::HostFeature::IoUring, Err(missing));
            }
        }
    });
}

/// A file of 1 MiB whose bytes tell where they are, out of the page cache.
fn file() -> File {
    let mut file = tempfile::tempfile().expect("a file");
    let bytes: Vec<u8> = (0..1u32 << 18).flat_map(u32::to_le_bytes).collect();
    file.write_all(&bytes).expect("written");
    file.sync_all().expect("synced");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advised");
    file
}

fn is_from(offset: u64, bytes: &[u8]) -> bool {
    let words = bytes.as_chunks().0.iter().map(|word| u64::from(u32::from_le_bytes(*word)));
    words.eq(offset / 4..(offset + bytes.len() as u64) / 4)
}

#[test]
fn many_at_once_each_get_what_they_asked_for_and_less_where_the_file_ends() {
    on_a_loop(async |reads| {
        let file = Rc::new(file());
        let tasks: Vec<_> = (0..3000u64)
            .map(|number| {
                let (reads, file) = (Rc::clone(&reads), Rc::clone(&file));
                tokio::task::spawn_local(async move {
                    let offset = number * 340 % (1 << 20) / 4 * 4;
                    let bytes = reads.read(&*file, offset, 10_000).await.expect("read");
                    assert_eq!(bytes.len() as u64, 10_000.min((1 << 20) - offset));
                    assert!(is_from(offset, &bytes), "at {offset}");
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("right");
        }
        assert_eq!(reads.read(&*file, 1 << 20, 100).await.expect("read"), b"");
    });
}

#[test]
fn what_cannot_be_read_is_an_error_and_what_comes_after_it_is_read() {
    on_a_loop(async |reads| {
        let folder = tempfile::tempdir().expect("a directory");
        let error =
            reads.read(&File::open(folder.path()).expect("opened"), 0, 10).await.expect_err("a directory");
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::ISDIR.raw_os_error()));
        let bytes = reads.read(&file(), 4096, 4096).await.expect("read");
        assert!(is_from(4096, &bytes));
    });
}

#[test]
fn a_read_under_way_holds_up_nobody_and_goes_on_without_who_asked() {
    on_a_loop(async |reads| {
        let read = || {
            let (pipe, end) = std::io::pipe().expect("a pipe");
            let reads = Rc::clone(&reads);
            (tokio::task::spawn_local(async move { reads.read(&pipe, 0, 4).await.expect("read") }), end)
        };
        let ((left, mut left_end), (waits, mut waits_end)) = (read(), read());
        tokio::task::yield_now().await;
        // Under way, both: another is done meanwhile.
        assert!(is_from(0, &reads.read(&file(), 0, 8192).await.expect("read")));
        assert!(!left.is_finished() && !waits.is_finished());
        left.abort();
        assert!(left.await.expect_err("given up").is_cancelled());
        left_end.write_all(b"gone").expect("the ring holds its pipe");
        waits_end.write_all(b"here").expect("written");
        assert_eq!(waits.await.expect("read"), b"here");
        // Its memory is used again.
        assert!(is_from(8192, &reads.read(&file(), 8192, 8192).await.expect("read")));
    });
}

#[test]
fn a_loop_that_ends_waits_for_what_the_kernel_still_writes() {
    let (pipe, mut end) = std::io::pipe().expect("a pipe");
    let writer = std::thread::spawn(move || {
        // Who asked is gone by then, and what he left is the kernel's until now.
        std::thread::park_timeout(Duration::from_millis(50));
        let written = end.write_all(b"late");
        assert_eq!(written.is_ok(), Reads::are_possible(), "the ring still held the pipe");
    });
    on_a_loop(async |reads| {
        let task = tokio::task::spawn_local(async move { reads.read(&pipe, 0, 4).await.map(|_| ()) });
        tokio::task::yield_now().await;
        task.abort();
    });
    writer.join().expect("written");
}
