//! The memory budget: counts the memory that work takes, and refuses work before the system ends the process.
//!
//! [`MemoryAccount`] counts bytes by [`MemoryKind`]. A holder of memory has a [`MemoryCharge`], which releases its
//! bytes when it is dropped. Small pieces are not counted one by one, because counting would cost as much as the memory
//! ([`CHARGED_BYTES_MIN`]); each operation counts with the memory that a usual one takes ([`OPERATION_BYTES`]).
//!
//! All other memory (the graph, caches, connections, the free memory that the allocator keeps) is measured: the caller
//! passes the resident memory of the process once to ten times a second ([`MemoryAccount::measure`]). The uncounted
//! part reduces the memory for work:
//!
//! ```text
//! uncounted = resident − (counted − promised)
//! for work  = budget − uncounted, but at least an eighth of the budget
//! ```
//!
//! *Promised* bytes are counted before they are taken, such as a response of announced length, and so are not resident
//! yet. The eighth keeps a router alive if graph and caches alone need the budget: without it, all requests would be
//! refused for ever, because refusing requests does not make caches smaller.
//!
//! Memory that was released stays resident until the allocator returns it to the system. So a large body or response is
//! also refused if the resident memory could exceed the budget by it, unless the router needs most of the budget
//! itself. The resident memory is measured again before that is concluded.
//!
//! The last quarter of the memory for work is only for new operations of usual size. Large bodies and responses are
//! refused before it, so that the clients with small requests do not notice those with large ones.

mod account;
mod charge;
mod kind;
#[cfg(test)]
mod tests;

pub use account::{MemoryAccount, Meter};
pub use charge::MemoryCharge;
pub use kind::MemoryKind;

/// The memory of one operation in flight of usual size: the buffers of its connection, its task, its tree.
pub const OPERATION_BYTES: u64 = 32 << 10;

/// The minimum size of a body that is counted by itself. A smaller one is part of [`OPERATION_BYTES`].
pub const CHARGED_BYTES_MIN: usize = 32 << 10;

/// The work is refused because the memory budget is used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryUsedUp;
