//! What is constant about the objects that a fetch is for: how to get to them in the tree, and how each is
//! represented in a request.

use plan::{Path, Plan, Representation, RepresentationField};

use crate::expected::{Cursor, Expected};

/// Where the member that a step leads through is kept, and the `__typename` of what it leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepSlots {
    /// Which objects of the expected shape keep it there.
    pub(crate) objects: usize,
    pub(crate) member: usize,
    pub(crate) typename: usize,
}

/// What is constant about one target path.
#[derive(Debug)]
pub(crate) struct CompiledTarget {
    /// From this step on the same object may be met several times, because an earlier entity
    /// fetch linked its answers into the tree above.
    pub(crate) shared_from: usize,
    /// How many of its first steps are those of the target before it.
    pub(crate) as_before: usize,
    /// As the steps of the path.
    pub(crate) slots: Vec<StepSlots>,
    /// Targets with the same number may share the answer's values: whatever later fetches put
    /// below one of them, they put below the other too.
    pub(crate) group: u32,
}

/// What is constant about representing an object.
#[derive(Debug)]
pub(crate) struct CompiledRepresentation {
    /// How it begins: with the type name, if that is known.
    pub(crate) opening: Box<[u8]>,
    /// Where the objects keep their `__typename`.
    pub(crate) typename_slot: usize,
    /// Which objects of the expected shape have all members in the slots that are given here; none have where
    /// one of the members is not expected.
    pub(crate) objects: usize,
    /// As its fields.
    pub(crate) members: Vec<CompiledMember>,
}

/// What is constant about one member of a representation. Slots are hints: objects that came
/// another way have none.
#[derive(Debug)]
pub(crate) struct CompiledMember {
    pub(crate) slot: usize,
    /// Comma, name and colon.
    pub(crate) printed_key: Box<[u8]>,
    /// Is it wanted of all objects, and whole?
    pub(crate) is_plain: bool,
    /// Where the objects below keep their `__typename`.
    pub(crate) typename_slot: usize,
    pub(crate) members: Vec<CompiledMember>,
}

/// Where the members are kept that `path` leads through, by step.
pub(crate) fn step_slots(plan: &Plan, expected: &Expected, path: &Path) -> Vec<StepSlots> {
    let mut cursor = expected.cursor(Some(plan.shape.root.0 as usize));
    path.steps
        .iter()
        .map(|step| {
            let objects = cursor.number_with([&*step.data_key]);
            let member = cursor.slot(&step.data_key);
            cursor = cursor.below(&step.data_key);
            StepSlots { objects, member, typename: cursor.slot("__typename") }
        })
        .collect()
}

/// How many steps two paths have in common from their beginning.
pub(crate) fn common_steps(before: Option<&Path>, path: &Path) -> usize {
    let before = before.map_or(&[][..], |before| &before.steps);
    before.iter().zip(&path.steps).take_while(|(left, right)| left == right).count()
}

impl CompiledRepresentation {
    /// For objects of this kind.
    pub(crate) fn new(objects: Cursor<'_>, representation: &Representation) -> Self {
        let mut opening = Vec::from(b"{\"__typename\":");
        if let Some(name) = &representation.typename {
            // A name needs no escapes.
            opening.extend_from_slice(&[b"\"", name.as_bytes(), b"\""].concat());
        }
        let keys = representation.fields.iter().map(|field| &*field.data_key);
        Self {
            opening: opening.into(),
            typename_slot: objects.slot("__typename"),
            objects: objects.number_with(keys),
            members: members(objects, &representation.fields),
        }
    }
}

fn members(objects: Cursor<'_>, fields: &[RepresentationField]) -> Vec<CompiledMember> {
    let member = |field: &RepresentationField| {
        let below = objects.below(&field.data_key);
        CompiledMember {
            printed_key: [b",\"", field.name.as_bytes(), b"\":"].concat().into(),
            is_plain: field.types.is_empty() && field.fields.is_empty(),
            slot: objects.slot(&field.data_key),
            typename_slot: below.slot("__typename"),
            members: members(below, &field.fields),
        }
    };
    fields.iter().map(member).collect()
}
