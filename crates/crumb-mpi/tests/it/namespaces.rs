//! Four ranks with a network each, on a bridge, and the server in a fifth: addresses of their own, and a cable to pull.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use files::DirectoryOptions;
use measure::RunRecord;
use nfs::server::{Server, ServerOptions, serve_dir};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use testkit::need::{self, HostFeature, host};

use crate::job::{CRUMB_MPI, Ended, Job, blamed, gone, kept, mpirun_within, no_mpirun, place, sweep};

const RANKS: u32 = 4;
const ALL_WELL: &str = "nothing happens";
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
    /// None where namespaces cannot be made: the test is then listed as skipped.
    fn new(name: &str) -> Option<Self> {
        need::program("ip", "iproute2")?;
        let network = Self { name: format!("crumb{}{name}", std::process::id()) };
        let server = network.of("s");
        let made = ip(&format!("netns add {server}"))
            && ip(&format!("-n {server} link set lo up"))
            && ip(&format!("-n {server} link add br0 type bridge"))
            && ip(&format!("-n {server} addr add 10.77.0.100/24 dev br0"))
            && ip(&format!("-n {server} link set br0 up"))
            && (0..RANKS).all(|rank| network.add_rank(rank));
        let cannot = "`ip` cannot make namespaces with veth and a bridge";
        host(HostFeature::Namespaces, made.then_some(network).ok_or(cannot))
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

    /// A rank in each namespace, with a host name of its own; MPI over the veths and not through memory. The launcher is where
    /// the server is: OpenMPI's ranks come to it over the network.
    fn start(&self, dir: &Path, args: &[String]) -> Job {
        let mut command = mpirun_within(&["ip", "netns", "exec", &self.of("s")]);
        command.env("MPIR_CVAR_NOLOCAL", "1").env("UCX_TLS", "tcp,self").env("UCX_NET_DEVICES", "veth0");
        command.env("FI_PROVIDER", "tcp").env("FI_TCP_IFACE", "veth0");
        command.env("OMPI_MCA_pml", "ob1").env("OMPI_MCA_btl", "tcp,self");
        command.env("OMPI_MCA_btl_tcp_if_include", "veth0").env("OMPI_MCA_oob_tcp_if_include", "br0");
        command.env("PMIX_MCA_ptl_base_if_include", "br0").env("PMIX_MCA_ptl_base_remote_connections", "1");
        let store = dir.join("runs.db").display().to_string();
        for rank in 0..RANKS {
            if rank > 0 {
                command.arg(":");
            }
            let named = format!("hostname node{rank} && exec \"$@\"");
            command.args(["-n", "1", "ip", "netns", "exec", &self.of_rank(rank)]);
            command.args(["unshare", "--uts", "sh", "-c", &named, "sh", CRUMB_MPI]);
            command.args(["--store", &store, "-vv", "run"]).args(args);
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

/// Runs a sweep on all four; a cable is pulled in `phase`. Load points done by then, and what came of it.
fn ran(network: &Network, phase: &str) -> (usize, Ended, Vec<RunRecord>) {
    let (dir, export) = (place(), place());
    let server = network.serve(export.path());
    let url = format!("nfs://{}/", server.addr());
    let args = [sweep(&url, "80, 120", phase), vec!["--reconnect-timeout".into(), "5s".into()]].concat();
    let mut job = network.start(dir.path(), &args);
    let points = job.bring_to(phase, RANKS as usize);
    let pids = job.ranks();
    let begun = Instant::now();
    if phase != ALL_WELL {
        assert_eq!(pids.len() as u32, RANKS, "{phase}");
        network.pull_cable_of(2);
    }
    let ended = job.end(SOON);
    gone(&pids);
    if phase == ALL_WELL {
        assert_eq!(std::fs::read_dir(export.path()).unwrap().count(), 0, "something is left");
    } else {
        eprintln!("cable pulled while {phase}: over after {:.1?}", begun.elapsed());
    }
    server.stop();
    (points, ended, kept(dir.path()))
}

#[test]
fn four_machines_make_one_run() {
    if no_mpirun() {
        return;
    }
    let Some(network) = Network::new("a") else { return };
    let (points, ended, runs) = ran(&network, ALL_WELL);
    assert!(matches!(ended.code, 0 | 3), "{}", ended.said);
    assert_eq!(runs[0].points.len(), points);
    let hosts: Vec<&str> = runs[0].points[0].parts.iter().map(|part| &part.host[..]).collect();
    assert_eq!(hosts, ["node0", "node1", "node2", "node3"]);
}

#[test]
fn a_pulled_cable_ends_the_run_in_any_phase() {
    if no_mpirun() {
        return;
    }
    let Some(network) = Network::new("b") else { return };
    for phase in ["building", "warming", "measuring", "cleaning up"] {
        let (points, ended, runs) = ran(&network, phase);
        let of_run = runs.first();
        assert_eq!(of_run.map_or(0, |run| run.points.len()), points, "{phase}: {}", ended.said);
        assert_ne!(ended.code, 0, "{phase}");
        assert_eq!(blamed(&ended.said, "rank 2 on node2"), 1, "{phase}: {}", ended.said);
        assert!(of_run.is_none_or(|run| !run.complete), "{phase}");
        assert!(ip(&format!("-n {} link set veth0 up", network.of_rank(2))));
    }
}
