//! Draws the logs of a block: their events and their topics.

use std::ops::Range;

use alloy_primitives::Bloom;

use super::scene::Scene;
use crate::chain::content::{Body, Event, Log};
use crate::chain::rules::{Profile, Random};

/// Draws logs into a body: where they are, and their bloom.
pub(crate) fn draw(
    count: usize,
    profile: &Profile,
    scene: Scene<'_>,
    random: &mut Random,
    body: &mut Body,
) -> (Range<usize>, Bloom) {
    let start = body.logs.len();
    let mut bloom = Bloom::ZERO;
    for _ in 0..count {
        let event = scene.world.event(topic_count(profile, random), random);
        let data_start = body.bytes.len();
        // Many long logs together would make a block that no upstream may send.
        let room = Profile::BLOCK_BYTES_MAX.saturating_sub(data_start);
        let data_end = data_start + data_length(event, profile, random).min(room);
        scene.words(data_end, random, &mut body.bytes);
        body.logs.push(log(event, data_start..data_end, scene, random, &mut bloom));
    }
    (start..body.logs.len(), bloom)
}

fn log(
    event: &Event,
    data: Range<usize>,
    scene: Scene<'_>,
    random: &mut Random,
    bloom: &mut Bloom,
) -> Log {
    let contract = scene.contract(random);
    contract.mark(bloom);
    let mut log = Log::new(contract.as_address(), data);
    let indexed = event.indexed.iter().map(|what| scene.indexed(*what, random));
    for topic in event.signature.iter().chain(indexed) {
        topic.mark(bloom);
        log.push(topic.word);
    }
    log
}

fn topic_count(profile: &Profile, random: &mut Random) -> usize {
    let mut place = random.below(1_000);
    for (count, share) in profile.topics.iter().enumerate() {
        match place.checked_sub(u64::from(*share)) {
            Some(rest) => place = rest,
            None => return count,
        }
    }
    3
}

/// Transfers have one word, whatever the profile says; most logs are transfers.
fn data_length(event: &Event, profile: &Profile, random: &mut Random) -> usize {
    let sampled = profile.log_data.sample(random) as usize / 32 * 32;
    event.data.map_or(sampled, |length| length as usize).min(Profile::BYTES_MAX)
}
