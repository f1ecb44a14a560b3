//! Access to an archive: keys that end, objects in the place of others, and the bill.

mod bill;
mod credentials;
mod swapped;
