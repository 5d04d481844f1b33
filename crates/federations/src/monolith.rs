//! One server with the whole store: what it answers is right.

use apollo_compiler::ast::{Document, Field};
use graph::{Supergraph, TypeId, TypeRef, TypeRefShape};
use serde_json::{Map, Value, json};

use crate::{
    data::{Data, Object, Stored, complete_arguments},
    executor::{self, Resolved, Resolver, Response},
};

/// Answers the operation in `document`, whose root type is `root`.
pub(crate) fn answer(
    graph: &Supergraph,
    data: &Data,
    document: &Document,
    variables: &Map<String, Value>,
    root: TypeId,
) -> Response {
    let object = Object { name: graph.ty(root).name.to_string(), ty: root };
    executor::execute(&Monolith { graph, data }, document, variables, object)
}

struct Monolith<'a> {
    graph: &'a Supergraph,
    data: &'a Data,
}

impl Resolver for Monolith<'_> {
    type Object = Object;

    fn is_a(&self, object: &Object, ty: &str) -> bool {
        let ty = self.graph.type_named(ty);
        ty.is_some_and(|ty| ty == object.ty || self.graph.ty(ty).possible.contains(&object.ty))
    }

    fn resolve(
        &self,
        object: &Object,
        field: &Field,
        arguments: Map<String, Value>,
    ) -> (Resolved<Object>, TypeRef) {
        if field.name == "__typename" {
            return (Resolved::Leaf(json!(*self.graph.ty(object.ty).name)), any_leaf());
        }
        match self.graph.field_named(object.ty, &field.name) {
            Some(own) => {
                let arguments = complete_arguments(self.graph, own, arguments);
                let stored = self.data.whole_value(self.graph, object, own, &arguments);
                (resolved(stored), self.graph.field(own).ty.clone())
            }
            None => (Resolved::Error(format!("there is no field {}", field.name)), any_leaf()),
        }
    }
}

fn resolved(stored: Stored) -> Resolved<Object> {
    match stored {
        Stored::Leaf(value) => Resolved::Leaf(value),
        Stored::List(items) => Resolved::List(items.into_iter().map(resolved).collect()),
        Stored::Object(object) => Resolved::Object(object),
        Stored::Error(message) => Resolved::Error(message),
    }
}

/// The type of what is a leaf whatever the schema says.
pub(crate) fn any_leaf() -> TypeRef {
    TypeRef { nullable: true, shape: TypeRefShape::Named(TypeId(0)) }
}
