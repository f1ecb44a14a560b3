//! A socket to an upstream as its client's connection has it. A task reads it at once, however slow
//! the client is: a node that cannot send holds up its other subscribers.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::event::{Command, Opening, SocketEnd, SocketEvent};
use super::session::SocketSession;
use crate::relay::{Failure, RelayState};

/// A socket to an upstream. Dropped, it closes.
pub(crate) struct RelaySocket {
    commands: mpsc::UnboundedSender<Command>,
    events: mpsc::UnboundedReceiver<SocketEvent>,
    task: JoinHandle<()>,
}

impl RelaySocket {
    /// Opens it beside; its calls wait.
    pub(crate) fn open(state: &Arc<RelayState>, opening: Opening) -> Self {
        // The client's requests in flight bound the calls, bytes bound the events.
        let (commands, todo) = mpsc::unbounded_channel();
        let (told, events) = mpsc::unbounded_channel();
        let state = Arc::clone(state);
        let task = tokio::spawn(async move {
            let end = SocketSession::run(&state, opening, todo, &told).await;
            let _ = told.send(SocketEvent::Ended(end)); // the client may have left
        });
        Self { commands, events, task }
    }

    /// Opens a subscription by a call, whose response comes in the order of calls.
    pub(crate) fn subscribe(&self, call: Bytes) {
        let _ = self.commands.send(Command::Subscribe(call)); // the end is an event
    }

    /// Ends a subscription at the upstream. Its response goes to no client.
    pub(crate) fn unsubscribe(&self, id: Box<str>) {
        let _ = self.commands.send(Command::Unsubscribe(id)); // the end is an event
    }

    /// Waits for the next event. Behind the last one it says that the upstream is gone.
    pub(crate) async fn next(&mut self) -> SocketEvent {
        let ended = SocketEvent::Ended(SocketEnd::Failed(Failure::Unreachable));
        self.events.recv().await.unwrap_or(ended)
    }

    /// The next event, if it is there.
    pub(crate) fn waiting(&mut self) -> Option<SocketEvent> {
        self.events.try_recv().ok()
    }
}

impl Drop for RelaySocket {
    fn drop(&mut self) {
        self.task.abort();
    }
}
