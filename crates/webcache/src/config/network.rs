//! Networks of clients, as `10.0.0.0/8`.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv6Net};

use super::problem::InvalidValue;

/// A range of addresses that share a prefix.
///
/// IPv4 is kept in its IPv4-mapped form (`::ffff:0:0/96`), so that an address and its mapped form are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(Ipv6Net);

impl Network {
    /// Whether the network contains an address.
    pub fn contains(self, address: IpAddr) -> bool {
        let address = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        self.0.contains(&address)
    }
}

impl FromStr for Network {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let invalid = || {
            InvalidValue(format!("`{text}`, which is not a network; expected ADDRESS/BITS as in 10.0.0.0/8"))
        };
        let network = match text.contains('/') {
            true => text.parse::<IpNet>().map_err(|_| invalid())?,
            false => text.parse::<IpAddr>().map_err(|_| invalid())?.into(),
        };
        let network = match network {
            IpNet::V4(v4) => Ipv6Net::new(v4.addr().to_ipv6_mapped(), MAPPED_BITS + v4.prefix_len())
                .map_err(|_| invalid())?,
            IpNet::V6(v6) => v6,
        };
        Ok(Self(network.trunc()))
    }
}

/// Length of the prefix of IPv4-mapped addresses.
const MAPPED_BITS: u8 = 96;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_holds_its_own_addresses_and_no_neighbour() {
        let holds = |network: &str, address: &str| {
            network.parse::<Network>().expect(network).contains(address.parse().expect(address))
        };
        assert!(holds("10.0.0.0/8", "10.255.0.1"));
        assert!(!holds("10.0.0.0/8", "11.0.0.1"));
        assert!(holds("192.168.1.7", "192.168.1.7"));
        assert!(!holds("192.168.1.7", "192.168.1.6"));
        assert!(holds("127.0.0.0/8", "::ffff:127.0.0.1"));
        assert!(holds("0.0.0.0/0", "8.8.8.8"));
        assert!(!holds("0.0.0.0/0", "2001:db8::1"));
        assert!(holds("::/0", "8.8.8.8"));
        assert!(holds("fe80::/10", "fe81::1"));
        for wrong in ["", "10.0.0.0/33", "x/8", "::/129", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
