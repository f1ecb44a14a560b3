//! Hosts that a request may name: `--allowed-hosts`.
//!
//! A page that a browser shows can have its own name point to this machine, and then read from
//! here as from its own origin; its requests carry its name. The node refuses names that it was not
//! told of (avalanchego, `api/server/allowed_hosts.go`); addresses are always allowed.

use std::net::IpAddr;

/// Names that requests may be addressed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hosts {
    /// Any host is allowed on the main listener, and these names on that of the pages for operators.
    Any(Vec<String>),
    /// Addresses, and these names, in lower case.
    Named(Vec<String>),
}

/// Fault of a `Host`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadHost {
    /// There is none, and HTTP/1.1 has one always.
    Missing,
    /// No host has this form.
    Malformed,
    /// A name that is not allowed.
    NotAllowed,
}

impl Hosts {
    /// From the names as typed; `*` stands for any.
    pub(crate) fn new(names: &[String]) -> Self {
        let listed = names.iter().filter(|name| *name != "*");
        let named = listed.map(|name| name.to_lowercase()).collect();
        // As in avalanchego, one `*` among other names allows all.
        if names.iter().any(|name| name == "*") { Self::Any(named) } else { Self::Named(named) }
    }

    /// Returns these names without `*`, `localhost` and the name of a listener's own host.
    pub(crate) fn or_local(&self, own: Option<&str>) -> Self {
        let (Self::Any(names) | Self::Named(names)) = self;
        let mut names = names.clone();
        names.extend(["localhost"].into_iter().chain(own).map(str::to_owned));
        Self::Named(names)
    }

    /// True if a request to `host` is served. A request that names none is.
    pub(crate) fn check(&self, host: Option<&[u8]>) -> Result<(), BadHost> {
        let Some(host) = host.filter(|host| !host.is_empty()) else { return Ok(()) };
        let host = check_host_form(host)?;
        match self {
            Self::Any(_) => Ok(()),
            Self::Named(names) => {
                let name = without_port(host);
                // A page that points its own name to this machine sends that name, so an address
                // comes from no such page.
                let allowed = name.parse::<IpAddr>().is_ok()
                    || names.iter().any(|allowed| allowed.eq_ignore_ascii_case(name));
                if allowed { Ok(()) } else { Err(BadHost::NotAllowed) }
            }
        }
    }
}

/// Returns a `Host` if one can look so; an empty one can.
pub(crate) fn check_host_form(host: &[u8]) -> Result<&str, BadHost> {
    let host = std::str::from_utf8(host).ok().filter(|host| host.bytes().all(is_host_byte));
    host.ok_or(BadHost::Malformed)
}

/// Go's `httpguts.ValidHostHeader`: what may stand in a host, a port and an IPv6 literal.
fn is_host_byte(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'.' | b':' | b'-')
        || b"!$%&'()*+,;=[]_~".contains(&byte)
}

/// The host without its port, as Go's `net.SplitHostPort` has it; what has no port stays.
fn without_port(host: &str) -> &str {
    if let Some((inside, rest)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return if rest.starts_with(':') { inside } else { host };
    }
    match host.split_once(':') {
        // Several colons and no brackets: an IPv6 address without a port.
        Some((name, port)) if !port.contains(':') => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_named_hosts_are_served() {
        let hosts = Hosts::new(&["localhost".to_owned(), "Rpc.Example".to_owned()]);
        let check = |host: &str| hosts.check(Some(host.as_bytes()));
        for host in
            ["", "localhost", "LOCALHOST:80", "rpc.example", "10.0.0.1:1", "[::1]:80", "::1"]
        {
            assert_eq!(check(host), Ok(()), "{host}");
        }
        for host in ["localhost.", "example.com:80", "[::1]", "a:b:c"] {
            assert_eq!(check(host), Err(BadHost::NotAllowed), "{host}");
        }
        assert_eq!(check("a b"), Err(BadHost::Malformed));
        let any = Hosts::new(&["*".to_owned()]);
        assert_eq!(any.check(Some(b"x.y")), Ok(()));
        assert_eq!(any.or_local(None).check(Some(b"x.y")), Err(BadHost::NotAllowed));
        let both = Hosts::new(&["Neve.Example".to_owned(), "*".to_owned()]);
        assert_eq!(both.check(Some(b"x.y")), Ok(()));
        assert_eq!(both.or_local(None).check(Some(b"neve.example")), Ok(()));
        assert_eq!(both.or_local(None).check(Some(b"x.y")), Err(BadHost::NotAllowed));
        assert_eq!(any.or_local(Some("X.y")).check(Some(b"x.y:1")), Ok(()));
        assert_eq!(any.or_local(None).check(Some(b"localhost:8549")), Ok(()));
        assert_eq!(hosts.or_local(None).check(Some(b"rpc.example")), Ok(()));
        assert_eq!(hosts.check(None), Ok(()));
    }
}
