//! Settings of NATS.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::client_tls::ClientTls;
use super::format::{FileText, NatsUrlText, ProviderIdText, SecretText};
use super::provider_settings::{Retry, UserInfo, decoded, split_credentials};
use super::secret::Secret;

/// A connection to NATS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NatsProvider {
    /// The id by which `providerId` names this provider.
    #[schemars(with = "ProviderIdText", example = &"default")]
    pub id: String,

    /// The server: `nats://HOST:PORT`, or `tls://HOST:PORT`. Several URLs with commas between them are servers of one
    /// cluster, tried in turn. Credentials in a single URL (`nats://USER:PASSWORD@HOST`, `nats://TOKEN@HOST`) count as
    /// `authentication`.
    #[schemars(with = "NatsUrlText", example = &"nats://nats.internal:4222")]
    pub url: String,

    /// The credentials of the router. By default it connects without credentials.
    #[serde(default)]
    #[schemars(with = "Option<NatsAuthenticationKeys>")]
    pub authentication: Option<NatsAuthentication>,

    /// Certificates for `tls://`, and for `nats://` if the server requires TLS. If one of the files is set, the router
    /// never connects without TLS. The files are read again for each new connection.
    #[serde(default)]
    pub tls: ClientTls,

    /// Settings of JetStream that directives do not contain.
    #[serde(default)]
    pub jetstream: JetStream,

    /// The waiting times between attempts to reconnect.
    #[serde(default)]
    pub retry: Retry,
}

/// Settings of JetStream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JetStream {
    /// Makes publishing wait until a stream has stored the event; then publishing to a subject without a stream fails.
    /// If `false`, an event counts as published when it has been sent to the server.
    #[schemars(example = true)]
    pub publish_ack: bool,
}

impl NatsProvider {
    /// True if the URL contains credentials, as in `nats://user:password@host`.
    pub(super) fn has_credentials_in_url(&self) -> bool {
        self.url.contains('@')
    }

    /// Moves credentials from the URL to `authentication`, so that logs may show the URL.
    pub(super) fn separate_credentials(&mut self) {
        let Some((credentials, url)) = split_credentials(&self.url) else { return };
        self.authentication = Some(match credentials.split_once(':') {
            Some((username, password)) => NatsAuthentication::UserInfo(UserInfo {
                username: decoded(username),
                password: Secret::new(decoded(password)),
            }),
            None => NatsAuthentication::Token(Secret::new(decoded(credentials))),
        });
        self.url = url;
    }
}

/// Credentials of the router at NATS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NatsAuthentication {
    /// A token.
    Token(Secret),
    /// A user name and a password.
    UserInfo(UserInfo),
    /// The seed of an nkey.
    Nkey(Secret),
    /// A file of credentials: a JWT and the seed of its nkey.
    CredentialsFile(PathBuf),
}

impl NatsAuthentication {
    /// Resolves relative paths against `folder`.
    pub(super) fn resolve(&mut self, folder: &Path) {
        if let Self::CredentialsFile(path) = self {
            *path = folder.join(&*path);
        }
    }
}

/// The credentials of the router: exactly one of these keys.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("minProperties" = 1, "maxProperties" = 1))]
#[expect(dead_code, reason = "describes the shape for the schema; never built")]
pub(super) struct NatsAuthenticationKeys {
    /// A token. Messages and logs never show it.
    #[schemars(with = "Option<SecretText>", example = &"${NATS_TOKEN}")]
    token: Option<Secret>,
    /// A user name and a password.
    user_info: Option<UserInfo>,
    /// The seed of a user's nkey (`SU…`). Messages and logs never show it.
    #[schemars(with = "Option<SecretText>", example = &"${NATS_NKEY_SEED}")]
    nkey: Option<Secret>,
    /// A file of credentials as `nsc` writes it (`.creds`): a JWT and the seed of its nkey. It is read again for each
    /// new connection.
    #[schemars(with = "Option<FileText>", example = &"nats/starling.creds")]
    credentials_file: Option<PathBuf>,
}
