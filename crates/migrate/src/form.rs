//! Forms: how the values of keys are read and written.

/// The form of a value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    Text,
    Bool,
    /// The opposite of a truth value.
    Not,
    Number,
    Duration,
    /// A number of seconds, which becomes a duration.
    Seconds,
    Size,
    Address,
    /// A list of texts, or one of them.
    Texts,
    /// One of a few words, each with its counterpart.
    Words(&'static [(&'static str, &'static str)]),
    /// A share of 0 to 1, which becomes a percentage.
    Share,
    /// A percentage with or without its sign, which becomes a number.
    Percent,
}

impl Form {
    /// True if values are rewritten: a variable must have the result as its value.
    pub(crate) fn is_of_router(self) -> bool {
        matches!(self, Self::Duration | Self::Size | Self::Address | Self::Words(_))
    }
}
