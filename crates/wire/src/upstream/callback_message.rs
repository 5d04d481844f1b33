//! The messages of the HTTP callback protocol, and the responses to them.

use std::fmt;
use std::hint::black_box;

use astjson::{Kind, outline_members};
use bytes::Bytes;

use crate::server_message::string;

/// The value of the `subscription-protocol` header.
pub(super) const PROTOCOL_VERSION: &str = "callback/1.0";

/// The id of a subscription: a random UUID of version 4.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallbackId(u128);

impl CallbackId {
    /// Returns the id of these random bytes, of which six bits are constant (RFC 9562, section 5.4).
    pub(super) fn from_entropy(entropy: [u8; 16]) -> CallbackId {
        let (version, variant) = ((0xf << 76, 0x4 << 76), (0x3 << 62, 0x2 << 62));
        let random = u128::from_be_bytes(entropy) & !version.0 & !variant.0;
        CallbackId(random | version.1 | variant.1)
    }

    /// Reads an id in the form in which this side writes it.
    pub fn parse(text: &str) -> Option<CallbackId> {
        let hex: String = text.split('-').collect();
        let id = CallbackId(u128::from_str_radix(&hex, 16).ok()?);
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for CallbackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", self.0);
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        f.write_str(&parts.join("-"))
    }
}

impl fmt::Debug for CallbackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A message that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackAction {
    /// A heartbeat, or the question of the server before its response.
    Check,
    /// A result.
    Next,
    /// The end of the subscription.
    Complete,
}

impl CallbackAction {
    /// Returns the status of the response. The specification fixes the first; the others are those that servers see
    /// from other routers.
    pub fn status(self) -> u16 {
        match self {
            CallbackAction::Check => 204,
            CallbackAction::Next => 200,
            CallbackAction::Complete => 202,
        }
    }
}

/// The reason that a callback was refused. Only [`CallbackRejection::InvalidResult`] ends a subscription: other
/// requests need not come from its server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallbackRejection {
    /// The body is over the limit.
    #[error("the callback is larger than the limit of {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The header names another version of the protocol.
    #[error("the callback is not of protocol `callback/1.0`")]
    UnsupportedProtocol,
    /// The body is not a message of the protocol. The text names the defect.
    #[error("the callback is invalid: {0}")]
    Malformed(&'static str),
    /// The subscription is not in progress: it has ended, or never was.
    #[error("the callback names a subscription that is not in progress")]
    UnknownSubscription,
    /// The verifier is not that of the subscription.
    #[error("the callback has a wrong verifier")]
    WrongVerifier,
    /// The server sent a result that is not a GraphQL response, and its subscription has ended.
    #[error("the callback has an invalid result: {0}")]
    InvalidResult(&'static str),
}

impl CallbackRejection {
    /// Returns the status of the response. A server ends its subscription at 404, and as failed at other ones.
    pub fn status(&self) -> u16 {
        match self {
            CallbackRejection::TooLarge { .. } => 413,
            CallbackRejection::UnsupportedProtocol
            | CallbackRejection::Malformed(_)
            | CallbackRejection::InvalidResult(_) => 400,
            CallbackRejection::UnknownSubscription => 404,
            CallbackRejection::WrongVerifier => 403,
        }
    }
}

/// The body of a callback.
pub(super) struct CallbackMessage {
    pub(super) action: CallbackAction,
    pub(super) id: Box<str>,
    pub(super) verifier: Box<str>,
    pub(super) payload: Option<Bytes>,
    pub(super) errors: Option<Bytes>,
}

impl CallbackMessage {
    /// Reads a body. A member that occurs twice is refused: readers differ in which of the two counts.
    pub(super) fn parse(body: &Bytes) -> Result<CallbackMessage, CallbackRejection> {
        let malformed = CallbackRejection::Malformed;
        const NAMES: [&str; 6] = ["kind", "action", "id", "verifier", "payload", "errors"];
        let mut members: [Option<Bytes>; NAMES.len()] = Default::default();
        let mut is_repeated = false;
        let read = outline_members(body, |key, value| {
            if let Some(at) = NAMES.iter().position(|name| *name == key) {
                is_repeated |= members[at].replace(value).is_some();
            }
        });
        match read {
            Ok(Kind::Object) if is_repeated => return Err(malformed("a member occurs twice")),
            Ok(Kind::Object) => {}
            Ok(_) => return Err(malformed("not a JSON object")),
            Err(_) => return Err(malformed("not JSON")),
        }
        let [kind, action, id, verifier, payload, errors] = members;
        let text = |member: Option<Bytes>| member.as_ref().and_then(string).map(Box::<str>::from);
        if text(kind).as_deref() != Some("subscription") {
            return Err(malformed("`kind` must be `subscription`"));
        }
        let action = match text(action).as_deref() {
            Some("check") => CallbackAction::Check,
            Some("next") => CallbackAction::Next,
            Some("complete") => CallbackAction::Complete,
            _ => return Err(malformed("`action` must be `check`, `next` or `complete`")),
        };
        let id = text(id).ok_or(malformed("`id` must be a string"))?;
        let verifier = text(verifier).ok_or(malformed("`verifier` must be a string"))?;
        let errors = errors.filter(|errors| *errors != "null");
        Ok(CallbackMessage { action, id, verifier, payload, errors })
    }
}

/// True if both are equal. The time depends on the lengths only, so that a verifier cannot be guessed byte by byte.
pub(super) fn is_equal_in_constant_time(expected: &[u8], given: &[u8]) -> bool {
    if expected.len() != given.len() {
        return false;
    }
    let difference = expected.iter().zip(given).fold(0, |all, (a, b)| black_box(all | (a ^ b)));
    difference == 0
}
