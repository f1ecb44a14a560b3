//! Prices of gas that a node tells, by its accepted head.
//!
//! A node looks at its clock for some of it. This one takes the head's time for now, so that the
//! same chain has the same prices whenever it is asked, and has no memory of what it said before.

use alloy_primitives::U256;
use neve_chain::{Header, next_base_fee};
use neve_jsonrpc::Rules;

use super::node::Node;

/// Tips are suggested by so many of the newest transactions, sorted, in percent.
const PERCENTILE: usize = 40;
const GWEI: u64 = 1_000_000_000;

/// Prices of gas, in wei.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prices {
    /// Price that the next block may charge, at most.
    pub(crate) base_fee: U256,
    /// Priority fee to offer.
    pub(crate) tip: u128,
}

/// Blocks by which a node suggests a tip, and the tip's bounds.
struct Tips {
    blocks: u64,
    seconds: u64,
    most: u64,
}

impl Tips {
    fn of(rules: Rules) -> Self {
        match rules {
            // coreth, `eth/gasprice/gasprice.go` and `eth/ethconfig`.
            Rules::BeforeHelicon => Self { blocks: 40, seconds: 80, most: 150 * GWEI },
            // saevm, `gasprice/estimator.go`: wei, not gwei.
            Rules::Helicon => Self { blocks: 20, seconds: 60, most: 150 },
        }
    }
}

impl Node {
    /// Prices of gas; `None` while the head is being replaced.
    pub(crate) fn prices(&self) -> Option<Prices> {
        let (rules, head) = (self.rules(), self.accepted());
        let base_fee = match rules {
            Rules::BeforeHelicon => U256::from(self.generator().base_fee_after(head)),
            Rules::Helicon => self.next_base_fee(head)?,
        };
        Some(Prices { base_fee, tip: self.tip(head, &Tips::of(rules))? })
    }

    fn next_base_fee(&self, head: u64) -> Option<U256> {
        let settled = self.block(head)?.header().settled_through();
        let header = |height| self.block(height).map(|block| block.header().clone());
        let headers: Vec<Header> = (settled..=head).map(header).collect::<Option<_>>()?;
        next_base_fee(&headers)
    }

    fn tip(&self, head: u64, rule: &Tips) -> Option<u128> {
        let newest = self.block(head)?.header().timestamp;
        let mut tips = Vec::new();
        for height in (head.saturating_sub(rule.blocks) + 1..=head).rev() {
            let Some(block) = self.block(height) else { break };
            if block.header().timestamp.saturating_add(rule.seconds) < newest {
                break;
            }
            tips.extend_from_slice(block.tips());
        }
        tips.sort_unstable();
        let index = tips.len().saturating_sub(1) * PERCENTILE / 100;
        Some(tips.get(index).map_or(1, |tip| (*tip).clamp(1, rule.most.into())))
    }
}

impl Prices {
    /// Price where no tips are known.
    pub(crate) fn gas_price(&self) -> U256 {
        self.base_fee + U256::from(self.tip)
    }

    /// Slow, normal and fast: 95, 100 and 105 percent of the tip, over twice the base fee. Before
    /// Helicon the first two are of 20 gwei at most (coreth, `internal/ethapi/api.coreth.go`;
    /// saevm, `sae/rpc/custom.go`).
    pub(crate) fn options(&self, rules: Rules) -> String {
        let capped = match rules {
            Rules::BeforeHelicon => self.tip.min(u128::from(20 * GWEI)),
            Rules::Helicon => self.tip,
        };
        let [slow, fast] = [capped * 95 / 100, self.tip * 105 / 100];
        let option = |name: &str, tip: u128| {
            let most = self.base_fee * U256::from(2) + U256::from(tip);
            format!(
                "\"{name}\":{{\"maxPriorityFeePerGas\":\"{tip:#x}\",\"maxFeePerGas\":\"{most:#x}\"}}"
            )
        };
        let [slow, normal, fast] =
            [option("slow", slow.max(1)), option("normal", capped), option("fast", fast)];
        format!("{{{slow},{normal},{fast}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of two nodes.
    #[test]
    fn options_are_those_of_recorded_nodes() {
        let before = Prices { base_fee: U256::ONE, tip: 0xb_a43b_73ff };
        assert_eq!(
            before.options(Rules::BeforeHelicon),
            r#"{"slow":{"maxPriorityFeePerGas":"0x46c7cfe00","maxFeePerGas":"0x46c7cfe02"},"#
                .to_owned()
                + r#""normal":{"maxPriorityFeePerGas":"0x4a817c800","maxFeePerGas":"0x4a817c802"},"#
                + r#""fast":{"maxPriorityFeePerGas":"0xc393e6cfe","maxFeePerGas":"0xc393e6d00"}}"#
        );
        assert_eq!(before.gas_price(), U256::from(0xb_a43b_7400_u64));
        let since = Prices { base_fee: U256::from(14), tip: 1 };
        let one = r#"{"maxPriorityFeePerGas":"0x1","maxFeePerGas":"0x1d"}"#;
        let expected = format!(r#"{{"slow":{one},"normal":{one},"fast":{one}}}"#);
        assert_eq!(since.options(Rules::Helicon), expected);
    }
}
