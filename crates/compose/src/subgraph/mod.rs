//! One subgraph as plain data: its types with all extensions applied, names of federation directives resolved, roots
//! renamed to `Query`, `Mutation` and `Subscription`.

pub(crate) mod field_sets;
pub(crate) mod model;
pub(crate) mod reading;
pub(crate) mod usage;
