//! The spans of one execution: its waves, their requests to subgraphs, the use of its caches, its messages to brokers,
//! and the printing of its response. They are made of a [`Trace`] when a trace is exported, after OpenTelemetry's
//! semantic conventions for HTTP and messages.

use std::collections::BTreeMap;
use std::time::Duration;

use plan::Plan;
use single_flight::Role;
use telemetry::spans::{Attribute, Span, SpanId, SpanKind, SpanList};

use crate::{FetchTrace, Generation, LookupTrace, MessageTrace, Trace};

/// Adds the spans of an execution of `plan`, as children of `parent`.
pub fn write_spans(
    execution: &Trace,
    plan: &Plan,
    generation: &Generation,
    parent: SpanId,
    list: &mut SpanList,
) {
    let started = execution.started();
    let times = |began: Duration, took: Duration| (started + began, started + began + took);
    let (waves, fetches, lookups) = (plan.waves(), execution.fetches(), execution.lookups());
    let has_request = |fetch: usize| fetches.iter().any(|it| it.place.fetch == fetch);
    let is_unsent = |lookup: &&LookupTrace| !has_request(lookup.fetch);
    let sent = fetches.iter().map(|it| (it.place.fetch, it.began, it.began + it.took));
    let unsent = lookups.iter().filter(is_unsent).map(|it| (it.fetch, it.at, it.at));
    // The spans of waves come before those of their fetches: if the trace has too many, fetches are left out first.
    let mut wave_spans = BTreeMap::new();
    for (wave, (began, ended)) in wave_times(&waves, sent.chain(unsent)) {
        let name = format!("wave {wave}").into();
        let mut span = list.internal(parent, name, (started + began, started + ended));
        span.attributes.push(Attribute::number("starling.fetch.wave", wave));
        wave_spans.insert(wave, span.id);
        list.push(span);
    }
    let parent_of = |fetch: usize| {
        let span = waves.get(fetch).and_then(|wave| wave_spans.get(wave));
        span.copied().unwrap_or(parent)
    };
    let lookup_of = |fetch| lookups.iter().find(|it| it.fetch == fetch);
    for fetch in &fetches {
        let index = fetch.place.fetch;
        let span = list.internal(parent_of(index), "".into(), times(fetch.began, fetch.took));
        let mut span = fetch_span(span, fetch, generation);
        span.attributes.extend(place_attributes(index, &waves));
        span.attributes.extend(lookup_of(index).into_iter().flat_map(lookup_attributes));
        list.push(span);
    }
    for lookup in lookups.iter().filter(is_unsent) {
        let Some(fetch) = plan.fetches.get(lookup.fetch) else { continue };
        let subgraph = &generation.graph.subgraph(fetch.subgraph).name;
        let name = format!("cache {subgraph}").into();
        let parent = parent_of(lookup.fetch);
        let mut span = list.internal(parent, name, times(lookup.at, Duration::ZERO));
        span.attributes.push(Attribute::text("starling.subgraph", subgraph.to_string()));
        span.attributes.extend(place_attributes(lookup.fetch, &waves));
        span.attributes.extend(lookup_attributes(lookup));
        list.push(span);
    }
    for message in execution.messages() {
        let span = list.internal(parent, "".into(), times(message.began, message.took));
        list.push(message_span(span, &message, generation));
    }
    if let Some(printing) = execution.printing() {
        let mut span = list.internal(parent, "print".into(), times(printing.began, printing.took));
        span.attributes.push(Attribute::number("starling.response.bytes", printing.bytes));
        list.push(span);
    }
}

/// Completes the span of a request to a subgraph (semantic conventions for HTTP clients).
fn fetch_span(span: Span, fetch: &FetchTrace, generation: &Generation) -> Span {
    let subgraph = generation.graph.subgraph(fetch.subgraph).name.to_string();
    // Room for all that such a span usually has.
    let mut attributes = Vec::with_capacity(15);
    attributes.push(Attribute::text("http.request.method", "POST"));
    attributes.push(Attribute::number("http.request.body.size", fetch.request_bytes));
    if let Some(endpoint) = generation.subgraph(fetch.subgraph).endpoint() {
        attributes.push(Attribute::text("url.full", endpoint.url.to_string()));
        attributes.push(Attribute::text("server.address", endpoint.host.to_string()));
        attributes.extend(endpoint.port.map(|it| Attribute::number("server.port", it)));
    }
    let status = fetch.response.map(|(status, _)| status);
    if let Some((status, bytes)) = fetch.response {
        attributes.push(Attribute::number("http.response.status_code", status));
        attributes.push(Attribute::number("http.response.body.size", bytes));
    }
    let retries = fetch.span.as_ref().map_or(0, |it| it.retries());
    if retries > 0 {
        attributes.push(Attribute::number("http.request.resend_count", retries));
    }
    let hedge = fetch.hedge.map(|it| Attribute::text("starling.fetch.hedge", it.as_str()));
    attributes.extend(hedge);
    let error = match (&fetch.failure, status) {
        (Some(failure), _) => Some((failure.kind(), failure.to_string())),
        (None, Some(status)) if status >= 400 => {
            Some((status.to_string().into(), format!("HTTP status {status}")))
        }
        _ => None,
    };
    let (kind, error) = error.unzip();
    attributes.extend(kind.map(|it| Attribute::text("error.type", it)));
    if fetch.place.entities > 0 {
        attributes.push(Attribute::number("starling.fetch.entities", fetch.place.entities));
    }
    if fetch.place.deduplicated > 0 {
        let deduplicated = fetch.place.deduplicated;
        attributes.push(Attribute::number("starling.fetch.deduplicated", deduplicated));
    }
    let sharing = fetch.role.map(role_name).unwrap_or("alone");
    attributes.push(Attribute::text("starling.fetch.sharing", sharing));
    let name = format!("POST {subgraph}").into();
    attributes.push(Attribute::text("starling.subgraph", subgraph));
    // The request of a follower was sent by another operation.
    let kind = match fetch.role {
        Some(Role::Follower) => SpanKind::Internal,
        _ => SpanKind::Client,
    };
    let id = fetch.span.as_ref().map_or(span.id, |it| it.id);
    Span { id, name, kind, attributes, error: error.map(Into::into), ..span }
}

/// Completes the span of a message (semantic conventions for messages).
fn message_span(span: Span, message: &MessageTrace, generation: &Generation) -> Span {
    let field = &generation.graph.field(message.field).name;
    let mut attributes = vec![
        Attribute::text("messaging.operation.type", "send"),
        Attribute::text("messaging.operation.name", "send"),
        Attribute::text("starling.field", field.to_string()),
    ];
    if let Some(destination) = message.span.destination() {
        let provider = &destination.provider;
        let system = provider.split('/').next().unwrap_or_default().to_owned();
        attributes.push(Attribute::text("messaging.system", system));
        let topic = destination.topic.to_string();
        let name = match destination.is_template {
            true => "messaging.destination.template",
            false => "messaging.destination.name",
        };
        attributes.push(Attribute::text(name, topic));
        attributes.push(Attribute::text("starling.provider", provider.to_string()));
    }
    let error = message.has_failed.then(|| "the message was not sent, or got no response".into());
    let (id, name) = (message.span.id, format!("send {field}").into());
    Span { id, name, kind: SpanKind::Producer, attributes, error, ..span }
}

fn place_attributes(fetch: usize, waves: &[u32]) -> impl Iterator<Item = Attribute> {
    let wave = waves.get(fetch).map(|&it| Attribute::number("starling.fetch.wave", it));
    std::iter::once(Attribute::number("starling.fetch.index", fetch)).chain(wave)
}

/// The numbers of entries by their place; those that are 0 are left out.
fn lookup_attributes(lookup: &LookupTrace) -> impl Iterator<Item = Attribute> {
    let counts = [
        ("starling.cache.fresh", lookup.fresh),
        ("starling.cache.stale", lookup.stale),
        ("starling.cache.awaited", lookup.awaited),
        ("starling.cache.missed", lookup.sent),
        ("starling.cache.stale_if_error", lookup.stale_if_error),
    ];
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    counts.map(|(name, count)| Attribute::number(name, count))
}

/// Returns the beginning and end of each wave that had a fetch: from the beginning of its first fetch to the end of its
/// last one. `waves` has the wave of each fetch of the plan; `fetches` have their index there, their beginning and end.
///
/// A fetch begins as soon as the fetches that it depends on have ended, so waves may overlap.
fn wave_times(
    waves: &[u32],
    fetches: impl Iterator<Item = (usize, Duration, Duration)>,
) -> BTreeMap<u32, (Duration, Duration)> {
    let mut times = BTreeMap::new();
    for (fetch, began, ended) in fetches {
        let Some(&wave) = waves.get(fetch) else { continue };
        let (first, last) = times.entry(wave).or_insert((began, ended));
        (*first, *last) = ((*first).min(began), (*last).max(ended));
    }
    times
}

/// Returns the way in which work was shared, as spans have it.
pub fn role_name(role: Role) -> &'static str {
    match role {
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::Unshared => "alone",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wave_lasts_from_its_first_fetch_to_its_last_and_may_overlap_the_next() {
        let at = Duration::from_millis;
        // The last fetch depends on the first one only, so it does not wait for the second one.
        let waves = [1, 1, 2];
        let fetches = [(0, at(1), at(3)), (2, at(4), at(6)), (1, at(0), at(9))];
        let expected = BTreeMap::from([(1, (at(0), at(9))), (2, (at(4), at(6)))]);
        assert_eq!(wave_times(&waves, fetches.into_iter()), expected);
    }

    #[test]
    fn a_wave_without_a_fetch_has_no_time() {
        let at = Duration::from_millis;
        let expected = BTreeMap::from([(2, (at(4), at(4)))]);
        assert_eq!(wave_times(&[1, 2], [(1, at(4), at(4))].into_iter()), expected);
    }
}
