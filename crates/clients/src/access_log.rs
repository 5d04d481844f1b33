//! The access log: a line for each request by HTTP, each operation on a connection that has left HTTP, and the
//! beginning and the end of each subscription, and the end of each WebSocket.
//!
//! Lines are made where the events happen (`frontend`, `live`), from an [`AccessLogEntry`]. The thread of the log
//! writes them; nothing here waits.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use config::{AccessLogFormat, ClientInfoHeaders, Config};
use execute::{Claims, ErrorCode};
use expressions::{
    ClaimFacts, ClientFacts, Expected, OperationFacts, OutcomeFacts, Program, RequestFacts, Scope,
};
use http::{HeaderMap, HeaderName, HeaderValue, Version};
use plan::OperationKind;
use prepare::Prepared;
use telemetry::spans::TraceId;
use telemetry::{HexDigits, LineDestination, LineFormat, LineWriter, LogLine, Metric};
use time::OffsetDateTime;

use crate::client_info::ClientInfo;
use crate::request_source::ConnectionOrigin;

/// The metrics of the access log.
pub const ACCESS_LOG_METRICS: &[Metric<Option<Arc<AccessLog>>>] = &[Metric::counter(
    "starling_access_log_lines_dropped",
    "Lines of the access log that were dropped because they were not read or could not be written",
    |log| log.as_ref().map_or(0, |it| it.writer.dropped()),
)];

/// The access log.
#[derive(Debug)]
pub struct AccessLog {
    writer: LineWriter,
    format: LineFormat,
    when: Option<Program>,
    fields: Vec<LogField>,
    client_info: ClientInfoHeaders,
    /// The headers of requests that lines need.
    read_headers: Vec<HeaderName>,
    needs_depth: bool,
}

/// A configured field.
#[derive(Debug)]
struct LogField {
    name: Box<str>,
    value: Program,
}

/// The event that a line is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogEvent {
    /// A request by HTTP has got its response, or the head of a stream.
    #[default]
    Request,
    /// A query or a mutation on a connection that has left HTTP has ended.
    Operation,
    /// A subscription has begun.
    SubscriptionStarted,
    /// A subscription has ended.
    SubscriptionEnded,
    /// A WebSocket has ended.
    WebSocketEnded,
}

impl LogEvent {
    fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Operation => "operation",
            Self::SubscriptionStarted => "subscription_started",
            Self::SubscriptionEnded => "subscription_ended",
            Self::WebSocketEnded => "websocket_ended",
        }
    }
}

/// The facts about an event. Absent ones have no field in the line.
#[derive(Debug, Default)]
pub struct AccessLogEntry<'a> {
    /// The event.
    pub event: LogEvent,
    /// The id of the request.
    pub request_id: Option<&'a HeaderValue>,
    /// The trace of the request, while traces are on.
    pub trace: Option<TraceId>,
    /// The name of the graph, if the process serves several.
    pub graph: Option<&'a str>,
    /// The origin of the connection.
    pub origin: ConnectionOrigin,
    /// The method; empty for an event that is no request.
    pub method: &'a str,
    /// The path of the URL, without the query.
    pub path: &'a str,
    /// The version of HTTP.
    pub version: Option<Version>,
    /// The transport of a subscription or an operation on a connection that has left HTTP.
    pub transport: Option<&'static str>,
    /// The WebSocket that the event belongs to.
    pub connection: Option<ConnectionId>,
    /// The headers of the request.
    pub headers: Option<&'a HeaderMap>,
    /// The claims of the client, for an event without an operation.
    pub claims: Option<&'a Claims>,
    /// The operation, if it is known.
    pub operation: Option<&'a LoggedOperation>,
    /// The HTTP status.
    pub status: Option<u16>,
    /// The size of the response's body; none for a stream.
    pub bytes: Option<u64>,
    /// The time that the event took.
    pub duration: Option<Duration>,
    /// The number of GraphQL errors.
    pub errors: u64,
    /// The code of the first error of an operation that did not run.
    pub code: Option<ErrorCode>,
    /// The number of results that a subscription has sent.
    pub events: Option<u64>,
    /// The number of operations that a WebSocket has had.
    pub operations: Option<u64>,
    /// The reason of an end.
    pub reason: Option<&'a str>,
    /// The code of a WebSocket's first close frame, and the text in it.
    pub close: Option<(u16, &'a str)>,
}

/// The id of a WebSocket, by which its lines are joined. It is random, since the lines of several routers may come
/// together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionId(u64);

impl ConnectionId {
    /// Draws an id.
    pub fn random() -> Self {
        Self(fastrand::u64(..))
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(HexDigits::<16>::new(self.0.into()).as_str())
    }
}

/// The handshake of a WebSocket, as later lines show it. A handshake has one if the access log is written.
#[derive(Clone, Debug)]
pub struct LoggedHandshake {
    /// The id of the WebSocket.
    pub connection: ConnectionId,
    /// The id of the request.
    pub request_id: Option<HeaderValue>,
}

/// The request that has begun a subscription, as the lines of that show it: the request itself is gone by then.
#[derive(Clone, Debug, Default)]
pub struct LoggedRequest {
    /// The id of the request.
    pub request_id: Option<HeaderValue>,
    /// The trace of the request, while traces are on.
    pub trace: Option<TraceId>,
    /// The origin of the connection.
    pub origin: ConnectionOrigin,
    /// The headers that lines need.
    pub headers: HeaderMap,
}

/// An operation as lines show it.
#[derive(Clone, Debug)]
pub struct LoggedOperation {
    name: Option<Box<str>>,
    kind: OperationKind,
    id: u128,
    depth: Option<u32>,
    cost: Option<u64>,
    claims: Option<Claims>,
}

/// The operation of a request, which becomes known while the request is served. A request carries it among its
/// extensions if the access log is written. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct OperationNote(Arc<Mutex<Option<LoggedOperation>>>);

impl OperationNote {
    /// Notes the operation.
    pub fn set(&self, operation: LoggedOperation) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(operation);
    }

    /// Takes the operation, if it is known.
    pub fn take(&self) -> Option<LoggedOperation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl AccessLog {
    /// Opens the log that the configuration describes; `None` if it is not enabled.
    ///
    /// # Errors
    /// The file cannot be opened. The error names it.
    pub fn open(config: &Config) -> io::Result<Option<Self>> {
        let settings = &config.access_log;
        if !settings.enabled {
            return Ok(None);
        }
        let (destination, place) = match &settings.file {
            None => (LineDestination::StandardOutput, "standard output".to_owned()),
            Some(path) => {
                let (bytes_max, kept) = (settings.rotate_at as u64, settings.keep);
                let place = path.display().to_string();
                (LineDestination::File { path: path.clone(), bytes_max, kept }, place)
            }
        };
        let writer = LineWriter::start("access log", destination).map_err(|error| {
            io::Error::new(error.kind(), format!("`access_log.file`: {place}: {error}"))
        })?;
        Ok(Some(Self::with_writer(config, writer)))
    }

    /// Writes the remaining lines, and waits for that for at most a second. Lines that are added later are lost.
    pub fn end(&self) {
        self.writer.end();
    }

    fn with_writer(config: &Config, writer: LineWriter) -> Self {
        let settings = &config.access_log;
        // The configuration has been checked, so every expression compiles.
        let when = settings.when.as_ref();
        let when = when.and_then(|it| it.compile(Scope::LOG, Expected::Condition).ok());
        let fields = settings.fields.iter().filter_map(|field| {
            let value = field.value.compile(Scope::LOG, Expected::Text).ok()?;
            Some(LogField { name: field.name.as_str().into(), value })
        });
        let fields: Vec<_> = fields.collect();
        let info = &config.client_info;
        let mut read_headers: Vec<_> =
            info.name_headers.iter().chain(&info.version_headers).cloned().collect();
        let programs = fields.iter().map(|it| &it.value).chain(&when);
        let references: Vec<_> = programs.map(Program::references).collect();
        read_headers.extend(references.iter().flat_map(|it| &it.headers).cloned());
        read_headers.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        read_headers.dedup();
        let needs_depth = references.iter().any(|it| it.depth);
        let format = match settings.format {
            AccessLogFormat::Json => LineFormat::Json,
            AccessLogFormat::Text => LineFormat::Text,
        };
        let client_info = info.clone();
        Self { writer, format, when, fields, client_info, read_headers, needs_depth }
    }

    /// Copies the headers that lines need. They are copied because those of a request are a part of the memory that its
    /// connection reads into.
    pub fn copy_headers(&self, headers: &HeaderMap) -> HeaderMap {
        let mut copied = HeaderMap::new();
        for name in &self.read_headers {
            for value in headers.get_all(name) {
                // The bytes come from a valid value, so none is left out.
                if let Ok(own) = HeaderValue::from_bytes(value.as_bytes()) {
                    copied.append(name, own);
                }
            }
        }
        copied
    }

    /// Returns an operation as lines show it, with its estimated cost and the claims of its client.
    pub fn operation(
        &self,
        prepared: &Prepared,
        cost: Option<u64>,
        claims: Option<&Claims>,
    ) -> LoggedOperation {
        LoggedOperation {
            name: prepared.name.clone(),
            kind: prepared.kind,
            id: prepared.operation_id,
            depth: self.needs_depth.then(|| prepared.depth()),
            cost,
            claims: claims.cloned(),
        }
    }

    /// Writes a line about an event, unless the condition of the configuration is false for it.
    pub fn write(&self, entry: &AccessLogEntry<'_>) {
        let operation = entry.operation;
        let id = operation.map(|it| HexDigits::<32>::new(it.id));
        let info = entry.headers.map(|it| ClientInfo::of(&self.client_info, it));
        let info = info.unwrap_or_default();
        let duration = entry.duration.unwrap_or_default();
        let facts = RequestFacts {
            method: entry.method,
            path: entry.path,
            headers: entry.headers,
            client_address: entry.origin.address,
            is_tls: entry.origin.is_tls,
            client: ClientFacts { name: info.name, version: info.version },
            claims: ClaimFacts::from(operation.map_or(entry.claims, |it| it.claims.as_ref())),
            operation: operation.map(|it| OperationFacts {
                name: it.name.as_deref().unwrap_or_default(),
                kind: kind_name(it.kind),
                id: id.as_ref().map_or("", HexDigits::as_str),
                depth: it.depth,
                cost: it.cost,
            }),
            outcome: Some(OutcomeFacts {
                status: entry.status,
                errors: entry.errors,
                bytes: entry.bytes,
                milliseconds: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
            }),
            ..RequestFacts::default()
        };
        // A line too many is better than one that is missing.
        if self.when.as_ref().is_some_and(|when| when.is_true(&facts) == Ok(false)) {
            return;
        }
        self.writer.write(self.line(entry, &facts).as_bytes());
    }

    fn line(&self, entry: &AccessLogEntry<'_>, facts: &RequestFacts<'_>) -> String {
        let mut line = LogLine::new(self.format);
        line.plain("time", UtcTime(OffsetDateTime::now_utc()));
        line.text("event", entry.event.name());
        if let Some(id) = entry.request_id.and_then(|it| it.to_str().ok()) {
            line.text("request_id", id);
        }
        if let Some(trace) = entry.trace {
            line.plain("trace_id", trace);
        }
        if let Some(address) = entry.origin.address {
            line.plain("address", address);
        }
        line.text("method", entry.method);
        line.text("path", entry.path);
        line.text("protocol", entry.version.map_or("", version_name));
        line.text("transport", entry.transport.unwrap_or_default());
        if let Some(connection) = entry.connection {
            line.plain("connection", connection);
        }
        line.text("graph", entry.graph.unwrap_or_default());
        if let Some(status) = entry.status {
            line.number("status", status.into());
        }
        if let Some(duration) = entry.duration {
            line.milliseconds("duration_ms", duration);
        }
        if let Some(bytes) = entry.bytes {
            line.number("bytes", bytes);
        }
        if let Some(operation) = &facts.operation {
            line.text("operation", operation.name);
            line.text("kind", operation.kind);
            line.text("operation_id", operation.id);
            if let Some(cost) = operation.cost {
                line.number("cost", cost);
            }
        }
        line.text("client", facts.client.name);
        line.text("client_version", facts.client.version);
        if entry.errors > 0 {
            line.number("errors", entry.errors);
        }
        line.text("code", entry.code.map_or("", ErrorCode::as_str));
        if let Some(events) = entry.events {
            line.number("events", events);
        }
        if let Some(operations) = entry.operations {
            line.number("operations", operations);
        }
        line.text("reason", entry.reason.unwrap_or_default());
        if let Some((code, reason)) = entry.close {
            line.number("close_code", code.into());
            line.text("close_reason", reason);
        }
        for LogField { name, value } in &self.fields {
            let value = value.evaluate(facts).ok();
            if let Some(text) = value.as_ref().and_then(expressions::Value::text) {
                line.text(name, &text);
            }
        }
        line.finish()
    }
}

fn kind_name(kind: OperationKind) -> &'static str {
    match kind {
        OperationKind::Query => "query",
        OperationKind::Mutation => "mutation",
        OperationKind::Subscription => "subscription",
    }
}

fn version_name(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_11 => "HTTP/1.1",
        Version::HTTP_2 => "HTTP/2",
        _ => "HTTP",
    }
}

/// A time in the format of RFC 3339, with milliseconds. Written digit by digit: this is the dearest part of a line with
/// the formats of the library, and each line has one.
struct UtcTime(OffsetDateTime);

impl fmt::Display for UtcTime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.0.to_calendar_date();
        let (hour, minute, second, millisecond) = self.0.to_hms_milli();
        // The years of the library have four digits and may be negative, which a clock never says.
        let year = u16::try_from(year).unwrap_or_default();
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let parts: [(usize, usize, u16); 7] = [
            (0, 4, year),
            (5, 2, u8::from(month).into()),
            (8, 2, day.into()),
            (11, 2, hour.into()),
            (14, 2, minute.into()),
            (17, 2, second.into()),
            (20, 3, millisecond),
        ];
        for (first, digits, mut number) in parts {
            for digit in text[first..first + digits].iter_mut().rev() {
                // The remainder is a digit.
                *digit = b'0' + (number % 10) as u8;
                number /= 10;
            }
        }
        // All bytes are ASCII.
        out.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use config::{AccessLog as Settings, AccessLogField, Expression};

    use super::*;

    /// A file of the system's temporary folder that is removed at the end of its test.
    struct LogFile(PathBuf);

    impl LogFile {
        fn new(name: &str) -> Self {
            let name = format!("starling-access-{name}-{}.log", std::process::id());
            Self(std::env::temp_dir().join(name))
        }
    }

    impl Drop for LogFile {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    /// Writes entries, and returns the lines without their times.
    fn lines(name: &str, settings: Settings, entries: &[AccessLogEntry<'_>]) -> Vec<String> {
        let file = LogFile::new(name);
        let settings = Settings { enabled: true, file: Some(file.0.clone()), ..settings };
        let config = Config { access_log: settings, ..Config::default() };
        let log = AccessLog::open(&config).expect("a file").expect("it is enabled");
        entries.iter().for_each(|entry| log.write(entry));
        drop(log);
        let text = std::fs::read_to_string(Path::new(&file.0)).expect("a file");
        text.lines().map(|line| line.split_once(' ').expect("a time").1.to_owned()).collect()
    }

    fn operation() -> LoggedOperation {
        LoggedOperation {
            name: Some("Top".into()),
            kind: OperationKind::Query,
            id: 7,
            depth: None,
            cost: Some(12),
            claims: Claims::new(r#"{"sub":"ann"}"#.into()),
        }
    }

    fn text_settings() -> Settings {
        Settings { format: AccessLogFormat::Text, ..Settings::default() }
    }

    #[test]
    fn times_have_the_format_of_rfc_3339_with_milliseconds() {
        for (nanos, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_772_280_000_007_999_999, "2026-02-28T12:00:00.007Z"),
            (1_798_761_599_999_000_000, "2026-12-31T23:59:59.999Z"),
        ] {
            let time = OffsetDateTime::from_unix_timestamp_nanos(nanos).expect("a time");
            assert_eq!(UtcTime(time).to_string(), text);
        }
    }

    #[test]
    fn a_line_has_what_is_known_of_its_event() {
        let mut headers = HeaderMap::new();
        headers.insert("graphql-client-name", HeaderValue::from_static("web"));
        let operation = operation();
        let request = AccessLogEntry {
            request_id: Some(&HeaderValue::from_static("r1")),
            method: "POST",
            path: "/graphql",
            version: Some(Version::HTTP_2),
            headers: Some(&headers),
            operation: Some(&operation),
            status: Some(200),
            bytes: Some(15),
            duration: Some(Duration::from_micros(1_500)),
            errors: 2,
            ..AccessLogEntry::default()
        };
        let ended = AccessLogEntry {
            event: LogEvent::SubscriptionEnded,
            graph: Some("beta"),
            transport: Some("websocket"),
            events: Some(7),
            reason: Some("client"),
            ..AccessLogEntry::default()
        };
        let closed = AccessLogEntry {
            event: LogEvent::WebSocketEnded,
            transport: Some("websocket"),
            connection: Some(ConnectionId(0xaf)),
            operations: Some(3),
            reason: Some("client_closed"),
            close: Some((1000, "bye now")),
            ..AccessLogEntry::default()
        };
        assert_eq!(
            lines("known", text_settings(), &[request, ended, closed]),
            [
                "event=request request_id=r1 method=POST path=/graphql protocol=HTTP/2 status=200 duration_ms=1.500 \
                 bytes=15 operation=Top kind=query operation_id=00000000000000000000000000000007 cost=12 client=web \
                 errors=2",
                "event=subscription_ended transport=websocket graph=beta events=7 reason=client",
                "event=websocket_ended transport=websocket connection=00000000000000af operations=3 \
                 reason=client_closed close_code=1000 close_reason=\"bye now\"",
            ]
        );
    }

    #[test]
    fn configured_fields_and_the_condition_read_the_facts() {
        let field = |name: &str, value: &str| AccessLogField {
            name: name.to_owned(),
            value: Expression::new(value),
        };
        let settings = Settings {
            when: Some(Expression::new("response.status >= 500 || operation.cost > 10")),
            fields: vec![
                field("user", "claims.sub"),
                field("tenant", "request.headers['x-tenant']"),
                field("slow", "response.milliseconds > 100"),
            ],
            ..text_settings()
        };
        let operation = operation();
        let entry = |status, operation| AccessLogEntry {
            status: Some(status),
            operation,
            ..AccessLogEntry::default()
        };
        let other = LoggedOperation { cost: Some(1), ..operation.clone() };
        let all = [
            entry(200, Some(&operation)),
            entry(200, Some(&other)),
            entry(503, None),
            // Without an operation the condition cannot be evaluated.
            entry(400, None),
        ];
        let written = lines("fields", settings, &all);
        let ends: Vec<_> = written.iter().map(|it| it.rsplit_once("cost=12 ")).collect();
        assert_eq!(ends[0].map(|it| it.1), Some("user=ann slow=false"));
        assert_eq!(
            written[1..],
            ["event=request status=503 slow=false", "event=request status=400 slow=false"]
        );
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let mut config = Config::default();
        config.access_log.enabled = true;
        config.access_log.file = Some("/nowhere/access.log".into());
        let error = AccessLog::open(&config).expect_err("no such folder").to_string();
        assert!(error.starts_with("`access_log.file`: /nowhere/access.log: "), "{error}");
    }
}
