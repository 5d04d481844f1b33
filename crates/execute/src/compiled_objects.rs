//! The constants of the objects that a fetch is for: the path to them in the tree, the representation of each in a
//! request, and the places where they may be known already.

use plan::{Path, Plan, Representation, RepresentationField, ReusePlace, ReusedValue};

use crate::path_tree::PathTree;
use crate::response_layout::{LayoutCursor, ResponseLayout};

/// The slots of the member that a step leads through, and of the `__typename` of the object below it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepSlots {
    /// The number of the objects of the layout that have the member in that slot.
    pub(crate) objects: usize,
    pub(crate) member: usize,
    pub(crate) typename: usize,
}

/// The constants of one target path.
#[derive(Debug)]
pub(crate) struct CompiledTarget {
    /// The first step from which on the same object may occur several times, because an earlier
    /// entity fetch linked its responses into the tree above.
    pub(crate) shared_from: usize,
    /// The number of first steps that the path has in common with the target before it.
    pub(crate) as_before: usize,
    /// The slots of each step of the path.
    pub(crate) slots: Vec<StepSlots>,
    /// Targets with the same number may share the values of a response: later fetches add the same
    /// values below each of them.
    pub(crate) group: u32,
}

/// The constants of the representation of an object.
#[derive(Debug)]
pub(crate) struct CompiledRepresentation {
    /// The beginning of the text, with the type name if that is known.
    pub(crate) opening: Box<[u8]>,
    /// The slot of the `__typename` of the objects.
    pub(crate) typename_slot: usize,
    /// The number of the objects of the layout that have all members in the slots that are given
    /// here. No objects have this number if one of the members is not in the layout.
    pub(crate) objects: usize,
    /// The constants of each field of the representation.
    pub(crate) members: Vec<CompiledMember>,
}

/// The constants of one member of a representation. Slots are hints: objects that were created in
/// another way have none.
#[derive(Debug)]
pub(crate) struct CompiledMember {
    pub(crate) slot: usize,
    /// Comma, name and colon.
    pub(crate) printed_key: Box<[u8]>,
    /// True if the whole member is needed of all objects.
    pub(crate) is_plain: bool,
    /// The slot of the `__typename` of the objects below.
    pub(crate) typename_slot: usize,
    pub(crate) members: Vec<CompiledMember>,
}

/// The constants of one place where entities of a batch may be known.
#[derive(Debug)]
pub(crate) struct CompiledReusePlace {
    pub(crate) target: CompiledTarget,
    pub(crate) representation: CompiledRepresentation,
    /// The constants of each value that is copied.
    pub(crate) values: Vec<CompiledReusedValue>,
}

/// The constants of one value that is copied from another place.
#[derive(Debug)]
pub(crate) struct CompiledReusedValue {
    pub(crate) slot: usize,
    /// Comma, key in the batch's response, and colon.
    pub(crate) printed_key: Box<[u8]>,
}

/// Returns the slots of the members on `path`, by step.
pub(crate) fn step_slots(plan: &Plan, layout: &ResponseLayout, path: &Path) -> Vec<StepSlots> {
    let mut cursor = layout.cursor(Some(plan.shape.root.0 as usize));
    path.steps
        .iter()
        .map(|step| {
            let objects = cursor.number_with([&*step.data_key]);
            let member = cursor.slot(&step.data_key);
            cursor = cursor.object_member(&step.data_key);
            StepSlots { objects, member, typename: cursor.slot("__typename") }
        })
        .collect()
}

/// Returns the number of steps that two paths have in common from their beginning.
pub(crate) fn common_steps(before: Option<&Path>, path: &Path) -> usize {
    let before = before.map_or(&[][..], |before| &before.steps);
    before.iter().zip(&path.steps).take_while(|(left, right)| left == right).count()
}

impl CompiledRepresentation {
    /// Compiles the representation of `objects`.
    pub(crate) fn new(objects: LayoutCursor<'_>, representation: &Representation) -> Self {
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
            members: compile_members(objects, &representation.fields),
        }
    }
}

impl CompiledReusePlace {
    /// Compiles the places of one batch.
    pub(crate) fn compile_all(
        plan: &Plan,
        layout: &ResponseLayout,
        targets: &PathTree<'_>,
        places: &[ReusePlace],
    ) -> Vec<Self> {
        let compile = |(index, place): (usize, &ReusePlace)| {
            let mut objects = layout.cursor(Some(plan.shape.root.0 as usize));
            for step in &place.path.steps {
                objects = objects.object_member(&step.data_key);
            }
            let value = |value: &ReusedValue| CompiledReusedValue {
                slot: objects.slot(&value.data_key),
                printed_key: [b",\"", value.response_key.as_bytes(), b"\":"].concat().into(),
            };
            let before = places[..index].last().map(|before| &before.path);
            Self {
                target: CompiledTarget {
                    shared_from: targets.shared_from(&place.path),
                    as_before: common_steps(before, &place.path),
                    slots: step_slots(plan, layout, &place.path),
                    group: 0,
                },
                representation: CompiledRepresentation::new(objects, &place.representation),
                values: place.values.iter().map(value).collect(),
            }
        };
        places.iter().enumerate().map(compile).collect()
    }
}

fn compile_members(
    objects: LayoutCursor<'_>,
    fields: &[RepresentationField],
) -> Vec<CompiledMember> {
    let member = |field: &RepresentationField| {
        let below = objects.object_member(&field.data_key);
        CompiledMember {
            printed_key: [b",\"", field.name.as_bytes(), b"\":"].concat().into(),
            is_plain: field.types.is_empty() && field.fields.is_empty(),
            slot: objects.slot(&field.data_key),
            typename_slot: below.slot("__typename"),
            members: compile_members(below, &field.fields),
        }
    };
    fields.iter().map(member).collect()
}
