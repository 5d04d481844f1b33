//! Progressive `@override(label:)`: a field moves from one subgraph to another for requests whose labels are on. The
//! meaning of a label, and the decision whether it is on, are not known here.

use crate::{FieldId, SubgraphId, SubgraphSet, Supergraph, TypeKind};

/// The maximum number of distinct labels in one supergraph: each is a bit in the key of a plan.
pub const OVERRIDE_LABELS_MAX: usize = 64;

/// A set of labels of one supergraph: bit n represents entry n of [`Supergraph::override_labels`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct OverrideLabels(u64);

impl OverrideLabels {
    /// The empty set: no label is on.
    pub const NONE: Self = Self(0);

    /// Turns on the label with that index, which is below [`OVERRIDE_LABELS_MAX`].
    pub fn insert(&mut self, label: usize) {
        self.0 |= 1 << (label % OVERRIDE_LABELS_MAX);
    }

    /// True if the label with that index is on.
    pub fn contains(self, label: usize) -> bool {
        label < OVERRIDE_LABELS_MAX && self.0 & (1 << label) != 0
    }

    /// Returns the labels that are on in both sets.
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the labels that are on in either set.
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if no label is on.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the set as bits.
    pub fn bits(self) -> u64 {
        self.0
    }
}

impl Supergraph {
    /// Returns the supergraph as it is while exactly `labels` are on. Ids do not change. A supergraph as read has no
    /// label on.
    pub fn with_override_labels(&self, labels: OverrideLabels) -> Self {
        let mut there = self.clone();
        there.resolve(labels);
        there
    }

    /// Computes [`crate::Field::resolved_by`] of all fields from their declared resolvers and `labels`.
    pub(crate) fn resolve(&mut self, labels: OverrideLabels) {
        for field in &mut self.fields {
            field.resolved_by = field.declared_by;
            for moving in &field.progressive {
                let is_on = labels.contains(usize::from(moving.label));
                field.resolved_by.remove(if is_on { moving.from } else { moving.to });
            }
        }
        self.add_interface_object_resolvers();
        for index in 0..self.types.len() {
            if self.types[index].kind != TypeKind::Interface {
                continue;
            }
            for field in self.types[index].fields.clone() {
                let resolved_by = self.certain_resolvers(field);
                self.fields[field.0 as usize].resolved_by = resolved_by;
            }
        }
    }

    /// Adds the resolvers of interface objects: a field that an interface object resolves is resolved for every
    /// implementation.
    fn add_interface_object_resolvers(&mut self) {
        for index in 0..self.types.len() {
            for (subgraph, interface) in self.types[index].interface_objects.clone() {
                for &own in &self.types[index].fields {
                    let name = &self.fields[own.0 as usize].name;
                    let general = self.field_named(interface, name);
                    if general.is_some_and(|it| self.field(it).resolved_by.contains(subgraph)) {
                        self.fields[own.0 as usize].resolved_by.insert(subgraph);
                    }
                }
            }
        }
    }

    /// Returns the subgraphs that certainly resolve an interface field: those that resolve it for every object type
    /// that they can return, without more than a key.
    fn certain_resolvers(&self, field: FieldId) -> SubgraphSet {
        let definition = self.field(field);
        let is_sure = |subgraph: &SubgraphId| {
            self.is_interface_object(definition.parent, *subgraph)
                || self.possible_in(definition.parent, *subgraph).iter().all(|&member| {
                    self.field_named(member, &definition.name).is_some_and(|own| {
                        let there = self.field_in(own, *subgraph);
                        self.field(own).resolved_by.contains(*subgraph)
                            && there.is_none_or(|there| there.requires.is_none())
                    })
                })
        };
        definition.resolved_by.iter().filter(is_sure).collect()
    }
}
