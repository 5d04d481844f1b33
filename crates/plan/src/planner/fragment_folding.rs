//! Folding of fragments. Selections are computed by object type; a selection that all object types of an interface
//! share is written once, on the interface, as in operations written by people.

use std::{cmp::Reverse, fmt::Write as _};

use graph::{FieldId, SubgraphId, Supergraph, TypeId, TypeKind};

use super::fetch_graph::SelectedField;

/// A selected field and its text.
#[derive(Clone, Debug)]
pub(super) struct FieldText {
    field: FieldId,
    has_arguments: bool,
    pub(super) text: String,
}

impl FieldText {
    pub(super) fn of(entry: &SelectedField, text: String) -> Self {
        let has_arguments = !entry.arguments.text.is_empty() || !entry.context.is_empty();
        Self { field: entry.field, has_arguments, text }
    }
}

/// Moves selections that are valid on interfaces out of `fragments` on `ty`, and writes them: first on `ty` itself,
/// then on interfaces that some of its object types share.
pub(super) fn fold_fragments(
    graph: &Supergraph,
    subgraph: SubgraphId,
    ty: TypeId,
    fragments: &mut [(TypeId, Vec<FieldText>)],
    out: &mut String,
) {
    for (interface, members) in interfaces_of(graph, subgraph, ty, fragments) {
        let is_alike = |line: &FieldText| is_alike(graph, subgraph, interface, line);
        let Some((_, candidates)) = fragments.iter().find(|(on, _)| members.contains(on)) else {
            continue;
        };
        let mut folded = Vec::new();
        for candidate in candidates.iter().filter(|line| is_alike(line)) {
            let is_everywhere = members.iter().all(|member| {
                let of_member = fragments.iter().filter(|(on, _)| on == member);
                of_member
                    .flat_map(|(_, lines)| lines)
                    .any(|line| line.text == candidate.text && is_alike(line))
            });
            if is_everywhere {
                folded.push(candidate.text.clone());
            }
        }
        if folded.is_empty() {
            continue;
        }
        for (_, lines) in fragments.iter_mut().filter(|(on, _)| members.contains(on)) {
            lines.retain(|line| !folded.contains(&line.text));
        }
        push_separator(out);
        match interface == ty {
            true => out.push_str(&folded.join(" ")),
            false => {
                let name = &graph.ty(interface).name;
                let _ = write!(out, "...on {name}{{{}}}", folded.join(" "));
            }
        }
    }
}

/// Returns the interfaces whose object types all have fragments here, with these object types; `ty` first, then those
/// with the most types. Interfaces of a single type save nothing and are left out.
fn interfaces_of(
    graph: &Supergraph,
    subgraph: SubgraphId,
    ty: TypeId,
    fragments: &[(TypeId, Vec<FieldText>)],
) -> Vec<(TypeId, Vec<TypeId>)> {
    let possible = graph.possible_in(ty, subgraph);
    let have_fragment =
        |members: &[TypeId]| members.iter().all(|it| fragments.iter().any(|(on, _)| on == it));
    let mut interfaces: Vec<TypeId> =
        fragments.iter().flat_map(|(on, _)| &graph.ty(*on).implements).copied().collect();
    interfaces.sort_unstable();
    interfaces.dedup();
    let mut found: Vec<(TypeId, Vec<TypeId>)> = Vec::new();
    for interface in interfaces.into_iter().filter(|&interface| interface != ty) {
        let there = graph.possible_in(interface, subgraph);
        let members: Vec<TypeId> =
            possible.iter().copied().filter(|member| there.contains(member)).collect();
        if members.len() > 1 && have_fragment(&members) {
            found.push((interface, members));
        }
    }
    found.sort_by_key(|(interface, members)| (Reverse(members.len()), *interface));
    if graph.ty(ty).kind == TypeKind::Interface && !possible.is_empty() && have_fragment(possible) {
        found.insert(0, (ty, possible.to_vec()));
    }
    found
}

/// True if a selection of an object type's field is also valid on `interface`.
fn is_alike(graph: &Supergraph, subgraph: SubgraphId, interface: TypeId, line: &FieldText) -> bool {
    let own = graph.field(line.field);
    graph.field_named(interface, &own.name).is_some_and(|general| {
        let arguments = &graph.field(general).arguments;
        let knows = |name: &str| arguments.iter().any(|argument| *argument.name == *name);
        graph.field_in(general, subgraph).is_some()
            && graph.field_type_in(general, subgraph) == graph.field_type_in(line.field, subgraph)
            && (!line.has_arguments || own.arguments.iter().all(|argument| knows(&argument.name)))
    })
}

/// Adds a space between two selections.
pub(super) fn push_separator(out: &mut String) {
    if !out.is_empty() && !out.ends_with(['{', ' ']) {
        out.push(' ');
    }
}
