//! Content types as Go's `mime.ParseMediaType` takes them: what it refuses, the node refuses.

/// Content types that go-ethereum's RPC server accepts (libevm, rpc/http.go).
const ACCEPTED: [&str; 3] = ["application/json", "application/json-rpc", "application/jsonrequest"];

/// True if a request with this content type may carry JSON-RPC.
pub(crate) fn is_json(value: &[u8]) -> bool {
    if value == b"application/json" {
        return true; // nearly always
    }
    let end = value.iter().position(|byte| *byte == b';').unwrap_or(value.len());
    let (base, parameters) = value.split_at(end);
    let Ok(base) = std::str::from_utf8(base) else { return false };
    let accepted = ACCEPTED.iter().any(|accepted| base.trim().eq_ignore_ascii_case(accepted));
    accepted && parameters_parse(parameters)
}

/// True for `;key=value` again and again, no key with two values. One trailing semicolon is forgiven.
fn parameters_parse(mut rest: &[u8]) -> bool {
    let mut found = Vec::new();
    loop {
        rest = trim_start(rest);
        let is_end = |text: &[u8]| trim_start(text).is_empty();
        if rest.is_empty() || rest.strip_prefix(b";").is_some_and(is_end) {
            break;
        }
        let Some((parameter, after)) = parameter(rest) else { return false };
        found.push(parameter);
        rest = after;
    }
    if found.len() < 2 {
        return true; // nearly always
    }
    // In order, so that many keys take no more time than their text.
    found.sort_by(|one, other| lower(one.key).cmp(lower(other.key)));
    found.windows(2).all(|pair| {
        !pair[0].key.eq_ignore_ascii_case(pair[1].key)
            || unescaped(pair[0].value).eq(unescaped(pair[1].value))
    })
}

struct Parameter<'v> {
    key: &'v [u8],
    /// A token, or the text between quotes.
    value: &'v [u8],
}

/// Returns the parameter that `text` begins with, and the text behind it.
fn parameter(text: &[u8]) -> Option<(Parameter<'_>, &[u8])> {
    let (key, rest) = token(trim_start(text.strip_prefix(b";")?))?;
    let rest = trim_start(trim_start(rest).strip_prefix(b"=")?);
    let (value, after) = match rest.strip_prefix(b"\"") {
        Some(inside) => quoted(inside)?,
        None => token(rest)?,
    };
    Some((Parameter { key, value }, after))
}

fn token(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_token = |byte: &u8| byte.is_ascii_graphic() && !is_special(*byte);
    let end = text.iter().position(|byte| !is_token(byte)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// Returns the text in front of the closing quote, and the text behind it.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 0;
    loop {
        match *text.get(at)? {
            b'"' => return Some((&text[..at], &text[at + 1..])),
            b'\r' | b'\n' => return None,
            _ => at += if escapes(&text[at..]) { 2 } else { 1 },
        }
    }
}

/// True if the first byte is a backslash that escapes the second. Before any other byte it stands for itself.
fn escapes(text: &[u8]) -> bool {
    matches!(text, [b'\\', next, ..] if is_special(*next))
}

/// True for bytes that stand in no token (RFC 2045, 5.1).
fn is_special(byte: u8) -> bool {
    matches!(byte, b'(' | b')' | b'<' | b'>' | b'@' | b',' | b';' | b':' | b'\\' | b'"')
        || matches!(byte, b'/' | b'[' | b']' | b'?' | b'=')
}

fn unescaped(mut value: &[u8]) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let from = usize::from(escapes(value));
        let byte = *value.get(from)?;
        value = &value[from + 1..];
        Some(byte)
    })
}

fn lower(key: &[u8]) -> impl Iterator<Item = u8> {
    key.iter().map(u8::to_ascii_lowercase)
}

/// Returns `text` from its first byte that is no space of Unicode; a byte that is no UTF-8 is none.
fn trim_start(mut text: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] = text {
        text = rest;
    }
    if text.first().is_none_or(u8::is_ascii_graphic) {
        return text; // nearly always
    }
    // No space begins behind this byte, so a long text is decoded once at most.
    let end = text.iter().position(u8::is_ascii_graphic).unwrap_or(text.len());
    let spaces = text[..end].utf8_chunks().next().map_or("", |chunk| chunk.valid());
    &text[spaces.len() - spaces.trim_start().len()..]
}

#[cfg(test)]
mod tests {
    use super::is_json;

    #[test]
    fn takes_what_the_node_takes() {
        for good in [
            "application/json",
            "APPLICATION/JSON",
            "application/json; charset=utf-8",
            "application/json ;charset=utf-8",
            "application/json;",
            "application/json-rpc",
            "application/jsonrequest",
            " application/json ",
            "application/json;a=\"x;y\\\"\"",
            "application/json; charset=utf-8; charset=utf-8",
            "application/json; a=b; A=\"b\"",
            "application/json;a=\"\";a=\"\"",
            r#"application/json;a="x\y";a="x\\y""#,
            r#"application/json;a="\;";a=";""#,
            "application/json;\u{2003}a=b\u{a0}",
        ] {
            assert!(is_json(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            "text/plain",
            "json",
            "*/*",
            "application/json;;",
            "application/json; charset",
            "application/json; a=b; A=c",
            "application/json; a=b; a=B",
            r#"application/json;a="x\y";a=xy"#,
            r#"application/json;a="x\""#,
            "application/json;a=b;;",
            "application/json, text/plain",
            "application/jsonx",
            "application/json;a=\"x",
            "application/json;=x",
            "application/json;a= ;b=c",
        ] {
            assert!(!is_json(bad.as_bytes()), "{bad}");
        }
        assert!(!is_json(b"application/json;a=\xff"));
        assert!(is_json(b"application/json;a=\"\xff\";a=\"\xff\""));
        assert!(!is_json(b"application/json;a=\"\xff\";a=\"\xfe\""));
        assert!(!is_json(b"application/json;\xc2 a=b"));
        assert!(!is_json(b"application/json\xff"));
    }
}
