//! Root fields in front of the cache of subgraph responses: a request contains only the fields that are not stored, and
//! none is sent if all are.

use std::sync::Arc;

use bytes::Bytes;
use cache::{EntryAddress, Hit, PolicyFold, Tag, TagHasher};
use http::{HeaderMap, StatusCode};
use plan::{OperationKind, SubgraphOperation};

use super::Execution;
use super::cached_requests::{
    AWAITED, Look, LookRules, LookState, MISSING, STORED, look_up, make_backup, refresh_guard,
    shared_storing,
};
use super::in_flight::{OutgoingRequest, SentRequest, StoredResponse};
use crate::SubgraphResponse;
use crate::argument_text::print_arguments;
use crate::caching::{
    Addresses, FetchCaching, FetchLocks, MutationChanges, ObjectValues, PartCaching,
    PopulatingRequest, RequestedEntries, RequestedField, RootRequest, RootTag, WantedEntry,
    root_label,
};
use crate::document_pool::PooledDocument;

impl<'a> Execution<'a> {
    /// Sends a request for root fields, without those that are stored. `body` is the request for all fields; `fields`
    /// are the numbers of those that are wanted, or empty if it is not known which.
    pub(super) fn send_root(
        &mut self,
        index: usize,
        operation: &'a SubgraphOperation,
        body: Bytes,
        fields: Vec<u16>,
        look: Look,
        calls: &mut Vec<(usize, OutgoingRequest<'a>)>,
    ) {
        let executable = self.executable;
        let fetch = &executable.plan().fetches[index];
        let caching = executable.fetches[index].caching.as_ref();
        let caching = caching.filter(|_| operation.kind == OperationKind::Query);
        let looked = caching.and_then(|caching| {
            let root = caching.root.as_ref()?;
            let addresses = Addresses::new(self.context, fetch.subgraph, self.variables)?;
            Some((caching, root, addresses))
        });
        let Some((caching, root, addresses)) = looked else {
            let is_mutation = operation.kind == OperationKind::Mutation;
            let (storing, backup) = (None, None);
            let entities = &*executable.fetches[index].changed;
            let (context, variables) = (self.context, self.variables);
            let populating = PopulatingRequest::begin(context, fetch.subgraph, variables, entities);
            let changes = MutationChanges { entities, populating };
            let call = OutgoingRequest::Subgraph { body, is_mutation, storing, backup, changes };
            return self.send(SentRequest::whole(index), call, calls);
        };
        let caches = addresses.caches();
        let wanted = root.wanted(self.variables);
        let asked = if fields.is_empty() { &wanted } else { &fields };
        let (all, rest) = self.requested_fields(caching, root, &addresses, asked);
        let known = all.iter().filter_map(|field| Some(field.entry.as_ref()?.0.clone()));
        let known = [known.collect::<Vec<EntryAddress>>()];
        let is_again = matches!(look, Look::Again);
        let LookState { may_wait, is_counted, mut guard, locks } = look.begin(caches);
        // The requests of others may take long if the operation must do without the subgraph.
        let may_join = may_wait && !self.context.is_closed(fetch.subgraph);
        let rules = LookRules { may_wait: may_join, is_counted, is_live: self.is_live() };
        let part = |_, item: usize| all.get(item).map_or(usize::MAX, |it| usize::from(it.number));
        let label = |_, item: usize, is_private| {
            let of_field = |field: &RequestedField| caching.parts.get(usize::from(field.number));
            let part = all.get(item).and_then(of_field);
            let selection = part.map(|part| part.selection.clone()).unwrap_or_default();
            root_label(addresses.name(), &selection, body.clone(), is_private)
        };
        let mut found = look_up(&addresses, caching, &known, part, rules, &mut guard, &label);
        self.trace_lookups(&found, index, false, is_again);
        let part_of: Vec<u8> = found.part_of.pop().unwrap_or_default();
        let hits: Vec<Option<Hit>> = found.hits.pop().unwrap_or_default();
        let backups: Vec<Option<Hit>> = found.backups.pop().unwrap_or_default();
        let refreshes: Vec<u8> = found.refreshes.pop().unwrap_or_default();
        let marked = |marks: &[u8], mark: u8| -> Vec<u16> {
            let fields = all.iter().zip(marks).filter(|(_, it)| **it == mark);
            fields.map(|(field, _)| field.number).collect()
        };
        // A request for all fields is that of the plan, also in the errors of its response.
        let numbers_of = |count: usize, mark: u8| match count == wanted.len() {
            true => Vec::new(),
            false => marked(&part_of, mark),
        };
        let body_of = |numbers: &[u16]| -> Bytes {
            match numbers.is_empty() {
                true => body.clone(),
                false => root.write_body(numbers, self.variables).into(),
            }
        };
        let [missing, stored, awaited] = found.counts;

        if !found.claims.is_empty() {
            let count = refreshes.iter().filter(|it| **it == 1).count();
            let whole = count == wanted.len();
            let body = body_of(&if whole { Vec::new() } else { marked(&refreshes, 1) });
            let fields = all.iter().zip(&hits).zip(&refreshes).filter(|(_, it)| **it == 1);
            let fields = fields.map(|(field, _)| field);
            let wanted = wanted_fields(caching, fields.clone());
            let fields: Vec<RequestedField> = fields.map(|(field, _)| field.clone()).collect();
            let addresses = fields
                .iter()
                .filter_map(|field| Some((usize::from(field.number), &field.entry.as_ref()?.0)));
            let guard = refresh_guard(caches, caching, addresses);
            let shared = shared_storing(caches, Vec::new(), FetchLocks::default());
            let entries = RequestedEntries::Root(fields, body.clone());
            let storing = self.storing(fetch, caches, caching, entries, shared, guard);
            self.refresh(fetch, body, storing, std::mem::take(&mut found.claims), wanted);
        }
        if stored > 0 {
            let numbers = all.iter().zip(&hits).filter(|(_, hit)| hit.is_some());
            let numbers = numbers.map(|(field, _)| u32::from(field.number)).collect();
            let each = hits.iter().flatten();
            let form = self.stored_form(index, each, numbers, || root_body(root, &all, &hits));
            let response = StoredResponse { form, policy: fold_fields(&all, &hits) };
            let fields = numbers_of(stored, STORED);
            let sent = SentRequest { fields, ..SentRequest::whole(index) };
            self.send(sent, OutgoingRequest::Stored(Box::new(response)), calls);
        }
        if awaited > 0 {
            let (fields, body) = (numbers_of(awaited, AWAITED), body.clone());
            let sent = SentRequest { fields, body, ..SentRequest::whole(index) };
            self.send(sent, OutgoingRequest::Await(std::mem::take(&mut found.in_flight)), calls);
        }
        // A fetch of which no field is wanted has not been started.
        if missing + rest.len() == 0 && !asked.is_empty() {
            return;
        }
        let mut of_missing = part_of.iter().zip(&backups).filter(|(part, _)| **part == MISSING);
        let has_backups =
            missing > 0 && rest.is_empty() && of_missing.all(|(_, backup)| backup.is_some());
        let response = has_backups.then(|| root_response(root, &all, &backups));
        let backups = [backups];
        let backup = response.map(|response| make_backup(index, &backups, response));
        let mut fields = Vec::new();
        if missing + rest.len() < wanted.len() {
            fields = marked(&part_of, MISSING);
            fields.extend(rest.iter().map(|field| field.number));
        }
        if may_wait && let Some(shared) = &caches.shared {
            let of_missing = all.iter().zip(&part_of).filter(|(_, part)| **part == MISSING);
            let wanted = wanted_fields(caching, of_missing.map(|(field, _)| (field, &None)));
            if !wanted.is_empty() {
                let sent = SentRequest { fields, body, ..SentRequest::whole(index) };
                let shared = Arc::clone(shared);
                let call = OutgoingRequest::LookUpShared { shared, wanted, guard };
                return self.send(sent, call, calls);
            }
        }
        self.trace_sent(index, false, missing + rest.len());
        let body = body_of(&fields);
        let sent = SentRequest { fields, ..SentRequest::whole(index) };
        let missing = all.into_iter().zip(&part_of).filter(|(_, part)| **part == MISSING);
        let entries = missing.map(|(field, _)| field).chain(rest).collect();
        let entries = RequestedEntries::Root(entries, body.clone());
        let shared = shared_storing(caches, Vec::new(), locks);
        let storing = self.storing(fetch, caches, caching, entries, shared, guard);
        let storing = Some(Box::new(storing));
        let (is_mutation, changes) = (false, MutationChanges::default());
        let call = OutgoingRequest::Subgraph { body, is_mutation, storing, backup, changes };
        self.send(sent, call, calls);
    }

    /// The fields with these numbers: those with an entry, and those without, which are neither looked up nor stored.
    fn requested_fields(
        &self,
        caching: &FetchCaching,
        root: &RootRequest,
        addresses: &Addresses<'_>,
        numbers: &[u16],
    ) -> (Vec<RequestedField>, Vec<RequestedField>) {
        let (mut all, mut rest) = (Vec::with_capacity(numbers.len()), Vec::new());
        for &number in numbers {
            let part = caching.parts.get(usize::from(number));
            let tags = part.and_then(|part| self.root_tags(part, &addresses.caches().tags));
            let entry = tags.and_then(|tags| {
                let address = addresses.of_root_field(caching, root, usize::from(number))?;
                Some((address, tags))
            });
            let kept = if entry.is_some() { &mut all } else { &mut rest };
            let shared =
                addresses.caches().shared.as_ref().and_then(|_| {
                    addresses.shared_root_field_base(caching, root, usize::from(number))
                });
            kept.push(RequestedField { number, entry, shared });
        }
        (all, rest)
    }

    /// The tags of a root field by the schema, rendered. `None` if one has no value: nothing is looked up or stored
    /// then, because an invalidation of the tag would not reach it.
    fn root_tags(&self, part: &PartCaching, hasher: &TagHasher) -> Option<Vec<Tag>> {
        let mut text = String::new();
        let tags = part.root_tags.iter().map(|RootTag { template, arguments }| {
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
}

/// Returns the fields that are worth a look into the shared store, each with the entry that is known, if only a later
/// one is of interest: those whose last response was stored.
fn wanted_fields<'f>(
    caching: &FetchCaching,
    fields: impl Iterator<Item = (&'f RequestedField, &'f Option<Hit>)>,
) -> Vec<WantedEntry> {
    let wanted = fields.filter_map(|(field, hit)| {
        let scope = caching.expected_scope(usize::from(field.number))?;
        let key = field.shared.as_ref()?.key_of(b"", scope)?;
        let (address, _) = field.entry.as_ref()?;
        let newer_than = hit.as_ref().map(Hit::began);
        Some(WantedEntry { key, address: address.clone(), newer_than })
    });
    wanted.collect()
}

/// Returns stored root fields as the response that the subgraph would have sent. Fields without an entry are left out.
fn root_response(
    root: &RootRequest,
    fields: &[RequestedField],
    hits: &[Option<Hit>],
) -> SubgraphResponse {
    SubgraphResponse {
        status: StatusCode::OK,
        headers: HeaderMap::new(),
        body: root_body(root, fields, hits),
        policy: Some(Arc::new(fold_fields(fields, hits))),
        hedge: None,
    }
}

fn fold_fields(fields: &[RequestedField], hits: &[Option<Hit>]) -> PolicyFold {
    let mut fold = PolicyFold::default();
    for (field, hit) in fields.iter().zip(hits) {
        if let (Some((address, _)), Some(hit)) = (&field.entry, hit) {
            hit.add_to(address, &mut fold);
        }
    }
    fold
}

fn root_body(root: &RootRequest, fields: &[RequestedField], hits: &[Option<Hit>]) -> Bytes {
    let bodies = hits.iter().flatten().map(|hit| hit.body().len() + 32);
    let mut body = Vec::with_capacity(bodies.sum::<usize>() + 16);
    body.extend_from_slice(b"{\"data\":");
    let mut separator = b'{';
    for (field, hit) in fields.iter().zip(hits) {
        let (Some(hit), Some(root)) = (hit, root.fields().get(usize::from(field.number))) else {
            continue;
        };
        body.push(separator);
        separator = b',';
        body.push(b'"');
        // A name needs no escapes.
        body.extend_from_slice(root.data_key.as_bytes());
        body.extend_from_slice(b"\":");
        body.extend_from_slice(hit.body());
    }
    body.extend_from_slice(b"}}");
    body.into()
}
