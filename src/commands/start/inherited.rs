//! Sockets that the service manager binds and keeps: they outlive the process, and connections wait
//! in them while neve restarts. See `sd_listen_fds(3)`.

use std::io;

use listenfd::ListenFd;

use super::error::StartError;
use crate::http::Listener;

/// Sockets of the service manager: one for `--listen`, and one for `--admin-listen`.
const SOCKETS_MAX: usize = 2;

/// Sockets that were passed to this process.
pub(crate) struct Inherited(ListenFd);

/// Listeners of those sockets, in the order in which they were passed.
pub(crate) struct InheritedListeners {
    /// Listener that takes the place of `--listen`.
    pub(crate) main: Option<Listener>,
    /// Listener that takes the place of `--admin-listen`.
    pub(crate) admin: Option<Listener>,
}

impl Inherited {
    /// Takes the sockets and the variables that name them. To be called before any thread starts:
    /// it changes the environment.
    pub(crate) fn take() -> Self {
        Self(ListenFd::from_env())
    }

    /// Makes listeners of the sockets.
    pub(crate) fn listeners(mut self) -> Result<InheritedListeners, StartError> {
        if self.0.len() > SOCKETS_MAX {
            let why = format!("{} were passed; allowed: at most {SOCKETS_MAX}", self.0.len());
            return Err(StartError::Inherited(why));
        }
        let [main, admin] = [0, 1].map(|at| listener(&mut self.0, at));
        let named = |error: io::Error| StartError::Inherited(error.to_string());
        Ok(InheritedListeners { main: main.map_err(named)?, admin: admin.map_err(named)? })
    }
}

fn listener(sockets: &mut ListenFd, at: usize) -> io::Result<Option<Listener>> {
    match sockets.take_tcp_listener(at) {
        Ok(listener) => listener.map(Listener::kept_tcp).transpose(),
        // A socket of another kind stays in its slot, for this second look.
        Err(_) => sockets.take_unix_listener(at)?.map(Listener::kept_unix).transpose(),
    }
}
