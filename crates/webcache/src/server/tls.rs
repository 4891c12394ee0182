//! TLS: the certificate for clients, and the authorities that are trusted for origins.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::ServerError;
use crate::config::Config;

/// For the listening side: HTTP/2 and HTTP/1.1.
pub(super) fn acceptor(config: &Config) -> Result<TlsAcceptor, ServerError> {
    let wrong = |file: &Path, what: String| ServerError::Tls { file: file.display().to_string(), what };
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_file_iter(&config.reverse.certificate).and_then(Iterator::collect).map_err(
            |error| wrong(&config.reverse.certificate, format!("no certificates in PEM form: {error}")),
        )?;
    let key = PrivateKeyDer::from_pem_file(&config.reverse.key)
        .map_err(|error| wrong(&config.reverse.key, format!("no private key in PEM form: {error}")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&config.reverse.certificate, error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| wrong(&config.reverse.key, format!("does not fit the certificate: {error}")))?;
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(server)))
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
