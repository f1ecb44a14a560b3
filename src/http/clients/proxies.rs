//! The client behind a front: `--trusted-proxies` and `--client-address-from`.
//!
//! Shares are counted by the address of a client, and behind a front all connections come from the
//! front's. A trusted front says whose request it hands on, in one source: a header with each
//! request, or the PROXY protocol at the begin of each connection. Only that source is read, and
//! only from peers in the trusted networks: any client can write the others.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue};

use crate::config::IpNetwork;
use crate::config::settings::{AddressSource, HttpConfig};
use crate::shared::ClientAddress;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Proxies that are trusted to name their clients.
#[derive(Debug, Clone)]
pub(crate) struct Proxies {
    networks: Arc<[IpNetwork]>,
    source: AddressSource,
}

impl Proxies {
    /// Takes the proxies of the settings.
    pub(crate) fn of(config: &HttpConfig) -> Self {
        let networks = Arc::clone(&config.trusted_proxies);
        Self { networks, source: config.client_address_from }
    }

    /// Makes an empty list: no peer is trusted.
    pub(crate) fn none() -> Self {
        Self { networks: [].into(), source: AddressSource::default() }
    }

    /// True if `address` is in a trusted network.
    pub(crate) fn trust(&self, address: IpAddr) -> bool {
        // A listener of IPv6 sees an IPv4 peer by a mapped address, which no IPv4 network has.
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(address))
    }

    /// True if connections of trusted peers begin with a header of the PROXY protocol.
    pub(crate) fn speak_proxy_protocol(&self) -> bool {
        self.source == AddressSource::ProxyProtocol
    }

    /// The client of a request by its headers; `None` if they name none that can be believed, and
    /// then the proxy itself is the client.
    pub(crate) fn client(&self, headers: &HeaderMap) -> Option<ClientAddress> {
        let name = match self.source {
            AddressSource::XForwardedFor => X_FORWARDED_FOR,
            AddressSource::Forwarded => FORWARDED,
            AddressSource::ProxyProtocol => return None,
        };
        self.nearest(headers.get_all(name).iter().rev().map(HeaderValue::as_bytes))
    }

    /// Finds the client by the headers as the fast path has them.
    pub(crate) fn client_of(&self, headers: &[httparse::Header<'_>]) -> Option<ClientAddress> {
        let name = match self.source {
            AddressSource::XForwardedFor => "x-forwarded-for",
            AddressSource::Forwarded => "forwarded",
            AddressSource::ProxyProtocol => return None,
        };
        let lines = headers.iter().rev().filter(|line| line.name.eq_ignore_ascii_case(name));
        self.nearest(lines.map(|line| line.value))
    }

    /// The address nearest to this server that is no trusted proxy; the farthest if all are. Lines
    /// come last first: all of them are one list, to which each proxy appends.
    fn nearest<'h>(&self, lines: impl Iterator<Item = &'h [u8]>) -> Option<ClientAddress> {
        let mut farthest = None;
        for line in lines {
            let line = std::str::from_utf8(line).ok()?;
            let addresses = match self.source {
                AddressSource::Forwarded => forwarded(line)?,
                _ => line.split(',').map(str::trim).filter(|text| !text.is_empty()).collect(),
            };
            for text in addresses.into_iter().rev() {
                // Behind a text that is no address nothing is believed: the client may have written
                // all of that.
                let address = address(text)?;
                farthest = Some(address.into());
                if !self.trust(address) {
                    return farthest;
                }
            }
        }
        farthest
    }
}

/// An address as proxies write it: alone, in brackets, or with a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip()))
}

/// The `for` of each element of a `Forwarded` line (RFC 7239, 4); `None` if it is malformed or an
/// element has none.
fn forwarded(line: &str) -> Option<Vec<&str>> {
    let mut found = Vec::new();
    for element in split(line, ',')? {
        // A recipient ignores empty elements of a list (RFC 9110, 5.6.1).
        if element.is_empty() {
            continue;
        }
        let mut client = None;
        for pair in split(element, ';')? {
            let Some((name, value)) = pair.split_once('=') else { continue };
            // An element has a parameter once (RFC 7239, 4). Of two, another reader might take the
            // other.
            if name.eq_ignore_ascii_case("for") && client.replace(value).is_some() {
                return None;
            }
        }
        let value = client?;
        let quoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        found.push(quoted.unwrap_or(value));
    }
    Some(found)
}

/// Splits text at a character outside of quotes; `None` if a quote does not end.
fn split(text: &str, at: char) -> Option<Vec<&str>> {
    let (mut quoted, mut escaped) = (false, false);
    let separates = |letter: char| {
        match letter {
            _ if escaped => escaped = false,
            // A backslash escapes inside quotes only (RFC 9110, 5.6.4).
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => return letter == at && !quoted,
        }
        false
    };
    let parts = text.split(separates).map(str::trim).collect();
    (!quoted).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(source: AddressSource) -> Proxies {
        let networks = ["10.0.0.0/8", "fd00::/8", "192.0.2.7"].map(|text| text.parse().unwrap());
        Proxies { networks: networks.into(), source }
    }

    /// The client that these lines name, by both ways to have them.
    fn client(source: AddressSource, lines: &[&'static str]) -> Option<ClientAddress> {
        let proxies = proxies(source);
        let name = if source == AddressSource::Forwarded { FORWARDED } else { X_FORWARDED_FOR };
        let mut map = HeaderMap::new();
        let mut headers = Vec::new();
        for line in lines {
            map.append(name.clone(), HeaderValue::from_static(line));
            let shouted = if name == FORWARDED { "FORWARDED" } else { "X-Forwarded-For" };
            headers.push(httparse::Header { name: shouted, value: line.as_bytes() });
            headers.push(httparse::Header { name: "x-real-ip", value: b"8.8.8.8" });
        }
        let found = proxies.client(&map);
        assert_eq!(found, proxies.client_of(&headers), "{lines:?}");
        found
    }

    fn at(text: &str) -> Option<ClientAddress> {
        text.parse::<IpAddr>().ok().map(ClientAddress::from)
    }

    #[test]
    fn rightmost_address_that_is_not_trusted_is_the_client() {
        let client = |lines: &[&'static str]| client(AddressSource::XForwardedFor, lines);
        assert_eq!(client(&["203.0.113.9"]), at("203.0.113.9"));
        assert_eq!(client(&["1.1.1.1, 203.0.113.9"]), at("203.0.113.9"), "the left is a claim");
        assert_eq!(client(&["1.1.1.1, 203.0.113.9, 10.1.2.3,fd00::1"]), at("203.0.113.9"));
        assert_eq!(client(&["1.1.1.1", "203.0.113.9", "10.1.2.3"]), at("203.0.113.9"), "one list");
        assert_eq!(client(&["203.0.113.9, 192.0.2.7"]), at("203.0.113.9"));
        assert_eq!(client(&["10.0.0.9, 10.0.0.8"]), at("10.0.0.9"), "a client inside");
        assert_eq!(client(&["", "203.0.113.9, ,", ""]), at("203.0.113.9"));
        assert_eq!(client(&[]), None);
    }

    #[test]
    fn addresses_are_read_with_ports_and_brackets() {
        let client = |line: &'static str| client(AddressSource::XForwardedFor, &[line]);
        assert_eq!(client("203.0.113.9:4711"), at("203.0.113.9"));
        assert_eq!(client("[2001:db8:1:2::3]:4711"), at("2001:db8:1:2::"));
        assert_eq!(client("[2001:db8:1:2::3]"), at("2001:db8:1:2::"));
        assert_eq!(client("2001:db8:1:2::3"), at("2001:db8:1:2:ffff::"), "a /64 is one client");
        assert_eq!(client("::ffff:203.0.113.9"), at("203.0.113.9"));
        assert_eq!(client("1.1.1.1, ::ffff:10.0.0.1"), at("1.1.1.1"), "the mapped one is trusted");
    }

    /// Text that a client writes and the proxy hands on must not pass for another client.
    #[test]
    fn unreadable_text_counts_as_the_proxy() {
        let plain = |lines: &[&'static str]| client(AddressSource::XForwardedFor, lines);
        for text in ["unknown", "203.0.113.9x", "203.0.113.9 1.1.1.1", "localhost", "[::1", "1.2.3"]
        {
            assert_eq!(plain(&[text]), None, "{text}");
        }
        assert_eq!(plain(&["203.0.113.9, unknown, 10.0.0.1"]), None);
        assert_eq!(plain(&["unknown, 203.0.113.9"]), at("203.0.113.9"), "it is not reached");
        let forwarded = |lines: &[&'static str]| client(AddressSource::Forwarded, lines);
        for text in [
            "for=unknown",
            "for=_hidden",
            "by=203.0.113.9",
            "for=\"1.1.1.1",
            "for=1.1.1.1;for=2.2.2.2",
        ] {
            assert_eq!(forwarded(&[text]), None, "{text}");
        }
        assert_eq!(forwarded(&["for=\", for=203.0.113.9"]), None, "a quote that does not end");
    }

    #[test]
    fn forwarded_elements_name_their_client() {
        let client = |lines: &[&'static str]| client(AddressSource::Forwarded, lines);
        assert_eq!(client(&["for=203.0.113.9;proto=https;by=10.0.0.1"]), at("203.0.113.9"));
        assert_eq!(client(&["For=\"[2001:db8:1:2::3]:4711\""]), at("2001:db8:1:2::"));
        assert_eq!(client(&["for=1.1.1.1, by=x;FOR=203.0.113.9, for=10.0.0.1"]), at("203.0.113.9"));
        assert_eq!(client(&["for=1.1.1.1", "for=203.0.113.9;host=\"a,b;c\""]), at("203.0.113.9"));
        assert_eq!(client(&["for=\"1.1.1.1\\\"\", for=203.0.113.9"]), at("203.0.113.9"));
    }

    #[test]
    fn proxies_are_trusted_by_their_networks() {
        let proxies = proxies(AddressSource::XForwardedFor);
        let trusts = |text: &str| proxies.trust(text.parse().unwrap());
        assert!(trusts("10.255.0.1") && trusts("::ffff:10.255.0.1") && trusts("192.0.2.7"));
        assert!(!trusts("11.0.0.1") && !trusts("192.0.2.8") && !trusts("fe80::1"));
    }
}
