//! The configuration with nothing left to check.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use http::uri::Authority;
use http::{HeaderName, Method};
use http_cache_rules::Policy;
use http_cache_rules::lists::is_token;
use http_cache_rules::policy::{AgeErrors, Foreign304, SetCookie};

use super::bounds;
use super::destinations::Destinations;
use super::network::Network;
use super::problem::{ConfigError, Problems};
use super::raw::Raw;
use super::upstream::{IdleMax, Parent, Sibling, Site, neighbours, site};

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

/// What becomes of X-Forwarded-For on its way to an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardedFor {
    /// The client's address is added.
    Append,
    /// The client's address stands alone.
    Replace,
    /// As the client sent it.
    Keep,
    /// Taken out.
    Remove,
}

/// How a parent is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The first that answers.
    Failover,
    /// By the URL.
    Hash,
}

/// All that the operator decided. What each means is told in `default.toml`.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "default.toml tells each of them, with unit and default")]
pub struct Config {
    pub name: String,
    /// In Via. Empty where each server makes one for itself.
    pub via: String,
    pub loops: usize,
    pub drain: Duration,
    pub forward_listen: Vec<SocketAddr>,
    pub connect_ports: Vec<u16>,
    pub forward_ports: Vec<u16>,
    pub reverse_listen: Vec<SocketAddr>,
    pub reverse_listen_tls: Vec<SocketAddr>,
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub forwarded_for: ForwardedFor,
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
    pub rebuild_wait: Duration,
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
    pub body_bytes_per_s: u64,
    pub connections_max: usize,
    pub connections_per_client_max: usize,
    pub head_time: Duration,
    pub idle_time: Duration,
    pub stall_time: Duration,
    pub tunnel_idle_time: Duration,
    pub connect_time: Duration,
    pub reply_time: Duration,
    pub upstream_idle_time: Duration,
    pub upstream_idle_max: IdleMax,
    pub retries: u32,
    pub dns_time: Duration,
    pub down_time: Duration,
    pub clients: Vec<Network>,
    pub methods: Vec<Method>,
    pub upgrades: Vec<String>,
    pub hosts: Vec<String>,
    pub hosts_denied: Vec<String>,
    pub destinations: Destinations,
    pub purge: Vec<Network>,
    pub admin_listen: Option<SocketAddr>,
    pub admin_hosts: Vec<String>,
    pub admin_user: String,
    pub admin_password: String,
    pub log_file: Option<PathBuf>,
    pub log_format: LogFormat,
    pub log_rotate_bytes: Option<u64>,
    pub log_keep: u32,
    /// As it was written, for printing.
    pub(super) table: toml::Table,
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
    if !proxy.name.is_empty() && !is_token(proxy.name.as_bytes()) {
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
    let (parent_list, siblings) = neighbours(&raw, &mut wrong);
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
    bounds::check(&raw, &mut wrong);
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
    let lower = |hosts: &[String]| hosts.iter().map(plain).collect::<Vec<String>>();
    let hosts_denied = lower(&access.hosts_denied);
    let internal = wrong.word(
        "access.internal",
        &access.internal,
        &[("auto", None), ("deny", Some(true)), ("allow", Some(false))],
    );
    let destinations = Destinations {
        internal_denied: internal.unwrap_or_else(|| serves_others(&forward_listen)),
        internal_is_auto: internal.is_none(),
        internal_allowed: wrong.each("access.internal_allowed", &access.internal_allowed, str::parse),
        denied: wrong
            .each("access.destinations_denied", &access.destinations_denied, str::parse)
            .into_iter()
            .chain(hosts_denied.iter().filter_map(|host| host.parse().ok()))
            .collect(),
    };
    let config = Config {
        name: if proxy.name.is_empty() { NAME.to_owned() } else { proxy.name.clone() },
        via: proxy.name.clone(),
        loops: proxy.loops,
        drain: Duration::from_secs(proxy.drain_s),
        forward_listen,
        connect_ports: forward.connect_ports.clone(),
        forward_ports: forward.ports.clone(),
        reverse_listen,
        reverse_listen_tls,
        certificate: reverse.certificate.clone().into(),
        key: reverse.key.clone().into(),
        forwarded_for: wrong.word(
            "reverse.x_forwarded_for",
            &reverse.x_forwarded_for,
            &[
                ("append", ForwardedFor::Append),
                ("replace", ForwardedFor::Replace),
                ("keep", ForwardedFor::Keep),
                ("remove", ForwardedFor::Remove),
            ],
        ),
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
        object_max_bytes: (cache.object_max_kib << 10)
            .min((cache.size_mib << 20) / cache.object_max_one_in.max(1)),
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
        rebuild_wait: Duration::from_millis(cache.rebuild_wait_ms),
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
        body_bytes_per_s: limits.body_bytes_per_s,
        connections_max: no_limit(limits.connections),
        connections_per_client_max: no_limit(limits.connections_per_client),
        head_time: Duration::from_secs(limits.head_s),
        idle_time: Duration::from_secs(limits.idle_s),
        stall_time: Duration::from_secs(limits.stall_s),
        tunnel_idle_time: Duration::from_secs(limits.tunnel_idle_s),
        connect_time: Duration::from_millis(upstream.connect_ms),
        reply_time: Duration::from_secs(upstream.reply_s),
        upstream_idle_time: Duration::from_secs(upstream.idle_s),
        upstream_idle_max: IdleMax { per_origin: upstream.idle_per_origin, in_all: upstream.idle_in_all },
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
        hosts_denied,
        destinations,
        purge: wrong.each("access.purge", &access.purge, str::parse),
        admin_listen,
        admin_hosts: wrong.each("admin.hosts", &admin.hosts, |text| match is_host_name(text) {
            true => Ok(text.trim_end_matches('.').to_ascii_lowercase()),
            false => Err(format!("`{text}`, which is no name without a port such as cache.example.org")),
        }),
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

/// In Cache-Status where the operator gave none.
const NAME: &str = "crumb";

/// Of an empty list only this machine is part.
fn lists(networks: &[Network], address: IpAddr) -> bool {
    match networks {
        [] => address.to_canonical().is_loopback(),
        networks => networks.iter().any(|network| network.contains(address)),
    }
}

/// Whether a text is a host's name and nothing else: no port, no path.
fn is_host_name(text: &str) -> bool {
    !text.is_empty() && text.parse::<Authority>().is_ok_and(|authority| authority.host() == text)
}

/// Whether clients of other machines may come by one of these.
fn serves_others(listen: &[SocketAddr]) -> bool {
    listen.iter().any(|address| !address.ip().to_canonical().is_loopback())
}

fn no_limit(given: usize) -> usize {
    if given == 0 { usize::MAX } else { given }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("`{text}`, which is no ADDRESS:PORT such as 127.0.0.1:3128 or [::1]:0"))
}

impl Config {
    /// Whether an address is one of those whose clients are served.
    pub fn serves(&self, address: IpAddr) -> bool {
        lists(&self.clients, address)
    }

    /// Listens where `old` does: what a reload does not change, and what follows from it.
    pub(crate) fn listen_as(&mut self, old: &Self) {
        self.forward_listen.clone_from(&old.forward_listen);
        if self.destinations.internal_is_auto {
            self.destinations.internal_denied = serves_others(&self.forward_listen);
        }
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
