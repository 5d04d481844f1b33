//! Small integers that identify types, fields and subgraphs within one supergraph. They have no meaning in another
//! generation.

/// The identity of a type of the supergraph: an index into [`crate::Supergraph::types`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TypeId(pub u32);

/// The identity of a field of one object or interface type: an index into [`crate::Supergraph::fields`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FieldId(pub u32);

/// The identity of a subgraph: an index into [`crate::Supergraph::subgraphs`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubgraphId(pub u16);
