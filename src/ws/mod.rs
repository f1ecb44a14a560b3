//! WebSockets: the methods of HTTP, and subscriptions.
//!
//! A subscription is a cursor: the next height that it is to hear of. When the head moves, a
//! session looks what is due and sends it from the store, so that live blocks, blocks of a catch-up
//! and a range that is replayed come the same way, in order and once, and a slow subscriber keeps
//! nothing in memory but its cursor.

mod end;
mod heads;
mod incoming;
mod notification;
mod pace;
mod session;
mod subscriptions;
mod upgrade;

pub(crate) use heads::HeadTexts;
pub(crate) use session::{Limits, run};
pub(crate) use subscriptions::{NotOpened, Subscriptions};
pub(crate) use upgrade::Upgrade;
