//! Indexes for merging: the definitions of each type, the subtypes of the merged graph, and the fields
//! with a use in each subgraph. They keep merging linear in the size of the schemas.

use std::collections::{HashMap, HashSet};

use apollo_compiler::Name;
use indexmap::IndexMap;

use super::{
    composed_directives::ComposedDirectives, overrides::OverridePlan, sources::TypeSource,
};
use crate::subgraph::{
    model::SubgraphModel,
    usage::{self, UsedFields},
};

/// The indexes of merging.
pub(super) struct MergeContext<'a> {
    pub(super) subgraphs: &'a [SubgraphModel],
    pub(super) sources: IndexMap<&'a Name, Vec<TypeSource<'a>>>,
    pub(super) overrides: OverridePlan,
    pub(super) composed: ComposedDirectives,
    /// The fields that field sets name or that implement interfaces, for each subgraph with overridden fields.
    used: HashMap<usize, UsedFields>,
    /// The interfaces and unions of each type, in all subgraphs together.
    supertypes: HashMap<Name, HashSet<Name>>,
    /// The interface objects of each interface.
    pub(super) interface_objects: HashMap<Name, Vec<TypeSource<'a>>>,
}

impl<'a> MergeContext<'a> {
    pub(super) fn new(
        subgraphs: &'a [SubgraphModel],
        overrides: OverridePlan,
        composed: ComposedDirectives,
    ) -> Self {
        let mut sources: IndexMap<&Name, Vec<TypeSource<'_>>> = IndexMap::new();
        let mut supertypes: HashMap<Name, HashSet<Name>> = HashMap::new();
        let mut interface_objects: HashMap<Name, Vec<TypeSource<'_>>> = HashMap::new();
        for subgraph in subgraphs {
            for ty in subgraph.types.values() {
                let source = TypeSource { subgraph, ty };
                sources.entry(&ty.name).or_default().push(source);
                if ty.is_interface_object {
                    interface_objects.entry(ty.name.clone()).or_default().push(source);
                }
                let own = ty.implements.iter().map(|it| (&ty.name, it));
                let members = ty.members.iter().map(|it| (it, &ty.name));
                for (sub, sup) in own.chain(members) {
                    supertypes.entry(sub.clone()).or_default().insert(sup.clone());
                }
            }
        }
        let mut used: HashMap<usize, UsedFields> = HashMap::new();
        for id in overrides.subgraphs_with_overridden_fields() {
            let mut fields = usage::named_in_field_sets(&subgraphs[id]);
            fields.extend(usage::implementing_fields(&subgraphs[id]));
            used.insert(id, fields);
        }
        Self { subgraphs, sources, overrides, composed, used, supertypes, interface_objects }
    }

    /// True if a value of type `sub` is a value of the interface or union `sup`.
    pub(super) fn is_subtype(&self, sub: &Name, sup: &Name) -> bool {
        self.supertypes.get(sub).is_some_and(|it| it.contains(sup))
    }

    /// Returns the interfaces and unions of a type.
    pub(super) fn supertypes(&self, name: &Name) -> impl Iterator<Item = &Name> {
        self.supertypes.get(name).into_iter().flatten()
    }

    /// True if an overridden field has a use in its subgraph.
    pub(super) fn is_used(&self, subgraph: usize, ty: &Name, field: &Name) -> bool {
        self.used.get(&subgraph).is_some_and(|it| it.contains(&(ty.clone(), field.clone())))
    }

    /// Returns the interface objects that add fields to the object type `name`: those of its interfaces, in subgraphs
    /// that do not have the type itself.
    pub(super) fn interface_objects_of(&self, name: &Name) -> Vec<TypeSource<'a>> {
        let has_type = |id: usize| self.subgraphs[id].types.contains_key(name);
        let mut found: Vec<TypeSource<'a>> = Vec::new();
        for interface in self.supertypes(name) {
            let objects = self.interface_objects.get(interface).into_iter().flatten();
            found.extend(objects.filter(|source| !has_type(source.subgraph.id)));
        }
        found.sort_by(|a, b| (a.subgraph.id, &a.ty.name).cmp(&(b.subgraph.id, &b.ty.name)));
        found
    }
}
