//! Stores the response to one request: decides its policy, and divides it into entries.

use std::ops::Range;
use std::sync::Arc;

use astjson::{Kind, NodeId};
use bytes::Bytes;
use cache::{
    EntryAddress, FetchStart, NewEntry, NotStorable, PolicyFold, ResponseContent, ResponseTtl,
    Scope, Tag, Tags, Timestamp, Vary, resolve_policy,
};
use graph::SubgraphId;
use plan::{FetchKind, Plan};

use super::entry_address::ObjectValues;
use super::{FetchCaching, FlightGuard, SubgraphCache, SubgraphCaches, entity_label, root_label};
use crate::document_pool::PooledDocument;
use crate::{Generation, SubgraphResponse};

/// The request whose response is to be stored. It is owned by the request, which may outlive the operation that sent
/// it.
pub(crate) struct ResponseStoring {
    generation: Arc<Generation>,
    subgraph: SubgraphId,
    caching: Arc<FetchCaching>,
    entries: RequestedEntries,
    /// The start of the request.
    start: FetchStart,
    began: Timestamp,
    /// The entries that others wait for until the response is stored.
    _guard: FlightGuard,
}

/// The entries of a request.
pub(crate) enum RequestedEntries {
    /// The root fields as one entry, their tags from the schema, and the body of the request.
    Root(EntryAddress, Vec<Tag>, Bytes),
    /// The entities.
    Entities(RequestedEntities),
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
struct ResponseFacts<'a> {
    caches: &'a SubgraphCaches,
    cache: &'a SubgraphCache,
    ttl: ResponseTtl,
    now: Timestamp,
}

impl ResponseStoring {
    /// Begins a request, before it is sent. `caches` are those of the generation.
    pub(crate) fn begin(
        generation: Arc<Generation>,
        caches: &SubgraphCaches,
        subgraph: SubgraphId,
        caching: Arc<FetchCaching>,
        entries: RequestedEntries,
        guard: FlightGuard,
    ) -> Self {
        let began = (caches.clock)();
        let start = caches.store.begin_fetch(began);
        Self { generation, subgraph, caching, entries, start, began, _guard: guard }
    }

    /// Stores a response, if it may be stored, and adds its policy to it.
    pub(crate) fn store(self, response: &mut SubgraphResponse) {
        let mut fold = PolicyFold::default();
        let scope = self.try_store(response, &mut fold);
        self.caching.note_scope(scope);
        if scope.is_none() {
            fold.forbid();
        }
        response.policy = Some(Arc::new(fold));
    }

    /// Returns the scope of the response; `None` if a part of it was not stored.
    fn try_store(&self, response: &SubgraphResponse, fold: &mut PolicyFold) -> Option<Scope> {
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
        let has_errors = document.get(root, "errors").is_some_and(|errors| {
            document.kind(errors) != Kind::Array || !document.is_empty(errors)
        });
        let data = document.get(root, "data").filter(|it| document.kind(*it) == Kind::Object)?;
        if has_errors {
            return None;
        }
        match &self.entries {
            RequestedEntries::Root(address, tags, request) => {
                self.store_root(&facts, &document, root, data, address, tags, request, fold)
            }
            RequestedEntries::Entities(entities) => {
                self.store_entities(&facts, &document, root, data, entities, fold)
            }
        }
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

    #[allow(clippy::too_many_arguments, reason = "one call, of parts that it borrows")]
    fn store_root(
        &self,
        facts: &ResponseFacts<'_>,
        document: &PooledDocument,
        root: NodeId,
        data: NodeId,
        address: &EntryAddress,
        tags: &[Tag],
        request: &Bytes,
        fold: &mut PolicyFold,
    ) -> Option<Scope> {
        let part = self.caching.parts.first()?;
        let is_null = |node| document.is_null(node);
        let content = match document.members(data).all(|(_, value)| is_null(value)) {
            true => ResponseContent::NotFound,
            false => ResponseContent::Data,
        };
        let mut all: Tags = tags.iter().copied().collect();
        all.extend(facts.type_tags(&part.type_names));
        add_response_tags(facts, document, root, "apolloCacheTags", None, &mut all);
        let mut body = Vec::with_capacity(256);
        document.print(data, &mut body);
        let scope = facts.insert(self, address, part, content, all, &body, fold).ok()?;
        facts.caches.store.note_stored(address, scope, &body, || {
            root_label(&facts.cache.name, request.clone(), scope == Scope::Private)
        });
        Some(scope)
    }

    fn store_entities(
        &self,
        facts: &ResponseFacts<'_>,
        document: &PooledDocument,
        root: NodeId,
        data: NodeId,
        entities: &RequestedEntities,
        fold: &mut PolicyFold,
    ) -> Option<Scope> {
        let fetch = entities.plan.fetches.get(entities.fetch)?;
        let FetchKind::Entities { batches, .. } = &fetch.kind else { return None };
        let mut scope = Scope::Public;
        let mut body = Vec::with_capacity(256);
        let mut tag = String::new();
        for (number, batch) in batches.iter().enumerate() {
            let (addresses, items) = (entities.addresses.get(number)?, entities.items.get(number)?);
            if addresses.is_empty() {
                continue;
            }
            let part = self.caching.parts.get(number)?;
            let list = document.get(data, &batch.data_key);
            let list = list.filter(|it| document.kind(*it) == Kind::Array)?;
            if document.len(list) != addresses.len() {
                return None;
            }
            let of_types: Tags = facts.type_tags(&part.type_names).collect();
            let each = document.elements(list).zip(addresses.iter().zip(items));
            for (index, (node, (address, item))) in each.enumerate() {
                let mut tags = of_types.clone();
                let representation = entities.body.slice(item.clone());
                facts.add_entity_tags(representation, &mut tag, &mut tags)?;
                let names = "apolloEntityCacheTags";
                add_response_tags(facts, document, root, names, Some(index), &mut tags);
                let content = match document.is_null(node) {
                    true => ResponseContent::NotFound,
                    false => ResponseContent::Data,
                };
                body.clear();
                document.print(node, &mut body);
                let stored = facts.insert(self, address, part, content, tags, &body, fold).ok()?;
                facts.caches.store.note_stored(address, stored, &body, || {
                    let representation = entities.body.slice(item.clone());
                    let is_private = stored == Scope::Private;
                    entity_label(&facts.cache.name, batch, representation, is_private)
                });
                scope = scope.max(stored);
            }
        }
        Some(scope)
    }
}

impl ResponseFacts<'_> {
    /// The tags of types, in every subgraph and in this one.
    fn type_tags<'a>(&'a self, names: &'a [Box<str>]) -> impl Iterator<Item = Tag> + 'a {
        let (tags, subgraph) = (&self.caches.tags, &self.cache.name);
        names
            .iter()
            .flat_map(move |name| [tags.type_name(name), tags.type_in_subgraph(name, subgraph)])
    }

    /// Adds the tags of the schema for one entity. `None` if one of them has no value: the entity must not be stored
    /// then, because an invalidation of the tag would not reach it.
    fn add_entity_tags(
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

    /// Stores one entry, and adds its policy to `fold`.
    #[allow(clippy::too_many_arguments, reason = "one call, of parts that it borrows")]
    fn insert(
        &self,
        storing: &ResponseStoring,
        address: &EntryAddress,
        part: &super::PartCaching,
        content: ResponseContent,
        tags: Tags,
        body: &[u8],
        fold: &mut PolicyFold,
    ) -> Result<Scope, NotStorable> {
        let settings = &self.cache.settings;
        let random = fastrand::u64(..);
        let policy = resolve_policy(&self.ttl, part.declared, content, settings, tags, random)?;
        let new = NewEntry { policy: &policy, start: storing.start, content, extra: b"", body };
        // Whether it was stored makes no difference to what the client may do with the response.
        self.caches.store.insert(address, &new, self.now, &self.cache.stats);
        let tags = policy.tags.iter().chain(address.tags.iter().copied());
        let age = self.now.since(storing.began);
        fold.add_part(&policy, age, tags, policy.tags.is_unbounded());
        Ok(policy.scope)
    }
}

/// Adds the tags that a response names in its extensions: a list of texts, or with `item` the list at this index of a
/// list of lists.
fn add_response_tags(
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
