//! Answers that are made of proven ones: raw forms, new heads, fees.

mod fee_history;
mod fee_request;
mod fees;
mod gas_clock;
mod json_float;
mod new_head;
mod next_fee;
mod raw;

pub use fee_history::{EMPTY_FEE_HISTORY, FeeHistory};
pub use fee_request::{FEE_BLOCKS_MAX, FEE_DEPTH_MAX, FeeRefusal, FeeRequest, NewestBlock};
pub use fees::{BlockFees, FeeRule};
pub use gas_clock::{GasClock, gas_excess, gas_price, gas_target};
pub use new_head::{HeaderForm, new_head};
pub use next_fee::next_base_fee;
pub use raw::{raw_block, raw_header, raw_receipts, raw_transaction};
