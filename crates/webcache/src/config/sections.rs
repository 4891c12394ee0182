//! Every key of the file, by section. This is the one place that declares a key's name, unit, default, range, meaning, and whether a
//! change needs a restart. The default file, `--print-config`, checks and reloads all come from here.
//!
//! ```text
//! "section" Struct [lines above the section's head] {
//!     /// the description that is printed
//!     field: Type = reader, "key": key(default) with its bounds;
//! } [lines after the section's last key]
//! ```
//!
//! Always holds: the fields and keys of a section are in the same order.
//! Not here: conditions across several keys (`checked`).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, Method};
use http_cache_rules::policy::{AgeErrors, Foreign304, SetCookie};
use toml::Table;

use super::key::*;
use super::network::Network;
use super::problem::Problems;
use super::words::{Admission, Choice, ForwardedFor, Internal, LogFormat, PrefetchHosts};

/// A section of the file.
pub struct Section {
    /// In brackets.
    pub name: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
    /// Lines above its head.
    pub above: &'static [&'static str],
    /// Lines after its last key.
    pub below: &'static [&'static str],
}

macro_rules! sections {
    ($(
        #[doc = $about:literal]
        $section:literal $Struct:ident [$($above:literal,)*] {$(
            $(#[doc = $text:literal])*
            $field:ident: $type:ty = $read:ident, $key:literal: $known:expr;
        )*} [$($below:literal,)*]
    )*) => {
        /// All sections, in the order of the file.
        pub const SECTIONS: &[Section] = &[$(Section {
            name: $section,
            keys: $Struct::KEYS,
            above: &[$($above,)*],
            below: &[$($below,)*],
        },)*];

        $(
            #[doc = $about]
            #[derive(Clone, Debug)]
            #[allow(missing_docs, reason = "some keys share a comment")]
            pub struct $Struct {
                $($(#[doc = $text])* pub $field: $type,)*
            }

            impl $Struct {
                const KEYS: &[Key] = &[$(
                    $known.named($key, concat!($section, ".", $key)).means(&[$($text,)*]),
                )*];

                /// Reads the section and collects what is wrong with it.
                pub(super) fn read(table: &Table, wrong: &mut Problems) -> Self {
                    let reader = &mut Reader { section: $section, keys: Self::KEYS.iter(), table, wrong };
                    Self { $($field: $read(reader),)* }
                }
            }
        )*
    };
}

sections! {
    /// Its name, its threads, its end.
    "proxy" Proxy [
        "# Configuration of `crumb proxy`: every key with its default. Your own file needs only the keys that differ.",
        "# Sizes and times have their unit in the name. `crumb proxy --print-config` prints the configuration in use.",
        "",
    ] {
        /// Name of this proxy in Via, Cache-Status and X-Cache: a token. A request whose Via contains it has looped and is refused (508), so
        /// two proxies in a row need different names. Empty: "crumb", and in Via a name that each start makes up, such as
        /// crumb-5d1f08a3.
        name: String = name, "name": key(r#""""#);
        /// Event loops, each a thread with its own listening sockets. 0: one per CPU, or four per CPU where the kernel offers no
        /// io_uring and a loop blocks while it reads from a disk.
        loops: usize = number, "loops": key("0").within(0, THREADS_MAX).restart();
        /// Seconds that connections may take to end after SIGTERM before they are cut.
        drain: Duration = seconds, "drain_s": key("30").within(0, TIME_MAX);
    } []
    /// Clients that name whole URLs.
    "forward" Forward [
        "",
    ] {
        /// Addresses for clients that name complete URLs (a proxy in their settings). Port 0 picks a free one.
        listen: Vec<SocketAddr> = addresses, "listen": key("[]").restart();
        /// Ports that CONNECT may reach. Empty: CONNECT is refused.
        connect_ports: Vec<u16> = ports, "connect_ports": key("[443]");
        /// Ports that plain requests may reach. Empty: all.
        ports: Vec<u16> = ports, "ports": key("[]");
    } []
    /// Clients that take the proxy for a site.
    "reverse" Reverse [
        "",
    ] {
        /// Addresses for clients that take this proxy for the site itself, plain and with TLS (HTTP/1.1 and HTTP/2).
        listen: Vec<SocketAddr> = addresses, "listen": key("[]").restart();
        listen_tls: Vec<SocketAddr> = addresses, "listen_tls": key("[]").restart();
        /// PEM files: the certificate chain and the private key. Required with listen_tls.
        certificate: PathBuf = path, "certificate": key(r#""""#);
        key: PathBuf = path, "key": key(r#""""#);
        /// X-Forwarded-For to origins: "append" the client's address, "replace" the field by it, "keep" the field as the client sent it, or
        /// "remove" the field. Origins that trust the first address in it need "replace".
        forwarded_for: ForwardedFor = word, "x_forwarded_for": key(r#""append""#);
    } [
        "# Sites are tables; the first one that matches a request serves it:",
        "# [[site]]",
        "# hosts = [\"www.example.org\"]          # as in Host, without port; \"*\" matches any",
        "# path = \"/\"                           # prefix of the path; default \"/\"",
        "# origins = [\"http://10.0.0.1:8080\"]   # used in rotation; https:// works too",
        "# host = \"\"                            # Host sent to the origin; default the client's",
        "# health_path = \"\"                     # requested every health_s seconds; default: no checks",
        "# health_s = 5                         # seconds between checks; default 5",
    ]
    /// The store.
    "cache" Cache [
        "",
    ] {
        /// Cache directories, ideally one per disk; created if missing.
        directories: Vec<PathBuf> = paths, "directories": key("[]").restart();
        /// Space to use in each directory, in MiB. Used only when the store is created.
        size_bytes: u64 = mib, "size_mib": key("1024").within(8, BYTES_MAX >> 20).restart();
        /// Mean body size in bytes that the index in memory is dimensioned for (11 bytes of memory per object: 9.2 to find it, 1.8 to recognize
        /// evicted ones). Used only when the store is created.
        object_mean_bytes: u32 = number, "object_mean_bytes": key("8192").within(64, U32_MAX).restart();
        /// Pass larger replies on without storing them, in KiB.
        object_max_bytes: u64 = kib, "object_max_kib": key("1048576").within(0, BYTES_MAX >> 10);
        /// Do the same for replies larger than this share of a directory's space: 16 means a sixteenth. A reply of unknown length is stored as
        /// it arrives and dropped when it exceeds this, which bounds the space that it evicts. 1: the whole directory.
        object_max_one_in: u64 = number, "object_max_one_in": key("16").within(1, ANY_MAX);
        /// Memory for recently requested replies, in MiB, in addition to the page cache. 0: none.
        memory_bytes_max: u64 = mib, "memory_mib": key("64").within(0, BYTES_MAX >> 20).restart();
        /// Buffer for the body of one reply while it is received, in KiB. A client that falls further behind continues from the store.
        fill_window_bytes: u64 = kib, "fill_window_kib": key("1024").within(64, BYTES_MAX >> 10);
        /// Space for replies that wait to be written, heads and bodies, in KiB. One half is for replies that wait for a writer: when it is
        /// full, further replies are passed on without being stored. The other half is the store's. Memory use is up to twice this.
        behind_bytes_max: u64 = kib, "behind_max_kib": key("65536").within(0, BYTES_MAX >> 10).restart();
        /// Threads that write to the store.
        writers: usize = number, "writers": key("2").within(1, THREADS_MAX).restart();
        /// Verify the checksum of one in this many bodies that are read. 1: all.
        verify_one_in: u32 = number, "verify_one_in": key("1").within(1, U32_MAX).restart();
        /// "all": store every reply that may be stored. "second": store only replies that were requested before, as far as is
        /// remembered.
        admission: Admission = word, "admission": key(r#""all""#);
        /// When the last client leaves during a reply, finish fetching it if at most this many KiB are missing.
        finish_bytes: u64 = kib, "finish_kib": key("1024").within(0, BYTES_MAX >> 10);
        /// After a crash the store rebuilds its index: two million objects a second if its index files are in the page cache, otherwise after
        /// reading 100 bytes per object. Clients wait for this at most this many milliseconds; objects not found by then are fetched
        /// again. 0: do not wait.
        rebuild_wait: Duration = millis, "rebuild_wait_ms": key("1000").within(0, TIME_MAX);
    } []
    /// What HTTP leaves to the operator (`Policy`).
    "rules" Rules [
        "",
    ] {
        /// Lifetime of a reply without an explicit one, in percent of the time since its last modification.
        heuristic_percent: u8 = number, "heuristic_percent": key("10").within(0, 255);
        /// Upper bound of that lifetime, in seconds.
        heuristic_max_s: u32 = number, "heuristic_max_s": key("86400").within(0, U32_MAX);
        /// Upper bound of every lifetime, in seconds.
        lifetime_max_s: u32 = number, "lifetime_max_s": key("31536000").within(0, U32_MAX);
        /// Lifetime of error replies (4xx, 5xx) without one of their own, in seconds. 0: do not store them.
        negative_s: u32 = number, "negative_s": key("0").within(0, U32_MAX);
        /// Replies that set cookies: "refuse" to store them, "explicit" (store them if the origin explicitly allows shared caches to, by
        /// public, s-maxage or a targeted field), or "store" them like any other.
        set_cookie: SetCookie = word, "set_cookie": key(r#""explicit""#);
        /// Fields that take precedence over Cache-Control, such as "CDN-Cache-Control" (RFC 9213).
        targets: Vec<HeaderName> = field_names, "targets": key("[]");
        /// Whether clients may bypass the cache (reload).
        client_reload: bool = flag, "client_reload": key("true");
        /// Seconds past its lifetime in which a stored reply stands in for a failing origin, if the origin sent no stale-if-error.
        stale_if_error_s: u32 = number, "stale_if_error_s": key("0").within(0, U32_MAX);
        /// Seconds past its lifetime in which a stored reply is served while it is revalidated, if the origin sent no
        /// stale-while-revalidate.
        stale_while_revalidate_s: u32 = number, "stale_while_revalidate_s": key("0").within(0, U32_MAX);
        /// An Age that is not a number: "ignore" it (RFC 9111) or treat the reply as "stale" (RFC 7234, as release 0.4.5 of the public suite
        /// expects).
        age_errors: AgeErrors = word, "age_errors": key(r#""ignore""#);
        /// A 304 with another entity tag than the stored reply's: "fetch" the reply again (RFC 9111) or "keep" the stored one.
        foreign_304: Foreign304 = word, "foreign_304": key(r#""fetch""#);
    } []
    /// Several requests for one reply.
    "collapse" Collapse [
        "",
    ] {
        /// Milliseconds that a request waits for another that is fetching the same reply, before it goes to the origin itself. 0: do not wait.
        wait: Duration = millis, "wait_ms": key("5000").within(0, TIME_MAX);
        /// Seconds for which requests do not wait for a reply that turned out not to be storable.
        pass: Duration = seconds, "pass_s": key("60").within(0, TIME_MAX);
    } []
    /// What pages embed, fetched ahead.
    "prefetch" Prefetch [
        "",
    ] {
        /// Fetch what a page of HTML embeds (images, scripts, style sheets) as soon as the page is stored, before the client requests it.
        /// Origins receive requests that no client may have made, without cookies, marked `Sec-Purpose: prefetch`.
        enabled: bool = flag, "enabled": key("false");
        /// Prefetch from the page's "own" host only, or from "all" hosts that are served.
        hosts: PrefetchHosts = word, "hosts": key(r#""own""#);
        /// Most objects fetched for one page, and at a time for all pages; sixteen times as many may wait.
        page_objects_max: usize = number, "page_objects_max": key("32").within(1, ANY_MAX);
        in_flight_max: usize = number, "in_flight_max": key("16").within(1, ANY_MAX).restart();
        /// Longest page that is scanned, in KiB (at most 256), and longest object that is prefetched, in KiB.
        page_bytes_max: u64 = kib, "page_max_kib": key("128").within(0, PAGE_KIB_MAX).because(": longer replies are not kept in memory until their end");
        object_bytes_max: u64 = kib, "object_max_kib": key("1024").within(0, BYTES_MAX >> 10);
    } []
    /// What one client may take.
    "limits" Limits [
        "",
    ] {
        /// Longest request line and fields together, in KiB (431 above). With HTTP/1 this is their exact length; with HTTP/2 each field counts
        /// 32 bytes more. The same bounds replies, but at least 32 (502 above). A request by HTTP/1 may have 100 fields (431 above), a
        /// reply 256 (502 above).
        head_bytes_max: usize = kib, "head_kib": key("32").within(8, HEAD_KIB_MAX);
        /// Longest request body, in MiB (413 above). 0: no limit.
        body_bytes_max: Option<u64> = mib_or_none, "body_mib": key("0").within(0, BYTES_MAX >> 20);
        /// Bytes of a request body that a client must send per second while the origin waits for them. A client that falls limits.stall_s behind is
        /// cut off (408). 0: one byte every stall_s suffices.
        body_bytes_per_s: u64 = number, "body_bytes_per_s": key("500");
        /// Most client connections, in total and from one address. Further ones are closed at once. 0: no limit.
        connections_max: usize = number_or_any, "connections": key("20000");
        connections_per_client_max: usize = number_or_any, "connections_per_client": key("0");
        /// Seconds from the first byte of a request's head until it must be complete.
        head_time: Duration = seconds, "head_s": key("15").within(1, TIME_MAX);
        /// Seconds that a connection may be idle between requests.
        idle_time: Duration = seconds, "idle_s": key("60").within(1, TIME_MAX);
        /// Seconds without a byte of a request body, or in which a client reads nothing of a reply, before it is cut off. With HTTP/2 this
        /// applies to each request too: to its body, and to a reply of which the client reads nothing for this time multiplied by the
        /// number of active requests on the connection (at least two).
        stall_time: Duration = seconds, "stall_s": key("30").within(1, TIME_MAX);
        /// Seconds without a byte in either direction before a tunnel (CONNECT or an upgrade) ends.
        tunnel_idle_time: Duration = seconds, "tunnel_idle_s": key("900").within(1, TIME_MAX);
    } []
    /// Connections to origins and parents.
    "upstream" Upstream [
        "",
    ] {
        /// Milliseconds to connect to the origin.
        connect_time: Duration = millis, "connect_ms": key("5000").within(1, TIME_MAX);
        /// Seconds from the last byte of a request to the head of its reply, and between two bytes of its body.
        reply_time: Duration = seconds, "reply_s": key("60").within(1, TIME_MAX);
        /// Seconds that an idle connection to an origin is kept for reuse; how many a loop keeps per origin, and in total (some 40 kB each).
        /// Surplus ones are closed, those idle for longest first.
        idle_time: Duration = seconds, "idle_s": key("15").within(0, TIME_MAX);
        idle_per_origin: usize = number, "idle_per_origin": key("32");
        idle_in_all: usize = number, "idle_in_all": key("512");
        /// Further attempts at a repeatable request that got no byte of a reply: other origins first, then new connections. One attempt
        /// on an idle connection that the origin has closed does not count.
        retries: u32 = number, "retries": key("1").within(0, RETRIES_MAX);
        /// Seconds that the addresses of a name are cached.
        dns_time: Duration = seconds, "dns_s": key("60").within(0, TIME_MAX);
        /// Seconds that an origin is skipped after it could not be reached, if there are others.
        down_time: Duration = seconds, "down_s": key("10").within(0, TIME_MAX);
    } []
    /// How parents are used.
    "parents" Parents [
        "",
        "# Parents: caches that forward requests go to instead of origins:",
        "# [[parent]]",
        "# address = \"10.0.0.7:3128\"",
        "# icp_port = 3130                      # UDP port for ICP queries; default 0: it is not queried",
        "# [parents]",
        "# choose = \"failover\"                  # the first that answers, or \"hash\": by URL (rendezvous hashing)",
    ] {
        choose: Choice = word, "choose": key(r#""failover""#);
        /// Whether to go to the origin directly when no parent answers.
        direct: bool = flag, "direct": key("true");
    } []
    /// Questions of other caches.
    "icp" Icp [
        "",
        "# Siblings: forward requests for objects that are not stored here are preceded by ICP queries (RFC 2186) to these caches, and",
        "# the first one with a hit serves the object, from its store only.",
        "# [[sibling]]",
        "# address = \"10.0.0.8:3128\"",
        "# icp_port = 3130",
    ] {
        /// UDP address for ICP queries of other caches, such as "0.0.0.0:3130". Empty: none.
        listen: Option<SocketAddr> = address, "listen": key(r#""""#).restart();
        /// Networks whose ICP queries are answered. Empty: those of access.clients.
        clients: Vec<Network> = networks, "clients": key("[]");
        /// Milliseconds that a request waits for siblings and parents to answer ICP queries. One that is up answers within one millisecond, or
        /// after a disk read; one that left five queries in a row unanswered is not waited for.
        timeout: Duration = millis, "timeout_ms": key("200").within(1, TIME_MAX);
    } []
    /// Who may ask for what.
    "access" Access [
        "",
    ] {
        /// Networks whose clients are served. Empty: only those of this machine, and listening elsewhere is refused.
        clients: Vec<Network> = networks, "clients": key("[]");
        /// Methods that are served. Empty: all but TRACE.
        methods: Vec<Method> = methods, "methods": key("[]");
        /// Protocols that clients may switch to with Upgrade, such as "websocket"; from then on the connection is a tunnel. Empty: none, and
        /// origins are not asked to switch.
        upgrades: Vec<String> = protocols, "upgrades": key("[]");
        /// Hosts that are served on the forward side ("example.org" includes its subdomains). Empty: all.
        hosts: Vec<String> = hosts, "hosts": key("[]");
        /// Hosts that are denied, before anything else. An address in this list is denied also when a name resolves to it.
        hosts_denied: Vec<String> = hosts, "hosts_denied": key("[]");
        /// Whether clients of the forward side may reach internal addresses: loopback, link-local, private and shared ranges (10.0.0.0/8,
        /// 100.64.0.0/10, fc00::/7, ...), multicast, and the metadata addresses of clouds. Each connection is checked by its actual address,
        /// whatever name led there. "deny", "allow", or "auto": denied when forward.listen contains an address other than loopback, as
        /// clients on other machines could otherwise reach what only this machine may. Origins of sites, parents and siblings are not
        /// affected.
        internal: Internal = word, "internal": key(r#""auto""#);
        /// Internal networks that may be reached nevertheless, such as ["10.1.0.0/16"].
        internal_allowed: Vec<Network> = networks, "internal_allowed": key("[]");
        /// Further networks that clients of the forward side may not reach, before anything else.
        destinations_denied: Vec<Network> = networks, "destinations_denied": key("[]");
        /// Networks from which PURGE is accepted.
        purge: Vec<Network> = networks, "purge": key(r#"["127.0.0.0/8", "::1/128"]"#);
    } []
    /// The status page.
    "admin" Admin [
        "",
    ] {
        /// Address of /metrics, the status page at /, POST /purge?url=URL and POST /ban?prefix=URL or ?tag=TAG. Empty: none.
        listen: Option<SocketAddr> = address, "listen": key(r#""""#).restart();
        /// Names of this address besides IP addresses and localhost, such as ["cache.example.org"]. Under any other name a password is
        /// required: a web page could have pointed that name at this address. POST is never accepted from pages of other sites.
        hosts: Vec<String> = host_names, "hosts": key("[]");
        /// Name and password (Basic). Required when other machines can reach the address.
        user: String = text, "user": key(r#""""#);
        password: String = text, "password": key(r#""""#);
    } []
    /// The access log.
    "log" Log [
        "",
    ] {
        /// File of the access log, "-" for standard output, empty for none.
        file: Option<PathBuf> = path_or_none, "file": key(r#""""#);
        /// "squid" (native), "common", "combined" or "json".
        format: LogFormat = word, "format": key(r#""squid""#);
        /// Rotate the log at this size in MiB, keeping `keep` old files as .1, .2, … 0: never; SIGHUP reopens the file.
        rotate_bytes: Option<u64> = mib_or_none, "rotate_mib": key("0").within(0, BYTES_MAX >> 20);
        keep: u32 = number, "keep": key("5").within(0, LOGS_MAX);
    } []
}
