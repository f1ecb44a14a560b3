//! From a call to a query.

mod decode;
mod fees;
mod filters;
mod logs;
mod question;
mod subscription;
mod unserved;

pub use logs::LogQuery;
pub use question::{Query, Transactions};
pub use subscription::Subscription;
pub use unserved::{UNSERVED_METHODS, default_methods, unserved_methods};
