//! The record of one request for the access log: begun with the head of the request, written with that of the response,
//! or without one if the client leaves before.

use std::time::Instant;

use clients::access_log::{AccessLog, AccessLogEntry, ConnectionId, LogEvent, OperationNote};
use clients::request_source::ConnectionOrigin;
use execute::ErrorCode;
use http::{HeaderMap, HeaderValue, Method, Request, Version};
use http_body::Body;
use telemetry::spans::TraceId;

use super::response::{Response, ResponseBody, ResponseErrors};

/// The facts about a request that are known at its beginning. They are copied: the head of the request is a part of the
/// memory that its connection reads into. Dropping the record of a request without a response writes its line, too: the
/// client has gone.
pub(crate) struct RequestRecord<'a> {
    log: &'a AccessLog,
    began: Instant,
    request_id: Option<&'a HeaderValue>,
    /// The trace of the request, while traces are on.
    trace: Option<TraceId>,
    /// The name of the graph, if there are several.
    graph: Option<&'a str>,
    origin: ConnectionOrigin,
    method: Method,
    path: Box<str>,
    version: Version,
    headers: HeaderMap,
    operation: OperationNote,
    /// True once the line is written.
    is_written: bool,
}

/// The reason in the line of a request if the client has left before the response.
const CANCELLED: &str = "cancelled";

impl<'a> RequestRecord<'a> {
    /// Begins the record of a request. The request carries the note about its operation from now on. `graph` is the
    /// name of the graph, if there are several.
    pub(crate) fn begin<B>(
        log: &'a AccessLog,
        origin: ConnectionOrigin,
        (request_id, graph): (Option<&'a HeaderValue>, Option<&'a str>),
        request: &mut Request<B>,
    ) -> Self {
        let operation = OperationNote::default();
        request.extensions_mut().insert(operation.clone());
        Self {
            log,
            began: Instant::now(),
            request_id,
            trace: None,
            graph,
            origin,
            method: request.method().clone(),
            path: request.uri().path().into(),
            version: request.version(),
            headers: log.copy_headers(request.headers()),
            operation,
            is_written: false,
        }
    }

    /// Sets the trace of the request, while traces are on.
    pub(crate) fn set_trace(&mut self, trace: Option<TraceId>) {
        self.trace = trace;
    }

    /// Writes the line of a request that has got this response.
    pub(crate) fn finish(mut self, response: &Response) {
        let errors = response.extensions().get::<ResponseErrors>().copied();
        let bytes = match response.body() {
            ResponseBody::Whole(_) => response.body().size_hint().exact(),
            ResponseBody::Stream(_) | ResponseBody::Takeover(_) => None,
        };
        self.write(AccessLogEntry {
            connection: response.extensions().get::<ConnectionId>().copied(),
            status: Some(response.status().as_u16()),
            bytes,
            errors: errors.map_or(0, |it| it.count),
            code: errors.and_then(|it| it.code),
            ..AccessLogEntry::default()
        });
    }

    /// Writes the line with this outcome.
    fn write(&mut self, outcome: AccessLogEntry<'_>) {
        self.is_written = true;
        self.log.write(&AccessLogEntry {
            event: LogEvent::Request,
            request_id: self.request_id,
            trace: self.trace,
            graph: self.graph,
            origin: self.origin,
            method: self.method.as_str(),
            path: &self.path,
            version: Some(self.version),
            headers: Some(&self.headers),
            operation: self.operation.take().as_ref(),
            duration: Some(self.began.elapsed()),
            ..outcome
        });
    }
}

impl Drop for RequestRecord<'_> {
    fn drop(&mut self) {
        if !self.is_written {
            let reason = match std::thread::panicking() {
                true => ErrorCode::InternalServerError.as_str(),
                false => CANCELLED,
            };
            self.write(AccessLogEntry { reason: Some(reason), ..AccessLogEntry::default() });
        }
    }
}
