//! Results of one operation as the parts of one HTTP response, `multipart/mixed` (RFC 2046, section 5.1).
//!
//! [`Multipart`] is the server's side of a response body. It ends each part with the next delimiter, because a client
//! knows that a part is complete only when it sees a delimiter.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::Chunks;
use crate::body::{BodyMachine, BodyQueue};

/// The contents of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultipartForm {
    /// `subscriptionSpec=1.0`, as Apollo's clients speak it: results in `payload`, `{}` as a heartbeat, errors of the
    /// transport beside a `payload` of null.
    Subscription,
    /// Incremental delivery: the results themselves, each with `hasNext`, which states whether more follow.
    Incremental,
}

impl MultipartForm {
    /// Returns the content type of the response.
    pub const fn content_type(self) -> &'static str {
        match self {
            MultipartForm::Subscription => {
                r#"multipart/mixed;boundary="graphql";subscriptionSpec="1.0""#
            }
            MultipartForm::Incremental => {
                r#"multipart/mixed;boundary="graphql";deferSpec=20220824"#
            }
        }
    }
}

/// The delimiter before a part.
const OPENING: &[u8] = b"\r\n--graphql";
/// The suffix that turns a delimiter into the last one (RFC 2046, `close-delimiter`).
const CLOSING: &[u8] = b"--\r\n";
const PART: &[u8] = b"\r\ncontent-type: application/json\r\n\r\n";
const PAYLOAD_HEAD: &[u8] = b"\r\ncontent-type: application/json\r\n\r\n{\"payload\":";
pub(crate) const PAYLOAD_TAIL: &[u8] = b"}\r\n--graphql";
/// The head of a heartbeat with a header. A member inside the object would not do: Apollo's client takes an object with
/// any member for a result.
const POSITION_HEAD: &[u8] = b"\r\ncontent-type: application/json\r\ncursor: ";
pub(crate) const POSITION_TAIL: &[u8] = b"\r\n\r\n{}\r\n--graphql";
const RESULT_HEAD: &[u8] = b"\r\ncontent-type: application/json\r\n\r\n{\"hasNext\":true,";
pub(crate) const RESULT_TAIL: &[u8] = b"\r\n--graphql";
/// The heartbeat of incremental delivery: a space behind a delimiter (RFC 2046, `transport-padding`). An empty object
/// would be a result in this format.
const PADDING: &[u8] = b" ";

/// Returns a part with a result, a JSON object. The payload is shared and not copied: a broadcast makes the part once
/// and clones it.
pub fn next_part(form: MultipartForm, payload: Bytes) -> Chunks {
    let (head, body, tail) = match form {
        MultipartForm::Subscription => (PAYLOAD_HEAD, payload, PAYLOAD_TAIL),
        // `hasNext` goes before the first member. An object without members, or with white space before them, is sent
        // unchanged: without the member, clients assume that more results follow.
        MultipartForm::Incremental if payload.starts_with(b"{\"") => {
            (RESULT_HEAD, payload.slice(1..), RESULT_TAIL)
        }
        MultipartForm::Incremental => (PART, payload, RESULT_TAIL),
    };
    Chunks { head: Bytes::from_static(head), body, tail }
}

/// Returns a part that gives a position without a result: `cursor`, text that is valid in a header, is shared and not
/// copied. The cursor is a header of the part, which clients ignore unless they know it (RFC 2046, section 5.1); the
/// part itself is a heartbeat. `None` if the form has no part that could hold it.
pub fn position_part(form: MultipartForm, cursor: Bytes) -> Option<Chunks> {
    let head = Bytes::from_static(POSITION_HEAD);
    match form {
        MultipartForm::Subscription => Some(Chunks { head, body: cursor, tail: POSITION_TAIL }),
        MultipartForm::Incremental => None,
    }
}

/// One response body.
///
/// It opens with a delimiter, so that the client sees the response head before the first part.
pub struct Multipart {
    queue: BodyQueue,
    form: MultipartForm,
}

const _: () = assert!(size_of::<Multipart>() <= 80);

impl Multipart {
    /// Begins a response body. `heartbeat` is the idle time after which a heartbeat is sent.
    pub fn new(form: MultipartForm, heartbeat: Option<Duration>, now: Instant) -> Multipart {
        Multipart { queue: BodyQueue::new(Chunks::whole(OPENING), heartbeat, now), form }
    }

    /// Returns the contents of the parts.
    pub fn form(&self) -> MultipartForm {
        self.form
    }

    /// Queues a result. Dropped after the end.
    pub fn next(&mut self, payload: Bytes) {
        self.queue.push([next_part(self.form, payload)]);
    }

    /// Queues the client's position, see [`position_part`]. Dropped after the end.
    pub fn position(&mut self, cursor: Bytes) {
        self.queue.push(position_part(self.form, cursor));
    }

    /// Queues the end of an operation that failed. `response` is a JSON object with `errors`.
    pub fn fail(&mut self, response: &[u8]) {
        let head: &[u8] = match self.form {
            MultipartForm::Subscription => b"{\"payload\":null,",
            MultipartForm::Incremental => b"{\"hasNext\":false,",
        };
        let rest = response.strip_prefix(b"{").unwrap_or(response);
        self.end(&[PART, head, rest, OPENING, CLOSING]);
    }

    /// Queues the end.
    pub fn complete(&mut self) {
        match self.form {
            MultipartForm::Subscription => self.end(&[CLOSING]),
            MultipartForm::Incremental => {
                self.end(&[PART, b"{\"hasNext\":false}", OPENING, CLOSING]);
            }
        }
    }

    fn end(&mut self, parts: &[&[u8]]) {
        self.queue.push([Chunks::whole(parts.concat())]);
        self.queue.complete();
    }
}

impl BodyMachine for Multipart {
    fn queue(&self) -> &BodyQueue {
        &self.queue
    }

    fn queue_mut(&mut self) -> &mut BodyQueue {
        &mut self.queue
    }

    fn heartbeat(&self) -> Chunks {
        match self.form {
            MultipartForm::Subscription => Chunks::whole([PART, b"{}", OPENING].concat()),
            MultipartForm::Incremental => Chunks::whole(PADDING),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(multipart: &mut Multipart, now: Instant) -> String {
        let mut out = Vec::new();
        while let Some(chunks) = multipart.poll_transmit(now) {
            chunks.append_to(&mut out);
        }
        String::from_utf8(out).expect("UTF-8")
    }

    /// Returns the bodies of the parts as RFC 2046 defines them; the last delimiter must be there.
    fn parts(text: &str) -> Vec<String> {
        let mut sections: Vec<&str> = text.split("\r\n--graphql").collect();
        assert_eq!((sections.remove(0), sections.pop()), ("", Some("--\r\n")), "{text}");
        let part = |section: &str| {
            let (head, body) = section.split_once("\r\n\r\n").expect("a head");
            assert_eq!(head.trim(), "content-type: application/json");
            body.to_owned()
        };
        sections.into_iter().map(part).collect()
    }

    #[test]
    fn a_subscription_has_its_results_in_payload_and_ends_with_the_last_delimiter() {
        let now = Instant::now();
        let mut multipart = Multipart::new(MultipartForm::Subscription, None, now);
        multipart.next(r#"{"data":1}"#.into());
        multipart.next(r#"{"data":2}"#.into());
        multipart.complete();
        multipart.next("late".into());
        multipart.complete();
        assert!(multipart.is_finished());
        let text = drain(&mut multipart, now);
        assert_eq!(parts(&text), [r#"{"payload":{"data":1}}"#, r#"{"payload":{"data":2}}"#]);
    }

    #[test]
    fn incremental_delivery_says_whether_more_follows() {
        let now = Instant::now();
        let mut multipart = Multipart::new(MultipartForm::Incremental, None, now);
        multipart.next(r#"{"data":1}"#.into());
        multipart.next("{}".into());
        multipart.complete();
        let text = drain(&mut multipart, now);
        assert_eq!(parts(&text), [r#"{"hasNext":true,"data":1}"#, "{}", r#"{"hasNext":false}"#]);
    }

    #[test]
    fn a_failure_is_the_last_part() {
        let now = Instant::now();
        for (form, expected) in [
            (MultipartForm::Subscription, r#"{"payload":null,"errors":[{"message":"no"}]}"#),
            (MultipartForm::Incremental, r#"{"hasNext":false,"errors":[{"message":"no"}]}"#),
        ] {
            let mut multipart = Multipart::new(form, None, now);
            multipart.fail(br#"{"errors":[{"message":"no"}]}"#);
            multipart.complete();
            assert_eq!(parts(&drain(&mut multipart, now)), [expected]);
        }
    }

    #[test]
    fn a_position_is_a_header_of_a_heartbeat_in_the_format_that_has_one() {
        let now = Instant::now();
        for (form, expected) in [
            (
                MultipartForm::Subscription,
                "\r\ncontent-type: application/json\r\ncursor: Abc-_9\r\n\r\n{}\r\n--graphql",
            ),
            (MultipartForm::Incremental, ""),
        ] {
            let mut multipart = Multipart::new(form, None, now);
            drain(&mut multipart, now);
            multipart.position("Abc-_9".into());
            assert_eq!(drain(&mut multipart, now), expected, "{form:?}");
            multipart.complete();
            drain(&mut multipart, now);
            multipart.position("late".into());
            assert_eq!(drain(&mut multipart, now), "", "{form:?}");
        }
        let cursor = Bytes::from_static(b"Abc-_9");
        let part = position_part(MultipartForm::Subscription, cursor.clone()).expect("it has one");
        assert_eq!(part.body.as_ptr(), cursor.as_ptr());
    }

    #[test]
    fn a_part_ends_with_a_delimiter_and_shares_its_payload() {
        let payload = Bytes::from_static(br#"{"data":null}"#);
        for form in [MultipartForm::Subscription, MultipartForm::Incremental] {
            let part = next_part(form, payload.clone());
            assert!(part.to_vec().ends_with(b"\r\n--graphql"));
            assert!(payload.as_ptr_range().contains(&part.body.as_ptr()));
        }
    }

    #[test]
    fn a_quiet_response_sends_heartbeats_that_are_not_results() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for (form, sign) in
            [(MultipartForm::Subscription, vec!["{}"]), (MultipartForm::Incremental, vec![])]
        {
            let mut multipart = Multipart::new(form, Some(Duration::from_secs(5)), start);
            let mut text = drain(&mut multipart, at(1));
            assert_eq!(text, "\r\n--graphql");
            assert_eq!(multipart.poll_timeout(), Some(at(6)));
            multipart.handle_timeout(at(5));
            assert_eq!(drain(&mut multipart, at(5)), "");
            multipart.handle_timeout(at(6));
            text += &drain(&mut multipart, at(6));
            multipart.fail(b"{\"errors\":[]}");
            text += &drain(&mut multipart, at(7));
            assert_eq!(multipart.poll_timeout(), None);
            let mut read = parts(&text);
            read.pop();
            assert_eq!(read, sign, "{form:?}");
        }
    }
}
