//! Small integers that stand for types, fields and subgraphs inside one supergraph.
//! They mean nothing in another generation.

/// A type of the supergraph: index into [`crate::Supergraph::types`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TypeId(pub u32);

/// A field of one object or interface type: index into [`crate::Supergraph::fields`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FieldId(pub u32);

/// A subgraph: index into [`crate::Supergraph::subgraphs`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubgraphId(pub u16);
