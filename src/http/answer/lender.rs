//! Requests that wait for heights below the served range: bounded in number, with a share for each address.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::http::clients::Seats;
use crate::rpc::methods::{Below, Lent, Want};
use crate::shared::ClientAddress;

/// Requests that wait at a time.
const TOTAL_MAX: usize = 256;
/// Those of one address.
const ADDRESS_MAX: usize = 64;

/// A place that lends heights, and the requests that may wait for it.
#[derive(Clone)]
pub(crate) struct Lender {
    pub(crate) below: Arc<dyn Below>,
    places: Arc<Semaphore>,
    seats: Arc<Seats>,
}

impl Lender {
    pub(crate) fn new(below: Arc<dyn Below>) -> Self {
        Self { below, places: Arc::new(Semaphore::new(TOTAL_MAX)), seats: Seats::new(ADDRESS_MAX) }
    }

    /// Has the heights lent, or none of them if too many requests wait.
    pub(crate) async fn lend(&self, wants: Vec<Want>, address: ClientAddress) -> Lent {
        let (seat, place) = (self.seats.take(address), self.places.try_acquire());
        match (seat, place) {
            (Some(_seat), Ok(_place)) => Arc::clone(&self.below).lend(wants, address).await,
            _ => Lent { try_again: true, ..Lent::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::net::IpAddr;

    use futures_util::FutureExt;

    use super::*;
    use crate::rpc::methods::Lending;

    /// A place that never has anything.
    struct Silent;

    impl Below for Silent {
        fn may_have(&self, _: &Want) -> bool {
            true
        }

        fn lend(self: Arc<Self>, _: Vec<Want>, _: ClientAddress) -> Lending {
            Box::pin(pending())
        }
    }

    #[tokio::test]
    async fn address_that_has_its_share_waiting_is_told_to_come_again() {
        let lender = Lender::new(Arc::new(Silent));
        let at = |last: u8| ClientAddress::from(IpAddr::from([10, 0, 0, last]));
        let mut waiting: Vec<_> =
            (0..ADDRESS_MAX).map(|_| Box::pin(lender.lend(Vec::new(), at(1)))).collect();
        for lent in &mut waiting {
            assert!(lent.as_mut().now_or_never().is_none());
        }
        assert!(lender.lend(Vec::new(), at(1)).await.try_again);
        let mut other = Box::pin(lender.lend(Vec::new(), at(2)));
        assert!(other.as_mut().now_or_never().is_none());
        drop(waiting);
        let mut again = Box::pin(lender.lend(Vec::new(), at(1)));
        assert!(again.as_mut().now_or_never().is_none());
    }
}
