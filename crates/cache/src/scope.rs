//! The clients that may get a stored response.

/// The clients that may get a stored response.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Scope {
    /// Every client with the same key.
    #[default]
    Public,
    /// Only the client of the request: the same partition.
    Private,
}
