//! Combines several requests that differ only in their entities into one. Their lists of
//! representations become one without duplicates, and the response is split: each request gets the
//! response that it would have got alone. If a response does not show which request each error
//! concerns, it is not split, and the caller sends each request alone.

use std::ops::Range;

use astjson::{Document, Kind, NodeId};
use bytes::Bytes;
use foldhash::{HashMap, HashMapExt};
use plan::EntityBatch;

use crate::SubgraphResponse;
use crate::bounds::JOINT_BODY_BYTES_MAX;
use crate::document_pool::PooledDocument;
use crate::item_lists::list_items;
use crate::response;

/// A request as it would be sent alone.
#[derive(Debug)]
pub(super) struct SingleRequest {
    pub(super) body: Bytes,
    /// The positions of its lists of representations, by batch; empty if it has none.
    pub(super) lists: Vec<Range<usize>>,
}

/// A request that replaces one or several requests.
#[derive(Debug)]
pub(super) struct CombinedRequest {
    pub(super) body: Bytes,
    pub(super) members: Vec<CombinedMember>,
    /// The number of its representations, by batch.
    counts: Vec<usize>,
}

/// One of the requests that a combined request replaces.
#[derive(Debug)]
pub(super) struct CombinedMember {
    /// The index among the requests that were to be combined.
    pub(super) number: usize,
    /// The indices of its own representations among all, in its own order, by batch.
    items: Vec<Vec<usize>>,
}

/// Combines requests that are equal except for the lists, up to `representations_max`
/// representations, with duplicates counted.
pub(super) fn combine_requests(
    all: &[SingleRequest],
    representations_max: u32,
) -> Vec<CombinedRequest> {
    let mut combiners: Vec<RequestCombiner<'_>> = Vec::new();
    for (number, own) in all.iter().enumerate() {
        let lists = own.lists.iter().map(|list| {
            let items = list_items(&own.body, list.clone()).into_iter();
            items.map(|item| &own.body[item]).collect()
        });
        let lists: Vec<Vec<&[u8]>> = lists.collect();
        let count = lists.iter().map(Vec::len).sum();
        let bytes: usize = own.lists.iter().map(Range::len).sum();
        let fits = |it: &&mut RequestCombiner<'_>| {
            it.count + count <= representations_max as usize
                && it.bytes + bytes <= JOINT_BODY_BYTES_MAX
                && parts_between_lists(it.first) == parts_between_lists(own)
        };
        match combiners.iter_mut().find(fits) {
            Some(known) => known.add_request(number, &lists, count, bytes),
            None => {
                let mut new = RequestCombiner::new(own);
                new.add_request(number, &lists, count, bytes);
                combiners.push(new);
            }
        }
    }
    combiners.into_iter().map(RequestCombiner::finish).collect()
}

/// Returns the parts of a request between its lists.
fn parts_between_lists(own: &SingleRequest) -> Vec<&[u8]> {
    let ends = own.lists.iter().map(|list| list.end);
    let starts = own.lists.iter().map(|list| list.start);
    let pieces = std::iter::once(0).chain(ends).zip(starts.chain([own.body.len()]));
    pieces.map(|(start, end)| &own.body[start..end]).collect()
}

struct RequestCombiner<'a> {
    first: &'a SingleRequest,
    members: Vec<CombinedMember>,
    /// Distinct representations, by batch.
    lists: Vec<DistinctTexts<'a>>,
    /// The number of representations, and of bytes of lists, of all members.
    count: usize,
    bytes: usize,
}

/// Representations without duplicates.
struct DistinctTexts<'a> {
    all: Vec<&'a [u8]>,
    numbers: HashMap<&'a [u8], usize>,
}

impl<'a> DistinctTexts<'a> {
    fn number_of(&mut self, text: &'a [u8]) -> usize {
        *self.numbers.entry(text).or_insert_with(|| {
            self.all.push(text);
            self.all.len() - 1
        })
    }
}

impl<'a> RequestCombiner<'a> {
    fn new(first: &'a SingleRequest) -> Self {
        let empty = |_| DistinctTexts { all: Vec::new(), numbers: HashMap::new() };
        let lists = first.lists.iter().map(empty).collect();
        Self { first, members: Vec::new(), lists, count: 0, bytes: 0 }
    }

    fn add_request(&mut self, number: usize, lists: &[Vec<&'a [u8]>], count: usize, bytes: usize) {
        let items =
            self.lists.iter_mut().zip(lists).map(|(distinct, texts)| {
                texts.iter().map(|text| distinct.number_of(text)).collect()
            });
        let items = items.collect();
        self.members.push(CombinedMember { number, items });
        self.count += count;
        self.bytes += bytes;
    }

    fn finish(self) -> CombinedRequest {
        let Self { first, members, lists, bytes, .. } = self;
        let counts = lists.iter().map(|list| list.all.len()).collect();
        if members.len() == 1 {
            return CombinedRequest { body: first.body.clone(), members, counts };
        }
        let mut body = Vec::with_capacity(first.body.len() + bytes);
        for (index, piece) in parts_between_lists(first).into_iter().enumerate() {
            body.extend_from_slice(piece);
            if let Some(list) = lists.get(index) {
                body.push(b'[');
                body.extend_from_slice(&list.all.join(&b','));
                body.push(b']');
            }
        }
        CombinedRequest { body: body.into(), members, counts }
    }
}

impl CombinedRequest {
    /// Splits the response into those that its members would have got, in their order. `None` if it
    /// is not clear which member an error concerns.
    pub(super) fn split_response(
        &self,
        batches: &[EntityBatch],
        response: &SubgraphResponse,
    ) -> Option<Vec<SubgraphResponse>> {
        if self.is_one_request() {
            return Some(vec![response.clone(); self.members.len()]);
        }
        let mut document = PooledDocument::take();
        let root = document.parse(response.body.clone()).ok()?;
        let data = typed_member(&document, root, "data", Kind::Object)?;
        let mut entities: Vec<Vec<NodeId>> = Vec::with_capacity(batches.len());
        for (batch, &count) in batches.iter().zip(&self.counts) {
            let found = typed_member(&document, data, &batch.data_key, Kind::Array);
            let found = found.map(|list| document.elements(list).collect::<Vec<_>>());
            // The value of a batch without representations does not matter.
            let found = if count == 0 { Vec::new() } else { found? };
            (found.len() == count).then(|| entities.push(found))?;
        }
        let errors = match document.get(root, "errors") {
            None => Vec::new(),
            Some(errors) => match document.kind(errors) {
                Kind::Null => Vec::new(),
                Kind::Array => document.elements(errors).collect(),
                _ => return None,
            },
        };
        let errors = errors.into_iter().map(|node| EntityError::of(&document, node, batches, self));
        let errors = errors.collect::<Option<Vec<_>>>()?;
        let part = |member: &CombinedMember| {
            let body = print_response(&document, batches, &entities, &errors, member).into();
            SubgraphResponse { body, ..response.clone() }
        };
        Some(self.members.iter().map(part).collect())
    }

    /// True if all members are equal.
    pub(super) fn is_one_request(&self) -> bool {
        let is_all = |(items, count): (&Vec<usize>, &usize)| items.iter().copied().eq(0..*count);
        self.members.iter().all(|member| member.items.iter().zip(&self.counts).all(is_all))
    }
}

/// An error of one entity.
struct EntityError {
    node: NodeId,
    batch: usize,
    item: usize,
}

impl EntityError {
    fn of(
        document: &Document,
        node: NodeId,
        batches: &[EntityBatch],
        combined: &CombinedRequest,
    ) -> Option<Self> {
        let path = response::error_path(document, node);
        let (&key, &item) = (path.first()?, path.get(1)?);
        let batch = batches.iter().position(|batch| document.str_eq(key, &batch.data_key))?;
        let item = match document.kind(item) {
            Kind::Number => document.raw(item).parse().ok()?,
            _ => return None,
        };
        (item < *combined.counts.get(batch)?).then_some(Self { node, batch, item })
    }
}

fn typed_member(document: &Document, object: NodeId, key: &str, kind: Kind) -> Option<NodeId> {
    let value = match document.kind(object) {
        Kind::Object => document.get(object, key)?,
        _ => return None,
    };
    (document.kind(value) == kind).then_some(value)
}

/// Prints the response that `member` would have got.
fn print_response(
    document: &Document,
    batches: &[EntityBatch],
    entities: &[Vec<NodeId>],
    errors: &[EntityError],
    member: &CombinedMember,
) -> Vec<u8> {
    let mut out = Vec::from(&b"{\"data\":{"[..]);
    for (index, (batch, entities)) in batches.iter().zip(entities).enumerate() {
        out.extend_from_slice(if index > 0 { b",\"" } else { b"\"" });
        // A name needs no escapes.
        out.extend_from_slice(batch.data_key.as_bytes());
        out.extend_from_slice(b"\":[");
        for (index, &item) in member.items[index].iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            document.print(entities[item], &mut out);
        }
        out.push(b']');
    }
    out.push(b'}');
    let own = |error: &EntityError| {
        let own = member.items[error.batch].iter().position(|&item| item == error.item);
        own.map(|own| (error.batch, own, error.node))
    };
    let mut errors: Vec<_> = errors.iter().filter_map(own).collect();
    // Most subgraphs report errors in the order of the representations, so this is the order of a
    // response to a single request.
    errors.sort_by_key(|&(batch, own, _)| (batch, own));
    for (index, &(_, own, error)) in errors.iter().enumerate() {
        out.extend_from_slice(if index > 0 { b"," } else { b",\"errors\":[" });
        print_error(document, error, own, &mut out);
    }
    if !errors.is_empty() {
        out.push(b']');
    }
    out.push(b'}');
    out
}

/// Prints an error with the index of its entity replaced.
fn print_error(document: &Document, error: NodeId, item: usize, out: &mut Vec<u8>) {
    for (index, (key, value)) in document.members(error).enumerate() {
        out.push(if index > 0 { b',' } else { b'{' });
        astjson::print_string(&key, out);
        out.push(b':');
        if key != "path" {
            document.print(value, out);
            continue;
        }
        for (index, segment) in document.elements(value).enumerate() {
            out.push(if index > 0 { b',' } else { b'[' });
            match index {
                1 => out.extend_from_slice(item.to_string().as_bytes()),
                _ => document.print(segment, out),
            }
        }
        out.push(b']');
    }
    out.push(b'}');
}
