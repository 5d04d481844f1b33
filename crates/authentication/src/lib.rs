//! Verification of client tokens (JWT, RFC 7519): the keys, the checks, and the claims.
//!
//! Invariant: this crate has no sockets, threads or clocks. Key sets and the time go in, claims or a reason for refusal
//! come out. [`RefreshSchedule`] determines when the caller fetches key sets. The place of the token in a request is up to the
//! caller.

mod keys;
mod schedule;
mod verifier;

pub use jsonwebtoken::Algorithm;
pub use keys::{KeyError, KeySet};
pub use schedule::RefreshSchedule;
pub use verifier::{Issuer, IssuerId, Rejection, VerifiedToken, Verifier};
