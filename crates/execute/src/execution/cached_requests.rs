//! Requests in front of the cache of subgraph responses: what is stored is not requested.
//!
//! A request is divided by its representations into up to three: those that are stored, which is merged like a
//! response; those that another operation is fetching, which looks again when that has ended; and the rest, which is
//! sent. Root fields of one request are one entry.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cache::{
    EntryAddress, EntryLabel, HashDomain, Hit, Lookup, PolicyFold, RefreshClaim, Tag, TagHasher,
};
use http::{HeaderMap, StatusCode};
use plan::{Fetch, FetchKind, OperationKind, SubgraphOperation};

use super::Execution;
use super::in_flight::{Backup, OutgoingRequest, SentRequest};
use super::item_parts::{divide_request, select_items};
use super::request_splitting::list_items;
use crate::argument_text::print_arguments;
use crate::caching::{
    Addresses, FetchCaching, FlightGuard, InFlight, ObjectValues, RequestParts, RequestedEntities,
    RequestedEntries, ResponseStoring, RootTag, SubgraphCaches, entity_label, flight_key,
    root_label,
};
use crate::document_pool::PooledDocument;
use crate::representations::CollectedBatch;
use crate::{LookupTrace, SubgraphRequest, SubgraphResponse};

/// The maximum duration of a refresh in the background. The subgraph's own timeout may end it earlier.
const REFRESH_TIME_MAX: Duration = Duration::from_secs(10);

/// The part of a request to which a representation belongs.
const MISSING: u8 = 0;
const STORED: u8 = 1;
const AWAITED: u8 = 2;

/// True for a request that has waited for others already: it is sent without waiting again, because the others may not
/// have stored anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Look {
    First,
    Again,
}

/// The results of the lookups of one request.
#[derive(Default)]
struct Found {
    /// The part of each representation, by batch.
    part_of: Vec<Vec<u8>>,
    /// The entries that are served, by batch and representation.
    hits: Vec<Vec<Option<Hit>>>,
    /// The entries that are served only if fetching fails.
    backups: Vec<Vec<Option<Hit>>>,
    /// The requests that fetch the awaited ones.
    in_flight: Vec<InFlight>,
    /// True for each representation that is to be fetched again in the background, and the rights to do so.
    refreshes: Vec<Vec<u8>>,
    claims: Vec<RefreshClaim>,
    /// The number of representations in each part.
    counts: [usize; 3],
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
        let Some(addresses) =
            Addresses::new(context, fetch.subgraph, caching, HashDomain::Entity, request)
        else {
            return Err((collected, body));
        };
        let items: Vec<Vec<Range<usize>>> =
            lists.iter().map(|list| list_items(&body, list.clone())).collect();
        let batches = fetch.kind.batches().iter().zip(&lists).zip(&items);
        let all: Option<Vec<Vec<EntryAddress>>> = batches
            .map(|((batch, list), items)| addresses.of_batch(batch, request, list, items))
            .collect();
        let Some(all) = all else { return Err((collected, body)) };

        let whole = body.clone();
        let mut guard = addresses.caches().in_flight.begin();
        let label = |batch: usize, item: usize, is_private| {
            let representation = whole.slice(items[batch][item].clone());
            entity_label(addresses.name(), &fetch.kind.batches()[batch], representation, is_private)
        };
        let mut found = look_up(&addresses, caching, &all, look, &mut guard, &label);
        let caches = addresses.caches();
        self.trace_lookups(&found, index, true, look);
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
            let backup = has_backups.then(|| {
                make_backup(index, &found.backups, entities_response(fetch, &all, &found.backups))
            });
            let kept = if collected.len() > 1 { body.clone() } else { Bytes::new() };
            let call = OutgoingRequest::Subgraph {
                body,
                is_mutation: false,
                storing: Some(Box::new(storing)),
                backup,
            };
            self.send(SentRequest::entities(index, collected, kept), call, calls);
        }
        Ok(())
    }

    /// Sends a request for root fields, unless they are stored.
    pub(super) fn send_root(
        &mut self,
        index: usize,
        operation: &'a SubgraphOperation,
        body: Bytes,
        look: Look,
        calls: &mut Vec<(usize, OutgoingRequest<'a>)>,
    ) {
        let executable = self.executable;
        let compiled = &executable.fetches[index];
        let fetch = &executable.plan().fetches[index];
        let context = self.context;
        let request = RequestParts { head: &compiled.head, body: &body, lists: &[] };
        let caching = compiled.caching.as_ref().filter(|_| operation.kind == OperationKind::Query);
        let looked = caching.and_then(|caching| {
            let domain = HashDomain::RootFields;
            let addresses = Addresses::new(context, fetch.subgraph, caching, domain, request)?;
            let tags = self.root_tags(caching, &addresses.caches().tags)?;
            Some((caching, addresses, tags))
        });
        let Some((caching, addresses, tags)) = looked else {
            let call = OutgoingRequest::subgraph(operation, body);
            return self.send(SentRequest::whole(index), call, calls);
        };
        let caches = addresses.caches();
        let address = addresses.of_root();
        let mut guard = caches.in_flight.begin();
        let all = [vec![address.clone()]];
        let label = |_, _, is_private| root_label(addresses.name(), body.clone(), is_private);
        let mut found = look_up(&addresses, caching, &all, look, &mut guard, &label);
        self.trace_lookups(&found, index, false, look);
        let take = |hits: &mut Vec<Vec<Option<Hit>>>| hits.first_mut()?.first_mut()?.take();
        if !found.claims.is_empty() {
            let entries = RequestedEntries::Root(address.clone(), tags.clone(), body.clone());
            let storing = self.storing(fetch, caches, caching, entries, caches.in_flight.begin());
            self.refresh(fetch, body.clone(), storing, std::mem::take(&mut found.claims));
        }
        if let Some(hit) = take(&mut found.hits) {
            let response = OutgoingRequest::Stored(Box::new(root_response(&address, &hit)));
            return self.send(SentRequest::whole(index), response, calls);
        }
        if !found.in_flight.is_empty() {
            let sent = SentRequest { body, ..SentRequest::whole(index) };
            return self.send(sent, OutgoingRequest::Await(found.in_flight), calls);
        }
        let response = found.backups.first().and_then(|hits| hits.first()?.as_ref());
        let response = response.map(|hit| root_response(&address, hit));
        let backup = response.map(|response| make_backup(index, &found.backups, response));
        let entries = RequestedEntries::Root(address, tags, body.clone());
        let storing = self.storing(fetch, caches, caching, entries, guard);
        let call = OutgoingRequest::Subgraph {
            body,
            is_mutation: false,
            storing: Some(Box::new(storing)),
            backup,
        };
        self.send(SentRequest::whole(index), call, calls);
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
        match &fetch.kind {
            FetchKind::Root { operation, .. } => {
                self.send_root(index, operation, body, Look::Again, calls);
            }
            FetchKind::Entities { operation, .. } => {
                self.send_entities(index, operation, collected, body, Look::Again, calls);
            }
            FetchKind::RootBelow { .. } | FetchKind::Publish(_) | FetchKind::Request(_) => {}
        }
    }

    /// The tags of root fields by the schema, rendered. `None` if one has no value: nothing is looked up or stored
    /// then, because an invalidation of the tag would not reach it.
    fn root_tags(&self, caching: &FetchCaching, hasher: &TagHasher) -> Option<Vec<Tag>> {
        let all = caching.parts.iter().flat_map(|part| &part.root_tags);
        let mut text = String::new();
        let tags = all.map(|RootTag { template, arguments }| {
            let mut json = Vec::with_capacity(64);
            print_arguments(arguments, self.variables, &mut json);
            let mut document = PooledDocument::take();
            let object = document.parse(Bytes::from(json)).ok()?;
            let values = ObjectValues { document: &document, object };
            template.render(&values, &mut text).ok()?;
            Some(hasher.text(&text))
        });
        tags.collect()
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

    /// Records the results of lookups, if the operation has a trace.
    fn trace_lookups(&self, found: &Found, fetch: usize, is_entities: bool, look: Look) {
        let Some(trace) = &self.context.trace else { return };
        let mut lookups = LookupTrace { fetch, is_entities, ..LookupTrace::default() };
        for hit in found.hits.iter().flatten().flatten() {
            match hit.age < hit.times().fresh_for {
                true => lookups.fresh += 1,
                false => lookups.stale += 1,
            }
            lookups.oldest = lookups.oldest.max(Some(hit.age));
        }
        lookups.sent = found.counts[usize::from(MISSING)];
        lookups.awaited = found.counts[usize::from(AWAITED)];
        lookups.refreshed = found.claims.len();
        if look == Look::Again {
            // These were counted when they were awaited; what the other request stored is neither old nor sent.
            lookups.fresh = 0;
        }
        trace.record_lookups(&lookups);
    }

    fn storing(
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
    fn refresh(
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

/// Looks up all representations of a request. `label` describes the entry of a batch and an item, and is called for few
/// of them.
fn look_up(
    addresses: &Addresses<'_>,
    caching: &FetchCaching,
    all: &[Vec<EntryAddress>],
    look: Look,
    guard: &mut FlightGuard,
    label: &dyn Fn(usize, usize, bool) -> EntryLabel,
) -> Found {
    let (caches, cache) = (addresses.caches(), addresses.cache());
    let now = (caches.clock)();
    let expected = caching.expected_scope();
    let mut found = Found::default();
    for (number, batch) in all.iter().enumerate() {
        let mut part_of = Vec::with_capacity(batch.len());
        let mut hits = Vec::with_capacity(batch.len());
        let mut backups = Vec::with_capacity(batch.len());
        let mut refreshes = Vec::with_capacity(batch.len());
        for (item, address) in batch.iter().enumerate() {
            let (mut hit, mut backup, mut refresh) = (None, None, 0);
            let random = fastrand::u64(..);
            match caches.store.lookup(address, now, random, &cache.stats) {
                Lookup::Fresh(mut entry) | Lookup::Stale(mut entry) => {
                    if cache::is_sampled(random) {
                        let label = || label(number, item, entry.is_private());
                        caches.store.count_hit(&entry, now, label);
                    }
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
            part_of.push(part);
            hits.push(hit);
            backups.push(backup);
            refreshes.push(refresh);
        }
        found.part_of.push(part_of);
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

/// Returns the response that is used if the request fails.
fn make_backup(fetch: usize, hits: &[Vec<Option<Hit>>], response: SubgraphResponse) -> Box<Backup> {
    let hits = || hits.iter().flatten().flatten();
    let oldest = hits().map(|hit| hit.age).max().unwrap_or_default();
    Box::new(Backup { response, fetch, entries: hits().count(), oldest })
}

/// Returns stored root fields as the response that the subgraph would have sent.
fn root_response(address: &EntryAddress, hit: &Hit) -> SubgraphResponse {
    let mut body = Vec::with_capacity(hit.body().len() + 16);
    body.extend_from_slice(b"{\"data\":");
    body.extend_from_slice(hit.body());
    body.push(b'}');
    let mut fold = PolicyFold::default();
    hit.add_to(address, &mut fold);
    stored_response(body, fold)
}

fn stored_response(body: Vec<u8>, fold: PolicyFold) -> SubgraphResponse {
    SubgraphResponse {
        status: StatusCode::OK,
        headers: HeaderMap::new(),
        body: body.into(),
        policy: Some(Arc::new(fold)),
    }
}
