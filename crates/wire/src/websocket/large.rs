//! The bounds of a client's messages, and messages that are too expensive for the thread that received them: another
//! thread expands and parses those while their connection waits.

use bytes::Bytes;

use super::close::{CloseCode, Failure, NOT_UTF8, TOO_BIG};

/// Bounds of the work that one client may cause for a server that serves many connections on one thread. Only the
/// server's side has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientBounds {
    /// The maximum size of a message before the server has acknowledged the client, also after the message is expanded.
    pub init_message_bytes_max: usize,
    /// The maximum size of all messages together before the acknowledgement, after they are expanded. Each message
    /// counts [`MESSAGE_COST`] bytes more.
    pub init_bytes_max: usize,
    /// The maximum size of a message that is expanded and parsed where it is received. A larger one becomes a
    /// [`LargeMessage`].
    pub inline_bytes_max: usize,
    /// The number of message bytes, after expansion, at which one call of `receive` stops. The rest waits for the next
    /// call. Each message counts [`MESSAGE_COST`] bytes more.
    pub turn_bytes_max: usize,
    /// The maximum ratio of a compressed message's size after and before expansion, above
    /// [`ClientBounds::expansion_floor`].
    pub expansion_ratio_max: usize,
    /// The size that any compressed message may expand to, whatever the ratio.
    pub expansion_floor: usize,
}

impl Default for ClientBounds {
    /// Returns defaults with these reasons:
    /// - 16 KiB for one message before the acknowledgement: as much as the headers of a request, which the payload of
    ///   `connection_init` replaces. Four such messages in all.
    /// - 32 KiB at a time: expanding and parsing them takes 0.3 ms.
    /// - A hundredfold expansion: documents and variables that people write expand tenfold, long lists of numbers
    ///   thirtyfold. Deflate reaches 1,030.
    fn default() -> ClientBounds {
        ClientBounds {
            init_message_bytes_max: 16 << 10,
            init_bytes_max: 64 << 10,
            inline_bytes_max: 32 << 10,
            turn_bytes_max: 32 << 10,
            expansion_ratio_max: 100,
            expansion_floor: 64 << 10,
        }
    }
}

/// The fixed cost of a message, as the number of bytes of a long message that cost as much.
pub const MESSAGE_COST: usize = 256;

impl ClientBounds {
    /// Returns the maximum size that a compressed message of `compressed` bytes may expand to.
    pub(super) fn expanded_bytes_max(&self, compressed: usize) -> usize {
        compressed.saturating_mul(self.expansion_ratio_max).max(self.expansion_floor)
    }
}

/// A whole message as it was received. Clones share its bytes. Its connection processes nothing else until it gets the
/// [`ReadMessage`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LargeMessage {
    pub(super) bytes: Bytes,
    pub(super) is_text: bool,
    pub(super) is_compressed: bool,
    pub(super) expanded_bytes_max: usize,
}

/// A [`LargeMessage`] after it was expanded and parsed.
#[derive(Debug)]
pub struct ReadMessage<T>(pub(crate) ReadContents<T>);

#[derive(Debug)]
pub(crate) enum ReadContents<T> {
    Text(T),
    Binary(Bytes),
    Failed(Failure),
}

impl<T> ReadMessage<T> {
    /// Returns the replacement of a message that could not be read because of a defect: its connection closes with
    /// 1011.
    pub fn broken_off() -> Self {
        let reason = "the message could not be read";
        Self(ReadContents::Failed(Failure { code: CloseCode::INTERNAL, reason }))
    }

    /// Returns the replacement of a message that waited for too long: its connection closes with 1013.
    pub fn too_late() -> Self {
        let reason = "too many large messages are waiting to be read; try again later";
        Self(ReadContents::Failed(Failure { code: CloseCode::TRY_AGAIN_LATER, reason }))
    }
}

impl LargeMessage {
    /// Returns the size of the message as it was received.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True if the message has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Expands the message and parses its text. Takes up to 20 ms for 2 MiB.
    pub fn read<T>(self, parse: fn(Bytes) -> T) -> ReadMessage<T> {
        let Self { bytes, is_text, is_compressed, expanded_bytes_max } = self;
        let expanded = match is_compressed {
            true => expand(&bytes, expanded_bytes_max).map(Bytes::from),
            false => Ok(bytes),
        };
        ReadMessage(match expanded {
            Err(failure) => ReadContents::Failed(failure),
            Ok(bytes) if !is_text => ReadContents::Binary(bytes),
            // Text that was not compressed was checked when it was received.
            Ok(bytes) if is_compressed && std::str::from_utf8(&bytes).is_err() => {
                ReadContents::Failed(NOT_UTF8)
            }
            Ok(bytes) => ReadContents::Text(parse(bytes)),
        })
    }
}

/// Expands a message to at most `limit` bytes.
pub(super) fn expand(bytes: &[u8], limit: usize) -> Result<Vec<u8>, Failure> {
    coding::inflate_message(bytes, limit).map_err(|error| match error {
        coding::ExpandError::TooLarge(_) => TOO_BIG,
        coding::ExpandError::Broken { .. } => {
            Failure { code: CloseCode::INVALID_PAYLOAD, reason: "message is not valid deflate" }
        }
    })
}
