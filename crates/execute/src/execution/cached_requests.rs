//! Requests in front of the cache of subgraph responses: what is stored is not requested.
//!
//! A request is divided by its representations into up to three: those that are stored, which is merged like a
//! response; those that another operation is fetching, which looks again when that has ended; and the rest, which is
//! sent. Where several routers share a store, the rest is looked up there first, in one round trip, and what it has is
//! copied into the store of the process. [`super::cached_root_fields`] does the same for root fields.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cache::{
    EntryAddress, EntryLabel, Hit, Lookup, LookupStats, PolicyFold, RefreshClaim, SharedKeyBase,
};
use http::{HeaderMap, StatusCode};
use plan::{Fetch, FetchKind, OperationKind, SubgraphOperation};

use super::Execution;
use super::in_flight::{Backup, OutgoingRequest, SentRequest, StoredForm, StoredResponse};
use super::item_parts::{divide_request, select_items};
use crate::caching::{
    Addresses, FetchCaching, FetchLocks, FlightGuard, InFlight, MutationChanges, RequestParts,
    RequestedEntities, RequestedEntries, ResponseStoring, SharedStoring, SubgraphCaches,
    WANTED_MAX, WantedEntry, entity_label, flight_key,
};
use crate::representations::CollectedBatch;
use crate::{LookupTrace, SubgraphRequest, SubgraphResponse};

/// The maximum duration of a refresh in the background. The subgraph's own timeout may end it earlier.
const REFRESH_TIME_MAX: Duration = Duration::from_secs(10);

/// The part of a request to which a representation belongs.
pub(super) const MISSING: u8 = 0;
pub(super) const STORED: u8 = 1;
pub(super) const AWAITED: u8 = 2;

/// The steps of a request before it looks into the store of the process.
pub(super) enum Look {
    /// None.
    First,
    /// It has waited for others. It is sent without waiting again, because the others may not have stored anything.
    Again,
    /// It has looked into the store that several routers share. What is still missing is sent, and stored under this
    /// guard.
    AfterShared(FlightGuard, FetchLocks),
}

/// The rules of one look.
pub(super) struct LookState {
    /// True if the request may wait for others, and look into the shared store.
    pub(super) may_wait: bool,
    /// True if the lookups count: those before the shared store was looked into were counted.
    pub(super) is_counted: bool,
    pub(super) guard: FlightGuard,
    pub(super) locks: FetchLocks,
}

impl Look {
    pub(super) fn begin(self, caches: &SubgraphCaches) -> LookState {
        let may_wait = matches!(self, Self::First);
        match self {
            Self::First | Self::Again => LookState {
                may_wait,
                is_counted: true,
                guard: caches.in_flight.begin(),
                locks: FetchLocks::default(),
            },
            Self::AfterShared(guard, locks) => {
                LookState { may_wait, is_counted: false, guard, locks }
            }
        }
    }
}

/// The rules for the lookups of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct LookRules {
    /// True if entries that another operation is fetching are awaited.
    pub(super) may_wait: bool,
    /// True if the lookups count.
    pub(super) is_counted: bool,
    /// True if entries that have expired are not used.
    pub(super) is_live: bool,
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

impl Found {
    /// True if something is missing, or is to be fetched again.
    fn needs_fetch(&self) -> bool {
        self.counts[usize::from(MISSING)] > 0 || !self.claims.is_empty()
    }
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
        let known = addresses.of_request(caching, fetch.kind.batches(), request);
        let Some(known) = known else { return Err((collected, body)) };
        let (items, all) = (&known.items, &known.all);

        let whole = body.clone();
        let caches = addresses.caches();
        let is_again = matches!(look, Look::Again);
        let LookState { may_wait, is_counted, mut guard, locks } = look.begin(caches);
        // The requests of others may take long if the operation must do without the subgraph.
        let may_join = may_wait && !self.context.is_closed(fetch.subgraph);
        let rules = LookRules { may_wait: may_join, is_counted, is_live: self.is_live() };
        let label = |batch: usize, item: usize, is_private| {
            let representation = whole.slice(items[batch][item].clone());
            entity_label(addresses.name(), &fetch.kind.batches()[batch], representation, is_private)
        };
        let part = |batch, _| batch;
        let mut found = look_up(&addresses, caching, all, part, rules, &mut guard, &label);
        self.trace_lookups(&found, index, true, is_again);
        let bases: Vec<SharedKeyBase> = match &caches.shared {
            Some(_) if found.needs_fetch() => {
                let base = |number| addresses.shared_batch_base(caching, number, request);
                (0..lists.len()).map_while(base).collect()
            }
            Some(_) | None => Vec::new(),
        };
        if !found.claims.is_empty() {
            let (claims, marks) = (std::mem::take(&mut found.claims), &found.refreshes);
            let (body, _) = select_items(&body, &lists, items, marks, 1);
            let body = Bytes::from(body);
            let part = self.entities_part(index, all, items, marks, 1, &whole);
            let marked = all.iter().zip(marks).enumerate().flat_map(|(number, (batch, marks))| {
                let marked = batch.iter().zip(marks).filter(|(_, mark)| **mark == 1);
                marked.map(move |(address, _)| (number, address))
            });
            let guard = refresh_guard(caches, caching, marked);
            let shared = shared_storing(caches, bases.clone(), FetchLocks::default());
            let storing = self.storing(fetch, caches, caching, part, shared, guard);
            let wanted = wanted_entities(
                caching,
                &bases,
                all,
                items,
                EntrySelection { marks, mark: 1, hits: Some(&found.hits) },
                &whole,
            );
            self.refresh(fetch, body, storing, claims, wanted);
        }
        let [missing, stored, awaited] = found.counts;
        // Mostly everything belongs to one part, and nothing is divided.
        let mut parts: Vec<Option<(Vec<CollectedBatch>, Bytes)>> = vec![None, None, None];
        match (missing, stored, awaited) {
            (_, 0, 0) => parts[usize::from(MISSING)] = Some((collected, body.clone())),
            (0, _, 0) => parts[usize::from(STORED)] = Some((collected, body.clone())),
            (0, 0, _) => parts[usize::from(AWAITED)] = Some((collected, body.clone())),
            _ => {
                let divided = divide_request(&body, collected, items, &found.part_of, 3);
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
            let response = self.stored_entities(index, fetch, all, &found.hits);
            let sent = SentRequest::entities(index, collected, Bytes::new());
            self.send(sent, OutgoingRequest::Stored(Box::new(response)), calls);
        }
        if let Some((collected, body)) = awaited {
            let in_flight = std::mem::take(&mut found.in_flight);
            let sent = SentRequest::entities(index, collected, body);
            self.send(sent, OutgoingRequest::Await(in_flight), calls);
        }
        if let Some((collected, body)) = missing {
            if may_wait && let Some(shared) = &caches.shared {
                let missing = EntrySelection { marks: &found.part_of, mark: MISSING, hits: None };
                let wanted = wanted_entities(caching, &bases, all, items, missing, &whole);
                if !wanted.is_empty() {
                    let shared = Arc::clone(shared);
                    let sent = SentRequest::entities(index, collected, body);
                    let call = OutgoingRequest::LookUpShared { shared, wanted, guard };
                    self.send(sent, call, calls);
                    return Ok(());
                }
            }
            self.trace_sent(index, true, found.counts[usize::from(MISSING)]);
            // The positions of representations are those in the undivided body.
            let part = self.entities_part(index, all, items, &found.part_of, MISSING, &whole);
            let shared = shared_storing(caches, bases, locks);
            let storing = self.storing(fetch, caches, caching, part, shared, guard);
            let has_backups = found.part_of.iter().zip(&found.backups).all(|(parts, backups)| {
                parts.iter().zip(backups).all(|(part, backup)| *part != MISSING || backup.is_some())
            });
            let backup = has_backups.then(|| {
                make_backup(index, &found.backups, entities_response(fetch, all, &found.backups))
            });
            let kept = if collected.len() > 1 { body.clone() } else { Bytes::new() };
            let call = OutgoingRequest::Subgraph {
                body,
                is_mutation: false,
                storing: Some(Box::new(storing)),
                backup,
                changes: MutationChanges::default(),
            };
            self.send(SentRequest::entities(index, collected, kept), call, calls);
        }
        Ok(())
    }

    /// Looks again for the entries of a request that has waited for other requests or for the shared store, and sends
    /// it if they are not stored.
    pub(super) fn look_again(
        &mut self,
        request: usize,
        look: Look,
        calls: &mut Vec<(usize, OutgoingRequest<'a>)>,
    ) {
        let index = self.sent[request].fetch;
        let fetch: &'a Fetch = &self.executable.plan().fetches[index];
        let body = std::mem::take(&mut self.sent[request].body);
        let collected = std::mem::take(&mut self.sent[request].collected);
        let fields = std::mem::take(&mut self.sent[request].fields);
        match &fetch.kind {
            FetchKind::Root { operation, .. } => {
                self.send_root(index, operation, body, fields, look, calls);
            }
            FetchKind::Entities { operation, .. } => {
                self.send_entities(index, operation, collected, body, look, calls);
            }
            FetchKind::RootBelow { .. } | FetchKind::Publish(_) | FetchKind::Request(_) => {}
        }
    }

    /// The stored entities of a request as a response.
    fn stored_entities(
        &self,
        index: usize,
        fetch: &Fetch,
        all: &[Vec<EntryAddress>],
        hits: &[Vec<Option<Hit>>],
    ) -> StoredResponse {
        let counts = hits.iter().map(|hits| hits.iter().flatten().count() as u32).collect();
        let each = hits.iter().flatten().flatten();
        let form = self.stored_form(index, each, counts, || entities_body(fetch, hits));
        StoredResponse { form, policy: fold_entities(all, hits) }
    }

    /// Finds the response that these entries make among those that are known, or assembles it.
    pub(super) fn stored_form<'h>(
        &self,
        index: usize,
        hits: impl Iterator<Item = &'h Hit> + Clone,
        places: Vec<u32>,
        assemble: impl FnOnce() -> Bytes,
    ) -> StoredForm {
        let shape = &self.executable.fetches[index].response;
        let memory = self.context.generation.caches.as_ref().map(|caches| &caches.memory);
        match memory.and_then(|memory| memory.response_of(hits, places, shape)) {
            Some(Ok(known)) => StoredForm::Known(known),
            Some(Err(place)) => StoredForm::New(assemble(), place),
            None => StoredForm::Text(assemble()),
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

    /// Records the results of lookups, if the operation has a trace. `is_again` is true for a request that has waited
    /// for others.
    pub(super) fn trace_lookups(
        &self,
        found: &Found,
        fetch: usize,
        is_entities: bool,
        is_again: bool,
    ) {
        let Some(trace) = &self.context.trace else { return };
        let mut lookups = LookupTrace { fetch, is_entities, ..LookupTrace::default() };
        for hit in found.hits.iter().flatten().flatten() {
            match hit.age < hit.times().fresh_for {
                true => lookups.fresh += 1,
                false => lookups.stale += 1,
            }
            lookups.oldest = lookups.oldest.max(Some(hit.age));
        }
        lookups.awaited = found.counts[usize::from(AWAITED)];
        lookups.refreshed = found.claims.len();
        if is_again {
            // These were counted when they were awaited; what the other request stored is neither old nor sent.
            lookups.fresh = 0;
        }
        trace.record_lookups(&lookups);
    }

    /// Records the number of entries that a request asks for, if the operation has a trace.
    pub(super) fn trace_sent(&self, fetch: usize, is_entities: bool, sent: usize) {
        if let Some(trace) = &self.context.trace {
            trace.record_lookups(&LookupTrace {
                fetch,
                is_entities,
                sent,
                ..LookupTrace::default()
            });
        }
    }

    pub(super) fn storing(
        &self,
        fetch: &Fetch,
        caches: &SubgraphCaches,
        caching: &Arc<FetchCaching>,
        entries: RequestedEntries,
        shared: Option<SharedStoring>,
        guard: FlightGuard,
    ) -> ResponseStoring {
        ResponseStoring::begin(
            Arc::clone(&self.context.generation),
            caches,
            fetch.subgraph,
            Arc::clone(caching),
            entries,
            shared,
            guard,
        )
        .collecting_tags(self.is_live())
    }

    /// True for the execution of a live query.
    pub(super) fn is_live(&self) -> bool {
        self.context.caching.is_some_and(|caching| caching.is_live)
    }

    /// Fetches entries again in the background, while they are served, unless another router has done it (`wanted`).
    /// The claims bound the number of such requests.
    pub(super) fn refresh(
        &self,
        fetch: &Fetch,
        body: Bytes,
        mut storing: ResponseStoring,
        claims: Vec<RefreshClaim>,
        wanted: Vec<WantedEntry>,
    ) {
        let generation = Arc::clone(&self.context.generation);
        let shared = generation.caches.as_ref().and_then(|it| it.shared.clone());
        let headers = Arc::clone(&self.context.headers);
        let subgraph = fetch.subgraph;
        tokio::task::spawn_local(async move {
            if let Some(shared) = shared.filter(|_| !wanted.is_empty()) {
                let filled = shared.fill(wanted).await;
                if filled.is_complete {
                    return;
                }
                storing.keep_locks(filled.locks);
            }
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

/// Begins the refresh of these entries, each with the number of its part of the fetch. If they expire before it ends,
/// operations that miss them wait for it.
pub(super) fn refresh_guard<'a>(
    caches: &SubgraphCaches,
    caching: &FetchCaching,
    addresses: impl IntoIterator<Item = (usize, &'a EntryAddress)>,
) -> FlightGuard {
    let mut guard = caches.in_flight.begin();
    let table = caches.store.invalidations();
    let now = table.now();
    for (part, address) in addresses {
        let key = caching.expected_scope(part).and_then(|scope| flight_key(address, scope));
        if let Some(key) = key {
            // An operation that is fetching the entry already stores it as well.
            let tags = || address.tags.iter().copied();
            let is_valid = |began| table.is_valid(began, tags(), false);
            let _ = guard.add_or_join(key, now, is_valid);
        }
    }
    guard
}

/// Begins to store a response in the store that several routers share, if there is one.
pub(super) fn shared_storing(
    caches: &SubgraphCaches,
    bases: Vec<SharedKeyBase>,
    locks: FetchLocks,
) -> Option<SharedStoring> {
    SharedStoring::begin(&**caches.shared.as_ref()?, bases, locks)
}

/// Some of the representations of a request.
#[derive(Clone, Copy)]
struct EntrySelection<'a> {
    /// A mark for each representation, by batch.
    marks: &'a [Vec<u8>],
    /// The mark of those that are selected.
    mark: u8,
    /// The entries that are known, if only later ones are of interest.
    hits: Option<&'a [Vec<Option<Hit>>]>,
}

/// The entities of a request that are worth a look into the shared store: none of a batch if its last response was not
/// stored.
fn wanted_entities(
    caching: &FetchCaching,
    bases: &[SharedKeyBase],
    all: &[Vec<EntryAddress>],
    items: &[Vec<Range<usize>>],
    selection: EntrySelection<'_>,
    whole: &Bytes,
) -> Vec<WantedEntry> {
    let batches = bases.iter().zip(all.iter().zip(items)).enumerate();
    let expected = batches
        .filter_map(|(number, batch)| Some((number, caching.expected_scope(number)?, batch)));
    let wanted = expected.flat_map(|(number, scope, (base, (addresses, items)))| {
        let hits = selection.hits.map(|hits| &hits[number]);
        let each = addresses.iter().zip(items).enumerate();
        let selected =
            each.filter(move |(item, _)| selection.marks[number][*item] == selection.mark);
        selected.filter_map(move |(item, (address, place))| {
            let key = base.key_of(&whole[place.clone()], scope)?;
            let newer_than = hits.and_then(|hits| hits[item].as_ref()).map(Hit::began);
            Some(WantedEntry { key, address: address.clone(), newer_than })
        })
    });
    wanted.take(WANTED_MAX).collect()
}

/// Looks up all representations, or the root fields, of a request. `part_of` returns the part of the fetch to which an
/// address belongs, by batch and index. `label` describes the entry there, and is called for few of them.
pub(super) fn look_up(
    addresses: &Addresses<'_>,
    caching: &FetchCaching,
    all: &[Vec<EntryAddress>],
    part_of: impl Fn(usize, usize) -> usize,
    rules: LookRules,
    guard: &mut FlightGuard,
    label: &dyn Fn(usize, usize, bool) -> EntryLabel,
) -> Found {
    let (caches, cache) = (addresses.caches(), addresses.cache());
    let uncounted = LookupStats::default();
    let stats = if rules.is_counted { &*cache.stats } else { &uncounted };
    let now = (caches.clock)();
    let table = caches.store.invalidations();
    let sequence = table.now();
    let mut found = Found::default();
    for (number, batch) in all.iter().enumerate() {
        let mut parts = Vec::with_capacity(batch.len());
        let mut hits = Vec::with_capacity(batch.len());
        let mut backups = Vec::with_capacity(batch.len());
        let mut refreshes = Vec::with_capacity(batch.len());
        for (index, address) in batch.iter().enumerate() {
            let (mut hit, mut backup, mut refresh) = (None, None, 0);
            let random = fastrand::u64(..);
            match caches.store.lookup(address, now, random, stats) {
                // The new value is what a live query is executed for.
                Lookup::Stale(_) if rules.is_live => {}
                Lookup::Fresh(entry) | Lookup::Stale(entry)
                    if addresses.renews(entry.fresh_for()) =>
                {
                    backup = Some(entry);
                }
                Lookup::Fresh(mut entry) | Lookup::Stale(mut entry) => {
                    if cache::is_sampled(random) {
                        let label = || label(number, index, entry.is_private());
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
                let expected = caching.expected_scope(part_of(number, index));
                let key = expected.and_then(|scope| flight_key(address, scope));
                let tags = || address.tags.iter().copied();
                let is_valid = |began| table.is_valid(began, tags(), false);
                match key.and_then(|key| guard.add_or_join(key, sequence, is_valid)) {
                    Some(in_flight) if rules.may_wait => {
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
    SubgraphResponse {
        status: StatusCode::OK,
        headers: HeaderMap::new(),
        body: entities_body(fetch, hits),
        policy: Some(Arc::new(fold_entities(addresses, hits))),
        hedge: None,
    }
}

fn fold_entities(addresses: &[Vec<EntryAddress>], hits: &[Vec<Option<Hit>>]) -> PolicyFold {
    let mut fold = PolicyFold::default();
    for (hit, address) in hits.iter().flatten().zip(addresses.iter().flatten()) {
        if let Some(hit) = hit {
            hit.add_to(address, &mut fold);
        }
    }
    fold
}

fn entities_body(fetch: &Fetch, hits: &[Vec<Option<Hit>>]) -> Bytes {
    let bodies = hits.iter().flatten().flatten().map(|hit| hit.body().len() + 1);
    let mut body = Vec::with_capacity(bodies.sum::<usize>() + 64);
    body.extend_from_slice(b"{\"data\":{");
    for (number, (batch, hits)) in fetch.kind.batches().iter().zip(hits).enumerate() {
        body.extend_from_slice(if number > 0 { b",\"" } else { b"\"" });
        // A name needs no escapes.
        body.extend_from_slice(batch.data_key.as_bytes());
        body.extend_from_slice(b"\":[");
        for (place, hit) in hits.iter().flatten().enumerate() {
            if place > 0 {
                body.push(b',');
            }
            body.extend_from_slice(hit.body());
        }
        body.push(b']');
    }
    body.extend_from_slice(b"}}");
    body.into()
}

/// Returns the response that is used if the request fails.
pub(super) fn make_backup(
    fetch: usize,
    hits: &[Vec<Option<Hit>>],
    response: SubgraphResponse,
) -> Box<Backup> {
    let hits = || hits.iter().flatten().flatten();
    let oldest = hits().map(|hit| hit.age).max().unwrap_or_default();
    Box::new(Backup { response, fetch, entries: hits().count(), oldest })
}
