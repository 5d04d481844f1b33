//! Results of live queries as patches, for clients that ask for them by `@live(patch: true)`, in the format of the npm
//! package `@n1ru4l/graphql-live-query-patch-json-patch`:
//!
//! - `{"revision":1,"data":…}`: a complete result. The client forgets what it had.
//! - `{"revision":n,"patch":[…]}`: operations (RFC 6902) for the `data` of revision n - 1.
//! - Both with the `errors` and `extensions` of the result, which are never patched.
//! - A result with null `data`, or without `data`, has no revision, because the package refuses it otherwise. Revision 1
//!   follows.
//!
//! The revision belongs to the group: the hub keeps what it has delivered to a group last ([`execute::Revision`]), and
//! passes it here for the next result. A later subscriber is a group of its own with revision 1, and cannot become one
//! with the others, since their revisions differ. All groups share the text of the operations. When
//! [`SEQUENCES_MAX`] revisions are in use, the next result is complete for all groups, which are one after it.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use clients::offload::INLINE_BYTES_MAX;
use execute::{Payload, Revision};
use tokio::sync::Semaphore;

use super::json_difference::difference;
use super::{LiveQueryStats, LiveResult};

/// The number of different revisions of one query from which on its next result is complete. Each costs a payload for
/// each result; the operations are shared.
const SEQUENCES_MAX: usize = 8;

/// The maximum size of a result for which a patch is made. Both results are parsed for it, which takes about ten times
/// their size for that time.
const RESULT_BYTES_MAX: usize = 4 << 20;

/// The number of large patches that are made at the same time by the whole process, because of their memory.
const LARGE_PATCHES_MAX: usize = 2;

/// The limit on large patches that are being made.
#[derive(Debug)]
pub(super) struct LargePatches(Arc<Semaphore>);

impl Default for LargePatches {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LARGE_PATCHES_MAX)))
    }
}

/// The patches of one live query.
#[derive(Debug, Default)]
pub(super) struct QueryPatches {
    /// The latest patch. It is locked while the patch is made, so that each is made once.
    latest: tokio::sync::Mutex<Option<SharedOperations>>,
    /// The different revisions that were followed by the latest result.
    followed: Mutex<Vec<u64>>,
}

/// The operations between two results, by their numbers.
#[derive(Debug)]
struct SharedOperations {
    from: u64,
    to: u64,
    /// `None` if the complete result is sent in their place.
    operations: Option<Bytes>,
}

impl QueryPatches {
    /// Begins the next result. Returns true if it must be complete for all groups.
    pub(super) fn begin_result(&self) -> bool {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let must_be_complete = followed.len() >= SEQUENCES_MAX;
        followed.clear();
        must_be_complete
    }

    fn on_followed(&self, revision: u64) {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if followed.len() < SEQUENCES_MAX && !followed.contains(&revision) {
            followed.push(revision);
        }
    }

    /// Returns `result` for subscribers that have `known`: a patch, or the complete result. `None` if they have it.
    pub(super) async fn payload(
        &self,
        result: LiveResult,
        known: Option<Revision>,
        large: &LargePatches,
        stats: &LiveQueryStats,
    ) -> Option<Payload> {
        let Some(known) = known else { return Some(complete(&result)) };
        if known.state == result.number || known.complete == result.payload.bytes {
            return None;
        }
        if known.number == 0 {
            return Some(complete(&result));
        }
        self.on_followed(known.number);
        let operations = match result.must_be_complete {
            true => None,
            false => self.operations(&known, &result, large).await,
        };
        let patched = operations.and_then(|operations| {
            patched(&result, known.number.checked_add(1)?, &operations)
        });
        let counter = if patched.is_some() { &stats.patches } else { &stats.patches_replaced };
        counter.fetch_add(1, Relaxed);
        Some(patched.unwrap_or_else(|| complete(&result)))
    }

    /// Returns the operations from one result to the next, made once for all groups. `None` if the complete result is
    /// better.
    async fn operations(
        &self,
        known: &Revision,
        result: &LiveResult,
        large: &LargePatches,
    ) -> Option<Bytes> {
        let mut latest = self.latest.lock().await;
        let is_made = |it: &&SharedOperations| (it.from, it.to) == (known.state, result.number);
        if let Some(made) = latest.as_ref().filter(is_made) {
            return made.operations.clone();
        }
        let (before, after) = (known.complete.clone(), result.payload.bytes.clone());
        let bytes = before.len().max(after.len());
        let operations = if bytes > RESULT_BYTES_MAX {
            None
        } else if bytes <= INLINE_BYTES_MAX {
            operations_between(&before, &after)
        } else {
            let permit = Arc::clone(&large.0).acquire_owned().await.ok()?;
            let made = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                operations_between(&before, &after)
            });
            made.await.ok()?
        };
        *latest = Some(SharedOperations {
            from: known.state,
            to: result.number,
            operations: operations.clone(),
        });
        operations
    }
}

fn operations_between(before: &Bytes, after: &Bytes) -> Option<Bytes> {
    difference(&ResponseParts::read(before)?.data, &ResponseParts::read(after)?.data)
}

/// The members of a response.
struct ResponseParts {
    data: Bytes,
    errors: Option<Bytes>,
    extensions: Option<Bytes>,
}

impl ResponseParts {
    /// Splits the text of a response. `None` if it has no data, or null.
    fn read(text: &Bytes) -> Option<Self> {
        let (mut data, mut errors, mut extensions) = (None, None, None);
        astjson::outline_members(text, |key, value| match &*key {
            "data" => data = Some(value),
            "errors" => errors = Some(value),
            "extensions" => extensions = Some(value),
            _ => {}
        })
        .ok()?;
        let data = data.filter(|data| data.starts_with(b"{"))?;
        Some(Self { data, errors, extensions })
    }
}

/// Returns the complete result, as revision 1 if it has data.
fn complete(result: &LiveResult) -> Payload {
    let payload = &result.payload;
    // Responses are printed with `data` first.
    let has_data = payload.bytes.starts_with(b"{\"data\":{");
    let mut complete = payload.clone();
    if has_data {
        const HEAD: &[u8] = b"{\"revision\":1,";
        complete.bytes = [HEAD, &payload.bytes[1..]].concat().into();
        complete.splice += HEAD.len() - 1;
    }
    with_revision(complete, u64::from(has_data), result)
}

/// Returns the result as the patch with this revision. `None` if it has no data.
fn patched(result: &LiveResult, number: u64, operations: &Bytes) -> Option<Payload> {
    let ResponseParts { errors, extensions, data: _ } = ResponseParts::read(&result.payload.bytes)?;
    let mut bytes = format!("{{\"revision\":{number},\"patch\":").into_bytes();
    bytes.extend_from_slice(operations);
    if let Some(errors) = errors {
        bytes.extend_from_slice(b",\"errors\":");
        bytes.extend_from_slice(&errors);
    }
    let mut splice = bytes.len();
    if let Some(extensions) = extensions {
        bytes.extend_from_slice(b",\"extensions\":");
        // Behind the brace.
        splice = bytes.len() + 1;
        bytes.extend_from_slice(&extensions);
    }
    bytes.push(b'}');
    let payload = Payload { bytes: bytes.into(), splice, ..result.payload.clone() };
    Some(with_revision(payload, number, result))
}

fn with_revision(payload: Payload, number: u64, result: &LiveResult) -> Payload {
    let (state, complete) = (result.number, result.payload.bytes.clone());
    Payload { revision: Some(Arc::new(Revision { number, state, complete })), ..payload }
}
