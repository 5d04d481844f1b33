//! Signatures of AWS (Signature Version 4), for subgraphs behind AWS and for files in buckets. The crate `aws-sigv4`
//! computes them; it is behind the feature `aws`.

use std::time::SystemTime;

use execute::FetchError;
use http::header::HOST;
use http::{HeaderMap, HeaderName, Uri};

use crate::request_body::WholeBody;

/// True if this build can sign for AWS.
pub const HAS_AWS: bool = cfg!(feature = "aws");

/// The headers that a signature consists of. Those of a client are removed.
const SIGNATURE_HEADERS: [HeaderName; 4] = [
    http::header::AUTHORIZATION,
    HeaderName::from_static("x-amz-date"),
    HeaderName::from_static("x-amz-security-token"),
    HeaderName::from_static("x-amz-content-sha256"),
];

/// The service that names paths in their plain form, and wants the hash of the body in a header.
#[cfg(feature = "aws")]
const S3: &str = "s3";

/// Signs the requests to one server for AWS.
#[derive(Clone, PartialEq, Eq)]
pub struct AwsSigner {
    /// The region and the name of the service.
    pub region: Box<str>,
    /// The name of the service.
    pub service: Box<str>,
    /// The id of the access key.
    pub access_key_id: Box<str>,
    /// The secret of the access key.
    pub secret_access_key: Box<str>,
    /// The token of temporary credentials.
    pub session_token: Option<Box<str>>,
}

impl AwsSigner {
    /// Signs a POST with these headers and this body, and adds the headers of the signature.
    ///
    /// # Errors
    /// A header is not text, or this build cannot sign.
    pub(crate) fn sign(
        &self,
        target: &Uri,
        headers: &mut HeaderMap,
        body: &WholeBody,
        now: SystemTime,
    ) -> Result<(), FetchError> {
        for name in SIGNATURE_HEADERS {
            headers.remove(name);
        }
        self.add_signature("POST", target, headers, body, now)
    }

    /// Signs a GET, and adds the headers of the signature. Of these headers only those that AWS requires are signed, so
    /// that a proxy may change the others.
    ///
    /// # Errors
    /// A header is not text, or this build cannot sign.
    pub(crate) fn sign_get(
        &self,
        target: &Uri,
        headers: &mut HeaderMap,
        now: SystemTime,
    ) -> Result<(), FetchError> {
        for name in SIGNATURE_HEADERS {
            headers.remove(name);
        }
        let is_needed = |name: &HeaderName| *name == HOST || name.as_str().starts_with("x-amz-");
        let needed = headers.iter().filter(|(name, _)| is_needed(name));
        let mut signed: HeaderMap =
            needed.map(|(name, value)| (name.clone(), value.clone())).collect();
        self.add_signature("GET", target, &mut signed, &WholeBody::default(), now)?;
        let added = SIGNATURE_HEADERS.into_iter();
        headers.extend(added.filter_map(|name| signed.remove(&name).map(|value| (name, value))));
        Ok(())
    }

    #[cfg(feature = "aws")]
    fn add_signature(
        &self,
        method: &str,
        target: &Uri,
        headers: &mut HeaderMap,
        body: &WholeBody,
        now: SystemTime,
    ) -> Result<(), FetchError> {
        use std::fmt::Write as _;

        use aws_credential_types::Credentials;
        use aws_lc_rs::digest;
        use aws_sigv4::http_request::{
            PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest,
            SigningSettings, UriPathNormalizationMode, sign,
        };
        use aws_sigv4::sign::v4;
        use http::HeaderValue;

        // The reasons may repeat headers.
        let failure = || FetchError::Protocol("the request cannot be signed for AWS".into());
        let mut hash = digest::Context::new(&digest::SHA256);
        body.pieces().for_each(|piece| hash.update(piece));
        let hash = hash.finish().as_ref().iter().fold(String::new(), |mut text, byte| {
            // Writing to a `String` cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        let token = self.session_token.as_deref().map(str::to_owned);
        let credentials =
            Credentials::new(&*self.access_key_id, &*self.secret_access_key, token, None, "config");
        let identity = credentials.into();
        let mut settings = SigningSettings::default();
        if &*self.service == S3 {
            settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
            settings.percent_encoding_mode = PercentEncodingMode::Single;
            settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        }
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(&self.service)
            .time(now)
            .settings(settings)
            .build()
            .map_err(|_| failure())?;
        let signed: Option<Vec<(&str, &str)>> = headers
            .iter()
            .map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
            .collect();
        let request = SignableRequest::new(
            method,
            target.to_string(),
            signed.ok_or_else(failure)?.into_iter(),
            SignableBody::Precomputed(hash),
        );
        let request = request.map_err(|_| failure())?;
        let (instructions, _) =
            sign(request, &parameters.into()).map_err(|_| failure())?.into_parts();
        let (added, _) = instructions.into_parts();
        for header in added {
            let mut value = HeaderValue::from_str(header.value()).map_err(|_| failure())?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(header.name()), value);
        }
        Ok(())
    }

    #[cfg(not(feature = "aws"))]
    #[expect(clippy::unused_self, reason = "the signature of the other build")]
    fn add_signature(
        &self,
        _: &str,
        _: &Uri,
        _: &mut HeaderMap,
        _: &WholeBody,
        _: SystemTime,
    ) -> Result<(), FetchError> {
        // The configuration refuses the setting already.
        Err(FetchError::Protocol("this build has no signatures of AWS".into()))
    }
}

impl std::fmt::Debug for AwsSigner {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The struct contains secrets.
        write!(out, "AwsSigner({}, {})", self.region, self.service)
    }
}

#[cfg(all(test, feature = "aws"))]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::HeaderValue;

    use super::*;

    fn signer() -> AwsSigner {
        AwsSigner {
            region: "us-east-1".into(),
            service: "service".into(),
            access_key_id: "AKIDEXAMPLE".into(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
        }
    }

    fn sign(
        signer: &AwsSigner,
        body: &'static str,
        more: &[(HeaderName, &'static str)],
    ) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("example.amazonaws.com"));
        for (name, value) in more {
            headers.insert(name, HeaderValue::from_static(value));
        }
        // 2015-08-30T12:36:00Z, the time of the examples of AWS.
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_440_938_160);
        let uri = Uri::from_static("https://example.amazonaws.com/");
        let body = WholeBody::from(Bytes::from_static(body.as_bytes()));
        signer.sign(&uri, &mut headers, &body, now).expect("headers of text");
        headers
    }

    #[test]
    fn a_signature_is_that_of_the_examples_of_aws() {
        // `post-vanilla` of the test suite of Signature Version 4.
        let headers = sign(&signer(), "", &[]);
        assert_eq!(headers["x-amz-date"], "20150830T123600Z");
        assert_eq!(
            headers["authorization"],
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=host;x-amz-date, \
             Signature=5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"
        );
    }

    #[test]
    fn a_get_for_a_bucket_is_signed_as_in_the_example_of_s3() {
        // "GET Object" of "Authenticating Requests: Using the Authorization Header", with another path and without its
        // header `range`. A script that reproduces the signature of the example computed this one.
        let signer = AwsSigner {
            service: "s3".into(),
            access_key_id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            ..signer()
        };
        // 2013-05-24T00:00:00Z
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_369_353_600);
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("examplebucket.s3.amazonaws.com"));
        headers.insert(http::header::ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(http::header::AUTHORIZATION, HeaderValue::from_static("Bearer x"));
        let target = Uri::from_static("https://examplebucket.s3.amazonaws.com/a%20b/test.txt");
        signer.sign_get(&target, &mut headers, now).expect("headers of text");
        assert_eq!(headers["accept"], "*/*");
        // The hash of nothing.
        assert_eq!(
            headers["x-amz-content-sha256"],
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(
            headers["authorization"],
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
             SignedHeaders=host;x-amz-content-sha256;x-amz-date, \
             Signature=e902087373bf209498bce25ba47521df1eb845e7615d3b9216d7d839cf881d05"
        );
    }

    #[test]
    fn headers_of_a_client_cannot_take_the_place_of_a_signature() {
        let client = [
            (http::header::AUTHORIZATION, "Bearer x"),
            (HeaderName::from_static("x-amz-security-token"), "stolen"),
            (HeaderName::from_static("x-amz-date"), "20200101T000000Z"),
        ];
        let headers = sign(&signer(), "", &client);
        assert_eq!(headers, sign(&signer(), "", &[]));
        let with_token = AwsSigner { session_token: Some("token".into()), ..signer() };
        assert_eq!(sign(&with_token, "", &client)["x-amz-security-token"], "token");
    }

    #[test]
    fn a_dump_does_not_show_the_secrets() {
        assert_eq!(format!("{:?}", signer()), "AwsSigner(us-east-1, service)");
        assert!(sign(&signer(), "", &[])["authorization"].is_sensitive());
    }
}
