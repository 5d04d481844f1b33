//! The reference server, which has the whole store: its responses are the expected ones.

use std::{cell::RefCell, rc::Rc};

use apollo_compiler::ast::{Document, Field};
use graph::{FieldId, Supergraph, TypeId, TypeRef};
use serde_json::{Map, Value, json};

use crate::{
    broker::event_subgraph,
    denials::Denials,
    executor::{self, Resolved, Resolver, Response, any_leaf},
    object_store::{Object, ObjectStore, StoredValue, complete_arguments, interface_mentions},
};

/// The expected response, and the events that the operation must deliver: root fields of event subgraphs, with all
/// arguments.
pub(crate) struct Expected {
    pub(crate) response: Response,
    pub(crate) events: Vec<(FieldId, Map<String, Value>)>,
}

/// Executes the operation in `document` on the root type `root`.
pub(crate) fn execute_operation(
    graph: &Supergraph,
    data: &ObjectStore,
    document: &Document,
    variables: &Map<String, Value>,
    root: TypeId,
    denials: &Denials,
) -> Expected {
    let object = Object { name: graph.ty(root).name.to_string(), ty: root };
    let root = ServerObjectRef(Rc::new(ServerObject { object, above: None }));
    let resolver = ReferenceResolver { graph, data, denials, events: RefCell::default() };
    let response = executor::execute(&resolver, document, variables, root);
    Expected { response, events: resolver.events.into_inner() }
}

struct ReferenceResolver<'a> {
    graph: &'a Supergraph,
    data: &'a ObjectStore,
    denials: &'a Denials,
    events: RefCell<Vec<(FieldId, Map<String, Value>)>>,
}

/// An object with its ancestors.
#[derive(Clone)]
struct ServerObjectRef(Rc<ServerObject>);

struct ServerObject {
    object: Object,
    above: Option<ServerObjectRef>,
}

impl Resolver for ReferenceResolver<'_> {
    type Object = ServerObjectRef;

    fn is_a(&self, here: &ServerObjectRef, ty: &str) -> bool {
        let own = here.0.object.ty;
        let ty = self.graph.type_named(ty);
        ty.is_some_and(|ty| ty == own || self.graph.ty(ty).possible.contains(&own))
    }

    fn resolve(
        &self,
        here: &ServerObjectRef,
        field: &Field,
        arguments: Map<String, Value>,
    ) -> (Resolved<ServerObjectRef>, TypeRef) {
        let object = &here.0.object;
        if field.name == "__typename" {
            return (Resolved::Leaf(json!(*self.graph.ty(object.ty).name)), any_leaf());
        }
        match self.graph.field_named(object.ty, &field.name) {
            Some(own) => {
                let mut arguments = complete_arguments(self.graph, own, arguments);
                self.add_context(here, own, &mut arguments);
                if self.is_event(object.ty, own) {
                    let arguments = coerce_ids(self.graph, own, arguments.clone());
                    self.events.borrow_mut().push((own, arguments));
                }
                let stored = self.data.value_with_requirements(self.graph, object, own, &arguments);
                (resolved(stored, here), self.graph.field(own).ty.clone())
            }
            None => (Resolved::Error(format!("there is no field {}", field.name)), any_leaf()),
        }
    }

    fn is_denied_field(&self, here: &ServerObjectRef, field: &Field) -> bool {
        self.denials.has_field(self.graph, here.0.object.ty, &field.name)
    }

    fn is_denied_object(&self, here: &ServerObjectRef) -> bool {
        self.denials.has_type(self.graph, here.0.object.ty)
    }

    fn depends_on_failures(&self, here: &ServerObjectRef, field: &Field) -> bool {
        let object = &here.0.object;
        let own = self.graph.field_named(object.ty, &field.name);
        own.is_some_and(|own| self.data.has_failed_requirements(self.graph, object, own))
    }
}

impl ReferenceResolver<'_> {
    /// True if the field is a root field that an event subgraph provides.
    fn is_event(&self, ty: TypeId, field: FieldId) -> bool {
        let graph = self.graph;
        let roots = [Some(graph.query), graph.mutation, graph.subscription];
        roots.contains(&Some(ty)) && event_subgraph(graph, field).is_some()
    }

    /// Adds the arguments that are read from the nearest ancestor that sets their context.
    fn add_context(
        &self,
        here: &ServerObjectRef,
        field: FieldId,
        arguments: &mut Map<String, Value>,
    ) {
        let graph = self.graph;
        let mentions = interface_mentions(graph, here.0.object.ty, field);
        let there = mentions.iter().flat_map(|mention| &graph.field(*mention).subgraphs);
        for wanted in there.flat_map(|there| &there.context) {
            let above = std::iter::successors(here.0.above.as_ref(), |it| it.0.above.as_ref());
            let mut values = above.filter_map(|above| {
                let object = &above.0.object;
                let sets =
                    |ty: TypeId| ty == object.ty || graph.ty(ty).possible.contains(&object.ty);
                let (_, set) = wanted.selections.iter().find(|(ty, _)| sets(*ty))?;
                Some(leaf(Value::Object(self.data.project(graph, set, object))))
            });
            arguments.insert(wanted.name.to_string(), values.next().unwrap_or_default());
        }
    }
}

/// Converts integers in arguments of the type `ID` to strings (GraphQL specification, section 3.5.5).
fn coerce_ids(
    graph: &Supergraph,
    field: FieldId,
    mut arguments: Map<String, Value>,
) -> Map<String, Value> {
    for argument in &graph.field(field).arguments {
        if let Some(value) = arguments.get_mut(&*argument.name)
            && argument.ty.trim_end_matches('!') == "ID"
            && value.is_number()
        {
            *value = json!(value.to_string());
        }
    }
    arguments
}

/// Returns the only leaf below objects of one member.
fn leaf(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            members.into_iter().next().map_or(Value::Null, |(_, it)| leaf(it))
        }
        leaf => leaf,
    }
}

fn resolved(stored: StoredValue, above: &ServerObjectRef) -> Resolved<ServerObjectRef> {
    match stored {
        StoredValue::Leaf(value) => Resolved::Leaf(value),
        StoredValue::List(items) => {
            Resolved::List(items.into_iter().map(|item| resolved(item, above)).collect())
        }
        StoredValue::Object(object) => Resolved::Object(ServerObjectRef(Rc::new(ServerObject {
            object,
            above: Some(above.clone()),
        }))),
        StoredValue::Error(message) => Resolved::Error(message),
    }
}
