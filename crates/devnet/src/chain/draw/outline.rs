//! The outlines of a block's transactions: what each is and how many logs it has.

use crate::chain::content::Kind;
use crate::chain::rules::{Profile, Random, Shares};

/// Plan of a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outline {
    pub(crate) kind: Kind,
    pub(crate) action: Action,
    /// Bytes of input.
    pub(crate) input: usize,
    pub(crate) succeeds: bool,
    pub(crate) logs: usize,
}

/// Action of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Transfer,
    Call,
    Create,
}

/// Bytes of the selector of a call, behind which words follow.
const SELECTOR: usize = 4;
const WORD: usize = 32;
/// Input of a transfer of tokens, the most frequent call.
const TOKEN_TRANSFER: usize = 68;
/// Init code, in the mean: the profile's inputs are those of calls.
const INIT_CODE: u64 = 3_000;
/// Chance that the number of logs follows that of transactions: with this the ranks correlate as on
/// mainnet (0.6).
const TOGETHER: u16 = 600;

/// Draws the outlines of a block.
pub(crate) fn outlines(profile: &Profile, random: &mut Random) -> Vec<Outline> {
    let place = (random.next() >> 32) as u32;
    let other = (random.next() >> 32) as u32;
    let together = random.chance(TOGETHER);
    let empty = random.chance(profile.shares.empty);
    let count = if empty { 0 } else { profile.transactions.at(place) as usize };
    let logs = profile.logs.at(if together { place } else { other }) as usize;
    let count = count.min(Profile::TRANSACTIONS_MAX);
    let mut outlines: Vec<Outline> = (0..count).map(|_| outline(profile, random)).collect();
    bound_inputs(&mut outlines);
    share_out(logs.min(Profile::LOGS_MAX), &mut outlines, random);
    outlines
}

/// Half of a block's bytes are for inputs.
fn bound_inputs(outlines: &mut [Outline]) {
    let mut room = Profile::BLOCK_BYTES_MAX / 2;
    for outline in outlines {
        if outline.action == Action::Call && outline.input > room {
            outline.input = SELECTOR;
        }
        room = room.saturating_sub(outline.input);
    }
}

fn outline(profile: &Profile, random: &mut Random) -> Outline {
    let kind = kind(&profile.shares, random);
    let create = random.chance(profile.shares.creation);
    let sampled = (profile.input.sample(random) as usize).min(Profile::BYTES_MAX);
    let (action, input) = match sampled {
        _ if create => (Action::Create, random.below(2 * INIT_CODE) as usize),
        0..SELECTOR => (Action::Transfer, 0),
        length => (Action::Call, SELECTOR + (length - SELECTOR) / WORD * WORD),
    };
    Outline { kind, action, input, succeeds: !random.chance(profile.shares.failed), logs: 0 }
}

fn kind(shares: &Shares, random: &mut Random) -> Kind {
    let mut place = random.below(1_000);
    let kinds = [
        (shares.legacy, Kind::Legacy),
        (shares.unprotected, Kind::Unprotected),
        (shares.access_list, Kind::AccessList),
    ];
    for (share, kind) in kinds {
        match place.checked_sub(u64::from(share)) {
            Some(rest) => place = rest,
            None => return kind,
        }
    }
    Kind::DynamicFee
}

/// Gives the logs to those that can have some: one or a few each, and the rest to some of them.
fn share_out(mut logs: usize, outlines: &mut [Outline], random: &mut Random) {
    let mut able: Vec<&mut Outline> = outlines.iter_mut().filter(|one| one.emits()).collect();
    if able.is_empty() {
        // A transaction must have emitted them.
        let Some(first) = outlines.first_mut().filter(|_| logs > 0) else { return };
        *first = Outline { action: Action::Call, input: TOKEN_TRANSFER, succeeds: true, ..*first };
        first.logs = logs;
        return;
    }
    for outline in &mut able {
        let few = if random.chance(250) { 0 } else { 1 + random.below(3) as usize / 2 };
        outline.logs = few.min(logs);
        logs -= outline.logs;
    }
    while logs > 0 {
        let some = 1 + random.index(logs);
        let index = random.index(able.len());
        able[index].logs += some;
        logs -= some;
    }
}

impl Outline {
    fn emits(&self) -> bool {
        self.succeeds && self.action != Action::Transfer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::rules::{Curve, Purpose};

    fn all(profile: &Profile) -> Vec<Vec<Outline>> {
        (0..2_000).map(|h| outlines(profile, &mut Random::new(1, Purpose::Body, h))).collect()
    }

    #[test]
    fn only_who_can_emits() {
        for profile in [Profile::c_chain(), Profile::small(), Profile::many_logs()] {
            let blocks = all(&profile);
            let silent = blocks.iter().flatten().filter(|outline| outline.logs > 0);
            assert!(silent.clone().all(Outline::emits));
            assert!(silent.count() > 1_000);
        }
    }

    #[test]
    fn outlines_have_as_many_logs_as_drawn() {
        let profile = Profile { logs: Curve::constant(77), ..Profile::c_chain() };
        for outlines in all(&profile).iter().filter(|outlines| !outlines.is_empty()) {
            assert_eq!(outlines.iter().map(|outline| outline.logs).sum::<usize>(), 77);
        }
    }

    #[test]
    fn means_are_those_of_mainnet() {
        let blocks = all(&Profile::c_chain());
        let mean = |of: fn(&Outline) -> usize| {
            blocks.iter().flatten().map(of).sum::<usize>() / blocks.len()
        };
        assert!((30..34).contains(&mean(|_| 1)), "{}", mean(|_| 1));
        assert!((54..61).contains(&mean(|outline| outline.logs)), "{}", mean(|o| o.logs));
        assert!((3_500..5_000).contains(&mean(|outline| outline.input)), "{}", mean(|o| o.input));
    }

    #[test]
    fn curves_are_bounded() {
        let huge = Curve::constant(u32::MAX);
        let profile = Profile {
            transactions: huge.clone(),
            logs: huge.clone(),
            input: huge,
            ..Profile::small()
        };
        let outlines = outlines(&profile, &mut Random::new(1, Purpose::Body, 8));
        assert_eq!(outlines.len(), Profile::TRANSACTIONS_MAX);
        assert_eq!(outlines.iter().map(|outline| outline.logs).sum::<usize>(), Profile::LOGS_MAX);
        assert!(outlines.iter().all(|outline| outline.input <= Profile::BYTES_MAX));
        let inputs: usize = outlines.iter().map(|outline| outline.input).sum();
        assert!(inputs <= Profile::BLOCK_BYTES_MAX * 6 / 10, "{inputs}");
    }
}
