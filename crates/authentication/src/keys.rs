//! Keys that verify tokens. Each key has a fixed set of algorithms, so that a token cannot choose another check: a
//! public key is never used as a shared secret.

use std::fmt;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use serde::Deserialize;

/// The maximum number of keys of one set. Issuers have two while they rotate, large ones some dozens.
const KEYS_MAX: usize = 256;

/// The maximum number of keys that are tried for a token without a key id: each costs a signature check.
const KEYS_TRIED_MAX: usize = 8;

/// The number of bytes of a modulus of 2,048 bits (RFC 7518, section 3.3).
const RSA_BYTES_MIN: usize = 256;

const RSA: [Algorithm; 6] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

/// The reason why there are no keys.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyError {
    /// The text is not a key set.
    #[error("it is not a JSON Web Key Set: {0}")]
    Malformed(String),
    /// The text is not a public key.
    #[error("it is not a public key in PEM (RSA, P-256, P-384 or Ed25519)")]
    Pem,
    /// The secret is short enough to be guessed.
    #[error("the secret has {bytes} bytes; {wanted} are needed for {algorithm:?}")]
    Short {
        /// The number of bytes of the secret.
        bytes: usize,
        /// The required number of bytes (RFC 7518, section 3.2).
        wanted: usize,
        /// The allowed algorithm that requires them.
        algorithm: Algorithm,
    },
}

/// The keys of one issuer. The default is an unknown set. A known set may be empty, which is how an issuer revokes all
/// of its keys.
#[derive(Clone, Default)]
pub struct KeySet {
    keys: Vec<Key>,
    is_known: bool,
}

#[derive(Clone)]
struct Key {
    id: Option<Box<str>>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeySet({})", self.keys.len())
    }
}

impl KeySet {
    fn known(keys: Vec<Key>) -> Self {
        Self { keys, is_known: true }
    }

    /// Parses a JSON Web Key Set (RFC 7517). Keys for other purposes and of other kinds are skipped; shared secrets
    /// too, because every reader of the set could sign with them. The set may have no usable key left.
    ///
    /// # Errors
    /// The text is not a key set.
    pub fn from_jwks(text: &[u8]) -> Result<Self, KeyError> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<serde_json::Value>,
        }
        let set: Set = serde_json::from_slice(text).map_err(|error| {
            // The message of the library may repeat parts of the text.
            KeyError::Malformed(format!("line {}, column {}", error.line(), error.column()))
        })?;
        let keys = set.keys.into_iter().take(KEYS_MAX);
        Ok(Self::known(keys.filter_map(Key::of_jwk).collect()))
    }

    /// Parses one public key in PEM.
    ///
    /// # Errors
    /// The text is not a supported public key.
    pub fn from_public_key(pem: &[u8]) -> Result<Self, KeyError> {
        let bytes = |key: &DecodingKey| key.try_get_as_bytes().map_or(0, <[u8]>::len);
        let (algorithms, key) = if let Ok(key) = DecodingKey::from_rsa_pem(pem) {
            if bytes(&key) < RSA_BYTES_MIN {
                return Err(KeyError::Pem);
            }
            (RSA.to_vec(), key)
        } else if let Ok(key) = DecodingKey::from_ec_pem(pem) {
            // An uncompressed point: a byte and two coordinates.
            match bytes(&key) {
                65 => (vec![Algorithm::ES256], key),
                97 => (vec![Algorithm::ES384], key),
                _ => return Err(KeyError::Pem),
            }
        } else if let Ok(key) = DecodingKey::from_ed_pem(pem) {
            (vec![Algorithm::EdDSA], key)
        } else {
            return Err(KeyError::Pem);
        };
        Ok(Self::known(vec![Key { id: None, algorithms, key }]))
    }

    /// Creates the key of a secret that issuer and router share, for these algorithms.
    ///
    /// # Errors
    /// The secret is shorter than the hash of one of the algorithms.
    pub fn from_secret(secret: &[u8], algorithms: &[Algorithm]) -> Result<Self, KeyError> {
        let hmac = algorithms.iter().filter(|it| it.family() == AlgorithmFamily::Hmac);
        let hmac: Vec<_> = hmac.copied().collect();
        for &algorithm in &hmac {
            let wanted = match algorithm {
                Algorithm::HS384 => 48,
                Algorithm::HS512 => 64,
                _ => 32,
            };
            if secret.len() < wanted {
                return Err(KeyError::Short { bytes: secret.len(), wanted, algorithm });
            }
        }
        let key = DecodingKey::from_secret(secret);
        Ok(Self::known(vec![Key { id: None, algorithms: hmac, key }]))
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True if the set has no keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// True if the set was read, even if it is empty.
    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// Returns the keys that may verify a token: those with its key id and those without an id, or all keys if the
    /// token has no id; only keys for the algorithm.
    pub(crate) fn candidates(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> impl Iterator<Item = &DecodingKey> {
        let fits = move |key: &&Key| {
            let is_meant = match (id, key.id.as_deref()) {
                (Some(id), Some(known)) => id == known,
                _ => true,
            };
            is_meant && key.algorithms.contains(&algorithm)
        };
        self.keys.iter().filter(fits).map(|key| &key.key).take(KEYS_TRIED_MAX)
    }
}

impl Key {
    fn of_jwk(value: serde_json::Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        let common = &jwk.common;
        let verifies = match (&common.public_key_use, &common.key_operations) {
            (Some(PublicKeyUse::Signature) | None, None) => true,
            (Some(PublicKeyUse::Signature) | None, Some(operations)) => {
                operations.contains(&KeyOperations::Verify)
            }
            (Some(_), _) => false,
        };
        if !verifies {
            return None;
        }
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        let mut algorithms = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => match key.kind() {
                jsonwebtoken::DecodingKeyKind::RsaModulusExponent { n, .. }
                    if n.len() >= RSA_BYTES_MIN =>
                {
                    RSA.to_vec()
                }
                _ => return None,
            },
            AlgorithmParameters::EllipticCurve(ec) => match ec.curve {
                EllipticCurve::P256 => vec![Algorithm::ES256],
                EllipticCurve::P384 => vec![Algorithm::ES384],
                _ => return None,
            },
            AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
                vec![Algorithm::EdDSA]
            }
            _ => return None,
        };
        if let Some(only) = common.key_algorithm {
            algorithms.retain(|it| only == (*it).into());
        }
        let id = common.key_id.as_deref().map(Into::into);
        (!algorithms.is_empty()).then_some(Self { id, algorithms, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public(name: &str) -> Result<KeySet, KeyError> {
        let path = format!("{}/tests/keys/{name}", env!("CARGO_MANIFEST_DIR"));
        KeySet::from_public_key(&std::fs::read(path).expect("a key"))
    }

    fn count(set: &KeySet, id: Option<&str>, algorithm: Algorithm) -> usize {
        set.candidates(id, algorithm).count()
    }

    #[test]
    fn a_public_key_supports_the_algorithms_of_its_kind() {
        let rsa = public("rsa.pub.pem").expect("RSA");
        assert_eq!(count(&rsa, None, Algorithm::RS256), 1);
        assert_eq!(count(&rsa, Some("any"), Algorithm::PS512), 1);
        for other in [Algorithm::HS256, Algorithm::HS512, Algorithm::ES256, Algorithm::EdDSA] {
            assert_eq!(count(&rsa, None, other), 0, "{other:?}");
        }
        let ec = public("ec.pub.pem").expect("EC");
        assert_eq!(count(&ec, None, Algorithm::ES256), 1);
        assert_eq!(count(&ec, None, Algorithm::ES384), 0);
        assert_eq!(count(&public("ed.pub.pem").expect("Ed"), None, Algorithm::EdDSA), 1);
        assert_eq!(KeySet::from_public_key(b"nothing").unwrap_err(), KeyError::Pem);
    }

    #[test]
    fn a_secret_must_be_as_long_as_its_algorithm_requires() {
        let short = KeySet::from_secret(&[7; 32], &[Algorithm::HS256, Algorithm::HS384]);
        assert_eq!(
            short.unwrap_err(),
            KeyError::Short { bytes: 32, wanted: 48, algorithm: Algorithm::HS384 }
        );
        let set = KeySet::from_secret(&[7; 32], &[Algorithm::HS256, Algorithm::RS256]);
        let set = set.expect("long enough");
        assert_eq!(count(&set, None, Algorithm::HS256), 1);
        assert_eq!(count(&set, None, Algorithm::RS256), 0);
    }

    #[test]
    fn unusable_keys_of_a_set_are_skipped() {
        let x = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
        let y = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";
        let text = format!(
            r#"{{"keys":[
                {{"kty":"EC","crv":"P-256","x":"{x}","y":"{y}","kid":"a"}},
                {{"kty":"EC","crv":"P-256","x":"{x}","y":"{y}","kid":"b","use":"enc"}},
                {{"kty":"EC","crv":"P-256","x":"{x}","y":"{y}","kid":"c","key_ops":["sign"]}},
                {{"kty":"EC","crv":"secp256k1","x":"{x}","y":"{y}","kid":"d"}},
                {{"kty":"EC","crv":"P-256","x":"{x}","y":"{y}","kid":"e","alg":"ES384"}},
                {{"kty":"oct","k":"c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0","kid":"f"}},
                {{"kty":"RSA","n":"AQAB","e":"AQAB","kid":"g"}},
                {{"kty":"new","kid":"h"}}, 7,
                {{"kty":"EC","crv":"P-256","x":"{x}","y":"{y}"}}
            ]}}"#
        );
        let set = KeySet::from_jwks(text.as_bytes()).expect("a set");
        assert_eq!(set.len(), 2);
        assert_eq!(count(&set, Some("a"), Algorithm::ES256), 2, "its own, and one without a name");
        assert_eq!(count(&set, Some("f"), Algorithm::HS256), 0);
        for empty in [br#"{"keys":[{"kty":"new"}]}"#.as_slice(), br#"{"keys":[]}"#] {
            let set = KeySet::from_jwks(empty).expect("a set without usable keys");
            assert!(set.is_empty() && set.is_known());
        }
        assert!(!KeySet::default().is_known());
        assert!(matches!(KeySet::from_jwks(b"<html>"), Err(KeyError::Malformed(_))));
    }
}
