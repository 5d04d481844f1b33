//! The errors of building a subgraph and of resolving a field.

/// The reason for which a subgraph could not be built.
#[derive(Debug, thiserror::Error)]
pub enum SubgraphError {
    /// The SDL is not a valid schema, even if unknown directives are ignored.
    #[error("the subgraph's schema is not valid:\n{0}")]
    Schema(String),
    /// A record or resolver names a type, field or member that the schema does not have.
    #[error("the subgraph's data does not fit its schema: {0}")]
    Data(String),
}

/// The reason for which a field has no value; it becomes a GraphQL error with the path of the field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The `message` of the GraphQL error.
    pub message: String,
    /// The `extensions.code` of the GraphQL error.
    pub code: Option<String>,
}

impl FieldError {
    /// Creates an error with a message and a code.
    pub fn with_code(message: impl Into<String>, code: impl Into<String>) -> Self {
        Self { message: message.into(), code: Some(code.into()) }
    }
}

impl From<&str> for FieldError {
    fn from(message: &str) -> Self {
        Self { message: message.to_owned(), code: None }
    }
}

impl From<String> for FieldError {
    fn from(message: String) -> Self {
        Self { message, code: None }
    }
}
