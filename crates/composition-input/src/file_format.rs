//! The two forms of the file that names the subgraphs, as their YAML is written: a mapping by name, and a list. The
//! checks of crate `config` follow the JSON Schema of these types.

use std::borrow::Cow;
use std::collections::BTreeMap;

use config::Secret;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

/// The whole file.
#[derive(Deserialize, JsonSchema)]
#[schemars(extend("examples" = ["subgraphs: {products: {schema: {file: products.graphql}}}"]))]
pub(crate) struct CompositionFile {
    /// The version of the form with a list, which is always 1.
    pub(crate) version: Option<String>,
    /// The version of another vendor's composition.
    pub(crate) federation_version: Option<String>,
    pub(crate) subgraphs: SubgraphEntries,
}

/// The subgraphs in either form.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(extend("x-needs-keys" = true))]
pub(crate) enum SubgraphEntries {
    Named(BTreeMap<String, SubgraphEntry>),
    Listed(Vec<ListedSubgraph>),
}

/// A subgraph of the list.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ListedSubgraph {
    #[schemars(extend("examples" = ["products"]))]
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) entry: SubgraphEntry,
}

/// A subgraph without its name. Both forms accept the keys of each other.
#[derive(Deserialize, JsonSchema)]
#[schemars(extend("x-needs-keys" = true))]
pub(crate) struct SubgraphEntry {
    #[schemars(extend("format" = "subgraph-url"))]
    pub(crate) routing_url: Option<String>,
    pub(crate) schema: Option<SchemaEntry>,
    pub(crate) introspection: Option<IntrospectionEntry>,
    pub(crate) subscription: Option<SubscriptionEntry>,
}

/// The source of a schema.
#[derive(Deserialize, JsonSchema)]
#[schemars(extend("x-one-of" = ["file", "subgraph_url", "sdl"]))]
#[schemars(extend("dependentRequired" = {"introspection_headers": ["subgraph_url"]}))]
pub(crate) struct SchemaEntry {
    #[schemars(extend("format" = "file-path"))]
    pub(crate) file: Option<String>,
    #[schemars(extend("format" = "subgraph-url"))]
    pub(crate) subgraph_url: Option<String>,
    pub(crate) sdl: Option<String>,
    #[schemars(with = "BTreeMap<String, HeaderValueText>")]
    #[serde(default)]
    pub(crate) introspection_headers: BTreeMap<String, Secret>,
}

/// The server that is asked for a schema.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct IntrospectionEntry {
    #[schemars(extend("format" = "subgraph-url"))]
    pub(crate) url: Option<String>,
    #[schemars(with = "BTreeMap<String, HeaderValueText>")]
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Secret>,
    #[serde(default)]
    pub(crate) raw: bool,
}

/// The settings of subscriptions.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct SubscriptionEntry {
    #[schemars(extend("format" = "subscription-url"))]
    pub(crate) url: Option<String>,
    #[schemars(extend("enum" = ["ws", "sse", "sse_post", "auto", "graphql_transport_ws", "graphql_ws", "sse_get", "multipart", "callback"]))]
    pub(crate) protocol: Option<String>,
    #[schemars(extend("enum" = ["auto", "graphql-ws", "graphql-transport-ws"]))]
    pub(crate) websocket_subprotocol: Option<String>,
}

/// The value of a header, which is a secret.
struct HeaderValueText;

impl JsonSchema for HeaderValueText {
    fn schema_name() -> Cow<'static, str> {
        "HeaderValueText".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "writeOnly": true, "format": "header-value"})
    }
}
