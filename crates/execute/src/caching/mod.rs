//! Caching of what subgraphs say: settings of a generation, facts of compiled fetches, and fetches in flight.
//!
//! The unit is what one subgraph says about one representation, or about one root field with its arguments, for one
//! selection. The store and the rules are in the crate `cache`; this module says what belongs to one entry.
//! `execution::cached_requests` and `execution::cached_root_fields` use it.

mod changed_entities;
mod entry_address;
mod entry_label;
mod fetch_caching;
mod fetches_in_flight;
mod mutation_invalidation;
mod populated_entities;
mod reported_errors;
mod response_memory;
mod response_storing;
mod root_request;
mod shared_cache;
mod subgraph_caches;

pub use changed_entities::{
    ChangedEntity, ChangedKey, ChangedKeyField, PopulatedEntry, PopulatedMember,
};
pub use fetch_caching::{FetchCaching, KeyedSelection, PartCaching, RootTag};
pub use fetches_in_flight::FetchesInFlight;
pub use response_memory::{RESPONSE_MEMORY_METRICS, ResponseMemory};
pub use root_request::{RootField, RootRequest, RootSelection};
pub use shared_cache::{
    Announcement, FetchLocks, Filled, ReplacementStart, SharedCache, WantedEntry,
};
pub use subgraph_caches::{RequestCaching, SubgraphCache, SubgraphCaches, TypeTags};

pub(crate) use entry_address::{Addresses, ObjectValues, RequestParts, flight_key};
pub(crate) use entry_label::{entity_label, root_label};
pub(crate) use fetches_in_flight::{FlightGuard, InFlight};
pub(crate) use mutation_invalidation::{MutationChanges, invalidate_by_response};
pub(crate) use populated_entities::PopulatingRequest;
pub(crate) use response_memory::{AssembledResponse, NewResponse, RequestAddresses};
pub(crate) use response_storing::{
    RequestedEntities, RequestedEntries, RequestedField, ResponseStoring, SharedStoring,
};
pub(crate) use shared_cache::WANTED_MAX;
