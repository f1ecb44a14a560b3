//! Accounts, contracts and events of transactions and logs, with the bits that each
//! sets in a bloom. All are made once, so that no block hashes them again.

use alloy_primitives::{Address, B256, Bloom, keccak256};

use super::sign::Signer;
use crate::chain::rules::{ChainConfig, Purpose, Random};

/// Contracts that emit logs. A few of them emit most.
const CONTRACTS: usize = 256;
/// Numbers that stand in topics: ids of tokens and pools.
const NUMBERS: u8 = 64;

/// An address or topic, and where it stands in a bloom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The value; an address behind twelve zeros.
    pub(crate) word: B256,
    bits: [u16; 3],
}

/// An event that contracts emit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    /// Hash of its signature; an anonymous event has none.
    pub(crate) signature: Option<Entry>,
    /// Topics behind the signature.
    pub(crate) indexed: &'static [Indexed],
    /// Bytes of its data, unless the profile says.
    pub(crate) data: Option<u32>,
}

/// Kind of a topic.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Indexed {
    Account,
    Number,
}

/// The things of a chain.
#[derive(Debug)]
pub(crate) struct World {
    /// Signer of the accounts.
    pub(crate) signer: Signer,
    /// Accounts as topics.
    accounts: Vec<Entry>,
    /// Contracts as emitters of logs.
    contracts: Vec<Entry>,
    numbers: Vec<Entry>,
    /// Events by the number of their topics.
    events: [Vec<Event>; 5],
}

use Indexed::{Account, Number};

/// The events that were most frequent on mainnet, and some for each number of topics.
static EVENTS: [(&str, &[Indexed], Option<u32>); 16] = [
    ("Transfer(address,address,uint256)", &[Account, Account], Some(32)),
    ("Transfer(address,address,uint256)", &[Account, Account], Some(32)),
    ("Transfer(address,address,uint256)", &[Account, Account], Some(32)),
    ("Transfer(address,address,uint256)", &[Account, Account], Some(32)),
    ("Approval(address,address,uint256)", &[Account, Account], Some(32)),
    ("Swap(address,uint256,uint256,uint256,uint256,address)", &[Account, Account], None),
    ("Swap(address,address,int256,int256,uint160,uint128,int24)", &[Account, Account], None),
    ("Transfer(address,address,uint256)", &[Account, Account, Number], Some(0)),
    ("TransferSingle(address,address,address,uint256,uint256)", &[Account, Account, Account], None),
    ("Mint(address,address,int24,int24,uint128,uint256,uint256)", &[Account, Number, Number], None),
    ("Deposit(address,uint256)", &[Account], Some(32)),
    ("Withdrawal(address,uint256)", &[Account], Some(32)),
    ("AnswerUpdated(int256,uint256,uint256)", &[Number], None),
    ("Sync(uint112,uint112)", &[], Some(64)),
    ("UserOperationEvent(bytes32,address,address)", &[], None),
    ("", &[], None),
];

impl World {
    pub(crate) fn new(config: &ChainConfig) -> Self {
        let signer = Signer::new(config.seed, config.signatures);
        let mut random = Random::new(config.seed, Purpose::World, 2);
        let contract = |_| Entry::address(Address::new(random.bytes()));
        Self {
            accounts: signer.addresses().iter().map(|one| Entry::topic(one.into_word())).collect(),
            contracts: (0..CONTRACTS).map(contract).collect(),
            numbers: (1..=NUMBERS).map(|n| Entry::topic(B256::with_last_byte(n))).collect(),
            events: std::array::from_fn(events_of),
            signer,
        }
    }

    /// The account of this number.
    pub(crate) fn sender(&self, account: usize) -> &Entry {
        &self.accounts[account]
    }

    /// Draws any account.
    pub(crate) fn account(&self, random: &mut Random) -> &Entry {
        &self.accounts[random.index(self.accounts.len())]
    }

    /// A contract: a quarter of the calls go to the first of them, as to the greatest stablecoin.
    pub(crate) fn contract(&self, random: &mut Random) -> &Entry {
        let place = random.next() >> 32;
        let squared = (place * place) >> 32;
        let fourth = (squared * squared) >> 32;
        &self.contracts[((fourth * self.contracts.len() as u64) >> 32) as usize]
    }

    /// An event of so many topics, at most four.
    pub(crate) fn event(&self, topics: usize, random: &mut Random) -> &Event {
        let events = &self.events[topics];
        &events[random.index(events.len())]
    }

    /// An id of a token or pool.
    pub(crate) fn number(&self, random: &mut Random) -> &Entry {
        &self.numbers[random.index(self.numbers.len())]
    }
}

/// The events with this many topics: there are some for each number up to four.
fn events_of(topics: usize) -> Vec<Event> {
    let of = |(name, indexed, data): &(&str, &'static [Indexed], Option<u32>)| {
        let signature = (!name.is_empty()).then(|| Entry::topic(keccak256(name)));
        let fits = usize::from(signature.is_some()) + indexed.len() == topics;
        fits.then_some(Event { signature, indexed, data: *data })
    };
    EVENTS.iter().filter_map(of).collect()
}

impl Entry {
    fn address(address: Address) -> Self {
        Self { word: address.into_word(), bits: bits(address.as_slice()) }
    }

    fn topic(word: B256) -> Self {
        Self { word, bits: bits(word.as_slice()) }
    }

    /// Returns it as an address.
    pub(crate) fn as_address(&self) -> Address {
        Address::from_word(self.word)
    }

    /// Notes it in a bloom.
    pub(crate) fn mark(&self, bloom: &mut Bloom) {
        for bit in self.bits {
            bloom.0[255 - usize::from(bit >> 3)] |= 1 << (bit & 7);
        }
    }
}

/// The bits of a value: the low eleven of each of the first three pairs of bytes of its hash.
fn bits(value: &[u8]) -> [u16; 3] {
    let hash = keccak256(value);
    std::array::from_fn(|pair| {
        (u16::from(hash[2 * pair]) << 8 | u16::from(hash[2 * pair + 1])) & 0x7ff
    })
}

#[cfg(test)]
mod tests {
    use alloy_primitives::b256;

    use super::*;

    #[test]
    fn world_has_events_of_every_kind() {
        let world = World::new(&ChainConfig::small(1));
        let mut random = Random::new(1, Purpose::World, 9);
        for topics in 0..=4 {
            let event = world.event(topics, &mut random);
            assert_eq!(usize::from(event.signature.is_some()) + event.indexed.len(), topics);
        }
        let transfer = b256!("0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");
        assert_eq!(world.events[3][0].signature.unwrap().word, transfer);
    }

    #[test]
    fn few_contracts_are_called_most() {
        let world = World::new(&ChainConfig::small(1));
        let mut random = Random::new(1, Purpose::World, 9);
        let first = world.contracts[0].word;
        let calls = (0..1000).filter(|_| world.contract(&mut random).word == first).count();
        assert!((200..300).contains(&calls), "{calls}");
    }
}
