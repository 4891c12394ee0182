//! TLS: the certificate for clients, and the authorities that are trusted for origins.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::config::Config;
use crate::error::WebcacheError;

/// For the listening side: HTTP/2 and HTTP/1.1.
pub(super) fn acceptor(config: &Config) -> Result<TlsAcceptor, WebcacheError> {
    let (certificate, key_file) = (&config.reverse.certificate, &config.reverse.key);
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|source| unusable(certificate, "no certificates in PEM form", source))?;
    let key = PrivateKeyDer::from_pem_file(key_file)
        .map_err(|source| unusable(key_file, "no private key in PEM form", source))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring knows the default versions of TLS")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|source| unusable(key_file, "does not fit the certificate", source))?;
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(server)))
}

fn unusable(
    file: &Path,
    problem: &'static str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> WebcacheError {
    WebcacheError::Tls { file: file.display().to_string(), problem, source: source.into() }
}

/// For origins: the system's trusted authorities. Without any, https:// origins cannot be reached.
pub(super) fn client() -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring knows the default versions of TLS");
    Arc::new(client.with_root_certificates(roots).with_no_client_auth())
}
