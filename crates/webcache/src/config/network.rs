//! Networks of clients, as `10.0.0.0/8`.

use std::net::IpAddr;
use std::str::FromStr;

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    bits: u128,
    mask: u128,
}

impl Network {
    /// Whether an address lies in it. IPv4 and its mapped form in IPv6 are the same.
    pub fn contains(self, address: IpAddr) -> bool {
        mapped(address) & self.mask == self.bits
    }
}

/// IPv4 in the place that IPv6 gives it.
fn mapped(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no network; expected ADDRESS/BITS as in 10.0.0.0/8");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits: u32 = bits.map_or(Ok(width), str::parse).map_err(|_| wrong())?;
        if bits > width {
            return Err(wrong());
        }
        let mask = if bits == 0 && width == 128 { 0 } else { u128::MAX << (width - bits) };
        Ok(Self { bits: mapped(address) & mask, mask })
    }
}

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
