//! The addresses of entries: keys and tags of the representations of a request, or of its root fields.

use std::ops::Range;

use astjson::{Document, Kind, NodeId};
use bytes::Bytes;
use cache::{CacheKey, EntryAddress, HashDomain, KeyBase, Tag, TagValues};
use graph::SubgraphId;
use plan::{EntityBatch, RepresentationField};

use crate::RequestContext;
use crate::caching::{FetchCaching, SubgraphCache, SubgraphCaches};
use crate::document_pool::PooledDocument;

/// The parts of one request that decide its addresses.
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
    base: KeyBase,
}

impl<'a> Addresses<'a> {
    /// Begins the addresses of a request. `None` if its response is neither looked up nor stored.
    pub(crate) fn new(
        context: &'a RequestContext,
        subgraph: SubgraphId,
        caching: &FetchCaching,
        domain: HashDomain,
        request: RequestParts<'_>,
    ) -> Option<Self> {
        context.caching?;
        let caches = context.generation.caches.as_deref()?;
        let cache = caches.of(subgraph)?;
        let mut base = caching.base(caches, cache, domain, request.head);
        base.part(&request.variables());
        Some(Self { caches, cache, context, subgraph, base })
    }

    /// The caches of the generation.
    pub(crate) fn caches(&self) -> &'a SubgraphCaches {
        self.caches
    }

    /// The rules of the subgraph.
    pub(crate) fn cache(&self) -> &'a SubgraphCache {
        self.cache
    }

    /// The name of the subgraph.
    pub(crate) fn name(&self) -> &'a str {
        &self.cache.name
    }

    /// The beginning of the keys of one batch, or of root fields.
    fn part(&self, data_key: &str) -> KeyBase {
        let mut base = self.base.clone();
        base.part(data_key.as_bytes());
        base.headers(self.cache.key_headers.select(self.context.headers.of(self.subgraph)));
        base.for_partition(self.context.caching.and_then(|caching| caching.partition))
    }

    /// The address of the root fields of the request.
    pub(crate) fn of_root(&self) -> EntryAddress {
        let keys = self.part("").keys_of(b"");
        let tags = [self.caches.tags.subgraph(&self.cache.name)].into_iter().collect();
        EntryAddress { keys, tags }
    }

    /// The addresses of the representations of one batch: `items` are their positions in the request body. A
    /// representation that cannot be read, which does not happen to those that the router has written, is left out and
    /// all others with it.
    pub(crate) fn of_batch(
        &self,
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
        let base = self.part(&batch.data_key);
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
        let mut hasher = self.caches.tags.begin_entity(name);
        for (path, value) in &key_fields(document, node, name, batch) {
            hasher.field(path, value);
        }
        hasher.finish()
    }
}

/// Returns path and value of each field in the key of a representation, sorted.
pub(super) fn key_fields(
    document: &Document,
    node: NodeId,
    name: &str,
    batch: &EntityBatch,
) -> Vec<(String, String)> {
    let mut fields = Vec::with_capacity(2);
    let mut path = String::new();
    collect_key(document, node, name, &batch.representation.fields, &mut path, &mut fields);
    fields.sort_unstable();
    fields
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
