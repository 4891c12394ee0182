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
        "# Configuration of `crumb proxy`. Every key is here with its default; a file of your own holds only what differs.",
        "# Sizes and times carry their unit in the name. `crumb proxy --print-config` shows what is in force.",
        "",
    ] {
        /// Name of this proxy in Via, Cache-Status and X-Cache: a token. A request whose Via has it came here before and is refused
        /// (508), so that no two proxies in a row may have the same. Empty: "crumb", and in Via a name that each start makes for itself,
        /// as crumb-5d1f08a3.
        name: String = name, "name": key(r#""""#);
        /// Event loops, each a thread with its own listening socket; 0: one a processor, and four where the kernel has no io_uring for us
        /// and one that waits for a disk holds up its clients.
        loops: usize = number, "loops": key("0").within(0, THREADS_MAX).restart();
        /// Seconds that connections may take to end after SIGTERM before they are cut.
        drain: Duration = seconds, "drain_s": key("30").within(0, TIME_MAX);
    } []
    /// Clients that name whole URLs.
    "forward" Forward [
        "",
    ] {
        /// Addresses for clients that name the whole URL (a proxy in their settings). Port 0 takes a free one.
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
        /// Files in PEM form: the chain of certificates, and the private key. Needed with listen_tls.
        certificate: PathBuf = path, "certificate": key(r#""""#);
        key: PathBuf = path, "key": key(r#""""#);
        /// X-Forwarded-For to origins: "append" the client's address to what the client sent, "replace" that by it, "keep" what the client
        /// sent and add nothing, or "remove" the field. Origins that trust its first address need "replace".
        forwarded_for: ForwardedFor = word, "x_forwarded_for": key(r#""append""#);
    } [
        "# The sites themselves are tables, the first that matches is taken:",
        "# [[site]]",
        "# hosts = [\"www.example.org\"]          # as Host has them, without port; \"*\" is any",
        "# path = \"/\"                           # what the path must begin with; default \"/\"",
        "# origins = [\"http://10.0.0.1:8080\"]   # tried in turn; https:// works too",
        "# host = \"\"                            # Host sent to the origin; default the client's",
        "# health_path = \"\"                     # asked for every health_s seconds; default: no checks",
        "# health_s = 5                         # seconds between checks; default 5",
    ]
    /// The store.
    "cache" Cache [
        "",
    ] {
        /// Directories that share the objects, best one a disk. They are made when they are not there.
        directories: Vec<PathBuf> = paths, "directories": key("[]").restart();
        /// Space used in each directory, in MiB. Only looked at when the store is made.
        size_bytes: u64 = mib, "size_mib": key("1024").within(8, BYTES_MAX >> 20).restart();
        /// Mean body for which the index in memory is laid out, in bytes (11 bytes of memory an object: 9.2 to find it, 1.8 to know again
        /// what had to go). Only looked at when the store is made.
        object_mean_bytes: u32 = number, "object_mean_bytes": key("8192").within(64, U32_MAX).restart();
        /// Larger replies are passed on and not stored, in KiB.
        object_max_bytes: u64 = kib, "object_max_kib": key("1048576").within(0, BYTES_MAX >> 10);
        /// The same for replies larger than this share of a directory's space, one in so many parts of it: 16 is a sixteenth. A reply of
        /// unknown length is stored as it comes and dropped when it turns out longer, so that none makes more room than that. 1: all of it.
        object_max_one_in: u64 = number, "object_max_one_in": key("16").within(1, ANY_MAX);
        /// Replies kept in memory because they were asked for lately, in MiB; the page cache comes besides. 0: none.
        memory_bytes_max: u64 = mib, "memory_mib": key("64").within(0, BYTES_MAX >> 20).restart();
        /// Body of one reply kept in memory while it comes, in KiB: a reader that falls behind further goes on from the disk.
        fill_window_bytes: u64 = kib, "fill_window_kib": key("1024").within(64, BYTES_MAX >> 10);
        /// Replies on their way to the disk, heads and bodies, all together, in KiB: half of it may wait for the clerks, above which
        /// replies are passed on without being stored, and half in the store. They take up to twice as much memory.
        behind_bytes_max: u64 = kib, "behind_max_kib": key("65536").within(0, BYTES_MAX >> 10).restart();
        /// Threads that write to the store.
        writers: usize = number, "clerks": key("2").within(1, THREADS_MAX).restart();
        /// The body's checksum is compared once in so many reads. 1: always.
        verify_one_in: u32 = number, "verify_one_in": key("1").within(1, U32_MAX).restart();
        /// "all": every reply that may be stored is. "second": only what was asked for before, as far as is remembered.
        admission: Admission = word, "admission": key(r#""all""#);
        /// When the last client left before a reply had come whole: it is fetched to its end if no more than so many KiB are missing.
        finish_bytes: u64 = kib, "finish_kib": key("1024").within(0, BYTES_MAX >> 10);
        /// After a kill the store learns anew what it holds: two million objects a second when its index files are in the page cache,
        /// 100 bytes an object read first when they are not. So long, in milliseconds, clients wait for that at most before they are
        /// served: what is not known by then is fetched again. 0: no waiting.
        rebuild_wait: Duration = millis, "rebuild_wait_ms": key("1000").within(0, TIME_MAX);
    } []
    /// What HTTP leaves to the operator (`Policy`).
    "rules" Rules [
        "",
    ] {
        /// Share of a reply's age since its last change for which it is fresh when the origin gave no lifetime, in percent.
        heuristic_percent: u8 = number, "heuristic_percent": key("10").within(0, 255);
        /// The most that this gives, in seconds.
        heuristic_max_s: u32 = number, "heuristic_max_s": key("86400").within(0, U32_MAX);
        /// Longer lifetimes are cut to this, in seconds.
        lifetime_max_s: u32 = number, "lifetime_max_s": key("31536000").within(0, U32_MAX);
        /// Lifetime of errors (4xx, 5xx) that carry none, in seconds. 0: not stored.
        negative_s: u32 = number, "negative_s": key("0").within(0, U32_MAX);
        /// Replies that set cookies: "refuse", "told" (stored when the origin speaks to shared caches) or "store".
        set_cookie: SetCookie = word, "set_cookie": key(r#""told""#);
        /// Fields looked at before Cache-Control, as "CDN-Cache-Control" (RFC 9213).
        targets: Vec<HeaderName> = field_names, "targets": key("[]");
        /// Whether clients may ask past the cache (reload).
        client_reload: bool = flag, "client_reload": key("true");
        /// A stored reply stands in for a failing origin for so long after its lifetime, in seconds, when the origin gave no
        /// stale-if-error.
        stale_if_error_s: u32 = number, "stale_if_error_s": key("0").within(0, U32_MAX);
        /// A stored reply is served while it is validated for so long after its lifetime, in seconds, when the origin gave no
        /// stale-while-revalidate.
        stale_while_revalidate_s: u32 = number, "stale_while_revalidate_s": key("0").within(0, U32_MAX);
        /// An Age that is no number: "ignore" (RFC 9111) or "stale" (RFC 7234, as release 0.4.5 of the public suite has it).
        age_errors: AgeErrors = word, "age_errors": key(r#""ignore""#);
        /// A 304 that names another entity tag than was asked about: "fetch" it anew (RFC 9111) or "keep" the stored one.
        foreign_304: Foreign304 = word, "foreign_304": key(r#""fetch""#);
    } []
    /// Several requests for one reply.
    "collapse" Collapse [
        "",
    ] {
        /// A request for what is being fetched waits for that so long, in milliseconds, then goes to the origin itself. 0: no waiting.
        wait: Duration = millis, "wait_ms": key("5000").within(0, TIME_MAX);
        /// What turned out not to be storable is not waited for again for so long, in seconds.
        pass: Duration = seconds, "pass_s": key("60").within(0, TIME_MAX);
    } []
    /// What pages embed, fetched ahead.
    "prefetch" Prefetch [
        "",
    ] {
        /// Whether what a page of HTML embeds (images, scripts, style sheets) is fetched as soon as the page is stored, before the
        /// client asks for it. Origins see requests that no client may have made, without cookies, marked `Sec-Purpose: prefetch`.
        enabled: bool = flag, "enabled": key("false");
        /// From where: "own", the page's own host, or "all" that are served.
        hosts: PrefetchHosts = word, "hosts": key(r#""own""#);
        /// Objects fetched for one page at most, and for all pages at a time; sixteen times as many may wait.
        page_objects_max: usize = number, "page_objects_max": key("32").within(1, ANY_MAX);
        in_flight_max: usize = number, "in_flight_max": key("16").within(1, ANY_MAX).restart();
        /// Longer pages are not looked through, in KiB (256 at most), and longer objects not fetched to their end, in KiB.
        page_bytes_max: u64 = kib, "page_max_kib": key("128").within(0, PAGE_KIB_MAX).because(": longer replies are not kept in memory until their end");
        object_bytes_max: u64 = kib, "object_max_kib": key("1024").within(0, BYTES_MAX >> 10);
    } []
    /// What one client may take.
    "limits" Limits [
        "",
    ] {
        /// A request's line and fields together, in KiB (431 above). By HTTP/1 this is their length to the byte; by HTTP/2 each field
        /// counts for 32 bytes more. A reply's: the same, but 32 at least (502 above). A request by HTTP/1 has
        /// 100 fields at most (431 above), a reply 256 (502 above).
        head_bytes_max: usize = kib, "head_kib": key("32").within(8, HEAD_KIB_MAX);
        /// Body of a request, in MiB (413 above). 0: no limit.
        body_bytes_max: Option<u64> = mib_or_none, "body_mib": key("0").within(0, BYTES_MAX >> 20);
        /// Bytes of a request's body that a client must send in a second while the origin waits for them. It may lag behind by
        /// limits.stall_s, then it is cut off (408). 0: a byte every stall_s is enough.
        body_bytes_per_s: u64 = number, "body_bytes_per_s": key("500");
        /// Clients' connections at a time, in all and from one address. More are closed at once. 0: no limit.
        connections_max: usize = number_or_any, "connections": key("20000");
        connections_per_client_max: usize = number_or_any, "connections_per_client": key("0");
        /// Seconds in which a request's head must be there from its first byte on.
        head_time: Duration = seconds, "head_s": key("15").within(1, TIME_MAX);
        /// Seconds that a connection may lie idle between requests.
        idle_time: Duration = seconds, "idle_s": key("60").within(1, TIME_MAX);
        /// Seconds without a byte of a request's body, or in which a client takes none of a reply, until it is cut off. Of HTTP/2
        /// each request by itself too: one whose body does not go on, and a reply of which nothing is taken for so long times those
        /// that are under way on the connection (twice at least), though others go on.
        stall_time: Duration = seconds, "stall_s": key("30").within(1, TIME_MAX);
        /// Seconds without a byte either way until a tunnel (CONNECT, or what was upgraded to) ends.
        tunnel_idle_time: Duration = seconds, "tunnel_idle_s": key("900").within(1, TIME_MAX);
    } []
    /// Connections to origins and parents.
    "upstream" Upstream [
        "",
    ] {
        /// Milliseconds for a connection to the origin.
        connect_time: Duration = millis, "connect_ms": key("5000").within(1, TIME_MAX);
        /// Seconds until the head of a reply, from the last byte of the request on, and between two bytes of its body.
        reply_time: Duration = seconds, "reply_s": key("60").within(1, TIME_MAX);
        /// Seconds that a connection to an origin is kept for reuse; how many a loop keeps for one origin, and how many for all (some
        /// 25 KB each): of too many those unused for longest are closed.
        idle_time: Duration = seconds, "idle_s": key("15").within(0, TIME_MAX);
        idle_per_origin: usize = number, "idle_per_origin": key("32");
        idle_in_all: usize = number, "idle_in_all": key("512");
        /// Further attempts at a repeatable request that got no byte of a reply: other origins first, then new connections. One attempt
        /// on an idle connection that the origin has closed does not count.
        retries: u32 = number, "retries": key("1").within(0, RETRIES_MAX);
        /// Seconds that an address is remembered for a name.
        dns_time: Duration = seconds, "dns_s": key("60").within(0, TIME_MAX);
        /// Seconds that an origin is left out after it could not be reached, when there are others.
        down_time: Duration = seconds, "down_s": key("10").within(0, TIME_MAX);
    } []
    /// How parents are used.
    "parents" Parents [
        "",
        "# Caches above this one, asked instead of origins in forward mode:",
        "# [[parent]]",
        "# address = \"10.0.0.7:3128\"",
        "# icp_port = 3130                      # UDP port for questions what it has stored; default 0: it is not asked",
        "# [parents]",
        "# choose = \"failover\"                  # the first that answers, or \"hash\": one for each URL (consistent hashing)",
    ] {
        choose: Choice = word, "choose": key(r#""failover""#);
        /// Whether origins are asked directly when no parent answers.
        direct: bool = flag, "direct": key("true");
    } []
    /// Questions of other caches.
    "icp" Icp [
        "",
        "# Caches beside this one: in forward mode they are asked by ICP (RFC 2186) for what is not stored here, and the first that",
        "# has it gives it, out of its store only.",
        "# [[sibling]]",
        "# address = \"10.0.0.8:3128\"",
        "# icp_port = 3130",
    ] {
        /// Address (UDP) at which other caches may ask what is stored here, as "0.0.0.0:3130". Empty: they may not.
        listen: Option<SocketAddr> = address, "listen": key(r#""""#).restart();
        /// Networks whose caches are answered. Empty: those of access.clients.
        clients: Vec<Network> = networks, "clients": key("[]");
        /// Milliseconds that a request waits for siblings and parents to say whether they have what it asks for. One that is up
        /// says so in one, or after a read of its disk; one that left five questions in a row unanswered is not waited for.
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
        /// Protocols that clients may switch to with Upgrade, as "websocket": bytes both ways from then on, as in a tunnel. Empty:
        /// none, and origins are not asked for any.
        upgrades: Vec<String> = protocols, "upgrades": key("[]");
        /// Hosts that are served in forward mode ("example.org" with its subdomains). Empty: all.
        hosts: Vec<String> = hosts, "hosts": key("[]");
        /// Hosts that are not, before all. An address listed here is denied also where a name leads to it.
        hosts_denied: Vec<String> = hosts, "hosts_denied": key("[]");
        /// Whether clients of the forward side reach internal addresses: loopback, link-local, private and shared ranges (10.0.0.0/8,
        /// 100.64.0.0/10, fc00::/7, ...), multicast, and the addresses at which clouds serve metadata. The very address that is
        /// connected to is judged, each time, whatever name led to it. "deny", "allow", or "auto": denied when forward.listen names
        /// an address that is not loopback, as other machines' clients would reach through this proxy what only this one may.
        /// Origins of sites, parents and siblings are not concerned.
        internal: Internal = word, "internal": key(r#""auto""#);
        /// Networks that are reached although they are internal, as ["10.1.0.0/16"].
        internal_allowed: Vec<Network> = networks, "internal_allowed": key("[]");
        /// Further networks that clients of the forward side do not reach, before all.
        destinations_denied: Vec<Network> = networks, "destinations_denied": key("[]");
        /// Networks from which PURGE is taken.
        purge: Vec<Network> = networks, "purge": key(r#"["127.0.0.0/8", "::1/128"]"#);
    } []
    /// The status page.
    "admin" Admin [
        "",
    ] {
        /// Address of /metrics, the status page at /, POST /purge?url=URL and POST /ban?prefix=URL or ?tag=TAG. Empty: none.
        listen: Option<SocketAddr> = address, "listen": key(r#""""#).restart();
        /// Names by which it is called, besides addresses and localhost, as ["cache.example.org"]. Under any other name it answers only
        /// with a password: a web page could have given that name to this address. POST is never taken from pages of other sites.
        hosts: Vec<String> = host_names, "hosts": key("[]");
        /// Name and password (Basic). Needed when others than this machine can reach it.
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
        /// A file is put aside (as .1, .2, …) at this many MiB, and so many are kept. 0: never by itself; SIGHUP opens it anew.
        rotate_bytes: Option<u64> = mib_or_none, "rotate_mib": key("0").within(0, BYTES_MAX >> 20);
        keep: u32 = number, "keep": key("5").within(0, LOGS_MAX);
    } []
}
