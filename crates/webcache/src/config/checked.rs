//! The checked configuration.

use std::net::{IpAddr, SocketAddr};

use http_cache_rules::Policy;
use toml::{Table, Value};

use super::destinations::Destinations;
use super::network::Network;
use super::problem::{ConfigError, Problems};
use super::sections::{
    Access, Admin, Cache, Collapse, Forward, Icp, Limits, Log, Parents, Prefetch, Proxy, Reverse, Rules,
    SECTIONS, Upstream,
};
use super::upstream::{IdleMax, Parent, Sibling, Site};
use super::words::Internal;
use super::{lists, upstream};

/// The operator's decisions: a field for each section of the file, and what follows from several keys.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each section says what it is for")]
pub struct Config {
    pub proxy: Proxy,
    pub forward: Forward,
    pub reverse: Reverse,
    pub cache: Cache,
    pub collapse: Collapse,
    pub prefetch: Prefetch,
    pub limits: Limits,
    pub upstream: Upstream,
    pub icp: Icp,
    pub access: Access,
    pub admin: Admin,
    pub log: Log,
    /// `[rules]`, as the caching rules take it.
    pub policy: Policy,
    /// The name in Via. Empty where each server makes up its own.
    pub via: String,
    pub sites: Vec<Site>,
    /// `[parents]`.
    pub parent_use: Parents,
    pub parents: Vec<Parent>,
    pub siblings: Vec<Sibling>,
    /// Where clients of the forward side may connect to.
    pub destinations: Destinations,
    /// The TOML, for printing.
    pub(super) table: Table,
}

/// Checks the merged file, whose keys and types are known to be right.
pub(super) fn check(table: Table) -> Result<Config, ConfigError> {
    let lists = lists::Lists::read(&table)?;
    let mut problems = Problems::default();
    let wrong = &mut problems;
    let rules = Rules::read(&table, wrong);
    let (parents, siblings) = upstream::neighbours(&lists, wrong);
    let mut config = Config {
        proxy: Proxy::read(&table, wrong),
        forward: Forward::read(&table, wrong),
        reverse: Reverse::read(&table, wrong),
        cache: Cache::read(&table, wrong),
        collapse: Collapse::read(&table, wrong),
        prefetch: Prefetch::read(&table, wrong),
        limits: Limits::read(&table, wrong),
        upstream: Upstream::read(&table, wrong),
        icp: Icp::read(&table, wrong),
        access: Access::read(&table, wrong),
        admin: Admin::read(&table, wrong),
        log: Log::read(&table, wrong),
        policy: rules.into(),
        via: String::new(),
        sites: lists.site.iter().map(|raw| upstream::site(raw, wrong)).collect(),
        parent_use: Parents::read(&table, wrong),
        parents,
        siblings,
        destinations: Destinations::default(),
        table,
    };
    config.check_listening(wrong);
    config.check_others(wrong);
    config.derive();
    if problems.0.is_empty() { Ok(config) } else { Err(ConfigError { problems: problems.0 }) }
}

impl From<Rules> for Policy {
    fn from(rules: Rules) -> Self {
        Self {
            heuristic_percent: rules.heuristic_percent,
            heuristic_max_s: rules.heuristic_max_s,
            lifetime_max_s: rules.lifetime_max_s,
            negative_s: rules.negative_s,
            set_cookie: rules.set_cookie,
            targets: rules.targets,
            client_reload: rules.client_reload,
            stale_if_error_s: rules.stale_if_error_s,
            stale_while_revalidate_s: rules.stale_while_revalidate_s,
            age_errors: rules.age_errors,
            foreign_304: rules.foreign_304,
        }
    }
}

/// What must hold between several keys, and what follows from them.
impl Config {
    /// Whether the file has a non-empty list under a key, even if it is wrong.
    fn is_said(&self, section: &str, key: &str) -> bool {
        let value = self.table.get(section).and_then(|section| section.get(key));
        value.and_then(|value| value.as_array()).is_some_and(|list| !list.is_empty())
    }

    fn check_listening(&self, wrong: &mut Problems) {
        let reverse_listens = [("reverse", "listen"), ("reverse", "listen_tls")];
        let listens = self.is_said("forward", "listen")
            || reverse_listens.iter().any(|(at, key)| self.is_said(at, key));
        if !listens {
            wrong.add(
                "forward.listen",
                "and reverse.listen are empty; give an address, as --listen 127.0.0.1:3128",
            );
        }
        let listening = [&self.forward.listen, &self.reverse.listen, &self.reverse.listen_tls];
        let others = listening.into_iter().flatten().find(|address| is_for_others(address));
        let no_clients = !self.is_said("access", "clients");
        if let Some(address) = others.filter(|_| no_clients) {
            let what = format!(
                "is empty while {address} can be reached from other machines; list the networks that are served, \
                 as [\"192.168.0.0/16\"], or [\"0.0.0.0/0\"] for everybody"
            );
            wrong.add("access.clients", what);
        }
        let Reverse { listen, listen_tls, certificate, key, .. } = &self.reverse;
        if !listen_tls.is_empty() && (certificate.as_os_str().is_empty() || key.as_os_str().is_empty()) {
            wrong.add("reverse.certificate", "and reverse.key must name files when there is listen_tls");
        }
        if self.sites.is_empty() && !(listen.is_empty() && listen_tls.is_empty()) {
            wrong.add(
                "site",
                "is missing: a reverse proxy needs at least one [[site]] with hosts and origins",
            );
        }
        let icp_for_others = self.icp.listen.filter(is_for_others);
        if let Some(address) = icp_for_others.filter(|_| no_clients && !self.is_said("icp", "clients")) {
            let what = format!(
                "and access.clients are empty while {address} can be reached from other machines; list the caches that \
                 may ask, as [\"192.168.0.7\"]"
            );
            wrong.add("icp.clients", what);
        }
    }

    fn check_others(&self, wrong: &mut Problems) {
        if self.cache.directories.is_empty() {
            wrong.add("cache.directories", "is empty; name a directory, as --cache DIR");
        }
        if self.cache.directories.iter().any(|directory| directory.as_os_str().is_empty()) {
            wrong.add("cache.directories", "has an empty name; name a directory, as --cache DIR");
        }
        if self.admin.listen.is_some_and(|address| !address.ip().is_loopback())
            && self.admin.password.is_empty()
        {
            wrong.add("admin.password", "is empty while other machines can reach admin.listen");
        }
        let to_standard_output = self.log.file.as_ref().is_some_and(|file| file.as_os_str() == "-");
        if let Some(bytes) = self.log.rotate_bytes.filter(|_| to_standard_output) {
            let what = format!(
                "is {}, but log.file is standard output, which is not put aside; set it to 0",
                bytes >> 20
            );
            wrong.add("log.rotate_mib", what);
        }
    }

    fn derive(&mut self) {
        self.via.clone_from(&self.proxy.name);
        if self.proxy.name.is_empty() {
            NAME.clone_into(&mut self.proxy.name);
        }
        let share = self.cache.size_bytes / self.cache.object_max_one_in.max(1);
        self.cache.object_max_bytes = self.cache.object_max_bytes.min(share);
        let access = &self.access;
        self.destinations = Destinations {
            internal_denied: match access.internal {
                Internal::Auto => serves_others(&self.forward.listen),
                internal => internal == Internal::Deny,
            },
            internal_is_auto: access.internal == Internal::Auto,
            internal_allowed: access.internal_allowed.clone(),
            denied: (access.destinations_denied.iter().copied())
                .chain(access.hosts_denied.iter().filter_map(|host| host.parse().ok()))
                .collect(),
        };
    }

    /// The keys that differ from `old` and need a restart.
    pub(crate) fn needing_restart(&self, old: &Self) -> Vec<&'static str> {
        let keys = SECTIONS.iter().flat_map(|section| section.keys.iter().map(|key| (section.name, key)));
        let differs = |section: &str, name: &str| {
            let value =
                |config: &Self| config.table.get(section).and_then(|section| section.get(name)).cloned();
            value(self) != value(old)
        };
        keys.filter(|(section, key)| key.needs_restart && differs(section, key.name))
            .map(|(_, key)| key.path)
            .collect()
    }
}

/// The name in Cache-Status if the operator configured none.
const NAME: &str = "crumb";

/// An empty list contains this machine only.
fn has(networks: &[Network], address: IpAddr) -> bool {
    match networks {
        [] => address.to_canonical().is_loopback(),
        networks => networks.iter().any(|network| network.contains(address)),
    }
}

/// Whether clients on other machines can reach one of these addresses.
fn serves_others(listen: &[SocketAddr]) -> bool {
    listen.iter().any(is_for_others)
}

fn is_for_others(address: &SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

impl Config {
    /// Whether clients at this address are served.
    pub fn serves(&self, address: IpAddr) -> bool {
        has(&self.access.clients, address)
    }

    /// Takes over the listening addresses of `old`, which a reload does not change, with what follows from them.
    pub(crate) fn listen_as(&mut self, old: &Self) {
        self.forward.listen.clone_from(&old.forward.listen);
        let said = old.table.get("forward").and_then(|forward| forward.get("listen")).cloned();
        if let (Some(Value::Table(forward)), Some(said)) = (self.table.get_mut("forward"), said) {
            forward.insert("listen".to_owned(), said);
        }
        if self.destinations.internal_is_auto {
            self.destinations.internal_denied = serves_others(&self.forward.listen);
        }
    }

    /// Whether ICP queries from this address are answered.
    pub fn may_ask_by_icp(&self, address: IpAddr) -> bool {
        has(if self.icp.clients.is_empty() { &self.access.clients } else { &self.icp.clients }, address)
    }

    /// How many idle connections a loop keeps.
    pub fn upstream_idle_max(&self) -> IdleMax {
        IdleMax { per_origin: self.upstream.idle_per_origin, in_all: self.upstream.idle_in_all }
    }

    /// The part of `cache.behind_max_kib` that may wait for the store writers. The rest waits in the store, which writes one half of it
    /// while the other fills.
    pub fn writers_behind_bytes(&self) -> u64 {
        self.cache.behind_bytes_max / 2
    }

    /// The part of `cache.behind_max_kib` that the store may hold unwritten.
    pub fn store_behind_bytes(&self) -> u64 {
        self.cache.behind_bytes_max - self.writers_behind_bytes()
    }
}
