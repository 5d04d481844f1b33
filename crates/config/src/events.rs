//! Settings of events: the brokers that event subgraphs publish to and subscribe to. The settings of each kind of
//! broker are in a module of their own.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{DurationText, InstanceText, ProviderIdText, SizeText};
use super::kafka::KafkaProvider;
use super::nats::NatsProvider;
use super::quantity;
use super::redis::RedisProvider;

/// The id of the provider that a directive without `providerId` uses.
const PROVIDER_ID_DEFAULT: &str = "default";

/// Brokers and how the router uses them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Events {
    /// Refuses to start while a provider cannot be reached. If `false`, the router starts and keeps trying, and only
    /// the fields of that provider fail.
    #[schemars(example = true)]
    pub require_all: bool,

    /// The maximum payload size of an event, and of a response to a request over a broker. In place of a larger event,
    /// subscribers get an error, and the subscription continues.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"4MiB")]
    pub max_event_size: usize,

    /// The default time limit of a mutation that publishes an event, until the broker has accepted the event, and of a
    /// field that sends a request over a broker, until the response arrives. The directive of the field can set another
    /// one.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"2s")]
    pub publish_timeout: Duration,

    /// The name of this router among the routers that share a broker. It becomes part of the names of the consumers
    /// that brokers store, so it must be unique for each router and stay the same after a restart. By default, the name
    /// of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    // An absent name is not serialized, because no check would accept `null` as a name. Therefore the schema states the
    // default itself.
    #[schemars(
        with = "Option<InstanceText>",
        extend("default" = serde_json::Value::Null),
        example = &"router-1"
    )]
    pub instance: Option<String>,

    /// The brokers, by kind. A directive names a provider by `providerId`: `kind/id`, or the id alone if only one kind
    /// uses it.
    pub providers: Providers,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            require_all: false,
            max_event_size: 1 << 20,
            publish_timeout: Duration::from_secs(5),
            instance: None,
            providers: Providers::default(),
        }
    }
}

/// The brokers, by kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Providers {
    /// Brokers inside this process. One named `default` exists even if it is not listed.
    // The schema has no default here: the provider `default` is added to any list, not replaced by it.
    #[serde(deserialize_with = "with_default_memory")]
    #[schemars(extend("default" = []), length(max = 100))]
    pub memory: Vec<MemoryProvider>,

    /// NATS servers.
    #[schemars(length(max = 100))]
    pub nats: Vec<NatsProvider>,

    /// Kafka clusters, and other servers with its protocol. They need a build with the feature `kafka`.
    #[schemars(length(max = 100))]
    pub kafka: Vec<KafkaProvider>,

    /// Redis servers, and other servers with its protocol (RESP3).
    #[schemars(length(max = 100))]
    pub redis: Vec<RedisProvider>,
}

impl Default for Providers {
    fn default() -> Self {
        Self {
            memory: vec![MemoryProvider::default()],
            nats: Vec::new(),
            kafka: Vec::new(),
            redis: Vec::new(),
        }
    }
}

impl Providers {
    /// True if a provider outside this process is configured. All kinds are named here, so that a new one cannot be
    /// forgotten.
    pub fn has_brokers(&self) -> bool {
        let Self { memory: _, nats, kafka, redis } = self;
        !(nats.is_empty() && kafka.is_empty() && redis.is_empty())
    }
}

/// A broker inside this process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryProvider {
    /// The id by which `providerId` names this provider.
    #[schemars(with = "ProviderIdText", example = &"default")]
    pub id: String,

    /// The number of recent events of each topic that are kept for subscribers that join late.
    #[serde(default = "ring_events_default")]
    #[schemars(range(min = 1, max = 1_000_000), example = 100)]
    pub ring_events: u32,
}

impl Default for MemoryProvider {
    fn default() -> Self {
        Self { id: PROVIDER_ID_DEFAULT.into(), ring_events: ring_events_default() }
    }
}

/// The default number of recent events. A thousand events of 1 KB are 1 MB for each topic: little, and enough to bridge
/// a reconnect.
fn ring_events_default() -> u32 {
    1024
}

fn with_default_memory<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<MemoryProvider>, D::Error> {
    let mut providers = Vec::<MemoryProvider>::deserialize(deserializer)?;
    if providers.iter().all(|provider| provider.id != PROVIDER_ID_DEFAULT) {
        providers.push(MemoryProvider::default());
    }
    Ok(providers)
}
