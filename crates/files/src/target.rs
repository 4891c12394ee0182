//! Target URLs: what storage to drive, in one line a user can type.
//!
//! ```text
//! /path or ./path                                       a local directory
//! nfs://host[:port]/export[?proto=udp|tcp&mountport=N]  an NFSv3 server; no port: ask its portmapper
//! pack:/path or pack:./path                             a packed object store in that directory
//! null:                                                 nothing: answers at once, in this process
//! ```
//!
//! A host is a name, an IPv4 address, or an IPv6 address in brackets. `%20` and the like stand for bytes.

use std::path::PathBuf;

/// Storage to drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A local directory.
    Directory(PathBuf),
    /// An NFSv3 server's export.
    Nfs(NfsTarget),
    /// A packed object store's directory.
    Pack(PathBuf),
    /// Nothing: every request succeeds at once, to measure the generator itself.
    Null,
}

/// An NFSv3 server's export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfsTarget {
    /// Name or address, IPv6 without brackets.
    pub host: String,
    /// NFS port. `None`: ask the portmapper on port 111.
    pub port: Option<u16>,
    /// MOUNT port. `None`: the NFS port when one is given, else ask the portmapper.
    pub mount_port: Option<u16>,
    /// Path to mount, as the server names it; begins with a slash.
    pub export: String,
    /// UDP or TCP. `None`: TCP unless a flag says otherwise.
    pub proto: Option<NfsProto>,
}

/// What carries the calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NfsProto {
    /// Datagrams, retransmitted after a time-out.
    Udp,
    /// A stream with record marking.
    #[default]
    Tcp,
}

/// A text that is not a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// No such kind of target.
    #[error(
        "`{url}`: unknown target kind `{scheme}:`; give /path, nfs://host[:port]/export, pack:/path or null:"
    )]
    Scheme {
        /// The text.
        url: String,
        /// What stands before the colon.
        scheme: String,
    },
    /// An NFS server's export as `mount` has it.
    #[error("`{url}`: for an NFS server write {nfs}; for a directory of that name ./{url}")]
    HostAndPath {
        /// The text.
        url: String,
        /// What was probably meant.
        nfs: String,
    },
    /// The rest of the URL does not fit its kind.
    #[error("`{url}`: {wrong}; {expected}")]
    Form {
        /// The text.
        url: String,
        /// What is wrong.
        wrong: String,
        /// What was expected.
        expected: &'static str,
    },
}

const NFS_FORM: &str = "expected nfs://host[:port]/export[?proto=udp|tcp&mountport=N]";

impl std::str::FromStr for Target {
    type Err = TargetError;

    fn from_str(url: &str) -> Result<Self, TargetError> {
        let form = |wrong: &str, expected| TargetError::Form {
            url: url.to_owned(),
            wrong: wrong.to_owned(),
            expected,
        };
        if url.is_empty() {
            return Err(form("empty target", "give /path, nfs://host[:port]/export, pack:/path or null:"));
        }
        // A path may hold a colon; a scheme is letters only and has no slash before its colon.
        let parts = match url.rsplit_once("]:") {
            Some((host, path)) if host.starts_with('[') && !host.contains('/') => {
                Some((&url[..host.len() + 1], path))
            }
            _ => url.split_once(':'),
        };
        match parts {
            Some(("nfs", rest)) => NfsTarget::parse(url, rest).map(Target::Nfs),
            Some(("pack", "")) => Err(form("`pack:` names no store", "expected pack:/path")),
            Some(("pack", path)) => Ok(Target::Pack(PathBuf::from(path))),
            Some(("null", "")) => Ok(Target::Null),
            Some(("null", _)) => Err(form("`null:` takes nothing after its colon", "expected null:")),
            // As mount and fstab have it.
            Some((host, export))
                if export.starts_with('/')
                    && !export.starts_with("//")
                    && !host.is_empty()
                    && !host.contains('/') =>
            {
                Err(TargetError::HostAndPath { url: url.to_owned(), nfs: format!("nfs://{host}{export}") })
            }
            Some((scheme, _))
                if !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphabetic()) =>
            {
                Err(TargetError::Scheme { url: url.to_owned(), scheme: scheme.to_owned() })
            }
            _ => Ok(Target::Directory(PathBuf::from(url))),
        }
    }
}

impl NfsTarget {
    fn parse(url: &str, rest: &str) -> Result<Self, TargetError> {
        let form = |wrong: String| TargetError::Form { url: url.to_owned(), wrong, expected: NFS_FORM };
        let rest = rest.strip_prefix("//").ok_or_else(|| form("no `//` after `nfs:`".to_owned()))?;
        let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
        let (authority, export) =
            place.split_at(place.find('/').ok_or_else(|| form("no export path".to_owned()))?);
        let (host, port) =
            split_authority(authority).ok_or_else(|| form(format!("`{authority}` is no host")))?;
        if host.is_empty() {
            return Err(form("no host".to_owned()));
        }
        let number = |text: &str, what: &str| match text.parse::<u16>() {
            Ok(port) if port != 0 => Ok(port),
            _ => Err(form(format!("{what} `{text}` is not a number from 1 to 65535"))),
        };
        let export = unescape(export).ok_or_else(|| form("a `%` without two hex digits".to_owned()))?;
        let mut target = Self {
            host: host.to_owned(),
            port: port.map(|port| number(port, "port")).transpose()?,
            mount_port: None,
            export,
            proto: None,
        };
        for pair in query.into_iter().flat_map(|query| query.split('&')).filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("proto", "udp")) => target.proto = Some(NfsProto::Udp),
                Some(("proto", "tcp")) => target.proto = Some(NfsProto::Tcp),
                Some(("proto", other)) => {
                    return Err(form(format!("proto `{other}` is neither udp nor tcp")));
                }
                Some(("mountport", port)) => target.mount_port = Some(number(port, "mountport")?),
                _ => return Err(form(format!("unknown option `{pair}`"))),
            }
        }
        Ok(target)
    }
}

/// `host`, `host:port` or `[v6]:port`.
fn split_authority(authority: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        return match after {
            "" => Some((host, None)),
            _ => Some((host, Some(after.strip_prefix(':')?))),
        };
    }
    match authority.split_once(':') {
        Some((_, port)) if port.contains(':') => None,
        Some((host, port)) => Some((host, Some(port))),
        None => Some((authority, None)),
    }
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                let digits = std::str::from_utf8(&digits)
                    .ok()
                    .filter(|two| two.bytes().all(|b| b.is_ascii_hexdigit()))?;
                u8::from_str_radix(digits, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "{}", path.display()),
            Self::Nfs(nfs) => nfs.fmt(f),
            Self::Pack(path) => write!(f, "pack:{}", path.display()),
            Self::Null => f.write_str("null:"),
        }
    }
}

impl std::fmt::Display for NfsTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "nfs://[{}]", self.host)?
        } else {
            write!(f, "nfs://{}", self.host)?
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        f.write_str(&self.export.replace('%', "%25").replace('?', "%3F"))?;
        let proto = self.proto.map(|proto| format!("proto={proto}"));
        let mount_port = self.mount_port.map(|port| format!("mountport={port}"));
        let options: Vec<String> = proto.into_iter().chain(mount_port).collect();
        if options.is_empty() { Ok(()) } else { write!(f, "?{}", options.join("&")) }
    }
}

impl std::fmt::Display for NfsProto {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(url: &str) -> Result<Target, String> {
        url.parse().map_err(|error: TargetError| error.to_string())
    }

    #[test]
    fn an_nfs_url_with_everything_is_understood() {
        let Ok(Target::Nfs(target)) = parse("nfs://[::1]:20490/vol/my%20mail?proto=udp&mountport=20480")
        else {
            panic!("not understood")
        };
        assert_eq!((target.host.as_str(), target.port, target.mount_port), ("::1", Some(20490), Some(20480)));
        assert_eq!((target.export.as_str(), target.proto), ("/vol/my mail", Some(NfsProto::Udp)));
    }

    #[test]
    fn a_relative_path_with_a_colon_is_a_directory() {
        assert_eq!(parse("./a:b"), Ok(Target::Directory("./a:b".into())));
        assert_eq!(parse("./a:/b"), Ok(Target::Directory("./a:/b".into())));
        assert_eq!(parse("/srv/mail"), Ok(Target::Directory("/srv/mail".into())));
    }

    #[test]
    fn a_packed_store_is_named_by_its_directory_and_reads_back() {
        for url in ["pack:/srv/objects", "pack:./a b", "pack:rel:ative"] {
            let target = parse(url);
            assert_eq!(target, Ok(Target::Pack(url[5..].into())));
            assert_eq!(target.map(|target| target.to_string()), Ok(url.to_owned()));
        }
    }

    #[test]
    fn a_mistake_is_named_with_what_was_expected() {
        for (url, names) in [
            ("", "empty target"),
            ("http://x/y", "unknown target kind `http:`"),
            ("nfs:/host/x", "no `//`"),
            ("nfs://host", "no export path"),
            ("nfs:///vol", "no host"),
            ("nfs://host:0/vol", "port `0`"),
            ("nfs://host:70000/vol", "port `70000`"),
            ("nfs://host/vol?proto=rdma", "proto `rdma`"),
            ("nfs://host/vol?vers=4", "unknown option `vers=4`"),
            ("nfs://fe80::1/vol", "is no host"),
            ("nfs://host/%zz", "two hex digits"),
            ("null:x", "takes nothing"),
            ("pack:", "expected pack:/path"),
            // Each was once an unknown kind, or a directory that does not exist.
            ("filer:/export", "write nfs://filer/export"),
            ("filer-2.example.org:/vol/mail", "write nfs://filer-2.example.org/vol/mail"),
            ("10.0.0.1:/vol", "write nfs://10.0.0.1/vol"),
            ("[::1]:/vol", "write nfs://[::1]/vol"),
        ] {
            let error = parse(url).expect_err(url);
            assert!(error.contains(names) && error.contains(url), "{url}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(url in "(nfs:|null:|pack:|/)?[ -~]{0,40}") {
            let _ = parse(&url);
        }

        #[test]
        fn a_target_reads_back_from_what_it_prints(
            host in "[a-z][a-z0-9.-]{0,10}", port in proptest::option::of(1u16..), mount_port in proptest::option::of(1u16..),
            export in "/[a-z %?/&=]{0,12}",
            proto in proptest::option::of(prop_oneof![Just(NfsProto::Udp), Just(NfsProto::Tcp)]),
        ) {
            let target = Target::Nfs(NfsTarget { host, port, mount_port, export, proto });
            prop_assert_eq!(parse(&target.to_string()), Ok(target));
        }
    }
}
