//! The record of one request for the access log: begun with the head of the request, written with that of the response.

use std::sync::Arc;
use std::time::Instant;

use clients::access_log::{AccessLog, AccessLogEntry, LogEvent, OperationNote};
use clients::request_source::ConnectionOrigin;
use http::{HeaderMap, HeaderValue, Method, Request, Version};
use http_body::Body;
use telemetry::spans::TraceId;

use super::response::{Response, ResponseBody, ResponseErrors};

/// The facts about a request that are known at its beginning. They are copied: the head of the request is a part of the
/// memory that its connection reads into.
pub(crate) struct RequestRecord {
    log: Arc<AccessLog>,
    began: Instant,
    origin: ConnectionOrigin,
    method: Method,
    path: Box<str>,
    version: Version,
    headers: HeaderMap,
    operation: OperationNote,
}

impl RequestRecord {
    /// Begins the record of a request. The request carries the note about its operation from now on.
    pub(crate) fn begin<B>(
        log: &Arc<AccessLog>,
        origin: ConnectionOrigin,
        request: &mut Request<B>,
    ) -> Self {
        let operation = OperationNote::default();
        request.extensions_mut().insert(operation.clone());
        Self {
            log: Arc::clone(log),
            began: Instant::now(),
            origin,
            method: request.method().clone(),
            path: request.uri().path().into(),
            version: request.version(),
            headers: log.copy_headers(request.headers()),
            operation,
        }
    }

    /// Writes the line. `trace` is the trace of the request, while traces are on. `graph` is the name of the graph, if
    /// there are several.
    pub(crate) fn finish(
        self,
        request_id: Option<&HeaderValue>,
        trace: Option<TraceId>,
        graph: Option<&str>,
        response: &Response,
    ) {
        let errors = response.extensions().get::<ResponseErrors>().copied();
        let bytes = match response.body() {
            ResponseBody::Whole(_) => response.body().size_hint().exact(),
            ResponseBody::Stream(_) | ResponseBody::Takeover(_) => None,
        };
        self.log.write(&AccessLogEntry {
            event: LogEvent::Request,
            request_id,
            trace,
            graph,
            origin: self.origin,
            method: self.method.as_str(),
            path: &self.path,
            version: Some(self.version),
            headers: Some(&self.headers),
            operation: self.operation.take().as_ref(),
            status: Some(response.status().as_u16()),
            bytes,
            duration: Some(self.began.elapsed()),
            errors: errors.map_or(0, |it| it.count),
            code: errors.and_then(|it| it.code),
            ..AccessLogEntry::default()
        });
    }
}
