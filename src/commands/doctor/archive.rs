//! The archive: reachable, and with the block that a replica begins at.

use std::time::Duration;

use tokio::time::timeout;

use super::report::Finding;
use crate::archive::{ArchiveAddress, ArchiveStore, Failed, SigningKey};
use crate::config::settings::{ArchiveConfig, Config};

/// Time for the manifest. The store is asked again and again meanwhile.
const WITHIN: Duration = Duration::from_secs(20);

pub(super) fn check(config: &Config) -> Option<Finding> {
    let archive = config.archive.as_ref()?;
    let key = archive.push.as_ref().and_then(|push| push.sign_key.as_deref());
    if let Some(Err(failed)) = key.map(SigningKey::read) {
        let text = format!("{}: {failed}", config.values.named("archive-sign-key"));
        return Some(wrong(text, "correct the file, or let neve's user read it"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let read = runtime.block_on(async { timeout(WITHIN, heights(archive)).await });
    Some(match read {
        Ok(Ok(Some(heights))) => judge(archive, heights),
        Ok(Ok(None)) => wrong("it has no heights".to_owned(), "run neve archive push"),
        Ok(Err(failed)) => {
            wrong(failed.to_string(), "see the URL, the endpoint and the credentials")
        }
        Err(_) => {
            let text = format!("no manifest within {WITHIN:?}");
            wrong(text, "see whether the store can be reached from here")
        }
    })
}

fn wrong(text: String, advice: &str) -> Finding {
    Finding::problem("archive", text, advice)
}

/// Compares the heights of an archive with the anchor.
fn judge(archive: &ArchiveConfig, (first, last): (u64, u64)) -> Finding {
    let text = format!("{}: heights {first} to {last}", archive.url);
    match archive.anchor.filter(|anchor| !(first..=last).contains(&anchor.height)) {
        None => Finding::ok("archive", text),
        Some(anchor) => {
            let text = format!("{text}, without the anchor {}", anchor.height);
            wrong(text, "name a block that it has with --archive-anchor")
        }
    }
}

/// First and last height of an archive.
async fn heights(archive: &ArchiveConfig) -> Result<Option<(u64, u64)>, Failed> {
    let (url, endpoint) = (archive.url.clone(), archive.endpoint.clone());
    let held = ArchiveStore::open(&ArchiveAddress { url, endpoint })?.manifest().await?;
    Ok(held.ok_or(Failed::NoManifest)?.manifest.heights())
}
