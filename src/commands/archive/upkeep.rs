//! `neve archive` init, gc, retain and cost.

use neve_archive::Digest;
use serde_json::{Map, Value, json};

use super::cost::{Amount, Cost, Prices, cost};
use super::output::{complain, heights_text, opened, say, write_options};
use crate::archive::Failed;
use crate::archive::write::{
    Collected, GcOptions, Initialized, NamedChain, Retained, WriteOptions, gc, init, retain,
};
use crate::config::{ArchiveCommand, ArchivePlace, Network};

/// Runs one of these commands.
pub(super) async fn command(command: &ArchiveCommand) -> Result<(), String> {
    match command {
        ArchiveCommand::Init { sign_existing, data_dir, writer, place, .. } => {
            let options = write_options(writer, place, data_dir.as_deref())?;
            let options = WriteOptions { signs: sign_existing.map(Digest), ..options };
            made(&options, named(command), place).await
        }
        ArchiveCommand::Gc { older_than, dry_run, data_dir, writer, place } => {
            let options = write_options(writer, place, data_dir.as_deref())?;
            let how = GcOptions { older_than: *older_than, is_dry: *dry_run };
            collected(&options, how, place).await
        }
        ArchiveCommand::Retain { from, data_dir, writer, place } => {
            let options = write_options(writer, place, data_dir.as_deref())?;
            retained(&options, *from, place).await
        }
        ArchiveCommand::Cost {
            price_gb_month: gb_month,
            price_million_gets: million_gets,
            price_million_puts: million_puts,
            price_gb_egress: gb_egress,
            place,
        } => {
            let (gb_month, million_gets) = (*gb_month, *million_gets);
            let (million_puts, gb_egress) = (*million_puts, *gb_egress);
            priced(Prices { gb_month, million_gets, million_puts, gb_egress }, place).await
        }
        _ => Ok(()), // the others have their own functions
    }
}

/// Parts of the chain that `init` names.
fn named(command: &ArchiveCommand) -> NamedChain {
    let ArchiveCommand::Init { network, chain_id, genesis, range, .. } = command else {
        return NamedChain::default();
    };
    let public = network.map(Network::identity);
    let public = public.map(|identity| (identity.chain_id, identity.genesis.0));
    // clap takes either a network or these two.
    let identity = public.or(chain_id.zip(genesis.map(|genesis| genesis.0)));
    NamedChain {
        identity: identity.map(|(chain_id, genesis)| (chain_id, Digest(genesis))),
        range: *range,
    }
}

/// Refuses a block 0 that the public network with this chain id does not have.
pub(super) fn check_genesis(command: &ArchiveCommand) -> Result<(), String> {
    let Some((chain_id, genesis)) = named(command).identity else { return Ok(()) };
    let known = Network::of_chain(chain_id).map(|network| network.identity().genesis);
    match known.filter(|known| known.0 != genesis.0) {
        Some(known) => Err(format!(
            "--genesis 0x{genesis}: block 0 of chain {chain_id} is {known}; write that one, or --network"
        )),
        None => Ok(()),
    }
}

async fn made(
    options: &WriteOptions,
    named: NamedChain,
    place: &ArchivePlace,
) -> Result<(), String> {
    let made = init(&opened(place)?, options, named).await.map_err(|failed| failed.to_string())?;
    say(&if place.json { made_json(&made).to_string() } else { made_text(&made) })
}

fn made_text(made: &Initialized) -> String {
    let trial = match made.trial() {
        Some(trial) if trial.holds => format!("{} holds", trial.endpoint),
        Some(trial) => format!("{} does not hold: one writer only", trial.endpoint),
        None => "a directory, for writers on one machine".to_owned(),
    };
    let word = if made.is_new { "made" } else { "tried again" };
    let (chain, sequence) = (made.manifest.chain(), made.manifest.sequence);
    let (chain_id, range) = (chain.chain_id, chain.range);
    format!("{word}: chain {chain_id}, ranges of {range}, manifest {sequence}; {trial}")
}

fn made_json(made: &Initialized) -> Value {
    let manifest = &made.manifest;
    json!({
        "summary": true, "new": made.is_new, "chain_id": manifest.chain_id, "range": manifest.range,
        "sequence": manifest.sequence, "trial": made.trial(),
    })
}

async fn collected(
    options: &WriteOptions,
    how: GcOptions,
    place: &ArchivePlace,
) -> Result<(), String> {
    let progress = |done: &Collected| complain(&collected_text(done));
    let done = gc(&opened(place)?, options, how, progress).await;
    let done = done.map_err(|failed: Failed| failed.to_string())?;
    say(&if place.json { collected_json(&done).to_string() } else { collected_text(&done) })
}

fn collected_text(done: &Collected) -> String {
    let Collected { listed, unnamed, unnamed_bytes, young, deleted, trials, staged, sequence } =
        *done;
    format!(
        "{listed} objects listed, {unnamed} of {unnamed_bytes} bytes unnamed, {young} of them too young, \
         {deleted} deleted, {trials} left by trials, {staged} left by killed writers, \
         manifest {sequence}"
    )
}

fn collected_json(done: &Collected) -> Value {
    let Collected { listed, unnamed, unnamed_bytes, young, deleted, trials, staged, sequence } =
        *done;
    json!({
        "summary": true, "listed": listed, "unnamed": unnamed, "unnamed_bytes": unnamed_bytes, "young": young,
        "deleted": deleted, "trials": trials, "staged": staged, "sequence": sequence,
    })
}

async fn retained(options: &WriteOptions, from: u64, place: &ArchivePlace) -> Result<(), String> {
    let done = retain(&opened(place)?, options, from).await;
    let done = done.map_err(|failed| failed.to_string())?;
    let Retained { segments, bytes, heights, sequence } = done;
    say(&if place.json {
        let line = json!({
            "summary": true, "first": heights.map(|heights| heights.0), "last": heights.map(|heights| heights.1),
            "dropped": segments, "bytes": bytes, "from": from, "sequence": sequence,
        });
        line.to_string()
    } else {
        let heights = heights_text(heights);
        format!(
            "{heights}: {segments} segments of {bytes} bytes dropped, writers push from height {from} on, \
             manifest {sequence}"
        )
    })
}

async fn priced(prices: Prices, place: &ArchivePlace) -> Result<(), String> {
    let held = opened(place)?.manifest().await.map_err(|failed| failed.to_string())?;
    let held = held.ok_or_else(|| Failed::NoManifest.to_string())?;
    let cost = cost(&held.manifest, &prices);
    say(&if place.json { cost_json(&cost).to_string() } else { cost_text(&cost) })
}

fn cost_text(cost: &Cost) -> String {
    let Cost { kinds, all, month, puts, reads } = cost;
    let line = |(kind, amount): &(&str, Amount)| {
        format!("{kind}: {} objects of {} bytes\n", amount.objects, amount.bytes)
    };
    let kinds: String = kinds.iter().chain([&("all", *all)]).map(line).collect();
    let [height, hash, replica] = reads;
    format!(
        "{kinds}stored: ${month:.2} a month; put once: ${puts:.2}\na million reads by height: ${:.2}, by \
         hash: ${:.2}; a replica filled: ${:.2}",
        height.dollars, hash.dollars, replica.dollars
    )
}

fn cost_json(cost: &Cost) -> Value {
    let kind = |(kind, amount): (&str, Amount)| {
        (kind.to_owned(), json!({ "objects": amount.objects, "bytes": amount.bytes }))
    };
    let kinds: Map<String, Value> = cost.kinds.into_iter().map(kind).collect();
    let reads: Map<String, Value> = cost
        .reads
        .iter()
        .map(|read| {
            let unit = if read.name == "replica" { "dollars" } else { "dollars_million" };
            (
                read.name.to_owned(),
                json!({ "gets": read.gets, "bytes_max": read.bytes, unit: read.dollars }),
            )
        })
        .collect();
    json!({
        "summary": true, "kinds": kinds, "objects": cost.all.objects, "bytes": cost.all.bytes,
        "dollars_month": cost.month, "dollars_puts": cost.puts, "reads": reads,
    })
}
