//! Errors of preparing an operation and of its variables. At the edge of the router each becomes a GraphQL request
//! error with an [`execute::ErrorCode`]; this crate knows no codes.

use apollo_compiler::diagnostic::{Diagnostic, ToCliReport};
use apollo_compiler::parser::{SourceMap, SourceSpan};
use apollo_compiler::validation::{DiagnosticData, DiagnosticList};

use crate::diagnostic_text::rewrite_message;

/// Reason why an operation cannot be prepared.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum PrepareError {
    /// The document is not GraphQL.
    #[error("the document does not parse: {}", first_message(.0))]
    Syntax(Vec<Problem>),
    /// The document does not fit the schema.
    #[error("the document is not valid: {}", first_message(.0))]
    Validation(Vec<Problem>),
    /// Several operations and no name, an unknown name, or no operation at all.
    #[error("{0}")]
    UnknownOperation(String),
    /// A configured limit.
    #[error("the operation exceeds the limit of {maximum} {} (`limits.{}`)", limit.unit(), limit.key())]
    Limit {
        /// The limit that is exceeded.
        limit: Limit,
        /// The configured value.
        maximum: usize,
    },
    /// Variable values that do not fit their types.
    #[error("{}", first_message(.0))]
    Variables(Vec<Problem>),
    /// The operation cannot be planned.
    #[error(transparent)]
    Plan(plan::PlanError),
    /// The client may not use the root field of its subscription, which has this response key.
    #[error("the client may not subscribe to this field")]
    Denied(Box<str>),
    /// Too many operations wait to be prepared (`limits.preparing_waiting`), or this one waited until its deadline.
    #[error("too many operations are waiting to be prepared; try again later")]
    Overloaded,
    /// A defect of the router.
    #[error("{0}")]
    Internal(String),
}

/// The name of one of [`crate::Limits`], with its configuration key and unit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Limit {
    /// The limit [`crate::Limits::tokens`].
    Tokens,
    /// The limit [`crate::Limits::depth`].
    Depth,
    /// The limit [`crate::Limits::aliases`].
    Aliases,
    /// The limit [`crate::Limits::root_fields`].
    RootFields,
    /// The limit [`crate::Limits::selections`].
    Selections,
}

impl Limit {
    /// The key under `limits` in the configuration.
    pub fn key(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Depth => "depth",
            Self::Aliases => "aliases",
            Self::RootFields => "root_fields",
            Self::Selections => "selections",
        }
    }

    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Depth => "levels of nesting",
            Self::Aliases => "aliases",
            Self::RootFields => "root fields",
            Self::Selections => "selections after inlining fragments",
        }
    }
}

/// One error in a document or a variable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The error and its reason.
    pub message: String,
    /// Line and column in the document, from 1.
    pub locations: Vec<(u32, u32)>,
}

impl Problem {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), locations: Vec::new() }
    }

    pub(crate) fn at(
        message: impl Into<String>,
        span: Option<SourceSpan>,
        sources: &SourceMap,
    ) -> Self {
        let place = span.and_then(|span| span.line_column(sources));
        let place = place.map(|it| (line_or_column(it.line), line_or_column(it.column)));
        Self { message: message.into(), locations: place.into_iter().collect() }
    }
}

/// Converts a number. Texts are far shorter than `u32`; a longer one gets the last number.
fn line_or_column(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn first_message(problems: &[Problem]) -> &str {
    problems.first().map_or("unknown reason", |problem| &problem.message)
}

/// Maximum number of problems in one response; thousands of them help no reader.
pub(crate) const PROBLEMS_MAX: usize = 50;

/// Maximum number of characters of one message; the parser quotes literals of any length.
const MESSAGE_MAX: usize = 500;

pub(crate) fn convert_diagnostics(diagnostics: &DiagnosticList) -> Vec<Problem> {
    diagnostics
        .iter()
        .take(PROBLEMS_MAX)
        .map(|diagnostic| Problem {
            message: shorten(message_of(&diagnostic), MESSAGE_MAX),
            locations: diagnostic
                .line_column_range()
                .map(|range| (line_or_column(range.start.line), line_or_column(range.start.column)))
                .into_iter()
                .collect(),
        })
        .collect()
}

fn message_of(diagnostic: &Diagnostic<'_, DiagnosticData>) -> String {
    let place = diagnostic.error.location();
    let source = place.and_then(|place| {
        let file = diagnostic.sources.get(&place.file_id())?;
        file.source_text().get(place.offset()..)
    });
    rewrite_message(diagnostic.error.to_string(), source)
}

/// Returns at most `characters` of `text`, with an ellipsis if there were more.
pub(crate) fn shorten(mut text: String, characters: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(characters) {
        text.truncate(end);
        text.push('…');
    }
    text
}
