//! The definitions of one type or field in single subgraphs, as merging passes them around.

use crate::subgraph::model::{FieldDefinition, SubgraphModel, TypeDefinition};

/// The definition of a type in one subgraph.
#[derive(Clone, Copy)]
pub(super) struct TypeSource<'a> {
    pub(super) subgraph: &'a SubgraphModel,
    pub(super) ty: &'a TypeDefinition,
}

/// A field in one subgraph.
#[derive(Clone, Copy)]
pub(super) struct FieldSource<'a> {
    pub(super) subgraph: &'a SubgraphModel,
    /// The type that has the field there: an interface object if `is_abstract`.
    pub(super) parent: &'a TypeDefinition,
    pub(super) field: &'a FieldDefinition,
    /// True if the field comes from an interface object: its subgraph does not know the merged type.
    pub(super) is_abstract: bool,
}
