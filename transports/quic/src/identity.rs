//! Who a host is: a certificate of its own making, and the fingerprint by which guests know it.

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::sync::Arc;
use thiserror::Error;
use time::{Duration, OffsetDateTime};

/// The SHA-256 of a certificate's DER form. Written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint of a certificate in DER form.
    #[must_use]
    pub fn of(certificate: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// A certificate and its private key.
///
/// A host that keeps its identity over restarts (so that its printed address stays good) saves [`certificate_der`](Self::certificate_der)
/// and [`key_der`](Self::key_der) and comes back with [`from_der`](Self::from_der).
#[derive(Clone)]
pub struct Identity {
    certificate: CertificateDer<'static>,
    /// PKCS #8, as the key's owner gave it.
    key: Arc<[u8]>,
    certified: Arc<CertifiedKey>,
    fingerprint: Fingerprint,
}

/// Why there is no [`Identity`].
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum IdentityError {
    /// The system gave no random numbers, or a certificate could not be written.
    #[error("no certificate could be made: {0}")]
    Generate(String),
    /// The key does not parse, is of an unknown kind, or is not the certificate's.
    #[error("certificate and key do not work together: {0}; give an X.509 certificate and its PKCS #8 key, both in DER form")]
    Unusable(String),
}

impl Identity {
    /// How long a certificate of [`generate`](Self::generate) is good from now on. Browsers accept a pinned certificate only if the
    /// whole of its life is at most 14 days; one hour of that lies in the past, for clocks that are slow.
    pub const LIFETIME: std::time::Duration = std::time::Duration::from_secs(13 * 24 * 3600);

    /// A new identity: ECDSA on P-256, self-signed, good from an hour ago for [`LIFETIME`](Self::LIFETIME) from now.
    ///
    /// # Errors
    /// [`IdentityError::Generate`] if the system has no randomness.
    pub fn generate() -> Result<Self, IdentityError> {
        let failed = |e: rcgen::Error| IdentityError::Generate(e.to_string());
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let mut params = CertificateParams::new(vec![SERVER_NAME.to_owned()]).map_err(failed)?;
        let now = OffsetDateTime::now_utc();
        params.not_before = now - Duration::HOUR;
        params.not_after = now + Self::LIFETIME;
        let certificate = params.self_signed(&key).map_err(failed)?;
        Self::from_der(certificate.der().to_vec(), key.serialize_der())
    }

    /// An identity from a certificate and its PKCS #8 private key, both in DER form.
    ///
    /// # Errors
    /// [`IdentityError::Unusable`] if either does not parse or they do not belong together.
    pub fn from_der(certificate: Vec<u8>, key: Vec<u8>) -> Result<Self, IdentityError> {
        let unusable = |e: rustls::Error| IdentityError::Unusable(e.to_string());
        let certificate = CertificateDer::from(certificate);
        let private = PrivateKeyDer::Pkcs8(key.clone().into());
        let provider = rustls::crypto::ring::default_provider();
        let certified = CertifiedKey::from_der(vec![certificate.clone()], private, &provider).map_err(unusable)?;
        let fingerprint = Fingerprint::of(&certificate);
        Ok(Self { certificate, key: key.into(), certified: Arc::new(certified), fingerprint })
    }

    /// What guests pin.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The certificate, to be saved. Not secret.
    #[must_use]
    pub fn certificate_der(&self) -> &[u8] {
        &self.certificate
    }

    /// The private key as PKCS #8, to be saved. Secret: whoever has it can pose as this host.
    #[must_use]
    pub fn key_der(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        self.certified.clone()
    }
}

impl fmt::Debug for Identity {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}

/// The name in every certificate and in every TLS hello. It means nothing: a host is known by its fingerprint.
pub(crate) const SERVER_NAME: &str = "tidelock";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_and_loaded_is_the_same_host() {
        let made = Identity::generate().unwrap();
        let loaded = Identity::from_der(made.certificate_der().to_vec(), made.key_der().to_vec()).unwrap();
        assert_eq!(loaded.fingerprint(), made.fingerprint());
        assert_ne!(Identity::generate().unwrap().fingerprint(), made.fingerprint());
    }

    #[test]
    fn the_fingerprint_is_sha_256_in_lower_case() {
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Fingerprint::of(b"abc").to_string(), known);
    }

    #[test]
    fn a_foreign_key_and_garbage_are_refused() {
        let (a, b) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let mixed = Identity::from_der(a.certificate_der().to_vec(), b.key_der().to_vec());
        assert!(matches!(mixed, Err(IdentityError::Unusable(_))), "{mixed:?}");
        let garbage = Identity::from_der(vec![1, 2, 3], a.key_der().to_vec());
        assert!(matches!(garbage, Err(IdentityError::Unusable(_))), "{garbage:?}");
        let garbage = Identity::from_der(a.certificate_der().to_vec(), vec![]);
        assert!(matches!(garbage, Err(IdentityError::Unusable(_))), "{garbage:?}");
    }

    #[test]
    fn debug_does_not_show_the_key() {
        let id = Identity::generate().unwrap();
        assert_eq!(format!("{id:?}"), format!("Identity {{ fingerprint: Fingerprint({}), .. }}", id.fingerprint()));
    }
}
