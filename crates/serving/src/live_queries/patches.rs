//! Results of live queries as patches, for clients that ask for them by `@live(patch: true)`, in the format of the npm
//! package `@n1ru4l/graphql-live-query-patch-json-patch`:
//!
//! - `{"revision":1,"data":…}`: a complete result. The client forgets what it had.
//! - `{"revision":n,"patch":[…]}`: operations (RFC 6902) for the `data` of revision n - 1.
//! - Both with the `errors` and `extensions` of the result, which are never patched.
//! - A result with null `data`, or without `data`, has no revision, because the package refuses it otherwise. The next one
//!   is complete.
//!
//! The revision belongs to the group: the hub keeps what it has delivered to a group last ([`execute::Revision`]), and
//! passes it here for the next result. A later subscriber is a group of its own with revision 1, and becomes one with
//! the others when both have got the same complete result. All groups share the text of the operations. When
//! [`SEQUENCES_MAX`] revisions are in use, the next result is complete for all groups, which are one after it.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use execute::{Payload, Revision};
use tokio::sync::Semaphore;

use super::json_difference::difference;
use super::result::LiveResult;
use super::stats::LiveQueryStats;

/// The number of different revisions of one query from which on its next result is complete. Each costs a payload for
/// each result; the operations are shared.
const SEQUENCES_MAX: usize = 8;

/// The size of a result up to which its patch is made by the worker, which takes less than a millisecond.
const INLINE_BYTES_MAX: usize = 8 << 10;

/// The maximum size of a result for which a patch is made. Both results are parsed for it, which takes ten times their
/// size for that time, and more for lists of short values.
const RESULT_BYTES_MAX: usize = 4 << 20;

/// The number of large patches that are made at the same time by the whole process, because of their memory. Beyond it,
/// complete results are sent.
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
    /// The different revisions for which the latest result was a patch.
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
        let Some(known) = known else { return Some(result.complete()) };
        if known.state == result.number || known.complete == result.payload.bytes {
            return None;
        }
        if known.number == 0 {
            return Some(result.complete());
        }
        let operations = match result.must_be_complete {
            true => None,
            false => self.operations(&known, &result, large).await,
        };
        let patched = operations
            .and_then(|operations| patched(&result, known.number.checked_add(1)?, &operations));
        if patched.is_some() {
            self.on_followed(known.number);
        }
        let counter = if patched.is_some() { &stats.patches } else { &stats.patches_replaced };
        counter.fetch_add(1, Relaxed);
        Some(patched.unwrap_or_else(|| result.complete()))
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
            // Without waiting: the hub counts this as a resolution in progress, and other subscriptions need room, too.
            let permit = Arc::clone(&large.0).try_acquire_owned().ok()?;
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

impl LiveResult {
    /// Returns the complete result, with the same bytes for all groups.
    fn complete(&self) -> Payload {
        self.complete.get_or_init(|| complete(self)).clone()
    }
}

/// Makes the complete result, as revision 1 if it has data.
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
        // The place is behind the brace.
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

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use json_patch::Patch;
    use serde_json::{Map, Value, json};

    use super::*;

    /// Results of one query, as they are made one after the other.
    #[derive(Default)]
    struct Query {
        patches: QueryPatches,
        large: LargePatches,
        stats: LiveQueryStats,
        results: u64,
    }

    impl Query {
        /// Makes the next result from the text of a response, with empty `extensions` or none.
        fn result(&mut self, text: impl Into<Bytes>) -> LiveResult {
            let bytes = text.into();
            let is_extended = bytes.ends_with(b"\"extensions\":{}}");
            let payload = Payload {
                splice: bytes.len() - if is_extended { 2 } else { 1 },
                bytes,
                has_data: true,
                errors: 0,
                first_error: None,
                subgraph_requests: 0,
                headers: None,
                cost: None,
                caching: None,
                revision: None,
            };
            self.results += 1;
            let must_be_complete = self.patches.begin_result();
            LiveResult { payload, number: self.results, must_be_complete, complete: Arc::default() }
        }

        /// Sends a result to a group. Returns the message.
        async fn send(&self, result: &LiveResult, group: &mut Group) -> Option<String> {
            let known = group.known.clone();
            let sent = self.patches.payload(result.clone(), known, &self.large, &self.stats).await;
            let mut sent = sent?;
            group.known = sent.take_revision();
            let lost = sent.with_extension("lost", "3");
            let text = String::from_utf8(sent.bytes.to_vec()).unwrap();
            let with_extension: Value = serde_json::from_slice(&lost.bytes).unwrap();
            assert_eq!(with_extension["extensions"]["lost"], 3, "{text}");
            group.client.read(&serde_json::from_str(&text).unwrap());
            Some(text)
        }
    }

    /// A group, with the revision that the hub keeps of it, and one of its clients.
    #[derive(Default)]
    struct Group {
        known: Option<Revision>,
        client: Client,
    }

    /// A client with the rules of the npm package.
    #[derive(Default)]
    struct Client {
        revision: u64,
        data: Value,
        /// The data and the errors of the latest result.
        seen: (Value, Value),
    }

    impl Client {
        fn read(&mut self, message: &Value) {
            match message["revision"].as_u64() {
                None => {
                    assert!(message.get("patch").is_none(), "{message}");
                    self.seen = (message["data"].clone(), message["errors"].clone());
                    return;
                }
                Some(1) => {
                    assert!(message["data"].is_object(), "{message}");
                    self.data = message["data"].clone();
                }
                Some(number) => {
                    assert_eq!(number, self.revision + 1, "{message}");
                    let patch: Patch = serde_json::from_value(message["patch"].clone()).unwrap();
                    json_patch::patch(&mut self.data, &patch).unwrap();
                }
            }
            self.revision = message["revision"].as_u64().unwrap();
            self.seen = (self.data.clone(), message["errors"].clone());
        }
    }

    /// A response with that number among other data.
    fn numbered(number: u32) -> String {
        format!(r#"{{"data":{{"number":{number},"text":"{}"}}}}"#, "t".repeat(100))
    }

    fn patch(revision: u64, number: u32) -> Option<String> {
        let operations = format!(r#"[{{"op":"replace","path":"/number","value":{number}}}]"#);
        Some(format!(r#"{{"revision":{revision},"patch":{operations}}}"#))
    }

    fn complete_text(number: u32) -> Option<String> {
        Some(numbered(number).replacen('{', r#"{"revision":1,"#, 1))
    }

    #[tokio::test]
    async fn patches_follow_a_complete_result_and_nothing_follows_an_equal_one() {
        let (mut query, mut group) = (Query::default(), Group::default());
        let first = query.result(numbered(1));
        assert_eq!(query.send(&first, &mut group).await, complete_text(1));
        assert_eq!(query.send(&first, &mut group).await, None);
        let equal = query.result(numbered(1));
        assert_eq!(query.send(&equal, &mut group).await, None);
        for number in 2..5 {
            let result = query.result(numbered(number));
            assert_eq!(query.send(&result, &mut group).await, patch(number.into(), number));
        }
        let mut other = Group { known: group.known.clone(), ..Group::default() };
        other.client = Client { revision: 4, data: group.client.data.clone(), ..Client::default() };
        let result = query.result(numbered(9));
        assert_eq!(query.send(&result, &mut group).await, patch(5, 9));
        assert_eq!(query.send(&result, &mut other).await, patch(5, 9));
        assert_eq!(query.stats.patches.load(Relaxed), 5);
        assert_eq!(query.stats.patches_replaced.load(Relaxed), 0);
    }

    #[tokio::test]
    async fn errors_and_extensions_are_those_of_the_new_result() {
        let (mut query, mut group) = (Query::default(), Group::default());
        let first = query.result(numbered(1));
        query.send(&first, &mut group).await;
        let end = r#","errors":[{"message":"x"}],"extensions":{}}"#;
        let broken = numbered(1).trim_end_matches('}').to_owned() + "}" + end;
        let broken = query.result(broken);
        let expected = format!(r#"{{"revision":2,"patch":[]{end}"#);
        assert_eq!(query.send(&broken, &mut group).await, Some(expected));
        let none = r#"{"data":null,"errors":[{"message":"x"}]}"#;
        let result = query.result(none);
        assert_eq!(query.send(&result, &mut group).await.as_deref(), Some(none));
        let result = query.result(numbered(2));
        assert_eq!(query.send(&result, &mut group).await, complete_text(2));
        // The hub knows no number of a result that it could not get.
        group.known.as_mut().unwrap().number = 0;
        let result = query.result(numbered(3));
        assert_eq!(query.send(&result, &mut group).await, complete_text(3));
    }

    #[tokio::test]
    async fn a_large_result_is_patched_and_a_very_large_one_is_not() {
        for (bytes, is_patched) in [(INLINE_BYTES_MAX, true), (RESULT_BYTES_MAX, false)] {
            let (mut query, mut group) = (Query::default(), Group::default());
            for number in 1..3 {
                let text = "t".repeat(bytes);
                let text = format!(r#"{{"data":{{"number":{number},"text":"{text}"}}}}"#);
                let result = query.result(text);
                let sent = query.send(&result, &mut group).await.unwrap();
                assert_eq!(sent.len() < 100, number == 2 && is_patched);
            }
            let replaced = query.stats.patches_replaced.load(Relaxed);
            assert_eq!(replaced, u64::from(!is_patched));
        }
    }

    #[tokio::test]
    async fn after_many_different_revisions_all_groups_have_the_same() {
        let mut query = Query::default();
        let mut groups = Vec::new();
        for number in 0..u32::try_from(SEQUENCES_MAX).unwrap() {
            groups.push(Group::default());
            let result = query.result(numbered(number));
            for group in &mut groups {
                query.send(&result, group).await;
            }
        }
        let revisions = |groups: &[Group]| {
            groups.iter().map(|it| it.client.revision).collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(revisions(&groups).len(), SEQUENCES_MAX);
        for (number, expected) in [(100, SEQUENCES_MAX), (101, 1), (102, 1)] {
            let result = query.result(numbered(number));
            for group in &mut groups {
                query.send(&result, group).await;
            }
            assert_eq!(revisions(&groups).len(), expected, "{number}");
        }
        assert!(groups.iter().all(|it| it.client.revision == 2));
    }

    /// Returns a value of at most this depth.
    fn random_value(random: &mut Rng, depth: u32) -> Value {
        match random.u32(..if depth == 0 { 5 } else { 8 }) {
            0 => Value::Null,
            1 => json!(random.bool()),
            2 => json!(random.i64(-3..3)),
            3 => json!(f64::from(random.i32(..)) / 8.0),
            4 => json!(["", "a", "\"\\\n", "é/~"][random.usize(..4)]),
            5 | 6 => (0..random.usize(..5)).map(|_| random_value(random, depth - 1)).collect(),
            _ => Value::Object(random_object(random, depth)),
        }
    }

    fn random_object(random: &mut Rng, depth: u32) -> Map<String, Value> {
        const KEYS: [&str; 6] = ["id", "a", "b", "a/b", "~1", ""];
        let keys = (0..random.usize(..5)).map(|_| KEYS[random.usize(..6)].to_owned());
        keys.collect::<Vec<_>>()
            .into_iter()
            .map(|key| (key, random_value(random, depth.saturating_sub(1))))
            .collect()
    }

    /// Changes some parts of a value.
    fn change(random: &mut Rng, value: &mut Value) {
        if random.u32(..12) == 0 {
            *value = random_value(random, 2);
            return;
        }
        match value {
            Value::Array(elements) => {
                match random.u32(..6) {
                    0 => elements.insert(random.usize(..=elements.len()), random_value(random, 2)),
                    1 if !elements.is_empty() => {
                        elements.remove(random.usize(..elements.len()));
                    }
                    2 => random.shuffle(elements),
                    _ => {}
                }
                elements.iter_mut().for_each(|it| change(random, it));
            }
            Value::Object(members) => {
                if random.u32(..8) == 0 {
                    members.extend(random_object(random, 2));
                }
                members.values_mut().for_each(|it| change(random, it));
            }
            _ => {}
        }
    }

    #[tokio::test]
    async fn clients_have_the_result_after_each_message_whatever_came_before() {
        for seed in 0..300 {
            let mut random = Rng::with_seed(seed);
            let (mut query, mut groups) = (Query::default(), vec![Group::default()]);
            let mut data: Value = (0..6).map(|_| random_value(&mut random, 3)).collect();
            for _ in 0..40 {
                if random.u32(..3) == 0 && groups.len() < 12 {
                    groups.push(Group::default());
                }
                change(&mut random, &mut data);
                let sent = match random.u32(..20) {
                    0 => Value::Null,
                    _ => json!({ "list": data, "padding": "p".repeat(200) }),
                };
                let mut response = json!({ "data": sent });
                if random.u32(..5) == 0 {
                    response["errors"] = json!([{ "message": "x" }]);
                }
                let result = query.result(response.to_string());
                for group in &mut groups {
                    // Some groups are slow.
                    if random.u32(..4) > 0 && query.send(&result, group).await.is_some() {
                        let expected = (sent.clone(), response["errors"].clone());
                        assert_eq!(group.client.seen, expected, "seed {seed}");
                    }
                }
            }
            assert!(query.stats.patches.load(Relaxed) > 0, "seed {seed}");
        }
    }
}
