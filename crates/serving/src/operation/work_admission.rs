//! The right to work: a request enters before anything is done for it.

use std::time::Instant;

use admission::Class;
use admission::memory::MemoryCharge;
use clients::authentication::Identity;
use clients::handshake_pace::{HandshakeClient, HandshakeRank};
use clients::memory_refusal::memory_used_up;
use clients::request_source::RequestSource;
use execute::{ClientKey, GraphqlError};
use prepare::OperationRequest;

use crate::overload::work_ticket::WorkTicket;
use crate::overload::{ArrivingRequest, overloaded};
use crate::serving::Serving;

/// The right to work on the operations of one request. When it is dropped, the work on them has ended.
#[derive(Debug)]
pub struct AdmittedWork {
    /// The right to work, with overload protection.
    pub ticket: Option<WorkTicket>,
    /// The memory that the request counts with.
    pub memory: MemoryCharge,
    /// The time at which the request arrived.
    pub arrived: Instant,
    /// The time at which the work could begin: the same if the request did not wait.
    pub began: Instant,
}

/// Admits the operations of one request before anything is done for them: they must fit into the memory budget and, if
/// there is overload protection, into the limit. While the limit is reached, it waits.
///
/// # Errors
/// `OVERLOADED`: none of the operations runs.
pub async fn admit(
    serving: &Serving,
    operations: &[OperationRequest],
    headers: &http::HeaderMap,
    identity: &Identity,
    address: ClientKey,
    source: RequestSource<'_>,
) -> Result<AdmittedWork, Vec<GraphqlError>> {
    let is_handshake = false;
    let arriving = ArrivingRequest { identity, headers, address, source, is_handshake };
    let admitted = admit_arriving(serving, operations, arriving).await;
    admitted.inspect_err(|errors| {
        if let Some(figures) = &serving.figures {
            figures.count_refusal(figures.begin(headers, Instant::now()), errors);
        }
    })
}

async fn admit_arriving(
    serving: &Serving,
    operations: &[OperationRequest],
    arriving: ArrivingRequest<'_>,
) -> Result<AdmittedWork, Vec<GraphqlError>> {
    // Everything that an admission at once needs the time for.
    let arrived = Instant::now();
    let memory = charge(serving)?;
    let ticket = admit_to_limit(serving, operations, arriving, None, arrived).await?;
    let began = ticket.as_ref().map_or(arrived, WorkTicket::began);
    Ok(AdmittedWork { ticket, memory, arrived, began })
}

/// Admits a WebSocket handshake: a router without memory or, with overload protection, at its limit takes no further
/// connections, because their subscriptions would be more work. While the limit is reached, the handshake waits. With
/// overload protection, handshakes have an even pace besides, in turns by client, critical ones first.
///
/// # Errors
/// `OVERLOADED`: the handshake is refused.
pub async fn admit_handshake(
    serving: &Serving,
    headers: &http::HeaderMap,
    identity: &Identity,
    address: ClientKey,
    source: RequestSource<'_>,
) -> Result<(), Vec<GraphqlError>> {
    // Counted while it waits.
    let _memory = charge(serving)?;
    // The work is done by the time at which it could be measured, so tickets are given back as those of abandoned work.
    // The metrics of clients count operations only.
    let is_handshake = true;
    let arriving = ArrivingRequest { identity, headers, address, source, is_handshake };
    let class = serving.overload.as_ref().map(|it| it.class(&arriving));
    if let (Some(pace), Some(overload)) = (&serving.limits.handshakes, &serving.overload) {
        let rank = match (class.unwrap_or(Class::Normal), identity.is_anonymous()) {
            (Class::Critical, _) => HandshakeRank::Critical,
            (_, false) => HandshakeRank::Identified,
            (_, true) => HandshakeRank::Anonymous,
        };
        let client = HandshakeClient { rank, key: overload.client(&arriving) };
        let turn = pace.wait(client, &serving.limits.memory, &**overload).await;
        turn.map_err(|refusal| refused(serving, overloaded(refusal.retry_after_seconds)))?;
    }
    admit_to_limit(serving, &[], arriving, class, Instant::now()).await.map(drop)
}

/// Counts the memory of a request.
fn charge(serving: &Serving) -> Result<MemoryCharge, Vec<GraphqlError>> {
    let memory = &serving.limits.memory;
    MemoryCharge::of_operation(memory).map_err(|_| refused(serving, memory_used_up(memory)))
}

/// Waits for a place below the limit, from `now` on, if there is overload protection. `class` is that of the request,
/// if it is known already.
async fn admit_to_limit(
    serving: &Serving,
    operations: &[OperationRequest],
    arriving: ArrivingRequest<'_>,
    class: Option<Class>,
    now: Instant,
) -> Result<Option<WorkTicket>, Vec<GraphqlError>> {
    let Some(overload) = &serving.overload else { return Ok(None) };
    let deadline = arriving.source.deadline_within(now, serving.time_max);
    let class = class.unwrap_or_else(|| overload.class(&arriving));
    let admitted = overload.admit(operations, arriving, class, now, deadline).await;
    admitted.map(Some).map_err(|error| refused(serving, error))
}

fn refused(serving: &Serving, error: GraphqlError) -> Vec<GraphqlError> {
    serving.metrics.count_refusal(error.code);
    vec![error]
}
