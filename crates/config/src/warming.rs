//! Settings of the start of a router: operations that are prepared before it is ready, and the ramp after that.

use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::findings::{Findings, KeyPlaces};
use super::format::{DurationOrZeroText, DurationText, FileText, HttpUrlText};
use super::headers::{HeaderInsertion, HeaderInsertionKeys};
use super::{Config, LoadReportMode, quantity};

/// The start of a router that takes load from others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Warming {
    /// The source of operations that are prepared before the router is ready: the most used operations of another
    /// router, or a manifest. A source that cannot be read, and operations that are not valid on the graph, are logged
    /// and do not prevent the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<WarmingSource>,

    /// Waits until the persisted documents have been prepared before the router is ready. They are prepared ahead in
    /// any case.
    #[schemars(example = true)]
    pub persisted_documents: bool,

    /// The time after which the router is ready also if operations are left to be prepared. It begins when the router
    /// listens.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"10s")]
    pub timeout: Duration,

    /// The time within which the router takes its full share of the load, from the moment at which it is ready. In this
    /// time the limit of overload protection (`admission`) grows from a tenth to the whole, and load reports
    /// (`http.load_report`) say that the router is busier than it is, so that load balancers send it less. `0s`: the
    /// router takes the full load at once.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationOrZeroText", example = &"30s")]
    pub ramp: Duration,
}

impl Default for Warming {
    fn default() -> Self {
        Self {
            operations: None,
            persisted_documents: false,
            // 500 operations of 10 ms take 10 s with half of a processor.
            timeout: Duration::from_secs(20),
            ramp: Duration::ZERO,
        }
    }
}

/// The source of operations: exactly one of `file` and `url`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-one-of" = ["file", "url"]))]
#[schemars(extend("dependentRequired" = {
    "headers": ["url"], "ca": ["url"], "certificate": ["url", "key"], "key": ["url", "certificate"],
}))]
pub struct WarmingSource {
    /// A file: the response of `/admin/operations` of a router, or another manifest of persisted documents in JSON. A
    /// relative path is relative to the folder of the configuration file.
    #[serde(default)]
    #[schemars(with = "Option<FileText>", example = &"operations.json")]
    pub file: Option<PathBuf>,

    /// The URL of such a file, of at most 10 MB: usually `/admin/operations` of the admin listener of other routers.
    /// Redirections are not followed. For a further graph (`graphs`), the parameter `graph` with its name is added.
    #[serde(default)]
    #[schemars(
        with = "Option<HttpUrlText>",
        example = &"http://starling-admin.shop.svc:8088/admin/operations"
    )]
    pub url: Option<String>,

    /// Headers of the request for `url`, such as a token.
    #[serde(default)]
    #[schemars(with = "Vec<HeaderInsertionKeys>", length(max = 16))]
    pub headers: Vec<HeaderInsertion>,

    /// The certificate authorities that may have signed the certificate of the server of `url`, in PEM. They replace
    /// those that the system trusts.
    #[serde(default)]
    #[schemars(with = "Option<FileText>", example = &"certificates/internal-ca.pem")]
    pub ca: Option<PathBuf>,

    /// The router's own certificate for a server of `url` that verifies its clients (mutual TLS), such as the admin
    /// listener of other routers with `admin.tls.client_ca`, in PEM, followed by the intermediate certificates up to
    /// the root.
    #[serde(default)]
    #[schemars(with = "Option<FileText>", example = &"certificates/router.pem")]
    pub certificate: Option<PathBuf>,

    /// The private key of `certificate`, in PEM, not encrypted.
    #[serde(default)]
    #[schemars(with = "Option<FileText>", example = &"certificates/router.key")]
    pub key: Option<PathBuf>,

    /// The maximum number of operations that are prepared: the first ones.
    #[serde(default = "max_default")]
    #[schemars(range(min = 1, max = 100_000), example = 200)]
    pub max: u32,
}

fn max_default() -> u32 {
    // An application has some hundreds of operations.
    500
}

impl WarmingSource {
    /// Returns the files of the router's own certificate and of its key.
    pub fn identity(&self) -> Option<(&Path, &Path)> {
        self.certificate.as_deref().zip(self.key.as_deref())
    }
}

impl Warming {
    /// Resolves relative paths against `folder`.
    pub(super) fn resolve(&mut self, folder: &Path) {
        let Some(source) = &mut self.operations else { return };
        let WarmingSource { file, ca, certificate, key, .. } = source;
        for path in [file, ca, certificate, key].into_iter().flatten() {
            *path = folder.join(&*path);
        }
    }
}

/// Warns about settings of `warming` that change nothing.
pub(super) fn check(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    let warming = &config.warming;
    let reports_load = config.http.load_report.send != LoadReportMode::Never;
    if !warming.ramp.is_zero() && !config.admission.enabled && !reports_load {
        findings
            .warning(
                "no-effect",
                "`warming.ramp` has no effect: nothing bounds or reports the load",
            )
            .at_place(places.get("warming.ramp"), "not used")
            .help("remove `admission.enabled: false`, or set `http.load_report.send`");
    }
    if warming.persisted_documents && config.persisted_documents.manifests.is_empty() {
        findings
            .warning(
                "no-effect",
                "`warming.persisted_documents` has no effect: there are no manifests",
            )
            .at_place(places.get("warming.persisted_documents"), "not used")
            .help("add `persisted_documents.manifests`, or remove the key");
    }
}
