//! Why an operation cannot be prepared, or its variables not be used. Each becomes a GraphQL
//! request error at the rim.

use apollo_compiler::validation::DiagnosticList;

use crate::limits::Limit;

/// An operation that cannot run.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum PrepareError {
    /// The document is not GraphQL.
    #[error("the document does not parse: {}", first(.0))]
    Syntax(Vec<Problem>),
    /// The document does not fit the schema.
    #[error("the document is not valid: {}", first(.0))]
    Validation(Vec<Problem>),
    /// Several operations and no name, an unknown name, or no operation at all.
    #[error("{0}")]
    UnknownOperation(String),
    /// A configured limit.
    #[error("the operation exceeds the limit of {maximum} {} (`limits.{}`)", limit.unit(), limit.key())]
    Limit {
        /// Which.
        limit: Limit,
        /// The configured value.
        maximum: usize,
    },
    /// Variable values that do not fit their types.
    #[error("{}", first(.0))]
    Variables(Vec<Problem>),
    /// No plan answers it.
    #[error(transparent)]
    Plan(plan::PlanError),
    /// A defect of the router.
    #[error("{0}")]
    Internal(String),
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// What and why.
    pub message: String,
    /// Line and column in the document, from 1.
    pub locations: Vec<(u32, u32)>,
}

impl Problem {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), locations: Vec::new() }
    }
}

fn first(problems: &[Problem]) -> &str {
    problems.first().map_or("unknown reason", |problem| &problem.message)
}

/// How many problems one answer names; a document with thousands helps nobody.
pub(crate) const PROBLEMS_MAX: usize = 50;

pub(crate) fn problems(diagnostics: &DiagnosticList) -> Vec<Problem> {
    diagnostics
        .iter()
        .take(PROBLEMS_MAX)
        .map(|diagnostic| Problem {
            message: diagnostic.error.to_string(),
            locations: diagnostic
                .line_column_range()
                .map(|range| (range.start.line as u32, range.start.column as u32))
                .into_iter()
                .collect(),
        })
        .collect()
}
