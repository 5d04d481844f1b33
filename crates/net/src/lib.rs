//! Byte transports: plain TCP, TLS, in memory. The only crate that names rustls.
