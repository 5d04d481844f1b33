//! Tokens of clients (JWT, RFC 7519): which keys verify them, what is checked, and what they say.
//!
//! Invariant: no sockets, threads or clocks. Key sets and the time go in, claims or a reason for refusal come out; who
//! fetches key sets is told when by [`Schedule`]. Where in a request a token stands is the caller's business.

mod keys;
mod schedule;
mod verifier;

pub use jsonwebtoken::Algorithm;
pub use keys::{KeyError, KeySet};
pub use schedule::Schedule;
pub use verifier::{Issuer, IssuerId, Rejection, Verified, Verifier};
