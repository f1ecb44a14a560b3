//! A client for requests that another crate makes: any server, any body.

use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::connector::connector;

/// Time for TCP and TLS.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Time after which an unused connection is closed.
const IDLE_TIME_MAX: Duration = Duration::from_secs(20);

/// A client whose requests have their whole address.
pub(crate) type RawClient<B> = Client<HttpsConnector<HttpConnector>, B>;

/// Makes a client; nothing is connected yet.
pub(crate) fn raw_client<B>(tls: rustls::ClientConfig) -> RawClient<B>
where
    B: Body<Data = Bytes> + Send + 'static,
{
    let mut builder = Client::builder(TokioExecutor::new());
    builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_TIME_MAX);
    builder.build(connector(tls, CONNECT_TIME_MAX))
}
