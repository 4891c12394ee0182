//! Chains of requests: their order at the server, the handles they use, and what is counted when one fails.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use files::{
    Completion, HandleRef, OpKind, Outcome, Reply, Request, Status, SubmitError, Ticket, Transport,
    TransportError,
};
use fstress::{Arrivals, FileCount, FstressConfig, Keep, Load, RunOutcome, Workload};
use measure::LoadPoint;
use quanta::Instant;
use testkit::{Law, LawTransport};

/// What the server saw: a request sent, or its reply.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Asked(OpKind, Vec<u8>),
    Answered(OpKind, bool),
}

/// Storage of a known latency that writes down what it sees, answers each LOOKUP with a handle of its own making, and fails
/// requests of one kind.
struct Server {
    inner: LawTransport,
    seen: Vec<Seen>,
    kinds: HashMap<Ticket, OpKind>,
    fails: Option<OpKind>,
}

const LOOKED_UP: &[u8] = b"handle-from-lookup";

fn object(request: &Request<'_>) -> Vec<u8> {
    let handle = match request {
        Request::Read { file, .. } | Request::Write { file, .. } | Request::Commit { file, .. } => *file,
        Request::Setattr { object, new, .. } => {
            assert_eq!(new.size, Some(0), "the only setattr here cuts the file");
            *object
        }
        Request::Getattr { object } => *object,
        _ => HandleRef(&[]),
    };
    handle.0.to_vec()
}

impl Transport for Server {
    fn submit(&mut self, ticket: Ticket, request: &Request<'_>) -> Result<(), SubmitError> {
        self.inner.submit(ticket, request)?;
        self.kinds.insert(ticket, request.kind());
        self.seen.push(Seen::Asked(request.kind(), object(request)));
        Ok(())
    }

    fn poll(
        &mut self,
        until: Option<Instant>,
        deliver: &mut dyn FnMut(Completion<'_>),
    ) -> Result<usize, TransportError> {
        let Self { inner, seen, kinds, fails } = self;
        inner.poll(until, &mut |completion| {
            let kind = kinds[&completion.ticket];
            let outcome = match completion.outcome {
                _ if *fails == Some(kind) => Outcome::Failed(Status::STALE),
                Outcome::Ok(Reply::Lookup { attributes, dir, .. }) => {
                    Outcome::Ok(Reply::Lookup { object: HandleRef(LOOKED_UP), attributes, dir })
                }
                outcome => outcome,
            };
            seen.push(Seen::Answered(kind, matches!(outcome, Outcome::Ok(_))));
            deliver(Completion { outcome, ..completion });
        })
    }

    left_to_inner!(flush in_flight root io_bytes_max is_local counters);
}

fn workload(chains: &str, mix: &str) -> Workload {
    let text = format!(
        "[sizes]\nfile = \"8KiB\"\nread = \"4KiB\"\nwrite = \"4KiB\"\n[mix]\n{mix}\n[chains]\n{chains}\n[scale]\nfiles_min = 100\n"
    );
    Workload::from_toml(&text, "chains.toml", None).unwrap()
}

fn measured(workload: Workload, load: Load, law: Law, fails: Option<OpKind>) -> (RunOutcome, Vec<Seen>) {
    let config = FstressConfig {
        workload,
        load,
        arrivals: Arrivals::Uniform,
        warm: Duration::from_secs(1),
        measure: Duration::from_secs(5),
        drain: Duration::from_secs(10),
        wait: Default::default(),
        files: FileCount::Fixed(200.try_into().unwrap()),
        seed: 42,
        keep: Keep::Remove,
        set_name: "crumb-fstress-test".to_owned(),
        build_in_flight: 64,
        raw: None,
    };
    let (inner, clock) = LawTransport::new(law, &[], 7);
    let mut server = Server { inner, seen: vec![], kinds: HashMap::new(), fails };
    let outcome = fstress::run(&config, &mut server, &clock, &AtomicBool::new(false), &mut |_| {});
    (outcome, server.seen)
}

fn at_one_chain_at_a_time(chains: &str, fails: Option<OpKind>) -> (LoadPoint, Vec<Seen>) {
    // 20 chains a second of at most 3 ms each: never two at once.
    let (outcome, seen) = measured(
        workload(chains, ""),
        Load::Sweep(vec![20.0]),
        Law::Constant(Duration::from_millis(1)),
        fails,
    );
    (outcome.points.into_iter().next().expect("a level"), seen)
}

/// What the server saw of chains alone: from the first request that begins one to the last reply.
fn of_chains(seen: &[Seen], first: OpKind, steps: usize, last_answers: usize) -> Vec<Seen> {
    let begins = |at: &usize| {
        matches!(&seen[*at], Seen::Asked(kind, _) if *kind == first)
            && matches!(seen.get(at + 1), Some(Seen::Answered(kind, _)) if *kind == first)
    };
    // The file set is built with many requests under way; chains run alone.
    let from = (0..seen.len()).find(|at| begins(at) && seen[*at..].len() > 2 * steps).expect("a chain");
    seen[from..from + last_answers].to_vec()
}

#[test]
fn each_request_is_sent_after_the_reply_before_and_uses_the_handle_that_lookup_gave() {
    let (point, seen) = at_one_chain_at_a_time("lookup-read = 1", None);
    assert!(point.verdict.valid, "{}", point.verdict);
    let asked = of_chains(&seen, OpKind::Lookup, 2, 40);
    for chain in asked.chunks_exact(4) {
        assert_eq!(
            chain,
            [
                Seen::Asked(OpKind::Lookup, vec![]),
                Seen::Answered(OpKind::Lookup, true),
                Seen::Asked(OpKind::Read, LOOKED_UP.to_vec()),
                Seen::Answered(OpKind::Read, true),
            ]
        );
    }
    let stats = &point.chains["lookup-read"];
    assert_eq!(
        (stats.begun, stats.complete, stats.requests_sent, stats.requests_not_sent),
        (100, 100, 200, 0)
    );
    assert_eq!((point.ops["lookup"].ok, point.ops["read"].ok), (100, 100), "each request counts");
    assert_eq!(point.achieved_per_sec, 20.0, "a chain counts once in the rate");
    assert!((stats.latency_us.mean - 2000.0).abs() < 20.0, "{}", stats.latency_us.mean);
    assert!((point.latency_us.mean - 1000.0).abs() < 10.0, "{}", point.latency_us.mean);
}

#[test]
fn a_file_is_cut_and_written_only_after_it_was_looked_up() {
    let (point, seen) = at_one_chain_at_a_time("lookup-truncate-write = 1", None);
    assert!(point.verdict.valid, "{}", point.verdict);
    for chain in of_chains(&seen, OpKind::Lookup, 3, 60).chunks_exact(6) {
        let kinds: Vec<OpKind> = chain
            .iter()
            .filter_map(|seen| if let Seen::Asked(kind, _) = seen { Some(*kind) } else { None })
            .collect();
        assert_eq!(kinds, [OpKind::Lookup, OpKind::Setattr, OpKind::Write]);
        assert!(chain.iter().all(|seen| match seen {
            Seen::Asked(OpKind::Setattr | OpKind::Write, handle) => handle == LOOKED_UP,
            _ => true,
        }));
    }
}

fn is_sound_but_for_the_size_of_the_set(point: &LoadPoint) -> bool {
    point.verdict.reasons.iter().all(|reason| !reason.fatal || reason.code == "file-set-off")
}

#[test]
fn a_file_made_by_a_chain_is_written_and_committed_by_its_own_handle() {
    let (point, seen) = at_one_chain_at_a_time("create-write-commit = 1", None);
    // Nothing removes what these chains make.
    assert!(is_sound_but_for_the_size_of_the_set(&point), "{}", point.verdict);
    let tail = &seen[seen.len() - 1200..];
    let chains: Vec<&[Seen]> = tail
        .windows(6)
        .filter(|six| {
            matches!(six[0], Seen::Asked(OpKind::Create, _))
                && matches!(six[4], Seen::Asked(OpKind::Commit, _))
        })
        .collect();
    assert!(chains.len() > 50, "{} chains in the order create, write, commit", chains.len());
    for chain in chains {
        let (Seen::Asked(OpKind::Write, written), Seen::Asked(OpKind::Commit, committed)) =
            (&chain[2], &chain[4])
        else {
            panic!("{chain:?}");
        };
        assert!(!written.is_empty() && written == committed, "{chain:?}");
    }
}

#[test]
fn a_request_that_fails_ends_its_chain_and_what_was_not_sent_is_counted() {
    let (point, seen) = at_one_chain_at_a_time("lookup-truncate-write = 1", Some(OpKind::Setattr));
    assert!(!seen.iter().any(|seen| matches!(seen, Seen::Asked(OpKind::Commit, _))));
    let stats = &point.chains["lookup-truncate-write"];
    assert_eq!((stats.begun, stats.complete, stats.failed), (100, 0, 100));
    assert_eq!((stats.requests_sent, stats.requests_not_sent), (200, 100));
    assert_eq!(point.ops["setattr"].errors.values().sum::<u64>(), 100);
    assert_eq!(point.achieved_per_sec, 0.0);
    assert!(point.verdict.has("chains-ended-early") && !point.verdict.valid, "{}", point.verdict);
}

#[test]
fn a_server_that_cannot_keep_up_with_the_later_requests_is_saturated() {
    // 2,000 requests a second; 900 chains of three ask for 2,700.
    let law = Law::Queue(Duration::from_micros(500));
    let rates = Load::Sweep(vec![500.0, 900.0]);
    let (outcome, _) = measured(workload("lookup-getattr-read = 1", ""), rates, law, None);
    let saturated: Vec<bool> = outcome.points.iter().map(|point| point.saturated).collect();
    assert_eq!(saturated, [false, true], "{}", outcome.points[1].verdict);
}

#[test]
fn the_same_seed_asks_the_same_chains_whatever_the_server_does() {
    let digest = |law| {
        let workload = workload(
            "lookup-read = 20\ncreate-write-commit = 5\nlookup-truncate-write = 2",
            "getattr = 60\nread = 13",
        );
        let (outcome, _) = measured(workload, Load::Sweep(vec![400.0]), law, None);
        let point = &outcome.points[0];
        assert!(is_sound_but_for_the_size_of_the_set(point) && point.overtaken == 0, "{}", point.verdict);
        point.operations_digest.clone()
    };
    let quick = digest(Law::Constant(Duration::from_micros(100)));
    assert_eq!(quick, digest(Law::Uniform(Duration::from_micros(50), Duration::from_millis(10))));
}

#[test]
fn a_closed_loop_counts_chains_too() {
    let (outcome, _) = measured(
        workload("lookup-read = 1", "getattr = 1"),
        Load::Max { outstanding: 8 },
        Law::Constant(Duration::from_millis(1)),
        None,
    );
    let point = &outcome.points[0];
    let stats = &point.chains["lookup-read"];
    assert!(point.verdict.valid, "{}", point.verdict);
    assert!(stats.complete > 1000 && stats.requests_not_sent == 0, "{stats:?}");
    assert!(point.ops["read"].attempted.abs_diff(point.ops["lookup"].attempted) == 0);
}

#[test]
fn a_workload_file_with_chains_reads_back_as_it_was_written() {
    let written = workload("lookup-read = 20\ncreate-write-commit = 2.5", "getattr = 60");
    assert_eq!(
        Workload::from_toml(&written.to_toml(), "again.toml", None).unwrap(),
        Workload { name: "chains".to_owned(), ..written.clone() }
    );
    let alone = workload("lookup-read = 1", "");
    assert!(alone.needs_files() && alone.mix.shares().is_empty());
}
