//! Mapping from errors in preparing an operation to GraphQL errors, and from error codes to HTTP statuses.

use std::time::Instant;

use execute::{ErrorCode, GraphqlError, Location, PathSegment};
use http::StatusCode;
use prepare::{PrepareError, Problem};
use telemetry::LogLimit;

/// Returns the GraphQL errors of an operation that could not be prepared.
pub fn errors(error: &PrepareError) -> Vec<GraphqlError> {
    match error {
        PrepareError::Syntax(problems) => of(problems, ErrorCode::GraphqlParseFailed),
        PrepareError::Validation(problems) => of(problems, ErrorCode::GraphqlValidationFailed),
        PrepareError::Variables(problems) => of(problems, ErrorCode::BadUserInput),
        PrepareError::UnknownOperation(message) => {
            vec![GraphqlError::new(ErrorCode::OperationNotFound, message.clone())]
        }
        PrepareError::Limit { .. } => {
            vec![GraphqlError::new(ErrorCode::OperationLimitExceeded, error.to_string())]
        }
        PrepareError::Denied(field) => {
            let path = vec![PathSegment::Key(field.clone())];
            let error = GraphqlError::new(ErrorCode::UnauthorizedFieldOrType, error.to_string());
            vec![error.at(path)]
        }
        PrepareError::Overloaded => {
            vec![GraphqlError::no_room(error.to_string())]
        }
        PrepareError::Plan(plan::PlanError::NotSupported(message)) => {
            vec![GraphqlError::new(ErrorCode::NotSupported, message.clone())]
        }
        PrepareError::Plan(error) => {
            vec![GraphqlError::new(ErrorCode::PlanningFailed, error.to_string())]
        }
        PrepareError::Internal(message) => {
            // A client can repeat such an operation.
            static LIMIT: LogLimit = LogLimit::new();
            if let Some(suppressed) = LIMIT.admit(Instant::now()) {
                tracing::error!(
                    reason = message,
                    suppressed,
                    "preparing an operation failed because of a defect of the router"
                );
            }
            vec![GraphqlError::new(ErrorCode::InternalServerError, message.clone())]
        }
    }
}

fn of(problems: &[Problem], code: ErrorCode) -> Vec<GraphqlError> {
    let error = |problem: &Problem| {
        let mut error = GraphqlError::new(code, problem.message.clone());
        let locations = problem.locations.iter();
        error.locations = locations.map(|&(line, column)| Location { line, column }).collect();
        error
    };
    problems.iter().map(error).collect()
}

/// True if an operation with this error failed by a fault of the router, of a broker or of a subgraph. Otherwise it was
/// refused: its client may not have what it asks for, or not at present.
pub fn is_fault(code: ErrorCode) -> bool {
    code != ErrorCode::Overloaded && status(code).is_server_error()
}

/// Returns the HTTP status of a request error with this code, for a response whose media type gives statuses a meaning
/// (`application/graphql-response+json`; GraphQL over HTTP, section 6.4.2).
pub fn status(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorCode::Forbidden
        | ErrorCode::OperationBlocked
        | ErrorCode::PersistedDocumentRequired
        | ErrorCode::UnauthorizedFieldOrType => StatusCode::FORBIDDEN,
        ErrorCode::NotSupported => StatusCode::NOT_IMPLEMENTED,
        ErrorCode::Timeout => StatusCode::GATEWAY_TIMEOUT,
        ErrorCode::SubgraphRequestFailed
        | ErrorCode::DownstreamServiceError
        | ErrorCode::InvalidSubgraphValue => StatusCode::BAD_GATEWAY,
        ErrorCode::AuthenticationUnavailable
        | ErrorCode::SubgraphUnavailable
        | ErrorCode::ProviderUnavailable
        | ErrorCode::NoResponder
        | ErrorCode::GraphReloaded
        | ErrorCode::TokenRenewed
        | ErrorCode::ShuttingDown
        | ErrorCode::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
        // The response has a `data` entry.
        ErrorCode::PlanningFailed => StatusCode::OK,
        // Clients look for this code in a successful response, and then send the text.
        ErrorCode::PersistedQueryNotSupported | ErrorCode::PersistedQueryNotFound => StatusCode::OK,
        ErrorCode::PersistedDocumentNotFound => StatusCode::NOT_FOUND,
        ErrorCode::InternalServerError | ErrorCode::InvalidEvent => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        ErrorCode::SourceGone | ErrorCode::CursorExpired => StatusCode::GONE,
        ErrorCode::SlowSubscriber | ErrorCode::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::BadRequest
        | ErrorCode::CursorInvalid
        | ErrorCode::CursorForeign
        | ErrorCode::GraphqlParseFailed
        | ErrorCode::GraphqlValidationFailed
        | ErrorCode::OperationNotFound
        | ErrorCode::PersistedQueryHashMismatch
        | ErrorCode::BadUserInput
        | ErrorCode::OperationLimitExceeded
        | ErrorCode::CostEstimatedTooExpensive => StatusCode::BAD_REQUEST,
    }
}
