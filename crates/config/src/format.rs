//! Formats of scalar values: the name of each, and how to write one. `format_check` checks texts against them.
//!
//! A [`Format`] is the `format` of a value in the JSON Schema. The reference page takes its words from here, and fields
//! of [`super::Config`] refer to the marker types (`DurationText` and so on) by `#[schemars(with = …)]`.

use std::borrow::Cow;

use expressions::{Expected, Scope};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::quantity::SIZE_MAX;
use super::threads::{REACTORS_MAX, WORKERS_MAX};

/// Declares the formats and their marker types from one table.
macro_rules! formats {
    ($($variant:ident, $marker:ident, $name:literal, $noun:literal, $how:literal;)+) => {
        /// A format of scalar values.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Format { $($variant,)+ }

        impl Format {
            /// Returns the format that a schema names.
            pub(super) fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)+ _ => None }
            }

            /// Returns the words for a value in a sentence: "must be …".
            pub(super) fn noun(self) -> &'static str {
                match self { $(Self::$variant => $noun,)+ }
            }

            /// Returns an instruction how to write a value.
            pub(super) fn how(self) -> &'static str {
                match self { $(Self::$variant => $how,)+ }
            }
        }

        $(formats!(@marker $marker, $name);)+
    };
    (@marker $marker:ident, $name:literal) => {
        pub(super) struct $marker;

        impl JsonSchema for $marker {
            fn schema_name() -> Cow<'static, str> {
                stringify!($marker).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                scalar_schema($name)
            }
        }
    };
}

formats! {
    Duration, DurationText, "time-span", "a duration",
        "write a whole number and a unit (`ms`, `s`, `m`, `h`): `500ms`, `30s`, `1m30s`";
    DurationOrZero, DurationOrZeroText, "time-span-or-zero", "a duration",
        "write a whole number and a unit (`ms`, `s`, `m`, `h`): `0s`, `500ms`, `30s`";
    HedgeDelay, HedgeDelayText, "hedge-delay", "a duration or a percentile",
        "write a whole number and a unit (`ms`, `s`): `150ms`; or a percentile from `p50` to `p99`: `p95`";
    Size, SizeText, "size", "a size",
        "write a whole number and a unit (`B`, `KB`, `MB`, `GB`, `KiB`, `MiB`, `GiB`): `64KiB`, \
         `2MiB`; without a unit it counts bytes";
    Address, AddressText, "address", "an address to listen on",
        "write an IP address and a port: `127.0.0.1:4000`, `0.0.0.0:4000` (all interfaces), \
         `[::1]:4000`";
    Workers, WorkersText, "workers", "a number of workers", "write `auto`, or a number from 1 to 1024";
    MemoryLimit, MemoryLimitText, "memory-limit", "a memory budget",
        "write `auto`, `off`, or a size of at least 32 MiB: `512MiB`, `2GiB`";
    Reactors, ReactorsText, "reactors", "a number of threads", "write `auto`, or a number from 1 to 256";
    Path, PathText, "url-path", "the path of a URL", "write a path that begins with `/`: `/graphql`";
    SubgraphUrl, SubgraphUrlText, "subgraph-url", "a URL",
        "write scheme, host and path: `http://reviews.internal:4001/graphql`; or a unix socket: \
         `unix:///run/reviews.sock?path=/graphql`";
    SubscriptionUrl, SubscriptionUrlText, "subscription-url", "a URL",
        "write scheme, host and path: `ws://reviews.internal:4001/graphql` (or `wss`, `http`, `https`); or a unix \
         socket: `unix:///run/reviews.sock?path=/graphql`";
    CallbackUrl, CallbackUrlText, "callback-url", "a URL",
        "write scheme, host and path: `http://router.internal:4000/callback`";
    NatsUrl, NatsUrlText, "nats-url", "the URL of a NATS server",
        "write `nats://HOST:PORT`, or `tls://HOST:PORT` for an encrypted connection";
    KafkaBroker, KafkaBrokerText, "kafka-broker", "the address of a Kafka broker",
        "write `HOST:PORT`: `kafka.internal:9092`";
    RedisUrl, RedisUrlText, "redis-url", "the URL of a Redis server",
        "write `redis://HOST:PORT`, `rediss://HOST:PORT` for an encrypted connection, or \
         `unix:///run/redis.sock`";
    HttpUrl, HttpUrlText, "http-url", "a URL",
        "write scheme, host and path: `https://auth.example.com/.well-known/jwks.json`";
    Issuer, IssuerText, "token-issuer", "a name", "write it as the tokens have it, letter by letter";
    MemberPath, MemberPathText, "member-path", "the name of a member",
        "write a name, or several with points between them: `sub`, `realm_access.roles`; a text with `://` is one name";
    Scheme, SchemeText, "token-scheme", "a word", "write letters, digits and hyphens: `Bearer`";
    HeaderName, HeaderNameText, "header-name", "the name of a header",
        "write letters, digits and hyphens: `authorization`, `x-api-key`";
    // A header of pages, which may be one that the router never forwards, such as `content-type`.
    PageHeader, PageHeaderText, "page-header", "the name of a header",
        "write letters, digits and hyphens: `content-type`, `authorization`";
    CookieName, CookieNameText, "cookie-name", "the name of a cookie",
        "write letters, digits, hyphens and underscores: `session`, `__Host-token`";
    HeaderPattern, HeaderPatternText, "header-pattern", "a regular expression",
        "write a pattern for header names: `^x-tenant-`, `^(x-a|x-b)$`";
    HeaderValue, HeaderValueText, "header-value", "the value of a header",
        "write visible ASCII characters and spaces, in one line";
    // Replaces a header that the client did not send. It is not secret, unlike an inserted value.
    HeaderDefault, HeaderDefaultText, "header-default", "the value of a header",
        "write visible ASCII characters and spaces, in one line";
    ProviderId, ProviderIdText, "provider-id", "the id of a provider",
        "write letters, digits, `-`, `_` and `.`: `default`, `orders-eu`";
    RateLimitName, RateLimitNameText, "rate-limit-name", "the name of a rate limit",
        "write letters, digits, `-`, `_` and `.`: `per-user`";
    GraphName, GraphNameText, "graph-name", "the name of a graph",
        "write letters, digits, `-`, `_` and `.`: `beta`";
    StoreNamespace, StoreNamespaceText, "store-namespace", "a namespace for keys",
        "write letters, digits, `-`, `_` and `.`: `shop-production`";
    Instance, InstanceText, "instance", "the name of a router",
        "write letters, digits, `-`, `_` and `.`: `router-1`";
    HostName, HostNameText, "host-name", "the name of a host",
        "write it without a scheme and a port: `starling.internal`";
    Origin, OriginText, "origin", "an origin",
        "write scheme and host as browsers send them, without a path: `https://app.example.com`; \
         `https://*.example.com` for all subdomains; or `\"*\"` for every origin";
    OriginPattern, OriginPatternText, "origin-pattern", "a regular expression",
        "write a pattern for a whole origin: `https://pr-[0-9]+\\.example\\.com`";
    MessagePattern, MessagePatternText, "message-pattern", "a regular expression",
        "write a pattern for messages of errors: `^The article .* is sold out`";
    LabelSetting, LabelSettingText, "label-setting", "`true`, `false` or a percentage",
        "write `true` (on for all), `false` (for none), or for how many requests: `5%`";
    Ratio, RatioText, "ratio", "a percentage", "write a percentage: `0%`, `0.1%`, `1%`, `100%`";
    ResourceValue, ResourceValueText, "resource-value", "a text",
        "write at most 256 characters in one line: `shop-router`";
    File, FileText, "file-path", "the path of a file", "write a path: `supergraph.graphql`";
    SocketPath, SocketPathText, "socket-path", "the path of a socket",
        "write a path of at most 100 bytes: `/run/starling/graphql.sock`";
    FileMode, FileModeText, "file-mode", "permissions of a file", "write them in octal: `0660`";
    UserName, UserNameText, "user-name", "a user name", "write the name as the server knows it";
    Secret, SecretText, "secret", "a secret",
        "write it as an environment variable, so that the file does not contain it: `${NAME}`";
    RequestCondition, RequestConditionText, "request-condition", "a condition",
        "write `true`, `false`, or a condition in CEL (`docs/expressions.md`): `client.name == \"console\"`";
    RequestKey, RequestKeyText, "request-key", "an expression",
        "write a text in CEL (`docs/expressions.md`): `claims.sub`, `request.headers['x-tenant']`";
    HeaderExpression, HeaderExpressionText, "header-expression", "an expression",
        "write a text in CEL (`docs/expressions.md`): `claims.?tenant.orValue(\"none\")`";
    ResponseExpression, ResponseExpressionText, "response-expression", "an expression",
        "write a text in CEL (`docs/expressions.md`): `subgraph.name`";
    // The unit of a limit decides whether its expressions may read the cost: `consistency` checks that.
    LimitKey, LimitKeyText, "limit-key", "an expression",
        "write a text in CEL (`docs/expressions.md`): `claims.sub`, `request.client_address`";
    LimitCondition, LimitConditionText, "limit-condition", "a condition",
        "write `true`, `false`, or a condition in CEL (`docs/expressions.md`): `operation.kind == \"mutation\"`";
    OperationCondition, OperationConditionText, "operation-condition", "a condition",
        "write `true`, `false`, or a condition in CEL (`docs/expressions.md`): `client.name == \"\"`";
    LogField, LogFieldText, "log-field", "the name of a field",
        "write letters, digits and `_`: `user`";
    LogCondition, LogConditionText, "log-condition", "a condition",
        "write `true`, `false`, or a condition in CEL (`docs/expressions.md`): `response.status >= 500`";
    LogExpression, LogExpressionText, "log-expression", "an expression",
        "write a text in CEL (`docs/expressions.md`): `claims.sub`";
    RegoRule, RegoRuleText, "rego-rule", "the path of a rule",
        "write `data`, the package and the rule, with points between them: `data.starling.allow`";
    CursorKey, CursorKeyText, "cursor-key", "a key for cursors",
        "write at least 16 random bytes as an environment variable (`openssl rand -base64 32`): `${CURSOR_KEY}`";
}

impl Format {
    /// Returns the variables and the type of an expression; `None` for other formats.
    pub(super) fn expression(self) -> Option<(Scope, Expected)> {
        match self {
            Self::RequestCondition => Some((Scope::REQUEST, Expected::Condition)),
            Self::RequestKey => Some((Scope::REQUEST, Expected::Text)),
            Self::HeaderExpression | Self::LimitKey => {
                Some((Scope::COSTED_OPERATION, Expected::Text))
            }
            Self::LimitCondition => Some((Scope::COSTED_OPERATION, Expected::Condition)),
            Self::ResponseExpression => Some((Scope::RESPONSE, Expected::Text)),
            Self::OperationCondition => Some((Scope::OPERATION, Expected::Condition)),
            Self::LogCondition => Some((Scope::LOG, Expected::Condition)),
            Self::LogExpression => Some((Scope::LOG, Expected::Text)),
            _ => None,
        }
    }

    /// True if the format is a secret, which excerpts and reasons must not show.
    pub(super) fn is_secret(self) -> bool {
        matches!(self, Self::Secret | Self::CursorKey | Self::HeaderValue)
    }
}

/// Returns the JSON Schema of a format, for editors.
fn scalar_schema(name: &str) -> Schema {
    match name {
        "size" => json_schema!({
            "type": ["integer", "string"],
            "minimum": 1,
            "maximum": SIZE_MAX,
            "pattern": "^[0-9]+ *(([KMGkmg][Ii]?)?[Bb])?$",
            "format": name,
        }),
        "workers" => json_schema!({
            "type": ["integer", "string"],
            "minimum": 1,
            "maximum": WORKERS_MAX,
            "pattern": "^(auto|[0-9]+)$",
            "format": name,
        }),
        "reactors" => json_schema!({
            "type": ["integer", "string"],
            "minimum": 1,
            "maximum": REACTORS_MAX,
            "pattern": "^(auto|[0-9]+)$",
            "format": name,
        }),
        "time-span" | "time-span-or-zero" => json_schema!({
            "type": "string",
            "pattern": "^([0-9]+ *(ms|s|m|h))+$",
            "format": name,
        }),
        "secret" | "cursor-key" | "header-value" => json_schema!({
            "type": "string",
            "writeOnly": true,
            "format": name,
        }),
        // A condition may be written as `true` or `false` without quotes.
        "request-condition" | "limit-condition" | "operation-condition" => {
            json_schema!({"type": ["boolean", "string"], "format": name})
        }
        _ => json_schema!({"type": "string", "format": name}),
    }
}
