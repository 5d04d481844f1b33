//! Content codings of HTTP (RFC 9110, section 8.4.1): negotiation, compression of whole bodies, bounded expansion of
//! them; and the coding of single WebSocket messages (permessage-deflate).
//!
//! Invariant: bytes in, bytes out. The crate knows no HTTP library, no sockets and no threads; callers move large
//! bodies to a thread that may block.
//!
//! The feature `zstd` adds the coding of that name. Without it, `zstd` is a name like any other unknown one.

mod coding;
mod compress;
mod expand;
mod message;
mod negotiate;
#[cfg(feature = "zstd")]
mod zstd_format;

pub use coding::Coding;
pub use compress::compress;
pub use expand::{ExpandError, expand};
pub use message::{STORED_HEAD_BYTES, append_stored, deflate_message, inflate_message};
pub use negotiate::{Preference, negotiate};
