//! Serving: workers that do nothing else, each with its own connections.
//!
//! One task accepts, and hands each connection to the worker that has the fewest. So work is spread
//! evenly at any number of connections, also when some of them end. A connection stays with its
//! worker. A worker has two threads (`worker`). One answers the common requests in a loop of its own
//! (`event_loop`). All others go to the second one, which has a runtime and hyper (`connection`).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::connection_admission::{ConnectionAdmission, refuse};
use super::drain::draining;
use super::listener::{Role, Shared};
use super::listening::{Listener, accept};
use super::open_connection::Handoff;
use super::worker::Worker;
use crate::http::clients::Proxies;
use crate::shared::ThreadCounters;

/// A pause after the process ran out of descriptors: trying again at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Workers of the listeners of one role, each with two threads.
pub(crate) struct Workers {
    workers: Vec<Worker>,
    role: Role,
}

impl Workers {
    /// Starts a worker for each two sets of counters.
    pub(crate) fn start(
        shared: &Shared,
        role: Role,
        thread_counters: &[[Arc<ThreadCounters>; 2]],
    ) -> io::Result<Self> {
        let start = |(at, thread_counters)| Worker::start(at, shared, role, thread_counters);
        let workers = thread_counters.iter().enumerate().map(start).collect::<io::Result<_>>()?;
        Ok(Self { workers, role })
    }

    /// Accepts until drained, and hands connections out.
    pub(crate) async fn accept(&self, listeners: Vec<Listener>, mut shared: Shared) {
        let mut drain = shared.drain.clone();
        // Operators reach the admin listener without a front, also from the front's machine.
        let trusting = self.role != Role::Admin;
        let proxies = if trusting { Proxies::of(&shared.http) } else { Proxies::none() };
        let mut admission =
            ConnectionAdmission::new(shared.limits.connections_address_max, proxies);
        // Two counts: there are not as many listeners as workers.
        for (turn, at) in (0..self.workers.len()).cycle().zip(0_usize..) {
            // Connections whose client is not known yet have descriptors as well.
            let is_full = self.open() + admission.waiting() >= shared.limits.connections_max;
            let arrived = tokio::select! {
                accepted = accept(&listeners, at) => match accepted {
                    Ok((stream, from)) if is_full => {
                        refuse(&stream, from);
                        continue;
                    }
                    Ok((stream, from)) => admission.admit(stream, from),
                    Err(error) => {
                        warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                },
                arrived = admission.next() => arrived,
                // It waits at its begin only, so a connection that comes first leaves no settings
                // taken by half.
                () = shared.reload(self.role) => {
                    admission.set_address_max(shared.limits.connections_address_max);
                    self.workers.iter().for_each(|worker| worker.renew(&shared, self.role));
                    continue;
                }
                () = draining(&mut drain) => break,
            };
            if let Some(arrived) = arrived {
                self.least(turn).take(arrived, &shared.connections);
            }
        }
        // From now on the kernel refuses new clients, unless another process keeps the socket.
        drop(listeners);
        // A connection that was accepted is served.
        while admission.waiting() > 0 {
            if let Some(arrived) = admission.next().await {
                self.least(0).take(arrived, &shared.connections);
            }
        }
    }

    /// Returns the ways to the threads of the fast path.
    pub(crate) fn handoffs(&self) -> impl Iterator<Item = Handoff> {
        self.workers.iter().map(Worker::handoff)
    }

    /// Number of open connections.
    fn open(&self) -> usize {
        self.workers.iter().map(Worker::open).sum()
    }

    /// Returns the worker with the fewest connections; of several, the next one from `turn` on.
    fn least(&self, turn: usize) -> &Worker {
        let (before, from) = self.workers.split_at(turn);
        let least = from.iter().chain(before).min_by_key(|worker| worker.open());
        least.expect("there is a worker, or it would not be its turn")
    }

    /// Lets the threads end once their connections have.
    pub(crate) fn join(self) {
        self.workers.into_iter().for_each(Worker::join);
    }
}
