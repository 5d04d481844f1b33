//! Positions with a holder that has an interface object (`@interfaceObject`): the holder resolves fields of the
//! interface, but does not know the type of the object. If the type matters, a subgraph that knows it is added.

use std::rc::Rc;

use graph::{SubgraphId, SubgraphSet, Supergraph, TypeId, TypeKind};

use super::{
    holders::Holder,
    selection_tree::{
        self, CollectedField, CollectedFields, CollectedTarget, FieldArguments, GuardedSets,
    },
    solution::{FieldChoice, Solution, SolutionKind},
    solver::Solver,
};

impl<'a> Solver<'a> {
    /// Implements [`Solver::solve_position`] for abstract types if some holder does not know the type.
    pub(super) fn solve_untyped_position(
        &mut self,
        parts: &GuardedSets,
        ty: TypeId,
        holders: &[Holder<'a>],
    ) -> Option<Solution> {
        let graph = self.graph();
        let interface = holders.iter().find(|holder| holder.is_untyped(graph))?.ty;
        // Holders with another type have other fields; each of them alone is tried as well.
        if holders.iter().any(|holder| holder.ty != interface) {
            return None;
        }
        let in_fragments = selection_tree::keys_in_fragments(parts, interface);
        let mut is_typed = selection_tree::depends_on_type(graph, self.denied(), parts, interface);
        let mut wanted =
            self.interface_fields_in_fragments(parts, interface, &in_fragments, holders);
        // A selection on the interface is fetched for objects of every type.
        let is_denied_within = self.denied().has_type_within(graph, interface);
        for field in &self.collect(parts, interface).fields {
            if field.field().is_none()
                || is_denied_within
                || field.key.as_deref().is_some_and(|key| in_fragments.contains(&key))
            {
                continue;
            }
            let alone = CollectedFields::new(interface, vec![field.clone()]);
            match self.solve_object(&alone, holders) {
                Some(_) => wanted.push(field.clone()),
                // The field may be available once the type of the object is known.
                None => is_typed = true,
            }
        }
        if !is_typed {
            let common = self.solve_object(&CollectedFields::new(interface, wanted), holders)?;
            let cost = common.cost;
            let kind = SolutionKind::Abstract {
                common: Some(common),
                members: Vec::new(),
                untyped: Some(interface),
            };
            return Some(Solution { cost, kind });
        }
        wanted.push(Rc::new(CollectedField {
            key: None,
            target: CollectedTarget::Typename,
            arguments: Rc::new(FieldArguments::default()),
            any_of: Vec::new(),
            occurrences: Vec::new(),
            parts: GuardedSets::default(),
            unconditional_resolvers: SubgraphSet::EMPTY,
        }));
        let Some(common) = self.solve_object(&CollectedFields::new(interface, wanted), holders)
        else {
            self.record_reason(|graph| explain_unknown_type(graph, interface, holders));
            return None;
        };
        let mut all = holders.to_vec();
        all.extend(common.jumps.iter().map(|jump| Holder {
            subgraph: jump.subgraph,
            depth: jump.depth,
            ty: interface,
            provides: Vec::new(),
            met: None,
        }));
        self.solve_members(parts, ty, &all, Some(common))
    }

    /// Returns the holder that selects the `__typename` of an object of an interface; `Some(None)` for other
    /// selections. `None` if no holder knows the type.
    pub(super) fn choose_type_carrier(
        &self,
        wanted: &Rc<CollectedField>,
        ty: TypeId,
        holders: &[Holder<'_>],
    ) -> Option<Option<FieldChoice>> {
        if wanted.target != CollectedTarget::Typename || !self.graph.ty(ty).kind.is_abstract() {
            return Some(None);
        }
        let typed = (0..holders.len()).filter(|&index| !holders[index].is_untyped(self.graph));
        let first = typed.min_by_key(|&index| holders[index].depth)?;
        Some(Some(FieldChoice { wanted: wanted.clone(), carriers: first.into(), child: None }))
    }
}

impl<'a> Solver<'a> {
    /// Returns fields of fragments that the holders resolve anyway, selected on the interface instead: they are fetched
    /// for every object and read from those to which the fragments apply. A field qualifies only if no two fragments
    /// use its key with different meanings, and if it is nullable, so that a failure does not affect other fields.
    fn interface_fields_in_fragments(
        &mut self,
        parts: &GuardedSets,
        interface: TypeId,
        in_fragments: &[&str],
        holders: &[Holder<'a>],
    ) -> Vec<Rc<CollectedField>> {
        let graph = self.graph();
        let mut found: Vec<(Rc<CollectedField>, bool)> = Vec::new();
        for &member in &graph.ty(interface).possible {
            for wanted in &self.collect(parts, member).fields {
                let is_inside =
                    wanted.key.as_deref().is_some_and(|key| in_fragments.contains(&key));
                if !is_inside {
                    continue;
                }
                match found.iter_mut().find(|(known, _)| known.key == wanted.key) {
                    Some((known, is_alike)) => *is_alike &= is_alike_in(graph, known, wanted),
                    None => found.push((wanted.clone(), true)),
                }
            }
        }
        let mut alike = Vec::new();
        for (wanted, is_alike) in found {
            let name = wanted.field().map(|field| &graph.field(field).name);
            let Some(own) = name.and_then(|name| graph.field_named(interface, name)) else {
                continue;
            };
            if self.denied().has_field(own) || self.denied().has_type_within(graph, interface) {
                continue;
            }
            let mut carriers =
                holders.iter().filter(|holder| holder.can_carry(graph, own)).peekable();
            let is_nullable = |holder: &Holder<'_>| {
                let there =
                    graph.field_in(own, holder.subgraph).and_then(|there| there.ty.as_ref());
                there.unwrap_or(&graph.field(own).ty).nullable
            };
            if !is_alike || carriers.peek().is_none() || !carriers.all(is_nullable) {
                continue;
            }
            let unconditional_resolvers = selection_tree::unconditional_resolvers(graph, own);
            let target = CollectedTarget::Field(own);
            let wanted =
                Rc::new(CollectedField { target, unconditional_resolvers, ..(*wanted).clone() });
            let alone = CollectedFields::new(interface, vec![wanted.clone()]);
            if self.solve_object(&alone, holders).is_some_and(|solution| solution.jumps.is_empty())
            {
                alike.push(wanted);
            }
        }
        alike
    }
}

fn is_alike_in(graph: &Supergraph, a: &CollectedField, b: &CollectedField) -> bool {
    let name = |wanted: &CollectedField| wanted.field().map(|field| &graph.field(field).name);
    name(a) == name(b)
        && a.arguments == b.arguments
        && a.any_of == b.any_of
        && a.parts.id() == b.parts.id()
}

/// Returns the subgraphs that know the types of objects of an interface.
pub(super) fn typed_subgraphs(graph: &Supergraph, ty: TypeId) -> impl Iterator<Item = SubgraphId> {
    let there = &graph.ty(ty).subgraphs;
    let is_interface = graph.ty(ty).kind == TypeKind::Interface;
    there
        .iter()
        .filter(move |there| is_interface && !there.interface_object)
        .map(|there| there.subgraph)
}

fn explain_unknown_type(graph: &Supergraph, interface: TypeId, holders: &[Holder<'_>]) -> String {
    let name = &graph.ty(interface).name;
    let here: Vec<&str> =
        holders.iter().map(|holder| &*graph.subgraph(holder.subgraph).name).collect();
    let reasons: Vec<String> = typed_subgraphs(graph, interface)
        .map(|subgraph| {
            let subgraph_name = &graph.subgraph(subgraph).name;
            match graph.keys_into(interface, subgraph).next() {
                None => format!("`{subgraph_name}` has no resolvable @key on the interface"),
                Some(_) => {
                    format!("a key of `{name}` for `{subgraph_name}` is not available there")
                }
            }
        })
        .collect();
    let reasons = match reasons.is_empty() {
        true => "no subgraph has it as an interface".to_owned(),
        false => reasons.join("; "),
    };
    format!(
        "the type of a `{name}` from {}, where it is an @interfaceObject, cannot be determined: {reasons}",
        here.join(", ")
    )
}
