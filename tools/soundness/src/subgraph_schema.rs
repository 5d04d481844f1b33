//! The schemas of subgraphs, derived from the supergraph as far as it describes them.

use std::{fmt::Write as _, sync::OnceLock};

use apollo_compiler::{Schema, validation::Valid};
use graph::{FieldId, SubgraphId, Supergraph, TypeKind, TypeRef, TypeRefShape};

use crate::violation::{Unsound, unsound};

/// The schemas of the subgraphs of a supergraph, each derived when it is first used.
#[derive(Debug)]
pub(crate) struct SubgraphSchemas(Vec<OnceLock<Result<Valid<Schema>, Unsound>>>);

impl SubgraphSchemas {
    pub(crate) fn new(graph: &Supergraph) -> Self {
        Self(graph.subgraphs.iter().map(|_| OnceLock::new()).collect())
    }

    pub(crate) fn of(
        &self,
        graph: &Supergraph,
        subgraph: SubgraphId,
    ) -> Result<&Valid<Schema>, Unsound> {
        let made = self.0[usize::from(subgraph.0)].get_or_init(|| derive_schema(graph, subgraph));
        made.as_ref().map_err(Clone::clone)
    }
}

fn derive_schema(graph: &Supergraph, subgraph: SubgraphId) -> Result<Valid<Schema>, Unsound> {
    let mut sdl = String::from("scalar _Any\n");
    let mut entities = Vec::new();
    let mut roots = String::new();
    for (name, root) in [
        ("query", Some(graph.query)),
        ("mutation", graph.mutation),
        ("subscription", graph.subscription),
    ] {
        let is_there = |root: &graph::TypeId| {
            let fields = &graph.ty(*root).fields;
            name == "query" || fields.iter().any(|&it| graph.field_in(it, subgraph).is_some())
        };
        if let Some(root) = root.filter(is_there) {
            let _ = write!(roots, " {name}: {}", graph.ty(root).name);
        }
    }
    let _ = writeln!(sdl, "schema {{{roots} }}");
    for (index, ty) in graph.types.iter().enumerate() {
        let id = graph::TypeId(index as u32);
        let Some(there) = graph.type_in(id, subgraph) else { continue };
        match &ty.kind {
            TypeKind::Object | TypeKind::Interface => {
                let mut has_fields =
                    ty.fields.iter().any(|&field| graph.field_in(field, subgraph).is_some());
                has_fields |= id == graph.query;
                if !has_fields {
                    continue;
                }
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
                let mut fields = String::new();
                for &field in &ty.fields {
                    write_field(&mut fields, graph, field, subgraph);
                }
                if id == graph.query {
                    fields.push_str("  _entities(representations: [_Any!]!): [_Entity]!\n");
                }
                // An empty pair of braces is a syntax error; a type without braces is not.
                match fields.is_empty() {
                    true => sdl.push('\n'),
                    false => {
                        let _ = writeln!(sdl, " {{\n{fields}}}");
                    }
                }
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
                let equals = if members.is_empty() { "" } else { " = " };
                let _ = writeln!(sdl, "union {}{equals}{}", ty.name, members.join(" | "));
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
        Ok(schema) => Ok(Valid::assume_valid(schema)),
        Err(failed) => unsound!("a subgraph's schema does not parse: {}", failed.errors),
    }
}

fn write_field(sdl: &mut String, graph: &Supergraph, field: FieldId, subgraph: SubgraphId) {
    let Some(there) = graph.field_in(field, subgraph) else { return };
    let definition = graph.field(field);
    let _ = write!(sdl, "  {}", definition.name);
    if !definition.arguments.is_empty() || !there.context.is_empty() {
        let read = there.context.iter().map(|it| format!("{}: {}", it.name, it.ty));
        let arguments: Vec<String> = definition
            .arguments
            .iter()
            .map(|argument| match &argument.default {
                Some(default) => format!("{}: {} = {default}", argument.name, argument.ty),
                None => format!("{}: {}", argument.name, argument.ty),
            })
            .chain(read)
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
