//! What execution hands out: the printed answer.

use bytes::Bytes;

/// One printed answer: `{"data":…,"errors":…}`, `extensions` last if there are any. Cheap to clone;
/// every subscriber of a group gets the same bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Payload {
    /// JSON text.
    pub bytes: Bytes,
    /// Offset in `bytes` where a recipient's own `extensions` members may be inserted: before the closing
    /// brace of the answer, or, where the answer has `extensions` already, before theirs.
    pub splice: usize,
    /// Does the answer have a `data` entry (even null)? Without one it is a request error, which
    /// decides the HTTP status (GraphQL over HTTP, section 6.4.2).
    pub has_data: bool,
    /// How many errors it carries.
    pub errors: u32,
}
