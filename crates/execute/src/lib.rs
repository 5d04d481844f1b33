//! A plan and variables become a payload: fetch, merge, repair nulls, print.
//!
//! Invariant: this crate knows nothing of transports. It reaches subgraphs through [`Subgraph`]
//! and brokers through [`Publisher`].
//!
//! The way of a request: an [`Executable`] (plan, constant texts, what answers look like) and an
//! arena from the thread's pool → `execution` starts every fetch whose inputs are there →
//! `representations` writes what an entity fetch asks → `answer` reads what comes back into the
//! slots that `expected` has worked out and merges it into one tree → `projection` walks the
//! response shape over the tree, repairs nulls and prints.

mod answer;
mod argument_text;
mod bounds;
mod claims;
mod client_key;
mod client_path;
mod compiled_objects;
mod context;
mod context_values;
mod disclosure;
mod document_pool;
mod error;
mod error_list;
mod event;
mod event_keys;
mod event_memo;
mod executable;
mod execution;
mod expected;
mod memo;
mod payload;
mod print;
mod projection;
mod representations;
mod root_keys;
mod selections;
mod sharing;
mod state;
mod target_tree;
mod tokens;
mod trace;

pub use argument_text::print_value;
pub use claims::{ClaimPath, ClaimScalar, ClaimValues, Claims};
pub use client_key::{ClientKey, network_of};
pub use context::{
    EventRequest, FetchError, ForwardedHeaders, Generation, HiddenErrors, LocalFuture, Publisher,
    RequestContext, Subgraph, SubgraphAnswer, SubgraphRequest,
};
pub use disclosure::{AnswerHeaders, Disclosure};
pub use error::{ErrorCode, GraphqlError, Location, PathSegment};
pub use event_memo::{EventMemo, MemoRoom};
pub use executable::Executable;
pub use execution::execute;
pub use execution::together::execute_together;
pub use payload::{Missed, Payload};
pub use print::{print_error, print_errors, request_error};
pub use sharing::{Epoch, Sharing, SubgraphFlights};
pub use state::{StatePlan, state};
pub use trace::{FetchTrace, Trace};

/// Where an execution starts from.
#[derive(Clone, Debug, Default)]
pub enum Seed {
    /// An empty tree: queries and mutations.
    #[default]
    Nothing,
    /// An event of a subscription: JSON text of the value of the root field.
    Event(bytes::Bytes),
    /// An event that is none: what is wrong with it, to go after "The event ".
    BadEvent(String),
}
