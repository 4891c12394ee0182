//! CPU time of each process, and which of them are a part of what is measured.
//!
//! 1. Read `/proc/*/stat` at both ends of a stretch.
//! 2. Children of this process and threads of the kernel are ours.
//! 3. Of the others, those that used CPU time are looked at: one that holds `/dev/fuse`, or a socket of a server that this
//!    process talks to, is ours.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::proc::{ProcessStat, process_ids};

/// Less CPU time is not worth a look at what a process holds open.
const USED_MIN: Duration = Duration::from_millis(20);

/// All processes at one moment.
#[derive(Debug, Default)]
pub(super) struct Processes {
    by_id: HashMap<u32, ProcessStat>,
}

/// What processes used between two readings.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Found {
    /// Parts of what is measured, without this process.
    pub ours: Duration,
    /// All others that are there still.
    pub others: Duration,
    /// The others by name, the most first.
    pub named: Vec<(String, u32, Duration)>,
}

/// Sockets of servers on this machine that this process talks to.
#[derive(Debug, Default)]
pub(super) struct ServerPorts {
    inodes: HashSet<u64>,
}

/// What a process is to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Ours,
    Other,
    /// What it holds open cannot be seen.
    Unseen,
}

impl Processes {
    pub fn read() -> Self {
        let of = |id| Some((id, ProcessStat::of(id)?));
        Self { by_id: process_ids().into_iter().filter_map(of).collect() }
    }

    /// What each used since an earlier reading.
    pub fn since(&self, before: &Self, ports: &ServerPorts, has_ranks: bool) -> Found {
        let own = std::process::id();
        let program = has_ranks.then(|| fs::read_link("/proc/self/exe").ok()).flatten();
        let role = |id: u32| role_of(&PathBuf::from(format!("/proc/{id}")), ports, program.as_deref());
        self.since_by(before, own, !ports.inodes.is_empty(), role)
    }

    fn since_by(&self, before: &Self, own: u32, has_server: bool, role: impl Fn(u32) -> Role) -> Found {
        let mut found = Found::default();
        let mut by_name: BTreeMap<&str, (u32, Duration)> = BTreeMap::new();
        for (&id, process) in self.by_id.iter().filter(|(id, _)| **id != own) {
            let earlier = before.by_id.get(&id).filter(|earlier| earlier.began_ticks == process.began_ticks);
            let used = used_by(process).saturating_sub(earlier.map_or(Duration::ZERO, used_by));
            if used.is_zero() {
                continue;
            }
            let is_ours = process.is_kernel_thread
                || self.descends(id, own)
                || used >= USED_MIN
                    && match role(id) {
                        Role::Ours => true,
                        Role::Other => false,
                        Role::Unseen => has_server,
                    };
            if is_ours {
                found.ours += used;
            } else {
                found.others += used;
                let of_name = by_name.entry(&process.name).or_default();
                *of_name = (of_name.0 + 1, of_name.1 + used);
            }
        }
        found.named =
            by_name.into_iter().map(|(name, (count, used))| (name.to_owned(), count, used)).collect();
        found.named.sort_by_key(|named| std::cmp::Reverse(named.2));
        found
    }

    fn descends(&self, id: u32, from: u32) -> bool {
        let mut at = id;
        // A process that ended while others were read can leave a parent that is its own grandchild.
        for _ in 0..64 {
            match self.by_id.get(&at) {
                Some(process) if process.parent == from => return true,
                Some(process) => at = process.parent,
                None => return false,
            }
        }
        false
    }
}

/// CPU time of a process itself.
fn used_by(process: &ProcessStat) -> Duration {
    process.user + process.sys
}

/// By what a process, whose files are in `process`, holds open.
fn role_of(process: &Path, ports: &ServerPorts, program: Option<&Path>) -> Role {
    if program.is_some() && fs::read_link(process.join("exe")).ok().as_deref() == program {
        return Role::Ours;
    }
    let Ok(open) = fs::read_dir(process.join("fd")) else { return Role::Unseen };
    let mut links = open.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    let is_ours = links.any(|link| {
        link == Path::new("/dev/fuse") || socket_of(&link).is_some_and(|inode| ports.inodes.contains(&inode))
    });
    if is_ours { Role::Ours } else { Role::Other }
}

/// `socket:[4711]`.
fn socket_of(link: &Path) -> Option<u64> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// A line of `/proc/net/tcp` and its like, addresses as they are written there.
struct Socket<'t> {
    local: (&'t str, &'t str),
    remote: (&'t str, &'t str),
    inode: u64,
}

impl<'t> Socket<'t> {
    fn of_line(line: &'t str) -> Option<Self> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let address = |field: usize| fields.get(field)?.split_once(':');
        Some(Self { local: address(1)?, remote: address(2)?, inode: fields.get(9)?.parse().ok()? })
    }

    /// The other end is on this machine.
    fn is_to_this_machine(&self) -> bool {
        self.remote.1 != "0000" && (self.remote.0 == self.local.0 || is_loopback(self.remote.0))
    }
}

/// 127.0.0.0/8 and ::1, in the byte order of the tables: words of four bytes, each backwards.
fn is_loopback(address: &str) -> bool {
    const V6: &str = "00000000000000000000000001000000";
    const V4_IN_V6: &str = "0000000000000000FFFF0000";
    let v4 = address.strip_prefix(V4_IN_V6).unwrap_or(address);
    address == V6 || v4.len() == 8 && v4.ends_with("7F")
}

impl ServerPorts {
    /// Servers at the other ends of this process's connections, and `more` where they are on this machine.
    pub fn of_connections(more: &[SocketAddr]) -> Self {
        let own: HashSet<u64> = fs::read_dir("/proc/self/fd")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| socket_of(&fs::read_link(entry.path()).ok()?))
            .collect();
        let more: Vec<u16> =
            more.iter().filter(|server| server.ip().is_loopback()).map(SocketAddr::port).collect();
        if own.is_empty() && more.is_empty() {
            return Self::default();
        }
        let tables = ["tcp", "tcp6", "udp", "udp6"];
        let text: Vec<String> = tables
            .iter()
            .map(|table| fs::read_to_string(format!("/proc/self/net/{table}")).unwrap_or_default())
            .collect();
        Self::of_tables(&text.concat(), &own, &more)
    }

    fn of_tables(tables: &str, own: &HashSet<u64>, more: &[u16]) -> Self {
        let sockets: Vec<Socket<'_>> = tables.lines().filter_map(Socket::of_line).collect();
        let more: Vec<String> = more.iter().map(|port| format!("{port:04X}")).collect();
        let mut ports: HashSet<&str> = more.iter().map(String::as_str).collect();
        let mine = sockets.iter().filter(|socket| own.contains(&socket.inode));
        ports.extend(mine.filter(|socket| socket.is_to_this_machine()).map(|socket| socket.remote.1));
        let theirs = sockets.iter().filter(|socket| !own.contains(&socket.inode) && socket.inode != 0);
        Self {
            inodes: theirs
                .filter(|socket| ports.contains(socket.local.1))
                .map(|socket| socket.inode)
                .collect(),
        }
    }

    /// The processes that hold the sockets, as far as that can be seen: neither this one, nor one that it descends from, such as an
    /// init that listens for its services.
    pub fn holders(&self) -> Vec<u32> {
        if self.inodes.is_empty() {
            return vec![];
        }
        let (all, own) = (Processes::read(), std::process::id());
        let is_server = |id: u32| id != own && !all.descends(own, id);
        let holds = |id: u32| {
            let open = fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
            let mut links = open.filter_map(|entry| fs::read_link(entry.path()).ok());
            links.any(|link| socket_of(&link).is_some_and(|inode| self.inodes.contains(&inode)))
        };
        let found = all.by_id.iter().filter(|(_, process)| !process.is_kernel_thread).map(|(id, _)| *id);
        found.filter(|id| is_server(*id) && holds(*id)).collect()
    }

    pub fn and(mut self, other: Self) -> Self {
        self.inodes.extend(other.inodes);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disturbance::of_ticks;

    fn processes(of: &[(u32, &str, u32, u64)]) -> Processes {
        let process = |&(id, name, parent, ticks): &(u32, &str, u32, u64)| {
            let process = ProcessStat {
                name: name.to_owned(),
                parent,
                is_kernel_thread: name.starts_with('k'),
                user: of_ticks(ticks),
                sys: Duration::ZERO,
                ended_children: Duration::ZERO,
                began_ticks: 7,
            };
            (id, process)
        };
        Processes { by_id: of.iter().map(process).collect() }
    }

    #[test]
    fn children_the_kernel_and_servers_are_ours_and_busy_loops_are_not() {
        let before = processes(&[
            (10, "crumb", 1, 50),
            (11, "zstd", 10, 0),
            (2, "kworker", 0, 5),
            (30, "ganesha", 1, 0),
        ]);
        let after = processes(&[
            (10, "crumb", 1, 900),
            (11, "zstd", 10, 10),
            (2, "kworker", 0, 15),
            (30, "ganesha", 1, 20),
            (40, "sh", 1, 100),
            (41, "sh", 1, 100),
            (42, "sshd", 1, 1),
        ]);
        let role = |id| if id == 30 { Role::Ours } else { Role::Other };
        let found = after.since_by(&before, 10, true, role);
        assert_eq!(found.ours, of_ticks(40));
        assert_eq!(found.others, of_ticks(201));
        assert_eq!(found.named[0], ("sh".to_owned(), 2, of_ticks(200)));
    }

    #[test]
    fn a_process_whose_sockets_cannot_be_seen_may_be_the_server_when_there_is_one() {
        let after = processes(&[(30, "ganesha", 1, 20)]);
        let of = |has_server| after.since_by(&Processes::default(), 10, has_server, |_| Role::Unseen);
        assert_eq!((of(true).others, of(false).others), (Duration::ZERO, of_ticks(20)));
    }

    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let mut before = processes(&[(40, "sh", 1, 500)]);
        before.by_id.get_mut(&40).unwrap().began_ticks = 3;
        let found = processes(&[(40, "sh", 1, 20)]).since_by(&before, 10, false, |_| Role::Other);
        assert_eq!(found.others, of_ticks(20));
    }

    #[test]
    fn a_server_on_this_machine_is_found_by_the_port_that_this_process_talks_to() {
        // Connection of ours to 127.0.0.1:2049, its other end, the listener, and one to another machine's port 80.
        let tables = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:9C40 0100007F:0801 01 00000000:00000000 00:00000000 00000000     0        0 100 1
   1: 0100007F:0801 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 200 1
   2: 00000000:0801 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 201 1
   3: 0200000A:9C41 0900000A:0050 01 00000000:00000000 00:00000000 00000000     0        0 101 1
   4: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 300 1
";
        let own = HashSet::from([100, 101]);
        let found = |more: &[u16]| {
            let mut inodes: Vec<u64> =
                ServerPorts::of_tables(tables, &own, more).inodes.into_iter().collect();
            inodes.sort_unstable();
            inodes
        };
        assert_eq!(found(&[]), [200, 201]);
        assert_eq!(found(&[80]), [200, 201, 300]);
    }
}
