//! TLS 1.3 with the ring provider, always given explicitly: nothing is installed for the whole process. A host shows its
//! certificate; a guest accepts exactly the one that it pinned.

use crate::identity::{Fingerprint, Identity};
use parking_lot::Mutex;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use std::sync::Arc;
use tidelock_netcore::error::TransportError;

/// The application protocol in the TLS hello. Its number rises when the mapping to QUIC changes incompatibly.
pub(crate) const ALPN: &[u8] = b"tidelock/1";

pub(crate) fn server_crypto(identity: &Identity) -> Result<Arc<QuicServerConfig>, TransportError> {
    let mut config = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(broken)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(identity.certified())));
    config.alpn_protocols = vec![ALPN.to_vec()];
    // No resumption: every handshake shows the certificate, so that the pin is checked every time.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(QuicServerConfig::try_from(config).map_err(broken)?))
}

pub(crate) fn client_crypto(pinned: Arc<Pinned>) -> Result<Arc<QuicClientConfig>, TransportError> {
    let mut config = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(broken)?
        .dangerous()
        .with_custom_certificate_verifier(pinned)
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(QuicClientConfig::try_from(config).map_err(broken)?))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn broken(error: impl ToString) -> TransportError {
    TransportError::Broken(format!("TLS could not be set up: {}", error.to_string()))
}

/// Accepts one certificate. Its dates and names do not matter: whoever pinned it trusts its key. That the other side has
/// this key is still proven by its signature over the handshake.
#[derive(Debug)]
pub(crate) struct Pinned {
    expected: Fingerprint,
    other: Mutex<Option<Fingerprint>>,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    pub(crate) fn new(expected: Fingerprint) -> Arc<Self> {
        Arc::new(Self { expected, other: Mutex::new(None), provider: provider() })
    }

    /// The fingerprint of a certificate that was shown and is not the pinned one.
    pub(crate) fn mismatch(&self) -> Option<Fingerprint> {
        *self.other.lock()
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let shown = Fingerprint::of(end_entity);
        if shown == self.expected {
            return Ok(ServerCertVerified::assertion());
        }
        *self.other.lock() = Some(shown);
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
