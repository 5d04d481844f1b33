//! The addresses of entries: keys and tags of the representations of a request, and of root fields.

use std::ops::Range;

use astjson::{Document, Kind, NodeId};
use bytes::Bytes;
use cache::{CacheKey, EntryAddress, HashDomain, KeyBase, Tag, TagValues};
use graph::SubgraphId;
use plan::{EntityBatch, RepresentationField, Variables};

use super::fetch_caching::base_of;
use super::root_request::HoldingSelections;
use crate::RequestContext;
use crate::caching::{FetchCaching, KeyedSelection, RootRequest, SubgraphCache, SubgraphCaches};
use crate::document_pool::PooledDocument;

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

    /// The rules of the subgraph.
    pub(crate) fn cache(&self) -> &'a SubgraphCache {
        self.cache
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
        base.headers(self.cache.key_headers.select(self.context.headers.of(self.subgraph)));
        base.for_partition(self.context.caching.and_then(|caching| caching.partition))
    }

    /// The beginning of the keys of a root field: the field with this number of the request. Nothing follows it.
    fn base_of_root_field(
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

    /// The address of a root field.
    pub(crate) fn of_root_field(
        &self,
        caching: &FetchCaching,
        root: &RootRequest,
        number: usize,
    ) -> Option<EntryAddress> {
        let keys = self.base_of_root_field(caching, root, number)?.keys_of(b"");
        let tags = [self.caches.tags.subgraph(&self.cache.name)].into_iter().collect();
        Some(EntryAddress { keys, tags })
    }

    /// The beginning of the keys of a batch: the batch with this number of the fetch. The representation follows it.
    fn base_of_batch(
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

    /// The addresses of the representations of the batch with this number: `items` are their positions in the request
    /// body. A representation that cannot be read, which does not happen to those that the router has written, is left
    /// out and all others with it.
    pub(crate) fn of_batch(
        &self,
        caching: &FetchCaching,
        number: usize,
        batch: &EntityBatch,
        request: RequestParts<'_>,
        list: &Range<usize>,
        items: &[Range<usize>],
    ) -> Option<Vec<EntryAddress>> {
        if items.is_empty() {
            return Some(Vec::new());
        }
        let mut document = PooledDocument::take();
        let root = document.parse(request.body.slice(list.clone())).ok()?;
        let nodes = document.elements(root);
        let base = self.base_of_batch(caching, number, request)?;
        let subgraph = self.caches.tags.subgraph(&self.cache.name);
        let mut known: Vec<(Box<str>, [Tag; 2])> = Vec::new();
        let mut addresses = Vec::with_capacity(items.len());
        for (node, item) in nodes.zip(items) {
            let name = document.get(node, "__typename").and_then(|name| document.as_str(name))?;
            let of_type = match known.iter().find(|(known, _)| **known == *name) {
                Some((_, tags)) => *tags,
                None => {
                    let tags = &self.caches.tags;
                    let new =
                        [tags.type_name(&name), tags.type_in_subgraph(&name, &self.cache.name)];
                    known.push(((*name).into(), new));
                    new
                }
            };
            let entity = self.entity_tag(&document, node, &name, batch);
            addresses.push(EntryAddress {
                keys: base.keys_of(&request.body[item.clone()]),
                tags: [subgraph, of_type[0], of_type[1], entity].into_iter().collect(),
            });
        }
        (addresses.len() == items.len()).then_some(addresses)
    }

    /// The tag of an entity, by the fields of its key.
    fn entity_tag(
        &self,
        document: &Document,
        node: NodeId,
        name: &str,
        batch: &EntityBatch,
    ) -> Tag {
        let mut fields = Vec::with_capacity(2);
        let mut path = String::new();
        collect_key(document, node, name, &batch.representation.fields, &mut path, &mut fields);
        fields.sort_unstable();
        let mut hasher = self.caches.tags.begin_entity(name);
        for (path, value) in &fields {
            hasher.field(path, value);
        }
        hasher.finish()
    }
}

/// Adds path and value of each member of a key.
fn collect_key(
    document: &Document,
    node: NodeId,
    name: &str,
    members: &[RepresentationField],
    path: &mut String,
    fields: &mut Vec<(String, String)>,
) {
    for member in members {
        let is_sent = member.types.is_empty() || member.types.iter().any(|it| **it == *name);
        if !member.key || !is_sent {
            continue;
        }
        let Some(value) = document.get(node, &member.name) else { continue };
        let length = path.len();
        if length > 0 {
            path.push('.');
        }
        path.push_str(&member.name);
        add_value(document, value, path, fields);
        path.truncate(length);
    }
}

// Recursion is bounded by the nesting that the parser allows.
fn add_value(
    document: &Document,
    node: NodeId,
    path: &mut String,
    fields: &mut Vec<(String, String)>,
) {
    let length = path.len();
    match document.kind(node) {
        Kind::Object => {
            for (name, value) in document.members(node) {
                path.push('.');
                path.push_str(&name);
                add_value(document, value, path, fields);
                path.truncate(length);
            }
        }
        Kind::Array => {
            for (index, value) in document.elements(node).enumerate() {
                path.push_str(&format!(".{index}"));
                add_value(document, value, path, fields);
                path.truncate(length);
            }
        }
        Kind::String | Kind::Null | Kind::Bool | Kind::Number => {
            let value = document
                .as_str(node)
                .map_or_else(|| document.raw(node).to_owned(), std::borrow::Cow::into_owned);
            fields.push((path.clone(), value));
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
