//! Verification of client tokens: signed ones (JWT, RFC 7519) by the keys of their issuers, opaque ones by the
//! responses of the identity provider (token introspection, RFC 7662).
//!
//! Invariant: this crate has no sockets, threads or clocks. Key sets, responses and the time go in, claims or a reason
//! for refusal come out. [`RefreshSchedule`] determines when the caller fetches key sets. The place of the token in a
//! request is up to the caller.

mod introspection;
mod keys;
mod schedule;
mod token_identity;
mod verifier;

pub use introspection::{
    IntrospectedTokens, IntrospectionRules, ResponseDefect, is_json_web_token, is_printable,
};
pub use jsonwebtoken::Algorithm;
pub use keys::{KeyError, KeySet};
pub use schedule::RefreshSchedule;
pub use token_identity::{Fingerprint, SubjectFingerprint, TokenHash, TokenIdentity};
pub use verifier::{Issuer, IssuerId, Rejection, TokenUse, VerifiedToken, Verifier, hash_token};
