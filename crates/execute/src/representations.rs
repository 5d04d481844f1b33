//! Entity batches: the objects that a batch is about, and their representations, written straight
//! into the request body and de-duplicated there.

use std::collections::hash_map::Entry;
use std::hash::BuildHasher;

use astjson::{Document, Kind, NodeId};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use plan::{EntityBatch, Path, Representation, RepresentationField};

use crate::bounds::TARGET_OBJECTS_MAX;
use crate::client_path::has_type;
use crate::executable::CompiledBatch;

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
    for (target, (path, compiled)) in batch.targets.iter().zip(&compiled.targets).enumerate() {
        objects_at(document, root, path, compiled.shared_from, &mut objects)?;
        collected.objects.reserve(objects.len());
        for &node in &objects {
            let mark = out.len();
            if collected.items > 0 {
                out.push(b',');
            }
            let start = out.len();
            if !write_representation(document, node, &batch.representation, out) {
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
            collected.objects.push(CollectedObject { node, item, target: target as u32 });
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

/// Puts the objects that `path` leads to into `found`, in the order of the tree. From step
/// `shared_from` on an object that stands at several places is taken once.
pub(crate) fn objects_at(
    document: &Document,
    root: NodeId,
    path: &Path,
    shared_from: usize,
    found: &mut Vec<NodeId>,
) -> Result<(), CollectError> {
    found.clear();
    found.push(root);
    let mut next = Vec::new();
    for (index, step) in path.steps.iter().enumerate() {
        next.clear();
        for &object in &*found {
            if let Some(value) = document.get(object, &step.data_key) {
                flatten(document, value, &step.types, &mut next)?;
            }
        }
        if index >= shared_from && next.len() > 1 {
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
    found: &mut Vec<NodeId>,
) -> Result<(), CollectError> {
    match document.kind(value) {
        Kind::Object => {
            if has_type(document, value, types) {
                if found.len() >= TARGET_OBJECTS_MAX {
                    return Err(CollectError::Objects);
                }
                found.push(value);
            }
        }
        Kind::Array => {
            for element in document.elements(value) {
                flatten(document, element, types, found)?;
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
    out: &mut Vec<u8>,
) -> bool {
    out.extend_from_slice(b"{\"__typename\":");
    match &representation.typename {
        Some(name) => astjson::print_string(name, out),
        None => match document.get(object, "__typename") {
            Some(name) if document.kind(name) == Kind::String => {
                out.extend_from_slice(document.raw(name).as_bytes());
            }
            _ => return false,
        },
    }
    write_members(document, object, &representation.fields, b",", out) && {
        out.push(b'}');
        true
    }
}

fn write_members(
    document: &Document,
    object: NodeId,
    fields: &[RepresentationField],
    mut separator: &'static [u8],
    out: &mut Vec<u8>,
) -> bool {
    for field in fields {
        if !has_type(document, object, &field.types) {
            continue;
        }
        let Some(value) = document.get(object, &field.data_key) else { return false };
        out.extend_from_slice(separator);
        separator = b",";
        out.push(b'"');
        out.extend_from_slice(field.name.as_bytes());
        out.extend_from_slice(b"\":");
        if document.is_null(value) {
            if field.key {
                return false;
            }
            out.extend_from_slice(b"null");
        } else if field.fields.is_empty() {
            document.print(value, out);
        } else if !write_nested(document, value, &field.fields, out) {
            return false;
        }
    }
    true
}

fn write_nested(
    document: &Document,
    value: NodeId,
    fields: &[RepresentationField],
    out: &mut Vec<u8>,
) -> bool {
    match document.kind(value) {
        Kind::Null => out.extend_from_slice(b"null"),
        Kind::Object => {
            out.push(b'{');
            if !write_members(document, value, fields, b"", out) {
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
                if !write_nested(document, element, fields, out) {
                    return false;
                }
            }
            out.push(b']');
        }
        Kind::Bool | Kind::Number | Kind::String => return false,
    }
    true
}
