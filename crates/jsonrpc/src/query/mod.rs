//! From a call to a query.

mod decode;
mod fees;
mod filters;
mod logs;
#[allow(clippy::module_inception, reason = "the file of the main type")]
mod query;
mod subscription;
mod unserved;

pub use logs::LogQuery;
pub use query::{Query, Transactions};
pub use subscription::Subscription;
pub use unserved::{FREQUENT_METHODS, OTHER_METHODS, default_methods, other_methods};
