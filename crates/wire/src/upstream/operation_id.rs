//! The ids of operations on a connection.

use std::fmt;

/// The id of an operation on its connection. Ids are counted up and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId(pub u64);

impl OperationId {
    /// Reads an id as this side writes it: `01` and `+1` are other ids.
    pub(super) fn parse(text: &str) -> Option<OperationId> {
        let is_ours = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        text.parse().ok().filter(|_| is_ours).map(OperationId)
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
