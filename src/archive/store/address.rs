//! Addresses of S3 APIs. The client of S3 panics on some that are none.

use object_store::ObjectStoreScheme;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};

use crate::archive::error::Failed;
use crate::config::{ArchiveEndpoint, ParseError};

/// Checks the addresses that a client of S3 is to use: variables of AWS name them too.
pub(super) fn check_endpoints(builder: &AmazonS3Builder) -> Result<(), Failed> {
    for key in [AmazonS3ConfigKey::Endpoint, AmazonS3ConfigKey::S3Endpoint] {
        if let Some(url) = builder.get_config_value(&key) {
            check_endpoint(&url).map_err(|why| Failed::Url { url, why })?;
        }
    }
    Ok(())
}

/// Checks the address of an S3 API.
fn check_endpoint(endpoint: &str) -> Result<(), String> {
    let wrong = |error: ParseError| error.to_string();
    endpoint.parse::<ArchiveEndpoint>().map_err(wrong)?;
    let why = "no address of an S3 API; write http://HOST:PORT or https://HOST";
    is_url(endpoint).then_some(()).ok_or_else(|| why.to_owned())
}

/// True if the parser of the client of S3 takes it. The crate shows its type of URLs only by functions that take one.
fn is_url(text: &str) -> bool {
    text.parse().map(|url| drop(ObjectStoreScheme::parse(&url))).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_are_no_url_of_an_api_are_refused() {
        for wrong in [
            "",
            "/x",
            "notaurl",
            "127.0.0.1:9000",
            "localhost:9000",
            "http://",
            "http:///x",
            "http://:9000",
            "http://[::1",
            "http://[::x]",
            "http://a b",
            "http://a:99999",
            "http://1.2.3.400",
            "http://xn--a",
            "http://a/?b=c",
            "ftp://a",
            "s3://a",
        ] {
            assert!(check_endpoint(wrong).is_err(), "{wrong:?}");
        }
        for right in
            ["http://127.0.0.1:9000", "https://s3.example.com/", "http://[::1]:9000", "http://a/b"]
        {
            assert_eq!(check_endpoint(right), Ok(()), "{right:?}");
        }
    }
}
