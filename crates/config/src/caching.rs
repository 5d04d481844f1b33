//! Settings of the caches of responses.

use std::collections::BTreeMap;
use std::time::Duration;

use execute::ClaimPath;
use http::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::findings::{Findings, KeyPlaces};
use super::format::{
    DurationOrZeroText, DurationText, HeaderNameText, MemberPathText, ProviderIdText, SizeText,
};
use super::quantity;

/// The caches of what subgraphs say, and the headers that tell clients about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Caching {
    /// Stores responses of subgraphs, and tells clients how long they may use a response (`cache-control`).
    #[schemars(example = true)]
    pub enabled: bool,

    /// The memory of entities and root fields, with the overhead of each. A sixteenth of it is for responses made of
    /// them that are asked for often, in parsed form.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"1GiB")]
    pub memory: usize,

    /// The memory of whole responses to clients, with their compressed copies.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"256MiB")]
    pub response_memory: usize,

    /// A store of `storage_providers` in which routers share entities and root fields, and through which they tell each
    /// other what is stale. By default each router has only its own memory.
    #[schemars(with = "Option<ProviderIdText>", extend("default" = null), example = &"shared")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,

    /// The maximum time for which a request waits if another router is fetching the same. After it, this router fetches
    /// as well. `0s` never waits. Only with `store`.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationOrZeroText", example = &"50ms")]
    pub lock_wait: Duration,

    /// A header of subgraph responses that contains their time to live in seconds. `cache-control` goes before it.
    #[schemars(with = "Option<HeaderNameText>", extend("default" = null), example = &"x-ttl")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_header: Option<String>,

    /// The time for which a response that has expired is served while it is fetched again, unless the subgraph says
    /// otherwise (`stale-while-revalidate`).
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationOrZeroText", example = &"10s")]
    pub stale_while_revalidate: Duration,

    /// The time for which a response that has expired is served if the subgraph fails, unless the subgraph says
    /// otherwise (`stale-if-error`).
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationOrZeroText", example = &"5m")]
    pub stale_if_error: Duration,

    /// The maximum time for which the router remembers that a subgraph does not know an entity, or that a root field is
    /// null. `0s` stores no such response.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationOrZeroText", example = &"5s")]
    pub not_found: Duration,

    /// The part of each time to live that is taken away at random, in percent, so that entries that were stored
    /// together do not expire together. The headers for clients contain the shortened time.
    #[schemars(range(min = 0, max = 50), example = 20)]
    pub jitter: u8,

    /// The claims and headers that tell apart the clients of private responses. Without any, private responses are not
    /// stored.
    pub private_by: PrivateBy,

    /// Sends `age` to clients, and `max-age` from the time of the fetch. By default `max-age` is the time that is left,
    /// which is also right for caches that ignore `age`.
    #[schemars(example = true)]
    pub send_age: bool,

    /// Topics with events that make entries stale, by the name and key of an object or in the form of
    /// `POST /admin/invalidate`. If events may have been lost, everything is stale.
    #[schemars(length(max = 64))]
    pub invalidate: Vec<InvalidationTopic>,

    /// A header of responses to mutations that contains tags, divided by commas. What has one of them is stale before
    /// the client gets the response.
    #[schemars(with = "HeaderNameText", example = &"x-invalidate")]
    pub invalidate_header: String,

    /// Times to live for every subgraph, and by subgraph, type and field.
    pub subgraphs: SubgraphCaches,
}

/// A topic with events that make entries stale.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InvalidationTopic {
    /// The provider of `events.providers`: its kind and id, or only its id if no other broker has it.
    #[schemars(length(min = 1, max = 128), example = &"nats/default")]
    pub provider: String,

    /// The topic: what the broker calls a subject, a channel or a topic.
    #[schemars(length(min = 1, max = 1024), example = &"catalogue.changed")]
    pub topic: String,
}

/// The values that tell apart the clients of private responses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PrivateBy {
    /// Claims of the client's token.
    #[schemars(with = "Vec<MemberPathText>", length(max = 8), example = ["sub"])]
    pub claims: Vec<String>,

    /// Headers of the client's request.
    #[schemars(with = "Vec<HeaderNameText>", length(max = 8), example = ["x-tenant"])]
    pub headers: Vec<String>,
}

/// The caches of subgraphs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SubgraphCaches {
    /// The settings for every subgraph.
    pub all: SubgraphCache,

    /// Other settings for single subgraphs, by the name they have in the supergraph. Keys that are left out keep the
    /// value of `cache.subgraphs.all`.
    pub subgraphs: BTreeMap<String, SubgraphCache>,
}

/// The cache of one subgraph.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SubgraphCache {
    /// Stores the responses of the subgraph. The default is `true`.
    #[schemars(extend("default" = null), example = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,

    /// The time to live of responses that say nothing about it. Without any, they are not stored.
    #[serde(with = "quantity::optional_text", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<DurationText>", extend("default" = null), example = &"30s")]
    pub ttl: Option<Duration>,

    /// The times to live of objects, by the name of their type.
    pub types: BTreeMap<String, TypeCache>,

    /// Forwarded headers that make no difference to the responses of the subgraph, so that clients with different
    /// values share them. Headers that a response names in `vary` always make one.
    #[schemars(
        with = "Option<Vec<HeaderNameText>>",
        extend("default" = null),
        length(max = 64),
        example = ["x-request-id"]
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore_headers: Option<Vec<String>>,
}

/// The times to live of one type.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TypeCache {
    /// The time to live of objects of the type.
    #[serde(with = "quantity::optional_text", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<DurationText>", extend("default" = null), example = &"60s")]
    pub ttl: Option<Duration>,

    /// The times to live of single fields. The shortest time of a request to the subgraph counts.
    #[schemars(with = "BTreeMap<String, DurationText>")]
    pub fields: BTreeMap<String, FieldTtl>,
}

/// The time to live of one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FieldTtl(#[serde(with = "quantity::text")] pub Duration);

impl Default for Caching {
    fn default() -> Self {
        Self {
            enabled: false,
            memory: 256 << 20,
            response_memory: 64 << 20,
            store: None,
            // Longer than most subgraphs take, and short beside what a client waits.
            lock_wait: Duration::from_millis(100),
            ttl_header: None,
            stale_while_revalidate: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            not_found: Duration::from_secs(5),
            // A million clients that got a response in the same second return over a tenth of its time to live.
            jitter: 10,
            private_by: PrivateBy::default(),
            send_age: false,
            invalidate: Vec::new(),
            invalidate_header: "starling-cache-invalidate".to_owned(),
            subgraphs: SubgraphCaches::default(),
        }
    }
}

impl Caching {
    /// Warns of topics that have no effect.
    pub(super) fn check(&self, places: &KeyPlaces, findings: &mut Findings) {
        if !self.enabled && !self.invalidate.is_empty() {
            findings
                .warning("no-effect", "`cache.invalidate` has no effect without `cache.enabled`")
                .at_place(places.get("cache.invalidate"), "not used")
                .help("set `cache.enabled: true`, or remove the topics");
        }
    }

    /// Returns the headers that tell apart the clients of private responses.
    pub fn private_headers(&self) -> Vec<HeaderName> {
        // Each name has been checked, so none is dropped here.
        let names = self.private_by.headers.iter();
        names.filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok()).collect()
    }

    /// Returns the claims that tell apart the clients of private responses.
    pub fn private_claims(&self) -> Vec<ClaimPath> {
        // Each path has been checked, so none is dropped here.
        self.private_by.claims.iter().filter_map(|it| ClaimPath::parse(it)).collect()
    }

    /// True if the responses of a subgraph may be stored.
    pub fn stores(&self, subgraph: &str) -> bool {
        let own = self.subgraphs.subgraphs.get(subgraph).and_then(|it| it.enabled);
        own.or(self.subgraphs.all.enabled).unwrap_or(true)
    }

    /// Returns the forwarded headers that make no difference to the responses of a subgraph.
    pub fn ignored_headers(&self, subgraph: &str) -> &[String] {
        let own = self.subgraphs.subgraphs.get(subgraph).and_then(|it| it.ignore_headers.as_ref());
        own.or(self.subgraphs.all.ignore_headers.as_ref()).map_or(&[], |it| &it[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subgraph_inherits_what_it_does_not_set() {
        let mut caching = Caching::default();
        assert!(caching.stores("reviews") && caching.ignored_headers("reviews").is_empty());
        let names = |names: &[&str]| Some(names.iter().map(|it| (*it).to_owned()).collect());
        caching.subgraphs.all = SubgraphCache {
            enabled: Some(false),
            ignore_headers: names(&["a"]),
            ..Default::default()
        };
        let own = SubgraphCache { enabled: Some(true), ..Default::default() };
        caching.subgraphs.subgraphs.insert("reviews".into(), own);
        assert!(caching.stores("reviews") && !caching.stores("stock"));
        assert_eq!(caching.ignored_headers("reviews"), ["a"]);
    }
}
