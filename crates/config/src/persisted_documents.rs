//! Settings of persisted documents.

use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::expression::Expression;
use super::findings::{Findings, KeyPlaces};
use super::format::{DurationText, FileText, HttpUrlText, RequestConditionText, SizeText};
use super::headers::{HeaderInsertion, HeaderInsertionKeys};
use super::quantity;

/// Persisted documents: operations that are known before clients send them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PersistedDocuments {
    /// The operations that clients may send.
    #[schemars(example = &"require_id")]
    pub mode: PersistedDocumentsMode,

    /// The requests that may send other operations although `mode` is `require_known` or `require_id`: those for which
    /// any of the conditions is true. A condition that cannot be evaluated makes no exception.
    #[schemars(length(max = 100))]
    pub exceptions: Vec<DocumentException>,

    /// The manifests. They are watched: documents of a new version are known within seconds, those of a URL after
    /// `refresh`. A manifest with a mistake
    /// is refused as a whole, and the documents before it stay.
    #[schemars(length(max = 64))]
    pub manifests: Vec<DocumentManifest>,

    /// The maximum size of all manifests together.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"64MiB", extend("x-minimum" = 1024))]
    pub max_size: usize,

    /// The maximum number of documents of all manifests together.
    #[schemars(range(min = 1, max = 1_000_000), example = 100_000)]
    pub max_documents: u32,
}

impl Default for PersistedDocuments {
    fn default() -> Self {
        Self {
            mode: PersistedDocumentsMode::Off,
            exceptions: Vec::new(),
            manifests: Vec::new(),
            // Several large applications with some thousand operations of one or two kilobytes each.
            max_size: 32 << 20,
            max_documents: 50_000,
        }
    }
}

/// Requests that may send operations that are not documents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DocumentException {
    /// The condition. It may use `request`, `client` and `claims`.
    #[schemars(with = "RequestConditionText", example = &"claims.?role.orValue('') == 'developer'")]
    pub when: Expression,
}

/// The operations that clients may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PersistedDocumentsMode {
    /// All operations: documents are an offer.
    #[default]
    Off,
    /// All operations. The log and a metric report those that are not documents.
    LogUnknown,
    /// Documents, by their id or by their text. White space, commas and comments in a text may differ.
    RequireKnown,
    /// Documents, by their id.
    RequireId,
}

impl PersistedDocumentsMode {
    /// True if some operations are refused.
    pub fn is_restrictive(self) -> bool {
        matches!(self, Self::RequireKnown | Self::RequireId)
    }
}

/// The source of documents: exactly one of `file`, `folder` and `url`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-one-of" = ["file", "folder", "url"]))]
#[schemars(extend("dependentRequired" = {
    "headers": ["url"], "refresh": ["url"], "timeout": ["url"], "ca": ["url"],
}))]
pub struct DocumentManifest {
    /// A manifest in JSON. A relative path is relative to the folder of the configuration file.
    #[serde(default)]
    #[schemars(with = "Option<FileText>", example = &"persisted-query-manifest.json")]
    pub file: Option<PathBuf>,

    /// A folder of documents: its files that end in `.graphql` or `.gql`, without its subfolders. The id of a document
    /// is the name of its file without the ending.
    #[serde(default)]
    #[schemars(with = "Option<FileText>", example = &"operations")]
    pub folder: Option<PathBuf>,

    /// The URL of a manifest in JSON, of at most 10 MB. Redirections are not followed.
    #[serde(default)]
    #[schemars(with = "Option<HttpUrlText>", example = &"https://assets.example.com/manifest.json")]
    pub url: Option<String>,

    /// Headers of the requests for `url`, such as a token.
    #[serde(default)]
    #[schemars(with = "Vec<HeaderInsertionKeys>", length(max = 16))]
    pub headers: Vec<HeaderInsertion>,

    /// The interval at which `url` is requested. If the server sends an `etag`, an unchanged manifest costs no
    /// transfer.
    #[serde(default = "refresh_default", with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"5m", extend("x-minimum" = 1000))]
    pub refresh: Duration,

    /// The time limit of one request for `url`.
    #[serde(default = "timeout_default", with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"5s")]
    pub timeout: Duration,

    /// The certificate authorities that may have signed the certificate of the server of `url`, in PEM. They replace
    /// those that the system trusts.
    #[serde(default)]
    #[schemars(with = "Option<FileText>", example = &"certificates/internal-ca.pem")]
    pub ca: Option<PathBuf>,

    /// The format of the file or of the response. A folder has none.
    #[serde(default)]
    #[schemars(example = &"relay")]
    pub format: DocumentManifestFormat,
}

impl Default for DocumentManifest {
    fn default() -> Self {
        Self {
            file: None,
            folder: None,
            url: None,
            headers: Vec::new(),
            refresh: refresh_default(),
            timeout: timeout_default(),
            ca: None,
            format: DocumentManifestFormat::default(),
        }
    }
}

fn refresh_default() -> Duration {
    Duration::from_secs(60)
}

fn timeout_default() -> Duration {
    Duration::from_secs(10)
}

/// The format of a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DocumentManifestFormat {
    /// Recognises the format.
    #[default]
    Auto,
    /// The manifest of `@apollo/generate-persisted-query-manifest`.
    Apollo,
    /// The map of ids to texts that the Relay compiler writes.
    Relay,
}

impl PersistedDocuments {
    /// Resolves relative paths against `folder`.
    pub(super) fn resolve(&mut self, folder: &Path) {
        for manifest in &mut self.manifests {
            let paths = [&mut manifest.file, &mut manifest.folder, &mut manifest.ca];
            for path in paths.into_iter().flatten() {
                *path = folder.join(&*path);
            }
        }
    }

    /// Checks that a mode has manifests, that exceptions have something to except, and that folders have no format.
    pub(super) fn check_mode(&self, places: &KeyPlaces, findings: &mut Findings) {
        if !self.exceptions.is_empty() && !self.mode.is_restrictive() {
            findings
                .warning(
                    "no-effect",
                    "`persisted_documents.exceptions` has no effect: `persisted_documents.mode` refuses no operation",
                )
                .at_place(places.get("persisted_documents.exceptions"), "not used")
                .help("set `mode` to `require_known` or `require_id`, or remove the exceptions");
        }
        for (index, manifest) in self.manifests.iter().enumerate() {
            let path = format!("persisted_documents.manifests[{index}].format");
            if manifest.folder.is_some() && places.get(&path).is_some() {
                findings
                    .error("conflict", format!("`{path}` has no meaning for a folder"))
                    .at_place(places.get(&path), "belongs to `file` or `url`")
                    .help("remove it: a folder has one file for each document");
            }
        }
        if self.mode == PersistedDocumentsMode::Off || !self.manifests.is_empty() {
            return;
        }
        let label = match self.mode.is_restrictive() {
            true => "every operation would be refused",
            false => "every operation would be unknown",
        };
        findings
            .error("conflict", "`persisted_documents.mode` is set, and there are no `manifests`")
            .at_place(places.get("persisted_documents.mode"), label)
            .help("add `manifests`, or remove `mode`");
    }
}
