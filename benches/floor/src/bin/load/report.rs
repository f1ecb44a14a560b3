//! Result in one line.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use crate::connection::Answer;

#[derive(Default)]
pub(crate) struct Report {
    pub(crate) duration: Duration,
    /// Connections that had no answer in the end.
    pub(crate) stalled: usize,
    bytes: usize,
    /// Answers of another status than 200.
    others: usize,
    /// Time of each answer, in microseconds.
    took: Vec<u32>,
}

impl Report {
    pub(crate) fn add(&mut self, answer: &Answer) {
        self.bytes += answer.bytes;
        self.others += usize::from(!answer.ok);
        self.took.push(u32::try_from(answer.took.as_micros()).unwrap_or(u32::MAX));
    }
}

impl Display for Report {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let mut took = self.took.clone();
        took.sort_unstable();
        // By nearest rank.
        let rank = |of_thousand: usize| (took.len() * of_thousand).div_ceil(1_000);
        let share =
            |of_thousand: usize| took.get(rank(of_thousand).saturating_sub(1)).unwrap_or(&0);
        let sum: u64 = took.iter().copied().map(u64::from).sum();
        write!(out, r#"JSON {{"requests":{},"bytes":{}"#, took.len(), self.bytes)?;
        write!(out, r#","duration_us":{},"status":{}"#, self.duration.as_micros(), self.others)?;
        write!(out, r#","timeout":{}"#, self.stalled)?;
        write!(out, r#","mean_us":{}"#, sum / (took.len() as u64).max(1))?;
        write!(out, r#","p50_us":{},"p90_us":{}"#, share(500), share(900))?;
        write!(out, r#","p99_us":{},"p99_9_us":{}}}"#, share(990), share(999))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_all_answers() {
        let mut report = Report { duration: Duration::from_secs(1), ..Report::default() };
        for micros in (1..=1_000).rev() {
            let took = Duration::from_micros(micros);
            report.add(&Answer { bytes: 10, ok: micros > 1, took });
        }
        let expected = concat!(
            r#"JSON {"requests":1000,"bytes":10000,"duration_us":1000000,"status":1,"timeout":0,"#,
            r#""mean_us":500,"p50_us":500,"p90_us":900,"p99_us":990,"p99_9_us":999}"#,
        );
        assert_eq!(report.to_string(), expected);
    }

    #[test]
    fn report_without_requests_divides_by_no_zero() {
        assert!(Report::default().to_string().contains(r#""requests":0,"#));
    }
}
