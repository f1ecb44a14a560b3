//! Listing and deleting, which only `gc` and trials do.

use std::error::Error as _;

use futures_util::TryStreamExt;
use neve_archive::ObjectName;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion,
};

use super::connector::ConditionsUnsupported;
use super::error::Failed;
use super::requests::{counted, within};
use super::store::ArchiveStore;

/// First part of the name of an object of a trial; 32 hexadecimal digits follow.
const TRIAL: &str = "trial-";

/// An object that was listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListedObject {
    pub(crate) name: ObjectName,
    pub(crate) bytes: u64,
    /// Time in seconds since 1970 at which it was put, by the clock of the store.
    pub(crate) put_at: i64,
}

/// Answer to a PUT with a condition.
#[derive(Debug)]
pub(crate) enum Conditional {
    /// The object was put.
    Put,
    /// The condition does not hold.
    Refused,
    /// The store knows no conditions.
    Unsupported(Error),
    /// An answer that says neither.
    Unclear(Error),
}

impl ArchiveStore {
    /// Lists the objects of a chain. Others are left out.
    pub(crate) async fn listed(&self, chain_id: u64) -> Result<Vec<ListedObject>, Failed> {
        let below = self.path(&chain_id.to_string());
        let mut found = Vec::new();
        let listing = async {
            let mut all = self.objects.list(Some(&below));
            let mut metas = Vec::new();
            // A listing may take an hour. Each thousand objects are one request.
            while let Some(meta) = within(0, self.patience, all.try_next()).await? {
                metas.push(meta);
            }
            Ok::<_, Error>(metas)
        };
        for meta in counted("list", 0, listing).await? {
            let parts = meta.location.prefix_match(&self.prefix);
            let name: Vec<_> =
                parts.into_iter().flatten().map(|part| part.as_ref().to_owned()).collect();
            if let Ok(name) = name.join("/").parse() {
                let put_at = meta.last_modified.timestamp();
                found.push(ListedObject { name, bytes: meta.size, put_at });
            }
        }
        Ok(found)
    }

    /// Lists the objects of trials, and when they were put in seconds since 1970. A trial or a deletion that was cut
    /// off leaves its own.
    pub(crate) async fn trials(&self) -> Result<Vec<(String, i64)>, Failed> {
        let listing =
            within(0, self.patience, self.objects.list_with_delimiter(Some(&self.prefix)));
        let found = counted("list", 0, listing).await?.objects;
        let trials = found.into_iter().filter_map(|meta| {
            let name = meta.location.filename()?.to_owned();
            is_trial(&name).then(|| (name, meta.last_modified.timestamp()))
        });
        Ok(trials.collect())
    }

    /// Returns the time by the clock of the store, in seconds since 1970: that of an object which is put for it.
    pub(crate) async fn clock(&self) -> Result<i64, Failed> {
        let name = trial_name();
        let path = self.path(&name);
        let put = self.objects.put(&path, PutPayload::from_static(b"clock"));
        self.counted("put", 5, put).await?;
        let read =
            self.counted("get", 0, self.objects.get_opts(&path, GetOptions::default())).await;
        // Also if the read failed.
        self.delete(&name).await?;
        Ok(read?.meta.last_modified.timestamp())
    }

    /// Deletes an object. It may be gone already.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), Failed> {
        let path = self.path(name);
        match self.counted("delete", 0, self.objects.delete(&path)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Puts an object of a trial if its version is `before`, or if there is none.
    pub(crate) async fn put_if(
        &self,
        name: &str,
        before: Option<UpdateVersion>,
        bytes: Vec<u8>,
    ) -> Conditional {
        let mode = before.map_or(PutMode::Create, PutMode::Update);
        let length = bytes.len() as u64;
        let path: Path = self.path(name);
        let put = self.objects.put_opts(&path, PutPayload::from(bytes), PutOptions::from(mode));
        match self.counted("put", length, put).await {
            Ok(_) => Conditional::Put,
            Err(error) if is_unsupported(&error) => Conditional::Unsupported(error),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Conditional::Refused,
            Err(error) => Conditional::Unclear(error),
        }
    }

    /// Reads an object of a trial and its version; `None` if there is none.
    pub(crate) async fn read_if(
        &self,
        name: &str,
    ) -> Result<Option<(Vec<u8>, UpdateVersion)>, Failed> {
        let path = self.path(name);
        let read = async {
            let found = self.objects.get_opts(&path, GetOptions::default()).await?;
            // Of the same response as the bytes: another request might see another object.
            let (e_tag, version) = (found.meta.e_tag.clone(), found.meta.version.clone());
            Ok::<_, Error>((found.bytes().await?.to_vec(), UpdateVersion { e_tag, version }))
        };
        match self.counted("get", 0, read).await {
            Err(Error::NotFound { .. }) => Ok(None),
            read => Ok(Some(read?)),
        }
    }
}

/// Name of an object that is put to try the store.
pub(super) fn trial_name() -> String {
    format!("{TRIAL}{:032x}", fastrand::u128(..))
}

pub(super) fn is_trial(name: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let digits = name.strip_prefix(TRIAL);
    digits.is_some_and(|digits| digits.len() == 32 && digits.bytes().all(is_digit))
}

/// True if the store knows no conditions of a PUT.
fn is_unsupported(error: &Error) -> bool {
    // The crate wraps errors of its HTTP client in its own, some of them twice.
    let mut source = error.source();
    while let Some(at) = source {
        if at.is::<ConditionsUnsupported>() {
            return true;
        }
        source = at.source();
    }
    matches!(error, Error::NotImplemented { .. })
}
