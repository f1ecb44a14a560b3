//! Draws the contents of a block.

use neve_chain::Access;

use super::{
    atomic,
    body::{Body, Log, Receipt, Span},
    config::ChainConfig,
    outline::{Action, Outline, outlines},
    profile::Profile,
    random::{Purpose, Random},
    schedule::{Fees, Schedule},
    sign::ACCOUNTS,
    transaction::{Kind, Transaction},
    world::{Event, World},
};

/// Gas of any transaction, of a byte of input, of a log and of a byte of its data, of an entry of
/// an access list; roughly what Ethereum has.
const GAS_TRANSACTION: u64 = 21_000;
const GAS_CREATION: u64 = 53_000;
const GAS_INPUT: u64 = 16;
const GAS_LOG: u64 = 1_500;
const GAS_LOG_DATA: u64 = 8;
const GAS_ACCESS: u64 = 2_400;
/// A limit that is common for plain transfers, and far too high for them.
const GAS_GENEROUS: u64 = 100_000;

/// Draws the body of a height.
pub(crate) fn draw(config: &ChainConfig, schedule: &Schedule, world: &World, height: u64) -> Body {
    let fees = schedule.fees(height);
    let mut draw = Draw {
        config,
        world,
        fees,
        asynchronous: schedule.is_asynchronous(height),
        height,
        random: Random::new(config.seed_at(height), Purpose::Body, height),
        body: Body { header_fee: fees.header, ..Body::default() },
        fields: Vec::new(),
    };
    draw.all();
    draw.body
}

struct Draw<'c> {
    config: &'c ChainConfig,
    world: &'c World,
    fees: Fees,
    asynchronous: bool,
    height: u64,
    random: Random,
    body: Body,
    /// Scratch: the encoded fields of a transaction.
    fields: Vec<u8>,
}

impl Draw<'_> {
    fn all(&mut self) {
        let outlines = outlines(&self.config.profile, &mut self.random);
        for (index, outline) in outlines.iter().enumerate() {
            let logs = self.logs(outline);
            self.transaction(index, outline, logs);
        }
        let shares = &self.config.profile.shares;
        let atomic = if outlines.is_empty() { 500 } else { shares.atomic };
        if self.random.chance(atomic) {
            (self.body.ext_data, self.body.ext_data_gas) = atomic::batch(&mut self.random);
        }
    }

    fn transaction(&mut self, index: usize, outline: &Outline, logs: std::ops::Range<usize>) {
        // Senders take turns; their nonces rise, not by one.
        let turn = self.height.wrapping_mul(Profile::TRANSACTIONS_MAX as u64) + index as u64;
        let account = self.random.index(ACCOUNTS);
        let from = self.world.signer.addresses()[account];
        let access_list = self.access_list(outline);
        let (max_fee, priority_fee) = self.caps();
        let mut transaction = Transaction {
            kind: outline.kind,
            from,
            nonce: turn,
            to: self.receiver(outline),
            value: self.value(outline),
            input: self.input(outline),
            gas: 0,
            max_fee,
            priority_fee,
            access_list,
            v: 0,
            r: alloy_primitives::B256::ZERO,
            s: alloy_primitives::B256::ZERO,
            hash: alloy_primitives::B256::ZERO,
        };
        let gas_used = self.gas(&mut transaction, outline, &logs);
        self.receipt(&transaction, outline, gas_used, logs);
        self.sign(account, &mut transaction);
        self.body.gas_limits += transaction.gas;
        self.body.transactions.push(transaction);
    }

    fn receiver(&mut self, outline: &Outline) -> Option<alloy_primitives::Address> {
        match outline.action {
            Action::Create => None,
            Action::Transfer => Some(self.world.account(&mut self.random).as_address()),
            Action::Call => Some(self.world.contract(&mut self.random).as_address()),
        }
    }

    /// Up to a thousand AVAX, mostly little; calls mostly send none.
    fn value(&mut self, outline: &Outline) -> u128 {
        if outline.action != Action::Transfer && self.random.chance(900) {
            return 0;
        }
        let bits = 30 + self.random.below(40);
        u128::from(self.random.next()) << 6 >> (70 - bits)
    }

    /// A cap above the base fee, often so near to it that it cuts the priority fee.
    fn caps(&mut self) -> (u128, u128) {
        let priority_fee = u128::from(self.random.below(2_000_000_000));
        let generous = self.random.chance(700);
        let room = if generous { 30_000_000_000 } else { 1_000_000_000 };
        (self.fees.header + u128::from(self.random.below(room)), priority_fee)
    }

    fn access_list(&mut self, outline: &Outline) -> Vec<Access> {
        let listed = self.random.chance(self.config.profile.shares.listed);
        if !listed || !outline.kind.is_typed() {
            return Vec::new();
        }
        let entries = 1 + self.random.below(3);
        let mut access = || Access {
            address: self.world.contract(&mut self.random).as_address(),
            storage_keys: (0..self.random.below(4)).map(|_| self.random.bytes().into()).collect(),
        };
        (0..entries).map(|_| access()).collect()
    }

    /// A selector and words: accounts and amounts, or init code.
    fn input(&mut self, outline: &Outline) -> Span {
        let start = self.body.bytes.len();
        let end = start + outline.input;
        if outline.action == Action::Create {
            self.body.bytes.resize(end, 0x60);
            self.random.fill(&mut self.body.bytes[start..]);
        } else if outline.input > 0 {
            let selector = self.random.below(40).wrapping_mul(0x9e37_79b9) as u32;
            self.body.bytes.extend(selector.to_le_bytes());
            self.words(end);
        }
        start..end
    }

    /// Fills the bytes up to `end` with words as contracts take and emit them.
    fn words(&mut self, end: usize) {
        while self.body.bytes.len() < end {
            let mut word = [0_u8; 32];
            match self.random.below(4) {
                0 => word = self.world.account(&mut self.random).word.0,
                1 => word[30..].copy_from_slice(&self.random.bytes::<2>()),
                2 => word[27..].copy_from_slice(&self.random.bytes::<5>()),
                _ => word[22..].copy_from_slice(&self.random.bytes::<10>()),
            }
            self.body.bytes.extend_from_slice(&word);
        }
        self.body.bytes.truncate(end);
    }

    fn logs(&mut self, outline: &Outline) -> std::ops::Range<usize> {
        let start = self.body.logs.len();
        (0..outline.logs).for_each(|_| self.log());
        start..self.body.logs.len()
    }

    fn log(&mut self) {
        let topics = self.topic_count();
        let event = *self.world.event(topics, &mut self.random);
        let start = self.body.bytes.len();
        let end = start + self.data_length(&event);
        self.words(end);
        let contract = self.world.contract(&mut self.random);
        let mut log = Log::new(contract.as_address(), start..end);
        event.signature.iter().for_each(|signature| log.push(signature.word));
        for what in event.indexed {
            log.push(self.world.indexed(*what, &mut self.random).word);
        }
        self.body.logs.push(log);
    }

    fn topic_count(&mut self) -> usize {
        let mut place = self.random.below(1_000);
        for (count, share) in self.config.profile.topics.iter().enumerate() {
            match place.checked_sub(u64::from(*share)) {
                Some(rest) => place = rest,
                None => return count,
            }
        }
        3
    }

    fn data_length(&mut self, event: &Event) -> usize {
        let sampled = self.config.profile.log_data.sample(&mut self.random) as usize;
        let length = event.data.map_or(sampled / 32 * 32, |length| length as usize);
        length.min(Profile::BYTES_MAX)
    }

    /// Sets the limit; gives what is charged.
    fn gas(
        &mut self,
        transaction: &mut Transaction,
        outline: &Outline,
        logs: &std::ops::Range<usize>,
    ) -> u64 {
        let consumed = self.consumed(transaction, outline, logs);
        let limit = match outline.action {
            Action::Transfer if self.random.chance(300) => consumed.max(GAS_GENEROUS),
            Action::Transfer => consumed,
            _ => consumed + self.random.below(consumed),
        };
        transaction.gas = limit;
        // A failed one may have used everything; an asynchronous one is charged for half at least.
        let burnt = !outline.succeeds && self.random.chance(500);
        let used = if burnt { limit } else { consumed };
        if self.asynchronous { used.max(limit.div_ceil(2)) } else { used }
    }

    fn consumed(
        &mut self,
        transaction: &Transaction,
        outline: &Outline,
        logs: &std::ops::Range<usize>,
    ) -> u64 {
        let creates = outline.action == Action::Create;
        let base = if creates { GAS_CREATION } else { GAS_TRANSACTION };
        let logged = self.body.logs[logs.clone()].iter();
        let logged = logged.map(|log| GAS_LOG + GAS_LOG_DATA * log.data.len() as u64);
        let accesses = transaction.access_list.len() as u64 * GAS_ACCESS;
        let work = if outline.action == Action::Transfer { 0 } else { self.random.below(60_000) };
        base + GAS_INPUT * outline.input as u64 + logged.sum::<u64>() + accesses + work
    }

    fn receipt(
        &mut self,
        transaction: &Transaction,
        outline: &Outline,
        gas_used: u64,
        logs: std::ops::Range<usize>,
    ) {
        let creates = transaction.to.is_none();
        let receipt = Receipt {
            succeeded: outline.succeeds,
            gas_used,
            cumulative_gas_used: self.body.gas_used() + gas_used,
            price: transaction.price_at(self.fees.executed),
            contract: creates.then(|| transaction.from.create(transaction.nonce)),
            bloom: neve_chain::logs_bloom([]),
            logs,
        };
        self.body.receipts.push(receipt);
    }

    fn sign(&mut self, account: usize, transaction: &mut Transaction) {
        let chain_id = self.config.chain_id;
        self.fields.clear();
        transaction.encode_fields(chain_id, self.body.at(&transaction.input), &mut self.fields);
        let signer = &self.world.signer;
        let hash = if signer.is_real() {
            transaction.signing_hash(chain_id, &mut self.fields)
        } else {
            alloy_primitives::B256::ZERO
        };
        let signature = signer.sign(account, hash, &mut self.random);
        let fields = &mut self.fields;
        self.body.encodings.push(|out| transaction.finish(signature, chain_id, fields, out));
    }
}
