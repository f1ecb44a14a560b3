//! Walking through containers that the scanner took before, so that they are known to be JSON.

use super::scan::SyntaxScanner;

/// The members of an object that [`parse`](crate::parse) took, as raw keys and values, in order.
pub fn members(object: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut scanner = SyntaxScanner::new(object);
    scanner.take(b'{');
    std::iter::from_fn(move || {
        let key = scanner.string().ok()?;
        scanner.take(b':');
        // The depth was checked when the whole text was taken.
        let value = scanner.value(0).ok()?;
        scanner.take(b',');
        Some((key, value))
    })
}

/// The elements of an array that [`parse`](crate::parse) took, in order.
pub fn elements(array: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut scanner = SyntaxScanner::new(array);
    scanner.take(b'[');
    std::iter::from_fn(move || {
        let value = scanner.value(0).ok()?;
        scanner.take(b',');
        Some(value)
    })
}
