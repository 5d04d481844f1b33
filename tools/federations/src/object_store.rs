//! The object store of the reference server and of all subgraphs: objects by name, such as `User:1`, with the values of
//! their fields.
//!
//! - If the schema requires an object, the value is the name of one.
//! - `{"error": "text"}`: the resolver fails.
//! - An absent field is null.
//! - Root objects have the name of their type.
//!
//! Two rules make wrong plans visible. A `String` contains the arguments of its resolver (`red{"x":1}`) and the values
//! that `@requires` sent (`red<{"weight":3}>`). A list with an argument `first` has at most that many items.

use graph::{FieldId, FieldSet, FieldSetItem, Supergraph, TypeId};
use serde_json::{Map, Value};

/// All objects of a federation.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ObjectStore {
    /// The fields of each object, by the object's name.
    pub objects: Map<String, Value>,
}

/// A value before its selections are resolved.
pub(crate) enum StoredValue {
    Leaf(Value),
    List(Vec<StoredValue>),
    Object(Object),
    Error(String),
}

/// An object of the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Object {
    pub(crate) name: String,
    pub(crate) ty: TypeId,
}

impl ObjectStore {
    /// Parses the JSON of a `data.json`.
    ///
    /// # Errors
    /// The text is not an object of objects.
    pub fn parse(text: &str) -> Result<Self, String> {
        match serde_json::from_str(text).map_err(|error| error.to_string())? {
            Value::Object(objects) if objects.values().all(Value::is_object) => {
                Ok(Self { objects })
            }
            _ => Err("the data is not an object of objects".to_owned()),
        }
    }

    /// Returns the object of that name.
    pub(crate) fn object(&self, graph: &Supergraph, name: &str) -> Option<Object> {
        let ty = graph.type_named(name.split(':').next().unwrap_or(name))?;
        Some(Object { name: name.to_owned(), ty })
    }

    /// Returns all objects of an object type.
    pub(crate) fn of_type<'a>(
        &'a self,
        graph: &'a Supergraph,
        ty: TypeId,
    ) -> impl Iterator<Item = Object> + 'a {
        let all = self.objects.keys().filter_map(|name| self.object(graph, name));
        all.filter(move |object| object.ty == ty)
    }

    /// Returns the value of a field for these arguments and required fields, both of which are visible in it.
    pub(crate) fn value(
        &self,
        graph: &Supergraph,
        object: &Object,
        field: FieldId,
        arguments: &Map<String, Value>,
        required: Option<&Value>,
    ) -> StoredValue {
        let definition = graph.field(field);
        let fields = self.objects.get(&object.name);
        let value = fields.and_then(|fields| fields.get(&*definition.name));
        let mut visible = arguments.clone();
        let first = visible.shift_remove("first").and_then(|first| first.as_u64());
        let mut suffix = String::new();
        if !visible.is_empty() {
            suffix.push_str(&Value::Object(visible).to_string());
        }
        if let Some(required) = required {
            suffix = format!("{suffix}<{required}>");
        }
        let is_text = &*graph.ty(definition.ty.named()).name == "String";
        let is_composite = graph.ty(definition.ty.named()).kind.is_composite();
        let suffix = if is_text { suffix } else { String::new() };
        match self.stored(graph, value.unwrap_or(&Value::Null), is_composite, &suffix) {
            StoredValue::List(mut items) => {
                items.truncate(first.map_or(usize::MAX, |first| first as usize));
                StoredValue::List(items)
            }
            other => other,
        }
    }

    fn stored(
        &self,
        graph: &Supergraph,
        value: &Value,
        is_object: bool,
        suffix: &str,
    ) -> StoredValue {
        match value {
            Value::Array(items) => {
                let stored = |item| self.stored(graph, item, is_object, suffix);
                StoredValue::List(items.iter().map(stored).collect())
            }
            Value::String(name) if is_object => match self.object(graph, name) {
                Some(object) => StoredValue::Object(object),
                None => StoredValue::Error(format!("there is no object {name}")),
            },
            Value::Object(error) => {
                let message = error.get("error").and_then(Value::as_str);
                StoredValue::Error(message.unwrap_or("an error without a message").to_owned())
            }
            Value::String(text) => StoredValue::Leaf(Value::String(format!("{text}{suffix}"))),
            other => StoredValue::Leaf(other.clone()),
        }
    }

    /// Returns the selection of a field set on an object, as the reference server would send it. Failures count as
    /// null.
    pub(crate) fn project(
        &self,
        graph: &Supergraph,
        set: &FieldSet,
        object: &Object,
    ) -> Map<String, Value> {
        let mut out = Map::new();
        for item in &set.items {
            match item {
                FieldSetItem::Fragment { on, fields } => {
                    if *on == object.ty || graph.ty(*on).possible.contains(&object.ty) {
                        out.extend(self.project(graph, fields, object));
                    }
                }
                FieldSetItem::Field { field, arguments, fields } => {
                    let name = &graph.field(*field).name;
                    let Some(own) = graph.field_named(object.ty, name) else { continue };
                    let arguments = constant_arguments(graph, own, arguments);
                    let value = self.value_with_requirements(graph, object, own, &arguments);
                    out.insert(name.to_string(), self.projected(graph, value, fields));
                }
            }
        }
        out
    }

    fn projected(&self, graph: &Supergraph, stored: StoredValue, fields: &FieldSet) -> Value {
        match stored {
            StoredValue::Leaf(value) => value,
            StoredValue::Error(_) => Value::Null,
            StoredValue::List(items) => {
                items.into_iter().map(|item| self.projected(graph, item, fields)).collect()
            }
            StoredValue::Object(object) => Value::Object(self.project(graph, fields, &object)),
        }
    }

    /// Returns the value of a field together with all fields that it requires.
    pub(crate) fn value_with_requirements(
        &self,
        graph: &Supergraph,
        object: &Object,
        field: FieldId,
        arguments: &Map<String, Value>,
    ) -> StoredValue {
        let required = requires(graph, object.ty, field);
        let required = required.map(|set| Value::Object(self.project(graph, set, object)));
        self.value(graph, object, field, arguments, required.as_ref())
    }

    /// True if a resolver of any required field fails, directly or through the requirements of that field.
    pub(crate) fn has_failed_requirements(
        &self,
        graph: &Supergraph,
        object: &Object,
        field: FieldId,
    ) -> bool {
        let required = requires(graph, object.ty, field);
        // No plan fetches a field that requires itself, so its requirements cannot fail.
        required.is_some_and(|set| {
            !requires_itself(graph, object.ty, field) && self.fails(graph, set, object)
        })
    }

    fn fails(&self, graph: &Supergraph, set: &FieldSet, object: &Object) -> bool {
        set.items.iter().any(|item| match item {
            FieldSetItem::Fragment { on, fields } => {
                let applies = *on == object.ty || graph.ty(*on).possible.contains(&object.ty);
                applies && self.fails(graph, fields, object)
            }
            FieldSetItem::Field { field, arguments, fields } => {
                let name = &graph.field(*field).name;
                let Some(own) = graph.field_named(object.ty, name) else { return false };
                let arguments = constant_arguments(graph, own, arguments);
                let stored = self.value_with_requirements(graph, object, own, &arguments);
                self.has_failed_requirements(graph, object, own)
                    || self.fails_below(graph, &stored, fields)
            }
        })
    }

    fn fails_below(&self, graph: &Supergraph, stored: &StoredValue, set: &FieldSet) -> bool {
        match stored {
            StoredValue::Leaf(_) => false,
            StoredValue::Error(_) => true,
            StoredValue::List(items) => items.iter().any(|item| self.fails_below(graph, item, set)),
            StoredValue::Object(object) => self.fails(graph, set, object),
        }
    }
}

/// Returns the field set that a field of objects of type `ty` requires.
fn requires(graph: &Supergraph, ty: TypeId, field: FieldId) -> Option<&FieldSet> {
    let mentions = interface_mentions(graph, ty, field);
    let there = mentions.into_iter().flat_map(|mention| &graph.field(mention).subgraphs);
    there.into_iter().find_map(|there| there.requires.as_ref())
}

/// True if a field of objects of type `ty` requires itself, directly or through the fields that it requires.
fn requires_itself(graph: &Supergraph, ty: TypeId, field: FieldId) -> bool {
    let mut pending = vec![(ty, field)];
    let mut visited: Vec<(TypeId, FieldId)> = Vec::new();
    while let Some((of, next)) = pending.pop() {
        let mut required = Vec::new();
        if let Some(set) = requires(graph, of, next) {
            collect_required(graph, set, of, &mut required);
        }
        for found in required {
            if found == (ty, field) {
                return true;
            }
            if !visited.contains(&found) {
                visited.push(found);
                pending.push(found);
            }
        }
    }
    false
}

/// Collects the fields that a set selects on objects of type `ty`, and below them.
fn collect_required(
    graph: &Supergraph,
    set: &FieldSet,
    ty: TypeId,
    found: &mut Vec<(TypeId, FieldId)>,
) {
    for item in &set.items {
        match item {
            FieldSetItem::Fragment { on, fields } => {
                if *on == ty || graph.ty(*on).possible.contains(&ty) {
                    collect_required(graph, fields, ty, found);
                }
            }
            FieldSetItem::Field { field, fields, .. } => {
                let Some(own) = graph.field_named(ty, &graph.field(*field).name) else { continue };
                found.push((ty, own));
                for &member in &graph.ty(graph.field(own).ty.named()).possible {
                    collect_required(graph, fields, member, found);
                }
            }
        }
    }
}

/// Returns the field itself, and the same field of the interface objects that may resolve it.
pub(crate) fn interface_mentions(graph: &Supergraph, ty: TypeId, field: FieldId) -> Vec<FieldId> {
    let name = &graph.field(field).name;
    let is_object = |interface: &&TypeId| {
        graph.ty(**interface).subgraphs.iter().any(|there| there.interface_object)
    };
    let interfaces = graph.ty(ty).implements.iter().filter(is_object);
    let more = interfaces.filter_map(|&interface| graph.field_named(interface, name));
    std::iter::once(field).chain(more).collect()
}

/// Returns the arguments that a field set gives a field, with defaults, in the order of the schema.
pub(crate) fn constant_arguments(
    graph: &Supergraph,
    field: FieldId,
    text: &str,
) -> Map<String, Value> {
    let given = constant(text, true);
    complete_arguments(graph, field, given.as_object().cloned().unwrap_or_default())
}

/// Adds defaults and sorts the arguments in the order of the schema.
pub(crate) fn complete_arguments(
    graph: &Supergraph,
    field: FieldId,
    mut given: Map<String, Value>,
) -> Map<String, Value> {
    let mut all = Map::new();
    for argument in &graph.field(field).arguments {
        let default = || argument.default.as_ref().map(|text| constant(text, false));
        if let Some(value) = given.shift_remove(&*argument.name).or_else(default) {
            all.insert(argument.name.to_string(), value);
        }
    }
    all
}

fn constant(text: &str, is_list_of_members: bool) -> Value {
    let text = if is_list_of_members { format!("{{{text}}}") } else { text.to_owned() };
    graph::ConstValue::parse(&text).map_or(Value::Null, |value| of_constant(&value))
}

fn of_constant(value: &graph::ConstValue) -> Value {
    use graph::ConstValue as C;
    match value {
        C::Null => Value::Null,
        C::Int(text) | C::Float(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        C::String(text) | C::Enum(text) => Value::String(text.to_string()),
        C::Boolean(value) => Value::Bool(*value),
        C::List(items) => items.iter().map(of_constant).collect(),
        C::Object(members) => {
            members.iter().map(|(name, value)| (name.to_string(), of_constant(value))).collect()
        }
    }
}
