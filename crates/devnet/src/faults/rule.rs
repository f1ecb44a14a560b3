//! Conditions of a fault.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use super::fault::Fault;

/// A fault, and when it applies.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub(super) fault: Fault,
    heights: Option<RangeInclusive<u64>>,
    method: Option<String>,
    pub(super) times: Option<u64>,
    /// Cases of a thousand in which it applies.
    pub(super) share: u16,
}

/// Subject of a request.
#[derive(Clone, Debug)]
pub(crate) struct Subject<'m> {
    /// Method of the call.
    pub(crate) method: Cow<'m, str>,
    /// The height that it asks about, if there is one and the node knows it.
    pub(crate) height: Option<u64>,
}

/// Heights: one, or a range.
#[derive(Clone, Debug)]
pub struct Heights(RangeInclusive<u64>);

impl From<u64> for Heights {
    fn from(height: u64) -> Self {
        Self(height..=height)
    }
}

impl From<RangeInclusive<u64>> for Heights {
    fn from(heights: RangeInclusive<u64>) -> Self {
        Self(heights)
    }
}

impl From<Fault> for Rule {
    fn from(fault: Fault) -> Self {
        Self { fault, heights: None, method: None, times: None, share: 1_000 }
    }
}

impl Fault {
    /// Lets it apply to requests about these heights only.
    pub fn at(self, heights: impl Into<Heights>) -> Rule {
        Rule::from(self).at(heights)
    }

    /// Lets it apply to requests of this method only.
    pub fn on(self, method: &str) -> Rule {
        Rule::from(self).on(method)
    }

    /// Lets it apply so many times.
    pub fn times(self, times: u64) -> Rule {
        Rule::from(self).times(times)
    }

    /// Lets it apply to so many of a thousand of its requests.
    pub fn share(self, thousandths: u16) -> Rule {
        Rule::from(self).share(thousandths)
    }
}

impl Rule {
    /// Lets it apply to requests about these heights only.
    #[must_use]
    pub fn at(mut self, heights: impl Into<Heights>) -> Self {
        self.heights = Some(heights.into().0);
        self
    }

    /// Lets it apply to requests of this method only.
    #[must_use]
    pub fn on(mut self, method: &str) -> Self {
        self.method = Some(method.to_owned());
        self
    }

    /// Lets it apply so many times.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Lets it apply to so many of a thousand of its requests: which ones looks random, and is the
    /// same in every run that asks in the same order.
    #[must_use]
    pub fn share(mut self, thousandths: u16) -> Self {
        self.share = thousandths;
        self
    }

    /// True if it never applies: its share is zero.
    pub fn is_idle(&self) -> bool {
        self.share == 0
    }

    /// True if it applies to a body with these calls: to one of them is enough.
    pub(super) fn covers(&self, subjects: &[Subject<'_>]) -> bool {
        let unconditional = self.heights.is_none() && self.method.is_none();
        unconditional || subjects.iter().any(|subject| self.covers_one(subject))
    }

    fn covers_one(&self, subject: &Subject<'_>) -> bool {
        let height = self
            .heights
            .as_ref()
            .is_none_or(|heights| subject.height.is_some_and(|height| heights.contains(&height)));
        height && self.method.as_ref().is_none_or(|method| *method == subject.method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_narrowed() {
        let rule = Fault::Stall.at(3..=5).on("a").times(2);
        let subject = |method: &'static str, height| Subject { method: method.into(), height };
        assert!(rule.covers(&[subject("b", Some(3)), subject("a", Some(5))]));
        for other in [subject("a", Some(6)), subject("b", Some(5)), subject("a", None)] {
            assert!(!rule.covers(&[other]));
        }
        // One call must fulfil all conditions.
        assert!(!rule.covers(&[subject("b", Some(3)), subject("a", Some(7))]));
        assert!(!rule.covers(&[]));
        assert!(Rule::from(Fault::Stall).covers(&[]));
        assert!(Fault::Stall.at(3).covers(&[subject("", Some(3))]));
    }
}
