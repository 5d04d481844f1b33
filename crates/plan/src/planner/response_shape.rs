//! Construction of the response shape: per object type at every position, in the order of the client's document.

use std::sync::Arc;

use foldhash::HashMap;
use graph::{FieldId, Supergraph, TypeId, TypeKind, TypeRef, TypeRefShape};

use super::{
    data_keys::{DataKeys, PlaceId},
    error::PlanError,
    selection_tree::{self, CollectedFields, CollectedTarget, GuardedSets, SelectionTree},
};
use crate::{
    Condition, Leaf, ObjectShape, ObjectShapeId, Shape, ShapeField, ValueKind, ValueShape, Variant,
};

/// The maximum number of fields of all object types together in a shape. At 100 bytes each this is 100 MB, far above
/// any operation within the default limits on operations.
const SHAPE_FIELDS_MAX: usize = 1_000_000;

/// Builds the shape of the selections `parts` (one selection set) on the root type. Returns it with the number of
/// steps, at most `steps_max`; otherwise returns an error.
pub(super) fn build_shape(
    graph: &Supergraph,
    tree: &mut SelectionTree,
    keys: &DataKeys<'_>,
    parts: &GuardedSets,
    steps_max: u64,
) -> Result<(Shape, u64), PlanError> {
    let visited = tree.visited();
    let mut shapes = ShapeBuilder {
        graph,
        tree,
        keys,
        objects: Vec::new(),
        by_value: HashMap::default(),
        by_position: HashMap::default(),
        leaves: HashMap::default(),
        fields: 0,
        compared: 0,
        visited_max: visited.saturating_add(steps_max),
    };
    let root = parts.first().map_or(graph.query, |part| part.set.on);
    let root = shapes.build_object(parts, root, Some(PlaceId::ROOT))?;
    let steps = shapes.steps() - visited;
    Ok((Shape { objects: shapes.objects, root }, steps))
}

struct ShapeBuilder<'a> {
    graph: &'a Supergraph,
    tree: &'a mut SelectionTree,
    keys: &'a DataKeys<'a>,
    objects: Vec<ObjectShape>,
    by_value: HashMap<ObjectShape, ObjectShapeId>,
    by_position: HashMap<(u32, TypeId, Option<PlaceId>), ObjectShapeId>,
    leaves: HashMap<TypeId, Leaf>,
    fields: usize,
    /// The number of comparisons of conditions, and of conditions written to fields.
    compared: u64,
    /// The limit of [`ShapeBuilder::steps`].
    visited_max: u64,
}

/// The number of comparisons of conditions that cost as much as a step.
const COMPARISONS_IN_STEP: u64 = 8;

/// The steps counted for each condition that is written: fifty bytes, and the literals.
const STEPS_OF_CONDITION: u64 = 8;

impl ShapeBuilder<'_> {
    fn steps(&self) -> u64 {
        self.tree.visited() + self.fields as u64 + self.compared
    }

    fn build_object(
        &mut self,
        parts: &GuardedSets,
        ty: TypeId,
        at: Option<PlaceId>,
    ) -> Result<ObjectShapeId, PlanError> {
        let position = (parts.id(), ty, at);
        if let Some(&known) = self.by_position.get(&position) {
            return Ok(known);
        }
        let definition = self.graph.ty(ty);
        let untyped = at.and_then(|at| self.keys.untyped_interface(at));
        let untyped = untyped.filter(|&interface| {
            definition.kind.is_abstract()
                && !selection_tree::depends_on_type(
                    self.graph,
                    self.tree.denied(),
                    parts,
                    interface,
                )
        });
        let visible = |member: &TypeId| !self.graph.ty(*member).inaccessible;
        let members: Vec<TypeId> = match untyped {
            Some(interface) => vec![interface],
            None => definition.possible.iter().copied().filter(visible).collect(),
        };
        let mut variants = Vec::with_capacity(members.len());
        for member in members {
            variants.push(self.build_variant(parts, member, at)?);
        }
        let object = ObjectShape {
            type_name: definition.name.clone(),
            is_abstract: definition.kind.is_abstract() && untyped.is_none(),
            variants,
        };
        let id = match self.by_value.get(&object) {
            Some(&known) => known,
            None => {
                let id = ObjectShapeId(self.objects.len() as u32);
                self.objects.push(object.clone());
                self.by_value.insert(object, id);
                id
            }
        };
        self.by_position.insert(position, id);
        Ok(id)
    }

    fn build_variant(
        &mut self,
        parts: &GuardedSets,
        member: TypeId,
        at: Option<PlaceId>,
    ) -> Result<Variant, PlanError> {
        let wanted = self.tree.collect(self.graph, parts, member);
        self.fields += 1 + wanted.fields.len();
        let order = FieldOrder::of(&wanted);
        self.compared += order.compared / COMPARISONS_IN_STEP;
        if self.steps() > self.visited_max {
            return Err(PlanError::too_complex());
        }
        if self.fields > SHAPE_FIELDS_MAX {
            return Err(PlanError::TooComplex(format!(
                "the response may have more than {SHAPE_FIELDS_MAX} fields counted over all types; select fewer fields"
            )));
        }
        let mut fields = Vec::with_capacity(wanted.fields.len());
        let mut last = None;
        for shown in &order.places {
            let wanted = &wanted.fields[shown.field];
            let condition = &order.conditions[shown.field][shown.occurrence];
            if last == Some(shown.field)
                && let Some(last) = fields.last_mut()
            {
                // No other field is printed between these occurrences, so they are one.
                add_printed_condition(last, condition);
                continue;
            }
            last = Some(shown.field);
            self.compared += STEPS_OF_CONDITION * shown.occurrence as u64;
            if self.steps() > self.visited_max {
                return Err(PlanError::too_complex());
            }
            let Some(response_key) = wanted.key.as_deref().map(Box::<str>::from) else { continue };
            let (data_key, field_name, value) = match wanted.target {
                CollectedTarget::Typename => (
                    "__typename".into(),
                    "__typename".into(),
                    ValueShape { nullable: false, kind: ValueKind::Typename },
                ),
                CollectedTarget::Introspection => (
                    response_key.clone(),
                    "__schema".into(),
                    ValueShape { nullable: true, kind: ValueKind::Verbatim },
                ),
                CollectedTarget::Denied(field) => {
                    let field = self.graph.field(field);
                    let value = ValueShape { nullable: field.ty.nullable, kind: ValueKind::Denied };
                    (response_key.clone(), field.name.clone(), value)
                }
                CollectedTarget::Field(field) => {
                    let data_key = match at {
                        Some(at) => self.keys.client_key(at, &response_key, field),
                        None => response_key.clone(),
                    };
                    let below = at.and_then(|at| self.keys.existing_child(at, &data_key));
                    let value = self.field_value(field, &wanted.parts, below)?;
                    (data_key, self.graph.field(field).name.clone(), value)
                }
            };
            let any_of = if condition.is_always() { Vec::new() } else { vec![condition.clone()] };
            let unless = order.conditions[shown.field][..shown.occurrence].to_vec();
            fields.push(ShapeField { response_key, data_key, field_name, any_of, unless, value });
        }
        let is_denied = self.tree.denied().has_type(member);
        Ok(Variant { type_name: self.graph.ty(member).name.clone(), fields, is_denied })
    }

    fn field_value(
        &mut self,
        field: FieldId,
        parts: &GuardedSets,
        below: Option<PlaceId>,
    ) -> Result<ValueShape, PlanError> {
        let ty = self.graph.field(field).ty.named();
        let inner = match self.graph.ty(ty).kind.is_composite() {
            true => ValueKind::Object(self.build_object(parts, ty, below)?),
            false => ValueKind::Leaf(self.build_leaf(ty)),
        };
        Ok(wrap_value(&self.graph.field(field).ty, &inner))
    }

    fn build_leaf(&mut self, ty: TypeId) -> Leaf {
        let graph = self.graph;
        self.leaves
            .entry(ty)
            .or_insert_with(|| {
                let definition = graph.ty(ty);
                match (&definition.kind, &*definition.name) {
                    (TypeKind::Enum(values), _) => Leaf::Enum(Arc::from(values.as_slice())),
                    (_, "Int") => Leaf::Int,
                    (_, "Float") => Leaf::Float,
                    (_, "String") => Leaf::String,
                    (_, "Boolean") => Leaf::Boolean,
                    (_, "ID") => Leaf::Id,
                    _ => Leaf::Custom,
                }
            })
            .clone()
    }
}

fn wrap_value(ty: &TypeRef, inner: &ValueKind) -> ValueShape {
    let kind = match &ty.shape {
        TypeRefShape::List(item) => ValueKind::List(Box::new(wrap_value(item, inner))),
        TypeRefShape::Named(_) => inner.clone(),
    };
    ValueShape { nullable: ty.nullable, kind }
}

/// The occurrences of fields in the order of the response. A field selected under different conditions is printed at
/// the first of its occurrences that holds (CollectFields, GraphQL specification, section 6.3.2).
struct FieldOrder {
    places: Vec<ShownOccurrence>,
    /// The conditions under which each field is selected, without those that imply an earlier one.
    conditions: Vec<Vec<Condition>>,
    /// The number of comparisons of conditions.
    compared: u64,
}

/// A position in the response at which a field may be printed.
struct ShownOccurrence {
    /// The index of the field.
    field: usize,
    /// The index of its condition: the field is printed here if this condition holds and no earlier one does.
    occurrence: usize,
}

impl FieldOrder {
    fn of(wanted: &CollectedFields) -> Self {
        let mut places: Vec<(u32, ShownOccurrence)> = Vec::with_capacity(wanted.fields.len());
        let mut conditions = Vec::with_capacity(wanted.fields.len());
        let mut compared = 0;
        for (field, wanted) in wanted.fields.iter().enumerate() {
            let mut before: Vec<Condition> = Vec::new();
            for (at, condition) in &wanted.occurrences {
                let implies = |earlier: &Condition| {
                    earlier.all.iter().all(|literal| condition.all.contains(literal))
                };
                compared += before.len() as u64;
                if before.iter().any(implies) {
                    continue;
                }
                places.push((*at, ShownOccurrence { field, occurrence: before.len() }));
                before.push(condition.clone());
            }
            conditions.push(before);
        }
        places.sort_by_key(|(at, _)| *at);
        Self { places: places.into_iter().map(|(_, shown)| shown).collect(), conditions, compared }
    }
}

fn add_printed_condition(field: &mut ShapeField, next: &Condition) {
    match next.is_always() {
        true => field.any_of.clear(),
        false => field.any_of.push(next.clone()),
    }
}
