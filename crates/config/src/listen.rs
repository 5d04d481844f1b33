//! Settings of the listeners: those for clients, and the admin listener.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::address::parse_address;
use super::console::Console;
use super::format::{AddressText, FileModeText, FileText, HostNameText, SocketPathText};

/// The default address: loopback, so that a first try is not reachable from the network.
pub(super) const LISTEN_DEFAULT: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4000);

/// The maximum number of listeners, so that a generated file cannot exhaust descriptors.
const LISTENERS_MAX: usize = 64;

/// One address or socket where clients connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listener {
    /// A TCP address.
    Address {
        /// The address. Port 0 takes a free port.
        address: SocketAddr,
        /// The files for TLS; `None` for plain TCP.
        tls: Option<TlsFiles>,
    },
    /// A Unix domain socket.
    Unix(UnixSocket),
}

impl Listener {
    /// Returns a TCP listener without TLS.
    pub fn plain(address: SocketAddr) -> Self {
        Self::Address { address, tls: None }
    }

    /// Returns the address of a TCP listener.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Address { address, .. } => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// Resolves relative paths against `folder`.
    pub(super) fn resolve(&mut self, folder: &Path) {
        match self {
            Self::Address { tls: None, .. } => {}
            Self::Address { tls: Some(tls), .. } => tls.resolve(folder),
            Self::Unix(socket) => socket.path = folder.join(&socket.path),
        }
    }
}

/// A Unix domain socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnixSocket {
    /// The path of its file.
    pub path: PathBuf,
    /// The permissions of the file, which decide which users may connect.
    pub mode: u32,
}

/// The files of a listener with TLS (PEM). They are watched: later connections use new versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The certificate, followed by the intermediate certificates up to the root (PEM). A relative path is relative to
    /// the folder of the configuration file.
    #[schemars(with = "FileText", example = &"tls/server.pem")]
    pub cert: PathBuf,
    /// The private key of the certificate (PEM).
    #[schemars(with = "FileText", example = &"tls/server.key")]
    pub key: PathBuf,
    /// Certificate authorities of clients (PEM). If set, only clients with a certificate of one of them can connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<FileText>", example = &"tls/clients.pem")]
    #[schemars(extend("default" = null))]
    pub client_ca: Option<PathBuf>,
}

impl TlsFiles {
    /// Resolves relative paths against `folder`.
    fn resolve(&mut self, folder: &Path) {
        let authorities = self.client_ca.as_mut();
        for path in [&mut self.cert, &mut self.key].into_iter().chain(authorities) {
            *path = folder.join(&*path);
        }
    }
}

/// The admin listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// The address of the admin listener, written as for `listen`.
    #[serde(with = "socket_address")]
    #[schemars(with = "AddressText", example = &"127.0.0.1:8088")]
    #[schemars(extend("x-override" = "--admin-listen"))]
    pub listen: SocketAddr,
    /// Uses TLS. With `client_ca` only clients with a certificate of one of these authorities are served, except that
    /// `/health/live` and `/health/ready` need none. The files are watched as those of `listen`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
    /// Host names of the admin listener, in addition to IP addresses and `localhost`: for example the name of the
    /// service that Prometheus scrapes. Requests with other names get status 421, because web pages could reach the
    /// listener under a name of their own (DNS rebinding). `/health/live` and `/health/ready` are available under every
    /// name.
    #[schemars(with = "Vec<HostNameText>", length(max = 32), example = ["starling.internal"])]
    pub allowed_hosts: Vec<String>,
    /// Serves profiles of this process at `/debug/pprof/`: `profile` (CPU), `heap` and `tasks`. Off by default, because
    /// a profile takes CPU time and reveals details of the program. Needs a build with the feature `profiling`.
    #[schemars(example = &true)]
    pub profiling: bool,
    /// Shows values of clients on `/admin/subscriptions`, `/admin/cache` and in the console: those in rendered topics
    /// and in keys of cached data. By default each of them is a fingerprint, such as `#3fa9c1d2`, which is the same for
    /// equal values until the process ends. Private cached data is shown without its key in any case.
    #[schemars(example = &true)]
    pub show_values: bool,
    /// The console: pages for browsers that show what the router does.
    pub console: Console,
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8088),
            tls: None,
            allowed_hosts: Vec::new(),
            profiling: false,
            show_values: false,
            console: Console::default(),
        }
    }
}

impl Admin {
    /// True if clients of the listener need a certificate.
    pub fn needs_client_certificate(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
    }

    /// Resolves relative paths against `folder`.
    pub(super) fn resolve(&mut self, folder: &Path) {
        if let Some(tls) = &mut self.tls {
            tls.resolve(folder);
        }
    }
}

/// The forms that `listen` may have, for the schema.
pub(super) struct ListenForms;

/// One listener.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-one-of" = ["address", "unix"]))]
#[schemars(extend("dependentRequired" = {"tls": ["address"], "mode": ["unix"]}))]
pub(super) struct ListenerKeys {
    /// The address to listen on.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_address")]
    #[schemars(with = "Option<AddressText>", example = &"0.0.0.0:4000")]
    #[schemars(extend("default" = null))]
    address: Option<SocketAddr>,

    /// Uses TLS at this address. The files are watched: later connections use new versions. Invalid files are refused
    /// and logged, and the old ones stay in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tls: Option<TlsFiles>,

    /// The path of a Unix domain socket, instead of an address. A relative path is relative to the folder of the
    /// configuration file. A socket that a crashed router left behind is replaced; any other file is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SocketPathText>", example = &"/run/starling/graphql.sock")]
    #[schemars(extend("default" = null))]
    unix: Option<PathBuf>,

    /// The permissions of the socket's file, in octal. They decide which users may connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<FileModeText>", example = &"0666")]
    #[schemars(extend("default" = "0660"))]
    mode: Option<String>,
}

impl From<&Listener> for ListenerKeys {
    fn from(listener: &Listener) -> Self {
        match listener {
            Listener::Address { address, tls } => {
                Self { address: Some(*address), tls: tls.clone(), unix: None, mode: None }
            }
            Listener::Unix(socket) => Self {
                address: None,
                tls: None,
                unix: Some(socket.path.clone()),
                mode: Some(format!("{:04o}", socket.mode)),
            },
        }
    }
}

impl TryFrom<ListenerKeys> for Listener {
    type Error = String;

    /// Converts the keys of one listener. `check` has refused invalid combinations by the schema, so this does not fail
    /// after it.
    fn try_from(keys: ListenerKeys) -> Result<Self, String> {
        match keys {
            ListenerKeys { address: Some(address), tls, unix: None, mode: None } => {
                Ok(Self::Address { address, tls })
            }
            ListenerKeys { address: None, tls: None, unix: Some(path), mode } => {
                let mode = mode.map_or(Ok(UNIX_MODE_DEFAULT), |mode| parse_mode(&mode))?;
                Ok(Self::Unix(UnixSocket { path, mode }))
            }
            _ => Err("a listener has an `address` or a `unix` socket".to_owned()),
        }
    }
}

/// The default permissions: the owner and the group, because a proxy in front of the router shares a group with it.
const UNIX_MODE_DEFAULT: u32 = 0o660;

/// Parses permissions such as `0660`.
pub(super) fn parse_mode(text: &str) -> Result<u32, String> {
    let is_octal =
        (3..=4).contains(&text.len()) && text.bytes().all(|it| matches!(it, b'0'..=b'7'));
    match u32::from_str_radix(text, 8) {
        Ok(mode) if is_octal && mode <= 0o777 => Ok(mode),
        _ => Err("it is not three octal digits".to_owned()),
    }
}

/// Serialization for `#[serde(with = …)]` on an optional address.
pub(super) mod optional_address {
    use super::{Deserialize, Deserializer, Error, Serializer, SocketAddr, parse_address};
    use serde::Serialize;

    pub(crate) fn serialize<S: Serializer>(
        address: &Option<SocketAddr>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        address.map(|it| it.to_string()).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SocketAddr>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| parse_address(&text).map_err(D::Error::custom)).transpose()
    }
}

impl JsonSchema for ListenForms {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Listen".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let address = generator.subschema_for::<AddressText>();
        let listener = generator.subschema_for::<ListenerKeys>();
        json_schema!({
            "anyOf": [
                address,
                {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": LISTENERS_MAX,
                    "items": {"anyOf": [address, listener]},
                },
            ],
        })
    }
}

/// Serialization for `#[serde(with = …)]` on an address.
pub(super) mod socket_address {
    use super::{Deserialize, Deserializer, Error, Serializer, SocketAddr, parse_address};

    pub(crate) fn serialize<S: Serializer>(
        address: &SocketAddr,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(address)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<SocketAddr, D::Error> {
        parse_address(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Serialization for `#[serde(with = …)]` on the list of listeners.
pub(super) mod listeners {
    use super::{
        Deserialize, Deserializer, Error, Listener, ListenerKeys, Serializer, parse_address,
    };
    use serde::Serialize;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Forms {
        One(String),
        Many(Vec<Element>),
    }

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Element {
        Address(String),
        Keys(Box<ListenerKeys>),
    }

    impl From<&Listener> for Element {
        fn from(listener: &Listener) -> Self {
            match listener {
                Listener::Address { address, tls: None } => Self::Address(address.to_string()),
                other => Self::Keys(Box::new(other.into())),
            }
        }
    }

    impl TryFrom<Element> for Listener {
        type Error = String;

        fn try_from(element: Element) -> Result<Self, String> {
            match element {
                Element::Address(text) => {
                    parse_address(&text).map(Self::plain).map_err(|error| error.to_string())
                }
                Element::Keys(keys) => (*keys).try_into(),
            }
        }
    }

    pub(crate) fn serialize<S: Serializer>(
        listeners: &[Listener],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match listeners {
            [Listener::Address { address, tls: None }] => serializer.collect_str(address),
            many => many.iter().map(Element::from).collect::<Vec<_>>().serialize(serializer),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Listener>, D::Error> {
        let elements = match Forms::deserialize(deserializer)? {
            Forms::One(text) => vec![Element::Address(text)],
            Forms::Many(elements) => elements,
        };
        elements.into_iter().map(|it| Listener::try_from(it).map_err(D::Error::custom)).collect()
    }
}
