//! The reason why a value of the configuration does not have its format.

use std::borrow::Cow;
use std::ops::Range;

/// The reason why a text does not have a format.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    /// The mistake. It may repeat parts of the text, so it must not be shown for secrets and variables.
    pub(super) reason: Cow<'static, str>,
    /// The text to write instead, if a better one than the general help is known.
    pub(super) instead: Option<String>,
    /// The part of the text with the mistake; `None` for the whole text.
    pub(super) part: Option<Range<usize>>,
}

impl<T: Into<Cow<'static, str>>> From<T> for Complaint {
    fn from(reason: T) -> Self {
        Self { reason: reason.into(), instead: None, part: None }
    }
}
