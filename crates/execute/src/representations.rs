//! Entity batches: the objects that a batch is about, and their representations, written straight
//! into the request body and de-duplicated there.

use std::collections::hash_map::Entry;
use std::hash::BuildHasher;

use astjson::{Document, Kind, NodeId};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use plan::{EntityBatch, Path, Representation, RepresentationField};

use crate::bounds::TARGET_OBJECTS_MAX;
use crate::executable::{CompiledBatch, CompiledMember, CompiledTarget};

/// The objects behind one batch of one request.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    /// Every object that was represented, in the order of the tree, path by path.
    pub(crate) objects: Vec<CollectedObject>,
    /// How many distinct representations were written.
    pub(crate) items: u32,
}

/// One object that was represented.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CollectedObject {
    /// The object.
    pub(crate) node: NodeId,
    /// Index of its representation in the request, and so of its entity in the answer.
    pub(crate) item: u32,
    /// Which target path led to it.
    pub(crate) target: u32,
}

/// Over a bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CollectError {
    /// See [`TARGET_OBJECTS_MAX`].
    Objects,
    /// See [`crate::bounds::REPRESENTATIONS_MAX`].
    Representations,
}

/// Writes the JSON list of the batch's distinct representations to `out`. `representations_left`
/// is what the operation may still send; it shrinks.
///
/// Hot path: each representation is written once, hashed, and truncated away again when the same
/// bytes are in the list already.
pub(crate) fn write_representations(
    document: &Document,
    root: NodeId,
    batch: &EntityBatch,
    compiled: &CompiledBatch,
    representations_left: &mut u32,
    out: &mut Vec<u8>,
) -> Result<Collected, CollectError> {
    let mut collected = Collected::default();
    let mut known =
        Known { by_hash: HashMap::new(), hasher: foldhash::fast::RandomState::default() };
    let mut objects = Vec::new();
    out.push(b'[');
    for (number, (path, target)) in batch.targets.iter().zip(&compiled.targets).enumerate() {
        objects_at(document, root, path, target, &mut objects)?;
        collected.objects.reserve(objects.len());
        for &node in &objects {
            let mark = out.len();
            if collected.items > 0 {
                out.push(b',');
            }
            let start = out.len();
            if !write_representation(document, node, &batch.representation, compiled, out) {
                out.truncate(mark);
                continue;
            }
            let item = match known.find_or_insert(out, start, collected.items) {
                Some(item) => {
                    out.truncate(mark);
                    item
                }
                None => {
                    let Some(left) = representations_left.checked_sub(1) else {
                        return Err(CollectError::Representations);
                    };
                    *representations_left = left;
                    collected.items += 1;
                    collected.items - 1
                }
            };
            collected.objects.push(CollectedObject { node, item, target: number as u32 });
        }
    }
    out.push(b']');
    Ok(collected)
}

/// Where each distinct representation stands in the body.
struct Known {
    /// By hash; where two different texts have one hash, the next free number stands for it.
    by_hash: HashMap<u64, KnownText>,
    hasher: foldhash::fast::RandomState,
}

struct KnownText {
    start: usize,
    len: usize,
    item: u32,
}

impl Known {
    /// The item whose text equals what `out` holds from `start` on; otherwise remembers it as `item`.
    fn find_or_insert(&mut self, out: &[u8], start: usize, item: u32) -> Option<u32> {
        let text = &out[start..];
        let mut hash = self.hasher.hash_one(text);
        loop {
            match self.by_hash.entry(hash) {
                Entry::Vacant(free) => {
                    free.insert(KnownText { start, len: text.len(), item });
                    return None;
                }
                Entry::Occupied(taken) => {
                    let known = taken.get();
                    if &out[known.start..known.start + known.len] == text {
                        return Some(known.item);
                    }
                    hash = hash.wrapping_add(1);
                }
            }
        }
    }
}

/// Puts the objects that `path`, compiled as `target`, leads to into `found`, in the order of the
/// tree. An object that stands at several places because answers were linked is taken once.
pub(crate) fn objects_at(
    document: &Document,
    root: NodeId,
    path: &Path,
    target: &CompiledTarget,
    found: &mut Vec<NodeId>,
) -> Result<(), CollectError> {
    found.clear();
    found.push(root);
    let mut next = Vec::new();
    for (index, (step, slots)) in path.steps.iter().zip(&target.slots).enumerate() {
        next.clear();
        for &object in &*found {
            if let Some(value) = document.get_near(object, &step.data_key, slots.member) {
                flatten(document, value, &step.types, slots.typename, &mut next)?;
            }
        }
        if index >= target.shared_from && next.len() > 1 {
            let mut seen = HashSet::with_capacity(next.len());
            next.retain(|&node| seen.insert(node));
        }
        std::mem::swap(found, &mut next);
    }
    Ok(())
}

// Recursion is bounded by how deep a parsed answer may nest.
fn flatten(
    document: &Document,
    value: NodeId,
    types: &[Box<str>],
    typename_slot: usize,
    found: &mut Vec<NodeId>,
) -> Result<(), CollectError> {
    match document.kind(value) {
        Kind::Object => {
            if has_type(document, value, types, typename_slot) {
                if found.len() >= TARGET_OBJECTS_MAX {
                    return Err(CollectError::Objects);
                }
                found.push(value);
            }
        }
        Kind::Array => {
            for element in document.elements(value) {
                flatten(document, element, types, typename_slot, found)?;
            }
        }
        Kind::Null | Kind::Bool | Kind::Number | Kind::String => {}
    }
    Ok(())
}

/// Writes one representation. `false`: the object cannot be represented, because a key member is
/// null, or something of it never arrived; `out` then holds a part of it.
fn write_representation(
    document: &Document,
    object: NodeId,
    representation: &Representation,
    compiled: &CompiledBatch,
    out: &mut Vec<u8>,
) -> bool {
    out.extend_from_slice(b"{\"__typename\":");
    match &representation.typename {
        Some(name) => {
            // A name needs no escapes.
            out.push(b'"');
            out.extend_from_slice(name.as_bytes());
            out.push(b'"');
        }
        None => match document.get_near(object, "__typename", compiled.typename_slot) {
            Some(name) if document.kind(name) == Kind::String => {
                out.extend_from_slice(document.raw(name).as_bytes());
            }
            _ => return false,
        },
    }
    let fields = representation.fields.iter().zip(&compiled.members);
    write_members(document, object, fields, compiled.typename_slot, b",", out) && {
        out.push(b'}');
        true
    }
}

fn write_members<'a>(
    document: &Document,
    object: NodeId,
    fields: impl Iterator<Item = (&'a RepresentationField, &'a CompiledMember)>,
    typename_slot: usize,
    mut separator: &'static [u8],
    out: &mut Vec<u8>,
) -> bool {
    for (field, compiled) in fields {
        if !has_type(document, object, &field.types, typename_slot) {
            continue;
        }
        let Some(value) = document.get_near(object, &field.data_key, compiled.slot) else {
            return false;
        };
        out.extend_from_slice(separator);
        separator = b",";
        out.push(b'"');
        out.extend_from_slice(field.name.as_bytes());
        out.extend_from_slice(b"\":");
        let (kind, raw) = document.kind_and_raw(value);
        if kind == Kind::Null {
            if field.key {
                return false;
            }
            out.extend_from_slice(b"null");
        } else if field.fields.is_empty() {
            match kind {
                Kind::Array | Kind::Object => document.print(value, out),
                _ => out.extend_from_slice(raw.as_bytes()),
            }
        } else if !write_nested(document, value, &field.fields, compiled, out) {
            return false;
        }
    }
    true
}

fn write_nested(
    document: &Document,
    value: NodeId,
    fields: &[RepresentationField],
    compiled: &CompiledMember,
    out: &mut Vec<u8>,
) -> bool {
    match document.kind(value) {
        Kind::Null => out.extend_from_slice(b"null"),
        Kind::Object => {
            out.push(b'{');
            let members: &mut dyn Iterator<Item = _> = &mut fields.iter().zip(&compiled.members);
            if !write_members(document, value, members, compiled.typename_slot, b"", out) {
                return false;
            }
            out.push(b'}');
        }
        Kind::Array => {
            out.push(b'[');
            for (index, element) in document.elements(value).enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                if !write_nested(document, element, fields, compiled, out) {
                    return false;
                }
            }
            out.push(b']');
        }
        Kind::Bool | Kind::Number | Kind::String => return false,
    }
    true
}

/// Is the object's `__typename` one of `types`? No types: any object will do.
fn has_type(document: &Document, object: NodeId, types: &[Box<str>], slot: usize) -> bool {
    types.is_empty()
        || document
            .get_near(object, "__typename", slot)
            .is_some_and(|name| types.iter().any(|it| document.str_eq(name, it)))
}
