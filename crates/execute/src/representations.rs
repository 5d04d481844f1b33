//! Collects the objects of entity batches, and writes their representations into the request body,
//! where duplicates are removed.

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::ops::Range;

use astjson::{Document, Kind, NodeId, Shape};
use foldhash::{HashMap, HashSet};
use plan::{EntityBatch, Path, Representation, RepresentationField, ReusedValue};

use crate::bounds::{REMEMBERED_MAX, SCRATCH_ENTRIES_MAX, TARGET_OBJECTS_MAX};
use crate::compiled::CompiledBatch;
use crate::compiled_objects::{CompiledMember, CompiledRepresentation, CompiledTarget};

/// The objects of one batch of one request.
#[derive(Debug, Default)]
pub(crate) struct CollectedBatch {
    /// Every object that was represented, in the order of the tree, path by path.
    pub(crate) objects: Vec<CollectedObject>,
    /// The number of distinct representations that were written.
    pub(crate) items: u32,
    /// Objects whose entity the request knows from another place.
    pub(crate) remembered: Vec<RememberedObject>,
    /// The position of the list of representations in the request body, with brackets.
    pub(crate) list: Range<usize>,
}

impl CollectedBatch {
    /// Returns the number of representations that were left out, because they equal another one of the batch.
    pub(crate) fn deduplicated(&self) -> u32 {
        // Root fields below objects are requested once for all of them, without a list.
        match self.list.is_empty() {
            true => 0,
            false => (self.objects.len() as u32).saturating_sub(self.items),
        }
    }
}

/// An object whose entity is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RememberedObject {
    /// The object.
    pub(crate) node: NodeId,
    /// The object that holds the known values.
    pub(crate) known: NodeId,
    /// The index of the place of `known` in [`EntityBatch::reuse`].
    pub(crate) place: u32,
    /// The index of the target path that led to the object.
    pub(crate) target: u32,
}

/// An object that was represented.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CollectedObject {
    /// The object.
    pub(crate) node: NodeId,
    /// Index of its representation in the request, and so of its entity in the response.
    pub(crate) item: u32,
    /// The index of the target path that led to it.
    pub(crate) target: u32,
}

/// A bound that was exceeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CollectError {
    /// See [`TARGET_OBJECTS_MAX`].
    Objects,
    /// See [`crate::bounds::REPRESENTATIONS_MAX`].
    Representations,
    /// See [`crate::bounds::CONTEXTS_MAX`].
    Contexts,
}

/// Writes the JSON list of the batch's distinct representations to `out`. `representations_left` is
/// the number that the operation may still send; it is decreased. `only` restricts the objects.
///
/// Hot path: each representation is written once, hashed, and truncated again if the same bytes are
/// in the list already.
pub(crate) fn write_representations(
    document: &Document,
    root: NodeId,
    batch: &EntityBatch,
    compiled: &CompiledBatch,
    only: Option<&HashSet<NodeId>>,
    representations_left: &mut u32,
    out: &mut Vec<u8>,
) -> Result<CollectedBatch, CollectError> {
    let mut collected = CollectedBatch::default();
    let Scratch { mut walk, mut known } = SCRATCH.take();
    known.clear();
    for place in 0..batch.reuse.len() {
        known.add_known_entities(document, root, batch, compiled, place, &mut walk);
    }
    let start = out.len();
    out.push(b'[');
    for (number, (path, target)) in batch.targets.iter().zip(&compiled.targets).enumerate() {
        let objects = walk.objects_at(document, root, &compiled.entity, path, target)?;
        collected.objects.reserve(objects.len());
        for &node in objects {
            if only.is_some_and(|only| !only.contains(&node)) {
                continue;
            }
            let mark = out.len();
            if collected.items > 0 {
                out.push(b',');
            }
            let start = out.len();
            let (representation, own) = (&batch.representation, &compiled.representation);
            if !write_representation(document, node, &compiled.entity, representation, own, out) {
                out.truncate(mark);
                continue;
            }
            let item = match known.decide(out, start, collected.items) {
                RepresentationDecision::Remembered(place) => {
                    out.truncate(mark);
                    let (known, place) = known.places[place as usize];
                    let target = number as u32;
                    collected.remembered.push(RememberedObject { node, known, place, target });
                    continue;
                }
                RepresentationDecision::Duplicate(item) => {
                    out.truncate(mark);
                    item
                }
                RepresentationDecision::New => {
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
    collected.list = start..out.len();
    let scratch = Scratch { walk, known };
    if scratch.is_worth_keeping() {
        SCRATCH.set(scratch);
    }
    Ok(collected)
}

/// Working memory of collecting, kept from one call to the next so that nothing is allocated.
#[derive(Default)]
struct Scratch {
    walk: TargetWalk,
    known: KnownRepresentations,
}

thread_local! {
    static SCRATCH: Cell<Scratch> = Cell::default();
}

impl Scratch {
    /// True unless the memory is so large that a single huge operation would pin it.
    fn is_worth_keeping(&self) -> bool {
        self.known.by_hash.capacity() <= SCRATCH_ENTRIES_MAX
            && self.known.remembered.capacity() <= SCRATCH_ENTRIES_MAX
            && self.walk.capacity() <= SCRATCH_ENTRIES_MAX
            && self.walk.met.capacity() <= SCRATCH_ENTRIES_MAX
    }
}

/// The distinct representations of a batch: those in the body, and those of entities that the
/// request knows.
#[derive(Default)]
struct KnownRepresentations {
    /// The representations by hash. If two different texts have the same hash, the second one takes
    /// the next free number.
    by_hash: HashMap<u64, KnownText>,
    hasher: foldhash::fast::RandomState,
    /// Representations of entities that are known, one after the other.
    remembered: Vec<u8>,
    /// Where they are known: the object, and the index of its place in [`EntityBatch::reuse`].
    places: Vec<(NodeId, u32)>,
}

struct KnownText {
    start: usize,
    len: usize,
    item: EntityOrigin,
}

/// The origin of an entity.
#[derive(Clone, Copy)]
enum EntityOrigin {
    /// Fetched: the number of its representation in the body.
    Fetched(u32),
    /// Known: index into [`KnownRepresentations::places`].
    Remembered(u32),
}

/// The treatment of a representation that has just been written.
enum RepresentationDecision {
    /// It is fetched.
    New,
    /// It is fetched already, as this item.
    Duplicate(u32),
    /// The request knows this entity from this place.
    Remembered(u32),
}

impl KnownRepresentations {
    fn clear(&mut self) {
        self.by_hash.clear();
        self.remembered.clear();
        self.places.clear();
    }

    /// Decides about a representation: `out` holds it from `start` on. If it is new it becomes
    /// `item`.
    fn decide(&mut self, out: &[u8], start: usize, item: u32) -> RepresentationDecision {
        let text = &out[start..];
        let mut hash = self.hasher.hash_one(text);
        loop {
            match self.by_hash.entry(hash) {
                Entry::Vacant(free) => {
                    free.insert(KnownText {
                        start,
                        len: text.len(),
                        item: EntityOrigin::Fetched(item),
                    });
                    return RepresentationDecision::New;
                }
                Entry::Occupied(taken) => {
                    let known = taken.get();
                    let range = known.start..known.start + known.len;
                    match known.item {
                        EntityOrigin::Fetched(item) if &out[range.clone()] == text => {
                            return RepresentationDecision::Duplicate(item);
                        }
                        EntityOrigin::Remembered(place) if &self.remembered[range] == text => {
                            return RepresentationDecision::Remembered(place);
                        }
                        _ => hash = hash.wrapping_add(1),
                    }
                }
            }
        }
    }

    /// Adds the entities of a batch that the request knows from a place, given by its index.
    fn add_known_entities(
        &mut self,
        document: &Document,
        root: NodeId,
        batch: &EntityBatch,
        compiled: &CompiledBatch,
        number: usize,
        walk: &mut TargetWalk,
    ) {
        let (place, shape) = (&batch.reuse[number], &compiled.entity);
        let compiled = &compiled.reuse[number];
        let objects = walk.objects_at(document, root, shape, &place.path, &compiled.target);
        // If there are too many objects, they are fetched, which ends with the error about the
        // bound.
        let Ok(objects) = objects else { return };
        for &node in objects {
            if self.places.len() >= REMEMBERED_MAX {
                return;
            }
            let mut values = place.values.iter().zip(&compiled.values);
            if !values.all(|(value, own)| scalar_text(document, node, value, own.slot).is_some()) {
                continue;
            }
            let start = self.remembered.len();
            let (representation, own) = (&place.representation, &compiled.representation);
            let out = &mut self.remembered;
            if !write_representation(document, node, shape, representation, own, out) {
                out.truncate(start);
                continue;
            }
            let text = &self.remembered[start..];
            let mut hash = self.hasher.hash_one(text);
            let item = EntityOrigin::Remembered(self.places.len() as u32);
            loop {
                match self.by_hash.entry(hash) {
                    Entry::Vacant(free) => {
                        free.insert(KnownText { start, len: text.len(), item });
                        self.places.push((node, number as u32));
                        break;
                    }
                    Entry::Occupied(taken) => {
                        let known = taken.get();
                        if &self.remembered[known.start..known.start + known.len] == text {
                            self.remembered.truncate(start);
                            break;
                        }
                        hash = hash.wrapping_add(1);
                    }
                }
            }
        }
    }
}

/// Returns the text of a value that is copied from `object`, if it is a scalar and not null. `slot` is a hint.
pub(crate) fn scalar_text<'d>(
    document: &'d Document,
    object: NodeId,
    value: &ReusedValue,
    slot: usize,
) -> Option<&'d str> {
    let value = document.get_near(object, &value.data_key, slot)?;
    match document.kind_and_raw(value) {
        (Kind::Null | Kind::Array | Kind::Object, _) => None,
        (Kind::Bool | Kind::Number | Kind::String, raw) => Some(raw),
    }
}

/// Walks target paths. It is reused: it keeps its memory, and the common part of two successive
/// paths is walked once.
#[derive(Default)]
pub(crate) struct TargetWalk {
    /// The objects that the last path leads to, by number of steps.
    levels: Vec<Vec<NodeId>>,
    /// The number of steps of that path that have been walked.
    walked: usize,
    /// The number of the last walked step that met a node, by node.
    met: Vec<u32>,
    step: u32,
}

impl TargetWalk {
    /// Returns the objects that `path`, compiled as `target`, leads to, in the order of the tree.
    /// An object that occurs at several places because responses were linked is returned once.
    /// `shape` is the layout of all responses.
    ///
    /// Targets of one batch must be walked one after the other, the first one first: see
    /// [`CompiledTarget::as_before`]. The document must not change meanwhile.
    pub(crate) fn objects_at(
        &mut self,
        document: &Document,
        root: NodeId,
        shape: &Shape,
        path: &Path,
        target: &CompiledTarget,
    ) -> Result<&[NodeId], CollectError> {
        let length = path.steps.len();
        if self.levels.len() <= length {
            self.levels.resize_with(length + 1, Vec::new);
        }
        self.walked = self.walked.min(target.as_before);
        if self.walked == 0 {
            self.levels[0].clear();
            self.levels[0].push(root);
        }
        let steps = path.steps.iter().zip(&target.slots).enumerate().skip(self.walked);
        for (index, (step, slots)) in steps {
            let (before, behind) = self.levels.split_at_mut(index + 1);
            let (found, next) = (&before[index], &mut behind[0]);
            next.clear();
            for &object in found {
                let value = match document.slots(object, shape, slots.objects) {
                    Some(own) => own.get(slots.member),
                    None => document.get(object, &step.data_key),
                };
                if let Some(value) = value {
                    collect_objects(document, value, &step.types, slots.typename, next)?;
                }
            }
            if index >= target.shared_from && next.len() > 1 {
                self.keep_first_of_each(index + 1);
            }
            self.walked = index + 1;
        }
        Ok(&self.levels[length])
    }

    fn capacity(&self) -> usize {
        self.levels.iter().map(Vec::capacity).sum()
    }

    fn keep_first_of_each(&mut self, level: usize) {
        self.step = self.step.wrapping_add(1);
        if self.step == 0 {
            // Once in four billion steps old marks could be taken for new ones.
            self.met.clear();
            self.step = 1;
        }
        let (met, step) = (&mut self.met, self.step);
        self.levels[level].retain(|node| {
            let index = node.index();
            if index >= met.len() {
                met.resize(index + 1, 0);
            }
            std::mem::replace(&mut met[index], step) != step
        });
    }
}

// Recursion is bounded by the nesting of a parsed response.
fn collect_objects(
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
                // Most lists are of objects, most objects of a type that is known.
                if types.is_empty()
                    && found.len() < TARGET_OBJECTS_MAX
                    && document.kind(element) == Kind::Object
                {
                    found.push(element);
                } else {
                    collect_objects(document, element, types, typename_slot, found)?;
                }
            }
        }
        Kind::Null | Kind::Bool | Kind::Number | Kind::String => {}
    }
    Ok(())
}

/// Writes one representation. Returns false if the object cannot be represented, because a key
/// member is null or a member is missing; `out` then holds a part of it.
fn write_representation(
    document: &Document,
    object: NodeId,
    shape: &Shape,
    representation: &Representation,
    compiled: &CompiledRepresentation,
    out: &mut Vec<u8>,
) -> bool {
    out.extend_from_slice(&compiled.opening);
    if representation.typename.is_none() {
        match document.get_near(object, "__typename", compiled.typename_slot) {
            Some(name) if document.kind(name) == Kind::String => {
                out.extend_from_slice(document.raw(name).as_bytes());
            }
            _ => return false,
        }
    }
    let slots = document.slots(object, shape, compiled.objects);
    for (index, member) in compiled.members.iter().enumerate() {
        // Hot path: most members are scalars, and only their constants are read.
        if member.is_plain
            && let Some(slots) = slots
            && let Some(value) = slots.get(member.slot)
            && let (Kind::Bool | Kind::Number | Kind::String, raw) = document.kind_and_raw(value)
        {
            out.extend_from_slice(&member.printed_key);
            out.extend_from_slice(raw.as_bytes());
            continue;
        }
        // There is one member for each.
        let field = &representation.fields[index];
        if !has_type(document, object, &field.types, compiled.typename_slot) {
            continue;
        }
        let value = match slots {
            Some(slots) => slots.get(member.slot),
            None => document.get_near(object, &field.data_key, member.slot),
        };
        let Some(value) = value else { return false };
        out.extend_from_slice(&member.printed_key);
        if !write_member(document, value, field, member, out) {
            return false;
        }
    }
    out.push(b'}');
    true
}

/// Writes the value of a member. Returns false if the object cannot be represented.
fn write_member(
    document: &Document,
    value: NodeId,
    field: &RepresentationField,
    compiled: &CompiledMember,
    out: &mut Vec<u8>,
) -> bool {
    match document.kind_and_raw(value) {
        (Kind::Null, _) if field.key => return false,
        (Kind::Null, _) => out.extend_from_slice(b"null"),
        _ if !field.fields.is_empty() => {
            return write_nested(document, value, &field.fields, compiled, out);
        }
        (Kind::Array | Kind::Object, _) => document.print(value, out),
        (Kind::Bool | Kind::Number | Kind::String, raw) => {
            out.extend_from_slice(raw.as_bytes());
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
            let mut separators = 1;
            for (field, member) in fields.iter().zip(&compiled.members) {
                if !has_type(document, value, &field.types, compiled.typename_slot) {
                    continue;
                }
                let Some(value) = document.get_near(value, &field.data_key, member.slot) else {
                    return false;
                };
                out.extend_from_slice(&member.printed_key[std::mem::take(&mut separators)..]);
                if !write_member(document, value, field, member, out) {
                    return false;
                }
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

/// True if the object's `__typename` is one of `types`, or if `types` is empty.
fn has_type(document: &Document, object: NodeId, types: &[Box<str>], slot: usize) -> bool {
    types.is_empty()
        || document
            .get_near(object, "__typename", slot)
            .is_some_and(|name| types.iter().any(|it| document.str_eq(name, it)))
}
