//! The values of a request that are read once its operation is known: variables, and the cursor of a subscription.

use bytes::Bytes;
use clients::request_extensions::{NotAString, string_member};
use http::HeaderMap;
use plan::{OperationKind, Variables};
use prepare::{OperationRequest, PrepareError, Prepared};

/// The texts of a request that are parsed once its operation is known.
pub(super) struct UnparsedValues {
    variables: Bytes,
    /// The extensions of a subscription, if they may contain the cursor; otherwise empty.
    extensions: Bytes,
    /// The cursor of a subscription, from a header.
    cursor: Option<Box<str>>,
}

/// The values that were parsed from [`UnparsedValues`].
pub(super) struct ParsedValues {
    pub(super) variables: Variables,
    /// The text of the declared variables, of subscriptions and live queries only.
    pub(super) variables_text: Bytes,
    pub(super) resume: Result<Option<Box<str>>, NotAString>,
}

/// The header in which browsers send the id of the last event of an interrupted stream.
const LAST_EVENT_ID: &str = "last-event-id";

impl UnparsedValues {
    /// Takes the texts of a request. Prefers the cursor in the header: a browser that reconnects repeats the extensions
    /// of its first request, and sends the last cursor that it received in the header.
    pub(super) fn of(kind: OperationKind, request: &OperationRequest, headers: &HeaderMap) -> Self {
        let variables = request.variables.clone();
        let mut values = Self { variables, extensions: Bytes::new(), cursor: None };
        if kind == OperationKind::Subscription {
            let id = headers.get(LAST_EVENT_ID).filter(|id| !id.is_empty());
            values.cursor = id.map(|id| String::from_utf8_lossy(id.as_bytes()).into());
            if values.cursor.is_none() {
                values.extensions = request.extensions.clone();
            }
        }
        values
    }

    /// The number of bytes to parse.
    pub(super) fn bytes(&self) -> usize {
        self.variables.len() + self.extensions.len()
    }

    /// Parses the values of the variables, the declared variables of a subscription as text, and the cursor.
    pub(super) fn read(self, prepared: &Prepared) -> Result<ParsedValues, PrepareError> {
        let variables = prepared.coerce(&self.variables)?;
        let variables_text = match prepared.has_stream() {
            true => prepared.declared_variables(&self.variables),
            false => Bytes::new(),
        };
        let resume = match self.cursor {
            Some(cursor) => Ok(Some(cursor)),
            None => string_member(&self.extensions, "cursor").map(|it| it.map(Into::into)),
        };
        Ok(ParsedValues { variables, variables_text, resume })
    }
}

#[cfg(test)]
mod tests {
    use clients::offload::INLINE_BYTES_MAX;

    use super::*;

    fn request(extensions: String) -> OperationRequest {
        OperationRequest { extensions: extensions.into(), ..OperationRequest::default() }
    }

    #[test]
    fn extensions_of_subscriptions_are_parsed_and_those_of_queries_are_not() {
        let large = request(format!(r#"{{"x":[{}0]}}"#, "1,".repeat(INLINE_BYTES_MAX)));
        let bytes = |kind, headers: &HeaderMap| UnparsedValues::of(kind, &large, headers).bytes();
        assert!(bytes(OperationKind::Subscription, &HeaderMap::new()) > INLINE_BYTES_MAX);
        assert_eq!(bytes(OperationKind::Query, &HeaderMap::new()), 0);
        let value = http::HeaderValue::from_static("cursor");
        let with_header = HeaderMap::from_iter([(LAST_EVENT_ID.parse().expect("a name"), value)]);
        assert_eq!(bytes(OperationKind::Subscription, &with_header), 0);
    }
}
