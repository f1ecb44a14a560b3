//! Names of blocks on the command line.

use neve_store::Hash;

/// Reads the hash of a block.
pub(super) fn hash(text: &str) -> Result<Hash, String> {
    let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 64 && is_hex(digits));
    let byte = |at: usize| u8::from_str_radix(&digits?[2 * at..2 * at + 2], 16).ok();
    let mut bytes = [0; 32];
    for (at, place) in bytes.iter_mut().enumerate() {
        *place = byte(at).ok_or("write 0x and 64 hexadecimal digits")?;
    }
    Ok(Hash(bytes))
}

/// Reads a height, in decimal or as 0x and hexadecimal digits.
pub(super) fn height(text: &str) -> Result<u64, String> {
    crate::config::units::height(text)
        .ok_or_else(|| "write a height: 69000000 or 0x41cdb40".to_owned())
}

fn is_hex(digits: &str) -> bool {
    digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Reads the name of a block: a hash as it is, a height as JSON-RPC writes it.
pub(super) fn block(text: &str) -> Result<String, String> {
    let digits = text.strip_prefix("0x");
    if text.len() == 66 && digits.is_some_and(is_hex) {
        return Ok(text.to_owned());
    }
    let why = "write a height (69000000 or 0x41cdb40) or a hash of 0x and 64 hexadecimal digits";
    height(text).map(|height| format!("{height:#x}")).map_err(|_| why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_a_hash_have_no_sign() {
        let of = |digits: &str| hash(&format!("0x{}", digits.repeat(32)));
        assert_eq!(of("0f"), Ok(Hash([15; 32])));
        assert!(of("+f").is_err());
        assert_eq!(block("0x+5"), Err(block("five").unwrap_err()));
    }
}
