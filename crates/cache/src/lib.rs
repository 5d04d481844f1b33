//! Caches: how long responses may be used, what makes them stale, and the store of this process.
//!
//! Invariant: this crate knows nothing of GraphQL documents and HTTP servers, does no I/O, and reads neither clocks nor
//! random sources: callers pass in the time and random numbers.
//!
//! # The path of a response into the store
//!
//! 1. [`Store::begin_fetch`] before the request is sent.
//! 2. [`ResponseTtl`] reads what the headers of the response say (`cache_control`), and [`resolve_policy`] decides with
//!    the schema and the configuration (`hints`, `ttl_rules`) how long it may be stored: a [`CachePolicy`].
//! 3. [`Store::insert`] stores the body under an [`EntryAddress`]: keys (`keys`), which contain everything that may
//!    distinguish clients, and tags (`tags`), which are everything that an invalidation may name.
//!
//! # The path out
//!
//! 1. [`Store::lookup`] returns a fresh entry, a stale one, or a reason for a miss. One of the callers also gets a
//!    [`RefreshClaim`] when the entry should be fetched again (`refresh`).
//! 2. [`PolicyFold`] joins the policies of all parts of a response to a client, with the time that is left of each.
//! 3. [`BodyCopies`] has the body in other codings, for clients that accept them.
//! 4. [`ClientCaching`] prints the result for clients and CDNs, [`Validator`] is its `ETag` and decides about 304, and
//!    [`Vary`] merges the headers on which it depends.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use cache::{
//!     CachePolicy, EntryAddress, HashDomain, Invalidation, InvalidationTable, KeyBase, KeySecret, Lookup, LookupStats,
//!     NewEntry, ResponseContent, Store, StoreSettings, TagHasher, Timestamp,
//! };
//!
//! let secret = KeySecret::from_bytes([0; 16]); // random bytes in a real process
//! let hasher = TagHasher::new(&secret);
//! let store = Store::new(&StoreSettings::default(), Arc::new(InvalidationTable::default()));
//! let stats = LookupStats::default();
//!
//! let mut base = KeyBase::new(&secret, HashDomain::Entity);
//! base.part(b"products");
//! base.part(b"name price");
//! let address = EntryAddress {
//!     keys: base.keys_of(br#"{"__typename":"Product","id":"1"}"#),
//!     tags: [hasher.subgraph("products"), hasher.type_name("Product")].into_iter().collect(),
//! };
//!
//! let start = store.begin_fetch(Timestamp(1_000));
//! let policy = CachePolicy { fresh_for: Duration::from_secs(60), ..CachePolicy::default() };
//! let body = br#"{"name":"Table","price":90}"#;
//! let new = NewEntry { policy: &policy, start, content: ResponseContent::Data, extra: b"", body };
//! store.insert(&address, &new, Timestamp(1_050), &stats);
//!
//! let Lookup::Fresh(hit) = store.lookup(&address, Timestamp(2_000), 7, &stats) else { panic!("a hit") };
//! assert_eq!((hit.body(), hit.age), (&body[..], Duration::from_secs(1)));
//!
//! store.invalidate(&[Invalidation::Subgraph("products".into())], &hasher);
//! assert!(matches!(store.lookup(&address, Timestamp(2_001), 7, &stats), Lookup::Miss(_)));
//! ```
//!
//! # Invalidation
//!
//! An [`Invalidation`] names a tag, an entity, a type, a subgraph or everything. `invalidation_reader` reads it from
//! JSON. [`InvalidationTable`] remembers when each tag was last invalidated, in constant memory, and an entry is stale
//! if its fetch began before that. There are no lists from tags to entries. The guarantee: when [`Store::invalidate`]
//! has returned, no later lookup finds anything that was fetched before, also if that fetch was still in flight.
//!
//! The response to a mutation may bring the values that its invalidation makes room for: [`Store::replace`].
//!
//! A result that is kept up to date watches the tags that it was made of ([`InvalidationTable::watch`]), and is told
//! when one of them is invalidated ([`Dependencies`], `watch_registry`).
//!
//! An entry is stale in three ways, and only the first two may be served: within `stale-while-revalidate`, within
//! `stale-if-error`, or invalidated.
//!
//! # Scope
//!
//! A private response is stored under a key that contains the [`Partition`] of its client, and is not stored if the
//! client has none. Forwarded headers are part of all keys, but those that a subgraph ignores by configuration and does
//! not name in `Vary` ([`KeyHeaders`]). The module `keys` says why a hash of 128 bits is safe. Authorization is decided
//! before the cache is consulted, by the caller.
//!
//! # What operators see
//!
//! Entries of one subgraph and type are a class with counts (`entry_classes`). [`Store::hottest`] knows the entries
//! that are found most often, from a sample of the lookups and in constant memory (`hot_entries`); [`Store::largest`]
//! knows the largest ones, and [`Store::preview`] what an invalidation would make stale.
//!
//! # Elsewhere
//!
//! Equal fetches in flight are joined by the crate `single-flight`.
//!
//! # Stores that several routers share
//!
//! A [`SharedEntry`] lies in Redis under a [`SharedKey`]. [`SharedView`] decides whether it is valid: it follows the
//! log in which routers tell each other what is stale ([`SharedMessage`]). [`Store::adopt`] copies a valid entry into
//! the store of the process, with its true age.

mod address;
mod body_copies;
mod cache_control;
mod client_caching;
mod entity_key;
mod entry;
mod entry_classes;
mod entry_label;
mod heavy_hitters;
mod hints;
mod hot_entries;
mod insertion;
mod invalidation;
mod invalidation_reader;
mod invalidation_stats;
mod invalidation_table;
mod jitter;
mod keys;
mod large_entries;
mod lookup;
mod memo;
mod metrics;
mod policy;
mod refresh;
mod scope;
mod shared_entry;
mod shared_log;
mod shared_message;
mod shared_replacement;
mod shared_stats;
mod shared_view;
mod stats;
mod store;
mod tag_template;
mod tags;
mod time;
mod time_to_live;
mod ttl_rules;
mod validator;
mod vary;
mod watch_registry;

pub use address::EntryAddress;
pub use body_copies::{BodyCopies, EntryId};
pub use cache_control::{BadTtlHeader, ResponseDirectives, read_age, read_ttl_header};
pub use client_caching::{AgeStyle, ClientCaching};
pub use entity_key::{EntityKey, EntityKeyError, KEY_FIELDS_MAX};
pub use entry::{ENTRY_OVERHEAD_BYTES, EXTRA_BYTES_MAX};
pub use entry_classes::{ENTRY_METRICS, EntryTotals};
pub use entry_label::{EntryLabel, LABEL_BYTES_MAX, LabelKey};
pub use hints::{CacheHint, DeclaredPolicy, FieldHints, HintFold};
pub use hot_entries::is_sampled;
pub use insertion::{FetchStart, NewEntry, StoreOutcome};
pub use invalidation::Invalidation;
pub use invalidation_reader::{
    INVALIDATIONS_MAX, InvalidationError, read_invalidation, read_invalidations,
};
pub use invalidation_stats::{
    INVALIDATION_SOURCE_COUNTERS, INVALIDATION_SOURCE_METRICS, InvalidationSourceStats,
    InvalidationStats,
};
pub use invalidation_table::{InvalidationTable, Sequence};
pub use jitter::Jitter;
pub use keys::{
    CacheKey, EntryKeyHasher, EntryKeys, HashDomain, KeyBase, KeySecret, Partition, SharedKey,
    SharedKeyBase,
};
pub use lookup::{EntryHandle, Hit, Lookup, MissReason};
pub use memo::Memo;
pub use metrics::STORE_METRICS;
pub use policy::{CachePolicy, Dependencies, FoldedPolicy, PolicyFold};
pub use refresh::RefreshClaim;
pub use scope::Scope;
pub use shared_entry::{NotAnEntry, SHARED_BODY_BYTES_MAX, SHARED_ENTRY_BYTES_MAX, SharedEntry};
pub use shared_log::{LogEpoch, SharedStart};
pub use shared_message::{MESSAGE_TAGS_MAX, SharedMessage};
pub use shared_replacement::Replacement;
pub use shared_stats::{
    ConfirmationBuckets, SHARED_CACHE_COUNTERS, SHARED_CACHE_METRICS, SharedCacheStats,
};
pub use shared_view::{SharedMiss, SharedView, StaleTags};
pub use stats::{LOOKUP_COUNTERS, LookupStats, STORE_COUNTERS, StoreStats};
pub use store::{HotEntry, InvalidationPreview, LargeEntry, Store, StoreSettings};
pub use tag_template::{
    RenderError, TAG_BYTES_MAX, TagTemplate, TagValues, TemplateError, TemplateScope,
};
pub use tags::{EntityTagHasher, TAGS_MAX, Tag, TagHasher, Tags};
pub use time::Timestamp;
pub use time_to_live::{NotStorable, ResponseContent, ResponseTtl, TtlSettings, resolve_policy};
pub use ttl_rules::{SubgraphTtl, TtlRules, TypeTtl};
pub use validator::{ConditionalResponse, NOT_MODIFIED_HEADERS, Validator, decide_conditional};
pub use vary::{IgnoredHeaders, KeyHeaders, VARY_NAMES_MAX, Vary};
pub use watch_registry::WatcherId;
