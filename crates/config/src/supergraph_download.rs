//! Settings of a supergraph that is read by URL.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderName;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::aws_sigv4::AwsSigv4;
use super::findings::{Findings, KeyPlaces};
use super::format::{DurationText, FileText, HeaderNameText, HttpUrlText, SecretText, SizeText};
use super::headers::{HeaderInsertion, HeaderInsertionKeys, header_name};
use super::quantity;
use super::secret::Secret;
use super::signature::{SECRET_BYTES_MIN, header_default};
use super::subgraph_subscription::QueryTransport;
use super::token_consistency::is_remote_without_tls;

/// A supergraph that is read by URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SupergraphDownload {
    /// The URLs of the supergraph SDL: servers with the same content, in the order in which they are tried.
    /// Redirections are not followed.
    #[schemars(with = "Vec<HttpUrlText>", length(min = 1, max = 8))]
    #[schemars(example = ["https://graphs.example.com/supergraph.graphql"])]
    pub urls: Vec<String>,

    /// Headers of the requests, such as a token.
    #[serde(default)]
    #[schemars(with = "Vec<HeaderInsertionKeys>", length(max = 16))]
    pub headers: Vec<HeaderInsertion>,

    /// The interval at which the supergraph is requested, a tenth shorter or longer at random. If the server sends an
    /// `etag`, an unchanged supergraph costs no transfer.
    #[serde(default = "refresh_default", with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"30s", extend("x-minimum" = 100))]
    pub refresh: Duration,

    /// The time limit of one request to one server.
    #[serde(default = "timeout_default", with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"5s", extend("x-minimum" = 100))]
    pub timeout: Duration,

    /// The maximum size of the supergraph.
    #[serde(default = "max_size_default", with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"64MiB", extend("x-minimum" = 1024))]
    pub max_size: usize,

    /// The certificate authorities that may have signed the certificates of the servers, in PEM. They replace those
    /// that the system trusts.
    #[serde(default)]
    #[schemars(with = "Option<FileText>", example = &"certificates/internal-ca.pem")]
    pub ca: Option<PathBuf>,

    /// The file for the last supergraph that was loaded. With it the router starts also when no server can be reached.
    /// The router writes it, also its folder, and replaces it as a whole. A relative path is relative to the folder of
    /// the configuration file.
    #[serde(default)]
    #[schemars(with = "Option<FileText>", example = &"/var/lib/starling/supergraph.graphql")]
    pub copy: Option<PathBuf>,

    /// Loads a supergraph also if it is older than the last one that was read: by its header `last-modified`, or by the
    /// time in its minisign signature. By default it is refused, because it comes from a server that lags behind the
    /// others, or from an attacker that repeats an old response.
    #[serde(default)]
    #[schemars(example = true)]
    pub accept_older: bool,

    /// Signatures, by which the router knows that the supergraph is yours. It refuses one without them.
    #[serde(default)]
    pub signature: DownloadSignature,

    /// Signatures of AWS (Signature Version 4) for the requests, for a bucket that is not public: `service: s3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aws_sigv4: Option<AwsSigv4>,
}

/// Signatures of a supergraph. Of several, each must be right.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DownloadSignature {
    /// An HMAC (SHA-256) of the body in a header of the response, with a secret that the router and the publisher
    /// share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hmac: Option<DownloadHmac>,

    /// A signature of minisign, which needs no shared secret. It is the file beside the supergraph: the path of its URL
    /// and `.minisig`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minisign: Option<DownloadMinisign>,
}

/// An HMAC of the body of a response: with exactly one of `secret` and `secret_file`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-one-of" = ["secret", "secret_file"]))]
pub struct DownloadHmac {
    /// The secret, at least 32 bytes.
    #[serde(default)]
    #[schemars(with = "Option<SecretText>", example = &"${SUPERGRAPH_SECRET}")]
    pub secret: Option<Secret>,

    /// A file with the secret. White space at its end does not count. It is read at the start.
    #[serde(default)]
    #[schemars(with = "Option<FileText>", example = &"/run/secrets/supergraph")]
    pub secret_file: Option<PathBuf>,

    /// The name of the header. Its value is the signature in hexadecimal digits, after `sha256=` or alone.
    #[serde(default = "header_default", with = "header_name")]
    #[schemars(with = "HeaderNameText", example = &"x-amz-meta-signature")]
    pub header: HeaderName,
}

/// A signature of minisign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DownloadMinisign {
    /// The public keys, as `minisign -G` prints them. A supergraph must be signed with one of them: a second one allows
    /// to replace a key.
    #[schemars(length(min = 1, max = 8))]
    #[schemars(example = ["RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"])]
    pub public_keys: Vec<String>,
}

fn refresh_default() -> Duration {
    Duration::from_secs(10)
}

fn timeout_default() -> Duration {
    Duration::from_secs(10)
}

fn max_size_default() -> usize {
    // Supergraphs of large companies have some megabytes.
    16 << 20
}

impl SupergraphDownload {
    /// Returns the settings of one URL.
    pub fn from_url(url: String) -> Self {
        Self {
            urls: vec![url],
            headers: Vec::new(),
            refresh: refresh_default(),
            timeout: timeout_default(),
            max_size: max_size_default(),
            ca: None,
            copy: None,
            accept_older: false,
            signature: DownloadSignature::default(),
            aws_sigv4: None,
        }
    }

    /// Resolves relative paths against `folder`.
    pub(super) fn resolve(&mut self, folder: &Path) {
        let hmac = self.signature.hmac.as_mut();
        let secret_file = hmac.and_then(|it| it.secret_file.as_mut());
        for path in [self.ca.as_mut(), self.copy.as_mut(), secret_file].into_iter().flatten() {
            *path = folder.join(&*path);
        }
    }

    /// Reports a secret that is too short, half of a key of AWS, and URLs without TLS that need it. `section` is the
    /// path of these settings.
    pub(super) fn check(&self, section: &str, places: &KeyPlaces, findings: &mut Findings) {
        let secret = self.signature.hmac.as_ref().and_then(|it| it.secret.as_ref());
        let length = secret.map(|it| it.expose().len());
        if let Some(length) = length.filter(|length| *length < SECRET_BYTES_MIN) {
            let key = format!("{section}.signature.hmac.secret");
            findings
                .error(
                    "conflict",
                    format!("`{key}` has {length} bytes; {SECRET_BYTES_MIN} are needed"),
                )
                .at_place(places.get(&key), "can be guessed")
                .help("make a new one: `openssl rand -hex 32`");
        }
        if let Some(aws) = &self.aws_sigv4 {
            aws.check(section, QueryTransport::Http, places, findings);
        }
        self.check_tls(section, places, findings);
    }

    fn check_tls(&self, section: &str, places: &KeyPlaces, findings: &mut Findings) {
        let (risk, help) = match (self.signature.is_required(), self.headers.is_empty()) {
            (true, true) => return,
            (true, false) => {
                ("an attacker on the network can read the headers", "write `https://`")
            }
            (false, true) => (
                "an attacker on the network can replace the supergraph",
                "write `https://`, or set `signature`",
            ),
            (false, false) => (
                "an attacker on the network can replace the supergraph and read the headers",
                "write `https://`",
            ),
        };
        for (index, url) in self.urls.iter().enumerate() {
            if is_remote_without_tls(url) {
                let path = format!("{section}.urls[{index}]");
                let place = places.get(&path).or_else(|| places.get(section));
                findings
                    .warning("not-secure", format!("`{path}` is requested without TLS"))
                    .at_place(place, risk)
                    .help(help);
            }
        }
    }
}

impl DownloadSignature {
    /// True if a supergraph must be signed.
    pub fn is_required(&self) -> bool {
        self.hmac.is_some() || self.minisign.is_some()
    }
}

impl DownloadHmac {
    /// The minimum length of a secret in bytes.
    pub const SECRET_BYTES_MIN: usize = SECRET_BYTES_MIN;
}

/// The forms that `supergraph.url` may have, for the schema: a URL, or keys.
pub(super) struct SupergraphDownloadForms;

impl JsonSchema for SupergraphDownloadForms {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SupergraphUrl".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let url = generator.subschema_for::<HttpUrlText>();
        let keys = generator.subschema_for::<SupergraphDownload>();
        json_schema!({"anyOf": [url, keys, {"type": "null"}]})
    }
}

/// Serialization for `#[serde(with = …)]` in both forms.
pub(super) mod forms {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::SupergraphDownload;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Forms {
        Url(String),
        Keys(Box<SupergraphDownload>),
    }

    pub(crate) fn serialize<S: Serializer>(
        download: &Option<SupergraphDownload>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match download {
            Some(download) => match &download.urls[..] {
                [url] if *download == SupergraphDownload::from_url(url.clone()) => {
                    serializer.serialize_str(url)
                }
                _ => download.serialize(serializer),
            },
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SupergraphDownload>, D::Error> {
        Ok(Option::<Forms>::deserialize(deserializer)?.map(|form| match form {
            Forms::Url(url) => SupergraphDownload::from_url(url),
            Forms::Keys(keys) => *keys,
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::diagnostic::{Style, render};
    use crate::{LoadedConfig, Overrides, parse};

    fn load(text: &str) -> Result<LoadedConfig, String> {
        let none = |_: &str| None;
        let overrides = Overrides::default();
        parse(text, "starling.yaml", Path::new("/etc"), &overrides, &none)
            .map_err(|errors| render(&errors, Style::Plain))
    }

    fn download(text: &str) -> SupergraphDownload {
        let loaded = load(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        loaded.config.supergraph.url.expect("a URL")
    }

    #[test]
    fn a_url_alone_and_keys_say_the_same() {
        let short = download("supergraph: {url: 'https://g.example.com/s'}");
        assert_eq!(short, SupergraphDownload::from_url("https://g.example.com/s".into()));
        assert_eq!(download("supergraph: {url: {urls: ['https://g.example.com/s']}}"), short);
        let supergraph = |url| crate::Supergraph { url: Some(url), ..Default::default() };
        let written = |url| serde_json::to_value(supergraph(url)).expect("JSON")["url"].clone();
        assert_eq!(written(short.clone()), "https://g.example.com/s");
        let longer = SupergraphDownload { accept_older: true, ..short };
        assert_eq!(written(longer)["accept_older"], true);
    }

    #[test]
    fn paths_are_relative_to_the_configuration() {
        let all = download(
            "supergraph: {url: {urls: ['http://g/'], copy: c.graphql, ca: ca.pem, \
             signature: {hmac: {secret_file: s}}}}",
        );
        let secret_file = all.signature.hmac.and_then(|it| it.secret_file);
        let paths = [all.copy, all.ca, secret_file].map(|it| it.expect("a path"));
        let expected = ["/etc/c.graphql", "/etc/ca.pem", "/etc/s"].map(PathBuf::from);
        assert_eq!(paths, expected);
    }

    #[test]
    fn mistakes_are_reported_with_their_place() {
        let refused = |text: &str| load(text).map(|_| ()).expect_err(text);
        let hmac = |keys: &str| {
            format!("supergraph: {{url: {{urls: ['http://g/'], signature: {{hmac: {keys}}}}}}}")
        };
        let short = refused(&hmac("{secret: hunter2-hunter2}"));
        assert!(short.contains("has 15 bytes; 32 are needed"), "{short}");
        assert!(!short.contains("hunter2"), "{short}");
        assert!(refused(&hmac("{}")).contains("secret_file"));
        assert!(refused("supergraph: {url: {}}").contains("`supergraph.url.urls` is missing"));
        assert!(refused("supergraph: {url: 'ftp://g/'}").contains("must be a URL"));
        let sources = refused("supergraph: {file: a.graphql, url: 'http://g/'}");
        assert!(
            sources.contains("`supergraph.file` and `supergraph.url` are both set"),
            "{sources}"
        );
        let half = "aws_sigv4: {region: eu-central-1, service: s3, access_key_id: id}";
        let half = refused(&format!("supergraph: {{url: {{urls: ['http://g/'], {half}}}}}"));
        assert!(half.contains("`supergraph.url.aws_sigv4` has no `secret_access_key`"), "{half}");
    }

    #[test]
    fn requests_without_tls_are_reported_unless_an_attacker_gains_nothing() {
        const KEY: &str = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
        let warnings = |keys: &str| {
            let loaded = load(&format!("supergraph: {{url: {keys}}}")).expect("it is valid");
            assert!(loaded.warnings.iter().all(|it| it.code == "not-secure"), "{keys}");
            render(&loaded.warnings, Style::Plain)
        };
        let signature = format!("signature: {{minisign: {{public_keys: ['{KEY}']}}}}");
        let headers = "headers: [{name: x-key, value: k}]";
        assert_eq!(warnings("'https://g.example.com/s'"), "");
        assert_eq!(warnings("'http://127.0.0.1:4001/s'"), "");
        assert_eq!(warnings(&format!("{{urls: ['http://g/'], {signature}}}")), "");

        let short = warnings("'http://g/'");
        assert!(short.contains("starling.yaml:1:19"), "{short}");
        assert!(short.contains("can replace the supergraph\n"), "{short}");
        let second = warnings(&format!("{{urls: ['https://g/', 'http://h/'], {headers}}}"));
        assert!(second.contains("`supergraph.url.urls[1]` is requested without TLS"), "{second}");
        assert!(second.contains("replace the supergraph and read the headers"), "{second}");
        let signed = warnings(&format!("{{urls: ['http://g/'], {headers}, {signature}}}"));
        assert!(signed.contains("network can read the headers"), "{signed}");
    }
}
