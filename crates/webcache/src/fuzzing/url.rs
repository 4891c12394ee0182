//! Targets, and what becomes of them: keys, references, prefixes of bans.
//!
//! ```text
//! line 1: a whole URL │ line 2: a reference found in its reply │ line 3: a Host that a client of a site makes up
//! ```

use http::{HeaderValue, Method, Request, Uri};
use http_cache_rules::key::{self, CacheKey, Realm};
use toml::Table;

use crate::config::{self, Config};
use crate::server::client::parsed_request::{ParsedRequest, Route, allowed_host};
use crate::server::{Banned, Bans, Side, StoredAt};

thread_local! {
    static CONFIG: Config = config::read(
        "[forward]\nlisten = ['127.0.0.1:0']\n[reverse]\nlisten = ['127.0.0.1:0']\n[cache]\ndirectories = ['/c']\n\
         [[site]]\nhosts = ['*']\norigins = ['http://127.0.0.1:1']\n[access]\nhosts_denied = ['denied.example']\n",
        Table::new(),
    ).expect("a configuration");
}

/// Returns whether the first line has a key.
pub fn url(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let mut lines = text.split('\n');
    let (target, reference, host) = (
        lines.next().unwrap_or_default(),
        lines.next().unwrap_or_default(),
        lines.next().unwrap_or_default(),
    );
    let _never_panics = key::prefix(target);
    CONFIG.with(|config| by_a_site(host, reference, config));
    let Ok(uri) = target.parse::<Uri>() else { return false };
    let Ok(key) = CacheKey::of(&uri) else { return false };
    is_its_own(&key);
    CONFIG.with(|config| by_a_proxy(&uri, &key, config));
    begins_as_its_prefixes(target, &key);
    if let Some(named) = key::resolve(&uri, reference.as_bytes()) {
        is_its_own(&named);
        if reference.starts_with('/') && !reference.starts_with("//") {
            assert_eq!(named.origin(), key.origin(), "{reference} leads to another host");
        }
    }
    true
}

/// Normalised again it is the same.
fn is_its_own(key: &CacheKey) {
    let uri: Uri =
        key.as_str().parse().unwrap_or_else(|error| panic!("{}: no target: {error}", key.as_str()));
    assert_eq!(CacheKey::of(&uri).as_ref(), Ok(key));
    assert!(key.as_str().starts_with(key.origin()));
    assert_eq!(key.as_str().as_bytes().get(key.origin().len()), Some(&b'/'), "{}", key.as_str());
    let host = &key.origin()[key.origin().find("://").expect("a scheme") + 3..];
    assert!(!host.contains('@') && !host.bytes().any(|byte| byte.is_ascii_uppercase()), "{host}");
}

/// What a ban's prefix says begins the keys of all that begins so.
fn begins_as_its_prefixes(target: &str, key: &CacheKey) {
    // A fragment goes to no server; a cut in the host or its port is another host.
    let target = target.split('#').next().unwrap_or_default();
    let Some(host) = target.find("://").map(|at| at + 3) else { return };
    let path = target[host..].find(['/', '?']).map_or(target.len(), |at| host + at);
    for cut in (path..=target.len()).filter(|cut| target.is_char_boundary(*cut)) {
        let prefix = key::prefix(&target[..cut]);
        assert!(
            key.as_str().starts_with(&prefix),
            "{} does not begin with {prefix}, of {}",
            key.as_str(),
            &target[..cut]
        );
    }
    let bans = Bans::parse("").expect("no file");
    let at = http_cache_rules::WallSeconds(100);
    bans.add(Banned::Prefix(target.to_owned()), at, 0).expect("no file");
    let stored = StoredAt { time: at, sequence: 1 };
    assert!(bans.covers(key.as_str(), stored, || None), "{target} does not ban itself");
}

/// As forward proxies are asked.
fn by_a_proxy(uri: &Uri, key: &CacheKey, config: &Config) {
    let (mut parts, ()) = Request::new(()).into_parts();
    (parts.method, parts.uri) = (Method::GET, uri.clone());
    let Ok(parsed) = ParsedRequest::read(parts, Side::Forward, config) else { return };
    assert_eq!((&parsed.key, parsed.key.realm()), (key, Realm::Web));
    let Route::Direct(upstream) = &parsed.route else { panic!("{uri} goes to a site") };
    assert!(allowed_host(&upstream.host, config).is_ok(), "{uri} is not served");
    // Requested there and looked up here: the same host.
    let host = upstream.authority();
    let origin = format!("{}://{host}", if upstream.tls { "https" } else { "http" });
    let origin = CacheKey::of(&origin.parse().expect("an origin is a URI")).expect("an origin has a key");
    assert_eq!(origin.origin(), key.origin(), "{uri}");
}

/// As sites are asked.
fn by_a_site(host: &str, path: &str, config: &Config) {
    let (Ok(host), Ok(uri)) = (HeaderValue::from_str(host), path.parse::<Uri>()) else { return };
    for tls in [false, true] {
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.uri = uri.clone();
        parts.headers.insert(http::header::HOST, host.clone());
        let Ok(parsed) = ParsedRequest::read(parts, Side::Reverse { tls }, config) else { continue };
        assert_eq!(parsed.key.realm(), Realm::Sites, "a made-up Host poisons the web");
        assert!(matches!(parsed.route, Route::Site(0)));
        let own = parsed.key.clone().within(Realm::Web);
        is_its_own(&own);
        assert_eq!(CacheKey::of(&parsed.target), Ok(own));
    }
}
