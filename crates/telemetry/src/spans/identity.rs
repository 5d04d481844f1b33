//! The ids of traces and spans.

use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};

use crate::HexDigits;

/// The id of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(NonZeroU128);

/// The id of a span.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(NonZeroU64);

impl TraceId {
    /// Draws an id.
    pub fn random() -> Self {
        // Zero is drawn once in 2^128 times.
        Self(NonZeroU128::new(fastrand::u128(..)).unwrap_or(NonZeroU128::MIN))
    }

    /// Returns the id with this number; `None` for zero, which is no id.
    pub fn new(number: u128) -> Option<Self> {
        NonZeroU128::new(number).map(Self)
    }

    /// Returns the number.
    pub fn get(self) -> u128 {
        self.0.get()
    }
}

impl SpanId {
    /// Draws an id.
    pub fn random() -> Self {
        // Zero is drawn once in 2^64 times.
        Self(NonZeroU64::new(fastrand::u64(..)).unwrap_or(NonZeroU64::MIN))
    }

    /// Returns the id with this number; `None` for zero, which is no id.
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// Returns the number.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(HexDigits::<32>::new(self.get()).as_str())
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "TraceId({self})")
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(HexDigits::<16>::new(self.get().into()).as_str())
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SpanId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_printed_with_all_digits_and_zero_is_none() {
        assert_eq!(TraceId::new(0xaf).map(|it| it.to_string()), Some(format!("{:032x}", 0xaf)));
        assert_eq!(SpanId::new(0xaf).map(|it| it.to_string()), Some("00000000000000af".into()));
        assert_eq!((TraceId::new(0), SpanId::new(0)), (None, None));
        assert_ne!(TraceId::random(), TraceId::random());
    }
}
