//! Combines several requests that differ only in their entities into one. Their lists of
//! representations become one without duplicates, and the response is split: each request gets the
//! response that it would have got alone. If a response does not show which request each error
//! concerns, it is not split, and the caller sends each request alone.

use std::ops::Range;

use astjson::{Document, Kind, NodeId};
use bytes::Bytes;
use foldhash::{HashMap, HashMapExt};
use plan::EntityBatch;

use super::batching::items_of;
use crate::SubgraphAnswer;
use crate::answer;
use crate::bounds::JOINT_BODY_BYTES_MAX;
use crate::document_pool::PooledDocument;

/// A request as it would be sent alone.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) body: Bytes,
    /// The positions of its lists of representations, by batch; empty if it has none.
    pub(super) lists: Vec<Range<usize>>,
}

/// A request that replaces one or several requests.
#[derive(Debug)]
pub(super) struct Joint {
    pub(super) body: Bytes,
    pub(super) members: Vec<Member>,
    /// The number of its representations, by batch.
    counts: Vec<usize>,
}

/// One of the requests that a combined request replaces.
#[derive(Debug)]
pub(super) struct Member {
    /// The index among the requests that were to be combined.
    pub(super) number: usize,
    /// The indices of its own representations among all, in its own order, by batch.
    items: Vec<Vec<usize>>,
}

/// Combines requests that are equal except for the lists, up to `representations_max`
/// representations, with duplicates counted.
pub(super) fn join(all: &[Own], representations_max: u32) -> Vec<Joint> {
    let mut joining: Vec<Joining<'_>> = Vec::new();
    for (number, own) in all.iter().enumerate() {
        let lists = own.lists.iter().map(|list| {
            let items = items_of(&own.body, list.clone()).into_iter();
            items.map(|item| &own.body[item]).collect()
        });
        let lists: Vec<Vec<&[u8]>> = lists.collect();
        let count = lists.iter().map(Vec::len).sum();
        let bytes: usize = own.lists.iter().map(Range::len).sum();
        let fits = |it: &&mut Joining<'_>| {
            it.count + count <= representations_max as usize
                && it.bytes + bytes <= JOINT_BODY_BYTES_MAX
                && around(it.first) == around(own)
        };
        match joining.iter_mut().find(fits) {
            Some(known) => known.add(number, &lists, count, bytes),
            None => {
                let mut new = Joining::new(own);
                new.add(number, &lists, count, bytes);
                joining.push(new);
            }
        }
    }
    joining.into_iter().map(Joining::finish).collect()
}

/// Returns the parts of a request between its lists.
fn around(own: &Own) -> Vec<&[u8]> {
    let ends = own.lists.iter().map(|list| list.end);
    let starts = own.lists.iter().map(|list| list.start);
    let pieces = std::iter::once(0).chain(ends).zip(starts.chain([own.body.len()]));
    pieces.map(|(start, end)| &own.body[start..end]).collect()
}

struct Joining<'a> {
    first: &'a Own,
    members: Vec<Member>,
    /// Distinct representations, by batch.
    lists: Vec<Distinct<'a>>,
    /// The number of representations, and of bytes of lists, of all members.
    count: usize,
    bytes: usize,
}

/// Representations without duplicates.
struct Distinct<'a> {
    all: Vec<&'a [u8]>,
    numbers: HashMap<&'a [u8], usize>,
}

impl<'a> Distinct<'a> {
    fn number(&mut self, text: &'a [u8]) -> usize {
        *self.numbers.entry(text).or_insert_with(|| {
            self.all.push(text);
            self.all.len() - 1
        })
    }
}

impl<'a> Joining<'a> {
    fn new(first: &'a Own) -> Self {
        let empty = |_| Distinct { all: Vec::new(), numbers: HashMap::new() };
        let lists = first.lists.iter().map(empty).collect();
        Self { first, members: Vec::new(), lists, count: 0, bytes: 0 }
    }

    fn add(&mut self, number: usize, lists: &[Vec<&'a [u8]>], count: usize, bytes: usize) {
        let items = self
            .lists
            .iter_mut()
            .zip(lists)
            .map(|(distinct, texts)| texts.iter().map(|text| distinct.number(text)).collect());
        let items = items.collect();
        self.members.push(Member { number, items });
        self.count += count;
        self.bytes += bytes;
    }

    fn finish(self) -> Joint {
        let Self { first, members, lists, bytes, .. } = self;
        let counts = lists.iter().map(|list| list.all.len()).collect();
        if members.len() == 1 {
            return Joint { body: first.body.clone(), members, counts };
        }
        let mut body = Vec::with_capacity(first.body.len() + bytes);
        for (index, piece) in around(first).into_iter().enumerate() {
            body.extend_from_slice(piece);
            if let Some(list) = lists.get(index) {
                body.push(b'[');
                body.extend_from_slice(&list.all.join(&b','));
                body.push(b']');
            }
        }
        Joint { body: body.into(), members, counts }
    }
}

impl Joint {
    /// Splits the response into those that its members would have got, in their order. `None` if it
    /// is not clear which member an error concerns.
    pub(super) fn part(
        &self,
        batches: &[EntityBatch],
        answer: &SubgraphAnswer,
    ) -> Option<Vec<SubgraphAnswer>> {
        if self.is_one_request() {
            return Some(vec![answer.clone(); self.members.len()]);
        }
        let mut document = PooledDocument::take();
        let root = document.parse(answer.body.clone()).ok()?;
        let data = member(&document, root, "data", Kind::Object)?;
        let mut entities: Vec<Vec<NodeId>> = Vec::with_capacity(batches.len());
        for (batch, &count) in batches.iter().zip(&self.counts) {
            let found = member(&document, data, &batch.data_key, Kind::Array);
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
        let errors = errors.into_iter().map(|node| Placed::of(&document, node, batches, self));
        let errors = errors.collect::<Option<Vec<_>>>()?;
        let part = |member: &Member| {
            let body = print(&document, batches, &entities, &errors, member).into();
            SubgraphAnswer { body, ..answer.clone() }
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
struct Placed {
    node: NodeId,
    batch: usize,
    item: usize,
}

impl Placed {
    fn of(
        document: &Document,
        node: NodeId,
        batches: &[EntityBatch],
        joint: &Joint,
    ) -> Option<Self> {
        let path = answer::error_path(document, node);
        let (&key, &item) = (path.first()?, path.get(1)?);
        let batch = batches.iter().position(|batch| document.str_eq(key, &batch.data_key))?;
        let item = match document.kind(item) {
            Kind::Number => document.raw(item).parse().ok()?,
            _ => return None,
        };
        (item < *joint.counts.get(batch)?).then_some(Self { node, batch, item })
    }
}

fn member(document: &Document, object: NodeId, key: &str, kind: Kind) -> Option<NodeId> {
    let value = match document.kind(object) {
        Kind::Object => document.get(object, key)?,
        _ => return None,
    };
    (document.kind(value) == kind).then_some(value)
}

/// Prints the response that `member` would have got.
fn print(
    document: &Document,
    batches: &[EntityBatch],
    entities: &[Vec<NodeId>],
    errors: &[Placed],
    member: &Member,
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
    let own = |error: &Placed| {
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
