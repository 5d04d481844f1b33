//! Signatures of supergraphs that are read by URL: an HMAC in a header, a file of minisign beside the supergraph.

use std::path::Path;

use config::{DownloadHmac, DownloadSignature};
use http::HeaderMap;
use http::header::HeaderValue;
use minisign_verify::{PublicKey, Signature};
use upstream::{RequestSigner, SignatureHash};

/// The maximum size of a file with a secret.
const SECRET_FILE_BYTES_MAX: u64 = 64 << 10;

/// The beginning of the time in the trusted comment of a signature, as minisign writes it.
const TIMESTAMP: &str = "timestamp:";

/// The signatures that came with a supergraph. Those that are not required are not kept.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Signatures {
    /// The value of the header with the HMAC.
    pub(super) hmac: Option<HeaderValue>,
    /// The text of the file of minisign.
    pub(super) minisign: Option<String>,
}

/// Verifies the signatures that the configuration requires.
pub(super) struct SignatureVerifier {
    hmac: Option<RequestSigner>,
    /// The keys of minisign, of which one must have signed; none: no signature is required.
    public_keys: Vec<PublicKey>,
}

impl SignatureVerifier {
    /// Reads the keys. Blocks.
    ///
    /// # Errors
    /// Each key that cannot be used, with the name of its setting below `signature`.
    pub(super) fn new(settings: &DownloadSignature) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let hmac = settings.hmac.as_ref().and_then(|hmac| match hmac_key(hmac) {
            Ok(key) => Some(key),
            Err(reason) => {
                problems.push(format!("hmac.{reason}"));
                None
            }
        });
        let mut public_keys = Vec::new();
        for (index, text) in settings.minisign.iter().flat_map(|it| &it.public_keys).enumerate() {
            match PublicKey::from_base64(text.trim()) {
                Ok(key) => public_keys.push(key),
                Err(_) => problems.push(format!(
                    "minisign.public_keys[{index}]: it is not a public key of minisign; write the second line of the \
                     file that `minisign -G` makes"
                )),
            }
        }
        match problems.is_empty() {
            true => Ok(Self { hmac, public_keys }),
            false => Err(problems),
        }
    }

    /// True if a supergraph must have a file of minisign beside it.
    pub(super) fn needs_minisign(&self) -> bool {
        !self.public_keys.is_empty()
    }

    /// Returns the value of the header with the HMAC, if one is required.
    pub(super) fn hmac_of(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        self.hmac.as_ref().and_then(|it| headers.get(it.header())).cloned()
    }

    /// Verifies the signatures of a supergraph. Returns the time at which it was signed, in seconds since 1970, if a
    /// signature contains one.
    ///
    /// # Errors
    /// A signature is missing or wrong.
    pub(super) fn verify(
        &self,
        signatures: &Signatures,
        body: &[u8],
    ) -> Result<Option<u64>, String> {
        if let Some(hmac) = &self.hmac {
            let headers = signatures.hmac.iter().map(|it| (hmac.header().clone(), it.clone()));
            hmac.verify(&headers.collect(), body).map_err(|error| error.to_string())?;
        }
        if !self.needs_minisign() {
            return Ok(None);
        }
        let Some(text) = &signatures.minisign else {
            return Err("there is no signature of minisign".to_owned());
        };
        let signature = Signature::decode(text)
            .map_err(|_| "the file beside it is not a signature of minisign".to_owned())?;
        let is_good = |key: &&PublicKey| key.verify(body, &signature, false).is_ok();
        match self.public_keys.iter().find(is_good) {
            Some(_) => Ok(signing_time(signature.trusted_comment())),
            None => Err("its signature of minisign does not belong to this text and to a key of \
                         `supergraph.url.signature.minisign.public_keys`"
                .to_owned()),
        }
    }
}

/// Returns the time in a trusted comment.
fn signing_time(comment: &str) -> Option<u64> {
    let (_, time) = comment.split_once(TIMESTAMP)?;
    let digits = time.split(|it: char| !it.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// Returns the key of an HMAC.
fn hmac_key(settings: &DownloadHmac) -> Result<RequestSigner, String> {
    let key =
        |secret: &[u8]| RequestSigner::new(settings.header.clone(), SignatureHash::Sha256, secret);
    let Some(file) = &settings.secret_file else {
        let secret = settings.secret.as_ref().map_or("", |it| it.expose());
        return Ok(key(secret.as_bytes()));
    };
    let secret = read_secret(file)
        .map_err(|error| format!("secret_file: cannot read {}: {error}", file.display()))?;
    let length = secret.len();
    if length < DownloadHmac::SECRET_BYTES_MIN {
        let needed = DownloadHmac::SECRET_BYTES_MIN;
        return Err(format!(
            "secret_file: {} has {length} bytes; {needed} are needed: `openssl rand -hex 32`",
            file.display()
        ));
    }
    Ok(key(&secret))
}

fn read_secret(file: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut secret = Vec::new();
    std::fs::File::open(file)?.take(SECRET_FILE_BYTES_MAX).read_to_end(&mut secret)?;
    secret.truncate(secret.trim_ascii_end().len());
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use config::{DownloadMinisign, Secret};

    use super::*;

    /// The example of the crate: a key, and its signature of the text `test`.
    const PUBLIC_KEY: &str = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
    const SIGNATURE: &str = "untrusted comment: signature from minisign secret key
RUQf6LRCGA9i559r3g7V1qNyJDApGip8MfqcadIgT9CuhV3EMhHoN1mGTkUidF/z7SrlQgXdy8ofjb7bNJJylDOocrCo8KLzZwo=
trusted comment: timestamp:1556193335\tfile:test
y/rUw2y8/hOUYjZU71eHp/Wo1KZ40fGy2VJEDl34XMJM+TX48Ss/17u3IvIfbVR1FkZZSNCisQbuQY+bHwhEBg==
";

    fn hmac(secret: Option<&str>, secret_file: Option<&Path>) -> DownloadSignature {
        let hmac = DownloadHmac {
            secret: secret.map(Secret::new),
            secret_file: secret_file.map(Into::into),
            header: http::HeaderName::from_static("x-signature"),
        };
        DownloadSignature { hmac: Some(hmac), minisign: None }
    }

    fn minisign(keys: &[&str]) -> DownloadSignature {
        let public_keys = keys.iter().map(ToString::to_string).collect();
        DownloadSignature { hmac: None, minisign: Some(DownloadMinisign { public_keys }) }
    }

    fn verifier(settings: &DownloadSignature) -> SignatureVerifier {
        SignatureVerifier::new(settings).unwrap_or_else(|problems| panic!("{problems:?}"))
    }

    #[test]
    fn one_of_several_keys_of_minisign_must_have_signed() {
        const OTHER: &str = "RWTg6JXWzv6GDtDphRQ/x7eg0LaWBcTxPZ7i49xEeiqXVcR+r79OZRWM";
        let signed = |text: &str| Signatures { hmac: None, minisign: Some(text.to_owned()) };
        let both = verifier(&minisign(&[OTHER, PUBLIC_KEY]));
        assert_eq!(both.verify(&signed(SIGNATURE), b"test"), Ok(Some(1_556_193_335)));
        let refused = |verifier: &SignatureVerifier, signatures: &Signatures, body: &[u8]| {
            verifier.verify(signatures, body).expect_err("it is wrong")
        };
        assert!(
            refused(&both, &signed(SIGNATURE), b"text").contains("does not belong to this text")
        );
        let later = SIGNATURE.replace("1556193335", "1933700835");
        assert!(refused(&both, &signed(&later), b"test").contains("does not belong"));
        let other = verifier(&minisign(&[OTHER]));
        assert!(refused(&other, &signed(SIGNATURE), b"test").contains("does not belong"));
        assert!(refused(&both, &signed("<html>"), b"test").contains("is not a signature"));
        assert!(refused(&both, &Signatures::default(), b"test").contains("there is no signature"));
    }

    #[test]
    fn a_secret_may_be_in_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secret");
        let secret = "0123456789abcdef0123456789abcdef";
        std::fs::write(&file, format!("{secret}\n")).expect("it is written");
        // `printf '{ a }' | openssl dgst -sha256 -hmac 0123456789abcdef0123456789abcdef`
        let digits = "77e2fa4ea4821a2035dcdef4b1ba5cf8e3e5ed2958c26929b51f1060677f166d";
        let signatures = Signatures { hmac: HeaderValue::from_str(digits).ok(), minisign: None };
        for settings in [hmac(Some(secret), None), hmac(None, Some(&file))] {
            let verifier = verifier(&settings);
            assert_eq!(verifier.verify(&signatures, b"{ a }"), Ok(None));
            let missing = verifier.verify(&Signatures::default(), b"{ a }").expect_err("missing");
            assert_eq!(missing, "there is no signature: the header `x-signature` is missing");
        }
        std::fs::write(&file, "short").expect("it is written");
        let problems = SignatureVerifier::new(&hmac(None, Some(&file))).err().expect("short");
        assert!(problems[0].contains("has 5 bytes; 32 are needed"), "{problems:?}");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let problems = SignatureVerifier::new(&minisign(&[PUBLIC_KEY, "nonsense"])).err();
        let problems = problems.expect("one is wrong");
        assert!(problems[0].starts_with("minisign.public_keys[1]: it is not"), "{problems:?}");
    }

    #[test]
    fn the_time_of_a_signature_is_in_its_comment() {
        assert_eq!(signing_time("timestamp:17\tfile:a"), Some(17));
        assert_eq!(signing_time("released on timestamp:18"), Some(18));
        assert_eq!(signing_time("version 3"), None);
        assert_eq!(signing_time("timestamp:"), None);
    }
}
