//! The addresses that clients of the forward side may make the proxy connect to.
//!
//! ```text
//! address ─ its readings (IPv4 in IPv6, loopback) ─> any of them denied by list? ─> any internal, and not excepted?
//! ```
//!
//! Always holds: an address is judged by everything it may lead to: `::ffff:10.0.0.1`, `64:ff9b::a00:1` (NAT64) and
//! `2002:a00:1::` (6to4) are judged as `10.0.0.1` too, and `0.0.0.0` as a loopback address, as the kernel connects there.
//! Not here: the addresses of configured origins, parents and siblings, which the operator chose.
//! Source: the IANA registries of special-purpose addresses (RFC 6890, RFC 8190), as of 2025.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::network::Network;

/// Rules about the addresses that a client's request may lead to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destinations {
    /// Whether internal addresses are denied.
    pub internal_denied: bool,
    /// Whether that follows from the listening addresses.
    pub internal_is_auto: bool,
    /// Exceptions from that.
    pub internal_allowed: Vec<Network>,
    /// Denied in any case.
    pub denied: Vec<Network>,
}

/// The key that denies an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeniedBy {
    /// `access.internal`.
    Internal,
    /// `access.destinations_denied`, or an address in `access.hosts_denied`.
    Listed,
}

impl DeniedBy {
    /// The key's name in the file.
    pub fn key(self) -> &'static str {
        match self {
            Self::Internal => "access.internal",
            Self::Listed => "access.destinations_denied",
        }
    }
}

impl Destinations {
    /// Which rule denies an address, if any.
    pub fn denies(&self, address: IpAddr) -> Option<DeniedBy> {
        let lists = |networks: &[Network], address| networks.iter().any(|network| network.contains(address));
        let address = address.to_canonical();
        let readings = readings(address);
        if readings.iter().flatten().any(|reading| lists(&self.denied, *reading)) {
            return Some(DeniedBy::Listed);
        }
        let excepted = |reading| lists(&self.internal_allowed, reading);
        let denied = self.internal_denied
            && !excepted(address)
            && readings.iter().flatten().any(|reading| is_internal(*reading) && !excepted(*reading));
        denied.then_some(DeniedBy::Internal)
    }
}

/// The address itself, and what else it may lead to.
fn readings(address: IpAddr) -> [Option<IpAddr>; 3] {
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)].map(Some);
    match address {
        // A program that listens on all addresses answers on each of these.
        _ if address.is_loopback() || address.is_unspecified() => [Some(address), loopback[0], loopback[1]],
        IpAddr::V6(v6) => [Some(address), embedded(v6).map(IpAddr::V4), None],
        IpAddr::V4(_) => [Some(address), None, None],
    }
}

/// The IPv4 address to which a translator or tunnel takes an IPv6 address.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let bytes = address.octets();
    let at = match address.segments() {
        // IPv4-compatible (RFC 4291 section 2.5.5.1), IPv4-translated (RFC 2765), NAT64 (RFC 6052).
        [0, 0, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => 12,
        // 6to4 (RFC 3056).
        [0x2002, ..] => 2,
        _ => return None,
    };
    let [a, b, c, d] = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    Some(Ipv4Addr::new(a, b, c, d))
}

/// Whether an address belongs to no host of the public Internet, or serves what a cloud provides to its own machines only.
fn is_internal(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => match v4.octets() {
            // "This" network, private (RFC 1918), loopback, multicast, reserved, broadcast.
            [0 | 10 | 127 | 224..=255, ..] => true,
            [172, 16..=31, ..] | [192, 168, ..] => true,
            // Carrier-grade NAT (RFC 6598), and the metadata of Alibaba's machines.
            [100, 64..=127, ..] => true,
            // Former 6to4 relays (RFC 7526): a network may route this prefix anywhere.
            [192, 88, 99, _] => true,
            // Link-local: metadata of most clouds.
            [169, 254, ..] => true,
            // IETF protocol assignments: metadata of Oracle's machines.
            [192, 0, 0, _] => true,
            // Documentation, benchmarks.
            [192, 0, 2, _] | [198, 18..=19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => true,
            // Azure's services for its own machines: a public address that does not leave them.
            [168, 63, 129, 16] => true,
            _ => false,
        },
        IpAddr::V6(v6) => match v6.segments() {
            // Unspecified, loopback, IPv4-compatible.
            [0, 0, 0, 0, 0, 0, ..] => true,
            // NAT64 of a network's own (RFC 8215), discard-only, Teredo, documentation, segment routing.
            [0x64, 0xff9b, 1, ..] | [0x100, 0, 0, 0, ..] | [0x2001, 0, ..] | [0x2001, 0xdb8, ..] => true,
            [0x3fff, second, ..] if second < 0x1000 => true,
            [0x5f00, ..] => true,
            // Private (fc00::/7), link-local, site-local, multicast.
            [0xfc00..=0xfdff | 0xfe80..=0xffff, ..] => true,
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Vec<Network> {
        texts.iter().map(|text| text.parse().expect(text)).collect()
    }

    fn denied_by(rules: &Destinations, address: &str) -> Option<DeniedBy> {
        rules.denies(address.parse().expect(address))
    }

    #[test]
    fn internal_addresses_are_denied_however_they_are_written_and_their_neighbours_are_not() {
        let rules = Destinations { internal_denied: true, ..Destinations::default() };
        for internal in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.0",
            "100.100.100.200",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::a00:1",
            "::ffff:127.0.0.1",
            "::ffff:0.0.0.0",
            "::ffff:0:10.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::1",
            "2001:0:1::1",
            "2002:7f00:1::",
            "2002:c0a8:101::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert_eq!(denied_by(&rules, internal), Some(DeniedBy::Internal), "{internal}");
        }
        for public in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "168.63.129.15",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "192.167.255.255",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
            "2001:4860:4860::8888",
            "2606:4700::1111",
            "fbff::1",
        ] {
            assert_eq!(denied_by(&rules, public), None, "{public}");
            assert_eq!(denied_by(&Destinations::default(), "10.0.0.1"), None, "not denied by itself");
        }
    }

    #[test]
    fn exceptions_open_what_they_list_alone_and_nothing_that_is_denied() {
        let rules = Destinations {
            internal_denied: true,
            internal_is_auto: false,
            internal_allowed: networks(&["10.1.0.0/16", "fd00:1::/32"]),
            denied: networks(&["10.1.2.0/24", "8.8.8.8"]),
        };
        for allowed in ["10.1.0.1", "::ffff:10.1.0.1", "64:ff9b::10.1.0.1", "fd00:1::7", "1.1.1.1"] {
            assert_eq!(denied_by(&rules, allowed), None, "{allowed}");
        }
        for internal in ["10.2.0.1", "64:ff9b::10.2.0.1", "fd00:2::7", "127.0.0.1"] {
            assert_eq!(denied_by(&rules, internal), Some(DeniedBy::Internal), "{internal}");
        }
        for listed in ["10.1.2.3", "::ffff:10.1.2.3", "8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1"] {
            assert_eq!(denied_by(&rules, listed), Some(DeniedBy::Listed), "{listed}");
        }
    }

    #[test]
    fn a_denied_loopback_address_denies_all_that_reach_the_same_programs() {
        for listed in ["127.0.0.1", "::1"] {
            let rules = Destinations { denied: networks(&[listed]), ..Destinations::default() };
            for address in ["0.0.0.0", "127.0.0.1", "127.0.1.1", "::", "::1", "::ffff:0.0.0.0"] {
                assert_eq!(denied_by(&rules, address), Some(DeniedBy::Listed), "{listed}: {address}");
            }
            assert_eq!(denied_by(&rules, "10.0.0.1"), None);
        }
    }
}
