//! Executes a plan with variables and prints the payload: fetches, merges, propagates nulls,
//! prints.
//!
//! Invariant: this crate knows nothing of transports. It reaches subgraphs through [`Subgraph`] and
//! brokers through [`Publisher`].
//!
//! The path of a request:
//!
//! 1. An [`Executable`] (plan, constant texts, layout of the responses) and an arena from the
//!    thread's pool.
//! 2. `execution` starts every fetch whose inputs are complete.
//! 3. `representations` writes the representations of an entity fetch.
//! 4. `response` reads what a subgraph sent into the slots that `response_layout` has computed, and
//!    merges it into one tree.
//! 5. `projection` walks the response shape over the tree, propagates nulls and prints.

mod argument_text;
mod bounds;
mod claims;
mod client_key;
mod compiled;
mod compiled_objects;
mod context;
mod context_values;
mod current_state;
mod document_pool;
mod error;
mod error_list;
mod error_masking;
mod error_path;
mod event;
mod event_fetch_cache;
mod event_keys;
mod executable;
mod execution;
mod path_tree;
mod payload;
mod print;
mod projection;
mod publisher;
mod query_key;
mod representations;
mod response;
mod response_layout;
mod shared_fetch;
mod sharing;
mod subgraph;
mod trace;

pub use argument_text::print_value;
pub use claims::{ClaimPath, ClaimScalar, ClaimValues, Claims};
pub use client_key::{ClientKey, network_of};
pub use context::{Generation, RequestContext};
pub use current_state::{StatePlan, fetch_current_state};
pub use error::{ErrorCode, GraphqlError, Location, PathSegment};
pub use error_masking::{Disclosure, ResponseHeaders};
pub use event_fetch_cache::{EventFetchCache, FetchCacheBudget};
pub use executable::Executable;
pub use execution::execute;
pub use execution::execute_batch::execute_batch;
pub use payload::{Missed, Payload};
pub use print::{print_error, print_errors, request_error};
pub use publisher::{EventRequest, Publisher};
pub use sharing::{Epoch, Sharing, SubgraphFlights};
pub use subgraph::{
    FetchError, ForwardedHeaders, HiddenErrors, LocalFuture, Subgraph, SubgraphRequest,
    SubgraphResponse,
};
pub use trace::{FetchTrace, Trace};

/// The values that an execution starts from.
#[derive(Clone, Debug, Default)]
pub enum Seed {
    /// An empty tree: queries and mutations.
    #[default]
    Nothing,
    /// An event of a subscription: JSON text of the value of the root field.
    Event(bytes::Bytes),
    /// An invalid event: the problem, to continue the sentence "The event …".
    BadEvent(String),
}
