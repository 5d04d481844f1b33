//! The addresses of entries: keys and tags of the representations of a request, and of root fields.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use astjson::{Document, Kind, NodeId};
use bytes::Bytes;
use cache::{
    CacheKey, EntityTagHasher, EntryAddress, HashDomain, KeyBase, SharedKeyBase, Tag, TagValues,
};
use graph::SubgraphId;
use plan::{EntityBatch, RepresentationField, Variables};

use super::fetch_caching::base_of;
use super::root_request::HoldingSelections;
use crate::RequestContext;
use crate::caching::{
    FetchCaching, KeyedSelection, RequestAddresses, RootRequest, SubgraphCache, SubgraphCaches,
};
use crate::document_pool::PooledDocument;
use crate::item_lists::list_items;

/// The parts of one request for entities that decide its addresses.
#[derive(Clone, Copy)]
pub(crate) struct RequestParts<'a> {
    /// The body up to and with the opening brace of `variables`.
    pub(crate) head: &'a [u8],
    /// The whole body.
    pub(crate) body: &'a Bytes,
    /// The positions of its lists of representations, by batch.
    pub(crate) lists: &'a [Range<usize>],
}

impl RequestParts<'_> {
    /// The variables without the lists.
    fn variables(&self) -> Vec<u8> {
        let mut variables = Vec::with_capacity(64);
        let mut at = self.head.len();
        for list in self.lists {
            variables.extend_from_slice(self.body.get(at..list.start).unwrap_or_default());
            at = list.end;
        }
        variables.extend_from_slice(self.body.get(at..).unwrap_or_default());
        variables
    }
}

/// Makes the addresses of one request.
pub(crate) struct Addresses<'a> {
    caches: &'a SubgraphCaches,
    cache: &'a SubgraphCache,
    context: &'a RequestContext,
    subgraph: SubgraphId,
    variables: &'a Variables,
}

impl<'a> Addresses<'a> {
    /// Begins the addresses of a request. `None` if its response is neither looked up nor stored.
    pub(crate) fn new(
        context: &'a RequestContext,
        subgraph: SubgraphId,
        variables: &'a Variables,
    ) -> Option<Self> {
        context.caching?;
        let caches = context.generation.caches.as_deref()?;
        let cache = caches.of(subgraph)?;
        Some(Self { caches, cache, context, subgraph, variables })
    }

    /// The caches of the generation.
    pub(crate) fn caches(&self) -> &'a SubgraphCaches {
        self.caches
    }

    /// True if an entry that is fresh for `left` is fetched again although it may be used.
    pub(crate) fn renews(&self, left: Duration) -> bool {
        let within = self.context.caching.and_then(|caching| caching.renew_within);
        within.is_some_and(|within| left <= within)
    }

    /// The rules of the subgraph.
    pub(crate) fn cache(&self) -> &'a SubgraphCache {
        self.cache
    }

    /// The name of the subgraph.
    pub(crate) fn name(&self) -> &'a str {
        &self.cache.name
    }

    /// Adds to the subgraph and the selection what else the keys of a part have in common: the values of variables, the
    /// headers, the partition. `context_values` are those of the request alone.
    fn complete(
        &self,
        mut base: KeyBase,
        selection: &KeyedSelection,
        context_values: &[u8],
    ) -> KeyBase {
        let mut values = Vec::new();
        for &variable in &selection.variables {
            // A variable without a value is another one than the empty text, which no value is.
            let value = self.variables.get(variable).unwrap_or_default();
            values.extend_from_slice(&(value.len() as u64).to_le_bytes());
            values.extend_from_slice(value.as_bytes());
        }
        values.extend_from_slice(context_values);
        base.part(&values);
        let headers = self.context.headers.of(self.subgraph).forwarded;
        base.headers(self.cache.key_headers.select(headers));
        base.for_partition(self.context.caching.and_then(|caching| caching.partition))
    }

    /// The beginning of the keys of the batch with this number.
    fn batch_base(
        &self,
        caching: &FetchCaching,
        number: usize,
        request: RequestParts<'_>,
    ) -> Option<KeyBase> {
        let selection = &caching.parts.get(number)?.selection;
        let base = caching.base(number, self.caches, self.cache, HashDomain::Entity);
        let context_values = if selection.reads_context { request.variables() } else { Vec::new() };
        Some(self.complete(base, selection, &context_values))
    }

    /// The beginning of the keys of entities with this selection, by any representation.
    pub(super) fn entity_base(&self, selection: &KeyedSelection) -> KeyBase {
        let base = base_of(self.caches, self.cache, HashDomain::Entity, &selection.text);
        self.complete(base, selection, b"")
    }

    /// The beginning of the keys of the batch with this number in a shared store.
    pub(crate) fn shared_batch_base(
        &self,
        caching: &FetchCaching,
        number: usize,
        request: RequestParts<'_>,
    ) -> Option<SharedKeyBase> {
        self.batch_base(caching, number, request).map(|base| base.shared())
    }

    /// The keys of a root field: the field with this number of the request.
    fn root_field_base(
        &self,
        caching: &FetchCaching,
        root: &RootRequest,
        number: usize,
    ) -> Option<KeyBase> {
        let part = caching.parts.get(number)?;
        let domain = HashDomain::RootFields;
        let base = match root.fields().get(number)?.holding(self.variables) {
            HoldingSelections::All => caching.base(number, self.caches, self.cache, domain),
            HoldingSelections::Some(selections) => {
                let texts: Vec<&str> = selections.iter().map(|it| &*it.key_text).collect();
                base_of(self.caches, self.cache, domain, &texts.join(" "))
            }
        };
        Some(self.complete(base, &part.selection, b""))
    }

    /// The keys of a root field in a shared store.
    pub(crate) fn shared_root_field_base(
        &self,
        caching: &FetchCaching,
        root: &RootRequest,
        number: usize,
    ) -> Option<SharedKeyBase> {
        self.root_field_base(caching, root, number).map(|base| base.shared())
    }

    /// The address of a root field.
    pub(crate) fn of_root_field(
        &self,
        caching: &FetchCaching,
        root: &RootRequest,
        number: usize,
    ) -> Option<EntryAddress> {
        let keys = self.root_field_base(caching, root, number)?.keys_of(b"");
        let tags = [self.caches.tags.subgraph(&self.cache.name)].into_iter().collect();
        Some(EntryAddress { keys, tags })
    }

    /// The representations of a request for entities. `None` if they cannot be read, see [`Addresses::of_batch`].
    pub(crate) fn of_request(
        &self,
        caching: &FetchCaching,
        batches: &[EntityBatch],
        request: RequestParts<'_>,
    ) -> Option<Arc<RequestAddresses>> {
        let bases =
            (0..request.lists.len()).map(|number| self.batch_base(caching, number, request));
        let bases: Vec<KeyBase> = bases.collect::<Option<_>>()?;
        let keys = bases.iter().map(|base| base.keys_of(b"")).collect();
        let generation = self.context.generation.number;
        self.caches.memory.addresses_of(request.body, keys, generation, |body| {
            let lists = request.lists.iter().map(|list| list_items(body, list.clone()));
            let items: Vec<Vec<Range<usize>>> = lists.collect();
            let each = batches.iter().zip(&bases).zip(request.lists.iter().zip(&items));
            let all = each.map(|((batch, base), (list, items))| {
                self.of_batch(base, batch, body, list, items)
            });
            let all = all.collect::<Option<_>>()?;
            Some((items, all))
        })
    }

    /// The addresses of the representations of one batch: `items` are their positions in the body. A representation
    /// that cannot be read, which does not happen to those that the router has written, is left out and all others with
    /// it.
    fn of_batch(
        &self,
        base: &KeyBase,
        batch: &EntityBatch,
        body: &Bytes,
        list: &Range<usize>,
        items: &[Range<usize>],
    ) -> Option<Vec<EntryAddress>> {
        if items.is_empty() {
            return Some(Vec::new());
        }
        let mut document = PooledDocument::take();
        let root = document.parse(body.slice(list.clone())).ok()?;
        let nodes = document.elements(root);
        let subgraph = self.caches.tags.subgraph(&self.cache.name);
        let (mut known, mut fields) = (Vec::<KnownType>::new(), Vec::with_capacity(2));
        let mut addresses = Vec::with_capacity(items.len());
        for (node, item) in nodes.zip(items) {
            let name = document.get(node, "__typename").and_then(|name| document.as_str(name))?;
            let place = known.iter().position(|known| *known.name == *name).unwrap_or_else(|| {
                let tags = &self.caches.tags;
                known.push(KnownType {
                    name: (*name).into(),
                    tags: [tags.type_name(&name), tags.type_in_subgraph(&name, &self.cache.name)],
                    entity: tags.begin_entity(&name),
                });
                known.len() - 1
            });
            let of_type = &known[place];
            let [in_all, in_subgraph] = of_type.tags;
            let entity = entity_tag(&document, node, of_type, batch, &mut fields);
            addresses.push(EntryAddress {
                keys: base.keys_of(&body[item.clone()]),
                tags: [subgraph, in_all, in_subgraph, entity].into(),
            });
        }
        (addresses.len() == items.len()).then_some(addresses)
    }
}

/// A type of the representations of one batch, with everything that is the same for all of them.
struct KnownType {
    name: Box<str>,
    /// The tags of the type, in every subgraph and in this one.
    tags: [Tag; 2],
    /// The beginning of the tags of its entities.
    entity: EntityTagHasher,
}

/// A member of a key: its path and its value. Most are texts of the representation.
type KeyField<'a> = (Cow<'a, str>, Cow<'a, str>);

/// The tag of an entity, by the fields of its key. `fields` is the memory for them.
fn entity_tag<'a>(
    document: &'a Document,
    node: NodeId,
    of_type: &KnownType,
    batch: &'a EntityBatch,
    fields: &mut Vec<KeyField<'a>>,
) -> Tag {
    fields.clear();
    collect_key(document, node, &of_type.name, &batch.representation.fields, fields);
    fields.sort_unstable();
    let mut hasher = of_type.entity.clone();
    for (path, value) in &*fields {
        hasher.field(path, value);
    }
    hasher.finish()
}

/// Returns path and value of each field in the key of a representation, sorted.
pub(super) fn key_fields<'a>(
    document: &'a Document,
    node: NodeId,
    name: &str,
    batch: &'a EntityBatch,
) -> Vec<KeyField<'a>> {
    let mut fields = Vec::with_capacity(2);
    collect_key(document, node, name, &batch.representation.fields, &mut fields);
    fields.sort_unstable();
    fields
}

/// Adds path and value of each member of a key.
fn collect_key<'a>(
    document: &'a Document,
    node: NodeId,
    name: &str,
    members: &'a [RepresentationField],
    fields: &mut Vec<KeyField<'a>>,
) {
    for member in members {
        let is_sent = member.types.is_empty() || member.types.iter().any(|it| **it == *name);
        if !member.key || !is_sent {
            continue;
        }
        if let Some(value) = document.get(node, &member.name) {
            add_value(document, value, Cow::Borrowed(&member.name), fields);
        }
    }
}

// Recursion is bounded by the nesting that the parser allows.
fn add_value<'a>(
    document: &'a Document,
    node: NodeId,
    path: Cow<'a, str>,
    fields: &mut Vec<KeyField<'a>>,
) {
    match document.kind(node) {
        Kind::Object => {
            for (name, value) in document.members(node) {
                add_value(document, value, format!("{path}.{name}").into(), fields);
            }
        }
        Kind::Array => {
            for (index, value) in document.elements(node).enumerate() {
                add_value(document, value, format!("{path}.{index}").into(), fields);
            }
        }
        Kind::String | Kind::Null | Kind::Bool | Kind::Number => {
            let value = document.as_str(node).unwrap_or_else(|| document.raw(node).into());
            fields.push((path, value));
        }
    }
}

/// The members of a JSON object as the values of a template of tags.
pub(crate) struct ObjectValues<'a> {
    pub(crate) document: &'a Document,
    pub(crate) object: NodeId,
}

impl TagValues for ObjectValues<'_> {
    fn write_value(&self, path: &[Box<str>], out: &mut String) -> bool {
        let mut node = self.object;
        for name in path {
            if self.document.kind(node) != Kind::Object {
                return false;
            }
            let Some(next) = self.document.get(node, name) else { return false };
            node = next;
        }
        match self.document.kind(node) {
            Kind::String => match self.document.as_str(node) {
                Some(text) => out.push_str(&text),
                None => return false,
            },
            Kind::Bool | Kind::Number => out.push_str(self.document.raw(node)),
            Kind::Null | Kind::Array | Kind::Object => return false,
        }
        true
    }
}

/// The keys under which a request that will store an entry is known to others.
pub(crate) fn flight_key(address: &EntryAddress, scope: cache::Scope) -> Option<CacheKey> {
    match scope {
        cache::Scope::Public => Some(address.keys.public),
        cache::Scope::Private => address.keys.private,
    }
}
