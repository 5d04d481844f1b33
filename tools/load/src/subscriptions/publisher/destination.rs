//! The destination of events, given as a URL.

use std::net::SocketAddr;

use url::Url;

use crate::subscriptions::target::{KEY, resolve_address};

/// The default port of Starling's admin listener.
const ADMIN_PORT: u16 = 8088;

/// The destination of events. Parsed from `nats://[USER:PASSWORD@]HOST[:PORT]/SUBJECT`,
/// `redis://[USER:PASSWORD@]HOST[:PORT]/CHANNEL`, `kafka://HOST[:PORT]/TOPIC` (the first partition; an event's key is
/// the key of its record), `memory://HOST[:PORT]/TOPIC` (the admin listener of the router, which publishes to its
/// memory provider) or `http://…` (a POST of each event).
#[derive(Debug, Clone)]
pub struct Destination {
    pub(super) kind: DestinationKind,
    pub(super) address: SocketAddr,
}

/// A user name and password.
pub(super) type Credentials = Option<(String, String)>;

#[derive(Debug, Clone)]
pub(super) enum DestinationKind {
    Nats {
        subject: String,
        /// The user and password in the URL, for `CONNECT`.
        user: Credentials,
    },
    Redis {
        channel: String,
        /// The user and password in the URL, for `AUTH`.
        user: Credentials,
    },
    Kafka {
        topic: String,
    },
    Http {
        authority: String,
        path: String,
        /// True if one body may have several events, one per line, which the router's admin listener supports.
        lines: bool,
    },
}

impl std::str::FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "memory" {
            return Err("the memory provider is inside the router; give the router's admin listener, which publishes to it: memory://127.0.0.1:8088/TOPIC".to_owned());
        }
        let url = Url::parse(text).map_err(|error| format!("`{text}` is not a URL: {error}"))?;
        // As written: a subject may have characters that a URL would escape.
        let after = text.split_once("://").map_or("", |(_, after)| after);
        let topic = after.split_once('/').map_or("", |(_, topic)| topic);
        let needs_topic = |what: &str| match topic {
            "" => Err(format!(
                "`{text}` has no {what}: write {}://HOST:PORT/{}",
                url.scheme(),
                what.to_uppercase()
            )),
            topic if topic.contains(char::is_whitespace) => {
                Err(format!("`{text}`: a {what} has no spaces"))
            }
            topic => Ok(topic.to_owned()),
        };
        let user = || {
            let password = url.password().unwrap_or_default().to_owned();
            let is_named = !url.username().is_empty() || !password.is_empty();
            is_named.then(|| (url.username().to_owned(), password))
        };
        let authority = || url[url::Position::BeforeHost..url::Position::AfterPort].to_owned();
        let (kind, port) = match url.scheme() {
            "nats" => {
                (DestinationKind::Nats { subject: needs_topic("subject")?, user: user() }, 4222)
            }
            "redis" => {
                (DestinationKind::Redis { channel: needs_topic("channel")?, user: user() }, 6379)
            }
            "kafka" => {
                let topic = needs_topic("topic")?;
                if topic.contains(KEY) {
                    return Err(format!(
                        "`{text}`: Kafka uses keys instead of many topics; {KEY} is the key of each record"
                    ));
                }
                (DestinationKind::Kafka { topic }, 9092)
            }
            "memory" => {
                let topic = needs_topic("topic")?;
                let query = url::form_urlencoded::Serializer::new(String::new())
                    .append_pair("provider", "memory/default")
                    .append_pair("topic", &topic)
                    .finish()
                    // The placeholder is replaced for each event.
                    .replace("%24K", KEY);
                let path = format!("/admin/publish?{query}");
                (DestinationKind::Http { authority: authority(), path, lines: true }, ADMIN_PORT)
            }
            "http" => {
                let path = url[url::Position::BeforePath..url::Position::AfterQuery].to_owned();
                (DestinationKind::Http { authority: authority(), path, lines: false }, 80)
            }
            _ => {
                return Err(format!(
                    "`{text}`: events are published to nats://, redis://, kafka://, memory:// or http://"
                ));
            }
        };
        Ok(Self { kind, address: resolve_address(&url, port)? })
    }
}

impl Destination {
    /// Returns the broker's address and subject for a floor that receives the same events. `None` if events must be
    /// sent to the floor by HTTP.
    pub fn nats(&self) -> Option<(SocketAddr, &str)> {
        match &self.kind {
            DestinationKind::Nats { subject, .. } => Some((self.address, subject)),
            DestinationKind::Redis { .. }
            | DestinationKind::Kafka { .. }
            | DestinationKind::Http { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_read_and_wrong_ones_explained() {
        let nats = "nats://127.0.0.1:4333/ticks.$K".parse::<Destination>().unwrap();
        assert_eq!(nats.nats(), Some(("127.0.0.1:4333".parse().unwrap(), "ticks.$K")));
        let redis = "redis://:secret@127.0.0.1/a:$K".parse::<Destination>().unwrap();
        assert_eq!(redis.address, "127.0.0.1:6379".parse().unwrap());
        assert!(
            matches!(redis.kind, DestinationKind::Redis { channel, user: Some((user, password)) }
            if channel == "a:$K" && user.is_empty() && password == "secret")
        );
        let memory = "memory://127.0.0.1:1/a.$K b".parse::<Destination>().err();
        assert!(memory.is_some_and(|error| error.contains("spaces")));
        let memory = "memory://127.0.0.1:1/a.$K".parse::<Destination>().unwrap();
        assert!(matches!(memory.kind, DestinationKind::Http { path, lines: true, .. }
            if path == "/admin/publish?provider=memory%2Fdefault&topic=a.$K"));
        for text in [
            "memory",
            "nats://127.0.0.1:4222",
            "kafka://127.0.0.1/a.$K",
            "amqp://127.0.0.1/x",
            "x",
            "https://127.0.0.1/",
        ] {
            assert!(text.parse::<Destination>().is_err(), "{text}");
        }
    }
}
