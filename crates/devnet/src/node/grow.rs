//! Growth of a node: blocks are accepted, executed, announced, in this order; and what happens when
//! its chain goes over to Helicon or turns out to be another.

use std::{sync::Arc, time::Duration};

use neve_jsonrpc::Rules;

use super::node::Node;
use crate::chain::rules::{Branch, Helicon};
use crate::chain::{Block, Chain};
use crate::faults::Fault;
use crate::lock::{lock, read, write};

impl Node {
    /// Accepts the next blocks and executes them, unless their execution takes time. Gives the last
    /// height that was made.
    pub(crate) fn advance(self: &Arc<Self>, blocks: u64) -> u64 {
        let mut chain = lock(&self.chain);
        (0..blocks).for_each(|_| self.accept(&mut chain));
        chain.next_height().saturating_sub(1)
    }

    /// Accepts the next blocks, unless the rate is another meanwhile.
    pub(crate) fn advance_at(self: &Arc<Self>, rate: f64, blocks: u64) {
        let mut chain = lock(&self.chain);
        if self.rate.borrow().to_bits() == rate.to_bits() {
            (0..blocks).for_each(|_| self.accept(&mut chain));
        }
    }

    fn accept(self: &Arc<Self>, chain: &mut Chain) {
        let block = Arc::new(chain.next_block());
        let height = block.number();
        write(&self.state).shelf.push(Arc::clone(&block));
        match self.heads_ahead() {
            Some(ahead) => {
                self.announce(height);
                self.later(ahead, move |node| node.set_accepted(&block));
            }
            None => self.set_accepted(&block),
        }
        let first = chain.generator().config().helicon.first();
        if first == Some(height.saturating_add(1)) {
            self.go_over(self.config.switch_hold);
        }
    }

    fn heads_ahead(&self) -> Option<Duration> {
        self.faults.take(&[], |fault| match fault {
            Fault::HeadsAhead(ahead) => Some(*ahead),
            _ => None,
        })
    }

    /// Lets clients know of a block, and executes it.
    fn set_accepted(self: &Arc<Self>, block: &Block) {
        let height = block.number();
        {
            let mut state = write(&self.state);
            // Blocks that were delayed may come out of order.
            state.accepted = state.accepted.max(height);
        }
        let asynchronous = block.header().settles().is_some();
        // A synchronous block is executed before it is accepted.
        if !asynchronous {
            self.execute(height);
        } else if !*self.held.borrow() {
            match self.config.execution {
                Duration::ZERO => self.execute(height),
                time => self.later(time, move |node| node.execute_unless_held(height)),
            }
        }
    }

    fn execute_unless_held(&self, height: u64) {
        if !*self.held.borrow() {
            self.execute(height);
        }
    }

    /// Ends the execution of all blocks up to this one.
    fn execute(&self, through: u64) {
        let executed = {
            let mut state = write(&self.state);
            state.executed = state.executed.max(through.min(state.accepted));
            state.executed
        };
        self.executed.send_if_modified(|last| std::mem::replace(last, executed) != executed);
        // Only now: a client that asks when it hears of a head must find it.
        self.announce(executed);
    }

    /// Executes all accepted blocks.
    pub(crate) fn execute_all(&self) -> u64 {
        let accepted = self.accepted();
        self.execute(accepted);
        accepted
    }

    /// True if executions stop until [`Node::execute_all`].
    pub(crate) fn hold_execution(&self, held: bool) {
        self.held.send_replace(held);
        if !held {
            self.execute_all();
        }
    }

    /// Tells subscribers of all heads up to this one that they did not hear of.
    fn announce(&self, through: u64) {
        let mut announced = lock(&self.announced);
        let version = self.version();
        while *announced < through {
            *announced += 1;
            if self.heads.receiver_count() > 0 {
                let block = read(&self.state).shelf.block(*announced);
                // Without subscribers the head is dropped.
                block.map(|block| self.heads.send(block.head(version).into()));
            }
        }
    }

    fn later(self: &Arc<Self>, delay: Duration, act: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let node = Arc::clone(self);
        self.runtime.spawn(async move {
            tokio::time::sleep(delay).await;
            act(&node);
        });
    }

    /// Goes over to Helicon: cuts WebSockets, answers nothing for a while, then by other rules.
    fn go_over(self: &Arc<Self>, hold: Duration) {
        self.answering.send_replace(false);
        self.cut_websockets();
        match hold {
            Duration::ZERO => self.gone_over(),
            hold => self.later(hold, |node| node.gone_over()),
        }
    }

    fn gone_over(&self) {
        write(&self.state).rules = Rules::Helicon;
        self.answering.send_replace(true);
    }

    /// Switches at once, whatever the configuration says: the next block is asynchronous.
    pub(crate) fn go_over_now(self: &Arc<Self>, hold: Duration) {
        let mut chain = lock(&self.chain);
        let next = chain.next_height();
        let helicon = chain.generator().config().helicon;
        if helicon.covers(next) || self.rules() == Rules::Helicon {
            return;
        }
        let generator = chain.generator().changed(|config| config.helicon = Helicon::At(next));
        let parent = read(&self.state).shelf.hash(next.saturating_sub(1)).unwrap_or_default();
        write(&self.state).generator = Arc::new(generator.clone());
        chain.branch(generator, next, parent);
        self.go_over(hold);
    }

    /// Replaces the blocks from a height on by those that another seed makes.
    pub(crate) fn branch(&self, height: u64, seed: u64) {
        let mut chain = lock(&self.chain);
        let height = height.max(chain.generator().config().first()).max(1);
        let next = chain.next_height();
        let generator = chain.generator().changed(|config| {
            config.branches.retain(|branch| branch.height < height);
            config.branches.push(Branch { height, seed });
        });
        // Held until the new blocks are there, so that no client sees a shorter chain.
        let mut state = write(&self.state);
        let from = height.min(next);
        state.shelf.truncate(from);
        let parent = state.shelf.hash(from.saturating_sub(1));
        let parent = parent.unwrap_or_else(|| generator.hash_before_first());
        state.generator = Arc::new(generator.clone());
        chain.branch(generator, from, parent);
        (from..next).for_each(|_| state.shelf.push(Arc::new(chain.next_block())));
    }
}
