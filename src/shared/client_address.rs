//! Addresses by which the shares of clients are counted.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// Address of a client, as far as shares are concerned.
///
/// An IPv6 client has a whole /64 to choose addresses from, so that is what counts as one; an IPv4
/// address that a socket for both shows as IPv6 counts as IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClientAddress(IpAddr);

impl From<IpAddr> for ClientAddress {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                // A client has a /64 of IPv6: by single addresses it could have any number of
                // shares.
                let [a, b, c, d, ..] = address.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            address @ IpAddr::V4(_) => address,
        })
    }
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> ClientAddress {
        ClientAddress::from(text.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn ipv6_clients_share_by_their_64_bits_of_network() {
        assert_eq!(address("2001:db8:1:2::3"), address("2001:db8:1:2:ffff::"));
        assert_ne!(address("2001:db8:1:2::3"), address("2001:db8:1:3::3"));
    }

    #[test]
    fn mapped_address_counts_as_ipv4() {
        assert_eq!(address("::ffff:10.0.0.1"), address("10.0.0.1"));
        assert_ne!(address("10.0.0.1"), address("10.0.0.2"));
    }
}
