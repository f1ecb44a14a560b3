//! Names of blocks on the command line.

use neve_store::Hash;

/// Reads the hash of a block.
pub(super) fn hash(text: &str) -> Result<Hash, String> {
    let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 64 && digits.is_ascii());
    // Slices of two bytes end between characters, because all of them are ASCII.
    let byte = |at: usize| u8::from_str_radix(&digits?[2 * at..2 * at + 2], 16).ok();
    let mut bytes = [0; 32];
    for (at, place) in bytes.iter_mut().enumerate() {
        *place = byte(at).ok_or("write 0x and 64 hexadecimal digits")?;
    }
    Ok(Hash(bytes))
}

/// Reads a height, in decimal or as 0x and hexadecimal digits.
pub(super) fn height(text: &str) -> Result<u64, String> {
    let height = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    height.ok_or_else(|| "write a height: 69000000 or 0x41cdb40".to_owned())
}

/// Reads the name of a block: a hash as it is, a height as JSON-RPC writes it.
pub(super) fn block(text: &str) -> Result<String, String> {
    let digits = text.strip_prefix("0x");
    let is_hex = digits.is_some_and(|digits| digits.chars().all(|c| c.is_ascii_hexdigit()));
    if is_hex && text.len() == 66 {
        return Ok(text.to_owned());
    }
    let why = "write a height (69000000 or 0x41cdb40) or a hash of 0x and 64 hexadecimal digits";
    height(text).map(|height| format!("{height:#x}")).map_err(|_| why.to_owned())
}
