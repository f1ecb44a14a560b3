//! What an upstream is asked besides heights: who it is, what it has, by which rules it answers.

use bytes::Bytes;
use neve_chain::{Block, HeaderAnswer, TotalDifficulty};
use neve_store::Hash;

use super::client::{CallError, Client};
use super::heads::quantity;
use super::texts::Named;

impl Client {
    /// Its head: the newest executed height.
    pub(super) async fn head(&self) -> Result<u64, CallError> {
        self.quantity("eth_blockNumber").await
    }

    pub(super) async fn chain_id(&self) -> Result<u64, CallError> {
        self.quantity("eth_chainId").await
    }

    async fn quantity(&self, method: &'static str) -> Result<u64, CallError> {
        let result = self.call(method, "[]").await?;
        let text = result.as_deref().and_then(|json| serde_json::from_slice::<&str>(json).ok());
        text.and_then(quantity)
            .ok_or_else(|| CallError::Garbage(format!("{method} is no quantity")))
    }

    /// The text of a block, unproven; `None` if it has none there.
    pub(super) async fn block(&self, named: Named) -> Result<Option<Bytes>, CallError> {
        let params = format!("[{named},true]");
        match self.call("eth_getBlockByNumber", &params).await {
            Err(error) if error.is_absent() => Ok(None),
            result => result,
        }
    }

    /// The hash of its block at a height, as it says.
    pub(super) async fn hash(&self, height: u64) -> Result<Option<Hash>, CallError> {
        let Some(block) = self.block(Named::Height(height)).await? else { return Ok(None) };
        let block = Block::parse(&block);
        let block =
            block.map_err(|refusal| CallError::Garbage(format!("block {height}: {refusal}")))?;
        Ok(Some(Hash(block.hash.0)))
    }

    /// In which form it gives total difficulties: by a header's answer, which is not proven. `None`
    /// if there is none.
    pub(super) async fn difficulty(
        &self,
        height: u64,
    ) -> Result<Option<TotalDifficulty>, CallError> {
        let params = format!("[\"{height:#x}\"]");
        let header = match self.call("eth_getHeaderByNumber", &params).await {
            Ok(header) => header,
            Err(error) if error.is_absent() || matches!(error, CallError::Rpc { .. }) => None,
            Err(error) => return Err(error),
        };
        let answer = header.and_then(|header| HeaderAnswer::parse(&header).ok());
        Ok(answer.and_then(|a| TotalDifficulty::of(a.total_difficulty, a.header.number).ok()))
    }
}
