//! Splits requests for entities. A list that is too long for one request is cut, and a request with
//! several aliases that failed as a whole is repeated with each alias alone.

use std::ops::Range;

use bytes::Bytes;
use http::StatusCode;
use plan::{EntityBatch, Fetch, FetchKind};

use super::Execution;
use super::in_flight::{OutgoingRequest, SentRequest};
use crate::FetchError;
use crate::executable::request_head;
use crate::item_lists::list_items;
use crate::representations::{CollectedBatch, CollectedObject};

/// The position in a request body at which the lists of representations begin.
#[derive(Clone, Copy)]
pub(super) struct ListStart {
    /// Number of bytes before the name of the first list.
    pub(super) at: usize,
    /// The separator between the first list and the variables before it.
    pub(super) separator: &'static [u8],
}

/// Cuts a request body, which is complete except for its end, into several of at most `max`
/// representations. Each body has all lists; those without a representation in it are empty.
pub(super) fn split_body(
    body: &[u8],
    start: ListStart,
    batches: &[EntityBatch],
    collected: Vec<CollectedBatch>,
    max: u32,
) -> Vec<(Bytes, Vec<CollectedBatch>)> {
    let max = max.max(1) as usize;
    let items: Vec<Vec<Range<usize>>> =
        collected.iter().map(|batch| list_items(body, batch.list.clone())).collect();
    let total: usize = items.iter().map(Vec::len).sum();
    let mut parts = Vec::with_capacity(total.div_ceil(max));
    for part in 0..total.div_ceil(max) {
        // Representations are counted through all batches: this part has these.
        let (first, end) = (part * max, (part + 1) * max);
        let mut text = body[..start.at].to_vec();
        let mut separator = start.separator;
        let mut before = 0;
        let mut all = Vec::with_capacity(batches.len());
        for (batch, items) in batches.iter().zip(&items) {
            let own = first.clamp(before, before + items.len()) - before
                ..end.clamp(before, before + items.len()) - before;
            before += items.len();
            text.extend_from_slice(separator);
            separator = b",";
            text.push(b'"');
            text.extend_from_slice(batch.variable.as_bytes());
            text.extend_from_slice(b"\":");
            let list = text.len();
            text.push(b'[');
            if let (Some(first), Some(last)) = (items.get(own.start), items[own.clone()].last()) {
                text.extend_from_slice(&body[first.start..last.end]);
            }
            text.push(b']');
            all.push(CollectedBatch {
                objects: Vec::new(),
                items: own.len() as u32,
                remembered: Vec::new(),
                list: list..text.len(),
            });
        }
        text.extend_from_slice(b"}}");
        parts.push((Bytes::from(text), all));
    }
    let mut before = 0;
    for (batch, collected) in collected.into_iter().enumerate() {
        for object in collected.objects {
            let number = before + object.item as usize;
            let part = number / max;
            let first = (part * max).max(before);
            let item = (number - first) as u32;
            parts[part].1[batch].objects.push(CollectedObject { item, ..object });
        }
        before += items[batch].len();
    }
    parts
}

/// True if a smaller request may succeed where this one failed. False if the subgraph sent no
/// response, or if the subgraph or a proxy is overloaded.
pub(super) fn may_succeed_smaller(error: &FetchError) -> bool {
    match error {
        FetchError::TooLarge { .. } => true,
        FetchError::Status { status, .. } => !is_overload(*status),
        FetchError::Connect(_)
        | FetchError::Closed(_)
        | FetchError::Timeout(_)
        | FetchError::Protocol(_)
        | FetchError::MemoryUsedUp
        | FetchError::Overloaded
        | FetchError::Unavailable(_)
        | FetchError::NoServer => false,
    }
}

/// True if a response with this status says that the subgraph or a proxy is overloaded.
pub(super) fn is_overload(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

impl<'a> Execution<'a> {
    /// Repeats a request that failed as a whole, with each alias alone. Returns false if the
    /// request cannot be split, or was split before.
    pub(super) fn retry_aliases_alone(
        &mut self,
        request: usize,
        calls: &mut Vec<(usize, OutgoingRequest<'a>)>,
    ) -> bool {
        let executable = self.executable;
        let index = self.sent[request].fetch;
        let fetch: &'a Fetch = &executable.plan().fetches[index];
        let FetchKind::Entities { batches, .. } = &fetch.kind else { return false };
        let sent = &mut self.sent[request];
        let body = std::mem::take(&mut sent.body);
        let asked = sent.collected.iter().filter(|batch| batch.items > 0).count();
        if body.is_empty() || asked < 2 || batches.iter().any(|batch| batch.alone.is_none()) {
            return false;
        }
        let collected = std::mem::take(&mut sent.collected);
        let count = collected.len();
        for (number, batch) in collected.into_iter().enumerate() {
            let Some(operation) = &batches[number].alone else { continue };
            if batch.items == 0 {
                continue;
            }
            let mut text = request_head(operation);
            let separator = self.write_variables(operation, &mut text);
            text.extend_from_slice(separator);
            text.push(b'"');
            text.extend_from_slice(batches[number].variable.as_bytes());
            text.extend_from_slice(b"\":");
            text.extend_from_slice(&body[batch.list.clone()]);
            text.extend_from_slice(b"}}");
            let call = OutgoingRequest::subgraph(operation, Bytes::from(text));
            let mut own: Vec<CollectedBatch> = Vec::with_capacity(count);
            own.resize_with(count, CollectedBatch::default);
            own[number] = batch;
            self.send(SentRequest::entities(index, own, Bytes::new()), call, calls);
        }
        self.context.generation.subgraph(fetch.subgraph).note_split();
        true
    }
}
