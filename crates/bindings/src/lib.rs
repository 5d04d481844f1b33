//! Bindings of root fields to topics: the directives of event subgraphs, compiled when a graph is loaded.
//!
//! [`Bindings`] reads the directives of a supergraph. For a subscription it renders the [`Source`] that the hub listens
//! to, the [`Filter`] that selects its events and the [`PayloadMapping`] that turns an event into the value of the root
//! field, and it checks `authorize`. [`EventPublisher`] sends the messages of fields that publish events or send
//! requests.
//!
//! Invariant: this crate knows nothing of subscribers and streams. It compiles, renders and evaluates; the crate `hub`
//! opens the sources and delivers their events.
//!
//! | module | contents |
//! |---|---|
//! | `directive` | the table of directives with their arguments |
//! | `bindings` | all bindings of a supergraph; it puts the other modules together |
//! | `topics`, `template` | provider and topics, with placeholders for arguments and claims |
//! | `start`, `source` | the start of a stream, and the source that the hub opens |
//! | `filter`, `authorization`, `expression` | conditions on events and on claims, and the tree that both share |
//! | `payload_mapping` | from an event to the value of the root field |
//! | `invalidation` | the topics whose events make cached values stale |
//! | `message`, `publisher` | the messages that fields send |
//!
//! A new directive is a row of `directive`, and its role in `graph::event_role`, by which the reader of a supergraph
//! checks that it is on the right root field. A new argument is a name in that row, and a module here that reads it
//! when a graph is loaded. Initial states (`initial:`) are read by `graph::initial`.

mod authorization;
mod bindings;
mod directive;
mod expression;
mod filter;
mod instant;
mod invalidation;
mod message;
mod payload_mapping;
mod publisher;
mod source;
mod start;
mod template;
mod topics;
mod trace_context;

pub use bindings::{BindingError, Bindings, BoundTopic};
pub use filter::index::{FilterIndex, IndexWalk};
pub use filter::{Filter, FilteredEvent};
pub use invalidation::InvalidatingTopic;
pub use payload_mapping::PayloadMapping;
pub use publisher::EventPublisher;
pub use source::{Source, StateSource};
pub use trace_context::{read_event_trace, with_event_trace_context};
