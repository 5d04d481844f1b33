//! The results of evaluations: values, and the limit and errors of those without one.

use std::borrow::Cow;

/// The maximum number of steps that all loops of an evaluation take together.
pub const STEPS_MAX: u32 = 10_000;

/// The value of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A text.
    Text(Box<str>),
    /// A whole number.
    Integer(i64),
    /// A decimal number.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// No value: null, or an optional value that is absent.
    Null,
}

impl Value {
    /// Returns the value as a text; `None` if it is null.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Text(text) => Some(Cow::Borrowed(text)),
            Self::Integer(number) => Some(Cow::Owned(number.to_string())),
            Self::Float(number) => Some(Cow::Owned(number.to_string())),
            Self::Bool(value) => Some(Cow::Borrowed(if *value { "true" } else { "false" })),
            Self::Null => None,
        }
    }
}

/// The reason why an expression has no value. It never contains values of headers or claims.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluationError {
    /// A fact that the program needs is absent.
    #[error("`{fact}` is absent")]
    Absent {
        /// The fact as the expression names it.
        fact: Box<str>,
    },
    /// A list or map has no such element.
    #[error("an element is absent")]
    NoElement,
    /// An operator or function got a value of another type.
    #[error("a value has the wrong type")]
    WrongType,
    /// A number is too large, or is divided by zero.
    #[error("a number is out of range")]
    OutOfRange,
    /// A text does not have the form of a number.
    #[error("a text is not a number")]
    NotANumber,
    /// The program took too many steps.
    #[error("it took more than {} steps", STEPS_MAX)]
    TooManySteps,
    /// A value is too large.
    #[error("a value is too large")]
    TooLarge,
    /// The interpreter failed.
    #[error("it cannot be evaluated")]
    Failed,
}
