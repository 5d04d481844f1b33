//! Executes a plan with variables and prints the payload: fetches, merges, propagates nulls, prints.
//!
//! Invariant: this crate knows nothing of transports. It reaches subgraphs through [`Subgraph`] and brokers through
//! [`Publisher`].
//!
//! The path of a request:
//!
//! 1. `executable` compiles a plan once: constant texts, the layout of responses (`response_layout`), and the types of
//!    `compiled` and `compiled_objects`. `document_pool` lends an arena to each execution.
//! 2. `execution` starts every fetch whose inputs are complete. `representations` writes the representations of an
//!    entity fetch, `shared_fetch` sends the request, or waits for an equal one (`sharing`, `event_fetch_cache`).
//! 3. `response` reads what a subgraph sent into the slots of the layout, and `execution::merge_response` merges it
//!    into one tree.
//! 4. `projection` walks the response shape over the tree, propagates nulls and prints a [`Payload`].
//!
//! Beside the path:
//!
//! - Errors: `error` has [`GraphqlError`] and all codes; a new [`ErrorCode`] is one line there. `error_list` collects
//!   the errors of an execution, `error_path` finds their places in the client's response, and `error_masking` decides
//!   which errors of subgraphs clients see.
//! - Events: `event` and `event_keys` check payloads of brokers, `current_state` fetches the first result of a
//!   subscription, `execution::execute_batch` resolves several events together.
//! - `bounds` has the limits of one execution. Limits on operations are checked before, in the crate `prepare`.
//! - Files: `uploads` has the files of a request, and turns the one request that takes them into a form.
//!   `file_transfer` moves their bytes while they arrive.
//! - `fetch_times` measures some requests of each fetch of a plan, for operators.
//! - `claims` and `client_key` describe the client, for authorization and for fair queues in other crates.

mod argument_text;
mod bounds;
mod caching;
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
mod fetch_error;
mod fetch_times;
mod file_transfer;
mod item_lists;
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
mod spans;
mod subgraph;
mod trace;
mod tree_memory;
mod uploads;

pub use argument_text::print_value;
pub use caching::{
    Announcement, ChangedEntity, ChangedKey, ChangedKeyField, FetchCaching, FetchLocks,
    FetchesInFlight, Filled, KeyedSelection, PartCaching, PopulatedEntry, PopulatedMember,
    RESPONSE_MEMORY_METRICS, ReplacementStart, RequestCaching, ResponseMemory, RootField,
    RootRequest, RootSelection, RootTag, SharedCache, SubgraphCache, SubgraphCaches, TypeTags,
    WantedEntry,
};
pub use claims::{ClaimPath, ClaimScalar, ClaimValues, Claims};
pub use client_key::{ClientKey, network_of};
pub use context::{Generation, RequestContext};
pub use current_state::{StatePlan, fetch_current_state};
pub use error::{ErrorCode, GraphqlError, Location, PathSegment, RateLimitState, spread_seconds};
pub use error_masking::{
    DeniedPlaces, Disclosure, ErrorRule, MessageCondition, MessageRule, ResponseHeaders,
};
pub use event_fetch_cache::{EventFetchCache, FetchCacheBudget};
pub use executable::Executable;
pub use execution::execute_batch::execute_batch;
pub use execution::{execute, execute_live};
pub use fetch_error::FetchError;
pub use fetch_times::FetchTimesReading;
pub use file_transfer::{
    FILE_WINDOW_BYTES, FileHead, FileTransfer, FormAborted, FormBody, SendingEnd,
};
pub use payload::{Missed, Payload, Revision};
pub use print::{print_error, print_errors, request_error};
pub use publisher::{EventRequest, Publisher};
pub use sharing::{Epoch, Sharing, SubgraphFlights};
pub use spans::{role_name, write_spans};
pub use subgraph::{
    ForwardedHeaders, HedgeOutcome, HiddenErrors, LocalFuture, Subgraph, SubgraphEndpoint,
    SubgraphHeaders, SubgraphRequest, SubgraphResponse,
};
pub use trace::{FetchPlace, FetchTrace, LookupTrace, MessageTrace, PrintingTrace, Trace};
pub use uploads::{MultipartBody, Uploads};

/// The values that an execution starts from.
#[derive(Clone, Debug, Default)]
pub enum Seed {
    /// An empty tree: queries and mutations.
    #[default]
    Nothing,
    /// An event of a subscription: JSON text of the value of the root field; of a subscription that a subgraph serves,
    /// of the subgraph's response.
    Event(bytes::Bytes),
    /// An invalid event: the problem, to continue the sentence "The event …".
    BadEvent(String),
}
