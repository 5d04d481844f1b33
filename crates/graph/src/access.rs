//! Requirements that clients must meet to use fields and types: `@authenticated`, `@requiresScopes` and `@policy`
//! (Apollo Federation, authorization directives). `sdl::declared_access` reads them from the supergraph; which of them
//! a client meets is not known here.
//!
//! A requirement is identified by its index into [`AccessRules::requirements`], so that the requirements that a client
//! does not meet are a bit set.

use std::collections::BTreeMap;
use std::fmt;

use crate::ids::{FieldId, TypeId};

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
}
