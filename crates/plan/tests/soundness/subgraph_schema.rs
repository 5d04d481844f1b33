//! The schemas of subgraphs, as far as the supergraph tells.

use std::fmt::Write as _;

use apollo_compiler::{Schema, validation::Valid};
use graph::{FieldId, SubgraphId, Supergraph, TypeKind, TypeRef, TypeRefShape};

/// The schemas of all subgraphs of a supergraph.
pub(crate) struct Schemas(Vec<Valid<Schema>>);

impl Schemas {
    pub(crate) fn new(graph: &Supergraph) -> Self {
        let ids = (0..graph.subgraphs.len()).map(|index| SubgraphId(index as u16));
        Self(ids.map(|subgraph| schema_of(graph, subgraph)).collect())
    }

    pub(super) fn of(&self, subgraph: SubgraphId) -> &Valid<Schema> {
        &self.0[usize::from(subgraph.0)]
    }
}

fn schema_of(graph: &Supergraph, subgraph: SubgraphId) -> Valid<Schema> {
    let mut sdl = String::from("scalar _Any\n");
    let mut entities = Vec::new();
    let mut roots = String::new();
    for (name, root) in [
        ("query", Some(graph.query)),
        ("mutation", graph.mutation),
        ("subscription", graph.subscription),
    ] {
        if let Some(root) = root.filter(|&root| graph.type_in(root, subgraph).is_some()) {
            let _ = write!(roots, " {name}: {}", graph.ty(root).name);
        }
    }
    let _ = writeln!(sdl, "schema {{{roots} }}");
    for (index, ty) in graph.types.iter().enumerate() {
        let id = graph::TypeId(index as u32);
        let Some(there) = graph.type_in(id, subgraph) else { continue };
        match &ty.kind {
            TypeKind::Object | TypeKind::Interface => {
                let is_interface = ty.kind == TypeKind::Interface && !there.interface_object;
                let keyword = if is_interface { "interface" } else { "type" };
                let implements: Vec<&str> = ty
                    .implements
                    .iter()
                    .filter(|&&interface| graph.possible_in(interface, subgraph).contains(&id))
                    .map(|&interface| &*graph.ty(interface).name)
                    .collect();
                let _ = write!(sdl, "{keyword} {}", ty.name);
                if !implements.is_empty() {
                    let _ = write!(sdl, " implements {}", implements.join(" & "));
                }
                sdl.push_str(" {\n");
                for &field in &ty.fields {
                    write_field(&mut sdl, graph, field, subgraph);
                }
                if id == graph.query {
                    sdl.push_str("  _entities(representations: [_Any!]!): [_Entity]!\n");
                }
                sdl.push_str("}\n");
                if keyword == "type" && !there.keys.is_empty() {
                    entities.push(&*ty.name);
                }
            }
            TypeKind::Union => {
                let members: Vec<&str> = graph
                    .possible_in(id, subgraph)
                    .iter()
                    .map(|&member| &*graph.ty(member).name)
                    .collect();
                let _ = writeln!(sdl, "union {} = {}", ty.name, members.join(" | "));
            }
            TypeKind::Scalar | TypeKind::Enum(_) | TypeKind::InputObject => {
                if let Some(definition) = graph.api.0.types.get(&*ty.name)
                    && !definition.is_built_in()
                {
                    let _ = writeln!(sdl, "{definition}");
                }
            }
        }
    }
    if entities.is_empty() {
        entities.push("Query");
    }
    let _ = writeln!(sdl, "union _Entity = {}", entities.join(" | "));
    // Parts of the schema that only the subgraph knows are missing, so it is not validated as a whole.
    match Schema::parse(sdl, "subgraph.graphql") {
        Ok(schema) => Valid::assume_valid(schema),
        Err(errors) => panic!("{errors}"),
    }
}

fn write_field(sdl: &mut String, graph: &Supergraph, field: FieldId, subgraph: SubgraphId) {
    let Some(there) = graph.field_in(field, subgraph) else { return };
    let definition = graph.field(field);
    let _ = write!(sdl, "  {}", definition.name);
    if !definition.arguments.is_empty() {
        let arguments: Vec<String> = definition
            .arguments
            .iter()
            .map(|argument| match &argument.default {
                Some(default) => format!("{}: {} = {default}", argument.name, argument.ty),
                None => format!("{}: {}", argument.name, argument.ty),
            })
            .collect();
        let _ = write!(sdl, "({})", arguments.join(", "));
    }
    let ty = type_text(graph, there.ty.as_ref().unwrap_or(&definition.ty));
    let _ = writeln!(sdl, ": {ty}");
}

fn type_text(graph: &Supergraph, ty: &TypeRef) -> String {
    let inner = match &ty.shape {
        TypeRefShape::List(inner) => format!("[{}]", type_text(graph, inner)),
        TypeRefShape::Named(id) => graph.ty(*id).name.to_string(),
    };
    if ty.nullable { inner } else { format!("{inner}!") }
}
