//! Field sets that are collected while types are read, and parsed and stored in the model when all types are known.

use apollo_compiler::parser::SourceSpan;

use super::field_sets;
use crate::{
    FieldId, FieldInSubgraph, FieldSet, FieldSetItem, Key, SubgraphId, SubgraphKind, Supergraph,
    TypeId, errors::ErrorCollector,
};

/// The place in the model to which a field set belongs.
pub(super) enum FieldSetSlot {
    Key { ty: TypeId, subgraph: SubgraphId, resolvable: bool, is_extension: bool },
    Requires { field: FieldId, mention: usize },
    Provides { field: FieldId, mention: usize },
    Context { field: FieldId, mention: usize, argument: usize, context: Box<str> },
}

/// A field set that waits until all types are known.
pub(super) struct PendingFieldSet {
    pub(super) text: String,
    pub(super) place: Option<SourceSpan>,
    pub(super) slot: FieldSetSlot,
}

/// Parses all pending field sets and stores each in its place.
pub(super) fn fill_field_sets(
    supergraph: &mut Supergraph,
    pending: Vec<PendingFieldSet>,
    errors: &mut ErrorCollector<'_>,
) {
    for PendingFieldSet { text, place, slot } in pending {
        if let FieldSetSlot::Context { field, mention, argument, context } = slot {
            let selections = context_selections(supergraph, &text, &context);
            if selections.is_empty() {
                let message =
                    format!("no type sets the context `{context}` with `{}`", text.trim());
                errors.push(place, message, None);
            }
            let there = &mut supergraph.fields[field.0 as usize].subgraphs[mention];
            there.context[argument].selections = selections;
            continue;
        }
        let (on, what) = match &slot {
            FieldSetSlot::Key { ty, .. } => (*ty, "key"),
            FieldSetSlot::Requires { field, .. } => (supergraph.field(*field).parent, "requires"),
            FieldSetSlot::Provides { field, .. } => {
                (supergraph.field(*field).ty.named(), "provides")
            }
            // Handled above.
            FieldSetSlot::Context { .. } => continue,
        };
        let set = match field_sets::parse_field_set(&text, on, supergraph) {
            Ok(set) => set,
            Err(reason) => {
                let message = format!("`{what}: \"{text}\"` cannot be read: {reason}");
                errors.push(place, message, None);
                continue;
            }
        };
        match slot {
            FieldSetSlot::Key { ty, subgraph, resolvable, is_extension } => {
                let there = &mut supergraph.types[ty.0 as usize].subgraphs;
                if let Some(there) = there.iter_mut().find(|there| there.subgraph == subgraph) {
                    there.keys.push(Key { fields: set, resolvable, is_extension });
                }
            }
            FieldSetSlot::Requires { field, mention } => {
                supergraph.fields[field.0 as usize].subgraphs[mention].requires = Some(set);
            }
            FieldSetSlot::Provides { field, mention } => {
                supergraph.fields[field.0 as usize].subgraphs[mention].provides = Some(set);
            }
            FieldSetSlot::Context { .. } => {}
        }
    }
}

/// Returns the selection that a context argument reads of each type that sets the context. The text may have type
/// conditions; for each type only those that fit it apply.
fn context_selections(
    supergraph: &Supergraph,
    text: &str,
    context: &str,
) -> Vec<(TypeId, FieldSet)> {
    let mut selections = Vec::new();
    for (index, ty) in supergraph.types.iter().enumerate() {
        let id = TypeId(index as u32);
        if ty.contexts.iter().any(|known| **known == *context)
            && let Ok(set) = field_sets::parse_field_set(text, id, supergraph)
        {
            selections.push((id, set));
        }
    }
    selections
}

/// Adds the external key members that a subgraph can give nevertheless. An external member is resolvable where
/// external means "only referenced": on a type extension of Federation 1, and in an event subgraph, because payloads
/// carry the keys. Elsewhere only `@provides` makes it so, on its path. Join v0.1 has no external fields; all of its
/// keys are references.
pub(super) fn mark_resolvable_key_members(supergraph: &mut Supergraph, is_v0_1: bool) {
    let mut members = Vec::new();
    for ty in &supergraph.types {
        for there in &ty.subgraphs {
            let is_payload = supergraph.subgraph(there.subgraph).kind == SubgraphKind::Events;
            for key in &there.keys {
                if is_v0_1 || is_payload || key.is_extension {
                    collect_members(&key.fields, there.subgraph, &mut members);
                }
            }
        }
    }
    for (field, subgraph) in members {
        let field = &mut supergraph.fields[field.0 as usize];
        let is_mentioned = field.subgraphs.iter().any(|there| there.subgraph == subgraph);
        if is_mentioned || is_v0_1 {
            field.declared_by.insert(subgraph);
        }
        if !is_mentioned && is_v0_1 {
            field.subgraphs.push(FieldInSubgraph::of(subgraph));
        }
    }
}

/// Adds the mentions of external fields in join v0.1, which does not record them: a subgraph that provides or requires
/// a field has it in its schema.
pub(super) fn add_external_mentions(supergraph: &mut Supergraph) {
    let mut members = Vec::new();
    for field in &supergraph.fields {
        for there in &field.subgraphs {
            for set in there.provides.iter().chain(&there.requires) {
                collect_members(set, there.subgraph, &mut members);
            }
        }
    }
    for (field, subgraph) in members {
        let field = &mut supergraph.fields[field.0 as usize];
        if !field.subgraphs.iter().any(|there| there.subgraph == subgraph) {
            field
                .subgraphs
                .push(FieldInSubgraph { external: true, ..FieldInSubgraph::of(subgraph) });
        }
    }
}

fn collect_members(set: &FieldSet, subgraph: SubgraphId, into: &mut Vec<(FieldId, SubgraphId)>) {
    for item in &set.items {
        let fields = match item {
            FieldSetItem::Field { field, fields, .. } => {
                into.push((*field, subgraph));
                fields
            }
            FieldSetItem::Fragment { fields, .. } => fields,
        };
        collect_members(fields, subgraph, into);
    }
}
