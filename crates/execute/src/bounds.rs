//! Every bound of an execution, with its reason. What is over a bound ends with a clear error and
//! costs nobody but the operation itself.

/// Entity representations that one operation may send, duplicates not counted. At some 50 bytes
/// each this is 5 MB of request bodies; real pages need hundreds.
pub(crate) const REPRESENTATIONS_MAX: u32 = 100_000;

/// Requests that one fetch may become because arguments read different values further up
/// (`@fromContext`). Values are few (a currency, a locale); more than this is a mistake in a schema.
pub(crate) const CONTEXTS_MAX: usize = 64;

/// Objects that the target paths of one entity batch may lead to. Linked entities can make the
/// tree much larger than what was received, so the walk needs a bound of its own.
pub(crate) const TARGET_OBJECTS_MAX: usize = 1_000_000;

/// Errors in one answer; what comes after is counted only. Clients show a handful.
pub(crate) const ERRORS_MAX: usize = 200;

/// Errors in one response that repeat the failure of a fetch at each place that it concerns. The last one gives the
/// number of the places beyond.
pub(crate) const FAILURE_PLACES_MAX: usize = 100;

/// Errors of one subgraph response that are logged one by one at the level `debug`.
pub(crate) const LOGGED_ERRORS_MAX: usize = 20;

/// Bytes of one error message. Subgraphs have been seen to send whole stack traces.
pub(crate) const ERROR_MESSAGE_BYTES_MAX: usize = 2048;

/// Bytes of the `extensions` of one subgraph error; larger ones are left out.
pub(crate) const ERROR_EXTENSIONS_BYTES_MAX: usize = 8192;

/// Places that one subgraph error about an entity is reported at, when the entity stands at many.
pub(crate) const ERROR_PLACES_MAX: usize = 16;

/// Tree nodes looked at to find the places of one subgraph error. Past it the error is reported
/// at those found so far.
pub(crate) const ERROR_PLACE_VISITS_MAX: u32 = 200_000;

/// Bytes of one printed answer: twice what one subgraph may send by default. Linked entities may
/// be printed at many places; this ends it before memory does.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Room made ahead for a payload, by the length of the last one of its operation. One huge answer must not make
/// the small ones after it take as much: above this, what this operation has read counts.
pub(crate) const PAYLOAD_ROOM_BYTES_MAX: usize = 256 * 1024;

/// Bytes of one request in which several events are resolved together. What one of them asks by itself may be more.
pub(crate) const JOINT_BODY_BYTES_MAX: usize = 256 * 1024;

/// Requests at a time for what several events could not be told together: as many as a group would have in flight
/// without.
pub(crate) const ASKED_ALONE_AT_A_TIME: usize = 8;

/// Known entities that one batch is compared with. Looking one up costs a fraction of asking for it, but only if
/// it is wanted.
pub(crate) const REMEMBERED_MAX: usize = 10_000;

/// Entries of each working list that a thread keeps for its next requests: some MiB in all.
pub(crate) const SCRATCH_ENTRIES_MAX: usize = 256 * 1024;

/// Documents that a thread keeps for its next requests. More than this many operations are
/// rarely in flight on one core.
pub(crate) const POOLED_DOCUMENTS_MAX: usize = 64;

/// A document that has held more text than this is not kept, so that one huge answer does not
/// pin its memory.
pub(crate) const POOLED_DOCUMENT_TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;
