//! A request for more bytes than the storage takes at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use files::{Request, SubmitError, Ticket, Transport};
use fstress::{Arrivals, FileCount, FstressConfig, Keep, Load, Workload};
use harness::Event;
use testkit::{Law, LawTransport};

const TRANSFER: u32 = 32 << 10;
const BATCH: u64 = 256 << 10;

/// Takes no more at a time than servers do over UDP, and notes what is written while load is offered.
struct Narrow<'a> {
    inner: LawTransport,
    is_loaded: &'a AtomicBool,
    /// Offset and length.
    writes: Vec<(u64, u32)>,
}

impl Transport for Narrow<'_> {
    left_to_inner!(flush poll in_flight root counters);

    fn submit(&mut self, ticket: Ticket, request: &Request<'_>) -> Result<(), SubmitError> {
        if let Request::Write { offset, bytes, .. } = request {
            assert!(bytes.len() <= TRANSFER as usize, "{} bytes", bytes.len());
            if self.is_loaded.load(Ordering::Relaxed) {
                self.writes.push((*offset, bytes.len() as u32));
            }
        }
        self.inner.submit(ticket, request)
    }

    fn io_bytes_max(&self) -> u32 {
        TRANSFER
    }
}

/// Symptom: over UDP a log batch of 256 KiB of the database workload was a single write of 32 KiB. Fix: it is a series.
#[test]
fn a_log_batch_larger_than_a_transfer_is_written_whole_as_a_series() {
    let (inner, clock) = LawTransport::new(Law::Constant(Duration::from_millis(1)), &[], 7);
    let is_loaded = AtomicBool::new(false);
    let mut transport = Narrow { inner, is_loaded: &is_loaded, writes: Vec::new() };
    let config = FstressConfig {
        workload: Workload::builtin("database").unwrap(),
        load: Load::Sweep(vec![1000.0]),
        arrivals: Arrivals::Uniform,
        warm: Duration::from_secs(1),
        measure: Duration::from_secs(60),
        drain: Duration::from_secs(10),
        wait: Default::default(),
        files: FileCount::Scaled,
        seed: 42,
        keep: Keep::Remove,
        set_name: "crumb-fstress-test".to_owned(),
        build_in_flight: 8,
        raw: None,
    };
    let outcome = fstress::run(&config, &mut transport, &clock, &AtomicBool::new(false), &mut |event| {
        if matches!(event, Event::LevelBegins(_)) {
            is_loaded.store(true, Ordering::Relaxed);
        }
    });
    assert!(outcome.error.is_none() && !outcome.points[0].verdict.has("mix-off"), "{:?}", outcome.error);
    let (parts, pages): (Vec<_>, Vec<_>) = transport.writes.iter().partition(|(_, len)| *len == TRANSFER);
    assert_eq!(parts.len() + pages.len(), transport.writes.len());
    assert!(pages.iter().all(|(_, len)| *len == 8 << 10), "a page is as large as ever");
    // Each eighth of a batch is written as often as any other, but for those under way at the end.
    let of_eighth = |eighth: u64| parts.iter().filter(|(at, _)| at % BATCH == eighth * 32_768).count();
    let batches = of_eighth(0);
    assert!(batches > 500, "{batches}");
    for eighth in 1..8 {
        let off = batches.abs_diff(of_eighth(eighth));
        assert!(off <= 40, "eighth {eighth}: {} of {batches}", of_eighth(eighth));
    }
    // 27 pages to 4 batches.
    let pages_to_a_batch = pages.len() as f64 / batches as f64;
    assert!((pages_to_a_batch / (27.0 / 4.0) - 1.0).abs() < 0.1, "{pages_to_a_batch}");
}
