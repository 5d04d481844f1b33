//! The cost of a request in `extensions.trace`, for a client that sends the header `starling-trace`, if the
//! configuration allows it.
//!
//! A request with `starling-trace: 1` is served like any other one, so that its trace shows what others get: also that
//! the whole response came from memory. With `starling-trace: execute` the operation is executed also if its response
//! is stored.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use astjson::Document;
use bytes::Bytes;
use config::{FetchText, TraceFetches};
use execute::{LookupTrace, Payload};
use graph::{SubgraphId, Supergraph};
use http::{HeaderMap, HeaderName};
use plan::{FetchKind, Plan};
use single_flight::Role;

use crate::redaction::redact_literals;

/// The header that requests a trace.
pub const HEADER: HeaderName = HeaderName::from_static("starling-trace");

/// The source of the whole response to a traced request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ResponseSource {
    /// The memory of whole responses.
    Memory {
        /// The time since the response was stored.
        age: Duration,
        /// True if its time is over, and it was served while the operation is executed again.
        is_stale: bool,
    },
    /// It was executed, because it was not in memory.
    Executed,
    /// It was executed without a lookup: the client wants that, or the response is never stored.
    NotLookedUp,
}

/// The measurements of one request.
#[derive(Debug)]
pub struct RequestTrace {
    started: Instant,
    prepared: Duration,
    /// True if the operation is executed also if its response is stored.
    pub(crate) must_execute: bool,
    /// The contents of requests to subgraphs that the client may see.
    shown: TraceFetches,
    /// The fetches of the execution, if this request leads one.
    pub fetches: Arc<execute::Trace>,
}

impl RequestTrace {
    /// Starts a trace if a request with these headers asks for one. It contains `shown` of requests to subgraphs.
    pub fn requested(headers: &HeaderMap, shown: TraceFetches) -> Option<Self> {
        let must_execute = match headers.get(HEADER)?.as_bytes() {
            b"1" => false,
            b"execute" => true,
            _ => return None,
        };
        let fetches = Arc::new(execute::Trace::new());
        let (started, prepared) = (Instant::now(), Duration::ZERO);
        Some(Self { started, prepared, must_execute, shown, fetches })
    }

    /// Records that the operation is prepared and the execution starts. In a batch the other operations may have run in
    /// between, which counts as preparing.
    pub fn prepared(&mut self) {
        self.prepared = self.started.elapsed();
        let fetches = execute::Trace::new();
        self.fetches = Arc::new(match self.shows_contents() {
            true => fetches.keeping_bodies(),
            false => fetches,
        });
    }

    /// True if the bodies of requests to subgraphs must be kept.
    pub(crate) fn shows_contents(&self) -> bool {
        self.shown.shows_contents()
    }

    /// Returns `payload` with the trace in its extensions. `role` is the way in which the operation was shared, and
    /// `source` where its response came from; `None` for an operation that uses no caches.
    ///
    /// No cache may store such a response: it would give the trace to clients that did not ask for it.
    pub(crate) fn put(
        &self,
        payload: &Payload,
        role: Option<Role>,
        source: Option<ResponseSource>,
        plan: &Plan,
        graph: &Supergraph,
    ) -> Payload {
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
            let name = subgraph_name(graph, fetch.subgraph);
            let (status, bytes) = match fetch.response {
                Some((status, bytes)) => (status.to_string(), bytes.to_string()),
                None => ("null".to_owned(), "null".to_owned()),
            };
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "{{\"fetch\":{},\"subgraph\":{name},\"entities\":{},\"began\":{},\"took\":{},\"requestBytes\":{},\
                 \"status\":{status},\"answerBytes\":{bytes},\"sharing\":{}",
                fetch.place.fetch,
                fetch.place.entities,
                fetch.began.as_micros(),
                fetch.took.as_micros(),
                fetch.request_bytes,
                role_text(fetch.role),
            );
            if let Some(hedge) = fetch.hedge {
                let _ = write!(text, ",\"hedge\":\"{}\"", hedge.as_str());
            }
            if let Some(body) = &fetch.body {
                write_contents(&mut text, body, self.shown);
            }
            text.push('}');
        }
        text.push(']');
        write_plan(&mut text, plan, graph);
        if let Some(source) = source {
            write_cache(&mut text, source, &self.fetches.lookups(), plan, graph);
        }
        text.push('}');
        Payload { caching: None, ..payload.with_extension("trace", &text) }
    }
}

/// Writes the members `text` and `variables` of a request, as far as `shown` allows it.
fn write_contents(text: &mut String, body: &Bytes, shown: TraceFetches) {
    let mut document = Document::new();
    // The router has written the body, so it can be read.
    let Ok(root) = document.parse(body.clone()) else { return };
    let query = document.get(root, "query");
    let query = query.and_then(|it| document.as_str(it));
    let shown_query = match (query, shown.text) {
        (Some(query), FetchText::Full) => Some(query),
        (Some(query), FetchText::Redacted) => Some(redact_literals(&query).into()),
        (_, FetchText::None) | (None, _) => None,
    };
    let mut out = Vec::new();
    if let Some(query) = shown_query {
        out.extend_from_slice(b",\"text\":");
        astjson::print_string(&query, &mut out);
    }
    if let Some(variables) = document.get(root, "variables").filter(|_| shown.variables) {
        out.extend_from_slice(b",\"variables\":");
        document.print(variables, &mut out);
    }
    text.push_str(&String::from_utf8_lossy(&out));
}

/// Writes the member `plan`: the fetches and which of them wait for others. It has no texts of requests: those that
/// were sent are with their requests.
fn write_plan(text: &mut String, plan: &Plan, graph: &Supergraph) {
    text.push_str(",\"plan\":[");
    for (id, (fetch, wave)) in plan.fetches.iter().zip(plan.waves()).enumerate() {
        let kind = match &fetch.kind {
            FetchKind::Root { .. } => "root",
            FetchKind::RootBelow { .. } => "rootBelow",
            FetchKind::Entities { .. } => "entities",
            FetchKind::Publish(_) => "publish",
            FetchKind::Request(_) => "request",
        };
        let depends_on: Vec<String> = fetch.depends_on.iter().map(|id| id.0.to_string()).collect();
        let (separator, name) =
            (if id > 0 { "," } else { "" }, subgraph_name(graph, fetch.subgraph));
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{separator}{{\"id\":{id},\"subgraph\":{name},\"kind\":\"{kind}\",\"wave\":{wave},\"dependsOn\":[{}]}}",
            depends_on.join(","),
        );
    }
    text.push(']');
}

/// Writes the member `cache`: where the response and its parts came from.
fn write_cache(
    text: &mut String,
    source: ResponseSource,
    lookups: &[LookupTrace],
    plan: &Plan,
    graph: &Supergraph,
) {
    let response = match source {
        ResponseSource::Memory { age, is_stale } => {
            let state = if is_stale { "stale" } else { "fresh" };
            format!("\"{state}\",\"age\":{}", age.as_micros())
        }
        ResponseSource::Executed => "\"miss\",\"age\":null".to_owned(),
        ResponseSource::NotLookedUp => "\"skipped\",\"age\":null".to_owned(),
    };
    // Writing to a string cannot fail.
    let _ = write!(text, ",\"cache\":{{\"response\":{response},\"fetches\":[");
    let known = lookups.iter().filter_map(|it| Some((it, plan.fetches.get(it.fetch)?)));
    for (index, (it, fetch)) in known.enumerate() {
        if index > 0 {
            text.push(',');
        }
        let unit = if it.is_entities { "entities" } else { "rootFields" };
        let oldest = it.oldest.map_or("null".to_owned(), |age| age.as_micros().to_string());
        let _ = write!(
            text,
            "{{\"fetch\":{},\"subgraph\":{},\"level\":\"subgraph\",\"unit\":\"{unit}\",\"fresh\":{},\"stale\":{},\
             \"awaited\":{},\"sent\":{},\"staleIfError\":{},\"refreshed\":{},\"oldestAge\":{oldest}}}",
            it.fetch,
            subgraph_name(graph, fetch.subgraph),
            it.fresh,
            it.stale,
            it.awaited,
            it.sent,
            it.stale_if_error,
            it.refreshed,
        );
    }
    text.push_str("]}");
}

/// The name of a subgraph as a JSON string.
fn subgraph_name(graph: &Supergraph, id: SubgraphId) -> String {
    let mut name = Vec::new();
    astjson::print_string(&graph.subgraph(id).name, &mut name);
    String::from_utf8_lossy(&name).into_owned()
}

fn role_text(role: Option<Role>) -> &'static str {
    match role {
        Some(Role::Leader) => "\"leader\"",
        Some(Role::Follower) => "\"follower\"",
        Some(Role::Unshared) => "\"alone\"",
        None => "null",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(text: FetchText, variables: bool) -> String {
        let body = r#"{"query":"query($a:[X!]!){f(id:\"hunter2\",n:7){id}}","variables":{"a":[{"id":1e400}]}}"#;
        let mut out = String::new();
        write_contents(
            &mut out,
            &Bytes::from_static(body.as_bytes()),
            TraceFetches { text, variables },
        );
        out
    }

    #[test]
    fn a_request_shows_what_the_rule_allows() {
        let redacted = r#","text":"query($a:[X!]!){f(id:\"…\",n:0){id}}""#;
        assert_eq!(contents(FetchText::Redacted, false), redacted);
        let full = r#","text":"query($a:[X!]!){f(id:\"hunter2\",n:7){id}}""#;
        assert_eq!(contents(FetchText::Full, false), full);
        let variables = r#","variables":{"a":[{"id":1e400}]}"#;
        assert_eq!(contents(FetchText::Redacted, true), format!("{redacted}{variables}"));
        assert_eq!(contents(FetchText::None, true), variables);
        assert_eq!(contents(FetchText::None, false), "");
    }
}
