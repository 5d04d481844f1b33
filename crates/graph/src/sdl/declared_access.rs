//! The requirements as the directives state them, and their combination for each place where a client selects
//! something.

use std::collections::{BTreeMap, BTreeSet};

use crate::access::{AccessRules, REQUIREMENTS_MAX, Requirement};
use crate::ids::{FieldId, TypeId};
use crate::model::{Supergraph, Type, TypeKind};

/// The requirements as the directives state them, before they are combined.
#[derive(Debug, Default)]
pub(super) struct DeclaredAccess {
    pub(super) requirements: Vec<Requirement>,
    pub(super) fields: BTreeMap<FieldId, Vec<u16>>,
    pub(super) types: BTreeMap<TypeId, Vec<u16>>,
}

impl DeclaredAccess {
    /// Returns the index of a requirement. `None` if there are too many.
    pub(super) fn index_of(&mut self, requirement: Requirement) -> Option<u16> {
        let known = self.requirements.iter().position(|known| *known == requirement);
        let index = known.unwrap_or(self.requirements.len());
        if index >= REQUIREMENTS_MAX {
            return None;
        }
        if known.is_none() {
            self.requirements.push(requirement);
        }
        u16::try_from(index).ok()
    }

    /// Combines the declared requirements for each place where a client can select something.
    pub(super) fn combine(self, graph: &Supergraph) -> AccessRules {
        if self.requirements.is_empty() {
            return AccessRules::default();
        }
        let stated = |ty: &TypeId| self.types.get(ty).map_or(&[][..], |it| it);
        let of_interfaces: BTreeMap<TypeId, Vec<u16>> = interfaces(graph)
            .map(|(ty, definition)| {
                let members: Vec<u16> =
                    definition.possible.iter().flat_map(stated).copied().collect();
                (ty, self.stated_only_by(stated(&ty), &members))
            })
            .collect();
        let of_type = |ty: &TypeId| of_interfaces.get(ty).map_or_else(|| stated(ty), Vec::as_slice);
        let roots = [Some(graph.query), graph.mutation, graph.subscription];
        let mut of_fields: BTreeMap<FieldId, Box<[u16]>> = BTreeMap::new();
        for (index, field) in graph.fields.iter().enumerate() {
            let id = FieldId(index as u32);
            let parent = graph.ty(field.parent);
            let same =
                parent.implements.iter().filter_map(|it| graph.field_named(*it, &field.name));
            let own = match parent.kind {
                TypeKind::Interface => self.of_interface_field(graph, id),
                _ => self.fields.get(&id).cloned().unwrap_or_default(),
            };
            let mut all: Vec<u16> = same
                .flat_map(|general| self.of_interface_field(graph, general))
                .chain(own)
                .chain(of_type(&field.ty.named()).iter().copied())
                .collect();
            if roots.contains(&Some(field.parent)) {
                all.extend(of_type(&field.parent));
            }
            insert_sorted(&mut of_fields, id, all);
        }
        let mut of_types: BTreeMap<TypeId, Box<[u16]>> = BTreeMap::new();
        for (index, definition) in graph.types.iter().enumerate() {
            let ty = TypeId(index as u32);
            // Each field of a root type has the requirements of the type, so that the others can be used.
            if definition.kind == TypeKind::Object && !roots.contains(&Some(ty)) {
                insert_sorted(&mut of_types, ty, of_type(&ty).to_vec());
            }
        }
        let mut within_types = BTreeMap::new();
        let mut within_interfaces = BTreeMap::new();
        for (index, definition) in graph.types.iter().enumerate() {
            let ty = TypeId(index as u32);
            if !definition.kind.is_abstract() {
                continue;
            }
            let members = definition.possible.iter().filter_map(|it| of_types.get(it));
            let members = members.flat_map(|it| it.iter().copied());
            insert_sorted(&mut within_types, ty, members.collect());
            for &general in &definition.fields {
                let name = &graph.field(general).name;
                let own = definition.possible.iter().filter_map(|it| graph.field_named(*it, name));
                let all = own.chain([general]).filter_map(|it| of_fields.get(&it));
                let all: Vec<u16> = all.flat_map(|it| it.iter().copied()).collect();
                insert_sorted(&mut within_interfaces, general, all);
            }
        }
        let mut stated_by_interfaces = BTreeMap::new();
        for (ty, stated) in of_interfaces {
            insert_sorted(&mut stated_by_interfaces, ty, stated);
        }
        AccessRules {
            requirements: self.requirements,
            of_fields,
            of_types,
            of_interfaces: stated_by_interfaces,
            within_interfaces,
            within_types,
        }
    }
}

impl DeclaredAccess {
    /// Returns the requirements that only the field of the interface states, and not its implementations.
    fn of_interface_field(&self, graph: &Supergraph, field: FieldId) -> Vec<u16> {
        let Some(stated) = self.fields.get(&field) else { return Vec::new() };
        let definition = graph.field(field);
        let members = graph.ty(definition.parent).possible.iter();
        let own = members.filter_map(|&member| graph.field_named(member, &definition.name));
        let own: Vec<u16> = own.filter_map(|it| self.fields.get(&it)).flatten().copied().collect();
        self.stated_only_by(stated, &own)
    }

    /// Returns the requirements of an interface that do not follow from those of its implementations. Some composition
    /// tools give an interface the requirements of all implementations together, for routers that do not decide by the
    /// type of the object.
    fn stated_only_by(&self, interface: &[u16], implementations: &[u16]) -> Vec<u16> {
        let all = |requirements: &[u16]| -> Vec<&Requirement> {
            requirements.iter().filter_map(|it| self.requirements.get(usize::from(*it))).collect()
        };
        let known = all(implementations);
        let follows = |stated: &u16| {
            all(&[*stated]).first().is_some_and(|stated| stated.follows_from(&known))
        };
        interface.iter().copied().filter(|stated| !follows(stated)).collect()
    }
}

impl Requirement {
    /// True if a client that meets all of `others` meets this requirement.
    fn follows_from(&self, others: &[&Self]) -> bool {
        /// The maximum number of combined alternatives. With more the answer is no, which restricts access further.
        const COMBINED_MAX: usize = 4096;
        if others.contains(&self) {
            return true;
        }
        let wanted = match self {
            Self::Authenticated => return false,
            Self::Scopes(sets) | Self::Policies(sets) => sets,
        };
        let mut combined: Vec<BTreeSet<&str>> = vec![BTreeSet::new()];
        for other in others {
            let sets = match (self, other) {
                (Self::Scopes(_), Self::Scopes(sets)) => sets,
                (Self::Policies(_), Self::Policies(sets)) => sets,
                _ => continue,
            };
            if combined.len() * sets.len() > COMBINED_MAX {
                return false;
            }
            combined = combined
                .iter()
                .flat_map(|known| {
                    sets.iter().map(move |set| {
                        let mut both = known.clone();
                        both.extend(set.iter().map(|name| &**name));
                        both
                    })
                })
                .collect();
        }
        let is_met = |held: &BTreeSet<&str>| {
            wanted.iter().any(|set| set.iter().all(|name| held.contains(&**name)))
        };
        combined.iter().all(is_met)
    }
}

/// Returns the interfaces of a supergraph.
fn interfaces(graph: &Supergraph) -> impl Iterator<Item = (TypeId, &Type)> {
    let types = graph.types.iter().enumerate().map(|(index, ty)| (TypeId(index as u32), ty));
    types.filter(|(_, ty)| ty.kind == TypeKind::Interface)
}

/// Inserts requirements in ascending order and without repetition, if there are any.
fn insert_sorted<K: Ord>(map: &mut BTreeMap<K, Box<[u16]>>, key: K, mut all: Vec<u16>) {
    all.sort_unstable();
    all.dedup();
    if !all.is_empty() {
        map.insert(key, all.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(sets: &[&[&str]]) -> Requirement {
        let names = |set: &&[&str]| set.iter().map(|name| Box::from(*name)).collect();
        Requirement::Scopes(sets.iter().map(names).collect())
    }

    #[test]
    fn a_requirement_follows_from_others_that_are_together_as_strict() {
        let (a, b) = (scopes(&[&["a"]]), scopes(&[&["b"], &["c"]]));
        assert!(scopes(&[&["a", "b"], &["a", "c"]]).follows_from(&[&a, &b]));
        assert!(scopes(&[&["a"], &["x"]]).follows_from(&[&a]));
        assert!(!scopes(&[&["a", "b"]]).follows_from(&[&a, &b]), "`a` and `c` suffice for both");
        assert!(!scopes(&[&["a"]]).follows_from(&[]));
        assert!(!Requirement::Authenticated.follows_from(&[&a]));
        assert!(Requirement::Authenticated.follows_from(&[&a, &Requirement::Authenticated]));
    }
}
