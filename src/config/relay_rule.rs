//! Rules of `--relay-to`: the upstream of some methods at some heights.

use std::ops::RangeInclusive;
use std::str::FromStr;

use super::endpoint::Endpoint;

/// Methods of one rule.
const METHODS_MAX: usize = 64;
const FORM: &str = "write METHODS=URL or METHODS@HEIGHTS=URL, for example debug_*=http://HOST:9650";

/// Upstream of the calls of some methods at some heights.
#[derive(Debug, Clone)]
pub(crate) struct RelayRule {
    methods: Vec<MethodPattern>,
    /// Heights; `None` for all calls, also those without a height.
    heights: Option<RangeInclusive<u64>>,
    pub(crate) endpoint: Endpoint,
}

/// A method, or the begin of methods: `eth_call`, `debug_*`, `*`.
#[derive(Debug, Clone)]
pub(crate) struct MethodPattern {
    begin: String,
    /// True if anything may follow.
    open: bool,
}

impl RelayRule {
    /// True if calls of `methods` at `height` go to its upstream: one of the methods is its own, and
    /// the height too.
    pub(crate) fn matches(&self, methods: &[Box<str>], height: Option<u64>) -> bool {
        let at_height = |range: &RangeInclusive<u64>| height.is_some_and(|at| range.contains(&at));
        self.heights.as_ref().is_none_or(at_height)
            && methods.iter().any(|method| self.has_method(method))
    }

    /// True if a method is its own.
    pub(crate) fn has_method(&self, method: &str) -> bool {
        self.methods.iter().any(|pattern| pattern.matches(method))
    }
}

impl MethodPattern {
    /// True if a method is one of these.
    pub(crate) fn matches(&self, method: &str) -> bool {
        if self.open { method.starts_with(&self.begin) } else { method == self.begin }
    }
}

/// Reads `METHODS=URL` or `METHODS@HEIGHTS=URL`. The first `=` ends the rule, so a URL may have any
/// character.
impl FromStr for RelayRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rule, url) = text.split_once('=').ok_or(FORM)?;
        let (methods, heights) = match rule.split_once('@') {
            Some((methods, heights)) => (methods, Some(range(heights)?)),
            None => (rule, None),
        };
        let methods = methods.split('+').map(str::parse).collect::<Result<Vec<_>, _>>()?;
        if methods.len() > METHODS_MAX {
            return Err(format!("{} methods; allowed: {METHODS_MAX} in one rule", methods.len()));
        }
        Ok(Self { methods, heights, endpoint: Endpoint::parse(url)? })
    }
}

impl FromStr for MethodPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (begin, open) = text.strip_suffix('*').map_or((text, false), |begin| (begin, true));
        let is_word = begin.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !is_word || begin.is_empty() && !open {
            return Err("no method; write eth_call, eth_* or *".to_owned());
        }
        Ok(Self { begin: begin.to_owned(), open })
    }
}

fn range(text: &str) -> Result<RangeInclusive<u64>, String> {
    let read = || {
        let (first, last) = text.split_once('-')?;
        let last = if last.is_empty() { u64::MAX } else { last.parse().ok()? };
        Some((first.parse::<u64>().ok()?, last))
    };
    let (first, last) = read().ok_or("no heights; write FIRST-LAST or FIRST-, both served")?;
    if last < first {
        return Err("the last height is below the first".to_owned());
    }
    Ok(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Result<RelayRule, String> {
        text.parse()
    }

    #[test]
    fn rule_has_the_calls_of_its_methods_and_heights() {
        let applies = |text: &str, method: &str, height| {
            rule(text).unwrap().matches(&["x_y".into(), method.into()], height)
        };
        let traces = "debug_*+trace_block=http://host";
        assert!(applies(traces, "debug_traceCall", None));
        assert!(applies(traces, "trace_block", Some(1)));
        assert!(!applies(traces, "trace_blocks", None));
        let old = "*@5-9=http://host";
        for (height, expected) in
            [(Some(4), false), (Some(5), true), (Some(9), true), (Some(10), false), (None, false)]
        {
            assert_eq!(applies(old, "eth_call", height), expected, "{height:?}");
        }
        assert!(applies("eth_call@7-=http://host", "eth_call", Some(u64::MAX)));
        assert!(!rule("*=http://host").unwrap().matches(&[], None), "no call, no rule");
    }

    #[test]
    fn url_may_have_the_letters_of_the_form() {
        let rule = rule("*@0-=https://host:9/a@b=c+d?e=*").unwrap();
        assert_eq!(rule.endpoint.rpc.reveal().to_string(), "https://host:9/a@b=c+d?e=*");
    }

    #[test]
    fn malformed_rule_is_refused() {
        let many = ["eth_call"; METHODS_MAX + 1].join("+") + "=http://host";
        for text in [
            "",
            "http://host",
            "eth_call",
            "eth_call=",
            "=http://host",
            "eth_call+=http://host",
            "e*h_call=http://host",
            "eth call=http://host",
            "eth_call@=http://host",
            "eth_call@5=http://host",
            "eth_call@-5=http://host",
            "eth_call@6-5=http://host",
            "eth_call@0x5-0x6=http://host",
            "eth_call@1-99999999999999999999=http://host",
            "eth_call=host:80",
            &many,
        ] {
            assert!(rule(text).is_err(), "{text}");
        }
        assert!(rule(&(["eth_call"; METHODS_MAX].join("+") + "=http://host")).is_ok());
    }
}
