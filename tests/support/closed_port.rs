//! A port of loopback where no process listens.

use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// A port that refuses connections as long as this value lives.
///
/// Its socket is bound and never listens. A port that is free could become that of another test's server.
pub(crate) struct ClosedPort(Socket);

impl ClosedPort {
    pub(crate) fn bind() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        socket.bind(&any.into()).expect("loopback has free ports");
        Self(socket)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        let address = self.0.local_addr().expect("it is bound");
        address.as_socket().expect("it is one of IP")
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address())
    }
}
