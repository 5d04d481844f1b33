//! Caching of what subgraphs say: settings of a generation, facts of compiled fetches, and fetches in flight.
//!
//! The unit is what one subgraph says about one representation, or about the root fields of one request. The store and
//! the rules are in the crate `cache`; this module says what belongs to one entry. `execution::cached_requests` uses
//! it.

mod entry_address;
mod entry_label;
mod fetch_caching;
mod fetches_in_flight;
mod mutation_invalidation;
mod response_storing;
mod subgraph_caches;

pub use fetch_caching::{FetchCaching, PartCaching, RootTag};
pub use fetches_in_flight::FetchesInFlight;
pub use subgraph_caches::{RequestCaching, SubgraphCache, SubgraphCaches, TypeTags};

pub(crate) use entry_address::{Addresses, ObjectValues, RequestParts, flight_key};
pub(crate) use entry_label::{entity_label, root_label};
pub(crate) use fetches_in_flight::{FlightGuard, InFlight};
pub(crate) use mutation_invalidation::invalidate_by_response;
pub(crate) use response_storing::{RequestedEntities, RequestedEntries, ResponseStoring};
