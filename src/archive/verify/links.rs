//! Links of a manifest to those before it.

use neve_archive::{Digest, LINKS_BYTES, Links, MANIFEST_NAME, Manifest, ObjectName};

use super::{ABSENT, Fault};
use crate::archive::error::Failed;
use crate::archive::store::ArchiveStore;

/// Kind of the fault of links that do not lead to the manifest.
const LINKS: &str = "links";

/// True if one of these manifests, which are named by their SHA-256, is among those before `manifest`. The newest links
/// come first, so that only an old one needs objects.
pub(in crate::archive) async fn descends(
    archive: &ArchiveStore,
    manifest: &Manifest,
    from: &[Digest],
) -> Result<bool, Failed> {
    let mut links = manifest.newest_links();
    if links.chain() != manifest.before {
        return Err(Failed::BrokenDescent(manifest.sequence));
    }
    let mut objects = manifest.link_objects();
    loop {
        if from.iter().any(|digest| links.links.contains(digest)) {
            return Ok(true);
        }
        let (Some(name), Some(chain)) = (objects.next(), links.after) else { return Ok(false) };
        links = links_of(archive, &name, Some(chain)).await?;
    }
}

/// Reads all links of a manifest. Returns the faults, each with its object.
pub(super) async fn check_links(
    archive: &ArchiveStore,
    manifest: &Manifest,
) -> Result<Vec<(String, Fault)>, Failed> {
    let (newest, mut faults) = (manifest.newest_links(), Vec::new());
    if newest.chain() != manifest.before {
        let broken = Failed::BrokenDescent(manifest.sequence);
        faults.push((MANIFEST_NAME.to_owned(), (LINKS, broken.to_string())));
    }
    let mut chain = newest.after;
    for name in manifest.link_objects() {
        let links = links_of(archive, &name, chain).await;
        // Behind a fault nothing says to which chain the next ones must lead.
        chain = links.as_ref().ok().and_then(|links| links.after);
        if let Err(failed) = links {
            faults.push((name.to_string(), fault_of(failed)?));
        }
    }
    Ok(faults)
}

/// A fault of links, or a store that does not answer.
fn fault_of(failed: Failed) -> Result<Fault, Failed> {
    match failed {
        Failed::AbsentLinks(_) => Ok((ABSENT, failed.to_string())),
        Failed::BrokenLinks(_) | Failed::Form(_) => Ok((LINKS, failed.to_string())),
        Failed::Changed(_) => Ok(("digest", failed.to_string())),
        failed => Err(failed),
    }
}

/// Gets the links of an object, which must lead to `chain` if it is known.
async fn links_of(
    archive: &ArchiveStore,
    name: &ObjectName,
    chain: Option<Digest>,
) -> Result<Links, Failed> {
    let links = match archive.get(name, LINKS_BYTES).await {
        Err(Failed::Absent(name)) => return Err(Failed::AbsentLinks(name)),
        links => Links::read(&links?)?,
    };
    let leads = chain.is_none() || links.chain() == chain;
    if leads && links.first == name.first { Ok(links) } else { Err(Failed::BrokenLinks(*name)) }
}
