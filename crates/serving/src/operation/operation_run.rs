//! Running a prepared query or mutation: its response is taken from memory, from an equal operation in flight, or
//! executed.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clients::client_deadline::ClientDeadline;
use execute::{ErrorCode, GraphqlError, Payload};
use plan::OperationKind;
use prepare::Prepared;
use single_flight::{Role, WorkFailed};

use super::execution::{ExecutionLimits, execute_and_store, refresh, subgraph_places};
use super::response_lookup::{may_share, stored_response};
use crate::busy_time;
use crate::caching::ResponseLookup;
use crate::cost_control;
use crate::figures::response_origins::ResponseOrigin;
use crate::operation_spans::OperationSpans;
use crate::overload::bulkheads::PlanPlaces;
use crate::overload::work_ticket::{WorkResult, WorkTicket};
use crate::prepared_request::PreparedRequest;
use crate::serving::Serving;
use crate::sharing::OperationKey;
use crate::trace::{RequestTrace, ResponseSource};

/// Returns the error for a client that requests a subscription or a live query over a transport without a stream.
pub fn needs_a_stream(prepared: &Prepared) -> GraphqlError {
    let (what, first) = match prepared.live {
        Some(_) => ("live query", "result"),
        None => ("subscription", "event"),
    };
    let message = format!(
        "a {what} needs a stream: send it with `Accept: text/event-stream` or `multipart/mixed`, over a WebSocket with \
         the subprotocol graphql-transport-ws, or with the URL parameter `once` for the first {first} only"
    );
    GraphqlError::new(ErrorCode::BadRequest, message)
}

/// Runs a query or mutation to its end, or joins an equal query that is in flight. The payload of a traced operation
/// contains its cost, if the configuration allows the trace for the request.
///
/// # Errors
/// The operation is a subscription or a live query: its response is a stream, which `hub` creates.
pub async fn run(
    serving: &Serving,
    mut ready: PreparedRequest,
    trace: Option<RequestTrace>,
) -> Result<Payload, Vec<GraphqlError>> {
    let trace = trace.filter(|_| ready.allows_trace);
    // Taken out of the request, which may be kept as the key of shared work. An operation with files proceeds as fast
    // as its client sends them, and holds no work of others meanwhile.
    let ticket = ready.ticket.take().filter(|_| ready.uploads.is_none());
    let _memory = ready.memory.take();
    // The record ends with the operation of this client, and not with the work that it shares with others.
    let spans = ready.spans.take();
    let figures = serving.figures.as_ref().zip(ready.figures);
    let kind = ready.prepared.kind;
    let began = Instant::now();
    let is_measured = ticket.is_some() || figures.is_some();
    let measured = {
        let add_cost = |step| {
            if let Some(ticket) = &ticket {
                ticket.add_busy(step);
            }
        };
        let parts = (trace, spans.as_deref(), ticket.as_deref());
        let running = pin!(run_admitted(serving, ready, parts, began));
        busy_time::measure(running, began, is_measured, add_cost).await
    };
    // The end of the operation, for everything that counts it.
    let ended = measured.ended.unwrap_or_else(Instant::now);
    let (result, origin) = match measured.output {
        Ok((payload, origin)) => (Ok(payload), Some(origin)),
        Err(errors) => (Err(errors), None),
    };
    let result = note_result(spans.as_deref(), result);
    let has_failed = !result.as_ref().is_ok_and(|payload| payload.errors == 0);
    let span = spans.as_ref().and_then(|it| it.exemplar(has_failed));
    if result.is_ok() {
        serving.metrics.count(kind, has_failed, ended.saturating_duration_since(began), span);
    }
    if let Some((figures, request)) = figures {
        figures.count_result(request, (ended, measured.busy), (origin, span), &result);
    }
    if let Some(ticket) = ticket.and_then(Arc::into_inner) {
        ticket.end(ended);
    }
    result
}

/// Notes the result of an operation in its record.
fn note_result(
    spans: Option<&OperationSpans>,
    result: Result<Payload, Vec<GraphqlError>>,
) -> Result<Payload, Vec<GraphqlError>> {
    if let Some(spans) = spans {
        match &result {
            Ok(payload) => spans.note_payload(payload),
            Err(errors) => spans.note_refusal(errors),
        }
    }
    result
}

/// Runs a query or mutation from `began` on, with the right to work on it. Also returns the origin of the response.
async fn run_admitted(
    serving: &Serving,
    ready: PreparedRequest,
    (mut trace, spans, ticket): (
        Option<RequestTrace>,
        Option<&OperationSpans>,
        Option<&WorkTicket>,
    ),
    began: Instant,
) -> Result<(Payload, ResponseOrigin), Vec<GraphqlError>> {
    let set_result = |result| {
        if let Some(ticket) = ticket {
            ticket.set_result(result);
        }
    };
    let kind = ready.prepared.kind;
    if ready.prepared.has_stream() {
        let error = needs_a_stream(&ready.prepared);
        serving.metrics.count_refusal(error.code);
        return Err(vec![error]);
    }
    let bindings = &ready.loaded.bindings;
    let claims = ready.identity.claims();
    // If the only root field is forbidden, fails the whole request so that HTTP can respond with 403.
    if let Err(error) =
        bindings.authorize_single_root(&ready.prepared.plan, &ready.variables, claims)
    {
        serving.metrics.count_refusal(error.code);
        return Err(vec![error]);
    }
    if let Some(uploads) = &ready.uploads {
        let checked = uploads.check_plan(&ready.prepared.plan, &ready.variables);
        checked.map_err(|error| vec![error])?;
    }
    // Files take the time of the client's network, which is not that of the operation.
    let upload_time = ready.uploads.as_ref().map_or(Duration::ZERO, |it| it.time_max());
    let own_deadline = began + serving.time_max + upload_time;
    let deadline =
        ready.client_deadline.map_or(own_deadline, |ClientDeadline(it)| it.min(own_deadline));
    let subgraphs = &serving.sharing.subgraphs;
    let fetches = match (&mut trace, spans) {
        (trace, Some(spans)) => {
            let keeps_bodies = trace.as_ref().is_some_and(RequestTrace::shows_contents);
            let fetches = spans.begin_execution(keeps_bodies);
            if let Some(trace) = trace {
                trace.fetches = Arc::clone(&fetches);
            }
            Some(fetches)
        }
        (Some(trace), None) => Some(Arc::clone(&trace.fetches)),
        (None, None) => None,
    };
    let shown_cost = ready.cost.filter(|_| ready.shows_cost);
    // hot path: few requests are traced, and all workers would write to the counts of these references.
    let traced = trace.as_ref();
    let traced =
        traced.map(|_| (Arc::clone(&ready.prepared.plan), Arc::clone(&ready.loaded.generation)));
    let with_trace = |payload: Payload, role, source| {
        if let Some(spans) = spans {
            spans.note_sharing(role, source);
        }
        let payload = match (&trace, &traced) {
            (Some(trace), Some((plan, generation))) => {
                trace.put(&payload, role, source, plan, &generation.graph)
            }
            _ => payload,
        };
        (payload, ResponseOrigin::of(role, source))
    };
    let is_query = kind == OperationKind::Query;
    let mut source = ready.caching.filter(|_| is_query).map(|_| ResponseSource::NotLookedUp);
    let must_execute = trace.as_ref().is_some_and(|it| it.must_execute);
    let slot = match stored_response(&ready, must_execute) {
        Some(ResponseLookup::Hit(stored)) => {
            set_result(WorkResult::Unmeasured);
            let source = Some(stored.source());
            return Ok(with_trace(with_cost(stored.payload, shown_cost), None, source));
        }
        Some(ResponseLookup::Refresh(stored, slot, rights)) => {
            set_result(WorkResult::Unmeasured);
            // The client has its response, and its patience is no limit of a refresh.
            refresh(ready, slot, rights, Arc::clone(subgraphs), own_deadline);
            let source = Some(stored.source());
            return Ok(with_trace(with_cost(stored.payload, shown_cost), None, source));
        }
        Some(ResponseLookup::Miss(slot)) => {
            source = Some(ResponseSource::Executed);
            Some(slot)
        }
        None => None,
    };
    let places = subgraph_places(&ready, ticket);
    let closed = places.as_ref().and_then(|it| it.closed.clone());
    let (mut payload, role) = match &serving.sharing.operations {
        // An operation without fetches ends before another one could join it.
        Some(flights)
            if kind == OperationKind::Query
                && !ready.prepared.plan.fetches.is_empty()
                && closed.is_none()
                && may_share(&ready) =>
        {
            let ready = Arc::new(ready);
            // Both numbers only grow, so their sum is the same only if both are.
            let epoch = subgraphs.epoch.now() + ready.loaded.generation.invalidations();
            let key = OperationKey { epoch, ready: Arc::clone(&ready) };
            let subgraphs = Arc::clone(subgraphs);
            let start = || async move {
                let limits = ExecutionLimits { deadline, closed_subgraphs: None };
                execute_and_store(&ready, slot, subgraphs, fetches, limits).await
            };
            match Box::pin(flights.join(key, deadline, start)).await {
                Ok((payload, role)) => (payload?, Some(role)),
                Err(WorkFailed) => return Err(vec![broken()]),
            }
        }
        _ => {
            let limits = ExecutionLimits { deadline, closed_subgraphs: closed };
            let work = execute_and_store(&ready, slot, Arc::clone(subgraphs), fetches, limits);
            (Box::pin(work).await?, None)
        }
    };
    let has_errors = payload.errors > 0;
    set_result(match role {
        Some(Role::Follower) => {
            payload.subgraph_requests = 0;
            WorkResult::Shared
        }
        // The share of a slow subgraph bounds those that wait for it, and the limit need not.
        _ if has_errors && places.as_ref().is_some_and(PlanPlaces::has_slow_subgraph) => {
            WorkResult::Unmeasured
        }
        _ if has_errors => WorkResult::Failed,
        _ => WorkResult::Executed,
    });
    Ok(with_trace(with_cost(payload, shown_cost), role, source))
}

/// Adds the cost of a response, if the client sees it.
fn with_cost(payload: Payload, shown_cost: Option<u64>) -> Payload {
    match shown_cost {
        None => payload,
        Some(estimated) => cost_control::show(&payload, estimated),
    }
}

fn broken() -> GraphqlError {
    let message = "the operation failed because of a defect of the router";
    GraphqlError::new(ErrorCode::InternalServerError, message)
}
