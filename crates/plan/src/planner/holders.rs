//! Holders: the subgraphs that have an object in hand, the wave in which they have it, and the fields that each can
//! resolve.

use graph::{FieldId, FieldSet, FieldSetItem, SubgraphId, SubgraphKind, Supergraph, TypeId};

use super::selection_tree::CollectedField;

/// A subgraph that has the object at a position.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Holder<'a> {
    pub(super) subgraph: SubgraphId,
    /// The number of consecutive requests until the subgraph has the object.
    pub(super) depth: u32,
    /// The type of the object in the subgraph, which may be narrower than the supergraph's.
    pub(super) ty: TypeId,
    /// The field sets that `@provides` adds to the fields that the subgraph resolves.
    pub(super) provides: Vec<FieldSetRef<'a>>,
    /// The `@requires` that the representation satisfied when the object was fetched.
    pub(super) met: Option<FieldSetRef<'a>>,
}

/// A field set of the supergraph, compared by its address: cheap, and exact enough for equality of states.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldSetRef<'a>(pub(super) &'a FieldSet);

impl PartialEq for FieldSetRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for FieldSetRef<'_> {}

impl std::hash::Hash for FieldSetRef<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self.0).hash(state);
    }
}

/// A candidate for a jump: the subgraph, and the fields that it requires in addition to a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct JumpCandidate<'a> {
    pub(super) subgraph: SubgraphId,
    pub(super) requires: Option<FieldSetRef<'a>>,
}

/// The ability of a subgraph to resolve a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Resolvability<'a> {
    No,
    /// For any object that the subgraph has.
    Yes,
    /// Only if the representation contains these fields.
    With(&'a FieldSet),
}

/// Returns the ability of `subgraph` to resolve `field`, without `@provides`.
pub(super) fn resolvability<'a>(
    graph: &'a Supergraph,
    field: FieldId,
    subgraph: SubgraphId,
) -> Resolvability<'a> {
    if !graph.field(field).resolved_by.contains(subgraph) {
        return Resolvability::No;
    }
    match graph.field_in(field, subgraph).and_then(|there| there.requires.as_ref()) {
        Some(requires) => Resolvability::With(requires),
        None => Resolvability::Yes,
    }
}

impl<'a> Holder<'a> {
    /// True if this holder can resolve `field`.
    pub(super) fn can_carry(&self, graph: &'a Supergraph, field: FieldId) -> bool {
        if self.provided(graph, field).next().is_some() {
            return true;
        }
        match resolvability(graph, field, self.subgraph) {
            Resolvability::No => false,
            Resolvability::Yes => true,
            Resolvability::With(requires) => self.met.is_some_and(|met| met.0 == requires),
        }
    }

    /// True if this holder can resolve a collected field; usually a test of one bit.
    pub(super) fn can_carry_collected(
        &self,
        graph: &'a Supergraph,
        wanted: &CollectedField,
    ) -> bool {
        if wanted.unconditional_resolvers.contains(self.subgraph) {
            return true;
        }
        (!self.provides.is_empty() || self.met.is_some())
            && wanted.field().is_some_and(|field| self.can_carry(graph, field))
    }

    /// Returns the field sets below `field` that `@provides` adds, one for each mention.
    fn provided<'s>(
        &'s self,
        graph: &'a Supergraph,
        field: FieldId,
    ) -> impl Iterator<Item = &'a FieldSet> + 's {
        let mut found = Vec::new();
        for set in &self.provides {
            provided_in(graph, set.0, field, &mut found);
        }
        found.into_iter()
    }

    /// Returns this holder for the object below `field`.
    pub(super) fn child(&self, graph: &'a Supergraph, field: FieldId) -> Self {
        let mut provides: Vec<_> = self.provided(graph, field).map(FieldSetRef).collect();
        provides.retain(|set| !set.0.items.is_empty());
        let there = graph.field_in(field, self.subgraph);
        provides.extend(there.and_then(|there| there.provides.as_ref()).map(FieldSetRef));
        Self {
            subgraph: self.subgraph,
            depth: self.depth,
            ty: graph.field_type_in(field, self.subgraph),
            provides,
            met: None,
        }
    }

    /// True if the subgraph does not know the type of the object, because it has an interface object.
    pub(super) fn is_untyped(&self, graph: &Supergraph) -> bool {
        graph.is_interface_object(self.ty, self.subgraph)
    }

    /// Returns the object types that the object can have in the subgraph.
    pub(super) fn possible(&self, graph: &'a Supergraph) -> &'a [TypeId] {
        graph.possible_in(self.ty, self.subgraph)
    }

    /// True if the object is the payload of an event or of a publication.
    pub(super) fn is_payload(&self, graph: &Supergraph) -> bool {
        graph.subgraph(self.subgraph).kind == SubgraphKind::Events
    }
}

/// Returns the object types that an object of type `ty` can have, as far as its holders know.
pub(super) fn possible_types(
    graph: &Supergraph,
    ty: TypeId,
    holders: &[Holder<'_>],
) -> Vec<TypeId> {
    let typed = holders.iter().filter(|holder| !holder.is_untyped(graph));
    let mut types: Vec<TypeId> = typed.flat_map(|holder| holder.possible(graph)).copied().collect();
    types.sort_unstable();
    types.dedup();
    // Other types are not members of the supergraph's type, so their objects do not occur here.
    types.retain(|member| graph.ty(ty).possible.contains(member));
    types
}

fn provided_in<'a>(
    graph: &'a Supergraph,
    set: &'a FieldSet,
    field: FieldId,
    found: &mut Vec<&'a FieldSet>,
) {
    let definition = graph.field(field);
    for item in &set.items {
        match item {
            FieldSetItem::Field { field: provided, fields, .. } => {
                // A set written on an interface provides the same field of its members.
                if *provided == field
                    || (graph.field(*provided).name == definition.name
                        && graph
                            .ty(graph.field(*provided).parent)
                            .possible
                            .contains(&definition.parent))
                {
                    found.push(fields);
                }
            }
            FieldSetItem::Fragment { on, fields } => {
                if *on == definition.parent || graph.ty(*on).possible.contains(&definition.parent) {
                    provided_in(graph, fields, field, found);
                }
            }
        }
    }
}
