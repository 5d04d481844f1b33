//! Where the router listens, what it serves, and what browsers get.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::address::parse_address;
use super::format::{AddressText, FileText, OriginText};

/// Loopback, so that a first try is not reachable by strangers.
pub(super) const LISTEN_DEFAULT: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4000);

/// More listeners than anyone needs; a bound so that a generated file cannot exhaust descriptors.
const LISTENERS_MAX: usize = 64;

/// More cores than machines have.
pub(super) const WORKERS_MAX: u16 = 1024;

/// One place where clients connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// The address. Port 0 means a free one.
    pub address: SocketAddr,
}

/// The admin listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// Address of the admin listener, written as for `listen`.
    #[serde(with = "socket_address")]
    #[schemars(with = "AddressText", example = &"127.0.0.1:8088")]
    #[schemars(extend("x-override" = "--admin-listen"))]
    pub listen: SocketAddr,
}

impl Default for Admin {
    fn default() -> Self {
        Self { listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8088) }
    }
}

/// How many cores serve requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workers {
    /// Every CPU that the process may use (affinity and cgroup quota respected).
    Auto,
    /// This many, from 1 to 1024.
    Count(u16),
}

/// Where the graph comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Supergraph {
    /// The supergraph SDL (join specification). A relative path counts from the folder of the
    /// configuration file. The file is watched: a new version that loads replaces the old one.
    #[schemars(with = "FileText", example = &"graphs/supergraph.graphql")]
    #[schemars(extend("x-override" = "--supergraph"))]
    pub file: PathBuf,
}

impl Default for Supergraph {
    fn default() -> Self {
        Self { file: "supergraph.graphql".into() }
    }
}

/// The page for trying out queries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ide {
    /// Serve the page at `/`. Without it, `/` answers 404.
    #[schemars(example = false)]
    pub enabled: bool,
}

impl Default for Ide {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// Cross-origin resource sharing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cors {
    /// Origins of web pages that may send requests from a browser, such as
    /// `https://app.example.com`; `"*"` stands for every origin. Without any, browsers allow only
    /// pages that the router itself serves. What a browser lets others send nevertheless, WebSockets
    /// and GET requests, is refused with status 403.
    #[schemars(with = "Vec<OriginText>", example = ["https://app.example.com"])]
    pub origins: Vec<String>,
}

impl Serialize for Workers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Count(count) => serializer.serialize_u16(*count),
        }
    }
}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

impl Workers {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        match text.parse() {
            Ok(0) => Err("without workers nothing would be served".into()),
            Ok(count @ 1..=WORKERS_MAX) => Ok(Self::Count(count)),
            Ok(_) => Err("it is more than 1024".into()),
            Err(_) => Err("it is neither `auto` nor a whole number".into()),
        }
    }
}

/// The forms that `listen` may have, for the schema.
pub(super) struct ListenForms;

/// One listener.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the shape for the schema; never built")]
pub(super) struct ListenerKeys {
    /// The address to listen on.
    #[schemars(with = "AddressText", example = &"0.0.0.0:4000")]
    address: SocketAddr,
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

/// For `#[serde(with = …)]` on an address.
pub(super) mod socket_address {
    use super::{Deserialize, Deserializer, Error, Serializer, SocketAddr, parse_address};

    pub(in crate::config) fn serialize<S: Serializer>(
        address: &SocketAddr,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(address)
    }

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<SocketAddr, D::Error> {
        parse_address(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// For `#[serde(with = …)]` on the list of listeners.
pub(super) mod listeners {
    use super::{Deserialize, Deserializer, Error, Listener, Serializer, parse_address};
    use serde::Serialize;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Forms {
        One(String),
        Many(Vec<Element>),
    }

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Element {
        Address(String),
        Keys { address: String },
    }

    pub(in crate::config) fn serialize<S: Serializer>(
        listeners: &[Listener],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match listeners {
            [one] => serializer.collect_str(&one.address),
            many => {
                let texts: Vec<_> =
                    many.iter().map(|listener| listener.address.to_string()).collect();
                texts.serialize(serializer)
            }
        }
    }

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Listener>, D::Error> {
        let texts = match Forms::deserialize(deserializer)? {
            Forms::One(text) => vec![text],
            Forms::Many(elements) => elements
                .into_iter()
                .map(|element| match element {
                    Element::Address(text) | Element::Keys { address: text } => text,
                })
                .collect(),
        };
        texts
            .iter()
            .map(|text| {
                parse_address(text).map(|address| Listener { address }).map_err(D::Error::custom)
            })
            .collect()
    }
}
