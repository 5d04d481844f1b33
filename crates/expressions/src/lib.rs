//! Expressions of the configuration: conditions and computed values in CEL, the Common Expression Language
//! (`docs/expressions.md`).
//!
//! A [`Program`] is compiled once, when the configuration is loaded, for a [`Scope`]: the variables that exist at its
//! place. `parser` reads the text with the crate `cel`, `checker` infers types, refuses unknown names, and replaces
//! each variable by a numbered slot, so that a program knows the headers and claims it reads ([`References`]).
//! `evaluation` runs the interpreter of `cel` over [`RequestFacts`], borrowed values of which only those that the
//! program reads are converted.
//!
//! # Bounds
//! A text has at most [`TEXT_BYTES_MAX`] bytes and [`DEPTH_MAX`] levels. Only the macros `all`, `exists`, `exists_one`
//! and `filter` loop, and each of their steps counts against [`STEPS_MAX`]; `map` is refused. So values grow in one way
//! only: an operator or function takes values and makes a larger one. Functions are linear in their arguments
//! (`join` counts its result), and an intermediate value is used once, because the language has no variables of its
//! own. The size of every value is therefore at most the number of nodes of the program multiplied by the largest fact,
//! and facts are bounded by the limits on headers and tokens.
//!
//! Not in this crate: the keys of the configuration that are expressions (`config`), and the collection of facts.

mod checker;
mod claim_value;
mod error;
mod evaluation;
mod fact;
mod facts;
mod functions;
mod parser;
mod program;
mod scope;
mod value;

pub use checker::DEPTH_MAX;
pub use error::CompileError;
pub use facts::{
    ClaimFacts, ClientFacts, OperationFacts, OutcomeFacts, RequestFacts, ResponseFacts,
};
pub use program::{Expected, Program, References, TEXT_BYTES_MAX};
pub use scope::Scope;
pub use value::{EvaluationError, STEPS_MAX, Value};
