//! Signatures of messages: an HMAC of the body (RFC 2104) in a header. By that of a request a subgraph knows that the
//! router asked; by that of a response the router knows that the server has the secret.

use std::fmt::Write as _;

use aws_lc_rs::hmac;
use http::{HeaderMap, HeaderName, HeaderValue};

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

/// The reason why a signature is refused. The messages never repeat the signature.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SignatureMismatch {
    /// There is no signature.
    #[error("there is no signature: the header `{0}` is missing")]
    Missing(HeaderName),
    /// The header is not the text of a signature.
    #[error("the header `{0}` is not a signature: it must be `{1}=` and hexadecimal digits")]
    Malformed(HeaderName, &'static str),
    /// The signature belongs to another body, or was made with another secret.
    #[error("the signature in the header `{0}` does not belong to this body and this secret")]
    Wrong(HeaderName),
}

/// Signs the requests to one subgraph, or verifies the responses of a server.
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

    /// Returns the name of the header.
    pub fn header(&self) -> &HeaderName {
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

    /// Verifies the signature of a body in the headers of its message. The name of the hash may be left out.
    ///
    /// # Errors
    /// The signature is missing or wrong.
    pub fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), SignatureMismatch> {
        let name = || self.header.clone();
        let value = headers.get(&self.header).ok_or_else(|| SignatureMismatch::Missing(name()))?;
        let malformed = || SignatureMismatch::Malformed(name(), self.hash.name());
        let text = value.to_str().map_err(|_| malformed())?.trim();
        let digits = text
            .strip_prefix(self.hash.name())
            .and_then(|rest| rest.strip_prefix('='))
            .unwrap_or(text);
        let tag = bytes_of_hex(digits).ok_or_else(malformed)?;
        hmac::verify(&self.key, body, &tag).map_err(|_| SignatureMismatch::Wrong(name()))
    }
}

/// Returns the bytes of a text of hexadecimal digits; `None` for other texts.
fn bytes_of_hex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let value = |digit: u8| char::from(digit).to_digit(16);
    let byte = |[high, low]: &[u8; 2]| Some((value(*high)? * 16 + value(*low)?) as u8);
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
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
    fn a_signature_is_verified_for_its_body_and_its_secret() {
        let name = HeaderName::from_static("x-signature");
        let signer = RequestSigner::new(name.clone(), SignatureHash::Sha256, b"Jefe");
        let body = b"what do ya want for nothing?";
        let verify = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(&name, HeaderValue::from_str(value).unwrap());
            signer.verify(&headers, body)
        };
        // RFC 4231, section 4.3.
        let digits = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(verify(&format!("sha256={digits}")), Ok(()));
        assert_eq!(verify(&digits.to_uppercase()), Ok(()));
        let wrong = Err(SignatureMismatch::Wrong(name.clone()));
        assert_eq!(verify(&digits.replace("5bdc", "5bdd")), wrong);
        assert_eq!(verify(&digits[2..]), wrong);
        assert_eq!(verify(""), wrong);
        let malformed = Err(SignatureMismatch::Malformed(name.clone(), "sha256"));
        for text in [&digits[1..], "sha512=00", "none", "+1+1"] {
            assert_eq!(verify(text), malformed, "{text}");
        }
        let missing = signer.verify(&HeaderMap::new(), body);
        assert_eq!(missing, Err(SignatureMismatch::Missing(name)));
    }

    #[test]
    fn a_dump_does_not_show_the_secret() {
        let name = HeaderName::from_static("x-signature");
        let signer = RequestSigner::new(name, SignatureHash::Sha256, b"hunter2");
        assert_eq!(format!("{signer:?}"), "RequestSigner(x-signature, sha256)");
        assert_eq!(signer, signer.clone());
    }
}
