//! Positional arguments, taken as `libevm/rpc` (json.go, parsePositionalArguments) takes them.

use super::values::{Decoded, float};
use crate::error::RpcError;
use crate::json::SyntaxScanner;

/// The arguments of one call, taken from left to right: the first that is wrong is reported.
#[derive(Clone)]
pub(crate) struct Arguments<'a> {
    scanner: Option<SyntaxScanner<'a>>,
    taken: usize,
}

impl<'a> Arguments<'a> {
    /// Absent, null and empty parameters are the same.
    pub(crate) fn new(params: Option<&'a [u8]>) -> Result<Self, RpcError> {
        let mut scanner = SyntaxScanner::new(params.unwrap_or(b"null"));
        let scanner = match scanner.peek() {
            Some(b'[') => {
                scanner.take(b'[');
                Some(scanner)
            }
            Some(b'n') => None,
            // Go decodes a number before it finds that it is no array.
            Some(b'-' | b'0'..=b'9') => return Err(not_an_array(params.unwrap_or_default())),
            _ => return Err(RpcError::NON_ARRAY),
        };
        Ok(Self { scanner, taken: 0 })
    }

    /// True if there is no array to take from.
    pub(crate) fn is_absent(&self) -> bool {
        self.scanner.is_none()
    }

    fn next(&mut self) -> Option<&'a [u8]> {
        let scanner = self.scanner.as_mut()?;
        if self.taken > 0 && !scanner.take(b',') || scanner.peek() == Some(b']') {
            return None;
        }
        self.taken += 1;
        scanner.value(0).ok() // it was taken once before, so it is JSON
    }

    /// The next argument's text, without taking it.
    pub(crate) fn peek(&self) -> Option<&'a [u8]> {
        self.clone().next()
    }

    /// The next argument, decoded.
    pub(crate) fn take<T>(
        &mut self,
        decode: impl FnOnce(&'a [u8]) -> Decoded<T>,
    ) -> Result<T, RpcError> {
        let at = self.taken;
        let missing = || RpcError::params(format!("missing value for required argument {at}"));
        let value = self.next().ok_or_else(missing)?;
        decode(value).map_err(|why| RpcError::params(format!("invalid argument {at}: {why}")))
    }

    /// The next argument if it is there and not null: a pointer to Go.
    pub(crate) fn optional<T>(
        &mut self,
        decode: impl FnOnce(&'a [u8]) -> Decoded<T>,
    ) -> Result<Option<T>, RpcError> {
        // Go leaves a pointer nil for both, so the node cannot tell them apart.
        if let Some(b"null") | None = self.peek() {
            self.next();
            return Ok(None);
        }
        self.take(decode).map(Some)
    }

    /// Checks that there are no more arguments.
    pub(crate) fn end(&self) -> Result<(), RpcError> {
        if self.peek().is_none() {
            return Ok(());
        }
        // There are more, so each one before was there to be taken.
        Err(RpcError::params(format!("too many arguments, want at most {}", self.taken)))
    }
}

/// The error for parameters that are a number.
fn not_an_array(number: &[u8]) -> RpcError {
    float(number).map_or_else(|why| RpcError::params(why.to_string()), |_| RpcError::NON_ARRAY)
}
