//! Caches beside and above this one that are asked by ICP who has what is missing here: each loop its own sockets and
//! queries, all loops together what is known of the neighbours.
//!
//! ```text
//! miss ─ query to each neighbour ─┬─ first HIT ─────────────> ask there: a sibling, or this parent before the others
//!                                 ├─ all others, or timeout ─> parents and origin, as without siblings
//!                                 └─ NOFETCH, DENIED ────────> not this parent, if there is another way
//! five in a row unanswered ─> not waited for, asked once a second until one is answered in time
//! ```
//!
//! Always holds: a query is answered once by each who was asked, from the address that was asked, with its number and URL,
//! all of which somebody else would have to guess; what is remembered of a query goes at its timeout; a request waits for
//! `icp.timeout_ms` at most, and for nobody who was silent or denied nearly everything of late.
//! Locks: `Neighbours::known`, a leaf.
//! Not here: what the messages say (`crate::icp`), answering others (`icp`).

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

/// Queries in a row that a neighbour leaves unanswered before it is waited for no longer.
const UNANSWERED_MAX: u32 = 5;
/// How often one is asked that is not waited for.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// Answers over which refusals are counted (RFC 2187 section 5.3.1: more than 95% of more than 100).
const ANSWERS_MIN: u32 = 100;
/// One that nothing was wanted of for so long counts no more as silent.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// Addresses known at most; names can lead to new ones for ever.
const KNOWN_MAX: usize = 4096;

/// What all loops know of one neighbour.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    unanswered: u32,
    answers: u32,
    denied: u32,
    /// When it was asked though it was silent.
    probed_at: Option<Instant>,
    wanted_at: Option<Instant>,
}

/// How a neighbour is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Asked and waited for.
    Asked,
    /// Asked, to see whether it answers again.
    Probed,
    /// Left out.
    LeftOut,
}

impl Record {
    fn is_silent(&self) -> bool {
        self.unanswered >= UNANSWERED_MAX
            || self.answers >= ANSWERS_MIN && u64::from(self.denied) * 100 > u64::from(self.answers) * 95
    }

    fn turn(&mut self, now: Instant) -> Turn {
        self.wanted_at = Some(now);
        if !self.is_silent() {
            return Turn::Asked;
        }
        if self.probed_at.is_some_and(|at| now.saturating_duration_since(at) < PROBE_EVERY) {
            return Turn::LeftOut;
        }
        self.probed_at = Some(now);
        Turn::Probed
    }

    fn answered(&mut self, answer: Answer) {
        self.unanswered = 0;
        if self.answers >= 2 * ANSWERS_MIN {
            // What was long ago counts less.
            (self.answers, self.denied) = (self.answers / 2, self.denied / 2);
        }
        self.answers += 1;
        self.denied += u32::from(answer == Answer::Denied);
    }
}

/// What all loops know of all neighbours.
#[derive(Debug, Default)]
pub struct Neighbours {
    known: Mutex<HashMap<SocketAddr, Record>>,
}

impl Neighbours {
    fn with<T>(&self, address: SocketAddr, change: impl FnOnce(&mut Record) -> T) -> T {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX && !known.contains_key(&address) {
            known.clear();
        }
        change(known.entry(address).or_default())
    }

    /// Those that are not waited for now, of those that would be asked.
    pub fn silent(&self) -> usize {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // The configuration may name others by now.
        let lately = |at: Instant| at.elapsed() < FORGOTTEN_AFTER;
        known.values().filter(|record| record.is_silent() && record.wanted_at.is_some_and(lately)).count()
    }
}

/// What became of a question to all neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Who has it, and whether that is a sibling.
    pub hit: Option<(Upstream, bool)>,
    /// Parents through which it is not to be fetched.
    pub refusing: Vec<Upstream>,
}

/// A query on its way.
struct Pending {
    url: String,
    /// Who has not answered yet, with whether anybody waits for it.
    asked: Vec<SocketAddr>,
    told: UnboundedSender<(SocketAddr, Answer)>,
}

/// One loop's sockets and queries.
pub struct Asker {
    neighbours: Arc<Neighbours>,
    counters: Arc<Counters>,
    pending: RefCell<HashMap<u32, Pending>>,
    sockets: RefCell<[Option<Rc<UdpSocket>>; 2]>,
    numbers: RandomState,
    count: Cell<u64>,
}

impl Asker {
    /// Nothing asked yet.
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

    /// Asks all siblings and parents that speak ICP and are not left out, for as long as the configuration says.
    pub async fn ask(self: &Rc<Self>, url: &str, config: &Config, pool: &Pool) -> Found {
        let siblings = config.siblings.iter().map(|sibling| (&sibling.upstream, sibling.icp_port, true));
        let parents = config.parents.iter().filter(|parent| parent.icp_port != 0);
        let parents = parents.map(|parent| (&parent.upstream, parent.icp_port, false));
        let neighbours = siblings.chain(parents).filter(|(upstream, ..)| pool.is_up(upstream));
        let mut found = Found::default();
        // One that cannot be had by its name in time has not answered either.
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
                        found.hit = Some(((*upstream).clone(), *is_sibling));
                        return;
                    }
                    Answer::MissNoFetch | Answer::Denied if !is_sibling => {
                        found.refusing.push((*upstream).clone());
                    }
                    _ => {}
                }
            }
        })
        .await;
        found
    }

    /// Sends a query to each; gives where answers come, and who is waited for.
    fn send(
        self: &Rc<Self>,
        url: &str,
        addresses: impl Iterator<Item = SocketAddr>,
        time: Duration,
    ) -> (UnboundedReceiver<(SocketAddr, Answer)>, Vec<SocketAddr>) {
        let (told, answers) = unbounded_channel();
        let (mut asked, mut waited_for) = (Vec::new(), Vec::new());
        let number = self.number();
        let Some(datagram) = icp::query(number, url) else { return (answers, waited_for) };
        for address in addresses {
            let turn = self.neighbours.with(address, |record| record.turn(Instant::now()));
            if turn == Turn::LeftOut || asked.contains(&address) {
                continue;
            }
            // One that is lost is one without an answer.
            let sent = self.socket(address.ip()).is_some_and(|socket| {
                rustix::net::sendto(&*socket, &datagram, SendFlags::empty(), &address).is_ok()
            });
            if sent {
                self.counters.icp_queries.add(1);
            }
            asked.push(address);
            if turn == Turn::Asked {
                waited_for.push(address);
            }
        }
        if !asked.is_empty() {
            self.pending.borrow_mut().insert(number, Pending { url: url.to_owned(), asked, told });
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
        (answers, waited_for)
    }

    /// One that nobody can guess, and that is not in use.
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

    /// Of the family of an address. Opened when it is first needed.
    fn socket(self: &Rc<Self>, ip: IpAddr) -> Option<Rc<UdpSocket>> {
        let (place, any) = match ip {
            IpAddr::V4(_) => (0, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))),
            IpAddr::V6(_) => (1, SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))),
        };
        if let Some(socket) = &self.sockets.borrow()[place] {
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
        self.sockets.borrow_mut()[place] = Some(Rc::clone(&socket));
        let (this, heard) = (Rc::downgrade(self), Rc::clone(&socket));
        tokio::task::spawn_local(async move {
            let mut datagram = vec![0; icp::MESSAGE_BYTES_MAX + 1];
            loop {
                match heard.recv_from(&mut datagram).await {
                    Ok((bytes, from)) => {
                        let Some(asker) = this.upgrade() else { return };
                        asker.hear(&datagram[..bytes], from);
                    }
                    // Some earlier datagram found nobody; or memory is short.
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        });
        Some(socket)
    }

    fn hear(&self, datagram: &[u8], from: SocketAddr) {
        let (answer, number, url) = match icp::read(datagram) {
            Ok(Message::Reply { answer, number, url }) => (answer, number, url),
            Ok(Message::Query { .. }) => return self.counters.icp_unexpected.add(1),
            Err(_) => return self.counters.icp_malformed.add(1),
        };
        let mut pending = self.pending.borrow_mut();
        let Some(query) = pending.get_mut(&number).filter(|query| query.url.as_bytes() == url) else {
            return self.counters.icp_unexpected.add(1);
        };
        let Some(place) = query.asked.iter().position(|asked| *asked == from) else {
            return self.counters.icp_unexpected.add(1);
        };
        query.asked.swap_remove(place);
        self.neighbours.with(from, |record| record.answered(answer));
        let counter = match answer {
            Answer::Hit => &self.counters.icp_found,
            _ => &self.counters.icp_not_found,
        };
        counter.add(1);
        let _ = query.told.send((from, answer));
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
        let (mut record, now) = (Record::default(), Instant::now());
        for _ in 0..UNANSWERED_MAX {
            assert_eq!(record.turn(now), Turn::Asked);
            record.unanswered += 1;
        }
        assert_eq!(record.turn(now), Turn::Probed);
        assert_eq!(record.turn(now + PROBE_EVERY / 2), Turn::LeftOut);
        assert_eq!(record.turn(now + PROBE_EVERY), Turn::Probed);
        record.answered(Answer::Miss);
        assert_eq!(record.turn(now + PROBE_EVERY), Turn::Asked);
    }

    /// RFC 2187 section 5.3.1.
    #[test]
    fn one_that_denies_nearly_everything_is_left_out_and_taken_back_when_it_no_longer_does() {
        let (mut record, now) = (Record::default(), Instant::now());
        (0..ANSWERS_MIN - 1).for_each(|_| record.answered(Answer::Denied));
        assert_eq!(record.turn(now), Turn::Asked, "too few to tell");
        record.answered(Answer::Denied);
        assert_eq!(record.turn(now), Turn::Probed);
        (0..2 * ANSWERS_MIN).for_each(|_| record.answered(Answer::Miss));
        assert_eq!(record.turn(now), Turn::Asked);
        (0..20).for_each(|_| record.answered(Answer::Denied));
        assert_eq!(record.turn(now), Turn::Asked, "some may be denied");
    }
}
