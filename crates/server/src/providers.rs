//! The configured brokers: created at the start, or for checks, in which none of them connects.

use std::sync::Arc;
use std::time::Duration;

use config::diagnostic::Diagnostic;
use config::{
    Config, KafkaAuthentication, KafkaProvider, NatsAuthentication, RedisAuthentication,
    ScramMechanism, Secret,
};
use events::{
    KafkaSettings, Memory, MemorySettings, Nats, NatsSettings, Provider, Providers, Redis,
    RedisSettings,
};

/// Creates the configured providers for checks: none of them ever connects.
///
/// # Errors
/// The same as for [`providers`], or there is no runtime.
pub(crate) fn idle_providers(config: &Config) -> Result<Providers, Vec<Diagnostic>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        vec![Diagnostic::error("internal", format!("no runtime for checking providers: {error}"))]
    })?;
    // Tasks are spawned here and never run, because this runtime is never driven.
    let _entered = runtime.enter();
    providers(config)
}

/// Creates the configured providers; `memory/default` is always among them.
///
/// # Errors
/// Settings that no provider can use.
pub(crate) fn providers(config: &Config) -> Result<Providers, Vec<Diagnostic>> {
    let mut list: Vec<Arc<dyn Provider>> = Vec::new();
    let mut problems = Vec::new();
    let providers = &config.events.providers;
    for memory in &providers.memory {
        let ring_events = memory.ring_events as usize;
        let settings = MemorySettings { ring_events, ..MemorySettings::default() };
        list.push(Arc::new(Memory::new(&memory.id, settings)));
    }
    for nats in &providers.nats {
        let settings = NatsSettings {
            authentication: nats.authentication.as_ref().map(
                |authentication| match authentication {
                    NatsAuthentication::Token(token) => {
                        events::NatsAuthentication::Token(token.expose().to_owned())
                    }
                    NatsAuthentication::UserInfo(user) => {
                        events::NatsAuthentication::UserPassword {
                            user: user.username.clone(),
                            password: user.password.expose().to_owned(),
                        }
                    }
                    NatsAuthentication::Nkey(seed) => {
                        events::NatsAuthentication::Nkey(seed.expose().to_owned())
                    }
                    NatsAuthentication::CredentialsFile(path) => {
                        events::NatsAuthentication::CredentialsFile(path.clone())
                    }
                },
            ),
            tls: nats.tls.broker_settings(),
            publish_ack: nats.jetstream.publish_ack,
            instance: config.events.instance.as_deref().map(Into::into),
            retry: events::Retry { initial: nats.retry.initial, max: nats.retry.max },
            idle: NatsSettings::IDLE_DEFAULT,
            id: nats.id.as_str().into(),
            url: nats.url.clone(),
            queue_events: MemorySettings::default().queue_events,
        };
        match Nats::start(settings) {
            Ok(provider) => list.push(Arc::new(provider)),
            Err(error) => problems.push(Diagnostic::error(
                "events",
                format!("events.providers.nats `{}`: {error}", nats.id),
            )),
        }
    }
    for kafka in &providers.kafka {
        match events::start_kafka(kafka_settings(kafka, config.events.publish_timeout)) {
            Ok(provider) => list.push(provider),
            Err(error) => problems.push(Diagnostic::error(
                "events",
                format!("events.providers.kafka `{}`: {error}", kafka.id),
            )),
        }
    }
    for redis in &providers.redis {
        let tls = match redis.tls.broker_settings().map(|tls| tls.client()).transpose() {
            Ok(tls) => tls,
            Err(error) => {
                problems.push(Diagnostic::error(
                    "events",
                    format!("events.providers.redis `{}`: tls: {error}", redis.id),
                ));
                continue;
            }
        };
        let settings = RedisSettings {
            tls,
            authentication: redis.authentication.as_ref().map(redis_authentication),
            cluster: redis.cluster_enabled,
            sharded: redis.sharded_channels,
            sentinel: redis.sentinel.as_ref().map(|it| events::RedisSentinel {
                master: it.master.as_str().into(),
                authentication: it.authentication.as_ref().map(redis_authentication),
            }),
            retry: events::Retry { initial: redis.retry.initial, max: redis.retry.max },
            stream_entries_max: redis.streams.max_len,
            ..RedisSettings::new(&redis.id, redis.urls.clone())
        };
        match Redis::start(settings) {
            Ok(provider) => list.push(Arc::new(provider)),
            Err(error) => problems.push(Diagnostic::error(
                "events",
                format!("events.providers.redis `{}`: {error}", redis.id),
            )),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    Providers::new(list).map_err(|error| vec![Diagnostic::error("events", error.to_string())])
}

fn redis_authentication(given: &RedisAuthentication) -> events::RedisAuthentication {
    events::RedisAuthentication {
        user: given.username.clone(),
        password: given.password.expose().to_owned(),
    }
}

fn kafka_settings(kafka: &KafkaProvider, publish_timeout: Duration) -> KafkaSettings {
    let user = |username: &str, password: &Secret| events::KafkaUser {
        username: username.into(),
        password: password.expose().into(),
    };
    let authentication = kafka.authentication.as_ref().map(|authentication| match authentication {
        KafkaAuthentication::SaslPlain(it) => {
            events::KafkaAuthentication::Plain(user(&it.username, &it.password))
        }
        KafkaAuthentication::SaslScram(it) => match it.mechanism {
            ScramMechanism::Sha256 => {
                events::KafkaAuthentication::ScramSha256(user(&it.username, &it.password))
            }
            ScramMechanism::Sha512 => {
                events::KafkaAuthentication::ScramSha512(user(&it.username, &it.password))
            }
        },
        KafkaAuthentication::OauthToken(token) => {
            events::KafkaAuthentication::Token(token.expose().into())
        }
        KafkaAuthentication::OauthTokenFile(path) => {
            events::KafkaAuthentication::TokenFile(path.clone())
        }
    });
    let tls = kafka.tls.as_ref().filter(|tls| tls.enabled);
    KafkaSettings {
        id: kafka.id.as_str().into(),
        brokers: kafka.brokers.clone(),
        authentication,
        tls: tls.map(|tls| events::BrokerTls {
            ca: tls.files.ca.clone(),
            certificate: tls.files.certificate.clone(),
            key: tls.files.key.clone(),
        }),
        retry: events::Retry { initial: kafka.retry.initial, max: kafka.retry.max },
        metadata_refresh: kafka.metadata_refresh,
        fetch: events::KafkaFetch {
            wait_max: kafka.fetch.max_wait,
            response_bytes: kafka.fetch.max_bytes,
            queue_bytes: kafka.fetch.queue_bytes,
            readers: kafka.fetch.readers,
        },
        publish_timeout,
        queue_events: MemorySettings::default().queue_events,
    }
}
