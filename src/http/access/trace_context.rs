//! W3C Trace Context (<https://www.w3.org/TR/trace-context/>): the trace that a request belongs to,
//! and the headers by which an upstream goes on with it.

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Bytes of a `traceparent` of version 00. Later versions may be longer.
const LEN: usize = 55;
/// Bytes of `tracestate` that go on. The recommendation asks for at least so many.
const STATE_LEN_MAX: usize = 512;

/// The trace of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TraceContext {
    /// Id of the trace, in 32 hex digits.
    trace: [u8; 32],
    /// Id of the client's span, in 16 hex digits.
    parent: [u8; 16],
    /// Id of neve's own span.
    span: u64,
    is_sampled: bool,
    state: Option<HeaderValue>,
}

impl TraceContext {
    /// Reads the trace that a request names. A malformed one is none.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut named = headers.get_all(TRACEPARENT).iter();
        // Two headers name no trace: neve and the next server might each take another one.
        let (value, None) = (named.next()?.as_bytes(), named.next()) else { return None };
        let [trace, parent, flags] = fields(value)?;
        let (trace, parent) = (trace.try_into().ok()?, parent.try_into().ok()?);
        // The least bit of a hex digit; no other flag is known.
        let is_sampled = flags[1] % 2 == u8::from(flags[1].is_ascii_digit());
        // Not zero: the recommendation takes an id of zeros for none.
        let (span, state) = (fastrand::u64(1..), state(headers));
        Some(Self { trace, parent, span, is_sampled, state })
    }

    /// Id of the trace.
    pub(super) fn trace(&self) -> &str {
        // Always text: `of` took hex digits only.
        str::from_utf8(&self.trace).unwrap_or_default()
    }

    /// Id of the client's span.
    pub(super) fn parent(&self) -> &str {
        str::from_utf8(&self.parent).unwrap_or_default()
    }

    /// Id of neve's span, which is the parent of the upstream's.
    pub(super) fn span(&self) -> String {
        format!("{:016x}", self.span)
    }

    /// Headers of a request to an upstream.
    pub(super) fn onward(&self) -> HeaderMap {
        let flags = u8::from(self.is_sampled);
        // Version 00 also behind a later one: neve passes on no fields that it does not know.
        let text = format!("00-{}-{}-{flags:02x}", self.trace(), self.span());
        let parent = HeaderValue::try_from(text).ok().map(|value| (TRACEPARENT, value));
        let state = self.state.clone().map(|value| (TRACESTATE, value));
        parent.into_iter().chain(state).collect()
    }
}

/// Id of the trace, id of the client's span, and flags of a `traceparent`; `None` if it is malformed.
fn fields(value: &[u8]) -> Option<[&[u8]; 3]> {
    let (head, rest) = value.split_at_checked(LEN)?;
    let is_first = head.starts_with(b"00");
    // Later versions may add fields behind a dash.
    let ends = if is_first { rest.is_empty() } else { rest.is_empty() || rest[0] == b'-' };
    let is_separated = [2, 35, 52].into_iter().all(|at| head[at] == b'-');
    let (version, trace) = (&head[..2], &head[3..35]);
    let (parent, flags) = (&head[36..52], &head[53..]);
    // The recommendation knows small hex digits only, forbids version ff, and takes ids of
    // zeros for none.
    let is_hex = |field: &&[u8]| field.iter().all(|b| b"0123456789abcdef".contains(b));
    let is_zero = |field: &[u8]| field.iter().all(|b| *b == b'0');
    let is_right = ends
        && is_separated
        && [version, trace, parent, flags].iter().all(is_hex)
        && version != b"ff"
        && !is_zero(trace)
        && !is_zero(parent);
    is_right.then_some([trace, parent, flags])
}

/// The `tracestate` of a request, of which all lines are one list. What is too long or no plain text is
/// left out, as the recommendation allows.
fn state(headers: &HeaderMap) -> Option<HeaderValue> {
    let lines: Vec<_> = headers.get_all(TRACESTATE).iter().map(HeaderValue::as_bytes).collect();
    let state = lines.join(&b","[..]);
    let is_plain = state.iter().all(|b| (b' '..=b'~').contains(b));
    if state.is_empty() || state.len() > STATE_LEN_MAX || !is_plain {
        return None;
    }
    HeaderValue::from_bytes(&state).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const PARENT: &str = "b7ad6b7169203331";

    fn headers(parents: &[&str], states: &[&str]) -> HeaderMap {
        let named = |name: HeaderName, value: &&str| {
            (name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"))
        };
        let parents = parents.iter().map(|value| named(TRACEPARENT, value));
        parents.chain(states.iter().map(|value| named(TRACESTATE, value))).collect()
    }

    fn of(parent: &str) -> Option<TraceContext> {
        TraceContext::of(&headers(&[parent], &[]))
    }

    #[test]
    fn upstream_gets_the_trace_with_a_new_span() {
        for (flags, onward) in
            [("00", "00"), ("01", "01"), ("03", "01"), ("fe", "00"), ("ff", "01")]
        {
            let trace = of(&format!("00-{TRACE}-{PARENT}-{flags}")).expect("a trace");
            assert_eq!((trace.trace(), trace.parent()), (TRACE, PARENT));
            let expected = format!("00-{TRACE}-{}-{onward}", trace.span());
            assert_eq!(trace.onward()[TRACEPARENT], expected, "{flags}");
            assert_ne!(trace.span(), PARENT);
            assert!(!trace.onward().contains_key(TRACESTATE));
        }
    }

    #[test]
    fn malformed_trace_is_none_and_a_later_version_is_read_as_far_as_it_is_known() {
        let right = format!("00-{TRACE}-{PARENT}-01");
        for wrong in [
            "",
            "00",
            &right[1..],
            &right[..LEN - 1],
            &format!("{right}-"),
            &format!("{right}0"),
            &right.to_uppercase(),
            &right.replace('-', "_"),
            &format!("ff-{TRACE}-{PARENT}-01"),
            &format!("00-{}-{PARENT}-01", "0".repeat(32)),
            &format!("00-{TRACE}-{}-01", "0".repeat(16)),
            &format!("00-{TRACE}-{PARENT}-0g"),
            &format!("0\u{e9}{}", &right[3..]),
            &format!("01-{TRACE}-{PARENT}-01x"),
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        assert_eq!(TraceContext::of(&headers(&[&right, &right], &[])), None, "two parents");
        let later = of(&format!("cc-{TRACE}-{PARENT}-09-more")).expect("a trace");
        assert!(later.onward()[TRACEPARENT].to_str().expect("text").starts_with("00-"));
    }

    #[test]
    fn state_goes_on_if_it_is_short_and_plain() {
        let right = format!("00-{TRACE}-{PARENT}-01");
        let onward = |states: &[&str]| {
            let trace = TraceContext::of(&headers(&[&right], states)).expect("a trace");
            trace.onward().remove(TRACESTATE)
        };
        assert_eq!(onward(&["rojo=1", "congo=t61"]).expect("a state"), "rojo=1,congo=t61");
        assert!(onward(&[&"x".repeat(STATE_LEN_MAX)]).is_some());
        for wrong in ["", "a\tb", "caf\u{e9}=1", &"x".repeat(STATE_LEN_MAX + 1)] {
            assert_eq!(onward(&[wrong]), None, "{wrong}");
        }
    }
}
