//! Ids as hexadecimal digits.

use crate::spans::identity::{SpanId, TraceId};

/// Parses a trace id of up to 32 hexadecimal digits.
pub(super) fn trace_id(text: &str) -> Option<TraceId> {
    TraceId::new(u128::from_str_radix(hex(text, 32)?, 16).ok()?)
}

/// Parses a span id of up to 16 hexadecimal digits.
pub(super) fn span_id(text: &str) -> Option<SpanId> {
    SpanId::new(u64::from_str_radix(hex(text, 16)?, 16).ok()?)
}

/// Returns a text of hexadecimal digits. Signs, which the standard library accepts, are no digits.
pub(super) fn hex(text: &str, length_max: usize) -> Option<&str> {
    let is_hex = !text.is_empty() && text.bytes().all(|it| it.is_ascii_hexdigit());
    Some(text).filter(|it| is_hex && it.len() <= length_max)
}
