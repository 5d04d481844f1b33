//! Where events go, as a URL says it.

use std::net::SocketAddr;

use url::Url;

use crate::subscriptions::target::{KEY, address_of};

/// Where Starling's admin listener is, unless the configuration says otherwise.
const ADMIN_PORT: u16 = 8088;

/// Where events go. Read from `nats://[USER:PASSWORD@]HOST[:PORT]/SUBJECT`, `redis://[USER:PASSWORD@]HOST[:PORT]/CHANNEL`,
/// `kafka://HOST[:PORT]/TOPIC` (the first partition; an event's key is that of its record),
/// `memory://HOST[:PORT]/TOPIC` (the admin listener of the router, which publishes at its memory provider) or `http://…` (a
/// POST of each event).
#[derive(Debug, Clone)]
pub struct Destination {
    pub(super) kind: Kind,
    pub(super) address: SocketAddr,
}

/// User name and password.
pub(super) type User = Option<(String, String)>;

#[derive(Debug, Clone)]
pub(super) enum Kind {
    Nats {
        subject: String,
        /// What stands before the host, for `CONNECT`.
        user: User,
    },
    Redis {
        channel: String,
        /// The same, for `AUTH`.
        user: User,
    },
    Kafka {
        topic: String,
    },
    Http {
        authority: String,
        path: String,
        /// Whether one body may have several events, a line for each: our own admin listener takes that.
        lines: bool,
    },
}

impl std::str::FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "memory" {
            return Err("`memory` lives inside the router; name its admin listener, which publishes there: memory://127.0.0.1:8088/TOPIC".to_owned());
        }
        let url = Url::parse(text).map_err(|error| format!("`{text}` is not a URL: {error}"))?;
        // As it was written: a subject may have characters that a URL would escape.
        let after = text.split_once("://").map_or("", |(_, after)| after);
        let topic = after.split_once('/').map_or("", |(_, topic)| topic);
        let needs_topic = |what: &str| match topic {
            "" => Err(format!(
                "`{text}` names no {what}: write {}://HOST:PORT/{}",
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
            "nats" => (Kind::Nats { subject: needs_topic("subject")?, user: user() }, 4222),
            "redis" => (Kind::Redis { channel: needs_topic("channel")?, user: user() }, 6379),
            "kafka" => {
                let topic = needs_topic("topic")?;
                if topic.contains(KEY) {
                    return Err(format!(
                        "`{text}`: Kafka has keys in place of many topics; {KEY} is the key of each record"
                    ));
                }
                (Kind::Kafka { topic }, 9092)
            }
            "memory" => {
                let topic = needs_topic("topic")?;
                let query = url::form_urlencoded::Serializer::new(String::new())
                    .append_pair("provider", "memory/default")
                    .append_pair("topic", &topic)
                    .finish()
                    // Replaced for each event.
                    .replace("%24K", KEY);
                let path = format!("/admin/publish?{query}");
                (Kind::Http { authority: authority(), path, lines: true }, ADMIN_PORT)
            }
            "http" => {
                let path = url[url::Position::BeforePath..url::Position::AfterQuery].to_owned();
                (Kind::Http { authority: authority(), path, lines: false }, 80)
            }
            _ => {
                return Err(format!(
                    "`{text}`: events are published by nats://, redis://, kafka://, memory:// or http://"
                ));
            }
        };
        Ok(Self { kind, address: address_of(&url, port)? })
    }
}

impl Destination {
    /// Where a floor hears the same events: the broker's address and subject. Nothing where it has to be told by HTTP.
    pub fn nats(&self) -> Option<(SocketAddr, &str)> {
        match &self.kind {
            Kind::Nats { subject, .. } => Some((self.address, subject)),
            Kind::Redis { .. } | Kind::Kafka { .. } | Kind::Http { .. } => None,
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
        assert!(matches!(redis.kind, Kind::Redis { channel, user: Some((user, password)) }
            if channel == "a:$K" && user.is_empty() && password == "secret"));
        let memory = "memory://127.0.0.1:1/a.$K b".parse::<Destination>().err();
        assert!(memory.is_some_and(|error| error.contains("spaces")));
        let memory = "memory://127.0.0.1:1/a.$K".parse::<Destination>().unwrap();
        assert!(matches!(memory.kind, Kind::Http { path, lines: true, .. }
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
