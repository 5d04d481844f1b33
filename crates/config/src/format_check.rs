//! Checks of scalar values against their [`Format`], with the reason for each mistake.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use upstream::belongs_to_connection;

use super::address::{AddressError, parse_address};
use super::complaint::Complaint;
use super::cors::OriginPattern;
use super::disclosure::MessagePattern;
use super::expression;
use super::format::Format;
use super::headers::HeaderPattern;
use super::hedge::HedgeDelay;
use super::listen::parse_mode;
use super::memory_limit::MemoryLimit;
use super::override_labels::LabelSetting;
use super::quantity::Quantity;
use super::threads::{ReactorCount, WorkerCount};
use super::traces::SampleRatio;

/// The maximum length of a text. Longer ids, names and paths are mistakes.
const TEXT_BYTES_MAX: usize = 4096;

/// The maximum length of a socket's path. The system allows 107 bytes on Linux and 103 elsewhere (`sun_path`),
/// including the folder.
const SOCKET_PATH_BYTES_MAX: usize = 100;

/// The maximum length of the name of a rate limit, which is part of headers, and of the name of a graph, which is part
/// of metrics.
const SHORT_NAME_BYTES_MAX: usize = 64;

/// The maximum length of an attribute of the router in traces. Collectors commonly cut longer ones.
const RESOURCE_VALUE_BYTES_MAX: usize = 256;

/// 128 random bits, the length of the signature.
const CURSOR_KEY_BYTES_MIN: usize = 16;

impl Format {
    /// Checks a text. A text that passes can be deserialized.
    pub(super) fn check(self, text: &str) -> Result<(), Complaint> {
        // This bounds the formats without a length limit of their own; all others are short anyway.
        if text.len() > TEXT_BYTES_MAX {
            return Err("it is longer than 4096 bytes".into());
        }
        if let Some((scope, expected)) = self.expression() {
            return expression::check(text, scope, expected);
        }
        match self {
            Self::Duration => match Duration::parse(text)? {
                zero if zero.is_zero() => Err("it must be longer than zero".into()),
                _ => Ok(()),
            },
            Self::DurationOrZero => Ok(Duration::parse(text).map(drop)?),
            Self::HedgeDelay => Ok(HedgeDelay::parse(text).map(drop)?),
            Self::Size => match usize::parse(text)? {
                0 => Err("it must be more than zero".into()),
                _ => Ok(()),
            },
            Self::Address => check_address(text),
            Self::Workers => Ok(WorkerCount::parse(text).map(drop)?),
            Self::MemoryLimit => Ok(MemoryLimit::parse(text).map(drop)?),
            Self::Reactors => Ok(ReactorCount::parse(text).map(drop)?),
            Self::LabelSetting => Ok(LabelSetting::parse(text).map(drop)?),
            Self::Ratio => Ok(SampleRatio::parse(text).map(drop)?),
            Self::ResourceValue => check_resource_value(text),
            Self::Path => check_path(text),
            Self::SubgraphUrl | Self::SubscriptionUrl if text.starts_with("unix:") => {
                check_socket(text)
            }
            Self::SubgraphUrl => check_url(text, &["http", "https"]),
            Self::SubscriptionUrl => check_url(text, &["ws", "wss", "http", "https"]),
            Self::CallbackUrl if text.contains('?') => {
                Err("it has a query (`?`), and the id of the subscription comes last".into())
            }
            Self::CallbackUrl => check_url(text, &["http", "https"]),
            Self::HttpUrl => check_url(text, &["http", "https"]),
            Self::MemberPath if execute::ClaimPath::parse(text).is_none() => {
                Err("it has an empty name".into())
            }
            Self::Scheme if !text.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-') => {
                Err("it is more than one word".into())
            }
            Self::NatsUrl => check_nats_urls(text),
            Self::KafkaBroker => check_kafka_broker(text),
            Self::RedisUrl => check_redis_url(text),
            Self::HeaderName => check_header_name(text),
            Self::PageHeader => HeaderName::try_from(text)
                .map(drop)
                .map_err(|_| "it contains characters that a header name cannot have".into()),
            // A cookie's name has the characters of a header's name (RFC 6265, section 4.1.1).
            Self::CookieName => match HeaderName::from_bytes(text.as_bytes()) {
                Ok(_) => Ok(()),
                Err(_) => Err("it contains characters that a cookie cannot have".into()),
            },
            Self::HeaderPattern if text.is_empty() => Err("it is empty".into()),
            Self::HeaderPattern => Ok(HeaderPattern::new(text).map(drop)?),
            Self::HeaderValue | Self::HeaderDefault => match HeaderValue::try_from(text) {
                Ok(value) if value.to_str().is_ok() => Ok(()),
                _ => Err("it contains characters that a header cannot carry".into()),
            },
            Self::ProviderId => check_provider_id(text),
            Self::RateLimitName | Self::GraphName if text.contains('/') => Err("it contains `/`".into()),
            Self::RateLimitName | Self::GraphName if text.len() > SHORT_NAME_BYTES_MAX => {
                Err("it is longer than 64 bytes".into())
            }
            Self::RateLimitName | Self::GraphName => check_provider_id(text),
            Self::StoreNamespace if text.contains('/') => Err("it contains `/`".into()),
            Self::StoreNamespace => check_provider_id(text),
            Self::Instance if text.contains('/') => Err("it contains `/`".into()),
            Self::Instance => check_provider_id(text),
            Self::HostName => check_host_name(text),
            Self::Origin => check_origin(text),
            Self::OriginPattern if text.is_empty() => Err("it is empty".into()),
            Self::OriginPattern => Ok(OriginPattern::new(text).map(drop)?),
            Self::MessagePattern if text.is_empty() => Err("it is empty".into()),
            Self::MessagePattern => Ok(MessagePattern::new(text).map(drop)?),
            Self::File | Self::SocketPath | Self::UserName | Self::Secret | Self::Issuer
                if text.is_empty() =>
            {
                Err("it is empty".into())
            }
            Self::LogField => check_log_field(text),
            Self::RegoRule => check_rego_rule(text),
            Self::CursorKey if text.len() < CURSOR_KEY_BYTES_MIN => {
                Err("it is shorter than 16 bytes".into())
            }
            Self::SocketPath if text.len() > SOCKET_PATH_BYTES_MAX => {
                Err("the system allows about 100 bytes".into())
            }
            Self::SocketPath => Ok(()),
            Self::FileMode => Ok(parse_mode(text).map(drop)?),
            Self::File
            | Self::UserName
            | Self::Secret
            | Self::CursorKey
            | Self::Issuer
            | Self::MemberPath
            | Self::Scheme
            // Checked above.
            | Self::RequestCondition
            | Self::HeaderExpression
            | Self::ResponseExpression
            | Self::LimitKey
            | Self::RequestKey
            | Self::LimitCondition
            | Self::OperationCondition
            | Self::LogCondition
            | Self::LogExpression => Ok(()),
        }
    }
}

/// Returns a comparable number for durations (milliseconds) and sizes (bytes).
pub(super) fn quantity(format: Format, text: &str) -> Option<u64> {
    match format {
        Format::Duration | Format::DurationOrZero => {
            Duration::parse(text).ok().and_then(|value| u64::try_from(value.as_millis()).ok())
        }
        Format::Size => usize::parse(text).ok().and_then(|value| u64::try_from(value).ok()),
        _ => None,
    }
}

/// Prints such a number as a duration or a size.
pub(super) fn print_quantity(format: Format, quantity: u64) -> String {
    match format {
        Format::Duration | Format::DurationOrZero => Duration::from_millis(quantity).print(),
        _ => usize::try_from(quantity).unwrap_or(usize::MAX).print(),
    }
}

fn check_address(text: &str) -> Result<(), Complaint> {
    parse_address(text).map(drop).map_err(|error| Complaint {
        reason: error.to_string().into(),
        part: None,
        instead: match error {
            AddressError::NoHost => {
                let port = text.trim_start_matches(':');
                Some(format!(
                    "write `127.0.0.1:{port}` for this machine only, or `0.0.0.0:{port}` for all \
                     interfaces"
                ))
            }
            AddressError::NoPort => Some(format!("write `{text}:4000`")),
            AddressError::BadHost => {
                Some("write the IP address of an interface; `0.0.0.0` means all of them".into())
            }
            _ => None,
        },
    })
}

/// The maximum length of the name of a field in a log.
const LOG_FIELD_BYTES_MAX: usize = 64;

fn check_log_field(text: &str) -> Result<(), Complaint> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match text.chars().find(|c| !is_allowed(*c)) {
        Some(c) => Err(format!("the character `{c}` is not allowed").into()),
        None if text.is_empty() => Err("it is empty".into()),
        None if text.len() > LOG_FIELD_BYTES_MAX => Err("it is longer than 64 bytes".into()),
        None => Ok(()),
    }
}

fn check_path(text: &str) -> Result<(), Complaint> {
    if !text.starts_with('/') {
        return Err("it does not begin with `/`".into());
    }
    let wrong = |c: char| !c.is_ascii_alphanumeric() && !"/-._~".contains(c);
    if let Some(c) = text.chars().find(|&c| wrong(c)) {
        return Err(format!("the character `{c}` is not allowed").into());
    }
    if text.contains("//") {
        return Err("it contains `//`".into());
    }
    Ok(())
}

fn check_nats_urls(text: &str) -> Result<(), Complaint> {
    // Credentials can be moved out of a single URL only.
    if text.contains(',') && text.contains('@') {
        return Err("credentials of several servers belong in `authentication`".into());
    }
    text.split(',').try_for_each(|url| check_url(url.trim(), &["nats", "tls"]))
}

fn check_resource_value(text: &str) -> Result<(), Complaint> {
    if text.is_empty() {
        return Err("it is empty".into());
    }
    if text.len() > RESOURCE_VALUE_BYTES_MAX {
        return Err("it is longer than 256 bytes".into());
    }
    if text.chars().any(char::is_control) {
        return Err("it contains control characters".into());
    }
    Ok(())
}

fn check_url(text: &str, schemes: &[&str]) -> Result<(), Complaint> {
    let expected = || {
        let quoted: Vec<_> = schemes.iter().map(|scheme| format!("`{scheme}://`")).collect();
        match quoted.split_last() {
            Some((last, first @ [_, ..])) => format!("{} or {last}", first.join(", ")),
            _ => quoted.concat(),
        }
    };
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(format!("it does not begin with {}", expected()).into());
    };
    if !schemes.contains(&scheme) {
        return Err(format!("the scheme `{scheme}` is not {}", expected()).into());
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_nats = schemes.contains(&"nats");
    // URLs of brokers commonly contain credentials; `events` moves them out of the URL.
    if authority.contains('@') && !is_nats && !schemes.contains(&"redis") {
        return Err(Complaint {
            reason: "it contains credentials, which would reach logs".into(),
            part: None,
            instead: Some(
                "remove them, and send a header instead; for requests to subgraphs, the router's \
                 configuration has `headers.subgraphs.<name>.request`"
                    .into(),
            ),
        });
    }
    if text.contains('#') {
        return Err("it contains a fragment (`#`)".into());
    }
    let host_and_port = authority.rsplit('@').next().unwrap_or_default();
    let (host, port) = match host_and_port.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (host_and_port, None),
    };
    if host.is_empty() {
        return Err("the host is missing".into());
    }
    if port.is_some_and(|port| !port.parse::<u16>().is_ok_and(|port| port > 0)) {
        return Err("the port is not a number from 1 to 65535".into());
    }
    let uri: Uri = text.parse().map_err(|_| "it is not a valid URL")?;
    if is_nats && !matches!(uri.path(), "" | "/") {
        return Err("it has a path".into());
    }
    Ok(())
}

fn check_socket(text: &str) -> Result<(), Complaint> {
    let rest = text.strip_prefix("unix://").ok_or("it does not begin with `unix://`")?;
    let (socket, query) = rest.split_once('?').unwrap_or((rest, "path=/"));
    if !socket.starts_with('/') || socket.ends_with('/') {
        return Err("the absolute path of the socket is missing after `unix://`".into());
    }
    let path = query.strip_prefix("path=").ok_or("what follows `?` is not `path=`")?;
    if !path.starts_with('/') || path.parse::<Uri>().is_err() {
        return Err("`path` is not the path of a URL".into());
    }
    Ok(())
}

fn check_kafka_broker(text: &str) -> Result<(), Complaint> {
    if let Some((scheme, rest)) = text.split_once("://") {
        return Err(Complaint {
            reason: format!("it begins with `{scheme}://`").into(),
            part: None,
            instead: Some(format!("write `{rest}`, and `tls: {{}}` beside `brokers` for TLS")),
        });
    }
    if text.contains(',') {
        return Err("it has a comma: each broker is an entry of the list".into());
    }
    if events::is_kafka_broker(text) { Ok(()) } else { Err("it is not a host with a port".into()) }
}

fn check_redis_url(text: &str) -> Result<(), Complaint> {
    if let Some(path) = text.strip_prefix("unix://") {
        return match path {
            _ if !path.starts_with('/') || path.ends_with('/') => {
                Err("the absolute path of the socket is missing after `unix://`".into())
            }
            _ if path.contains(['?', '#']) => Err(Complaint {
                reason: "a socket URL must end after the path".into(),
                part: None,
                instead: Some("write user and password under `authentication`".into()),
            }),
            _ => Ok(()),
        };
    }
    check_url(text, &["redis", "rediss"])?;
    let authority = text.split_once("://").map_or("", |(_, rest)| rest);
    let (authority, path) = authority.split_once('/').unwrap_or((authority, ""));
    if text.contains('?') {
        Err("it has a query (`?`)".into())
    } else if !path.bytes().all(|byte| byte.is_ascii_digit()) {
        Err("its path is not the number of a database".into())
    } else if authority.rsplit_once('@').is_some_and(|(credentials, _)| !credentials.contains(':'))
    {
        Err(Complaint {
            reason: "it has a user without a password".into(),
            part: None,
            instead: Some("write `redis://USER:PASSWORD@HOST`, or `redis://:PASSWORD@HOST`".into()),
        })
    } else {
        Ok(())
    }
}

fn check_header_name(text: &str) -> Result<(), Complaint> {
    if text.is_empty() {
        return Err("it is empty".into());
    }
    let Ok(name) = HeaderName::try_from(text) else {
        return Err("it contains characters that a header name cannot have".into());
    };
    // A rule for such a header could only break messages.
    if belongs_to_connection(&name) {
        return Err(Complaint {
            reason: "this header belongs to a single connection or body".into(),
            part: None,
            instead: Some("leave it out: the router sets it itself where it is needed".into()),
        });
    }
    Ok(())
}

fn check_provider_id(text: &str) -> Result<(), Complaint> {
    if text.is_empty() {
        return Err("it is empty".into());
    }
    let wrong = |c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c);
    match text.chars().find(|&c| wrong(c)) {
        Some('/') => Err("`/` separates the kind from the id and cannot be part of it".into()),
        Some(c) => Err(format!("the character `{c}` is not allowed").into()),
        None => Ok(()),
    }
}

/// Checks the path of a Rego rule: `data`, the names of the package, and the name of the rule.
fn check_rego_rule(text: &str) -> Result<(), Complaint> {
    let mut names = text.split('.');
    if names.next() != Some("data") {
        return Err("it does not begin with `data.`".into());
    }
    let mut count = 0;
    for name in names {
        let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
        let is_name = name.starts_with(is_start)
            && name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_');
        if !is_name {
            return Err(format!("`{name}` is not a name in Rego").into());
        }
        count += 1;
    }
    if count < 2 {
        return Err("it names no rule of a package".into());
    }
    Ok(())
}

/// Checks a host name as browsers and Prometheus send it in `host`, without the port.
fn check_host_name(text: &str) -> Result<(), Complaint> {
    let wrong = |c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c);
    match text.chars().find(|&c| wrong(c)) {
        _ if text.is_empty() => Err("it is empty".into()),
        _ if text.ends_with('.') => Err("it ends with `.`".into()),
        Some(':') => Err("`:` separates a host from a port, and ports are not compared".into()),
        Some(c) => Err(format!("the character `{c}` is not allowed").into()),
        None => Ok(()),
    }
}

fn check_origin(text: &str) -> Result<(), Complaint> {
    if matches!(text, "*" | "null") {
        return match text {
            "*" => Ok(()),
            _ => Err("every sandboxed page and local file claims the origin `null`".into()),
        };
    }
    let Some((scheme @ ("http" | "https"), host)) = text.split_once("://") else {
        return Err("it does not begin with `https://` or `http://`".into());
    };
    if let Some((host, _)) = host.split_once('/') {
        return Err(Complaint {
            reason: "an origin has no path".into(),
            part: None,
            instead: Some(format!("write `{scheme}://{host}`")),
        });
    }
    if let Some((before, domain)) = host.split_once('*') {
        let domain = domain.strip_prefix('.').filter(|it| before.is_empty() && !it.contains('*'));
        let Some(domain) = domain else {
            return Err(
                "`*` stands for whole subdomains: it comes first, and a point follows".into()
            );
        };
        let name = domain.split(':').next().unwrap_or_default();
        if !name.contains('.') && name != "localhost" {
            return Err("it matches every host of a top-level domain".into());
        }
        return check_origin(&format!("{scheme}://{domain}"));
    }
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        let host = host.to_ascii_lowercase();
        return Err(Complaint {
            reason: "browsers send hosts in lower case".into(),
            part: None,
            instead: Some(format!("write `{scheme}://{host}`")),
        });
    }
    check_url(text, &["http", "https"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(format: Format, text: &str) -> String {
        format.check(text).map_or_else(|complaint| complaint.reason.into(), |()| "fine".to_owned())
    }

    #[test]
    fn urls_of_subgraphs_have_scheme_host_and_no_credentials() {
        for (text, expected) in [
            ("http://localhost:4001/graphql", "fine"),
            ("https://[::1]/graphql?x=1", "fine"),
            ("http://[::1]:4001", "fine"),
            ("localhost:4001", "it does not begin with `http://` or `https://`"),
            ("ftp://host/", "the scheme `ftp` is not `http://` or `https://`"),
            ("http:///graphql", "the host is missing"),
            ("http://host:port/", "the port is not a number from 1 to 65535"),
            ("http://host:/", "the port is not a number from 1 to 65535"),
            ("http://host:99999/", "the port is not a number from 1 to 65535"),
            ("http://me:hunter2@host/", "it contains credentials, which would reach logs"),
            ("http://host/#part", "it contains a fragment (`#`)"),
            ("http://ho st/", "it is not a valid URL"),
            ("unix:///run/reviews.sock?path=/graphql", "fine"),
            ("unix:///run/reviews.sock", "fine"),
            ("unix:/run/reviews.sock", "it does not begin with `unix://`"),
            ("unix://reviews.sock", "the absolute path of the socket is missing after `unix://`"),
            ("unix:///a.sock?x=1", "what follows `?` is not `path=`"),
            ("unix:///a.sock?path=graphql", "`path` is not the path of a URL"),
        ] {
            assert_eq!(reason(Format::SubgraphUrl, text), expected, "{text}");
        }
    }

    #[test]
    fn urls_of_subscriptions_may_be_those_of_websockets() {
        let not_known = "the scheme `sse` is not `ws://`, `wss://`, `http://` or `https://`";
        for (text, expected) in [
            ("ws://reviews.internal:4001/subscriptions", "fine"),
            ("wss://reviews/", "fine"),
            ("http://reviews/graphql", "fine"),
            ("https://reviews/graphql?x=1", "fine"),
            ("unix:///run/reviews.sock?path=/graphql", "fine"),
            ("sse://reviews/", not_known),
            ("wss://me:hunter2@host/", "it contains credentials, which would reach logs"),
            ("ws:///graphql", "the host is missing"),
        ] {
            assert_eq!(reason(Format::SubscriptionUrl, text), expected, "{text}");
        }
        let with_query = "it has a query (`?`), and the id of the subscription comes last";
        for (text, expected) in [
            ("https://router.internal/callback", "fine"),
            ("http://router.internal/?a=b", with_query),
            ("ws://router.internal/", "the scheme `ws` is not `http://` or `https://`"),
        ] {
            assert_eq!(reason(Format::CallbackUrl, text), expected, "{text}");
        }
    }

    #[test]
    fn urls_of_nats_name_a_server_only() {
        for (text, expected) in [
            ("nats://127.0.0.1:4222", "fine"),
            ("tls://nats.internal", "fine"),
            ("127.0.0.1:4222", "it does not begin with `nats://` or `tls://`"),
            ("nats://host/path", "it has a path"),
            ("nats://user:p%40ss@host:4222", "fine"),
            ("nats://user@", "the host is missing"),
            ("nats://a:4222, tls://b", "fine"),
            ("nats://a,b", "it does not begin with `nats://` or `tls://`"),
            ("nats://a,", "it does not begin with `nats://` or `tls://`"),
            ("nats://me:x@a,nats://b", "credentials of several servers belong in `authentication`"),
        ] {
            assert_eq!(reason(Format::NatsUrl, text), expected, "{text}");
        }
    }

    #[test]
    fn kafka_brokers_are_hosts_with_ports() {
        for (text, expected) in [
            ("kafka.internal:9092", "fine"),
            ("[::1]:9092", "fine"),
            ("kafka.internal", "it is not a host with a port"),
            ("kafka://h:9092", "it begins with `kafka://`"),
            ("a:1,b:2", "it has a comma: each broker is an entry of the list"),
        ] {
            assert_eq!(reason(Format::KafkaBroker, text), expected, "{text}");
        }
    }

    #[test]
    fn urls_of_redis_name_a_server_or_a_socket() {
        let socket_missing = "the absolute path of the socket is missing after `unix://`";
        for (text, expected) in [
            ("redis://127.0.0.1:6379", "fine"),
            ("rediss://redis.internal", "fine"),
            ("redis://[::1]:7000/0", "fine"),
            ("redis://user:p%40ss@host:6379", "fine"),
            ("redis://:hunter2@host", "fine"),
            ("unix:///run/redis.sock", "fine"),
            ("redis.internal:6379", "it does not begin with `redis://` or `rediss://`"),
            ("redis://host/name", "its path is not the number of a database"),
            ("redis://host?protocol=3", "it has a query (`?`)"),
            ("redis://hunter2@host", "it has a user without a password"),
            ("unix://run/redis.sock", socket_missing),
            ("unix:///a?pass=hunter2", "a socket URL must end after the path"),
        ] {
            assert_eq!(reason(Format::RedisUrl, text), expected, "{text}");
        }
    }

    #[test]
    fn origins_have_the_form_that_browsers_send() {
        for (text, expected) in [
            ("*", "fine"),
            ("https://app.example.com", "fine"),
            ("http://localhost:3000", "fine"),
            ("null", "every sandboxed page and local file claims the origin `null`"),
            ("app.example.com", "it does not begin with `https://` or `http://`"),
            ("https://app.example.com/", "an origin has no path"),
            ("https://App.example.com", "browsers send hosts in lower case"),
            ("https://*.example.com:8443", "fine"),
            ("http://*.localhost:3000", "fine"),
            ("https://*.com", "it matches every host of a top-level domain"),
            (
                "https://*example.com",
                "`*` stands for whole subdomains: it comes first, and a point follows",
            ),
        ] {
            assert_eq!(reason(Format::Origin, text), expected, "{text}");
        }
    }

    #[test]
    fn paths_ids_and_names_refuse_characters_with_a_meaning_of_their_own() {
        for (format, text, expected) in [
            (Format::Path, "/graphql", "fine"),
            (Format::Path, "graphql", "it does not begin with `/`"),
            (Format::Path, "/a?b", "the character `?` is not allowed"),
            (Format::Path, "//a", "it contains `//`"),
            (Format::ProviderId, "orders-eu", "fine"),
            (Format::ProviderId, "", "it is empty"),
            (
                Format::ProviderId,
                "nats/default",
                "`/` separates the kind from the id and cannot be part of it",
            ),
            (Format::HeaderName, "X-Api-Key", "fine"),
            (Format::HeaderName, "x api", "it contains characters that a header name cannot have"),
            (Format::HeaderName, "Host", "this header belongs to a single connection or body"),
            (Format::HeaderValue, "a b", "fine"),
            (Format::HeaderValue, "a\nb", "it contains characters that a header cannot carry"),
            (Format::HeaderValue, "ä", "it contains characters that a header cannot carry"),
        ] {
            assert_eq!(reason(format, text), expected, "{text}");
        }
    }
}
