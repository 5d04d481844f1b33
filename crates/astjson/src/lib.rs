//! JSON text as a flat tree of nodes: parse once, merge trees, print once.
//!
//! A [`Document`] is an arena. Every text is parsed once into 16-byte nodes that point into it.
//! Further texts go into the same arena; merging, selecting, nulling and moving work on nodes. A
//! text is read again only when the result is printed. Numbers and strings are printed exactly as
//! they were written. A warm document works without allocating.
//! ```
//! use astjson::Document;
//!
//! let mut doc = Document::new();
//! let user = doc.parse(r#"{"id":"7","name":"Ada"}"#)?;
//! let more = doc.parse(r#"{"reviews":[{"stars":5.0}]}"#)?;
//! doc.merge(user, more)?;
//!
//! let mut out = Vec::new();
//! doc.print(user, &mut out);
//! assert_eq!(out, br#"{"id":"7","name":"Ada","reviews":[{"stars":5.0}]}"#);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! This crate knows nothing of GraphQL and does no I/O.

mod alternatives;
mod document;
mod edit;
mod emitter;
mod error;
mod generic_parser;
mod key_index;
mod limits;
mod lookahead;
mod merge;
mod merge_small;
mod node;
mod object_parser;
mod outline;
mod parse;
mod parsed_text;
mod parser_state;
mod pending;
mod predicted_object;
mod print;
mod print_pretty;
mod read;
mod scan;
mod shape;
mod shaped_parser;
mod sink;
mod skip;
mod small_parser;
mod string;
mod text;
mod token;
mod unknown_keys;
mod validating_parser;
mod writer;

pub use document::Document;
pub use error::{MergeError, ParseError, ParseErrorKind};
pub use limits::{DEPTH_LIMIT_DEFAULT, WALK_DEPTH_MAX};
pub use node::{Kind, NodeId};
pub use outline::{outline_elements, outline_members};
pub use parsed_text::ParsedText;
pub use read::{Elements, Members, PathSegment, Slots};
pub use shape::{
    LinkedObject, ObjectSpec, Others, SHAPE_DEPTH_MAX, SHAPE_KEYS_MAX, Shape, ShapeSpec,
};
pub use sink::Sink;
pub use string::print_string;

/// Runs the examples of the README as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
