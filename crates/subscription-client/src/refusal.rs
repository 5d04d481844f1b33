//! Single JSON responses to the request of a subscription: the errors for which the subgraph refuses it.

use astjson::{Kind, outline_members};
use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_TYPE;

use crate::endpoint::SubscriptionEndpoint;
use crate::http_exchange::{AttemptFailure, HttpResponse};

/// The media type that only GraphQL servers write, whatever the status is.
const GRAPHQL_RESPONSE: &str = "application/graphql-response+json";

/// True if the body is JSON.
pub(crate) fn is_json(response: &HttpResponse) -> bool {
    let media_type = media_type(response);
    media_type.eq_ignore_ascii_case("application/json") || is_graphql_response(response)
}

/// Reads a JSON response. Returns the errors of the GraphQL response, or `None` if it has none. With a status of
/// failure, a body that an intermediary may have written is an error instead.
pub(crate) async fn read_refusal(
    endpoint: &SubscriptionEndpoint,
    response: &mut HttpResponse,
) -> Result<Option<Bytes>, AttemptFailure> {
    let status = response.head.status;
    // Many servers refuse invalid operations with `application/json` and this status.
    let may_be_graphql = status.is_success() || status == StatusCode::BAD_REQUEST;
    if !may_be_graphql && !is_graphql_response(response) {
        return Err(AttemptFailure::of_status(status));
    }
    let settings = &endpoint.settings;
    let body = response.read_body(settings.message_bytes_max, settings.ack_timeout).await?;
    let errors = errors_of(&body);
    match errors {
        Some(errors) => Ok(errors),
        None if status.is_success() => {
            Err(AttemptFailure::permanent("the subgraph's response is not a JSON object"))
        }
        None => Err(AttemptFailure::of_status(status)),
    }
}

/// Returns the errors of a response if there are any. `None` if it is not a JSON object.
fn errors_of(body: &Bytes) -> Option<Option<Bytes>> {
    let mut errors = None;
    let read = outline_members(body, |name, value| {
        if name == "errors" {
            errors = Some(value).filter(is_filled_list);
        }
    });
    matches!(read, Ok(Kind::Object)).then_some(errors)
}

/// True if a valid JSON text is a list with elements.
fn is_filled_list(text: &Bytes) -> bool {
    text.strip_prefix(b"[").is_some_and(|rest| !rest.trim_ascii_start().starts_with(b"]"))
}

fn is_graphql_response(response: &HttpResponse) -> bool {
    media_type(response).eq_ignore_ascii_case(GRAPHQL_RESPONSE)
}

fn media_type(response: &HttpResponse) -> &str {
    let value = response.head.headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    value.and_then(|it| it.split(';').next()).unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_filled_lists_of_errors_refuse() {
        let errors = |body: &'static str| errors_of(&Bytes::from(body));
        assert_eq!(errors(r#"{"data":null}"#), Some(None));
        assert_eq!(errors(r#"{"errors":[ ],"data":null}"#), Some(None));
        assert_eq!(errors(r#"{"errors":null}"#), Some(None));
        assert_eq!(errors(r#"{"errors":[{}]}"#), Some(Some(Bytes::from("[{}]"))));
        assert_eq!(errors("[]"), None);
        assert_eq!(errors("<html>"), None);
    }
}
