//! The fields and types that a client may not use.

use std::collections::BTreeSet;

use crate::access::{AccessRules, RequirementSet};
use crate::ids::{FieldId, TypeId};
use crate::model::Supergraph;

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
