//! Signatures of requests: an HMAC of the body (RFC 2104) in a header, so that a subgraph knows that the router asked.

use std::fmt::Write as _;

use aws_lc_rs::hmac;
use http::{HeaderName, HeaderValue};

use crate::request_body::WholeBody;

/// The hash of a signature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignatureHash {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl SignatureHash {
    /// Returns the name of the hash in the header.
    fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    fn algorithm(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha384 => hmac::HMAC_SHA384,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }
}

/// Signs the requests to one subgraph.
#[derive(Clone)]
pub struct RequestSigner {
    header: HeaderName,
    hash: SignatureHash,
    /// Kept beside the key, because keys cannot be compared.
    secret: Box<[u8]>,
    key: hmac::Key,
}

impl RequestSigner {
    /// Creates a signer that puts its signature into this header.
    pub fn new(header: HeaderName, hash: SignatureHash, secret: &[u8]) -> Self {
        let key = hmac::Key::new(hash.algorithm(), secret);
        Self { header, hash, secret: secret.into(), key }
    }

    /// The name of the header.
    pub(crate) fn header(&self) -> &HeaderName {
        &self.header
    }

    /// Returns the value of the header: the name of the hash, and the signature in hexadecimal digits.
    pub(crate) fn sign(&self, body: &WholeBody) -> HeaderValue {
        let mut context = hmac::Context::with_key(&self.key);
        for piece in body.pieces() {
            context.update(piece);
        }
        let mut value = format!("{}=", self.hash.name());
        for byte in context.sign().as_ref() {
            // Writing to a `String` cannot fail.
            let _ = write!(value, "{byte:02x}");
        }
        HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static(""))
    }
}

impl PartialEq for RequestSigner {
    fn eq(&self, other: &Self) -> bool {
        (&self.header, self.hash, &self.secret) == (&other.header, other.hash, &other.secret)
    }
}

impl Eq for RequestSigner {}

impl std::fmt::Debug for RequestSigner {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The struct contains a secret.
        write!(out, "RequestSigner({}, {})", self.header, self.hash.name())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn signature(hash: SignatureHash) -> HeaderValue {
        let signer = RequestSigner::new(HeaderName::from_static("x-signature"), hash, b"Jefe");
        signer.sign(&WholeBody::from(Bytes::from_static(b"what do ya want for nothing?")))
    }

    #[test]
    fn signatures_are_those_of_the_standard() {
        // RFC 4231, section 4.3.
        assert_eq!(
            signature(SignatureHash::Sha256),
            "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert!(
            signature(SignatureHash::Sha384).to_str().unwrap().starts_with("sha384=af45d2e376")
        );
        assert!(
            signature(SignatureHash::Sha512).to_str().unwrap().starts_with("sha512=164b7a7bfc")
        );
    }

    #[test]
    fn a_dump_does_not_show_the_secret() {
        let name = HeaderName::from_static("x-signature");
        let signer = RequestSigner::new(name, SignatureHash::Sha256, b"hunter2");
        assert_eq!(format!("{signer:?}"), "RequestSigner(x-signature, sha256)");
        assert_eq!(signer, signer.clone());
    }
}
