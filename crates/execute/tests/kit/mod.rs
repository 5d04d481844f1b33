//! What the tests share: plans from short notation, subgraphs in memory.

pub mod notation;
pub mod subgraphs;
