//! Tells one recipient what it lost, in a payload that others share: only this recipient copies.

use bytes::Bytes;
use execute::Payload;

/// The payload's bytes, with `extensions.lost` if something was lost before it.
pub(crate) fn with_lost(payload: Payload, lost: u64) -> Bytes {
    if lost == 0 { payload.bytes } else { payload.with_extension("lost", &lost.to_string()).bytes }
}
