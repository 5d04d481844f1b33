//! Files for TLS connections from the router to servers: subgraphs and brokers.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::findings::{Findings, KeyPlaces};
use super::format::FileText;

/// Files for TLS connections to a server, all in PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClientTls {
    /// The certificate authorities that may have signed the server's certificate, in PEM. They replace those that the
    /// system trusts.
    #[schemars(with = "Option<FileText>", example = &"certificates/internal-ca.pem")]
    pub ca: Option<PathBuf>,

    /// The router's own certificate for servers that verify their clients (mutual TLS), in PEM, followed by the
    /// intermediate certificates up to the root.
    #[schemars(with = "Option<FileText>", example = &"certificates/router.pem")]
    pub certificate: Option<PathBuf>,

    /// The private key of `certificate`, in PEM, not encrypted.
    #[schemars(with = "Option<FileText>", example = &"certificates/router.key")]
    pub key: Option<PathBuf>,
}

impl ClientTls {
    /// Resolves relative paths against `folder`.
    pub(super) fn resolve(&mut self, folder: &Path) {
        for path in [&mut self.ca, &mut self.certificate, &mut self.key].into_iter().flatten() {
            *path = folder.join(&*path);
        }
    }

    /// Checks that a certificate and its key are configured together.
    pub(super) fn check_pair(&self, path: &str, places: &KeyPlaces, findings: &mut Findings) {
        let (has, lacks) = match (&self.certificate, &self.key) {
            (Some(_), None) => ("certificate", "key"),
            (None, Some(_)) => ("key", "certificate"),
            _ => return,
        };
        findings
            .error("missing-key", format!("`{path}.{has}` needs `{path}.{lacks}` beside it"))
            .at_place(places.get(&format!("{path}.{has}")), "has no effect on its own")
            .help(format!("add `{lacks}`, the path of a PEM file"));
    }

    /// Converts to the settings of a broker. `None` if nothing is configured.
    pub fn broker_settings(&self) -> Option<events::BrokerTls> {
        let Self { ca, certificate, key } = self.clone();
        (*self != Self::default()).then_some(events::BrokerTls { ca, certificate, key })
    }
}
