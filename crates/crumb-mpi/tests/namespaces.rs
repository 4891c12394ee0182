//! Four ranks with a network each, on a bridge, and the server in a fifth: addresses of their own, and a cable to pull.

mod job;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use files::DirectoryOptions;
use nfs::server::{Server, ServerOptions, serve_dir};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use self::job::{CRUMB_MPI, Job, blamed, gone, kept, no_mpirun, place, times};

const RANKS: u32 = 4;
const WARM: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_secs(45);

/// Five namespaces: the server's holds the bridge, each rank's a veth to it.
struct Network {
    name: String,
}

fn ip(words: &str) -> bool {
    let output = Command::new("ip").args(words.split_whitespace()).output();
    output.is_ok_and(|output| output.status.success())
}

impl Network {
    /// None, said in a line, where namespaces cannot be made.
    fn new() -> Option<Self> {
        let network = Self { name: format!("crumb{}", std::process::id()) };
        let server = network.of("s");
        let made = ip(&format!("netns add {server}"))
            && ip(&format!("-n {server} link set lo up"))
            && ip(&format!("-n {server} link add br0 type bridge"))
            && ip(&format!("-n {server} addr add 10.77.0.100/24 dev br0"))
            && ip(&format!("-n {server} link set br0 up"))
            && (0..RANKS).all(|rank| network.add_rank(rank));
        if !made {
            eprintln!(
                "skipped: ranks in namespaces: `ip` cannot make namespaces with veth and a bridge here"
            );
        }
        made.then_some(network)
    }

    fn of(&self, who: &str) -> String {
        format!("{}-{who}", self.name)
    }

    fn of_rank(&self, rank: u32) -> String {
        self.of(&rank.to_string())
    }

    fn add_rank(&self, rank: u32) -> bool {
        let (server, own) = (self.of("s"), self.of_rank(rank));
        ip(&format!("netns add {own}"))
            && ip(&format!("-n {own} link set lo up"))
            && ip(&format!("-n {server} link add v{rank} type veth peer name veth0 netns {own}"))
            && ip(&format!("-n {server} link set v{rank} master br0"))
            && ip(&format!("-n {server} link set v{rank} up"))
            && ip(&format!("-n {own} addr add 10.77.0.{}/24 dev veth0", rank + 1))
            && ip(&format!("-n {own} link set veth0 up"))
    }

    fn pull_cable_of(&self, rank: u32) {
        assert!(ip(&format!("-n {} link set veth0 down", self.of_rank(rank))));
    }

    /// A server on the bridge: its sockets belong to the namespace of the thread that opens them.
    fn serve(&self, export: &Path) -> Server {
        let namespace = std::fs::File::open(Path::new("/run/netns").join(self.of("s"))).unwrap();
        let export = export.to_owned();
        let opened = std::thread::spawn(move || {
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), Some(LinkNameSpaceType::Network))
                .unwrap();
            let listen: SocketAddr = "10.77.0.100:0".parse().unwrap();
            let options = ServerOptions { listen, ..ServerOptions::default() };
            serve_dir(export, options, DirectoryOptions::default()).unwrap()
        });
        opened.join().unwrap()
    }

    /// A rank in each namespace, with a host name of its own; MPI over the veths and not through memory.
    fn start(&self, dir: &Path, args: &[&str]) -> Job {
        let mut command = Command::new("mpirun");
        command.env("MPIR_CVAR_NOLOCAL", "1").env("UCX_TLS", "tcp,self").env("UCX_NET_DEVICES", "veth0");
        command.env("FI_PROVIDER", "tcp").env("FI_TCP_IFACE", "veth0");
        let store = dir.join("runs.db").display().to_string();
        for rank in 0..RANKS {
            if rank > 0 {
                command.arg(":");
            }
            let named = format!("hostname node{rank} && exec \"$@\"");
            command.args(["-n", "1", "ip", "netns", "exec", &self.of_rank(rank)]);
            command.args(["unshare", "--uts", "sh", "-c", &named, "sh", CRUMB_MPI]);
            command.args(["--store", &store, "-vv", "run", "fstress"]).args(args);
        }
        Job::spawn(command)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for who in ["s", "0", "1", "2", "3"] {
            ip(&format!("netns del {}", self.of(who)));
        }
    }
}

#[test]
fn four_machines_make_one_run_and_a_pulled_cable_ends_it_in_any_phase() {
    if no_mpirun("ranks in namespaces") {
        return;
    }
    let Some(network) = Network::new() else { return };
    for phase in ["none", "building", "warming", "measuring", "cleaning up"] {
        let (dir, export) = (place(), place());
        let server = network.serve(export.path());
        let url = format!("nfs://{}/", server.addr());
        let files = if matches!(phase, "building" | "cleaning up") { "30000" } else { "400" };
        let args = [
            &url[..],
            "--workload",
            "web-server",
            "--rate",
            "80,120",
            "--files",
            files,
            "--file-size",
            "100",
            "--warm",
            "2s",
            "--measure",
            "2s",
            "--patience",
            "3s",
            "--reconnect-timeout",
            "5s",
        ];
        let mut job = network.start(dir.path(), &args);
        let begins = |said: &str| times(said, "a load point begins") as u32;
        let points = match phase {
            "none" => 2,
            "building" => {
                let limit = Instant::now() + Duration::from_secs(40);
                let building = || {
                    let sets = std::fs::read_dir(export.path()).unwrap().flatten();
                    sets.filter(|set| std::fs::read_dir(set.path()).unwrap().count() > 3).count()
                        == RANKS as usize
                };
                while !building() {
                    assert!(Instant::now() < limit, "no files are made");
                    std::thread::park_timeout(Duration::from_millis(5));
                }
                0
            }
            "warming" | "measuring" => {
                job.until("the second point", |said| begins(said) == 2 * RANKS);
                if phase == "measuring" {
                    std::thread::park_timeout(WARM + Duration::from_millis(500));
                }
                1
            }
            _ => {
                job.until("the second point's end", |said| times(said, "/s offered:") == 2);
                2
            }
        };
        let pids = job.ranks();
        let begun = Instant::now();
        if phase != "none" {
            assert_eq!(pids.len() as u32, RANKS, "{phase}");
            network.pull_cable_of(2);
        }
        let ended = job.end(SOON);
        gone(&pids);
        let runs = kept(dir.path());
        let of_run = runs.first();
        assert_eq!(of_run.map_or(0, |run| run.points.len()), points, "{phase}: {}", ended.said);
        if phase == "none" {
            assert!(matches!(ended.code, 0 | 3), "{}", ended.said);
            let hosts: Vec<&str> = runs[0].points[0].parts.iter().map(|part| &part.host[..]).collect();
            assert_eq!(hosts, ["node0", "node1", "node2", "node3"]);
            assert_eq!(std::fs::read_dir(export.path()).unwrap().count(), 0, "something is left");
        } else {
            eprintln!("cable pulled while {phase}: over after {:.1?}", begun.elapsed());
            assert_ne!(ended.code, 0, "{phase}");
            assert_eq!(blamed(&ended.said, "rank 2 on node2"), 1, "{phase}: {}", ended.said);
            assert!(of_run.is_none_or(|run| !run.complete), "{phase}");
            assert!(ip(&format!("-n {} link set veth0 up", network.of_rank(2))));
        }
        server.stop();
    }
}
