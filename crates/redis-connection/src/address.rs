//! Addresses of servers and credentials. Credentials are removed from URLs here, so that no message, log line or
//! `Debug` text of the router or of the client library can show them.

use std::path::PathBuf;
use std::time::Duration;

use net::{ConnectError, Stream, TlsClient};
use percent_encoding::percent_decode_str;
use redis::{ProtocolVersion, RedisConnectionInfo};
use url::Url;

/// The default port of Redis.
const PORT_DEFAULT: u16 = 6379;

/// The credentials for Redis.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisAuthentication {
    /// The user of the access control list. `None` means the user `default`.
    pub user: Option<String>,
    /// The password.
    pub password: String,
}

impl std::fmt::Debug for RedisAuthentication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RedisAuthentication(…)")
    }
}

/// Settings that can never work. Messages contain no part of the URL, because it may contain credentials.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RedisSettingsError {
    /// There is no address.
    #[error("there is no Redis url; expected redis://host:port")]
    NoAddress,
    /// An address is not a URL of a server.
    #[error("Redis address {number} is not a URL ({reason}); expected redis://host:port")]
    NotAUrl {
        /// The number of the address, from 1.
        number: usize,
        /// The reason.
        reason: String,
    },
    /// An address has an unsupported scheme.
    #[error("Redis address {number} has scheme {scheme:?}; expected redis, rediss or unix")]
    Scheme {
        /// The number of the address, from 1.
        number: usize,
        /// The scheme.
        scheme: String,
    },
    /// The authorities of the system cannot be read.
    #[error("TLS: {0}")]
    Tls(String),
}

/// The address of one server, with its credentials.
#[derive(Clone, Debug)]
pub struct RedisAddress {
    place: Place,
    /// The number of the database in the path of the URL. Pub/Sub is the same in all of them.
    database: u16,
    authentication: Option<RedisAuthentication>,
}

/// The place of a server: a port, or a socket of this machine.
#[derive(Clone, Debug)]
enum Place {
    Tcp {
        host: Box<str>,
        port: u16,
        tls: Option<TlsClient>,
    },
    #[cfg(unix)]
    Unix(PathBuf),
}

impl RedisAddress {
    /// Parses URLs of servers. If `tls` is `None`, `rediss` trusts the authorities of the system.
    pub fn parse_list(
        urls: &[String],
        authentication: Option<&RedisAuthentication>,
        tls: Option<&TlsClient>,
    ) -> Result<Vec<Self>, RedisSettingsError> {
        let mut tls = tls.cloned();
        let list = urls
            .iter()
            .enumerate()
            .map(|(index, url)| {
                let mut address = Self::parse(index + 1, url.trim(), &mut tls)?;
                address.authentication = authentication.cloned().or(address.authentication);
                Ok(address)
            })
            .collect::<Result<Vec<_>, _>>()?;
        if list.is_empty() { Err(RedisSettingsError::NoAddress) } else { Ok(list) }
    }

    fn parse(
        number: usize,
        text: &str,
        tls: &mut Option<TlsClient>,
    ) -> Result<Self, RedisSettingsError> {
        let not_a_url =
            |reason: &str| RedisSettingsError::NotAUrl { number, reason: reason.to_owned() };
        let url = Url::parse(text).map_err(|error| not_a_url(&error.to_string()))?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err(not_a_url("it has a ? or #, which have no meaning here"));
        }
        let wants_tls = match url.scheme() {
            "redis" => false,
            "rediss" => true,
            #[cfg(unix)]
            "unix" => {
                let path = percent_decode_str(url.path()).decode_utf8_lossy().into_owned();
                if url.host_str().is_some_and(|host| !host.is_empty()) || path.len() < 2 {
                    return Err(not_a_url(
                        "the absolute path of the socket is missing after unix://",
                    ));
                }
                let place = Place::Unix(path.into());
                return Ok(Self { place, database: 0, authentication: None });
            }
            scheme => {
                return Err(RedisSettingsError::Scheme { number, scheme: scheme.to_owned() });
            }
        };
        let host = match url.host_str() {
            Some(host) if !host.is_empty() => host.into(),
            _ => return Err(not_a_url("it has no host")),
        };
        let database = match url.path().trim_matches('/') {
            "" => 0,
            number => {
                number.parse().map_err(|_| not_a_url("its path is not the number of a database"))?
            }
        };
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let user = Some(decode(url.username())).filter(|user| !user.is_empty());
        let authentication = match (user, url.password().map(decode)) {
            (user, Some(password)) => Some(RedisAuthentication { user, password }),
            (Some(_), None) => return Err(not_a_url("it has a user without a password")),
            (None, None) => None,
        };
        if wants_tls && tls.is_none() {
            let trusting = TlsClient::with_native_roots(&[])
                .map_err(|error| RedisSettingsError::Tls(error.to_string()))?;
            *tls = Some(trusting);
        }
        let tls = if wants_tls { tls.clone() } else { None };
        let port = url.port().unwrap_or(PORT_DEFAULT);
        Ok(Self { place: Place::Tcp { host, port, tls }, database, authentication })
    }

    /// Returns another server that is reached in the same way, by TLS or without, with these credentials.
    pub fn with_host_and_credentials(
        &self,
        host: String,
        port: u16,
        authentication: Option<&RedisAuthentication>,
    ) -> Self {
        Self { authentication: authentication.cloned(), ..self.with_host(host, port) }
    }

    /// Returns another server that is reached in the same way and with the same credentials. An empty host means the
    /// same host.
    pub fn with_host(&self, host: String, port: u16) -> Self {
        let (own, tls) = match &self.place {
            Place::Tcp { host, tls, .. } => (host.clone(), tls.clone()),
            #[cfg(unix)]
            Place::Unix(_) => ("localhost".into(), None),
        };
        let host = if host.is_empty() { own } else { host.into() };
        let authentication = self.authentication.clone();
        Self { place: Place::Tcp { host, port, tls }, database: self.database, authentication }
    }

    /// Returns `host:port` or the path of a socket, for log lines.
    pub fn display_name(&self) -> String {
        match &self.place {
            Place::Tcp { host, port, .. } => format!("{host}:{port}"),
            #[cfg(unix)]
            Place::Unix(path) => path.display().to_string(),
        }
    }

    /// Makes one attempt to connect, without sending anything.
    pub async fn connect(&self, within: Duration) -> Result<Stream, ConnectError> {
        match &self.place {
            Place::Tcp { host, port, tls } => net::connect(host, *port, tls.as_ref(), within).await,
            #[cfg(unix)]
            Place::Unix(path) => net::connect_unix(path, within).await,
        }
    }

    /// Returns the number of the database that the URL names; 0 if it names none.
    pub fn database(&self) -> u16 {
        self.database
    }

    /// Returns the same server with this database.
    pub fn with_database(&self, database: u16) -> Self {
        Self { database, ..self.clone() }
    }

    /// Returns the handshake. It uses RESP3, because only there events and responses share a connection without being
    /// mistaken for each other. Unless `database` is 0, the connection is for that database.
    pub fn handshake(&self, database: u16) -> RedisConnectionInfo {
        let hello = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_lib_name("starling", env!("CARGO_PKG_VERSION"))
            .set_db(database.into());
        match &self.authentication {
            None => hello,
            Some(RedisAuthentication { user, password }) => {
                hello.set_username(user.as_deref().unwrap_or("default")).set_password(password)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Result<(String, Option<RedisAuthentication>), RedisSettingsError> {
        let list = RedisAddress::parse_list(&[url.to_owned()], None, None)?;
        Ok((list[0].display_name(), list[0].authentication.clone()))
    }

    fn signs_in(user: Option<&str>, password: &str) -> Option<RedisAuthentication> {
        Some(RedisAuthentication { user: user.map(Into::into), password: password.into() })
    }

    #[test]
    fn addresses_are_parsed_and_credentials_are_removed() {
        for (url, place, authentication) in [
            ("redis://broker", "broker:6379", None),
            ("redis://broker:7000/0", "broker:7000", None),
            ("redis://[::1]:7000/", "[::1]:7000", None),
            ("redis://me:p%40ss@broker", "broker:6379", signs_in(Some("me"), "p@ss")),
            ("redis://:s3cret@broker", "broker:6379", signs_in(None, "s3cret")),
            ("unix:///run/redis.sock", "/run/redis.sock", None),
        ] {
            assert_eq!(parsed(url), Ok((place.to_owned(), authentication)), "{url}");
        }
    }

    #[test]
    fn configured_authentication_overrides_what_the_url_carries() {
        let ours = signs_in(None, "new");
        let urls = ["redis://:old@broker".to_owned()];
        let list = RedisAddress::parse_list(&urls, ours.as_ref(), None).unwrap();
        assert_eq!(list[0].authentication, ours);
    }

    #[test]
    fn tls_is_for_rediss_only() {
        let tls = TlsClient::with_native_roots(&[]).unwrap();
        let urls = ["rediss://a", "redis://b"].map(str::to_owned);
        let list = RedisAddress::parse_list(&urls, None, Some(&tls)).unwrap();
        let has_tls = |it: &RedisAddress| matches!(&it.place, Place::Tcp { tls: Some(_), .. });
        assert_eq!(list.iter().map(has_tls).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn nothing_shows_a_secret() {
        let secret = "s3cret";
        let address = RedisAddress::parse_list(&["redis://:s3cret@broker".to_owned()], None, None);
        assert!(!format!("{address:?}").contains(secret));
        for bad in [
            "http://:s3cret@broker",
            "redis://:s3cret@:4222",
            "redis://:s3cret@host:99999",
            "redis://s3cret@host",
            "redis://:s3cret@host/name",
            "redis://:s3cret@host/65536",
            "unix://s3cret/a",
            "unix:///a?pass=s3cret",
            "s3cret",
        ] {
            let error = parsed(bad).unwrap_err();
            assert!(!format!("{error} {error:?}").contains(secret), "{error}");
        }
        assert_eq!(
            RedisAddress::parse_list(&[], None, None).unwrap_err(),
            RedisSettingsError::NoAddress
        );
    }
}
