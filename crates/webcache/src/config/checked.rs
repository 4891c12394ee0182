//! The configuration with nothing left to check.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use http::uri::{Authority, PathAndQuery};
use http::{HeaderName, Method, Uri};

use super::network::Network;
use super::raw::{self, Raw};
use crate::rules::Policy;
use crate::rules::lists::is_token;
use crate::rules::policy::{AgeErrors, Foreign304, SetCookie};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// As it stands in the file, section first; empty for the file itself.
    pub key: String,
    /// What is wrong, and what would be right.
    pub what: String,
}

/// All that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// In the order of the file.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    pub(super) fn of(what: String) -> Self {
        Self { problems: vec![Problem { key: String::new(), what }] }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, Problem { key, what }) in self.problems.iter().enumerate() {
            let line_break = if place == 0 { "" } else { "\n" };
            let space = if key.is_empty() { "" } else { " " };
            write!(out, "{line_break}{key}{space}{}", what.trim_end())?;
        }
        Ok(())
    }
}

/// How the access log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Squid's native format.
    Squid,
    /// NCSA common.
    Common,
    /// NCSA combined: with Referer and User-Agent.
    Combined,
    /// One JSON object a line.
    Json,
}

/// Which replies are stored of those that may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// All.
    All,
    /// Those asked for before.
    Second,
}

/// From where what a page embeds is fetched ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefetchHosts {
    /// The page's own host.
    Own,
    /// Any that is served.
    All,
}

/// How a parent is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The first that answers.
    Failover,
    /// By the URL.
    Hash,
}

/// An origin of a site, or what a parent is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Upstream {
    /// Name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// By TLS.
    pub tls: bool,
}

/// A cache above this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Where it listens.
    pub upstream: Upstream,
    /// Where it answers ICP; 0: nowhere.
    pub icp_port: u16,
}

/// A cache beside this one, asked for what it has stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sibling {
    /// Where it listens.
    pub upstream: Upstream,
    /// Where it answers ICP.
    pub icp_port: u16,
}

/// A site of the reverse proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// In small letters; `*` is any.
    pub hosts: Vec<String>,
    /// What the path begins with.
    pub path: String,
    /// At least one.
    pub origins: Vec<Upstream>,
    /// Sent as Host instead of the client's.
    pub host: Option<Authority>,
    /// Asked for to see whether an origin lives, and how often.
    pub health: Option<(PathAndQuery, Duration)>,
}

/// All that the operator decided. What each means is told in `default.toml`.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "default.toml tells each of them, with unit and default")]
pub struct Config {
    pub name: String,
    pub loops: usize,
    pub drain: Duration,
    pub forward_listen: Vec<SocketAddr>,
    pub connect_ports: Vec<u16>,
    pub forward_ports: Vec<u16>,
    pub reverse_listen: Vec<SocketAddr>,
    pub reverse_listen_tls: Vec<SocketAddr>,
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub sites: Vec<Site>,
    pub parents: Vec<Parent>,
    pub parent_choice: Choice,
    pub direct: bool,
    pub siblings: Vec<Sibling>,
    pub icp_listen: Option<SocketAddr>,
    pub icp_clients: Vec<Network>,
    pub icp_time: Duration,
    pub directories: Vec<PathBuf>,
    pub size_bytes: u64,
    pub object_mean_bytes: u32,
    pub object_max_bytes: u64,
    pub memory_bytes_max: u64,
    pub fill_window_bytes: u64,
    pub behind_max_bytes: u64,
    pub clerks: usize,
    pub verify_one_in: u32,
    pub admission: Admission,
    pub finish_bytes: u64,
    pub policy: Policy,
    pub collapse_wait: Duration,
    pub pass: Duration,
    pub prefetch: bool,
    pub prefetch_hosts: PrefetchHosts,
    pub prefetch_page_objects_max: usize,
    pub prefetch_in_flight_max: usize,
    pub prefetch_page_max_bytes: u64,
    pub prefetch_object_max_bytes: u64,
    pub head_max_bytes: usize,
    pub body_max_bytes: Option<u64>,
    pub connections_max: usize,
    pub connections_per_client_max: usize,
    pub head_time: Duration,
    pub idle_time: Duration,
    pub stall_time: Duration,
    pub tunnel_idle_time: Duration,
    pub connect_time: Duration,
    pub reply_time: Duration,
    pub upstream_idle_time: Duration,
    pub upstream_idle_max: usize,
    pub retries: u32,
    pub dns_time: Duration,
    pub down_time: Duration,
    pub clients: Vec<Network>,
    pub methods: Vec<Method>,
    pub upgrades: Vec<String>,
    pub hosts: Vec<String>,
    pub hosts_denied: Vec<String>,
    pub purge: Vec<Network>,
    pub admin_listen: Option<SocketAddr>,
    pub admin_user: String,
    pub admin_password: String,
    pub log_file: Option<PathBuf>,
    pub log_format: LogFormat,
    pub log_rotate_bytes: Option<u64>,
    pub log_keep: u32,
    /// As it was written, for printing.
    pub(super) table: toml::Table,
}

/// Collects what is wrong, so that all of it is told at once.
#[derive(Default)]
struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, key: &str, what: impl Into<String>) {
        self.0.push(Problem { key: key.to_owned(), what: what.into() });
    }

    /// Each of a list read, or told as wrong.
    fn each<T>(&mut self, key: &str, texts: &[String], read: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        let mut good = Vec::new();
        for text in texts {
            match read(text) {
                Ok(value) => good.push(value),
                Err(what) => self.add(key, format!("has {what}")),
            }
        }
        good
    }

    fn word<T: Copy>(&mut self, key: &str, text: &str, words: &[(&str, T)]) -> T {
        words.iter().find(|(word, _)| *word == text).map_or_else(
            || {
                let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                self.add(key, format!("is `{text}`, and should be one of {}", names.join(", ")));
                words[0].1
            },
            |(_, value)| *value,
        )
    }

    fn at_least(&mut self, key: &str, given: u64, least: u64) {
        if given < least {
            self.add(key, format!("is {given}, and should be at least {least}"));
        }
    }
}

pub(super) fn check(raw: Raw, table: toml::Table) -> Result<Config, ConfigError> {
    let mut wrong = Problems::default();
    let Raw {
        proxy,
        forward,
        reverse,
        cache,
        rules,
        collapse,
        prefetch,
        limits,
        upstream,
        parents,
        icp,
        access,
        admin,
        log,
        ..
    } = &raw;
    if !is_token(proxy.name.as_bytes()) {
        wrong.add("proxy.name", format!("is `{}`, and should be one word of letters and digits", proxy.name));
    }
    let forward_listen = wrong.each("forward.listen", &forward.listen, address);
    let reverse_listen = wrong.each("reverse.listen", &reverse.listen, address);
    let reverse_listen_tls = wrong.each("reverse.listen_tls", &reverse.listen_tls, address);
    let listening: Vec<SocketAddr> = [&forward_listen[..], &reverse_listen, &reverse_listen_tls].concat();
    if forward.listen.is_empty() && reverse.listen.is_empty() && reverse.listen_tls.is_empty() {
        wrong.add(
            "forward.listen",
            "and reverse.listen are empty; give an address, as --listen 127.0.0.1:3128",
        );
    }
    let clients = wrong.each("access.clients", &access.clients, str::parse);
    let others = listening.iter().find(|address| !address.ip().to_canonical().is_loopback());
    if let Some(address) = others
        && access.clients.is_empty()
    {
        let what = format!(
            "is empty while {address} can be reached from other machines; list the networks that are served, \
             as [\"192.168.0.0/16\"], or [\"0.0.0.0/0\"] for everybody"
        );
        wrong.add("access.clients", what);
    }
    if !reverse_listen_tls.is_empty() && (reverse.certificate.is_empty() || reverse.key.is_empty()) {
        wrong.add("reverse.certificate", "and reverse.key must name files when there is listen_tls");
    }
    if raw.site.is_empty() && !(reverse_listen.is_empty() && reverse_listen_tls.is_empty()) {
        wrong.add("site", "is missing: a reverse proxy needs at least one [[site]] with hosts and origins");
    }
    let sites = raw.site.iter().map(|raw| site(raw, &mut wrong)).collect();
    let mut parent_list = Vec::new();
    for raw in &raw.parent {
        match address_or_name(&raw.address) {
            Ok(upstream) => parent_list.push(Parent { upstream, icp_port: raw.icp_port }),
            Err(what) => wrong.add("parent.address", what),
        }
    }
    let mut siblings = Vec::new();
    for raw in &raw.sibling {
        match address_or_name(&raw.address) {
            Ok(_) if raw.icp_port == 0 => {
                wrong.add("sibling.icp_port", "is 0, and should be the UDP port that it answers at, as 3130");
            }
            Ok(upstream) => siblings.push(Sibling { upstream, icp_port: raw.icp_port }),
            Err(what) => wrong.add("sibling.address", what),
        }
    }
    let icp_listen = match icp.listen.as_str() {
        "" => None,
        text => address(text).map_err(|what| wrong.add("icp.listen", format!("is {what}"))).ok(),
    };
    let icp_clients = wrong.each("icp.clients", &icp.clients, str::parse);
    if icp_listen.is_some_and(|address| !address.ip().to_canonical().is_loopback())
        && icp.clients.is_empty()
        && access.clients.is_empty()
    {
        let what = format!(
            "and access.clients are empty while {} can be reached from other machines; list the caches that may ask, \
             as [\"192.168.0.7\"]",
            icp.listen
        );
        wrong.add("icp.clients", what);
    }
    if cache.directories.is_empty() {
        wrong.add("cache.directories", "is empty; name a directory, as --cache DIR");
    }
    wrong.at_least("cache.size_mib", cache.size_mib, 8);
    wrong.at_least("cache.object_mean_bytes", cache.object_mean_bytes.into(), 64);
    wrong.at_least("cache.fill_window_kib", cache.fill_window_kib, 64);
    wrong.at_least("cache.clerks", cache.clerks as u64, 1);
    wrong.at_least("cache.verify_one_in", cache.verify_one_in.into(), 1);
    wrong.at_least("prefetch.page_objects_max", prefetch.page_objects_max as u64, 1);
    wrong.at_least("prefetch.in_flight_max", prefetch.in_flight_max as u64, 1);
    if prefetch.page_max_kib > PAGE_KIB_MAX {
        let what = format!(
            "is {}, and should be at most {PAGE_KIB_MAX}: longer replies are not kept in memory until their end",
            prefetch.page_max_kib
        );
        wrong.add("prefetch.page_max_kib", what);
    }
    wrong.at_least("limits.head_kib", limits.head_kib as u64, 8);
    for (key, seconds) in [
        ("limits.head_s", limits.head_s),
        ("limits.idle_s", limits.idle_s),
        ("limits.stall_s", limits.stall_s),
        ("icp.timeout_ms", icp.timeout_ms),
        ("upstream.connect_ms", upstream.connect_ms),
        ("upstream.reply_s", upstream.reply_s),
    ] {
        wrong.at_least(key, seconds, 1);
    }
    let admin_listen = match admin.listen.as_str() {
        "" => None,
        text => address(text).map_err(|what| wrong.add("admin.listen", format!("is {what}"))).ok(),
    };
    if admin_listen.is_some_and(|address| !address.ip().is_loopback()) && admin.password.is_empty() {
        wrong.add("admin.password", "is empty while other machines can reach admin.listen");
    }
    if log.rotate_mib > 0 && log.file == "-" {
        let what = format!(
            "is {}, but log.file is standard output, which is not put aside; set it to 0",
            log.rotate_mib
        );
        wrong.add("log.rotate_mib", what);
    }
    wrong.at_least("limits.tunnel_idle_s", limits.tunnel_idle_s, 1);
    let policy = Policy {
        heuristic_percent: rules.heuristic_percent,
        heuristic_max_s: rules.heuristic_max_s,
        lifetime_max_s: rules.lifetime_max_s,
        negative_s: rules.negative_s,
        set_cookie: wrong.word(
            "rules.set_cookie",
            &rules.set_cookie,
            &[
                ("told", SetCookie::WhenToldByOrigin),
                ("refuse", SetCookie::Refuse),
                ("store", SetCookie::Store),
            ],
        ),
        targets: wrong.each("rules.targets", &rules.targets, |name| {
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("`{name}`, which is no field's name"))
        }),
        client_reload: rules.client_reload,
        stale_if_error_s: rules.stale_if_error_s,
        stale_while_revalidate_s: rules.stale_while_revalidate_s,
        age_errors: wrong.word(
            "rules.age_errors",
            &rules.age_errors,
            &[("ignore", AgeErrors::Ignore), ("stale", AgeErrors::Stale)],
        ),
        foreign_304: wrong.word(
            "rules.foreign_304",
            &rules.foreign_304,
            &[("fetch", Foreign304::FetchAgain), ("keep", Foreign304::KeepStoredTag)],
        ),
    };
    // As what clients name is spelt: names without the dot of the root, addresses in their one spelling.
    let plain = |host: &String| {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match bare.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().to_string(),
            Err(_) => host.trim_end_matches('.').to_ascii_lowercase(),
        }
    };
    let lower = |hosts: &[String]| hosts.iter().map(plain).collect();
    let config = Config {
        name: proxy.name.clone(),
        loops: proxy.loops,
        drain: Duration::from_secs(proxy.drain_s),
        forward_listen,
        connect_ports: forward.connect_ports.clone(),
        forward_ports: forward.ports.clone(),
        reverse_listen,
        reverse_listen_tls,
        certificate: reverse.certificate.clone().into(),
        key: reverse.key.clone().into(),
        sites,
        parents: parent_list,
        parent_choice: wrong.word(
            "parents.choose",
            &parents.choose,
            &[("failover", Choice::Failover), ("hash", Choice::Hash)],
        ),
        direct: parents.direct,
        siblings,
        icp_listen,
        icp_clients,
        icp_time: Duration::from_millis(icp.timeout_ms),
        directories: cache.directories.iter().map(PathBuf::from).collect(),
        size_bytes: cache.size_mib << 20,
        object_mean_bytes: cache.object_mean_bytes,
        object_max_bytes: cache.object_max_kib << 10,
        fill_window_bytes: cache.fill_window_kib << 10,
        memory_bytes_max: cache.memory_mib << 20,
        behind_max_bytes: cache.behind_max_kib << 10,
        clerks: cache.clerks,
        verify_one_in: cache.verify_one_in,
        admission: wrong.word(
            "cache.admission",
            &cache.admission,
            &[("all", Admission::All), ("second", Admission::Second)],
        ),
        finish_bytes: cache.finish_kib << 10,
        policy,
        collapse_wait: Duration::from_millis(collapse.wait_ms),
        pass: Duration::from_secs(collapse.pass_s),
        prefetch: prefetch.enabled,
        prefetch_hosts: wrong.word(
            "prefetch.hosts",
            &prefetch.hosts,
            &[("own", PrefetchHosts::Own), ("all", PrefetchHosts::All)],
        ),
        prefetch_page_objects_max: prefetch.page_objects_max,
        prefetch_in_flight_max: prefetch.in_flight_max,
        prefetch_page_max_bytes: prefetch.page_max_kib << 10,
        prefetch_object_max_bytes: prefetch.object_max_kib << 10,
        head_max_bytes: limits.head_kib << 10,
        body_max_bytes: (limits.body_mib > 0).then_some(limits.body_mib << 20),
        connections_max: no_limit(limits.connections),
        connections_per_client_max: no_limit(limits.connections_per_client),
        head_time: Duration::from_secs(limits.head_s),
        idle_time: Duration::from_secs(limits.idle_s),
        stall_time: Duration::from_secs(limits.stall_s),
        tunnel_idle_time: Duration::from_secs(limits.tunnel_idle_s),
        connect_time: Duration::from_millis(upstream.connect_ms),
        reply_time: Duration::from_secs(upstream.reply_s),
        upstream_idle_time: Duration::from_secs(upstream.idle_s),
        upstream_idle_max: upstream.idle_per_origin,
        retries: upstream.retries,
        dns_time: Duration::from_secs(upstream.dns_s),
        down_time: Duration::from_secs(upstream.down_s),
        clients,
        methods: wrong.each("access.methods", &access.methods, |name| {
            Method::from_bytes(name.as_bytes()).map_err(|_| format!("`{name}`, which is no method"))
        }),
        upgrades: wrong.each("access.upgrades", &access.upgrades, |name| match is_token(name.as_bytes()) {
            true => Ok(name.to_ascii_lowercase()),
            false => Err(format!("`{name}`, which is no protocol's name such as websocket")),
        }),
        hosts: lower(&access.hosts),
        hosts_denied: lower(&access.hosts_denied),
        purge: wrong.each("access.purge", &access.purge, str::parse),
        admin_listen,
        admin_user: admin.user.clone(),
        admin_password: admin.password.clone(),
        log_file: (!log.file.is_empty()).then(|| log.file.clone().into()),
        log_format: wrong.word(
            "log.format",
            &log.format,
            &[
                ("squid", LogFormat::Squid),
                ("common", LogFormat::Common),
                ("combined", LogFormat::Combined),
                ("json", LogFormat::Json),
            ],
        ),
        log_rotate_bytes: (log.rotate_mib > 0).then_some(log.rotate_mib << 20),
        log_keep: log.keep,
        table,
    };
    if wrong.0.is_empty() { Ok(config) } else { Err(ConfigError { problems: wrong.0 }) }
}

/// What `server::pump` keeps of a reply until its end.
const PAGE_KIB_MAX: u64 = crate::server::KEPT_BYTES_MAX >> 10;

/// Of an empty list only this machine is part.
fn lists(networks: &[Network], address: IpAddr) -> bool {
    match networks {
        [] => address.to_canonical().is_loopback(),
        networks => networks.iter().any(|network| network.contains(address)),
    }
}

fn no_limit(given: usize) -> usize {
    if given == 0 { usize::MAX } else { given }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("`{text}`, which is no ADDRESS:PORT such as 127.0.0.1:3128 or [::1]:0"))
}

fn address_or_name(text: &str) -> Result<Upstream, String> {
    let wrong = || format!("is `{text}`, and should be HOST:PORT");
    let authority: Authority = text.parse().map_err(|_| wrong())?;
    let port = authority.port_u16().ok_or_else(wrong)?;
    Ok(Upstream { host: host_of(&authority), port, tls: false })
}

/// Without the brackets of IPv6, in small letters.
fn host_of(authority: &Authority) -> String {
    authority.host().trim_matches(['[', ']']).to_ascii_lowercase()
}

impl Config {
    /// Whether an address is one of those whose clients are served.
    pub fn serves(&self, address: IpAddr) -> bool {
        lists(&self.clients, address)
    }

    /// Whether a cache at this address is answered when it asks by ICP.
    pub fn may_ask_by_icp(&self, address: IpAddr) -> bool {
        lists(if self.icp_clients.is_empty() { &self.clients } else { &self.icp_clients }, address)
    }

    /// Of `cache.behind_max_kib`: what may wait for the clerks. The rest waits in the store, of which a half is being written
    /// while the other fills.
    pub fn clerks_behind_bytes(&self) -> u64 {
        self.behind_max_bytes / 2
    }

    /// Of `cache.behind_max_kib`: what the store may hold unwritten.
    pub fn store_behind_bytes(&self) -> u64 {
        self.behind_max_bytes - self.clerks_behind_bytes()
    }
}

impl Upstream {
    /// Of an absolute URI's scheme, host and port.
    pub fn of(uri: &Uri) -> Option<Self> {
        let tls = match uri.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let authority = uri.authority()?;
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        Some(Self { host: host_of(authority), port, tls })
    }

    /// `host:port`, with brackets for IPv6.
    pub fn authority(&self) -> String {
        match self.host.parse::<IpAddr>() {
            Ok(IpAddr::V6(_)) => format!("[{}]:{}", self.host, self.port),
            _ => format!("{}:{}", self.host, self.port),
        }
    }
}

fn site(raw: &raw::Site, wrong: &mut Problems) -> Site {
    if raw.hosts.is_empty() {
        wrong.add("site.hosts", "is empty; name the hosts of the site, or \"*\"");
    }
    if raw.origins.is_empty() {
        wrong.add("site.origins", "is empty; name at least one, as http://10.0.0.1:8080");
    }
    let path = if raw.path.is_empty() { "/".to_owned() } else { raw.path.clone() };
    if !path.starts_with('/') {
        wrong.add("site.path", format!("is `{path}`, and should begin with a slash"));
    }
    let origins = wrong.each("site.origins", &raw.origins, |text| {
        let uri: Option<Uri> = text.parse().ok().filter(|uri: &Uri| ["", "/"].contains(&uri.path()));
        uri.and_then(|uri| Upstream::of(&uri))
            .ok_or_else(|| format!("`{text}`, which is no origin such as http://10.0.0.1:8080"))
    });
    let host = match raw.host.as_str() {
        "" => None,
        text => {
            text.parse().map_err(|_| wrong.add("site.host", format!("is `{text}`, which is no host"))).ok()
        }
    };
    let health = match raw.health_path.as_str() {
        "" => None,
        text => match text.parse::<PathAndQuery>() {
            Ok(path) if text.starts_with('/') => {
                Some((path, Duration::from_secs(raw.health_s.unwrap_or(5).max(1))))
            }
            _ => {
                wrong.add("site.health_path", format!("is `{text}`, and should be a path such as /health"));
                None
            }
        },
    };
    let hosts = raw.hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
    Site { hosts, path, origins, host, health }
}
