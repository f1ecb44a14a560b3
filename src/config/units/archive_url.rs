//! Place of an archive as a person types it: its URL, and the address of the S3 API.

use std::path::PathBuf;
use std::str::FromStr;

use hyper::Uri;

use super::ParseError;

/// URL of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ArchiveUrl {
    /// An absolute path: `file:///DIR`.
    Directory(PathBuf),
    /// A bucket, and what the names of its objects begin with: `s3://BUCKET/PREFIX`.
    Bucket {
        /// Name of the bucket.
        bucket: String,
        /// Names between single slashes, or nothing.
        prefix: String,
    },
}

impl FromStr for ArchiveUrl {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let why = ParseError("no URL of an archive; write s3://BUCKET/PREFIX or file:///DIR");
        if let Some(dir) = text.strip_prefix("file://").map(PathBuf::from) {
            return if dir.is_absolute() { Ok(Self::Directory(dir)) } else { Err(why) };
        }
        let rest = text.strip_prefix("s3://").ok_or(why)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() || !bucket.chars().all(is_bucket_char) {
            return Err(ParseError("no name of a bucket; write s3://BUCKET/PREFIX"));
        }
        if !is_prefix(prefix) {
            return Err(ParseError("no prefix; write names between single slashes, none . or .."));
        }
        Ok(Self::Bucket { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

/// Characters of AWS, and those that other stores allow.
fn is_bucket_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')
}

/// True if objects can have names below it: the rules of `object_store::path::Path`.
fn is_prefix(text: &str) -> bool {
    let inside = text.strip_prefix('/').unwrap_or(text);
    let inside = inside.strip_suffix('/').unwrap_or(inside);
    let is_name = |name: &str| {
        !matches!(name, "" | "." | "..") && !name.chars().any(|c| c.is_ascii_control())
    };
    inside.is_empty() || inside.split('/').all(is_name)
}

/// Address of an S3 API.
pub(crate) struct ArchiveEndpoint;

impl FromStr for ArchiveEndpoint {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let why = ParseError("no address of an S3 API; write http://HOST:PORT or https://HOST");
        let uri: Uri = text.parse().map_err(|_| why)?;
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        let authority = uri.authority().filter(|_| is_http).ok_or(why)?;
        let has_port = authority.as_str().len() > authority.host().len();
        // The credentials stand in variables; a query would hold no path of an object.
        if authority.as_str().contains('@') || uri.query().is_some() {
            return Err(ParseError("allowed: scheme, host, port and path only"));
        }
        match authority.port_u16() {
            None | Some(0) if has_port => Err(ParseError("no port; allowed: 1 to 65535")),
            _ => Ok(Self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_is_a_directory_or_a_bucket() {
        let bucket = |bucket: &str, prefix: &str| {
            Ok(ArchiveUrl::Bucket { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
        };
        assert_eq!("file:///a b".parse(), Ok(ArchiveUrl::Directory("/a b".into())));
        assert_eq!("s3://b".parse(), bucket("b", ""));
        assert_eq!("s3://my.b-1/x/y/".parse(), bucket("my.b-1", "x/y/"));
        for wrong in ["", "/dir", "ftp://x", "http://a/b", "s3://", "s3:///x", "file://dir"] {
            assert!(wrong.parse::<ArchiveUrl>().is_err(), "{wrong}");
        }
        for wrong in ["s3://a b", "s3://a?x", "s3://a/b//c", "s3://a/../b", "s3://a/\n"] {
            assert!(wrong.parse::<ArchiveUrl>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn endpoint_of_an_archive_is_a_url_of_http() {
        for right in ["http://127.0.0.1:9000", "https://s3.example/", "http://[::1]:9000/minio"] {
            assert!(right.parse::<ArchiveEndpoint>().is_ok(), "{right}");
        }
        let wrong = ["", "nourl", "ftp://x", "http://", "http://a:x", "http://a:0", "http://k@a"];
        for wrong in wrong.iter().chain(&["http://a/?b", "127.0.0.1:9000", "http://a b"]) {
            assert!(wrong.parse::<ArchiveEndpoint>().is_err(), "{wrong}");
        }
    }
}
