//! Access to an archive: keys that end, objects in the place of others, the bill, and a cache before it.

mod bill;
mod cached;
mod credentials;
mod swapped;
