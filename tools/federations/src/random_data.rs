//! A random object store for any supergraph, and the rules that every store must satisfy.

use graph::{
    FieldId, FieldSet, FieldSetItem, SubgraphId, SubgraphKind, Supergraph, TypeId, TypeKind,
    TypeRef, TypeRefShape,
};
use serde_json::{Map, Value, json};

use crate::{ObjectStore, Random};

/// The number of objects of each type.
const OBJECTS: usize = 3;

impl ObjectStore {
    /// Generates three objects of each object type. Members of keys differ between objects; some nullable fields are
    /// null, and if `has_errors` is set, some fields fail.
    pub fn random(graph: &Supergraph, random: &mut Random, has_errors: bool) -> Self {
        let mut maker =
            DataGenerator { graph, random, has_errors, special: find_special_fields(graph) };
        let mut objects = Map::new();
        for (index, ty) in graph.types.iter().enumerate() {
            let id = TypeId(index as u32);
            if ty.kind != TypeKind::Object {
                continue;
            }
            if roots(graph).contains(&Some(id)) {
                objects.insert(ty.name.to_string(), maker.object(id, 0));
                continue;
            }
            for number in 1..=OBJECTS {
                objects.insert(format!("{}:{number}", ty.name), maker.object(id, number));
            }
        }
        Self { objects }
    }

    /// Checks that a federation could have these values.
    ///
    /// # Errors
    /// The first value that violates the schema.
    pub fn check(&self, graph: &Supergraph) -> Result<(), String> {
        for (name, fields) in &self.objects {
            let Some(object) = self.object(graph, name) else { continue };
            for &field in &graph.ty(object.ty).fields {
                let value = fields.get(&*graph.field(field).name).unwrap_or(&Value::Null);
                let at = format!("{name}.{}", graph.field(field).name);
                self.check_value(graph, field, &graph.field(field).ty, value, &at)?;
            }
        }
        Ok(())
    }

    fn check_value(
        &self,
        graph: &Supergraph,
        field: FieldId,
        ty: &TypeRef,
        value: &Value,
        at: &str,
    ) -> Result<(), String> {
        match (value, &ty.shape) {
            (Value::Null, _) if ty.nullable => Ok(()),
            (Value::Null, _) => Err(format!("{at} is null")),
            (Value::Object(_), _) => Ok(()),
            (Value::Array(items), TypeRefShape::List(item)) => {
                items.iter().try_for_each(|one| self.check_value(graph, field, item, one, at))
            }
            (Value::String(name), TypeRefShape::Named(id)) if graph.ty(*id).kind.is_composite() => {
                let object = self.object(graph, name).filter(|_| self.objects.contains_key(name));
                let object = object.ok_or_else(|| format!("{at} is not an object"))?;
                match possible_for_all(graph, *id, field).contains(&object.ty) {
                    true => Ok(()),
                    false => Err(format!("{at} cannot be {name} in every subgraph")),
                }
            }
            (Value::Array(_), _) | (_, TypeRefShape::List(_)) => Err(format!("{at} is not a list")),
            _ => Ok(()),
        }
    }
}

/// Returns the types that have a single object.
fn roots(graph: &Supergraph) -> [Option<TypeId>; 3] {
    [Some(graph.query), graph.mutation, graph.subscription]
}

/// Returns the object types that every subgraph that resolves the field can return.
fn possible_for_all(graph: &Supergraph, ty: TypeId, field: FieldId) -> Vec<TypeId> {
    let mut types = graph.ty(ty).possible.clone();
    let definition = graph.field(field);
    // The subgraphs with any labels on count.
    let mut resolvers = definition.resolved_by;
    for moving in &definition.progressive {
        resolvers.insert(moving.from);
        resolvers.insert(moving.to);
    }
    for subgraph in resolvers.iter() {
        let named = graph.field_type_in(field, subgraph);
        let there = graph.type_in(named, subgraph);
        if there.is_some_and(|there| there.interface_object) {
            continue;
        }
        let possible = graph.possible_in(named, subgraph);
        types.retain(|member| possible.contains(member));
    }
    // Objects hidden from clients are used only if there are no others.
    if types.iter().any(|&member| !graph.ty(member).inaccessible) {
        types.retain(|&member| !graph.ty(member).inaccessible);
    }
    types
}

/// Fields on which other fields depend.
struct SpecialFields {
    /// Fields in keys, which identify objects.
    keys: Vec<FieldId>,
    /// Fields that do not fail: values that arguments read further up, and fields whose failure would make an object
    /// null of which other fields are required. Other requests may select more of such an object, and a null instead of
    /// it is correct for them. Fields in payloads do not fail either, because payloads have no errors.
    steady: Vec<FieldId>,
}

fn find_special_fields(graph: &Supergraph) -> SpecialFields {
    let mut special = SpecialFields { keys: Vec::new(), steady: Vec::new() };
    for ty in &graph.types {
        for key in ty.subgraphs.iter().flat_map(|there| &there.keys) {
            collect_fields(graph, &key.fields, &mut special.keys);
        }
    }
    for (index, field) in graph.fields.iter().enumerate() {
        let is_event = |subgraph: SubgraphId| graph.subgraph(subgraph).kind == SubgraphKind::Events;
        if field.resolved_by.iter().any(is_event) {
            special.steady.push(FieldId(index as u32));
        }
    }
    for there in graph.fields.iter().flat_map(|field| &field.subgraphs) {
        for (_, set) in there.context.iter().flat_map(|argument| &argument.selections) {
            collect_fields(graph, set, &mut special.steady);
        }
        if let Some(set) = &there.requires {
            let mut required = Vec::new();
            collect_fields(graph, set, &mut required);
            special
                .steady
                .extend(required.into_iter().filter(|&field| nulls_its_object(graph, field)));
            let mut through = Vec::new();
            collect_types_on_path(graph, set, &mut through);
            collect_nulling_fields(graph, through, &mut special.steady);
        }
    }
    special
}

/// Collects the object types through which a field set leads.
fn collect_types_on_path(graph: &Supergraph, set: &FieldSet, found: &mut Vec<TypeId>) {
    for item in &set.items {
        match item {
            FieldSetItem::Field { field, fields, .. } if !fields.items.is_empty() => {
                found.extend(&graph.ty(graph.field(*field).ty.named()).possible);
                collect_types_on_path(graph, fields, found);
            }
            FieldSetItem::Field { .. } => {}
            FieldSetItem::Fragment { fields, .. } => collect_types_on_path(graph, fields, found),
        }
    }
}

/// Collects the fields of objects of these types whose failure makes the object null, also from further below.
fn collect_nulling_fields(graph: &Supergraph, mut types: Vec<TypeId>, found: &mut Vec<FieldId>) {
    let mut next = 0;
    while let Some(&ty) = types.get(next) {
        next += 1;
        for &field in graph.ty(ty).fields.iter().filter(|&&field| nulls_its_object(graph, field)) {
            found.push(field);
            for member in &graph.ty(graph.field(field).ty.named()).possible {
                if !types.contains(member) {
                    types.push(*member);
                }
            }
        }
    }
}

/// True if a failure of the field makes its object null in at least one subgraph.
fn nulls_its_object(graph: &Supergraph, field: FieldId) -> bool {
    let definition = graph.field(field);
    let there = definition.subgraphs.iter().filter_map(|there| there.ty.as_ref());
    !definition.ty.nullable || there.into_iter().any(|ty| !ty.nullable)
}

fn collect_fields(graph: &Supergraph, set: &FieldSet, found: &mut Vec<FieldId>) {
    for item in &set.items {
        match item {
            FieldSetItem::Field { field, fields, .. } => {
                let definition = graph.field(*field);
                // A field of an interface includes the fields of its members.
                let members = graph.ty(definition.parent).possible.iter();
                found.extend(members.filter_map(|&ty| graph.field_named(ty, &definition.name)));
                collect_fields(graph, fields, found);
            }
            FieldSetItem::Fragment { fields, .. } => collect_fields(graph, fields, found),
        }
    }
}

struct DataGenerator<'a> {
    graph: &'a Supergraph,
    random: &'a mut Random,
    has_errors: bool,
    special: SpecialFields,
}

impl DataGenerator<'_> {
    fn object(&mut self, ty: TypeId, number: usize) -> Value {
        let graph = self.graph;
        let mut fields = Map::new();
        for &field in &graph.ty(ty).fields {
            let name = graph.field(field).name.to_string();
            let value = match self.special.keys.contains(&field) {
                true => self.key_value(&graph.field(field).ty, field, ty, number),
                false => self.value(field, number),
            };
            fields.insert(name, value);
        }
        Value::Object(fields)
    }

    /// Returns a value that is equal for the same object and different for different ones.
    fn key_value(&mut self, ty: &TypeRef, field: FieldId, of: TypeId, number: usize) -> Value {
        let graph = self.graph;
        let own = &graph.ty(of).name;
        match &ty.shape {
            TypeRefShape::List(item) => {
                let first = self.key_value(item, field, of, number);
                json!([first.clone(), first])
            }
            TypeRefShape::Named(id) if graph.ty(*id).kind.is_composite() => {
                match possible_for_all(graph, *id, field).first() {
                    Some(member) => json!(format!("{}:{number}", graph.ty(*member).name)),
                    None => Value::Null,
                }
            }
            TypeRefShape::Named(id) => match &*graph.ty(*id).name {
                // Keys on an interface must also distinguish objects of its different members.
                "Int" => json!(100 * of.0 as usize + number),
                "Float" => json!((100 * of.0 as usize + number) as f64 + 0.5),
                _ => json!(format!("{}{number}", own.to_lowercase())),
            },
        }
    }

    fn value(&mut self, field: FieldId, number: usize) -> Value {
        let definition = &self.graph.field(field);
        // The value must not be null if some subgraph declares the field as non-null.
        let is_strict = definition
            .subgraphs
            .iter()
            .any(|there| there.ty.as_ref().is_some_and(|ty| !ty.nullable));
        let ty =
            TypeRef { nullable: definition.ty.nullable && !is_strict, ..definition.ty.clone() };
        if self.has_errors
            && !is_strict
            && !self.special.steady.contains(&field)
            && self.random.one_in(25)
        {
            return json!({ "error": format!("no {}", definition.name) });
        }
        self.of_type(&ty, field, number)
    }

    fn of_type(&mut self, ty: &TypeRef, field: FieldId, number: usize) -> Value {
        let graph = self.graph;
        if ty.nullable && number > 0 && self.random.one_in(6) {
            return Value::Null;
        }
        match &ty.shape {
            TypeRefShape::List(item) => {
                (0..self.random.below(4)).map(|_| self.of_type(item, field, number)).collect()
            }
            TypeRefShape::Named(id) => match (&graph.ty(*id).kind, &*graph.ty(*id).name) {
                (TypeKind::Enum(values), _) => json!(**self.random.pick(values)),
                (TypeKind::Scalar, "Int") => json!(self.random.below(100)),
                (TypeKind::Scalar, "Float") => json!(self.random.below(100) as f64 / 4.0 + 0.125),
                // Publications succeed.
                (TypeKind::Scalar, "Boolean") if &*graph.field(field).name == "success" => {
                    json!(true)
                }
                (TypeKind::Scalar, "Boolean") => json!(self.random.one_in(2)),
                (TypeKind::Scalar, "ID") => json!(format!("i{}", self.random.below(100))),
                (TypeKind::Scalar, _) => {
                    json!(*self.random.pick(&["red", "two words", "quote \" and é", ""]))
                }
                _ => {
                    let types = possible_for_all(graph, *id, field);
                    if types.is_empty() {
                        return Value::Null;
                    }
                    let ty = *self.random.pick(&types);
                    if roots(graph).contains(&Some(ty)) {
                        return json!(*graph.ty(ty).name);
                    }
                    json!(format!("{}:{}", graph.ty(ty).name, 1 + self.random.below(OBJECTS)))
                }
            },
        }
    }
}
