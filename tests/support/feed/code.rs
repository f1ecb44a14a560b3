//! EVM code written by hand, so that no compiler stands between a test and its bytes.
//!
//! Each opcode is named beside its byte. Operands are pushed last argument first: what is pushed
//! last is the opcode's first argument.

use alloy_primitives::B256;

/// A log to emit: as many topics as given (at most four) and `size` bytes of data.
pub(crate) struct Event {
    /// The topics, first one first.
    pub(crate) topics: Vec<B256>,
    /// Data bytes: the first 32 are the filler, the rest is zero.
    pub(crate) size: u16,
}

/// Reverts a creation with 32 bytes of data, the last of them 42.
pub(crate) const REVERTING_CONSTRUCTOR: [u8; 10] = [
    0x60, 0x2a, // PUSH1 42
    0x60, 0x00, // PUSH1 0
    0x52, //       MSTORE(0, 42)
    0x60, 0x20, // PUSH1 32
    0x60, 0x00, // PUSH1 0
    0xfd, //       REVERT(0, 32)
];

/// Creates an account with nonce 1 and no code.
pub(crate) const EMPTY_CONSTRUCTOR: [u8; 1] = [
    0x00, // STOP
];

/// Runtime code that reverts with its own call data, or without any burns all gas in a loop.
pub(crate) const TRAP: [u8; 18] = [
    0x36, //       0: CALLDATASIZE
    0x60, 0x08, // 1: PUSH1 8
    0x57, //       3: JUMPI(8, size)
    0x5b, //       4: JUMPDEST
    0x60, 0x04, // 5: PUSH1 4
    0x56, //       7: JUMP(4)
    0x5b, //       8: JUMPDEST
    0x36, //       9: CALLDATASIZE
    0x60, 0x00, // 10: PUSH1 0
    0x80, //      12: DUP1
    0x37, //      13: CALLDATACOPY(0, 0, size)
    0x36, //      14: CALLDATASIZE
    0x60, 0x00, // 15: PUSH1 0
    0xfd, //      17: REVERT(0, size)
];

/// LOG0; LOG1 to LOG4 follow it.
const LOG0: u8 = 0xa0;
/// Bytes of what [`constructor`] puts between its body and the runtime code.
const RETURN_CODE: u16 = 15;

/// Code that stores `filler` at the start of memory and then emits `events`, running on behind.
pub(crate) fn emit(filler: B256, events: &[Event]) -> Vec<u8> {
    let mut code = push32(filler);
    code.extend([
        0x60, 0x00, // PUSH1 0
        0x52, //       MSTORE(0, filler)
    ]);
    code.extend(events.iter().flat_map(emit_one));
    code
}

/// Writes the code of an event: the topics from the last to the first, size, offset, `LOGn`.
fn emit_one(event: &Event) -> Vec<u8> {
    let mut code: Vec<u8> = event.topics.iter().rev().copied().flat_map(push32).collect();
    code.extend(push2(event.size));
    code.extend([
        0x60,
        0x00, // PUSH1 0
        LOG0 + event.topics.len() as u8,
    ]);
    code
}

/// Init code that runs `body` and then returns `runtime` as the new contract's code.
pub(crate) fn constructor(body: &[u8], runtime: &[u8]) -> Vec<u8> {
    let (from, length) = (body.len() as u16 + RETURN_CODE, runtime.len() as u16);
    let mut code = body.to_vec();
    code.extend(push2(length));
    code.extend(push2(from));
    code.extend([
        0x60, 0x00, // PUSH1 0
        0x39, //       CODECOPY(0, from, length)
    ]);
    code.extend(push2(length));
    code.extend([
        0x60, 0x00, // PUSH1 0
        0xf3, //       RETURN(0, length)
    ]);
    code.extend(runtime);
    code
}

/// PUSH2 and its two bytes, the high one first.
fn push2(value: u16) -> [u8; 3] {
    [0x61, (value >> 8) as u8, value as u8]
}

/// PUSH32 and its word.
fn push32(word: B256) -> Vec<u8> {
    [&[0x7f], word.as_slice()].concat()
}
