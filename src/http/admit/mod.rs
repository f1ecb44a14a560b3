//! Decides the fate of a request by host, route, origin, media type and length.

mod cors;
mod error_response;
mod hosts;
mod media_type;
mod policy;
mod route;

pub(crate) use cors::Cors;
pub(crate) use error_response::ErrorResponse;
#[cfg(test)]
pub(crate) use error_response::table;
pub(crate) use hosts::{BadHost, Hosts, check_host_form};
pub(crate) use policy::{Policy, check_json};
pub(crate) use route::{REST, Route, decode, has_valid_escapes, route};
