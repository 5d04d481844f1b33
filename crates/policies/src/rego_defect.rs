//! The mistakes in rules in Rego, and the reasons why an evaluation decides nothing.

use std::time::Duration;

/// A mistake in Rego rules or their data.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct RegoDefect {
    /// The mistake, in one line.
    pub message: String,
    /// The name of the file, if it is in one.
    pub file: Option<Box<str>>,
    /// Line and column in that file, from 1.
    pub place: Option<(u32, u32)>,
}

/// The reason why an evaluation decides nothing. It never contains values of the input.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[cfg_attr(not(feature = "rego"), expect(dead_code, reason = "nothing is evaluated"))]
pub(crate) enum EvaluationDefect {
    /// The input cannot be read.
    #[error("the input cannot be read")]
    Input,
    /// The time limit.
    #[error("the evaluation takes longer than {0:?}")]
    Timeout(Duration),
    /// The rule has no value.
    #[error("the rule has no value for this input")]
    Undefined,
    /// The value is of another type.
    #[error("the value of the rule is neither a set of names nor an object of truth values")]
    Result,
    /// A failure of the evaluation, such as two values of one rule.
    #[error("the evaluation failed at line {line}, column {column} of {file}")]
    Failed {
        /// The name of the file.
        file: Box<str>,
        /// The line.
        line: u32,
        /// The column.
        column: u32,
    },
    /// A failure of the evaluation at a place that is not known.
    #[error("the evaluation failed")]
    FailedSomewhere,
    /// A defect of the interpreter.
    #[error(
        "the evaluation failed because of a defect of the interpreter; please report this with the rules"
    )]
    Panic,
}
