//! JSON text as a flat tree of nodes: parse once, merge trees, print once.
//!
//! A [`Document`] is an arena. Every text is parsed once into 16-byte nodes that point into it;
//! further texts go into the same arena; merging, selecting, nulling and moving work on nodes;
//! text is touched again only when the result is printed. Numbers and strings come out exactly
//! as they went in. A warm document works without allocating.
//!
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

mod careful;
mod document;
mod edit;
mod emitter;
mod error;
mod follow;
mod general;
mod key_index;
mod members;
mod merge;
mod merge_few;
mod node;
mod others;
mod outline;
mod parse;
mod parser;
mod print;
mod print_pretty;
mod read;
mod scan;
mod shape;
mod shaped;
mod skip;
mod small;
mod string;
mod text;
mod token;
mod type_name;
mod window;
mod writer;

pub use document::{DEPTH_LIMIT_DEFAULT, Document, WALK_DEPTH_MAX};
pub use error::{MergeError, ParseError, ParseErrorKind};
pub use node::{Kind, NodeId};
pub use outline::{outline_elements, outline_members};
pub use print::Sink;
pub use read::{Elements, Members, PathSegment, Slots};
pub use shape::{
    LinkedObject, ObjectSpec, Others, SHAPE_DEPTH_MAX, SHAPE_KEYS_MAX, Shape, ShapeSpec,
};
pub use string::print_string;

/// The examples of the README are tests too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
