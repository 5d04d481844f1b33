//! The identity of an object of made-up data.

/// The identity of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::subgraph) struct Identity {
    pub(super) seed: u64,
    pub(super) number: u64,
}
