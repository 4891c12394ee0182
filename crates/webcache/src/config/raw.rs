//! The file as it is written: one struct a section, nothing checked. What each key means is told in `default.toml`.

use serde::Deserialize;

#[derive(Deserialize)]
pub(super) struct Raw {
    pub proxy: Proxy,
    pub forward: Forward,
    pub reverse: Reverse,
    pub cache: Cache,
    pub rules: Rules,
    pub collapse: Collapse,
    pub prefetch: Prefetch,
    pub limits: Limits,
    pub upstream: Upstream,
    pub parents: Parents,
    pub icp: Icp,
    pub access: Access,
    pub admin: Admin,
    pub log: Log,
    #[serde(default)]
    pub site: Vec<Site>,
    #[serde(default)]
    pub parent: Vec<Parent>,
    #[serde(default)]
    pub sibling: Vec<Sibling>,
}

#[derive(Deserialize)]
pub(super) struct Proxy {
    pub name: String,
    pub loops: usize,
    pub drain_s: u64,
}

#[derive(Deserialize)]
pub(super) struct Forward {
    pub listen: Vec<String>,
    pub connect_ports: Vec<u16>,
    pub ports: Vec<u16>,
}

#[derive(Deserialize)]
pub(super) struct Reverse {
    pub listen: Vec<String>,
    pub listen_tls: Vec<String>,
    pub certificate: String,
    pub key: String,
    pub x_forwarded_for: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Site {
    pub hosts: Vec<String>,
    #[serde(default)]
    pub path: String,
    pub origins: Vec<String>,
    #[serde(default)]
    pub host: String,
    #[serde(default)]
    pub health_path: String,
    #[serde(default)]
    pub health_s: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parent {
    pub address: String,
    #[serde(default)]
    pub icp_port: u16,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sibling {
    pub address: String,
    pub icp_port: u16,
}

#[derive(Deserialize)]
pub(super) struct Icp {
    pub listen: String,
    pub clients: Vec<String>,
    pub timeout_ms: u64,
}

#[derive(Deserialize)]
pub(super) struct Parents {
    pub choose: String,
    pub direct: bool,
}

#[derive(Deserialize)]
pub(super) struct Cache {
    pub directories: Vec<String>,
    pub size_mib: u64,
    pub object_mean_bytes: u32,
    pub object_max_kib: u64,
    pub object_max_one_in: u64,
    pub memory_mib: u64,
    pub fill_window_kib: u64,
    pub behind_max_kib: u64,
    pub clerks: usize,
    pub verify_one_in: u32,
    pub admission: String,
    pub finish_kib: u64,
    pub rebuild_wait_ms: u64,
}

#[derive(Deserialize)]
pub(super) struct Rules {
    pub heuristic_percent: u8,
    pub heuristic_max_s: u32,
    pub lifetime_max_s: u32,
    pub negative_s: u32,
    pub set_cookie: String,
    pub targets: Vec<String>,
    pub client_reload: bool,
    pub stale_if_error_s: u32,
    pub stale_while_revalidate_s: u32,
    pub age_errors: String,
    pub foreign_304: String,
}

#[derive(Deserialize)]
pub(super) struct Collapse {
    pub wait_ms: u64,
    pub pass_s: u64,
}

#[derive(Deserialize)]
pub(super) struct Prefetch {
    pub enabled: bool,
    pub hosts: String,
    pub page_objects_max: usize,
    pub in_flight_max: usize,
    pub page_max_kib: u64,
    pub object_max_kib: u64,
}

#[derive(Deserialize)]
pub(super) struct Limits {
    pub head_kib: usize,
    pub body_mib: u64,
    pub body_bytes_per_s: u64,
    pub connections: usize,
    pub connections_per_client: usize,
    pub head_s: u64,
    pub idle_s: u64,
    pub stall_s: u64,
    pub tunnel_idle_s: u64,
}

#[derive(Deserialize)]
pub(super) struct Upstream {
    pub connect_ms: u64,
    pub reply_s: u64,
    pub idle_s: u64,
    pub idle_per_origin: usize,
    pub idle_in_all: usize,
    pub retries: u32,
    pub dns_s: u64,
    pub down_s: u64,
}

#[derive(Deserialize)]
pub(super) struct Access {
    pub clients: Vec<String>,
    pub methods: Vec<String>,
    pub upgrades: Vec<String>,
    pub hosts: Vec<String>,
    pub hosts_denied: Vec<String>,
    pub internal: String,
    pub internal_allowed: Vec<String>,
    pub destinations_denied: Vec<String>,
    pub purge: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct Admin {
    pub listen: String,
    pub hosts: Vec<String>,
    pub user: String,
    pub password: String,
}

#[derive(Deserialize)]
pub(super) struct Log {
    pub file: String,
    pub format: String,
    pub rotate_mib: u64,
    pub keep: u32,
}
