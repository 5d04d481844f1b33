//! The response shape: per object type at every position, in the order of the client's document.

use std::{collections::HashMap, sync::Arc};

use graph::{FieldId, Supergraph, TypeId, TypeKind, TypeRef, TypeRefShape};

use super::{
    PlanError,
    data_keys::{DataKeys, PathId},
    tree::{self, Part, PartsId, WantedTarget},
};
use crate::{Leaf, ObjectShape, ObjectShapeId, Shape, ShapeField, ValueKind, ValueShape, Variant};

/// How many fields of all object types together a shape may have. At 100 bytes each this is 100 MB,
/// far above any operation within the default limits on operations.
const SHAPE_FIELDS_MAX: usize = 1_000_000;

/// The shape of what `parts` want of the root type.
pub(super) fn build(
    graph: &Supergraph,
    keys: &DataKeys,
    parts: &[Part],
    root: TypeId,
) -> Result<Shape, PlanError> {
    let mut shapes = Shapes {
        graph,
        keys,
        objects: Vec::new(),
        by_value: HashMap::new(),
        by_position: HashMap::new(),
        leaves: HashMap::new(),
        fields: 0,
    };
    let root = shapes.object(parts, root, Some(PathId::ROOT))?;
    Ok(Shape { objects: shapes.objects, root })
}

struct Shapes<'a> {
    graph: &'a Supergraph,
    keys: &'a DataKeys,
    objects: Vec<ObjectShape>,
    by_value: HashMap<ObjectShape, ObjectShapeId>,
    by_position: HashMap<(PartsId, TypeId, Option<PathId>), ObjectShapeId>,
    leaves: HashMap<TypeId, Leaf>,
    fields: usize,
}

impl Shapes<'_> {
    fn object(
        &mut self,
        parts: &[Part],
        ty: TypeId,
        at: Option<PathId>,
    ) -> Result<ObjectShapeId, PlanError> {
        let position = (tree::parts_id(parts), ty, at);
        if let Some(&known) = self.by_position.get(&position) {
            return Ok(known);
        }
        let definition = self.graph.ty(ty);
        let mut variants = Vec::with_capacity(definition.possible.len());
        let visible = |member: &&TypeId| !self.graph.ty(**member).inaccessible;
        let members: Vec<TypeId> = definition.possible.iter().filter(visible).copied().collect();
        for member in members {
            variants.push(self.variant(parts, member, at)?);
        }
        let object = ObjectShape {
            type_name: definition.name.clone(),
            is_abstract: definition.kind.is_abstract(),
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

    fn variant(
        &mut self,
        parts: &[Part],
        member: TypeId,
        at: Option<PathId>,
    ) -> Result<Variant, PlanError> {
        let wanted = tree::collect(self.graph, parts, member);
        self.fields += wanted.fields.len();
        if self.fields > SHAPE_FIELDS_MAX {
            return Err(PlanError::TooComplex(format!(
                "the answer may have more than {SHAPE_FIELDS_MAX} fields counted over all types; ask for less at once"
            )));
        }
        let mut fields = Vec::with_capacity(wanted.fields.len());
        for wanted in &wanted.fields {
            let Some(response_key) = wanted.key.clone() else { continue };
            let (data_key, field_name, value) = match wanted.target {
                WantedTarget::Typename => (
                    "__typename".into(),
                    "__typename".into(),
                    ValueShape { nullable: false, kind: ValueKind::Typename },
                ),
                WantedTarget::Introspection => (
                    response_key.clone(),
                    "__schema".into(),
                    ValueShape { nullable: true, kind: ValueKind::Verbatim },
                ),
                WantedTarget::Field(field) => {
                    let data_key = match at {
                        Some(at) => self.keys.client_key(self.graph, at, &response_key, field),
                        None => response_key.clone(),
                    };
                    let below = at.and_then(|at| self.keys.existing_child(at, &data_key));
                    let value = self.field_value(field, &wanted.parts, below)?;
                    (data_key, self.graph.field(field).name.clone(), value)
                }
            };
            let any_of = wanted.any_of.clone();
            fields.push(ShapeField { response_key, data_key, field_name, any_of, value });
        }
        Ok(Variant { type_name: self.graph.ty(member).name.clone(), fields })
    }

    fn field_value(
        &mut self,
        field: FieldId,
        parts: &[Part],
        below: Option<PathId>,
    ) -> Result<ValueShape, PlanError> {
        let ty = self.graph.field(field).ty.named();
        let inner = match self.graph.ty(ty).kind.is_composite() {
            true => ValueKind::Object(self.object(parts, ty, below)?),
            false => ValueKind::Leaf(self.leaf(ty)),
        };
        Ok(wrap(&self.graph.field(field).ty, &inner))
    }

    fn leaf(&mut self, ty: TypeId) -> Leaf {
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

fn wrap(ty: &TypeRef, inner: &ValueKind) -> ValueShape {
    let kind = match &ty.shape {
        TypeRefShape::List(item) => ValueKind::List(Box::new(wrap(item, inner))),
        TypeRefShape::Named(_) => inner.clone(),
    };
    ValueShape { nullable: ty.nullable, kind }
}
