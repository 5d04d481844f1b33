//! Preparing an operation: it is looked up, authorized, planned and admitted by its rate limits, its values are read,
//! and its headers for subgraphs are computed.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clients::authentication::Identity;
use clients::error_mapping;
use clients::offload::INLINE_BYTES_MAX;
use clients::request_extensions::NotAString;
use clients::request_source::RequestSource;
use execute::{ClientKey, ErrorCode, GraphqlError};
use plan::OperationKind;
use prepare::{OperationRequest, PrepareError, PrepareSteps};

use super::operation_lookup::resolve;
use super::request_values::{ParsedValues, UnparsedValues};
use super::work_admission::{AdmittedWork, admit};
use crate::admission::AdmissionRequest;
use crate::busy_time;
use crate::field_access::{AccessDecision, AccessRequest};
use crate::figures::RequestFigures;
use crate::forwarding::{ClientHeaders, ForwardingFacts};
use crate::prepared_request::PreparedRequest;
use crate::request_facts::KnownOperation;
use crate::serving::Serving;
use crate::trace;

/// The client of an operation, and the message in which the operation came.
pub struct OperationClient<'a> {
    /// The headers of the message.
    pub headers: ClientHeaders<'a>,
    /// The identity of the client.
    pub identity: Identity,
    /// The key of the client's address.
    pub address: ClientKey,
    /// The request, for rules.
    pub source: RequestSource<'a>,
}

/// Admits the operation of `request` ([`admit`]). Looks it up if it has an id or a hash, checks that unknown operations
/// may run, and prepares it for the current graph. The work waits in the queue of its client: of its identity, or of
/// its address if the client is anonymous.
///
/// # Errors
/// Request errors: the operation does not run and the response has no `data`.
pub async fn prepare_for(
    serving: &Serving,
    request: &OperationRequest,
    client: OperationClient<'_>,
) -> Result<PreparedRequest, Vec<GraphqlError>> {
    let operations = std::slice::from_ref(request);
    let OperationClient { headers, ref identity, address, source } = client;
    let admitted = admit(serving, operations, headers.map(), identity, address, source);
    let AdmittedWork { ticket, memory, arrived, began } = admitted.await?;
    let is_measured = ticket.is_some() || serving.figures.is_some();
    let add_cost = |step| {
        if let Some(ticket) = &ticket {
            ticket.add_busy(step);
        }
    };
    let prepare = pin!(prepare_admitted(serving, request, client, began));
    let measured = busy_time::measure(prepare, began, is_measured, add_cost).await;
    let mut ready = note_preparing(measured.output?, arrived, measured.busy);
    ready.ticket = ticket.map(Arc::new);
    ready.memory = Some(memory);
    Ok(ready)
}

/// Prepares one operation of a batch, which was admitted as a whole, as [`prepare_for`] does.
///
/// # Errors
/// The same as for [`prepare_for`].
pub async fn prepare_in_batch(
    serving: &Serving,
    request: &OperationRequest,
    client: OperationClient<'_>,
) -> Result<PreparedRequest, Vec<GraphqlError>> {
    let began = Instant::now();
    let prepare = pin!(prepare_admitted(serving, request, client, began));
    let is_measured = serving.figures.is_some();
    let measured = busy_time::measure(prepare, began, is_measured, |_| {}).await;
    Ok(note_preparing(measured.output?, began, measured.busy))
}

/// Notes in the figures of an operation when its request arrived, and the time that the worker has spent on preparing
/// it.
fn note_preparing(mut ready: PreparedRequest, arrived: Instant, busy: Duration) -> PreparedRequest {
    if let Some(figures) = &mut ready.figures {
        figures.set_preparing(arrived, busy);
    }
    ready
}

/// Looks up and prepares the operation of `request` from `now` on, and counts it if it is refused.
async fn prepare_admitted(
    serving: &Serving,
    request: &OperationRequest,
    client: OperationClient<'_>,
    now: Instant,
) -> Result<PreparedRequest, Vec<GraphqlError>> {
    let mut figures = serving.figures.as_ref().map(|it| it.begin(client.headers.map(), now));
    let mut resolved_at = now;
    // Steps that most requests do not take are boxed, here and below: the state of all steps is moved several times for
    // each request.
    let resolved = if !serving.known_operations.is_concerned(request) {
        None
    } else if let Some(resolved) = serving.known_operations.find_document(request) {
        Some(resolved)
    } else {
        let OperationClient { headers, ref identity, address, source } = client;
        let resolving = resolve(serving, request, headers.map(), identity, address, source);
        let resolved = Box::pin(resolving).await;
        resolved_at = Instant::now();
        resolved.inspect_err(|errors| count_refusal(serving, figures, errors))?
    };
    let request = resolved.as_ref().map_or(request, |it| &it.request);
    let deadline = client.source.deadline_within(resolved_at, serving.time_max);
    let ready = prepare_counted(serving, request, client, &mut figures, deadline).await;
    let mut ready = ready.inspect_err(|errors| count_refusal(serving, figures, errors))?;
    ready.figures = figures;
    if let Some(resolved) = &resolved {
        resolved.store(&serving.known_operations);
    }
    Ok(ready)
}

/// Counts an operation that was refused, in the metrics of single operations and clients.
fn count_refusal(serving: &Serving, request: Option<RequestFigures>, errors: &[GraphqlError]) {
    if let Some((figures, request)) = serving.figures.as_ref().zip(request) {
        figures.count_refusal(request, errors);
    }
}

/// Prepares the text of `request` as [`prepare_for`] does, without admitting it, looking it up and counting it: a
/// client that was allowed to subscribe keeps its subscription.
///
/// # Errors
/// The same as for [`prepare_for`].
pub async fn prepare_text(
    serving: &Serving,
    request: &OperationRequest,
    client: OperationClient<'_>,
) -> Result<PreparedRequest, Vec<GraphqlError>> {
    let deadline = client.source.deadline_within(Instant::now(), serving.time_max);
    prepare_counted(serving, request, client, &mut None, deadline).await
}

/// Prepares the text of `request` until `deadline`, and notes the operation in `figures` when it is known.
async fn prepare_counted(
    serving: &Serving,
    request: &OperationRequest,
    OperationClient { headers: client_headers, identity, address, source }: OperationClient<'_>,
    figures: &mut Option<RequestFigures>,
    deadline: Instant,
) -> Result<PreparedRequest, Vec<GraphqlError>> {
    let loaded = serving.current();
    if identity.claims().is_some_and(|it| !it.has_kept(&loaded.read_claims)) {
        let message = "the graph was replaced and reads other claims of tokens: connect again";
        serving.metrics.count_refusal(ErrorCode::GraphReloaded);
        return Err(vec![GraphqlError::new(ErrorCode::GraphReloaded, message)]);
    }
    let client = || identity.client_key().unwrap_or(address);
    let refused = |error: &PrepareError| {
        let errors = error_mapping::errors(error);
        if let Some(first) = errors.first() {
            serving.metrics.count_refusal(first.code);
        }
        errors
    };
    let mut decision = AccessDecision::default();
    if let Some(access) = &loaded.access {
        let facts = Box::pin(loaded.preparer.access_facts(request, client, deadline)).await;
        if let Some(facts) = facts.map_err(|error| refused(&error))? {
            let (identity, headers) = (&identity, client_headers.map());
            let request = AccessRequest { operation: &facts, identity, headers, source };
            decision = Box::pin(access.decide(request, &serving.metrics)).await;
        }
    }
    let AccessDecision { unmet, decided } = decision;
    let records_steps = source.trace.is_some() || figures.is_some();
    let mut steps = records_steps.then(PrepareSteps::default);
    let preparing =
        loaded.preparer.prepare_recorded(request, &unmet, client, deadline, steps.as_mut());
    let prepared = preparing.await;
    if let Some((figures, steps)) = figures.as_mut().zip(steps.as_ref()) {
        figures.set_was_prepared(steps.is_empty());
    }
    if let Some((trace, steps)) = source.trace.zip(steps) {
        trace.steps.set(steps);
    }
    let prepared = prepared.map_err(|error| refused(&error))?;
    if let Some((tables, figures)) = serving.figures.as_ref().zip(figures.as_mut()) {
        tables.note_operation(figures, &prepared);
    }
    let not_admitted = |error: GraphqlError| {
        serving.metrics.count_refusal(error.code);
        vec![error]
    };
    let mut admitted = AdmissionRequest {
        operation: KnownOperation { prepared: &prepared, cost: None },
        source,
        headers: client_headers.map(),
        claims: identity.claims(),
    };
    if let (Some(ratios), Some(trace)) = (&loaded.trace_ratios, source.trace)
        && let Some(ratio) = ratios.ratio_of(&admitted, &loaded.expressions)
    {
        trace.request.choose_ratio(ratio);
    }
    if let (Some(recorded), Some(trace)) = (&loaded.recorded, source.trace)
        && recorded.is_true(&admitted, &loaded.expressions)
    {
        trace.request.select_for_recorder();
    }
    if let Some(admission) = &loaded.admission {
        let pending = admission.check(admitted, &loaded.expressions).map_err(not_admitted)?;
        if let Some(pending) = pending {
            Box::pin(pending.decide()).await.map_err(not_admitted)?;
        }
    }
    let values = UnparsedValues::of(prepared.kind, request, client_headers.map());
    let read = if values.bytes() <= INLINE_BYTES_MAX {
        values.read(&prepared)
    } else {
        let (prepared, size) = (Arc::clone(&prepared), values.bytes());
        let read = move || values.read(&prepared);
        let read = Box::pin(serving.limits.offload.run(client(), size, deadline, read)).await;
        read.map_err(|not_done| {
            let error = not_done.error();
            serving.metrics.count_refusal(error.code);
            vec![error]
        })?
    };
    let ParsedValues { variables, variables_text, resume } =
        read.map_err(|error| refused(&error))?;
    if let Some(access) = &loaded.access
        && let Err(errors) = access.check_prepared(&prepared, &variables)
    {
        serving.metrics.count_refusal(ErrorCode::UnauthorizedFieldOrType);
        return Err(errors);
    }
    let (cost, shows_cost) = match (&loaded.cost, &prepared.cost) {
        (Some(control), Some(cost)) => {
            let checked = control.check(cost, &variables, &loaded.generation.graph);
            let estimated = checked.map_err(not_admitted)?;
            (Some(estimated), control.is_requested(client_headers.map()))
        }
        _ => (None, false),
    };
    admitted.operation.cost = cost;
    if let Some(admission) = &loaded.admission {
        let pending = admission.check_cost(admitted, &loaded.expressions).map_err(not_admitted)?;
        if let Some(pending) = pending {
            Box::pin(pending.decide()).await.map_err(not_admitted)?;
        }
    }
    let allows_trace = loaded.response_traces.as_ref().is_none_or(|condition| {
        let is_requested = client_headers.map().contains_key(trace::HEADER);
        is_requested && condition.is_true(&admitted, &loaded.expressions)
    });
    let facts =
        ForwardingFacts { claims: identity.claims(), source, operation: Some(admitted.operation) };
    let headers = loaded.forwarding.apply(client_headers, facts, &loaded.expressions);
    let resume = resume.map_err(|NotAString| {
        let message = "`extensions.cursor` must be a text from `extensions.cursor` of a payload";
        vec![GraphqlError::new(ErrorCode::CursorInvalid, message)]
    })?;
    // A mutation stores what it returns at most, and an event is newer than what is stored.
    let stores = prepared.kind != OperationKind::Subscription;
    let caching = loaded.caching.as_ref().filter(|_| stores);
    let caching = caching.map(|it| {
        it.request_caching(identity.claims(), client_headers.map(), prepared.live.is_some())
    });
    let extensions = match prepared.kind {
        OperationKind::Subscription => request.extensions.clone(),
        OperationKind::Query | OperationKind::Mutation => Bytes::new(),
    };
    Ok(PreparedRequest {
        loaded,
        prepared,
        variables,
        variables_text,
        extensions,
        headers,
        identity,
        decided,
        resume,
        cost,
        shows_cost,
        allows_trace,
        uploads: None,
        caching,
        client_deadline: source.deadline,
        ticket: None,
        memory: None,
        figures: None,
        spans: None,
        cause: None,
        logged: None,
    })
}
