//! Addresses of servers and credentials. Credentials are removed from URLs here, so that no message, log line or
//! `Debug` text of the router or of the client library can show them.

use std::path::PathBuf;

use async_nats::{ConnectOptions, ServerAddr};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::{BrokerTls, BrokerTlsError};

/// The credentials for NATS.
#[derive(Clone, PartialEq, Eq)]
pub enum NatsAuthentication {
    /// A token.
    Token(String),
    /// A user and a password.
    UserPassword {
        /// The name of the user.
        user: String,
        /// The password.
        password: String,
    },
    /// The seed of a user's nkey.
    Nkey(String),
    /// A file with a JWT and the seed of its nkey, as `nsc` writes it. It is read for each new connection.
    CredentialsFile(PathBuf),
}

impl std::fmt::Debug for NatsAuthentication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Token(_) => "Token(…)",
            Self::UserPassword { .. } => "UserPassword(…)",
            Self::Nkey(_) => "Nkey(…)",
            Self::CredentialsFile(_) => "CredentialsFile(…)",
        })
    }
}

/// Settings that can never work. Messages contain no part of the URL, because it may contain credentials.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NatsSettingsError {
    /// There is no address.
    #[error("the NATS url is empty; expected nats://host:port")]
    NoAddress,
    /// An address is not a URL.
    #[error("NATS address {number} is not a URL ({reason}); expected nats://host:port")]
    NotAUrl {
        /// The number of the address, from 1.
        number: usize,
        /// The reason that the parser gives.
        reason: String,
    },
    /// The nkey is not the seed of a user.
    #[error("the nkey is not the seed of a user (SU and 56 further letters and digits)")]
    Nkey,
    /// The files for TLS cannot be used.
    #[error("tls: {0}")]
    Tls(#[from] BrokerTlsError),
    /// An address has an unsupported scheme.
    #[error("NATS address {number} has scheme {scheme:?}; expected nats or tls")]
    Scheme {
        /// The number of the address, from 1.
        number: usize,
        /// The scheme.
        scheme: String,
    },
}

/// The address of one server, with its credentials and TLS files.
#[derive(Clone, Debug)]
pub(super) struct NatsAddress {
    server: ServerAddr,
    authentication: Option<NatsAuthentication>,
    tls: Option<BrokerTls>,
}

/// The length of a seed in letters: two for the prefix, and 56 for 35 bytes in base32.
const NKEY_SEED_LETTERS: usize = 58;

impl NatsAddress {
    /// Parses `nats://a:4222,nats://b:4222`.
    pub(super) fn parse_list(
        urls: &str,
        authentication: Option<&NatsAuthentication>,
        tls: Option<&BrokerTls>,
    ) -> Result<Vec<Self>, NatsSettingsError> {
        if let Some(NatsAuthentication::Nkey(seed)) = authentication
            && !is_user_seed(seed)
        {
            return Err(NatsSettingsError::Nkey);
        }
        // This only reports at once the errors that would occur at each connection.
        tls.map(BrokerTls::client).transpose()?;
        let list = urls
            .split(',')
            .map(str::trim)
            .filter(|url| !url.is_empty())
            .enumerate()
            .map(|(index, url)| Self::parse(index + 1, url, authentication, tls))
            .collect::<Result<Vec<_>, _>>()?;
        if list.is_empty() { Err(NatsSettingsError::NoAddress) } else { Ok(list) }
    }

    fn parse(
        number: usize,
        text: &str,
        authentication: Option<&NatsAuthentication>,
        tls: Option<&BrokerTls>,
    ) -> Result<Self, NatsSettingsError> {
        let not_a_url =
            |reason: &str| NatsSettingsError::NotAUrl { number, reason: reason.to_owned() };
        let parsed = if text.contains("://") {
            Url::parse(text)
        } else {
            Url::parse(&format!("nats://{text}"))
        };
        let mut url = parsed.map_err(|error| not_a_url(&error.to_string()))?;
        if !matches!(url.scheme(), "nats" | "tls") {
            return Err(NatsSettingsError::Scheme { number, scheme: url.scheme().to_owned() });
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(not_a_url("it has no host"));
        }
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let user = decode(url.username());
        let in_url = match url.password().map(decode) {
            Some(password) => Some(NatsAuthentication::UserPassword { user, password }),
            None if !user.is_empty() => Some(NatsAuthentication::Token(user)),
            None => None,
        };
        let no_host = |()| not_a_url("it has no host");
        url.set_username("").map_err(no_host)?;
        url.set_password(None).map_err(no_host)?;
        let server = ServerAddr::from_url(url).map_err(|error| not_a_url(&error.to_string()))?;
        Ok(Self { server, authentication: authentication.cloned().or(in_url), tls: tls.cloned() })
    }

    /// Returns `host:port`, for log lines.
    pub(super) fn host_and_port(&self) -> String {
        format!("{}:{}", self.server.host(), self.server.port())
    }

    /// Makes one attempt to connect. The error is the reason why it failed, without credentials.
    pub(super) async fn connect(
        &self,
        options: ConnectOptions,
    ) -> Result<async_nats::Client, Box<str>> {
        let options = match self.authentication.clone() {
            Some(NatsAuthentication::Token(token)) => options.token(token),
            Some(NatsAuthentication::UserPassword { user, password }) => {
                options.user_and_password(user, password)
            }
            Some(NatsAuthentication::Nkey(seed)) => options.nkey(seed),
            Some(NatsAuthentication::CredentialsFile(path)) => {
                let file = path.clone();
                let read =
                    tokio::task::spawn_blocking(move || crate::tls::read_pem_file(&file)).await;
                let bytes = read
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
                    .map_err(|error| error.to_string())?;
                // The text of the error is not used because it may repeat lines of the file.
                let text = std::str::from_utf8(&bytes).ok();
                text.and_then(|text| options.credentials(text).ok()).ok_or_else(|| {
                    format!("{} holds no JWT with the seed of its nkey", path.display())
                })?
            }
            None => options,
        };
        let options = match self.tls.clone() {
            None => options,
            Some(BrokerTls { ca, certificate, key }) => {
                let mut options = options.require_tls(true);
                if let Some(ca) = ca {
                    options = options.add_root_certificates(ca);
                }
                match certificate.zip(key) {
                    Some((certificate, key)) => options.add_client_certificate(certificate, key),
                    None => options,
                }
            }
        };
        options.connect(self.server.clone()).await.map_err(|error| error.to_string().into())
    }
}

/// True if `seed` has the form of a user's seed. The library reads seeds only when it connects, and then reports only
/// that it failed.
fn is_user_seed(seed: &str) -> bool {
    seed.len() == NKEY_SEED_LETTERS
        && seed.starts_with("SU")
        && seed.bytes().all(|byte| matches!(byte, b'A'..=b'Z' | b'2'..=b'7'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(urls: &str) -> Vec<(String, Option<NatsAuthentication>)> {
        NatsAddress::parse_list(urls, None, None)
            .unwrap()
            .into_iter()
            .map(|address| (address.server.as_url_str().to_owned(), address.authentication))
            .collect()
    }

    #[test]
    fn credentials_are_removed_from_the_url() {
        let user = NatsAuthentication::UserPassword { user: "me".into(), password: "p@ss".into() };
        let token = NatsAuthentication::Token("s3cret".into());
        assert_eq!(
            parsed("nats://me:p%40ss@broker:4333, nats://s3cret@other,plain:1"),
            [
                ("nats://broker:4333".into(), Some(user)),
                ("nats://other".into(), Some(token)),
                ("nats://plain:1".into(), None),
            ]
        );
    }

    #[test]
    fn configured_authentication_overrides_what_the_url_carries() {
        let token = NatsAuthentication::Token("new".into());
        let list = NatsAddress::parse_list("nats://old@broker", Some(&token), None).unwrap();
        assert_eq!(list[0].authentication, Some(token));
        assert_eq!(list[0].host_and_port(), "broker:4222");
    }

    #[test]
    fn an_nkey_that_is_not_a_users_seed_is_refused_and_not_shown() {
        let seed = format!("SU{}", "A2".repeat(28));
        let wrong = [seed.replace("SU", "SA"), seed.to_lowercase(), "SUA".into(), String::new()];
        let parse = |seed: &str| {
            NatsAddress::parse_list("nats://b", Some(&NatsAuthentication::Nkey(seed.into())), None)
        };
        assert_eq!(parse(&seed).unwrap().len(), 1);
        for seed in wrong {
            assert_eq!(parse(&seed).unwrap_err(), NatsSettingsError::Nkey);
        }
        assert_eq!(format!("{:?}", NatsAuthentication::Nkey(seed)), "Nkey(…)");
    }

    #[test]
    fn nothing_shows_a_secret() {
        let secret = "s3cret";
        let url = format!("nats://{secret}@broker");
        let address = NatsAddress::parse_list(&url, None, None).unwrap();
        assert!(!format!("{address:?}").contains(secret));
        for bad in ["http://s3cret@broker", "nats://s3cret@:4222", "nats://s3cret@host:99999"] {
            let error = NatsAddress::parse_list(bad, None, None).unwrap_err();
            assert!(!format!("{error} {error:?}").contains(secret), "{error}");
        }
        assert_eq!(
            NatsAddress::parse_list(" , ", None, None).unwrap_err(),
            NatsSettingsError::NoAddress
        );
    }
}
