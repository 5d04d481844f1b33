//! A simulated subgraph: it executes an operation's text over the store, and fails where a real subgraph could not
//! resolve a field.

use apollo_compiler::ast::{Definition, Directive, Document, Field, Selection, Value as Ast};
use graph::{FieldSet, FieldSetItem, SubgraphId, Supergraph, TypeId};
use plan::SubgraphOperation;
use serde_json::{Map, Value, json};

use super::{
    merge,
    store::{ENTITIES, Object, Store, Stored},
};

/// Returns the `data` of the response.
pub(super) fn run(
    store: Store<'_>,
    subgraph: SubgraphId,
    operation: &SubgraphOperation,
    variables: &Value,
    root: TypeId,
) -> Value {
    let document = Document::parse(operation.text.to_string(), "subgraph.graphql")
        .unwrap_or_else(|errors| panic!("{errors}"));
    let [Definition::OperationDefinition(parsed)] = &*document.definitions else {
        panic!("one operation")
    };
    let server = Server { store, graph: store.graph, subgraph, variables };
    let mut out = Value::Object(Map::new());
    let here = Here { object: store.root(root), representation: None, provides: Vec::new() };
    server.set(&parsed.selection_set, &here, &mut out);
    out
}

struct Server<'a> {
    store: Store<'a>,
    graph: &'a Supergraph,
    subgraph: SubgraphId,
    variables: &'a Value,
}

/// An object as the subgraph has it.
struct Here<'a> {
    object: Object,
    /// The representation with which the object was fetched, if any.
    representation: Option<&'a Value>,
    provides: Vec<&'a FieldSet>,
}

impl<'a> Server<'a> {
    fn set(&self, selections: &[Selection], here: &Here<'a>, out: &mut Value) {
        for selection in selections {
            match selection {
                Selection::FragmentSpread(_) => panic!("no named fragments"),
                Selection::InlineFragment(fragment) => {
                    let on = fragment.type_condition.as_ref();
                    let on = on.map(|name| self.graph.type_named(name).expect("a known type"));
                    let applies = on.is_none_or(|on| {
                        on == here.object.ty || self.graph.ty(on).possible.contains(&here.object.ty)
                    });
                    if applies && self.is_included(fragment.directives.iter().map(|d| &**d)) {
                        self.set(&fragment.selection_set, here, out);
                    }
                }
                Selection::Field(field) => {
                    if self.is_included(field.directives.iter().map(|d| &**d)) {
                        let key = field.alias.as_ref().unwrap_or(&field.name).to_string();
                        let value = self.field(field, here);
                        merge(out, Value::Object(Map::from_iter([(key, value)])));
                    }
                }
            }
        }
    }

    fn is_included<'d>(&self, directives: impl Iterator<Item = &'d Directive>) -> bool {
        directives.into_iter().all(|directive| {
            let argument = directive.specified_argument_by_name("if").expect("an argument `if`");
            self.value(argument) == json!(directive.name == "include")
        })
    }

    fn value(&self, value: &Ast) -> Value {
        match value {
            Ast::Null => Value::Null,
            Ast::Enum(name) => json!(name.as_str()),
            Ast::Variable(name) => self.variables[name.as_str()].clone(),
            Ast::String(text) => json!(text),
            Ast::Float(number) => serde_json::from_str(number.as_str()).expect("a number"),
            Ast::Int(number) => serde_json::from_str(number.as_str()).expect("a number"),
            Ast::Boolean(value) => json!(value),
            Ast::List(items) => items.iter().map(|item| self.value(item)).collect(),
            Ast::Object(members) => {
                members.iter().map(|(name, value)| (name.to_string(), self.value(value))).collect()
            }
        }
    }

    fn field(&self, field: &Field, here: &Here<'a>) -> Value {
        let graph = self.graph;
        if field.name == "__typename" {
            // An interface object does not know the real type.
            return json!(*graph.ty(graph.local_type(here.object.ty, self.subgraph)).name);
        }
        if field.name == "_entities" {
            return self.entities(field);
        }
        let id = graph.field_named(here.object.ty, &field.name).expect("a field of the type");
        let there = graph.field_in(id, self.subgraph).expect("a field of the subgraph");
        let provided = matching(graph, &here.provides, here.object.ty, &field.name);
        assert!(
            graph.field(id).resolved_by.contains(self.subgraph) || !provided.is_empty(),
            "{}.{} is external in {}",
            graph.ty(here.object.ty).name,
            field.name,
            graph.subgraph(self.subgraph).name
        );
        let arguments: Value =
            field.arguments.iter().map(|a| (a.name.to_string(), self.value(&a.value))).collect();
        let stored = match &there.requires {
            None => self.store.value(id, here.object, &arguments),
            Some(set) => {
                let sent = here.representation.expect("required fields come with representations");
                let required = self.required(set, sent, here.object.ty);
                self.store.value_with(id, here.object, &arguments, Some(&required))
            }
        };
        let mut provides = provided;
        provides.extend(&there.provides);
        self.stored(stored, field, &provides)
    }

    fn stored(&self, stored: Stored, field: &Field, provides: &[&'a FieldSet]) -> Value {
        match stored {
            Stored::Leaf(value) => value,
            Stored::List(items) => {
                items.into_iter().map(|item| self.stored(item, field, provides)).collect()
            }
            Stored::Object(object) => {
                let here = Here { object, representation: None, provides: provides.to_vec() };
                let mut out = Value::Object(Map::new());
                self.set(&field.selection_set, &here, &mut out);
                out
            }
        }
    }

    /// Returns the members of a representation that a field requires, and nothing else.
    fn required(&self, set: &FieldSet, sent: &Value, ty: TypeId) -> Value {
        if sent.is_null() {
            return Value::Null;
        }
        if let Value::Array(items) = sent {
            return items.iter().map(|item| self.required(set, item, ty)).collect();
        }
        let mut out = Map::new();
        for item in &set.items {
            match item {
                FieldSetItem::Fragment { on, fields } => {
                    let is_it = match sent.get("__typename").and_then(Value::as_str) {
                        Some(name) => self.graph.type_named(name).is_some_and(|ty| {
                            *on == ty || self.graph.ty(*on).possible.contains(&ty)
                        }),
                        None => *on == ty,
                    };
                    if is_it && let Value::Object(more) = self.required(fields, sent, *on) {
                        out.extend(more);
                    }
                }
                FieldSetItem::Field { field, fields, .. } => {
                    let definition = self.graph.field(*field);
                    let value = sent.get(&*definition.name);
                    let value =
                        value.unwrap_or_else(|| panic!("`{}` was not sent", definition.name));
                    let value = match fields.items.is_empty() {
                        true => value.clone(),
                        false => self.required(fields, value, definition.ty.named()),
                    };
                    out.insert(definition.name.to_string(), value);
                }
            }
        }
        Value::Object(out)
    }

    fn entities(&self, field: &Field) -> Value {
        let argument = field.arguments.first().expect("representations");
        let Ast::Variable(name) = &*argument.value else { panic!("a variable") };
        let Value::Array(representations) = &self.variables[name.as_str()] else {
            panic!("a list of representations")
        };
        let mut out = Vec::new();
        for representation in representations {
            let typename = representation["__typename"].as_str().expect("a type");
            let ty = self.graph.type_named(typename).expect("a known type");
            let here = Here {
                object: self.identified(ty, representation),
                representation: Some(representation),
                provides: Vec::new(),
            };
            let mut entity = Value::Object(Map::new());
            self.set(&field.selection_set, &here, &mut entity);
            out.push(entity);
        }
        Value::Array(out)
    }

    /// Returns the object that a representation identifies by a key of this subgraph.
    fn identified(&self, ty: TypeId, representation: &Value) -> Object {
        for key in self.graph.keys_into(ty, self.subgraph) {
            let types = self.graph.ty(ty).possible.iter();
            let mut objects = types.flat_map(|&ty| (0..ENTITIES).map(move |id| Object { ty, id }));
            let found = objects
                .find(|&object| includes(representation, &self.store.project(&key.fields, object)));
            if let Some(object) = found {
                return object;
            }
        }
        panic!("{representation} names nothing in {}", self.graph.subgraph(self.subgraph).name)
    }
}

/// True if `value` contains all of `part`.
fn includes(value: &Value, part: &Value) -> bool {
    match (value, part) {
        (Value::Object(value), Value::Object(part)) => {
            part.iter().all(|(key, part)| value.get(key).is_some_and(|value| includes(value, part)))
        }
        (Value::Array(value), Value::Array(part)) => {
            value.len() == part.len() && value.iter().zip(part).all(|(v, p)| includes(v, p))
        }
        (value, part) => value == part,
    }
}

/// Returns the selection that `@provides` states below a field.
fn matching<'a>(
    graph: &'a Supergraph,
    sets: &[&'a FieldSet],
    ty: TypeId,
    name: &str,
) -> Vec<&'a FieldSet> {
    let mut found = Vec::new();
    for set in sets {
        for item in &set.items {
            match item {
                FieldSetItem::Field { field, fields, .. } if *graph.field(*field).name == *name => {
                    found.push(fields);
                }
                FieldSetItem::Field { .. } => {}
                FieldSetItem::Fragment { on, fields } => {
                    if *on == ty || graph.ty(*on).possible.contains(&ty) {
                        found.extend(matching(graph, &[fields], ty, name));
                    }
                }
            }
        }
    }
    found
}
