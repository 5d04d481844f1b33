//! Requirements that clients must meet to use fields and types: `@authenticated`, `@requiresScopes` and `@policy`
//! (Apollo Federation, authorization directives). Read from the supergraph by [`crate::sdl`]; which of them a client
//! meets is not known here.
//!
//! A requirement is identified by its index into [`AccessRules::requirements`], so that the requirements that a client
//! does not meet are a bit set.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::{FieldId, Supergraph, Type, TypeId, TypeKind};

/// The maximum number of distinct requirements in one supergraph. Each is a bit in the key of a plan.
pub const REQUIREMENTS_MAX: usize = 4096;

/// One distinct requirement of a supergraph.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Requirement {
    /// The client has a valid token: `@authenticated`.
    Authenticated,
    /// The token has all scopes of one of these sets: `@requiresScopes`.
    Scopes(Alternatives),
    /// All policies of one of these sets allow the request: `@policy`.
    Policies(Alternatives),
}

/// Sets of names, one of which must be met as a whole. No set means that no client meets the requirement.
pub type Alternatives = Box<[Box<[Box<str>]>]>;

/// Writes the directive that states the requirement.
impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (directive, sets) = match self {
            Self::Authenticated => return f.write_str("@authenticated"),
            Self::Scopes(sets) => ("@requiresScopes(scopes: ", sets),
            Self::Policies(sets) => ("@policy(policies: ", sets),
        };
        let list = |items: &mut dyn Iterator<Item = String>| {
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        };
        let mut sets = sets.iter().map(|names| list(&mut names.iter().map(|it| format!("{it:?}"))));
        write!(f, "{directive}{})", list(&mut sets))
    }
}

/// The requirements of one supergraph. Empty for a supergraph without authorization directives.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AccessRules {
    /// The distinct requirements, in the order of their first occurrence.
    pub requirements: Vec<Requirement>,
    /// The requirements of each field, sorted. They include those of the named type of the value, those of the type
    /// that has the field if that is a root type, and those that only interfaces of the type state.
    pub(crate) of_fields: BTreeMap<FieldId, Box<[u16]>>,
    /// The requirements of each object type for its objects at positions of an abstract type.
    pub(crate) of_types: BTreeMap<TypeId, Box<[u16]>>,
    /// The requirements that interfaces state and their implementations do not, by interface.
    pub(crate) of_interfaces: BTreeMap<TypeId, Box<[u16]>>,
    /// The requirements that may apply to a selection of an interface's field: those of the field itself, and of the
    /// field of each object type that implements the interface.
    pub(crate) within_interfaces: BTreeMap<FieldId, Box<[u16]>>,
    /// The requirements of all object types of an abstract type.
    pub(crate) within_types: BTreeMap<TypeId, Box<[u16]>>,
}

/// A set of requirements of one supergraph, by index.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct RequirementSet(Box<[u64]>);

impl RequirementSet {
    /// Adds the requirement with that index.
    pub fn insert(&mut self, requirement: u16) {
        let word = usize::from(requirement) / 64;
        if word >= self.0.len() {
            let mut words = std::mem::take(&mut self.0).into_vec();
            words.resize(word + 1, 0);
            self.0 = words.into();
        }
        self.0[word] |= 1 << (requirement % 64);
    }

    /// True if the set contains the requirement with that index.
    pub fn contains(&self, requirement: u16) -> bool {
        let word = self.0.get(usize::from(requirement) / 64);
        word.is_some_and(|word| word & (1 << (requirement % 64)) != 0)
    }

    /// True if the set is empty. A set never shrinks, so an empty one has no words.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the indices in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().enumerate().flat_map(|(at, &word)| {
            // There are at most `REQUIREMENTS_MAX` requirements, so the index fits.
            (0..64_u16)
                .filter(move |bit| word & (1 << bit) != 0)
                .map(move |bit| at as u16 * 64 + bit)
        })
    }
}

impl FromIterator<u16> for RequirementSet {
    fn from_iter<I: IntoIterator<Item = u16>>(requirements: I) -> Self {
        let mut set = Self::default();
        requirements.into_iter().for_each(|requirement| set.insert(requirement));
        set
    }
}

/// The fields and types of one supergraph that a client may not use.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeniedAccess {
    fields: BTreeSet<FieldId>,
    types: BTreeSet<TypeId>,
}

impl DeniedAccess {
    /// True if nothing is denied.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.types.is_empty()
    }

    /// True if the field is denied. A field of an interface is denied if it is denied for any of its object types.
    pub fn has_field(&self, field: FieldId) -> bool {
        self.fields.contains(&field)
    }

    /// True if objects of the type are denied at positions of an abstract type.
    pub fn has_type(&self, ty: TypeId) -> bool {
        self.types.contains(&ty)
    }

    /// True if objects of some object type of an abstract type are denied.
    pub fn has_type_within(&self, graph: &Supergraph, ty: TypeId) -> bool {
        !self.types.is_empty() && graph.ty(ty).possible.iter().any(|member| self.has_type(*member))
    }

    /// True if the field of an interface is denied for some of its object types and allowed for others.
    pub fn differs_within(&self, graph: &Supergraph, field: FieldId) -> bool {
        let definition = graph.field(field);
        let members = graph.ty(definition.parent).possible.iter();
        let mut own = members
            .filter_map(|&member| graph.field_named(member, &definition.name))
            .map(|own| self.has_field(own));
        let Some(first) = own.next() else { return false };
        own.any(|other| other != first)
    }
}

impl AccessRules {
    /// True if the supergraph has no requirements.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns the requirements that decide about a selection of that field: for a field of an interface also those of
    /// its object types.
    pub fn of_selection(&self, field: FieldId) -> &[u16] {
        let within = self.within_interfaces.get(&field);
        within.or_else(|| self.of_fields.get(&field)).map_or(&[], |it| it)
    }

    /// Returns the requirements that decide about objects at positions of that type.
    pub fn of_position(&self, ty: TypeId) -> &[u16] {
        self.within_types.get(&ty).map_or(&[], |it| it)
    }

    /// Returns the requirements of the type itself: of an object type at positions of an abstract type, and those that
    /// only the interface states.
    pub fn of_type(&self, ty: TypeId) -> &[u16] {
        let own = self.of_types.get(&ty).or_else(|| self.of_interfaces.get(&ty));
        own.map_or(&[], |it| it)
    }

    /// Returns all requirements of the supergraph.
    pub fn all(&self) -> RequirementSet {
        // There are at most `REQUIREMENTS_MAX` requirements, so the index fits.
        (0..self.requirements.len()).map(|index| index as u16).collect()
    }

    /// Returns the requirements of that field alone.
    pub fn of_field(&self, field: FieldId) -> &[u16] {
        self.of_fields.get(&field).map_or(&[], |it| it)
    }

    /// Returns the fields and types that a client may not use if it does not meet the requirements `unmet`.
    pub fn denied(&self, unmet: &RequirementSet) -> DeniedAccess {
        if unmet.is_empty() {
            return DeniedAccess::default();
        }
        let is_unmet = |requirements: &[u16]| requirements.iter().any(|it| unmet.contains(*it));
        let fields = self.of_fields.iter().chain(&self.within_interfaces);
        let types = self.of_types.iter();
        DeniedAccess {
            fields: fields.filter(|(_, it)| is_unmet(it)).map(|(field, _)| *field).collect(),
            types: types.filter(|(_, it)| is_unmet(it)).map(|(ty, _)| *ty).collect(),
        }
    }
}

/// The requirements as the directives state them, before they are combined.
#[derive(Debug, Default)]
pub(crate) struct DeclaredAccess {
    pub(crate) requirements: Vec<Requirement>,
    pub(crate) fields: BTreeMap<FieldId, Vec<u16>>,
    pub(crate) types: BTreeMap<TypeId, Vec<u16>>,
}

impl DeclaredAccess {
    /// Returns the index of a requirement. `None` if there are too many.
    pub(crate) fn index_of(&mut self, requirement: Requirement) -> Option<u16> {
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
    pub(crate) fn combine(self, graph: &Supergraph) -> AccessRules {
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

    #[test]
    fn a_set_contains_what_was_inserted_in_any_order() {
        let set: RequirementSet = [200, 3, 64, 3].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [3, 64, 200]);
        assert!(set.contains(64) && !set.contains(65) && !set.contains(4000));
        assert!(!set.is_empty() && RequirementSet::default().is_empty());
        assert_eq!(set, [3, 64, 200].into_iter().collect());
    }

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
