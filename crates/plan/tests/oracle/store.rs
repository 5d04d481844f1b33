//! The store of which each subgraph knows a part: every value is a pure function of the object, the field and its
//! arguments.

use std::hash::{DefaultHasher, Hash, Hasher};

use graph::{
    ConstValue, FieldId, FieldSet, FieldSetItem, Supergraph, TypeId, TypeKind, TypeRef,
    TypeRefShape,
};
use serde_json::{Map, Value, json};

/// The number of objects of each entity type.
pub(super) const ENTITIES: u64 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Object {
    pub(super) ty: TypeId,
    pub(super) id: u64,
}

/// A value before its selections are resolved.
pub(super) enum Stored {
    Leaf(Value),
    List(Vec<Stored>),
    Object(Object),
}

#[derive(Clone, Copy)]
pub(super) struct Store<'a> {
    pub(super) graph: &'a Supergraph,
}

impl Store<'_> {
    pub(super) fn root(&self, ty: TypeId) -> Object {
        Object { ty, id: 0 }
    }

    /// Returns the value of a field of an object.
    pub(super) fn value(&self, field: FieldId, object: Object, arguments: &Value) -> Stored {
        let required = self
            .graph
            .field(field)
            .subgraphs
            .iter()
            .find_map(|there| there.requires.as_ref())
            .map(|set| self.project(set, object));
        self.value_with(field, object, arguments, required.as_ref())
    }

    /// Returns the value of a field of an object if the representation contained these required values.
    pub(super) fn value_with(
        &self,
        field: FieldId,
        object: Object,
        arguments: &Value,
        required: Option<&Value>,
    ) -> Stored {
        let definition = self.graph.field(field);
        let mut hasher = DefaultHasher::new();
        (object.ty.0, object.id, &definition.name, arguments.to_string()).hash(&mut hasher);
        required.map(Value::to_string).hash(&mut hasher);
        self.typed(&definition.ty, field, object, hasher.finish())
    }

    fn typed(&self, ty: &TypeRef, field: FieldId, object: Object, hash: u64) -> Stored {
        if ty.nullable && hash.is_multiple_of(5) && !self.is_of_key(field) && object.id != 0 {
            return Stored::Leaf(Value::Null);
        }
        match &ty.shape {
            TypeRefShape::List(item) => Stored::List(
                (1..=2_u64)
                    .map(|index| {
                        self.typed(item, field, object, hash.rotate_left(7).wrapping_mul(index | 1))
                    })
                    .collect(),
            ),
            TypeRefShape::Named(id) => self.named(*id, field, object, hash),
        }
    }

    fn named(&self, ty: TypeId, field: FieldId, object: Object, hash: u64) -> Stored {
        let graph = self.graph;
        let definition = graph.field(field);
        let leaf = match (&graph.ty(ty).kind, &*graph.ty(ty).name) {
            (TypeKind::Enum(values), _) => json!(*values[hash as usize % values.len()]),
            (TypeKind::Scalar, "Boolean") => {
                json!(&*definition.name == "success" || hash.is_multiple_of(2))
            }
            // Numbers and texts differ between objects of one type, so that any key identifies an object.
            (TypeKind::Scalar, "Int") => json!(object.id * 1000 + hash % 1000),
            (TypeKind::Scalar, _) => {
                // Implementations of one interface must differ as well.
                let (ty, id) = (object.ty.0, object.id);
                json!(format!("{}:{ty}:{id}:{}", definition.name, hash % 97))
            }
            _ => {
                let concrete = self.concrete(ty, field, hash);
                if concrete == graph.query {
                    return Stored::Object(self.root(concrete));
                }
                let is_entity =
                    graph.ty(concrete).subgraphs.iter().any(|there| !there.keys.is_empty());
                let id = hash / 7 % if is_entity { ENTITIES } else { 1000 };
                return Stored::Object(Object { ty: concrete, id });
            }
        };
        Stored::Leaf(leaf)
    }

    /// Returns an object type that every subgraph that resolves the field can return.
    fn concrete(&self, ty: TypeId, field: FieldId, hash: u64) -> TypeId {
        let graph = self.graph;
        let mut types = graph.ty(ty).possible.clone();
        for subgraph in graph.field(field).resolved_by.iter() {
            let there = graph.possible_in(graph.field_type_in(field, subgraph), subgraph);
            types.retain(|member| there.contains(member));
        }
        types.retain(|&member| !graph.ty(member).inaccessible);
        assert!(!types.is_empty(), "{} has object types", graph.ty(ty).name);
        types[hash as usize / 3 % types.len()]
    }

    fn is_of_key(&self, field: FieldId) -> bool {
        fn inside(set: &FieldSet, field: FieldId) -> bool {
            set.items.iter().any(|item| match item {
                FieldSetItem::Field { field: member, fields, .. } => {
                    *member == field || inside(fields, field)
                }
                FieldSetItem::Fragment { fields, .. } => inside(fields, field),
            })
        }
        let types = &self.graph.types;
        let keys = types.iter().flat_map(|ty| &ty.subgraphs).flat_map(|there| &there.keys);
        keys.into_iter().any(|key| inside(&key.fields, field))
    }

    /// Returns a field set as JSON.
    pub(super) fn project(&self, set: &FieldSet, object: Object) -> Value {
        let mut out = Map::new();
        self.project_into(set, object, &mut out);
        Value::Object(out)
    }

    fn project_into(&self, set: &FieldSet, object: Object, out: &mut Map<String, Value>) {
        for item in &set.items {
            match item {
                FieldSetItem::Fragment { on, fields } => {
                    if *on == object.ty || self.graph.ty(*on).possible.contains(&object.ty) {
                        self.project_into(fields, object, out);
                    }
                }
                FieldSetItem::Field { field, arguments, fields } => {
                    let name = &self.graph.field(*field).name;
                    let own = self.graph.field_named(object.ty, name).expect("the object has it");
                    let arguments = ConstValue::parse(&format!("{{{arguments}}}"));
                    let arguments = constant(&arguments.expect("arguments are values"));
                    let value = self.projected(self.value(own, object, &arguments), fields);
                    out.insert(name.to_string(), value);
                }
            }
        }
    }

    fn projected(&self, stored: Stored, fields: &FieldSet) -> Value {
        match stored {
            Stored::Leaf(value) => value,
            Stored::List(items) => {
                items.into_iter().map(|item| self.projected(item, fields)).collect()
            }
            Stored::Object(object) => self.project(fields, object),
        }
    }
}

pub(super) fn constant(value: &ConstValue) -> Value {
    match value {
        ConstValue::Null => Value::Null,
        ConstValue::Int(text) | ConstValue::Float(text) => {
            serde_json::from_str(text).expect("a number")
        }
        ConstValue::String(text) | ConstValue::Enum(text) => json!(**text),
        ConstValue::Boolean(value) => json!(value),
        ConstValue::List(items) => items.iter().map(constant).collect(),
        ConstValue::Object(members) => {
            members.iter().map(|(name, value)| (name.to_string(), constant(value))).collect()
        }
    }
}
