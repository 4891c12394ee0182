//! The declaration of a key of the file, and how its value is read.
//!
//! Always holds: a value that cannot be read becomes a problem with its key, and a default stands in until all are reported.
//! Not here: which keys there are (`sections`), and conditions across several of them (`checked`).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::slice::Iter;
use std::str::FromStr;
use std::time::Duration;

use http::uri::Authority;
use http::{HeaderName, Method};
use http_cache_rules::lists::is_token;
use toml::{Table, Value};

use super::network::Network;
use super::problem::{InvalidValue, Problems};

/// A key: name with unit, default, range, whether a change needs a restart, and meaning.
pub struct Key {
    /// Without its section.
    pub name: &'static str,
    /// With its section, as errors name it.
    pub path: &'static str,
    /// The default, as TOML.
    pub default: &'static str,
    /// The lines of its description, without the `#`. Empty when it shares that of the key above.
    pub text: &'static [&'static str],
    /// Whether a change needs a restart.
    pub needs_restart: bool,
    least: u64,
    most: u64,
    /// The reason for the range, for errors.
    because: &'static str,
}

/// A key without a range that a reload applies.
pub(super) const fn key(default: &'static str) -> Key {
    Key { name: "", path: "", default, text: &[], needs_restart: false, least: 0, most: ANY_MAX, because: "" }
}

impl Key {
    pub(super) const fn named(self, name: &'static str, path: &'static str) -> Self {
        Self { name, path, ..self }
    }

    pub(super) const fn within(self, least: u64, most: u64) -> Self {
        Self { least, most, ..self }
    }

    pub(super) const fn because(self, because: &'static str) -> Self {
        Self { because, ..self }
    }

    pub(super) const fn restart(self) -> Self {
        Self { needs_restart: true, ..self }
    }

    pub(super) const fn means(self, text: &'static [&'static str]) -> Self {
        Self { text, ..self }
    }
}

/// Reads the values of one section, in the order of its keys.
pub(super) struct Reader<'a> {
    pub section: &'static str,
    pub keys: Iter<'static, Key>,
    pub table: &'a Table,
    pub wrong: &'a mut Problems,
}

impl Reader<'_> {
    /// The next key and its value. Types were already compared with the defaults'.
    fn next(&mut self) -> (&'static Key, Value) {
        let key = self.keys.next().expect("each field has its key");
        let value = self.table.get(self.section).and_then(|section| section.get(key.name)).cloned();
        (key, value.unwrap_or(Value::Boolean(false)))
    }

    fn wrong(&mut self, key: &Key, what: impl Into<String>) {
        self.wrong.add(key.path, what);
    }

    fn texts<T>(&mut self, read: impl Fn(&str) -> Result<T, InvalidValue>) -> Vec<T> {
        let (key, value) = self.next();
        let mut good = Vec::new();
        for value in value.as_array().into_iter().flatten() {
            let not_text = || InvalidValue(format!("{value}, which is not a text"));
            match value.as_str().ok_or_else(not_text).and_then(&read) {
                Ok(value) => good.push(value),
                Err(invalid) => self.wrong(key, format!("has {invalid}")),
            }
        }
        good
    }
}

/// A set of words and what they mean; the first stands in for an invalid one.
pub(super) trait Word: Copy + 'static {
    const WORDS: &'static [(&'static str, Self)];
}

pub(super) fn word<T: Word>(reader: &mut Reader<'_>) -> T {
    let (key, value) = reader.next();
    let said = value.as_str().unwrap_or_default();
    match T::WORDS.iter().find(|(word, _)| *word == said) {
        Some((_, value)) => *value,
        None => {
            let words: Vec<&str> = T::WORDS.iter().map(|(word, _)| *word).collect();
            reader.wrong(key, format!("is `{said}`, and should be one of {}", words.join(", ")));
            T::WORDS[0].1
        }
    }
}

pub(super) fn text(reader: &mut Reader<'_>) -> String {
    reader.next().1.as_str().unwrap_or_default().to_owned()
}

pub(super) fn name(reader: &mut Reader<'_>) -> String {
    let (key, value) = reader.next();
    let name = value.as_str().unwrap_or_default();
    if !name.is_empty() && !is_token(name.as_bytes()) {
        reader.wrong(key, format!("is `{name}`, and should be one word of letters and digits"));
    }
    name.to_owned()
}

pub(super) fn flag(reader: &mut Reader<'_>) -> bool {
    reader.next().1.as_bool().unwrap_or_default()
}

pub(super) fn number<T: TryFrom<u64> + Default>(reader: &mut Reader<'_>) -> T {
    let (key, value) = reader.next();
    let given = value.as_integer().unwrap_or_default();
    let Key { least, most, because, .. } = key;
    let within = u64::try_from(given).ok().filter(|given| (*least..=*most).contains(given));
    let wanted = match within.map(T::try_from) {
        Some(Ok(number)) => return number,
        _ if i128::from(given) < i128::from(*least) => format!("at least {least}"),
        _ => format!("at most {most}"),
    };
    reader.wrong(key, format!("is {given}, and should be {wanted}{because}"));
    T::default()
}

/// 0 means unlimited.
pub(super) fn number_or_any(reader: &mut Reader<'_>) -> usize {
    match number(reader) {
        0 => usize::MAX,
        given => given,
    }
}

pub(super) fn kib<T: TryFrom<u64> + Default>(reader: &mut Reader<'_>) -> T {
    T::try_from(number::<u64>(reader) << 10).unwrap_or_default()
}

pub(super) fn mib(reader: &mut Reader<'_>) -> u64 {
    number::<u64>(reader) << 20
}

/// 0 means none.
pub(super) fn mib_or_none(reader: &mut Reader<'_>) -> Option<u64> {
    let bytes = mib(reader);
    (bytes > 0).then_some(bytes)
}

pub(super) fn seconds(reader: &mut Reader<'_>) -> Duration {
    Duration::from_secs(number(reader))
}

pub(super) fn millis(reader: &mut Reader<'_>) -> Duration {
    Duration::from_millis(number(reader))
}

pub(super) fn path(reader: &mut Reader<'_>) -> PathBuf {
    text(reader).into()
}

pub(super) fn path_or_none(reader: &mut Reader<'_>) -> Option<PathBuf> {
    let path = path(reader);
    (!path.as_os_str().is_empty()).then_some(path)
}

pub(super) fn paths(reader: &mut Reader<'_>) -> Vec<PathBuf> {
    reader.texts(|text| Ok(text.into()))
}

pub(super) fn ports(reader: &mut Reader<'_>) -> Vec<u16> {
    let (key, value) = reader.next();
    let mut good = Vec::new();
    for value in value.as_array().into_iter().flatten() {
        match value.as_integer().map(u16::try_from) {
            Some(Ok(port)) => good.push(port),
            _ => reader.wrong(key, format!("has {value}, which is not a port: a number of at most 65535")),
        }
    }
    good
}

fn socket_address(text: &str) -> Result<SocketAddr, InvalidValue> {
    text.parse().map_err(|_| {
        InvalidValue(format!("`{text}`, which is not ADDRESS:PORT such as 127.0.0.1:3128 or [::1]:0"))
    })
}

pub(super) fn addresses(reader: &mut Reader<'_>) -> Vec<SocketAddr> {
    reader.texts(socket_address)
}

/// An empty text means none.
pub(super) fn address(reader: &mut Reader<'_>) -> Option<SocketAddr> {
    let (key, value) = reader.next();
    match value.as_str().unwrap_or_default() {
        "" => None,
        text => socket_address(text).map_err(|invalid| reader.wrong(key, format!("is {invalid}"))).ok(),
    }
}

pub(super) fn networks(reader: &mut Reader<'_>) -> Vec<Network> {
    reader.texts(Network::from_str)
}

pub(super) fn field_names(reader: &mut Reader<'_>) -> Vec<HeaderName> {
    reader.texts(|name| {
        HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| InvalidValue(format!("`{name}`, which is not a field name")))
    })
}

pub(super) fn methods(reader: &mut Reader<'_>) -> Vec<Method> {
    reader.texts(|name| {
        Method::from_bytes(name.as_bytes())
            .map_err(|_| InvalidValue(format!("`{name}`, which is not a method")))
    })
}

pub(super) fn protocols(reader: &mut Reader<'_>) -> Vec<String> {
    reader.texts(|name| match is_token(name.as_bytes()) {
        true => Ok(name.to_ascii_lowercase()),
        false => {
            Err(InvalidValue(format!("`{name}`, which is not the name of a protocol such as websocket")))
        }
    })
}

/// In the form that requested hosts are brought to: names without the root's dot, addresses in canonical form.
pub(super) fn hosts(reader: &mut Reader<'_>) -> Vec<String> {
    reader.texts(|host| {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Ok(match bare.parse::<std::net::IpAddr>() {
            Ok(address) => address.to_canonical().to_string(),
            Err(_) => host.trim_end_matches('.').to_ascii_lowercase(),
        })
    })
}

pub(super) fn host_names(reader: &mut Reader<'_>) -> Vec<String> {
    // A host name only: no port, no path.
    let is_name = |text: &str| {
        !text.is_empty() && text.parse::<Authority>().is_ok_and(|authority| authority.host() == text)
    };
    reader.texts(|text| match is_name(text) {
        true => Ok(text.trim_end_matches('.').to_ascii_lowercase()),
        false => Err(InvalidValue(format!(
            "`{text}`, which is not a host name without a port such as cache.example.org"
        ))),
    })
}

/// The largest integer of TOML.
pub(super) const ANY_MAX: u64 = i64::MAX as u64;
/// The largest size of a file.
pub(super) const BYTES_MAX: u64 = i64::MAX as u64;
/// Seconds or milliseconds, so that adding them to the clock cannot overflow.
pub(super) const TIME_MAX: u64 = u32::MAX as u64;
pub(super) const U32_MAX: u64 = u32::MAX as u64;
pub(super) const THREADS_MAX: u64 = 4096;
/// Each connection may hold a head of this length.
pub(super) const HEAD_KIB_MAX: u64 = 64 << 10;
pub(super) const RETRIES_MAX: u64 = 100;
/// A rotation renames all of them.
pub(super) const LOGS_MAX: u64 = 10_000;
/// The longest reply that `server::fetch::body_relay` buffers to its end.
pub(super) const PAGE_KIB_MAX: u64 = crate::server::WHOLE_BODY_BYTES_MAX >> 10;
