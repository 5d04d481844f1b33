//! Stores the response to one request: decides its policy, and divides it into entries.

use std::ops::Range;
use std::sync::Arc;

use astjson::{Kind, NodeId};
use bytes::Bytes;
use cache::{
    EntryAddress, EntryLabel, FetchStart, NewEntry, PolicyFold, ResponseContent, ResponseTtl,
    Scope, SharedEntry, SharedKeyBase, SharedStart, StoreOutcome, Tag, Tags, Timestamp, Vary,
    resolve_policy,
};
use graph::SubgraphId;
use plan::{FetchKind, Plan};

use super::entry_address::ObjectValues;
use super::reported_errors::FaultyParts;
use super::{
    FetchCaching, FetchLocks, FlightGuard, PartCaching, SharedCache, SubgraphCache, SubgraphCaches,
    entity_label, root_label,
};
use crate::document_pool::PooledDocument;
use crate::{Generation, SubgraphResponse};

/// The request of the response that is to be stored. It is owned by the request, which may outlive the operation that
/// sent it.
pub(crate) struct ResponseStoring {
    generation: Arc<Generation>,
    subgraph: SubgraphId,
    caching: Arc<FetchCaching>,
    entries: RequestedEntries,
    /// The start of the request.
    start: FetchStart,
    began: Timestamp,
    /// The keys in the store that several routers share.
    shared: Option<SharedStoring>,
    /// True if the tags of the response are collected also where it is not stored.
    collects_tags: bool,
    /// The entries that others wait for until the response is stored.
    _guard: FlightGuard,
}

/// The keys of a request in the store that several routers share.
pub(crate) struct SharedStoring {
    start: SharedStart,
    /// The beginning of the keys of each batch; empty for root fields, which have their own.
    bases: Vec<SharedKeyBase>,
    /// The right to fetch, which ends when the response is stored.
    locks: FetchLocks,
}

impl SharedStoring {
    /// Begins a request, before it is sent. `None` if its response must not be shared.
    pub(crate) fn begin(
        shared: &dyn SharedCache,
        bases: Vec<SharedKeyBase>,
        locks: FetchLocks,
    ) -> Option<Self> {
        Some(Self { start: shared.begin_fetch()?, bases, locks })
    }
}

/// The entries of a request.
pub(crate) enum RequestedEntries {
    /// The root fields, and the body of the request.
    Root(Vec<RequestedField>, Bytes),
    /// The entities.
    Entities(RequestedEntities),
}

/// A root field of a request.
#[derive(Clone)]
pub(crate) struct RequestedField {
    /// The number of the field in its [`super::RootRequest`].
    pub(crate) number: u16,
    /// The address and the tags from the schema; `None` if the field must not be stored.
    pub(crate) entry: Option<(EntryAddress, Vec<Tag>)>,
    /// The keys in the store that several routers share, if there is one.
    pub(crate) shared: Option<SharedKeyBase>,
}

/// The entities of a request.
pub(crate) struct RequestedEntities {
    pub(crate) plan: Arc<Plan>,
    /// The index of the fetch in the plan.
    pub(crate) fetch: usize,
    /// The addresses of the representations, by batch.
    pub(crate) addresses: Vec<Vec<EntryAddress>>,
    /// The request body, and the positions of its representations by batch.
    pub(crate) body: Bytes,
    pub(crate) items: Vec<Vec<Range<usize>>>,
}

/// The parts of a response that decide about all of its entries.
pub(super) struct ResponseFacts<'a> {
    pub(super) caches: &'a SubgraphCaches,
    pub(super) cache: &'a SubgraphCache,
    pub(super) ttl: ResponseTtl,
    pub(super) now: Timestamp,
}

impl ResponseStoring {
    /// Begins a request, before it is sent. `caches` are those of the generation.
    pub(crate) fn begin(
        generation: Arc<Generation>,
        caches: &SubgraphCaches,
        subgraph: SubgraphId,
        caching: Arc<FetchCaching>,
        entries: RequestedEntries,
        shared: Option<SharedStoring>,
        guard: FlightGuard,
    ) -> Self {
        let began = (caches.clock)();
        let start = caches.store.begin_fetch(began);
        let collects_tags = false;
        Self {
            generation,
            subgraph,
            caching,
            entries,
            start,
            began,
            shared,
            collects_tags,
            _guard: guard,
        }
    }

    /// Collects the tags of the response also where it is not stored, if `collects_tags`.
    pub(crate) fn collecting_tags(self, collects_tags: bool) -> Self {
        Self { collects_tags, ..self }
    }

    /// Keeps the right to fetch the entries for all routers until the response is stored.
    pub(crate) fn keep_locks(&mut self, locks: FetchLocks) {
        if let Some(shared) = &mut self.shared {
            shared.locks = locks;
        }
    }

    /// Stores the parts of a response that may be stored, and adds its policy to it.
    pub(crate) fn store(self, response: &mut SubgraphResponse) {
        let mut progress = StoringProgress::new(self.caching.parts.len());
        let is_whole = self.try_store(response, &mut progress).is_some() && progress.is_whole;
        for part in self.requested_parts() {
            self.caching.note_scope(part, progress.scopes.get(part).copied().flatten());
        }
        if !is_whole {
            progress.fold.forbid();
            if self.collects_tags {
                self.collect_tags(response, &mut progress.fold);
            }
        }
        response.policy = Some(Arc::new(progress.fold));
    }

    /// The numbers of the parts that the request asks for.
    fn requested_parts(&self) -> Vec<usize> {
        match &self.entries {
            RequestedEntries::Root(fields, _) => {
                fields.iter().map(|field| usize::from(field.number)).collect()
            }
            RequestedEntries::Entities(entities) => {
                let batches = entities.addresses.iter().enumerate();
                batches.filter(|(_, items)| !items.is_empty()).map(|(part, _)| part).collect()
            }
        }
    }

    /// Stores what may be stored. `None` if nothing else of the response can be stored.
    fn try_store(&self, response: &SubgraphResponse, progress: &mut StoringProgress) -> Option<()> {
        let caches = self.generation.caches.as_deref()?;
        let cache = caches.of(self.subgraph)?;
        if !response.status.is_success() {
            return None;
        }
        let (ttl, read) = ResponseTtl::from_headers(&response.headers, cache.ttl_header.as_ref());
        if let Err(error) = read {
            tracing::debug!(subgraph = &*cache.name, %error, "a time to live that cannot be read");
        }
        let vary = Vary::from_headers(&response.headers);
        // The keys of this request do not have the new name, so its response is not stored under them.
        if vary == Vary::Any || cache.key_headers.learn(&vary) {
            return None;
        }
        let facts = ResponseFacts { caches, cache, ttl, now: (caches.clock)() };
        if !self.may_be_storable(&facts) {
            return None;
        }
        let mut document = PooledDocument::take();
        let root = document.parse(response.body.clone()).ok()?;
        if document.kind(root) != Kind::Object {
            return None;
        }
        let data = document.get(root, "data").filter(|it| document.kind(*it) == Kind::Object)?;
        let faulty = FaultyParts::read(&document, root, |key| self.part_of(key))?;
        progress.is_whole = faulty.is_empty();
        let read = ReadResponse { document: &document, root, data, faulty };
        match &self.entries {
            RequestedEntries::Root(fields, body) => {
                self.store_root(&facts, &read, fields, body, progress)
            }
            RequestedEntries::Entities(entities) => {
                self.store_entities(&facts, &read, entities, progress)
            }
        }
    }

    /// The number of the part with this key in the response, and the number of its entities, if it has entities.
    fn part_of(&self, key: &str) -> Option<(usize, Option<usize>)> {
        match &self.entries {
            RequestedEntries::Root(fields, _) => {
                let all = self.caching.root.as_ref()?.fields();
                let mut numbers = fields.iter().map(|field| usize::from(field.number));
                let number = numbers
                    .find(|number| all.get(*number).is_some_and(|it| *it.data_key == *key))?;
                Some((number, None))
            }
            RequestedEntries::Entities(entities) => {
                let batches = entities.plan.fetches.get(entities.fetch)?.kind.batches();
                let number = batches.iter().position(|batch| *batch.data_key == *key)?;
                Some((number, Some(entities.addresses.get(number)?.len())))
            }
        }
    }

    /// Adds the tags of a response that is not stored as a whole: those of its addresses and types, and those that it
    /// names.
    fn collect_tags(&self, response: &SubgraphResponse, fold: &mut PolicyFold) {
        let Some(caches) = self.generation.caches.as_deref() else { return };
        let Some(cache) = caches.of(self.subgraph) else { return };
        let facts = ResponseFacts { caches, cache, ttl: ResponseTtl::default(), now: self.began };
        for part in &self.caching.parts {
            fold.add_tags(facts.type_tags(&part.type_names), false);
        }
        let mut document = PooledDocument::take();
        let root = document.parse(response.body.clone()).ok();
        let root = root.filter(|root| document.kind(*root) == Kind::Object);
        let mut named = Tags::default();
        match &self.entries {
            RequestedEntries::Root(fields, _) => {
                for (address, tags) in fields.iter().filter_map(|field| field.entry.as_ref()) {
                    fold.add_tags(address.tags.iter().chain(tags).copied(), false);
                }
                if let Some(root) = root {
                    add_response_tags(&facts, &document, root, "apolloCacheTags", None, &mut named);
                }
            }
            RequestedEntries::Entities(entities) => {
                let mut text = String::new();
                let batches = entities.addresses.iter().zip(&entities.items);
                let each =
                    batches.flat_map(|(addresses, items)| addresses.iter().zip(items).enumerate());
                for (index, (address, item)) in each {
                    fold.add_tags(address.tags.iter().copied(), false);
                    // A tag without a value cannot be named by an invalidation.
                    let representation = entities.body.slice(item.clone());
                    let _ = facts.add_entity_tags(representation, &mut text, &mut named);
                    if let Some(root) = root {
                        let names = "apolloEntityCacheTags";
                        let index = Some(index);
                        add_response_tags(&facts, &document, root, names, index, &mut named);
                    }
                }
            }
        }
        fold.add_tags(named.iter(), named.is_unbounded());
    }

    /// True if an entry of the response may be stored, as far as its headers decide that: a response that is not stored
    /// is not parsed here.
    fn may_be_storable(&self, facts: &ResponseFacts<'_>) -> bool {
        self.caching.parts.iter().any(|part| {
            let content = ResponseContent::Data;
            let settings = &facts.cache.settings;
            resolve_policy(&facts.ttl, part.declared, content, settings, Tags::default(), 0).is_ok()
        })
    }

    fn store_root(
        &self,
        facts: &ResponseFacts<'_>,
        response: &ReadResponse<'_>,
        fields: &[RequestedField],
        body: &Bytes,
        progress: &mut StoringProgress,
    ) -> Option<()> {
        let root = self.caching.root.as_ref()?;
        let mut of_response = Tags::default();
        add_response_tags(
            facts,
            response.document,
            response.root,
            "apolloCacheTags",
            None,
            &mut of_response,
        );
        for field in fields {
            let number = usize::from(field.number);
            let part = self.caching.parts.get(number)?;
            let value = response.document.get(response.data, &root.fields().get(number)?.data_key);
            let stored = field.entry.as_ref().zip(value);
            let Some(((address, own), value)) =
                stored.filter(|_| !response.faulty.contains(number, 0))
            else {
                progress.is_whole = false;
                continue;
            };
            let mut tags = of_response.clone();
            tags.extend(own.iter().copied());
            tags.extend(facts.type_tags(&part.type_names));
            let shared = field.shared.as_ref().map(|base| (base, &b""[..]));
            let label = |is_private| {
                root_label(&facts.cache.name, &part.selection, body.clone(), is_private)
            };
            let new = NewPart { number, part, address, tags, value, shared, label: &label };
            facts.insert(self, response, new, progress);
        }
        Some(())
    }

    fn store_entities(
        &self,
        facts: &ResponseFacts<'_>,
        response: &ReadResponse<'_>,
        entities: &RequestedEntities,
        progress: &mut StoringProgress,
    ) -> Option<()> {
        let document = response.document;
        let fetch = entities.plan.fetches.get(entities.fetch)?;
        let FetchKind::Entities { batches, .. } = &fetch.kind else { return None };
        let mut tag = String::new();
        let bases = self.shared.as_ref().map_or(&[][..], |shared| &shared.bases);
        for (number, batch) in batches.iter().enumerate() {
            let (addresses, items) = (entities.addresses.get(number)?, entities.items.get(number)?);
            if addresses.is_empty() {
                continue;
            }
            let part = self.caching.parts.get(number)?;
            let list = document.get(response.data, &batch.data_key);
            let list = list.filter(|it| document.kind(*it) == Kind::Array)?;
            if document.len(list) != addresses.len() {
                return None;
            }
            let of_types: Tags = facts.type_tags(&part.type_names).collect();
            let each = document.elements(list).zip(addresses.iter().zip(items));
            for (index, (value, (address, item))) in each.enumerate() {
                let mut tags = of_types.clone();
                let representation = entities.body.slice(item.clone());
                let has_tags =
                    facts.add_entity_tags(representation.clone(), &mut tag, &mut tags).is_some();
                if !has_tags || response.faulty.contains(number, index) {
                    progress.is_whole = false;
                    continue;
                }
                let names = "apolloEntityCacheTags";
                add_response_tags(facts, document, response.root, names, Some(index), &mut tags);
                let shared = bases.get(number).map(|base| (base, &*representation));
                let label = |is_private| {
                    entity_label(&facts.cache.name, batch, representation.clone(), is_private)
                };
                let new = NewPart { number, part, address, tags, value, shared, label: &label };
                facts.insert(self, response, new, progress);
            }
        }
        Some(())
    }
}

/// A response that was read.
struct ReadResponse<'a> {
    document: &'a PooledDocument,
    root: NodeId,
    data: NodeId,
    faulty: FaultyParts,
}

/// A part of a response that has no errors.
struct NewPart<'a> {
    /// The number of its batch or root field.
    number: usize,
    part: &'a PartCaching,
    address: &'a EntryAddress,
    tags: Tags,
    value: NodeId,
    /// The beginning of its key in the store that several routers share, and the rest.
    shared: Option<(&'a SharedKeyBase, &'a [u8])>,
    /// Describes the entry, which is private or not.
    label: &'a dyn Fn(bool) -> EntryLabel,
}

/// The stored parts of one response.
struct StoringProgress {
    fold: PolicyFold,
    /// The scope of what was stored of each part.
    scopes: Vec<Option<Scope>>,
    /// False if something was not stored.
    is_whole: bool,
    /// Room for the text of an entry.
    body: Vec<u8>,
}

impl StoringProgress {
    fn new(parts: usize) -> Self {
        let body = Vec::with_capacity(256);
        Self { fold: PolicyFold::default(), scopes: vec![None; parts], is_whole: true, body }
    }
}

impl ResponseFacts<'_> {
    /// The tags of types, in every subgraph and in this one.
    pub(super) fn type_tags<'a>(&'a self, names: &'a [Box<str>]) -> impl Iterator<Item = Tag> + 'a {
        let (tags, subgraph) = (&self.caches.tags, &self.cache.name);
        names
            .iter()
            .flat_map(move |name| [tags.type_name(name), tags.type_in_subgraph(name, subgraph)])
    }

    /// Adds the tags of the schema for one entity. `None` if one of them has no value: the entity must not be stored
    /// then, because an invalidation of the tag would not reach it.
    pub(super) fn add_entity_tags(
        &self,
        representation: Bytes,
        tag: &mut String,
        tags: &mut Tags,
    ) -> Option<()> {
        if self.cache.type_tags.is_empty() {
            return Some(());
        }
        let mut document = PooledDocument::take();
        let object = document.parse(representation).ok()?;
        let name = document.get(object, "__typename").and_then(|name| document.as_str(name))?;
        for template in self.cache.type_tags.get(&*name).into_iter().flatten() {
            let values = ObjectValues { document: &document, object };
            if let Err(error) = template.render(&values, tag) {
                tracing::debug!(subgraph = &*self.cache.name, r#type = &*name, %error, "an entity without its tag");
                return None;
            }
            tags.insert(self.caches.tags.text(tag));
        }
        Some(())
    }

    /// Stores one entry, if its policy allows that, and adds its policy to the others.
    fn insert(
        &self,
        storing: &ResponseStoring,
        response: &ReadResponse<'_>,
        new: NewPart<'_>,
        progress: &mut StoringProgress,
    ) {
        let NewPart { number, part, address, tags, value, shared, label } = new;
        let settings = &self.cache.settings;
        let content = match response.document.is_null(value) {
            true => ResponseContent::NotFound,
            false => ResponseContent::Data,
        };
        let random = fastrand::u64(..);
        let policy = resolve_policy(&self.ttl, part.declared, content, settings, tags, random);
        let Ok(policy) = policy else {
            progress.is_whole = false;
            return;
        };
        progress.body.clear();
        response.document.print(value, &mut progress.body);
        let (start, body) = (storing.start, &progress.body);
        let new = NewEntry { policy: &policy, start, content, extra: b"", body };
        // Whether it was stored makes no difference to what the client may do with the response.
        let outcome = self.caches.store.insert(address, &new, self.now, &self.cache.stats);
        if outcome == StoreOutcome::Stored
            && let Some(key) = shared
        {
            self.share(storing, address, key, &new);
        }
        let (scope, is_private) = (policy.scope, policy.scope == Scope::Private);
        self.caches.store.note_stored(address, scope, body, || label(is_private));
        let tags = policy.tags.iter().chain(address.tags.iter().copied());
        let age = self.now.since(storing.began);
        progress.fold.add_part(&policy, age, tags, policy.tags.is_unbounded());
        if let Some(scope) = progress.scopes.get_mut(number) {
            *scope = (*scope).max(Some(policy.scope));
        }
    }

    /// Has an entry written to the store that several routers share.
    fn share(
        &self,
        storing: &ResponseStoring,
        address: &EntryAddress,
        (base, rest): (&SharedKeyBase, &[u8]),
        new: &NewEntry<'_>,
    ) {
        let (Some(shared), Some(keys)) = (&self.caches.shared, &storing.shared) else { return };
        let policy = new.policy;
        let Some(key) = base.key_of(rest, policy.scope) else { return };
        let entry = SharedEntry {
            start: keys.start,
            began: storing.began,
            fetch_took: self.now.since(storing.began),
            policy: policy.without_implied_tags(address),
            content: new.content,
            body: Bytes::copy_from_slice(new.body),
        };
        shared.store(key, entry);
    }
}

/// Adds the tags that a response names in its extensions: a list of texts, or with `item` the list at this index of a
/// list of lists.
pub(super) fn add_response_tags(
    facts: &ResponseFacts<'_>,
    document: &PooledDocument,
    root: NodeId,
    name: &str,
    item: Option<usize>,
    tags: &mut Tags,
) {
    let member = |object: NodeId, name: &str| match document.kind(object) {
        Kind::Object => document.get(object, name),
        _ => None,
    };
    let is_list = |node: &NodeId| document.kind(*node) == Kind::Array;
    let list = member(root, "extensions").and_then(|it| member(it, name)).filter(is_list);
    let list = match (list, item) {
        (Some(list), Some(index)) => document.at(list, index).filter(is_list),
        (list, _) => list,
    };
    let texts = list.into_iter().flat_map(|list| document.elements(list));
    for text in texts.filter_map(|node| document.as_str(node)) {
        tags.insert(facts.caches.tags.text(&text));
    }
}
