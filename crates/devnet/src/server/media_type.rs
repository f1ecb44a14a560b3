//! Content types that the node takes (libevm, rpc/http.go).

const ACCEPTED: [&str; 3] = ["application/json", "application/json-rpc", "application/jsonrequest"];

/// True if a request with this content type may carry JSON-RPC. Parameters are not looked at.
pub(crate) fn is_json(value: &[u8]) -> bool {
    let base = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    ACCEPTED.iter().any(|accepted| base.eq_ignore_ascii_case(accepted.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_json() {
        for good in ["application/json", "Application/JSON ; charset=utf-8", "application/json-rpc"]
        {
            assert!(is_json(good.as_bytes()), "{good}");
        }
        for bad in ["", "text/plain", "application/jsonx", "application/json, text/plain"] {
            assert!(!is_json(bad.as_bytes()), "{bad}");
        }
    }
}
