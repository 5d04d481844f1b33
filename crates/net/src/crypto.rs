//! The cryptography under both sides of TLS.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// Returns the provider that every TLS configuration of this crate names. A dependency may bring a second provider into
/// the process, so the process has no default one.
pub(crate) fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}
