//! The bounds of an execution, with their reasons. Exceeding a bound ends with a clear error and
//! affects only the operation itself.

/// Maximum number of entity representations that one operation may send, without duplicates. At
/// some 50 bytes each this is 5 MB of request bodies; real pages need hundreds.
pub(crate) const REPRESENTATIONS_MAX: u32 = 100_000;

/// Maximum number of requests of one fetch for different values that arguments read further up
/// (`@fromContext`). Values are few (a currency, a locale); more than this is a mistake in a
/// schema.
pub(crate) const CONTEXTS_MAX: usize = 64;

/// Maximum number of objects that the target paths of one entity batch may lead to. Linked entities
/// can make the tree much larger than the responses, so the walk needs a bound of its own.
pub(crate) const TARGET_OBJECTS_MAX: usize = 1_000_000;

/// Maximum number of errors in one response; further ones are only counted. Clients show a handful.
pub(crate) const ERRORS_MAX: usize = 200;

/// Maximum number of errors in one response that repeat the failure of a fetch at each place that
/// it concerns. The last one gives the number of further places.
pub(crate) const FAILURE_PLACES_MAX: usize = 100;

/// Maximum number of places in one response with an error of their own because the client may not
/// use them.
pub(crate) const DENIED_PLACES_MAX: usize = 100;

/// Maximum number of errors of one subgraph response that are logged one by one at the level
/// `debug`.
pub(crate) const LOGGED_ERRORS_MAX: usize = 20;

/// Maximum size of one error message. Some subgraphs send whole stack traces.
pub(crate) const ERROR_MESSAGE_BYTES_MAX: usize = 2048;

/// Maximum size of the `extensions` of one subgraph error; larger ones are left out.
pub(crate) const ERROR_EXTENSIONS_BYTES_MAX: usize = 8192;

/// Maximum number of places at which one subgraph error about an entity is reported, if the entity
/// occurs at many.
pub(crate) const ERROR_PLACES_MAX: usize = 16;

/// Maximum number of tree nodes visited to find the places of one subgraph error. After it, the
/// error is reported at those found so far.
pub(crate) const ERROR_PLACE_VISITS_MAX: u32 = 200_000;

/// Maximum size of one printed response: twice the default limit of a subgraph's response. Linked
/// entities may be printed at many places; this bound ends that before memory does.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Maximum capacity reserved for a payload by the length of the last one of its operation. One huge
/// response must not make the small ones after it take as much: above this bound, the size of the
/// responses read counts.
pub(crate) const PAYLOAD_ROOM_BYTES_MAX: usize = 256 * 1024;

/// Size of the responses read above which the payload is printed in another turn of the event loop.
/// Reading or printing that much takes some tenths of a millisecond, and other clients wait for a
/// turn.
pub(crate) const TURN_BYTES_MAX: usize = 256 * 1024;

/// Maximum size of one request in which several events are resolved together. A request of a single
/// event may be larger.
pub(crate) const JOINT_BODY_BYTES_MAX: usize = 256 * 1024;

/// Number of requests at a time for events that could not be resolved together: as many as a group
/// would have in flight otherwise.
pub(crate) const ASKED_ALONE_AT_A_TIME: usize = 8;

/// Maximum number of known entities that one batch is compared with. A lookup costs a fraction of a
/// fetch, but only saves one if the entity is needed.
pub(crate) const REMEMBERED_MAX: usize = 10_000;

/// Maximum number of entries of each working list that a thread keeps for its next requests: some
/// MiB in all.
pub(crate) const SCRATCH_ENTRIES_MAX: usize = 256 * 1024;

/// Maximum number of documents that a thread keeps for its next requests. More operations are
/// rarely in flight on one worker.
pub(crate) const POOLED_DOCUMENTS_MAX: usize = 64;

/// Maximum size of the texts of a document that is kept, so that one huge response does not pin its
/// memory.
pub(crate) const POOLED_DOCUMENT_TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;
