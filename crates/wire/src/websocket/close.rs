//! Close codes and reasons (RFC 6455, sections 5.5.1 and 7.4).

use std::fmt;

/// The maximum length of a close reason in bytes: a control frame carries 125, two of which are the code.
pub(super) const REASON_BYTES_MAX: usize = 123;

/// The number in a close frame that states why a connection closed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CloseCode(pub u16);

impl CloseCode {
    /// The connection has done its work.
    pub const NORMAL: CloseCode = CloseCode(1000);
    /// The server shuts down, or the user left the page.
    pub const GOING_AWAY: CloseCode = CloseCode(1001);
    /// The peer broke RFC 6455.
    pub const PROTOCOL_ERROR: CloseCode = CloseCode(1002);
    /// The receiver does not accept this kind of message.
    pub const UNSUPPORTED: CloseCode = CloseCode(1003);
    /// Never sent: the peer's close frame had no code.
    pub const NO_STATUS: CloseCode = CloseCode(1005);
    /// Never sent: the connection was lost without a close frame.
    pub const ABNORMAL: CloseCode = CloseCode(1006);
    /// A text message was not UTF-8.
    pub const INVALID_PAYLOAD: CloseCode = CloseCode(1007);
    /// The peer broke a rule of the receiver that has no code of its own.
    pub const POLICY: CloseCode = CloseCode(1008);
    /// A message was over the size limit.
    pub const TOO_BIG: CloseCode = CloseCode(1009);
    /// The server failed.
    pub const INTERNAL: CloseCode = CloseCode(1011);
    /// The server restarts; the client should reconnect.
    pub const SERVICE_RESTART: CloseCode = CloseCode(1012);
    /// The server is overloaded; the client should reconnect later.
    pub const TRY_AGAIN_LATER: CloseCode = CloseCode(1013);

    /// True if a close frame may contain the code: it is defined by RFC 6455 or its registry, or is in the ranges for
    /// libraries and applications.
    pub fn may_be_sent(self) -> bool {
        matches!(self.0, 1000..=1003 | 1007..=1014 | 3000..=4999)
    }
}

impl fmt::Debug for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The side that ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedBy {
    /// This side sent the first close frame, or failed the connection because the peer broke a rule.
    Us,
    /// The peer sent the first close frame.
    Peer,
    /// Neither side: the transport ended, or the peer stopped responding.
    Loss,
}

/// The end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The code of the first close frame, or [`CloseCode::ABNORMAL`] without one.
    pub code: CloseCode,
    /// The reason in that frame, often empty.
    pub reason: Box<str>,
    /// The side that ended the connection.
    pub by: ClosedBy,
}

/// Returns the longest prefix of `reason` that fits a close frame and ends between two characters.
pub(super) fn fit_reason(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)]
}

/// Returns the payload of a close frame; empty for [`CloseCode::NO_STATUS`].
pub(super) fn payload(code: CloseCode, reason: &str) -> Vec<u8> {
    if code == CloseCode::NO_STATUS {
        return Vec::new();
    }
    let reason = fit_reason(reason);
    let mut payload = Vec::with_capacity(2 + reason.len());
    payload.extend_from_slice(&code.0.to_be_bytes());
    payload.extend_from_slice(reason.as_bytes());
    payload
}

/// The reason that a connection must be failed (RFC 6455, section 7.1.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(super) code: CloseCode,
    pub(super) reason: &'static str,
}

/// A message is over the size limit.
pub(super) const TOO_BIG: Failure =
    Failure { code: CloseCode::TOO_BIG, reason: "message is too big" };

/// A text message contains bytes that are not UTF-8.
pub(super) const NOT_UTF8: Failure =
    Failure { code: CloseCode::INVALID_PAYLOAD, reason: "text is not UTF-8" };

impl Failure {
    pub(super) fn protocol(reason: &'static str) -> Failure {
        Failure { code: CloseCode::PROTOCOL_ERROR, reason }
    }
}

/// Reads the payload of a close frame.
pub(super) fn parse(payload: &[u8]) -> Result<(CloseCode, Box<str>), Failure> {
    match payload {
        [] => Ok((CloseCode::NO_STATUS, "".into())),
        [_] => Err(Failure::protocol("close frame with half a code")),
        [high, low, reason @ ..] => {
            let code = CloseCode(u16::from_be_bytes([*high, *low]));
            if !code.may_be_sent() {
                return Err(Failure::protocol("close code that must not be sent"));
            }
            let reason = std::str::from_utf8(reason).map_err(|_| Failure {
                code: CloseCode::INVALID_PAYLOAD,
                reason: "close reason is not UTF-8",
            })?;
            Ok((code, reason.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let reason = "é".repeat(100);
        assert_eq!(fit_reason(&reason), "é".repeat(61));
        assert_eq!(fit_reason("short"), "short");
    }

    #[test]
    fn codes_that_only_describe_an_absence_are_never_on_the_wire() {
        let refused = [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535];
        for code in refused {
            assert!(!CloseCode(code).may_be_sent(), "{code}");
        }
        for code in [1000, 1001, 1003, 1007, 1011, 1014, 3000, 4400, 4999] {
            assert!(CloseCode(code).may_be_sent(), "{code}");
        }
    }
}
