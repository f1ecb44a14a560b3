//! Requests to an upstream besides heights: for its identity, its range, and its rules.

use std::fmt;

use bytes::Bytes;
use neve_chain::{Block, ClaimedHeader, Form, TotalDifficulty};
use neve_jsonrpc::Rules;
use neve_store::Hash;

use super::head_listener::{height, quantity};
use crate::client::{CallError, CallResult, RpcClient};

/// Name of a block in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockName {
    Height(u64),
    /// The block that is the newest when the upstream answers.
    Latest,
}

/// Writes it as JSON.
impl fmt::Display for BlockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Height(height) => write!(f, "\"{height:#x}\""),
            Self::Latest => f.write_str("\"latest\""),
        }
    }
}

impl RpcClient {
    /// Head: the newest executed height.
    pub(crate) async fn head(&self) -> Result<u64, CallError> {
        self.number("eth_blockNumber", height).await
    }

    pub(crate) async fn chain_id(&self) -> Result<u64, CallError> {
        self.number("eth_chainId", quantity).await
    }

    async fn number(
        &self,
        method: &'static str,
        read: fn(&str) -> Option<u64>,
    ) -> Result<u64, CallError> {
        let result = self.call(method, "[]").await?;
        let text = result.as_deref().and_then(|json| serde_json::from_slice::<&str>(json).ok());
        text.and_then(read)
            .ok_or_else(|| CallError::InvalidJson(format!("{method} is no quantity").into()))
    }

    /// The text of a block, unproven; `None` if it has none there.
    pub(crate) async fn block(&self, named: BlockName) -> Result<Option<Bytes>, CallError> {
        let params = format!("[{named},true]");
        match self.call("eth_getBlockByNumber", &params).await {
            Err(error) if error.is_absent() => Ok(None),
            result => result,
        }
    }

    /// The text of a header, or of its block, unproven; `None` if it has none there.
    pub(crate) async fn header(&self, height: u64) -> CallResult {
        let params = format!("[\"{height:#x}\"]");
        match self.call("eth_getHeaderByNumber", &params).await {
            Err(error) if error.is_absent() => Ok(None),
            // Not every upstream has the method.
            Err(CallError::Rpc { .. }) => self.block(BlockName::Height(height)).await,
            result => result,
        }
    }

    /// The hash of its block at a height, as it says.
    pub(crate) async fn hash(&self, height: u64) -> Result<Option<Hash>, CallError> {
        let Some(block) = self.block(BlockName::Height(height)).await? else { return Ok(None) };
        let block = Block::parse(&block);
        let block = block.map_err(|refusal| {
            CallError::InvalidJson(format!("block {height}: {refusal}").into())
        })?;
        Ok(Some(Hash(block.hash.0)))
    }

    /// Proves that it has a header at a height: one of that number that hashes to its hash. Returns
    /// in which form it gives the total difficulty, which no hash binds; `None` without such a
    /// header.
    pub(crate) async fn proven_header(
        &self,
        height: u64,
    ) -> Result<Option<TotalDifficulty>, CallError> {
        let header = self.header(height).await?;
        // It is not stored, so its layout is of no interest.
        let answer = header.and_then(|header| ClaimedHeader::parse_as(&header, Form::Any).ok());
        let Some(answer) = answer.filter(|a| a.header.number == height && a.check().is_ok()) else {
            return Ok(None);
        };
        Ok(TotalDifficulty::of(answer.total_difficulty, height).ok())
    }
}

/// The rules that a form of the total difficulty tells of.
pub(crate) fn rules_of(form: TotalDifficulty, current: Rules) -> Rules {
    match form {
        TotalDifficulty::Number => Rules::BeforeHelicon,
        TotalDifficulty::Zero => Rules::Helicon,
        TotalDifficulty::Unknown => current,
    }
}
