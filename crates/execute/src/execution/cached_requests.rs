//! Requests in front of the cache of subgraph responses: what is stored is not requested.
//!
//! A request is divided by its representations into up to three: those that are stored, which is merged like a
//! response; those that another operation is fetching, which looks again when that has ended; and the rest, which is
//! sent. [`super::cached_root_fields`] does the same for root fields.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cache::{EntryAddress, Hit, Lookup, PolicyFold, RefreshClaim};
use http::{HeaderMap, StatusCode};
use plan::{Fetch, FetchKind, OperationKind, SubgraphOperation};

use super::Execution;
use super::in_flight::{OutgoingRequest, SentRequest};
use super::item_parts::{divide_request, select_items};
use super::request_splitting::list_items;
use crate::caching::{
    Addresses, FetchCaching, FlightGuard, InFlight, RequestParts, RequestedEntities,
    RequestedEntries, ResponseStoring, SubgraphCaches, flight_key,
};
use crate::representations::CollectedBatch;
use crate::{SubgraphRequest, SubgraphResponse};

/// The maximum duration of a refresh in the background. The subgraph's own timeout may end it earlier.
const REFRESH_TIME_MAX: Duration = Duration::from_secs(10);

/// The part of a request to which a representation belongs.
pub(super) const MISSING: u8 = 0;
pub(super) const STORED: u8 = 1;
pub(super) const AWAITED: u8 = 2;

/// True for a request that has waited for others already: it is sent without waiting again, because the others may not
/// have stored anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Look {
    First,
    Again,
}

/// The results of the lookups of one request.
#[derive(Default)]
pub(super) struct Found {
    /// The part of each representation, by batch.
    pub(super) part_of: Vec<Vec<u8>>,
    /// The entries that are served, by batch and representation.
    pub(super) hits: Vec<Vec<Option<Hit>>>,
    /// The entries that are served only if fetching fails.
    pub(super) backups: Vec<Vec<Option<Hit>>>,
    /// The requests that fetch the awaited ones.
    pub(super) in_flight: Vec<InFlight>,
    /// True for each representation that is to be fetched again in the background, and the rights to do so.
    pub(super) refreshes: Vec<Vec<u8>>,
    pub(super) claims: Vec<RefreshClaim>,
    /// The number of representations in each part.
    pub(super) counts: [usize; 3],
}

impl<'a> Execution<'a> {
    /// Sends a request for entities without those that are stored. Returns what it got if caching does not apply.
    pub(super) fn send_missing_entities(
        &mut self,
        index: usize,
        operation: &'a SubgraphOperation,
        collected: Vec<CollectedBatch>,
        body: Bytes,
        look: Look,
        calls: &mut Vec<(usize, OutgoingRequest<'a>)>,
    ) -> Result<(), (Vec<CollectedBatch>, Bytes)> {
        let executable = self.executable;
        let compiled = &executable.fetches[index];
        let fetch = &executable.plan().fetches[index];
        let Some(caching) = &compiled.caching else { return Err((collected, body)) };
        if operation.kind != OperationKind::Query {
            return Err((collected, body));
        }
        let lists: Vec<Range<usize>> = collected.iter().map(|batch| batch.list.clone()).collect();
        let request = RequestParts { head: &compiled.head, body: &body, lists: &lists };
        let context = self.context;
        let Some(addresses) = Addresses::new(context, fetch.subgraph, self.variables) else {
            return Err((collected, body));
        };
        let items: Vec<Vec<Range<usize>>> =
            lists.iter().map(|list| list_items(&body, list.clone())).collect();
        let batches = fetch.kind.batches().iter().zip(&lists).zip(&items).enumerate();
        let all: Option<Vec<Vec<EntryAddress>>> = batches
            .map(|(number, ((batch, list), items))| {
                addresses.of_batch(caching, number, batch, request, list, items)
            })
            .collect();
        let Some(all) = all else { return Err((collected, body)) };

        let whole = body.clone();
        let mut guard = addresses.caches().in_flight.begin();
        let part = |batch, _| batch;
        let mut found = look_up(&addresses, caching, &all, part, look, &mut guard);
        let caches = addresses.caches();
        if !found.claims.is_empty() {
            let (claims, marks) = (std::mem::take(&mut found.claims), &found.refreshes);
            let (body, _) = select_items(&body, &lists, &items, marks, 1);
            let body = Bytes::from(body);
            let part = self.entities_part(index, &all, &items, marks, 1, &whole);
            let storing = self.storing(fetch, caches, caching, part, caches.in_flight.begin());
            self.refresh(fetch, body, storing, claims);
        }
        let [missing, stored, awaited] = found.counts;
        // Mostly everything belongs to one part, and nothing is divided.
        let mut parts: Vec<Option<(Vec<CollectedBatch>, Bytes)>> = vec![None, None, None];
        match (missing, stored, awaited) {
            (_, 0, 0) => parts[usize::from(MISSING)] = Some((collected, body.clone())),
            (0, _, 0) => parts[usize::from(STORED)] = Some((collected, body.clone())),
            (0, 0, _) => parts[usize::from(AWAITED)] = Some((collected, body.clone())),
            _ => {
                let divided = divide_request(&body, collected, &items, &found.part_of, 3);
                for (number, part) in divided.into_iter().enumerate() {
                    if found.counts[number] > 0 {
                        parts[number] = Some((part.collected, part.body.into()));
                    }
                }
            }
        }
        let [missing, stored, awaited] =
            [MISSING, STORED, AWAITED].map(|part| parts[usize::from(part)].take());
        if let Some((collected, _)) = stored {
            let response = entities_response(fetch, &all, &found.hits);
            let sent = SentRequest::entities(index, collected, Bytes::new());
            self.send(sent, OutgoingRequest::Stored(Box::new(response)), calls);
        }
        if let Some((collected, body)) = awaited {
            let in_flight = std::mem::take(&mut found.in_flight);
            let sent = SentRequest::entities(index, collected, body);
            self.send(sent, OutgoingRequest::Await(in_flight), calls);
        }
        if let Some((collected, body)) = missing {
            // The positions of representations are those in the undivided body.
            let part = self.entities_part(index, &all, &items, &found.part_of, MISSING, &whole);
            let storing = self.storing(fetch, caches, caching, part, guard);
            let has_backups = found.part_of.iter().zip(&found.backups).all(|(parts, backups)| {
                parts.iter().zip(backups).all(|(part, backup)| *part != MISSING || backup.is_some())
            });
            let backup = has_backups.then(|| entities_response(fetch, &all, &found.backups));
            let kept = if collected.len() > 1 { body.clone() } else { Bytes::new() };
            let call = OutgoingRequest::Subgraph {
                body,
                is_mutation: false,
                storing: Some(Box::new(storing)),
                backup: backup.map(Box::new),
                changed: &[],
            };
            self.send(SentRequest::entities(index, collected, kept), call, calls);
        }
        Ok(())
    }

    /// Looks again for the entries of a request that has waited for other requests, and sends it if they are not
    /// stored.
    pub(super) fn look_again(
        &mut self,
        request: usize,
        calls: &mut Vec<(usize, OutgoingRequest<'a>)>,
    ) {
        let index = self.sent[request].fetch;
        let fetch: &'a Fetch = &self.executable.plan().fetches[index];
        let body = std::mem::take(&mut self.sent[request].body);
        let collected = std::mem::take(&mut self.sent[request].collected);
        let fields = std::mem::take(&mut self.sent[request].fields);
        match &fetch.kind {
            FetchKind::Root { operation, .. } => {
                self.send_root(index, operation, body, fields, Look::Again, calls);
            }
            FetchKind::Entities { operation, .. } => {
                self.send_entities(index, operation, collected, body, Look::Again, calls);
            }
            FetchKind::RootBelow { .. } | FetchKind::Publish(_) | FetchKind::Request(_) => {}
        }
    }

    /// The entities of one part of a request, with their positions in the undivided body.
    fn entities_part(
        &self,
        index: usize,
        all: &[Vec<EntryAddress>],
        items: &[Vec<Range<usize>>],
        part_of: &[Vec<u8>],
        part: u8,
        whole: &Bytes,
    ) -> RequestedEntries {
        let own =
            |number: usize| part_of[number].iter().enumerate().filter(move |(_, of)| **of == part);
        let addresses = all.iter().enumerate();
        let addresses: Vec<Vec<EntryAddress>> = addresses
            .map(|(number, all)| own(number).map(|(item, _)| all[item].clone()).collect())
            .collect();
        let texts = items.iter().enumerate().map(|(number, items)| {
            own(number).map(|(item, _)| items[item].clone()).collect::<Vec<_>>()
        });
        let entities = RequestedEntities {
            plan: Arc::clone(self.executable.plan()),
            fetch: index,
            addresses,
            body: whole.clone(),
            items: texts.collect(),
        };
        RequestedEntries::Entities(entities)
    }

    pub(super) fn storing(
        &self,
        fetch: &Fetch,
        caches: &SubgraphCaches,
        caching: &Arc<FetchCaching>,
        entries: RequestedEntries,
        guard: FlightGuard,
    ) -> ResponseStoring {
        ResponseStoring::begin(
            Arc::clone(&self.context.generation),
            caches,
            fetch.subgraph,
            Arc::clone(caching),
            entries,
            guard,
        )
    }

    /// Fetches entries again in the background, while they are served. The claims bound the number of such requests.
    pub(super) fn refresh(
        &self,
        fetch: &Fetch,
        body: Bytes,
        storing: ResponseStoring,
        claims: Vec<RefreshClaim>,
    ) {
        let generation = Arc::clone(&self.context.generation);
        let headers = Arc::clone(&self.context.headers);
        let subgraph = fetch.subgraph;
        tokio::task::spawn_local(async move {
            let deadline = Instant::now() + REFRESH_TIME_MAX;
            let headers = headers.of(subgraph);
            let request =
                SubgraphRequest { body, form: None, is_mutation: false, headers, deadline };
            // A failure is counted by the subgraph's client; the old entry stays for as long as it may be served.
            if let Ok(mut response) = generation.subgraph(subgraph).fetch(request).await {
                storing.store(&mut response);
            }
            drop(claims);
        });
    }
}

/// Looks up all representations, or the root fields, of a request. `part_of` returns the part of the fetch to which an
/// address belongs, by batch and index.
pub(super) fn look_up(
    addresses: &Addresses<'_>,
    caching: &FetchCaching,
    all: &[Vec<EntryAddress>],
    part_of: impl Fn(usize, usize) -> usize,
    look: Look,
    guard: &mut FlightGuard,
) -> Found {
    let (caches, cache) = (addresses.caches(), addresses.cache());
    let now = (caches.clock)();
    let mut found = Found::default();
    for (number, batch) in all.iter().enumerate() {
        let mut parts = Vec::with_capacity(batch.len());
        let mut hits = Vec::with_capacity(batch.len());
        let mut backups = Vec::with_capacity(batch.len());
        let mut refreshes = Vec::with_capacity(batch.len());
        for (index, address) in batch.iter().enumerate() {
            let (mut hit, mut backup, mut refresh) = (None, None, 0);
            match caches.store.lookup(address, now, fastrand::u64(..), &cache.stats) {
                Lookup::Fresh(mut entry) | Lookup::Stale(mut entry) => {
                    if let Some(claim) = entry.refresh.take() {
                        found.claims.push(claim);
                        refresh = 1;
                    }
                    hit = Some(entry);
                }
                Lookup::StaleIfError(entry) => backup = Some(entry),
                Lookup::Miss(_) => {}
            }
            let part = if hit.is_some() {
                STORED
            } else {
                let expected = caching.expected_scope(part_of(number, index));
                let key = expected.and_then(|scope| flight_key(address, scope));
                match key.and_then(|key| guard.add_or_join(key)) {
                    Some(in_flight) if look == Look::First => {
                        found.in_flight.push(in_flight);
                        AWAITED
                    }
                    _ => MISSING,
                }
            };
            found.counts[usize::from(part)] += 1;
            parts.push(part);
            hits.push(hit);
            backups.push(backup);
            refreshes.push(refresh);
        }
        found.part_of.push(parts);
        found.hits.push(hits);
        found.backups.push(backups);
        found.refreshes.push(refreshes);
    }
    found
}

/// Returns the stored entities as the response that the subgraph would have sent. Representations without an entry are
/// left out.
fn entities_response(
    fetch: &Fetch,
    addresses: &[Vec<EntryAddress>],
    hits: &[Vec<Option<Hit>>],
) -> SubgraphResponse {
    let bodies = hits.iter().flatten().flatten().map(|hit| hit.body().len() + 1);
    let mut body = Vec::with_capacity(bodies.sum::<usize>() + 64);
    let mut fold = PolicyFold::default();
    body.extend_from_slice(b"{\"data\":{");
    for (number, (batch, hits)) in fetch.kind.batches().iter().zip(hits).enumerate() {
        body.extend_from_slice(if number > 0 { b",\"" } else { b"\"" });
        // A name needs no escapes.
        body.extend_from_slice(batch.data_key.as_bytes());
        body.extend_from_slice(b"\":[");
        let found = hits.iter().zip(&addresses[number]);
        for (place, (hit, address)) in
            found.filter_map(|(hit, address)| Some((hit.as_ref()?, address))).enumerate()
        {
            if place > 0 {
                body.push(b',');
            }
            body.extend_from_slice(hit.body());
            hit.add_to(address, &mut fold);
        }
        body.push(b']');
    }
    body.extend_from_slice(b"}}");
    stored_response(body, fold)
}

/// Returns a response from the cache.
pub(super) fn stored_response(body: Vec<u8>, fold: PolicyFold) -> SubgraphResponse {
    SubgraphResponse {
        status: StatusCode::OK,
        headers: HeaderMap::new(),
        body: body.into(),
        policy: Some(Arc::new(fold)),
    }
}
