//! Signatures of manifests: Ed25519, over the manifest without its signature.

use std::fmt;
use std::path::Path;

use alloy_primitives::hex;
use neve_archive::{Manifest, Signature};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;

use super::error::Failed;
use crate::config::read_text;

/// Bytes of a file with a key.
const KEY_BYTES_MAX: u64 = 64 << 10;

/// Key of a writer.
pub(crate) struct SigningKey(Ed25519KeyPair);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public())
    }
}

impl SigningKey {
    /// Reads a key as `openssl genpkey -algorithm ed25519` writes it.
    pub(crate) fn read(path: &Path) -> Result<Self, Failed> {
        let wrong = |why: String| Failed::SignKey { path: path.to_owned(), why };
        let text = read_text(path, KEY_BYTES_MAX).map_err(wrong)?;
        let key = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes());
        let key = key.map_err(|error| wrong(error.to_string()))?;
        // openssl leaves out the public key (PKCS #8 version 1), which the checked form wants.
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.secret_pkcs8_der());
        pair.map(Self).map_err(|error| wrong(error.to_string()))
    }

    /// Returns the public key as `--archive-trust` takes it.
    pub(crate) fn public(&self) -> String {
        format!("ed25519:{}", hex::encode(self.0.public_key()))
    }

    /// True if this key signed the manifest.
    pub(super) fn has_signed(&self, manifest: &Manifest) -> bool {
        let key = self.0.public_key().as_ref().try_into();
        key.is_ok_and(|key| is_signed_by(manifest, key))
    }

    /// Signs a manifest.
    pub(super) fn sign(&self, manifest: &mut Manifest) -> Result<(), Failed> {
        manifest.signature = None;
        let signature = self.0.sign(&manifest.to_bytes()?);
        manifest.signature = signature.as_ref().try_into().ok().map(Signature);
        Ok(())
    }
}

/// True if the holder of a key signed the manifest.
pub(super) fn is_signed_by(manifest: &Manifest, key: &[u8; 32]) -> bool {
    let Some(Signature(signature)) = manifest.signature else { return false };
    let key = UnparsedPublicKey::new(&ED25519, key);
    manifest.unsigned_bytes().is_ok_and(|bytes| key.verify(&bytes, &signature).is_ok())
}
