//! Queries siblings and parents by ICP for objects that are missing here. Each loop has its own sockets and queries; all loops
//! share the records about the neighbours.
//!
//! ```text
//! miss ─ query to each neighbour ─┬─ first HIT ─────────────> fetch there: from a sibling, or from this parent first
//!                                 ├─ all others, or timeout ─> parents and origin, as without siblings
//!                                 └─ NOFETCH, DENIED ────────> not from this parent, if there is another way
//! five unanswered in a row ─> no longer waited for; probed once a second until it answers in time
//! ```
//!
//! Always holds: each queried neighbour can answer a query once, from the queried address, with its number and URL; a forger would
//! have to guess all of these. A query is forgotten at its timeout. A request waits for `icp.timeout_ms` at most, and never for a
//! neighbour that was silent or denied nearly everything recently.
//! Locks: `Neighbours::records`, a leaf.
//! Not here: the message format (`crate::icp`), answering queries (`answering`).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::SendFlags;
use tokio::net::UdpSocket;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::config::{Config, Upstream};
use crate::icp::{self, Answer, Message};
use crate::server::counters::Counters;
use crate::server::upstream::Pool;

/// Unanswered queries in a row after which a neighbour is no longer waited for.
const UNANSWERED_MAX: u32 = 5;
/// How often such a neighbour is probed.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// Answers needed before denials count (RFC 2187 section 5.3.1: more than 95% of more than 100).
const ANSWERS_MIN: u32 = 100;
/// A neighbour that was not considered for this long does not count as silent any more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// Most addresses with a record. Bounded, as names can resolve to ever new addresses.
const RECORDS_MAX: usize = 4096;

/// What all loops know about one neighbour.
#[derive(Clone, Copy, Debug, Default)]
struct NeighbourRecord {
    unanswered: u32,
    answers: u32,
    denied: u32,
    /// When it was last probed.
    probed_at: Option<Instant>,
    last_considered_at: Option<Instant>,
}

/// What to do with a neighbour for one query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Treatment {
    /// Query it and wait for its answer.
    Wait,
    /// Query it without waiting, to see whether it answers again.
    Probe,
    /// Do not query it.
    Skip,
}

impl NeighbourRecord {
    fn is_silent(&self) -> bool {
        self.unanswered >= UNANSWERED_MAX
            || self.answers >= ANSWERS_MIN && u64::from(self.denied) * 100 > u64::from(self.answers) * 95
    }

    fn treatment(&mut self, now: Instant) -> Treatment {
        self.last_considered_at = Some(now);
        if !self.is_silent() {
            return Treatment::Wait;
        }
        if self.probed_at.is_some_and(|at| now.saturating_duration_since(at) < PROBE_EVERY) {
            return Treatment::Skip;
        }
        self.probed_at = Some(now);
        Treatment::Probe
    }

    fn note_answer(&mut self, answer: Answer) {
        self.unanswered = 0;
        if self.answers >= 2 * ANSWERS_MIN {
            // Halve the counts, so that old answers weigh less.
            (self.answers, self.denied) = (self.answers / 2, self.denied / 2);
        }
        self.answers += 1;
        self.denied += u32::from(answer == Answer::Denied);
    }
}

/// The records about all neighbours, shared by all loops.
#[derive(Debug, Default)]
pub struct Neighbours {
    records: Mutex<HashMap<SocketAddr, NeighbourRecord>>,
}

impl Neighbours {
    fn with<T>(&self, address: SocketAddr, change: impl FnOnce(&mut NeighbourRecord) -> T) -> T {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        if records.len() >= RECORDS_MAX && !records.contains_key(&address) {
            records.clear();
        }
        change(records.entry(address).or_default())
    }

    /// How many neighbours are not waited for, among those considered recently.
    pub fn silent(&self) -> usize {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        // A reload may have changed the neighbours.
        let lately = |at: Instant| at.elapsed() < FORGOTTEN_AFTER;
        records
            .values()
            .filter(|record| record.is_silent() && record.last_considered_at.is_some_and(lately))
            .count()
    }
}

/// The result of querying all neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IcpResult {
    /// The neighbour with the object; true for a sibling.
    pub hit: Option<(Upstream, bool)>,
    /// Parents that must not be used for this fetch.
    pub refusing: Vec<Upstream>,
}

/// A query that waits for answers.
struct Pending {
    url: String,
    /// The neighbours that have not answered yet.
    asked: Vec<SocketAddr>,
    answers: UnboundedSender<(SocketAddr, Answer)>,
}

/// The sockets and queries of one loop.
pub struct IcpClient {
    neighbours: Arc<Neighbours>,
    counters: Arc<Counters>,
    pending: RefCell<HashMap<u32, Pending>>,
    sockets: RefCell<[Option<Rc<UdpSocket>>; 2]>,
    numbers: RandomState,
    count: Cell<u64>,
}

impl IcpClient {
    /// Without any query.
    pub fn new(neighbours: Arc<Neighbours>, counters: Arc<Counters>) -> Rc<Self> {
        Rc::new(Self {
            neighbours,
            counters,
            pending: RefCell::default(),
            sockets: RefCell::default(),
            numbers: RandomState::new(),
            count: Cell::new(0),
        })
    }

    /// Queries all siblings and parents that speak ICP and are not skipped, and waits up to the configured timeout.
    pub async fn query_all(self: &Rc<Self>, url: &str, config: &Config, pool: &Pool) -> IcpResult {
        let siblings = config.siblings.iter().map(|sibling| (&sibling.upstream, sibling.icp_port, true));
        let parents = config.parents.iter().filter(|parent| parent.icp_port != 0);
        let parents = parents.map(|parent| (&parent.upstream, parent.icp_port, false));
        let neighbours = siblings.chain(parents).filter(|(upstream, ..)| pool.is_up(upstream));
        let mut result = IcpResult::default();
        // A neighbour whose name is not resolved in time counts as unanswered.
        let _ = tokio::time::timeout(config.icp.timeout, async {
            let mut asked = Vec::new();
            for (upstream, port, is_sibling) in neighbours {
                if let Ok(addresses) = pool.addresses(&upstream.host, port, config).await
                    && let Some(address) = addresses.first()
                {
                    asked.push((*address, upstream, is_sibling));
                }
            }
            let (mut answers, mut waited_for) =
                self.send(url, asked.iter().map(|(address, ..)| *address), config.icp.timeout);
            while !waited_for.is_empty() {
                let Some((from, answer)) = answers.recv().await else { return };
                waited_for.retain(|address| *address != from);
                let Some((_, upstream, is_sibling)) = asked.iter().find(|(address, ..)| *address == from)
                else {
                    continue;
                };
                match answer {
                    Answer::Hit => {
                        result.hit = Some(((*upstream).clone(), *is_sibling));
                        return;
                    }
                    Answer::MissNoFetch | Answer::Denied if !is_sibling => {
                        result.refusing.push((*upstream).clone());
                    }
                    _ => {}
                }
            }
        })
        .await;
        result
    }

    /// Sends a query to each address. Returns the channel of the answers, and the addresses to wait for.
    fn send(
        self: &Rc<Self>,
        url: &str,
        addresses: impl Iterator<Item = SocketAddr>,
        time: Duration,
    ) -> (UnboundedReceiver<(SocketAddr, Answer)>, Vec<SocketAddr>) {
        let (answers_tx, answers_rx) = unbounded_channel();
        let (mut asked, mut waited_for) = (Vec::new(), Vec::new());
        let number = self.number();
        let Some(datagram) = icp::query(number, url) else { return (answers_rx, waited_for) };
        for address in addresses {
            let treatment = self.neighbours.with(address, |record| record.treatment(Instant::now()));
            if treatment == Treatment::Skip || asked.contains(&address) {
                continue;
            }
            // A datagram that is lost counts as unanswered.
            let sent = self.socket(address.ip()).is_some_and(|socket| {
                rustix::net::sendto(&*socket, &datagram, SendFlags::empty(), &address).is_ok()
            });
            if sent {
                self.counters.icp_queries.add(1);
            }
            asked.push(address);
            if treatment == Treatment::Wait {
                waited_for.push(address);
            }
        }
        if !asked.is_empty() {
            self.pending
                .borrow_mut()
                .insert(number, Pending { url: url.to_owned(), asked, answers: answers_tx });
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move {
                tokio::time::sleep(time).await;
                let Some(pending) = this.pending.borrow_mut().remove(&number) else { return };
                for address in pending.asked {
                    this.counters.icp_unanswered.add(1);
                    this.neighbours.with(address, |record| record.unanswered += 1);
                }
            });
        }
        (answers_rx, waited_for)
    }

    /// A query number that is hard to guess and not in use.
    fn number(&self) -> u32 {
        loop {
            let count = self.count.get();
            self.count.set(count.wrapping_add(1));
            let number = self.numbers.hash_one(count) as u32;
            if !self.pending.borrow().contains_key(&number) {
                return number;
            }
        }
    }

    /// The socket for the family of an address, opened on first use.
    fn socket(self: &Rc<Self>, ip: IpAddr) -> Option<Rc<UdpSocket>> {
        let (index, any) = match ip {
            IpAddr::V4(_) => (0, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))),
            IpAddr::V6(_) => (1, SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))),
        };
        if let Some(socket) = &self.sockets.borrow()[index] {
            return Some(Rc::clone(socket));
        }
        let open = || {
            let socket = std::net::UdpSocket::bind(any)?;
            socket.set_nonblocking(true)?;
            UdpSocket::from_std(socket)
        };
        let socket = match open() {
            Ok(socket) => Rc::new(socket),
            Err(error) => {
                tracing::warn!(%error, "no socket to ask siblings by");
                return None;
            }
        };
        self.sockets.borrow_mut()[index] = Some(Rc::clone(&socket));
        let (this, receiving) = (Rc::downgrade(self), Rc::clone(&socket));
        tokio::task::spawn_local(async move {
            let mut datagram = vec![0; icp::MESSAGE_BYTES_MAX + 1];
            loop {
                match receiving.recv_from(&mut datagram).await {
                    Ok((bytes, from)) => {
                        let Some(icp_client) = this.upgrade() else { return };
                        icp_client.receive(&datagram[..bytes], from);
                    }
                    // An earlier query was rejected by its receiver, or memory is short.
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        });
        Some(socket)
    }

    fn receive(&self, datagram: &[u8], from: SocketAddr) {
        let (answer, number, url) = match icp::read(datagram) {
            Ok(Message::Reply { answer, number, url }) => (answer, number, url),
            Ok(Message::Query { .. }) => return self.counters.icp_unexpected.add(1),
            Err(_) => return self.counters.icp_malformed.add(1),
        };
        let mut pending = self.pending.borrow_mut();
        let Some(query) = pending.get_mut(&number).filter(|query| query.url.as_bytes() == url) else {
            return self.counters.icp_unexpected.add(1);
        };
        let Some(index) = query.asked.iter().position(|asked| *asked == from) else {
            return self.counters.icp_unexpected.add(1);
        };
        query.asked.swap_remove(index);
        self.neighbours.with(from, |record| record.note_answer(answer));
        let counter = match answer {
            Answer::Hit => &self.counters.icp_found,
            _ => &self.counters.icp_not_found,
        };
        counter.add(1);
        let _ = query.answers.send((from, answer));
        if query.asked.is_empty() {
            pending.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_silent_is_asked_now_and_then_until_it_answers() {
        let (mut record, now) = (NeighbourRecord::default(), Instant::now());
        for _ in 0..UNANSWERED_MAX {
            assert_eq!(record.treatment(now), Treatment::Wait);
            record.unanswered += 1;
        }
        assert_eq!(record.treatment(now), Treatment::Probe);
        assert_eq!(record.treatment(now + PROBE_EVERY / 2), Treatment::Skip);
        assert_eq!(record.treatment(now + PROBE_EVERY), Treatment::Probe);
        record.note_answer(Answer::Miss);
        assert_eq!(record.treatment(now + PROBE_EVERY), Treatment::Wait);
    }

    /// RFC 2187 section 5.3.1.
    #[test]
    fn one_that_denies_nearly_everything_is_left_out_and_taken_back_when_it_no_longer_does() {
        let (mut record, now) = (NeighbourRecord::default(), Instant::now());
        (0..ANSWERS_MIN - 1).for_each(|_| record.note_answer(Answer::Denied));
        assert_eq!(record.treatment(now), Treatment::Wait, "too few to tell");
        record.note_answer(Answer::Denied);
        assert_eq!(record.treatment(now), Treatment::Probe);
        (0..2 * ANSWERS_MIN).for_each(|_| record.note_answer(Answer::Miss));
        assert_eq!(record.treatment(now), Treatment::Wait);
        (0..20).for_each(|_| record.note_answer(Answer::Denied));
        assert_eq!(record.treatment(now), Treatment::Wait, "some may be denied");
    }
}
