//! Surroundings of the connections of one event loop.

use std::sync::Arc;

use crate::config::settings::Deadlines;
use crate::http::admit::Policy;
use crate::http::answer::Responder;

/// Takes and answers plain requests.
pub(crate) struct FastService {
    pub(crate) responder: Arc<Responder>,
    pub(crate) policy: Policy,
    pub(crate) deadlines: Deadlines,
}
