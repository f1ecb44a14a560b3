//! Content types as Go's `mime.ParseMediaType` takes them: what it refuses, the node refuses.

/// Content types that go-ethereum's RPC server accepts (libevm, rpc/http.go).
const ACCEPTED: [&str; 3] = ["application/json", "application/json-rpc", "application/jsonrequest"];

/// True if a request with this content type may carry JSON-RPC.
pub(crate) fn is_json(value: &[u8]) -> bool {
    if value == b"application/json" {
        return true; // nearly always
    }
    let Ok(value) = std::str::from_utf8(value) else { return false };
    let (base, parameters) = value.split_at(value.find(';').unwrap_or(value.len()));
    let accepted = ACCEPTED.iter().any(|accepted| base.trim().eq_ignore_ascii_case(accepted));
    accepted && parameters_parse(parameters)
}

/// `;key=value` again and again, no key twice; one trailing semicolon is forgiven.
fn parameters_parse(mut rest: &str) -> bool {
    let mut seen: Vec<String> = Vec::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() || rest.trim_end() == ";" {
            return true;
        }
        let Some((key, after)) = parameter(rest) else { return false };
        if seen.contains(&key) {
            return false;
        }
        seen.push(key);
        rest = after;
    }
}

/// The key of the parameter that `text` begins with, lower-case, and what follows it.
fn parameter(text: &str) -> Option<(String, &str)> {
    let (key, rest) = token(text.strip_prefix(';')?.trim_start())?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let rest = match rest.strip_prefix('"') {
        Some(quoted) => after_quoted(quoted)?,
        None => token(rest)?.1,
    };
    Some((key.to_ascii_lowercase(), rest))
}

fn token(text: &str) -> Option<(&str, &str)> {
    let is_token = |c: char| c.is_ascii_graphic() && !"()<>@,;:\\\"/[]?=".contains(c);
    let end = text.find(|c| !is_token(c)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

fn after_quoted(text: &str) -> Option<&str> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' if !escaped => return Some(&text[at + 1..]),
            '\r' | '\n' => return None,
            _ => escaped = c == '\\' && !escaped,
        }
    }
    None
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
            "application/json, text/plain",
            "application/jsonx",
            "application/json;a=\"x",
            "application/json;=x",
            "application/json;a= ;b=c",
        ] {
            assert!(!is_json(bad.as_bytes()), "{bad}");
        }
        assert!(!is_json(b"application/json;a=\xff"));
    }
}
