//! A subgraph in memory: executes requests over its part of the store, and records requests that a real subgraph could
//! not have resolved.

use std::sync::{Arc, Mutex};

use apollo_compiler::ast::{Document, Field};
use bytes::Bytes;
use execute::{FetchError, LocalFuture, SubgraphRequest, SubgraphResponse};
use graph::{FieldSet, FieldSetItem, SubgraphId, Supergraph, TypeId, TypeRef, TypeRefShape};
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value, json};

use crate::{
    executor::{self, Resolved, Resolver, any_leaf},
    object_store::{Object, ObjectStore, StoredValue, complete_arguments},
    request_log::RequestLog,
};

/// One subgraph in memory.
pub(crate) struct InMemorySubgraph {
    pub(crate) graph: Arc<Supergraph>,
    pub(crate) data: Arc<ObjectStore>,
    pub(crate) id: SubgraphId,
    pub(crate) log: Arc<Mutex<RequestLog>>,
}

impl execute::Subgraph for InMemorySubgraph {
    fn fetch<'a>(
        &'a self,
        request: SubgraphRequest<'a>,
    ) -> LocalFuture<'a, Result<SubgraphResponse, FetchError>> {
        let response = self.respond(&request.body);
        Box::pin(async move {
            // Yields to the runtime once, so that concurrent fetches really are in flight at the same time.
            tokio::task::yield_now().await;
            let body = response.map_err(FetchError::Protocol)?;
            Ok(SubgraphResponse {
                status: StatusCode::OK,
                headers: HeaderMap::new(),
                body,
                policy: None,
                hedge: None,
            })
        })
    }
}

impl InMemorySubgraph {
    /// Executes a request and returns the response.
    pub(crate) fn respond(&self, body: &[u8]) -> Result<Bytes, String> {
        let body: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let query = body["query"].as_str().ok_or("no query")?;
        let document = Document::parse(query.to_owned(), "subgraph.graphql")
            .map_err(|failed| failed.errors.to_string())?;
        let operation = document.definitions.iter().find_map(|it| it.as_operation_definition());
        let kind = operation.ok_or("no operation")?.operation_type;
        let root = match kind {
            apollo_compiler::ast::OperationType::Query => Some(self.graph.query),
            apollo_compiler::ast::OperationType::Mutation => self.graph.mutation,
            apollo_compiler::ast::OperationType::Subscription => self.graph.subscription,
        };
        let ty = root.ok_or("no such root")?;
        if let Ok(mut log) = self.log.lock() {
            log.requests.push((self.id, format!("{query} {}", body["variables"])));
        }
        let variables = body["variables"].as_object().cloned().unwrap_or_default();
        let root = SubgraphObject {
            object: Object { name: self.graph.ty(ty).name.to_string(), ty },
            known_as: ty,
            sent: None,
            provides: Vec::new(),
        };
        let server = SubgraphResolver { subgraph: self, graph: &self.graph };
        let response = executor::execute(&server, &document, &variables, root);
        if let Ok(mut log) = self.log.lock() {
            log.errors += response.errors.len();
        }
        Ok(response.to_json().to_string().into())
    }

    fn violation(&self, message: String) {
        if let Ok(mut log) = self.log.lock() {
            let name = &self.graph.subgraph(self.id).name;
            log.violations.push(format!("subgraph `{name}`: {message}"));
        }
    }
}

struct SubgraphResolver<'a> {
    subgraph: &'a InMemorySubgraph,
    graph: &'a Supergraph,
}

/// An object as the subgraph has it.
#[derive(Clone)]
struct SubgraphObject<'a> {
    object: Object,
    /// The object's type in the subgraph: its own, or that of the interface object.
    known_as: TypeId,
    /// The representation with which the object was fetched, if any.
    sent: Option<Arc<Value>>,
    /// The field sets that `@provides` adds.
    provides: Vec<&'a FieldSet>,
}

impl<'a> Resolver for SubgraphResolver<'a> {
    type Object = SubgraphObject<'a>;

    fn is_a(&self, here: &SubgraphObject<'a>, ty: &str) -> bool {
        let Some(ty) = self.graph.type_named(ty) else { return false };
        ty == here.known_as || self.graph.possible_in(ty, self.subgraph.id).contains(&here.known_as)
    }

    fn depends_on_failures(&self, _: &SubgraphObject<'a>, _: &Field) -> bool {
        false
    }

    fn resolve(
        &self,
        here: &SubgraphObject<'a>,
        field: &Field,
        arguments: Map<String, Value>,
    ) -> (Resolved<SubgraphObject<'a>>, TypeRef) {
        if field.name == "__typename" {
            return (Resolved::Leaf(json!(*self.graph.ty(here.known_as).name)), any_leaf());
        }
        if field.name == "_entities" {
            return self.entities(&arguments);
        }
        match self.field(here, field, arguments) {
            Ok(found) => found,
            Err(message) => {
                self.subgraph.violation(message.clone());
                (Resolved::Error(message), any_leaf())
            }
        }
    }
}

impl<'a> SubgraphResolver<'a> {
    fn field(
        &self,
        here: &SubgraphObject<'a>,
        field: &Field,
        arguments: Map<String, Value>,
    ) -> Result<(Resolved<SubgraphObject<'a>>, TypeRef), String> {
        let graph = self.graph;
        let id = self.subgraph.id;
        let coordinate = format!("{}.{}", graph.ty(here.known_as).name, field.name);
        let mention = graph.field_named(here.known_as, &field.name);
        let mention = mention.ok_or_else(|| format!("{coordinate} does not exist"))?;
        let there = graph.field_in(mention, id);
        let there = there.ok_or_else(|| format!("{coordinate} is not in the subgraph"))?;
        let mut provides = Vec::new();
        provided(graph, &here.provides, here.known_as, &field.name, &mut provides);
        let is_external = there.external && !graph.is_key_reference(mention, id);
        if (is_external || !graph.field(mention).resolved_by.contains(id)) && provides.is_empty() {
            return Err(format!("{coordinate} is external"));
        }
        let required = match &there.requires {
            None => None,
            Some(set) => {
                let sent = here.sent.as_deref();
                let sent = sent.ok_or_else(|| format!("{coordinate} has no representation"))?;
                Some(self.required(set, sent, here.known_as)?)
            }
        };
        let own = graph.field_named(here.object.ty, &field.name);
        let own = own.ok_or_else(|| format!("{coordinate} is not a field of the object"))?;
        let mut complete = complete_arguments(graph, mention, arguments.clone());
        for wanted in &there.context {
            let read = arguments.get(&*wanted.name);
            let read = read.ok_or_else(|| format!("{coordinate} lacks `{}`", wanted.name))?;
            complete.insert(wanted.name.to_string(), read.clone());
        }
        let arguments = complete;
        // With `@provides` the subgraph has the value without the values that it requires.
        let stored = match (required, provides.is_empty()) {
            (None, false) => {
                self.subgraph.data.value_with_requirements(graph, &here.object, own, &arguments)
            }
            (required, _) => {
                self.subgraph.data.value(graph, &here.object, own, &arguments, required.as_ref())
            }
        };
        provides.extend(&there.provides);
        let ty = there.ty.as_ref().unwrap_or(&graph.field(mention).ty);
        Ok((self.resolved(stored, ty.named(), &provides)?, ty.clone()))
    }

    fn resolved(
        &self,
        stored: StoredValue,
        ty: TypeId,
        provides: &[&'a FieldSet],
    ) -> Result<Resolved<SubgraphObject<'a>>, String> {
        Ok(match stored {
            StoredValue::Leaf(value) => Resolved::Leaf(value),
            StoredValue::Error(message) => Resolved::Error(message),
            StoredValue::List(items) => Resolved::List(
                items
                    .into_iter()
                    .map(|item| self.resolved(item, ty, provides))
                    .collect::<Result<_, _>>()?,
            ),
            StoredValue::Object(object) => Resolved::Object(SubgraphObject {
                known_as: self.known_as(ty, &object)?,
                object,
                sent: None,
                provides: provides.to_vec(),
            }),
        })
    }

    /// Returns the type as which the subgraph knows an object if its schema declares `ty`.
    fn known_as(&self, ty: TypeId, object: &Object) -> Result<TypeId, String> {
        let there = self.graph.type_in(ty, self.subgraph.id);
        if there.is_some_and(|there| there.interface_object) {
            return Ok(ty);
        }
        match self.graph.possible_in(ty, self.subgraph.id).contains(&object.ty) {
            true => Ok(object.ty),
            false => Err(format!("{} cannot be a {}", object.name, self.graph.ty(ty).name)),
        }
    }

    /// Returns the members of a representation that a field requires, and nothing else.
    fn required(&self, set: &FieldSet, sent: &Value, ty: TypeId) -> Result<Value, String> {
        let members = match sent {
            Value::Null => return Ok(Value::Null),
            Value::Array(items) => {
                return items.iter().map(|item| self.required(set, item, ty)).collect();
            }
            Value::Object(members) => members,
            other => return Err(format!("{other} was sent where an object is required")),
        };
        let mut out = Map::new();
        for item in &set.items {
            match item {
                FieldSetItem::Fragment { on, fields } => {
                    let named = members.get("__typename").and_then(Value::as_str);
                    let actual = named.and_then(|name| self.graph.type_named(name)).unwrap_or(ty);
                    let applies = *on == actual || self.graph.ty(*on).possible.contains(&actual);
                    if applies && let Value::Object(more) = self.required(fields, sent, *on)? {
                        out.extend(more);
                    }
                }
                FieldSetItem::Field { field, fields, .. } => {
                    let definition = self.graph.field(*field);
                    let value = members.get(&*definition.name);
                    let value =
                        value.ok_or_else(|| format!("`{}` was not sent", definition.name))?;
                    let value = match fields.items.is_empty() {
                        true => value.clone(),
                        false => self.required(fields, value, definition.ty.named())?,
                    };
                    out.insert(definition.name.to_string(), value);
                }
            }
        }
        Ok(Value::Object(out))
    }

    fn entities(&self, arguments: &Map<String, Value>) -> (Resolved<SubgraphObject<'a>>, TypeRef) {
        // Elements may be null: `[_Entity]!`. The type inside is not used.
        let item = any_leaf();
        let ty = TypeRef { nullable: false, shape: TypeRefShape::List(Box::new(item)) };
        let sent = arguments.get("representations").and_then(Value::as_array);
        let entities = sent.into_iter().flatten().map(|sent| match self.find_object(sent) {
            Ok(here) => Resolved::Object(here),
            Err(message) => {
                self.subgraph.violation(message.clone());
                Resolved::Error(message)
            }
        });
        (Resolved::List(entities.collect()), ty)
    }

    /// Returns the object that a representation identifies by a key of this subgraph.
    fn find_object(&self, sent: &Value) -> Result<SubgraphObject<'a>, String> {
        let graph = self.graph;
        let name = sent["__typename"].as_str().ok_or("a representation without a type")?;
        let ty = graph.type_named(name).ok_or_else(|| format!("there is no type {name}"))?;
        let there = graph.type_in(ty, self.subgraph.id);
        let there = there.ok_or_else(|| format!("{name} is not in the subgraph"))?;
        let possible = match there.interface_object {
            true => &graph.ty(ty).possible[..],
            false => graph.possible_in(ty, self.subgraph.id),
        };
        for key in there.keys.iter().filter(|key| key.resolvable) {
            for &member in possible {
                for object in self.subgraph.data.of_type(graph, member) {
                    let own = self.subgraph.data.project(graph, &key.fields, &object);
                    if includes(sent, &Value::Object(own)) {
                        let known_as = if there.interface_object { ty } else { member };
                        let sent = Some(Arc::new(sent.clone()));
                        return Ok(SubgraphObject { object, known_as, sent, provides: Vec::new() });
                    }
                }
            }
        }
        Err(format!("{sent} identifies no object"))
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

/// Collects the field sets that `@provides` states below a field.
fn provided<'a>(
    graph: &Supergraph,
    sets: &[&'a FieldSet],
    ty: TypeId,
    name: &str,
    found: &mut Vec<&'a FieldSet>,
) {
    for item in sets.iter().flat_map(|set| &set.items) {
        match item {
            FieldSetItem::Field { field, fields, .. } if *graph.field(*field).name == *name => {
                found.push(fields);
            }
            FieldSetItem::Field { .. } => {}
            FieldSetItem::Fragment { on, fields } => {
                if *on == ty || graph.ty(*on).possible.contains(&ty) {
                    provided(graph, &[fields], ty, name, found);
                }
            }
        }
    }
}
