//! Entity batches: the objects that a batch is about, and their representations, written straight
//! into the request body and de-duplicated there.

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::ops::Range;

use astjson::{Document, Kind, NodeId, Shape};
use foldhash::{HashMap, HashSet};
use plan::{EntityBatch, Path, Representation, RepresentationField};

use crate::bounds::{REMEMBERED_MAX, SCRATCH_ENTRIES_MAX, TARGET_OBJECTS_MAX};
use crate::compiled_objects::{CompiledMember, CompiledRepresentation, CompiledTarget};
use crate::executable::CompiledBatch;
use crate::memo::{Source, SourceValue};

/// The objects behind one batch of one request.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    /// Every object that was represented, in the order of the tree, path by path.
    pub(crate) objects: Vec<CollectedObject>,
    /// How many distinct representations were written.
    pub(crate) items: u32,
    /// Objects whose entity the request knows from another place.
    pub(crate) remembered: Vec<RememberedObject>,
    /// Where their list stands in the request body, brackets included.
    pub(crate) list: Range<usize>,
}

/// One object whose entity is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RememberedObject {
    /// The object.
    pub(crate) node: NodeId,
    /// Where its values are.
    pub(crate) known: NodeId,
    /// Which of the batch's sources that is.
    pub(crate) source: u32,
    /// Which target path led to the object.
    pub(crate) target: u32,
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
    /// See [`crate::bounds::CONTEXTS_MAX`].
    Contexts,
}

/// Writes the JSON list of the batch's distinct representations to `out`. `representations_left`
/// is what the operation may still send; it shrinks. `only`: these objects, if not all.
///
/// Hot path: each representation is written once, hashed, and truncated away again when the same
/// bytes are in the list already.
pub(crate) fn write_representations(
    document: &Document,
    root: NodeId,
    batch: &EntityBatch,
    compiled: &CompiledBatch,
    only: Option<&HashSet<NodeId>>,
    representations_left: &mut u32,
    out: &mut Vec<u8>,
) -> Result<Collected, CollectError> {
    let mut collected = Collected::default();
    let Scratch { mut walk, mut known } = SCRATCH.take();
    known.clear();
    for (number, source) in compiled.sources.iter().enumerate() {
        known.remember(document, root, &compiled.entity, source, number as u32, &mut walk);
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
                Decision::Remembered(place) => {
                    out.truncate(mark);
                    let (known, source) = known.places[place as usize];
                    let target = number as u32;
                    collected.remembered.push(RememberedObject { node, known, source, target });
                    continue;
                }
                Decision::Duplicate(item) => {
                    out.truncate(mark);
                    item
                }
                Decision::New => {
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

/// What collecting works with; kept from one time to the next, so that no memory is asked for.
#[derive(Default)]
struct Scratch {
    walk: Walk,
    known: Known,
}

thread_local! {
    static SCRATCH: Cell<Scratch> = Cell::default();
}

impl Scratch {
    /// One huge operation must not pin its memory.
    fn is_worth_keeping(&self) -> bool {
        self.known.by_hash.capacity() <= SCRATCH_ENTRIES_MAX
            && self.known.remembered.capacity() <= SCRATCH_ENTRIES_MAX
            && self.walk.capacity() <= SCRATCH_ENTRIES_MAX
            && self.walk.met.capacity() <= SCRATCH_ENTRIES_MAX
    }
}

/// The distinct representations of a batch: those in the body, and those of entities that the request knows.
#[derive(Default)]
struct Known {
    /// By hash; where two different texts have one hash, the next free number stands for it.
    by_hash: HashMap<u64, KnownText>,
    hasher: foldhash::fast::RandomState,
    /// Representations of entities that are known, one behind the other.
    remembered: Vec<u8>,
    /// Where they are known: object, and number of the source.
    places: Vec<(NodeId, u32)>,
}

struct KnownText {
    start: usize,
    len: usize,
    item: Item,
}

/// Where an entity comes from.
#[derive(Clone, Copy)]
enum Item {
    /// Asked for: the number of its representation in the body.
    Asked(u32),
    /// Known: index into [`Known::places`].
    Remembered(u32),
}

/// What becomes of a representation that has just been written.
enum Decision {
    /// It is asked for.
    New,
    /// It is asked for already, as this item.
    Duplicate(u32),
    /// The request knows this entity from here.
    Remembered(u32),
}

impl Known {
    fn clear(&mut self) {
        self.by_hash.clear();
        self.remembered.clear();
        self.places.clear();
    }

    /// The one decision about a representation: `out` holds it from `start` on. If it is new it will be `item`.
    fn decide(&mut self, out: &[u8], start: usize, item: u32) -> Decision {
        let text = &out[start..];
        let mut hash = self.hasher.hash_one(text);
        loop {
            match self.by_hash.entry(hash) {
                Entry::Vacant(free) => {
                    free.insert(KnownText { start, len: text.len(), item: Item::Asked(item) });
                    return Decision::New;
                }
                Entry::Occupied(taken) => {
                    let known = taken.get();
                    let range = known.start..known.start + known.len;
                    match known.item {
                        Item::Asked(item) if &out[range.clone()] == text => {
                            return Decision::Duplicate(item);
                        }
                        Item::Remembered(place) if &self.remembered[range] == text => {
                            return Decision::Remembered(place);
                        }
                        _ => hash = hash.wrapping_add(1),
                    }
                }
            }
        }
    }

    /// Looks up what the request knows about entities of a batch.
    fn remember(
        &mut self,
        document: &Document,
        root: NodeId,
        shape: &Shape,
        source: &Source,
        number: u32,
        walk: &mut Walk,
    ) {
        let objects = walk.objects_at(document, root, shape, &source.path, &source.target);
        // Too many objects: they are asked for, which ends with the error that says so.
        let Ok(objects) = objects else { return };
        for &node in objects {
            if self.places.len() >= REMEMBERED_MAX {
                return;
            }
            if !source.values.iter().all(|value| value.of(document, node).is_some()) {
                continue;
            }
            let start = self.remembered.len();
            let (representation, own) = (&source.representation, &source.compiled);
            let out = &mut self.remembered;
            if !write_representation(document, node, shape, representation, own, out) {
                out.truncate(start);
                continue;
            }
            let text = &self.remembered[start..];
            let mut hash = self.hasher.hash_one(text);
            let item = Item::Remembered(self.places.len() as u32);
            loop {
                match self.by_hash.entry(hash) {
                    Entry::Vacant(free) => {
                        free.insert(KnownText { start, len: text.len(), item });
                        self.places.push((node, number));
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

impl SourceValue {
    /// The text of the value, if it is a scalar and not null.
    pub(crate) fn of<'d>(&self, document: &'d Document, object: NodeId) -> Option<&'d str> {
        let value = document.get_near(object, &self.data_key, self.slot)?;
        match document.kind_and_raw(value) {
            (Kind::Null | Kind::Array | Kind::Object, _) => None,
            (Kind::Bool | Kind::Number | Kind::String, raw) => Some(raw),
        }
    }
}

/// Walks target paths. Reuse it: it keeps its memory, and what two paths in a row have in common is walked once.
#[derive(Default)]
pub(crate) struct Walk {
    /// By number of steps: the objects that the path walked last leads to after so many.
    levels: Vec<Vec<NodeId>>,
    /// How many steps of it have been walked.
    walked: usize,
    /// By node: the walk's step that met it last.
    met: Vec<u32>,
    step: u32,
}

impl Walk {
    /// The objects that `path`, compiled as `target`, leads to, in the order of the tree. An object that stands
    /// at several places because answers were linked is taken once. `shape` is that of all answers.
    ///
    /// Targets of one batch are to be walked one after the other, the first one first: see
    /// [`CompiledTarget::as_before`]. The document stays the same meanwhile.
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
                    flatten(document, value, &step.types, slots.typename, next)?;
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
                // Most lists are of objects, most objects of a type that is known.
                if types.is_empty()
                    && found.len() < TARGET_OBJECTS_MAX
                    && document.kind(element) == Kind::Object
                {
                    found.push(element);
                } else {
                    flatten(document, element, types, typename_slot, found)?;
                }
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
        // Hot path: most members are scalars, and only what is constant about them is looked at.
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

/// Writes the value of a member.
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

/// Is the object's `__typename` one of `types`? No types: any object will do.
fn has_type(document: &Document, object: NodeId, types: &[Box<str>], slot: usize) -> bool {
    types.is_empty()
        || document
            .get_near(object, "__typename", slot)
            .is_some_and(|name| types.iter().any(|it| document.str_eq(name, it)))
}
