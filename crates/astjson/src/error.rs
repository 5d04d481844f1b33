//! Errors of parsing and merging, and the place in the text.

use std::fmt;

/// Reason why a text was refused, and the byte at which that became clear.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// The kind of error.
    pub kind: ParseErrorKind,
    /// Offset into the text, in bytes.
    pub offset: usize,
}

/// Kinds of parse errors. Sections are those of RFC 8259.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// The text ends inside a value, or holds none.
    UnexpectedEnd,
    /// A value was expected here (section 3).
    ExpectedValue,
    /// A member name in quotes was expected here (section 4).
    ExpectedKey,
    /// `:` was expected here (section 4).
    ExpectedColon,
    /// `,` or the end of the array or object was expected here (sections 4, 5).
    ExpectedCommaOrEnd,
    /// Something follows the value (section 2).
    TrailingCharacters,
    /// The number does not follow section 6.
    InvalidNumber,
    /// `\` is followed by something that is not an escape (section 7).
    InvalidEscape,
    /// A character below U+0020 is not escaped in a string (section 7).
    ControlCharacter,
    /// The text is not valid UTF-8 (section 8.1).
    InvalidUtf8,
    /// Arrays and objects are nested deeper than the limit of the document.
    TooDeep,
    /// The text, or the arena with it, is larger than 32-bit positions reach.
    TooLarge,
    /// A scalar is required, and this is an array or object.
    NotAScalar,
}

impl fmt::Display for ParseErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnexpectedEnd => "the text ends too early",
            Self::ExpectedValue => "a value was expected",
            Self::ExpectedKey => "a key in double quotes was expected",
            Self::ExpectedColon => "':' was expected",
            Self::ExpectedCommaOrEnd => "',' or the end of the array or object was expected",
            Self::TrailingCharacters => "something follows the value",
            Self::InvalidNumber => "the number is malformed",
            Self::InvalidEscape => "the escape is not one JSON knows",
            Self::ControlCharacter => "a control character must be escaped in a string",
            Self::InvalidUtf8 => "the text is not valid UTF-8",
            Self::TooDeep => "arrays and objects are nested too deeply",
            Self::TooLarge => "the text is too large",
            Self::NotAScalar => "an array or object stands where a scalar was expected",
        })
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.kind, self.offset)
    }
}

impl std::error::Error for ParseError {}

/// Reason why a merge stopped. Merges done before stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MergeError {
    /// Two arrays of different length met.
    ArrayLength {
        /// Elements in the target.
        target: usize,
        /// Elements in the source.
        source: usize,
    },
    /// The values are nested deeper than [`WALK_DEPTH_MAX`](crate::WALK_DEPTH_MAX).
    TooDeep,
    /// The path leads through a value that is no object or array, or past the end of an array.
    NoSuchPath {
        /// The segment of the path, counted from 0.
        segment: usize,
    },
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ArrayLength { target, source } => {
                write!(f, "arrays of {target} and {source} elements cannot be merged")
            }
            Self::TooDeep => f.write_str("the values are nested too deeply to be merged"),
            Self::NoSuchPath { segment } => {
                write!(f, "segment {segment} of the path leads nowhere")
            }
        }
    }
}

impl std::error::Error for MergeError {}
