//! Results in the body of a response: taken apart, and joined.

use bytes::{Bytes, BytesMut};
use neve_jsonrpc::envelope;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::error::{CallError, CallResult};
use super::peer_text::PeerText;

#[derive(Deserialize)]
struct RpcEnvelope<'a> {
    #[serde(default)]
    id: u64,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<ErrorBody>,
}

#[derive(Deserialize)]
struct ErrorBody {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
}

/// The result in an answer's body: a slice of it, not a copy. In the node's own form the result is found
/// without parsing it. The caller parses it, strictly.
pub(super) fn result(body: &Bytes) -> CallResult {
    if let Some(result) = known_form(body) {
        return Ok((&result[..] != b"null").then_some(result));
    }
    let answer: RpcEnvelope<'_> =
        serde_json::from_slice(body).map_err(|error| garbage(&error, body))?;
    answer.into_result(body)
}

/// `{"jsonrpc":"2.0","id":7,"result":` … `}` with or without a newline.
fn known_form(body: &Bytes) -> Option<Bytes> {
    let rest = body.strip_prefix(envelope::PREFIX)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let from = rest[digits..].strip_prefix(envelope::RESULT)?;
    let inside = from.strip_suffix(envelope::NEWLINE).unwrap_or(from);
    Some(body.slice_ref(inside.strip_suffix(envelope::SUFFIX)?))
}

impl RpcEnvelope<'_> {
    fn into_result(self, body: &Bytes) -> CallResult {
        match self.error {
            Some(ErrorBody { code, message }) => {
                Err(CallError::Rpc { code, message: message.into() })
            }
            None => Ok(self.result.map(|result| body.slice_ref(result.get().as_bytes()))),
        }
    }
}

fn garbage(error: &serde_json::Error, body: &[u8]) -> CallError {
    let start = String::from_utf8_lossy(&body[..body.len().min(100)]);
    // The error has the upstream's text in it, too.
    CallError::InvalidJson(PeerText::new(&format!(
        "{} in {start}",
        PeerText::new(&error.to_string())
    )))
}

/// The two results of a batch of two. In the node's own form the beginning of the second answer is
/// searched for. Inside a string its quotes would be escaped, and a text that has it elsewhere is no
/// block.
pub(super) fn split_pair(body: &Bytes, first: u64) -> Result<[CallResult; 2], CallError> {
    // A block is megabytes: a parser would read all of it only to find its end.
    if let Some(pair) = known_pair(body, first) {
        return Ok(pair);
    }
    let mut results = answers_by_id(body, first, 2)?;
    let second = results.pop().unwrap_or(Ok(None));
    Ok([results.pop().unwrap_or(Ok(None)), second])
}

fn known_pair(body: &Bytes, first: u64) -> Option<[CallResult; 2]> {
    let inside = body.strip_suffix(envelope::NEWLINE).unwrap_or(body);
    let inside = inside.strip_prefix(b"[")?.strip_suffix(b"]")?;
    let mut second = Vec::with_capacity(64);
    envelope::write_prefix(&mut second, (first + 1).to_string().as_bytes());
    let at = memchr::memmem::find(inside, &second)?;
    let (one, two) = (inside[..at].strip_suffix(b",")?, &inside[at..]);
    let slice = |answer: &[u8]| {
        let result = known_form(&body.slice_ref(answer))?;
        Some(Ok((&result[..] != b"null").then_some(result)))
    };
    let id = one.strip_prefix(envelope::PREFIX)?;
    id.starts_with(format!("{first},").as_bytes()).then_some(())?;
    Some([slice(one)?, slice(two)?])
}

/// Sorts the results of a batch, whose ids run from `first`, by their ids.
pub(super) fn split_batch(
    body: &Bytes,
    first: u64,
    count: usize,
) -> Result<Vec<Option<Bytes>>, CallError> {
    answers_by_id(body, first, count)?.into_iter().collect()
}

fn answers_by_id(body: &Bytes, first: u64, count: usize) -> Result<Vec<CallResult>, CallError> {
    let answers: Vec<RpcEnvelope<'_>> =
        serde_json::from_slice(body).map_err(|error| garbage(&error, body))?;
    let mut results: Vec<_> = (0..count).map(|_| None).collect();
    for answer in answers {
        // An upstream chooses the ids that it sends: those of no call are refused.
        let at = answer.id.checked_sub(first).map(|at| at as usize).filter(|at| *at < count);
        let at = at.ok_or_else(|| CallError::InvalidJson("an answer with another id".into()))?;
        results[at] = Some(answer.into_result(body));
    }
    let missing = results.iter().filter(|result| result.is_none()).count();
    if missing > 0 {
        let why = format!("{missing} of {count} answers of a batch are missing");
        return Err(CallError::InvalidJson(why.into()));
    }
    Ok(results.into_iter().flatten().collect())
}

/// Joins results into the array that one call for all of them would have given.
pub(crate) fn join(results: &[Bytes]) -> Bytes {
    let len = results.iter().map(|result| result.len() + 1).sum::<usize>() + 2;
    let mut joined = BytesMut::with_capacity(len);
    joined.extend_from_slice(b"[");
    for (at, result) in results.iter().enumerate() {
        if at > 0 {
            joined.extend_from_slice(b",");
        }
        joined.extend_from_slice(result);
    }
    joined.extend_from_slice(b"]");
    joined.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_slices_of_the_body() {
        let of = |text: &'static str| result(&Bytes::from_static(text.as_bytes()));
        let node = of("{\"jsonrpc\":\"2.0\",\"id\":12,\"result\":{\"a\":[1]}}\n").unwrap();
        assert_eq!(node.as_deref(), Some(&b"{\"a\":[1]}"[..]));
        let other = of("{\"id\": 1, \"result\": \"0x1\", \"jsonrpc\": \"2.0\"}").unwrap();
        assert_eq!(other.as_deref(), Some(&b"\"0x1\""[..]));
        assert_eq!(of("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":null}\n").unwrap(), None);
        let error =
            of("{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"no\"}}");
        assert!(error.unwrap_err().is_no_method());
        for bad in ["", "{", "<html>", "[]", "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"x\""] {
            assert!(matches!(of(bad), Err(CallError::InvalidJson(_))), "{bad}");
        }
    }

    #[test]
    fn a_batch_is_sorted_by_id_and_must_be_complete() {
        let split = |text: &'static str| split_batch(&Bytes::from_static(text.as_bytes()), 5, 2);
        let good = split("[{\"id\":6,\"result\":2},{\"id\":5,\"result\":null}]").unwrap();
        assert_eq!(good, [None, Some(Bytes::from_static(b"2"))]);
        for bad in [
            "[]",
            "[{\"id\":5,\"result\":1}]",
            "[{\"id\":7,\"result\":1}]",
            "{}",
            "[{\"id\":5,\"result\":1},{\"id\":5,\"result\":1}]",
            "[{\"id\":5,\"result\":1},{\"id\":6,\"error\":{\"code\":1,\"message\":\"no\"}}]",
        ] {
            assert!(split(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_pair_is_taken_apart_in_any_form() {
        let one = |id: u64, result: &str| {
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}")
        };
        let split = |text: String| split_pair(&Bytes::from(text), 5);
        let (block, receipts) = (r#"{"a":"}],[{"}"#, "[{},{}]");
        let expected = [Some(Bytes::from(block)), Some(Bytes::from(receipts))];
        for text in [
            format!("[{},{}]\n", one(5, block), one(6, receipts)),
            format!("[{},{}]", one(5, block), one(6, receipts)),
            format!("[{},{}]", one(6, receipts), one(5, block)),
            format!("[ {} , {} ]", one(5, block), one(6, receipts)),
        ] {
            let found = split(text.clone()).unwrap().map(Result::unwrap);
            assert_eq!(found, expected, "{text}");
        }
        let null = split(format!("[{},{}]\n", one(5, "null"), one(6, "null"))).unwrap();
        assert_eq!(null.map(Result::unwrap), [None, None]);
        let no_method = "{\"id\":6,\"error\":{\"code\":-32601,\"message\":\"no\"}}";
        let [first, second] = split(format!("[{},{no_method}]", one(5, "{}"))).unwrap();
        assert!(first.is_ok() && second.unwrap_err().is_no_method());
        for bad in ["", "[]", "{}", &format!("[{}]", one(5, "1")), &one(5, "1")] {
            assert!(split(bad.to_owned()).is_err(), "{bad}");
        }
    }

    #[test]
    fn joined_results_are_an_array() {
        assert_eq!(join(&[]), "[]");
        assert_eq!(join(&[Bytes::from_static(b"1"), Bytes::from_static(b"{}")]), "[1,{}]");
    }
}
