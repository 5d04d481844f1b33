//! The cost of a request in `extensions.trace`, for a client that sends the header `starling-trace: 1`, if the
//! configuration allows it.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::Config;
use execute::Payload;
use graph::Supergraph;
use http::{HeaderMap, HeaderName};
use single_flight::Role;

/// The header that requests a trace.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("starling-trace");

/// The measurements of one request.
#[derive(Debug)]
pub(crate) struct RequestTrace {
    started: Instant,
    prepared: Duration,
    /// The fetches of the execution, if this request leads one.
    pub(crate) fetches: Arc<execute::Trace>,
}

impl RequestTrace {
    /// Starts a trace if the client requests it and the configuration allows it.
    pub(crate) fn wanted(config: &Config, headers: &HeaderMap) -> Option<Self> {
        if !config.trace.enabled || headers.get(HEADER).is_none_or(|it| it != "1") {
            return None;
        }
        let fetches = Arc::new(execute::Trace::new());
        Some(Self { started: Instant::now(), prepared: Duration::ZERO, fetches })
    }

    /// Records that the operation is prepared and the execution starts. In a batch the other operations may have run in
    /// between, which counts as preparing.
    pub(crate) fn prepared(&mut self) {
        self.prepared = self.started.elapsed();
        self.fetches = Arc::new(execute::Trace::new());
    }

    /// Returns `payload` with the trace in its extensions. `role` is the way in which the operation was shared.
    pub(crate) fn put(&self, payload: &Payload, role: Option<Role>, graph: &Supergraph) -> Payload {
        let execute = self.started.elapsed().saturating_sub(self.prepared);
        let mut text = format!(
            "{{\"unit\":\"microseconds\",\"prepare\":{},\"execute\":{},\"bytes\":{},\"sharing\":{},\"fetches\":[",
            self.prepared.as_micros(),
            execute.as_micros(),
            payload.bytes.len(),
            role_text(role),
        );
        for (index, fetch) in self.fetches.fetches().iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            let mut name = Vec::new();
            astjson::print_string(&graph.subgraph(fetch.subgraph).name, &mut name);
            let (status, bytes) = match fetch.answer {
                Some((status, bytes)) => (status.to_string(), bytes.to_string()),
                None => ("null".to_owned(), "null".to_owned()),
            };
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "{{\"subgraph\":{},\"began\":{},\"took\":{},\"requestBytes\":{},\"status\":{status},\
                 \"answerBytes\":{bytes},\"sharing\":{}}}",
                String::from_utf8_lossy(&name),
                fetch.began.as_micros(),
                fetch.took.as_micros(),
                fetch.request_bytes,
                role_text(fetch.role),
            );
        }
        text.push_str("]}");
        payload.with_extension("trace", &text)
    }
}

fn role_text(role: Option<Role>) -> &'static str {
    match role {
        Some(Role::Leader) => "\"leader\"",
        Some(Role::Follower) => "\"follower\"",
        Some(Role::Unshared) => "\"alone\"",
        None => "null",
    }
}
