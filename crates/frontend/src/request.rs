//! Parsing a GraphQL request out of an HTTP request: JSON bodies and URL parameters (GraphQL over HTTP, section 5).

use std::cell::RefCell;

use astjson::{Document, Kind};
use bytes::Bytes;
use clients::request_extensions::has_persisted_query;
use prepare::OperationRequest;

/// The reason that a request is not a well-formed GraphQL request, in words, for the client.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct RequestError(String);

thread_local! {
    /// The parser of this worker, which keeps its memory between requests.
    static DOCUMENT: RefCell<Document> = RefCell::new(Document::new());
}

/// The operations of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ParsedRequest {
    /// One operation.
    One(OperationRequest),
    /// Several operations, sent as an array.
    Batch(Vec<OperationRequest>),
}

impl ParsedRequest {
    /// Completes a request at the path of a document by the id in the path.
    ///
    /// # Errors
    /// The request names another operation, or several.
    pub(crate) fn with_path_id(mut self, id: Box<str>) -> Result<Self, RequestError> {
        let reason = match &mut self {
            Self::One(request) if request.query.is_empty() && request.document_id.is_none() => {
                request.document_id = Some(id.into());
                return Ok(self);
            }
            Self::One(_) => "send neither `query` nor `documentId`",
            Self::Batch(_) => "a batch has no single document",
        };
        Err(RequestError(format!("the path names a persisted document: {reason}")))
    }
}

/// The part of a request that may name its operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OperationPlace {
    /// The body or the parameters of the URL, as usual.
    Request,
    /// The path. The request itself need not name an operation.
    Path,
}

/// Parses a JSON body: `{"query":…,"documentId":…,"operationName":…,"variables":…,"extensions":…}`, or an array of at
/// most `batch_max` such objects. With 0 an array is refused.
///
/// Variables and extensions are not parsed and stay slices of the body, because it is not known yet which of them the
/// operation declares.
pub(crate) fn parse_body(
    body: &Bytes,
    place: OperationPlace,
    batch_max: usize,
) -> Result<ParsedRequest, RequestError> {
    match body.trim_ascii_start().first() {
        Some(b'[') => parse_batch(body, batch_max).map(ParsedRequest::Batch),
        _ => parse_operation(body, place).map(ParsedRequest::One).map_err(|error| match error {
            NotAnOperation::Invalid(error) => invalid_json(&error),
            NotAnOperation::NotAnObject => RequestError(
                "the request body must be a JSON object with the member `query`".to_owned(),
            ),
            NotAnOperation::Member(malformed) => malformed,
        }),
    }
}

fn invalid_json(error: &astjson::ParseError) -> RequestError {
    RequestError(format!("the request body is not valid JSON: {error}"))
}

fn parse_batch(body: &Bytes, batch_max: usize) -> Result<Vec<OperationRequest>, RequestError> {
    let refuse =
        |reason: String| Err(RequestError(format!("the request body is an array: {reason}")));
    if batch_max == 0 {
        return refuse(
            "batches of operations are turned off (`http.batching`), send one object with `query`"
                .to_owned(),
        );
    }
    let (mut count, mut elements) = (0, Vec::new());
    let read = astjson::outline_elements(body, |element| {
        count += 1;
        if count <= batch_max {
            elements.push(element);
        }
    });
    read.map_err(|error| invalid_json(&error))?;
    if count == 0 {
        return refuse("it has no operation in it".to_owned());
    }
    if count > batch_max {
        return refuse(format!(
            "it has {count} operations, and a batch may have {batch_max} \
             (`http.batching.max_operations`)"
        ));
    }
    let operations = elements.iter().enumerate().map(|(index, element)| {
        parse_operation(element, OperationPlace::Request).map_err(|error| {
            let reason = match error {
                NotAnOperation::Invalid(error) => invalid_json(&error).to_string(),
                NotAnOperation::NotAnObject => {
                    "it must be a JSON object with the member `query`".to_owned()
                }
                NotAnOperation::Member(RequestError(reason)) => reason,
            };
            RequestError(format!("operation {index} of the batch: {reason}"))
        })
    });
    operations.collect()
}

/// The reason that a JSON text is not an operation.
enum NotAnOperation {
    /// The text is not JSON.
    Invalid(astjson::ParseError),
    /// The JSON is not an object.
    NotAnObject,
    /// A member is missing or has the wrong type.
    Member(RequestError),
}

fn parse_operation(
    text: &Bytes,
    place: OperationPlace,
) -> Result<OperationRequest, NotAnOperation> {
    let mut members: [Option<Bytes>; PARAMETERS.len()] = Default::default();
    let kind = astjson::outline_members(text, |key, value| {
        // Of several members with the same key, the last counts.
        if let Some(index) = PARAMETERS.iter().position(|known| *known == key) {
            members[index] = Some(value);
        }
    });
    if kind.map_err(NotAnOperation::Invalid)? != Kind::Object {
        return Err(NotAnOperation::NotAnObject);
    }
    operation_of(members, place).map_err(NotAnOperation::Member)
}

/// Returns the operation with these values of [`PARAMETERS`].
fn operation_of(
    members: [Option<Bytes>; PARAMETERS.len()],
    place: OperationPlace,
) -> Result<OperationRequest, RequestError> {
    let [query, operation_name, variables, extensions, document_id] = members;
    let query = string_member("query", query)?;
    let document_id = string_member("documentId", document_id)?;
    let extensions = object_member("extensions", extensions)?;
    let is_named = place == OperationPlace::Path || query.is_some() || document_id.is_some();
    if !is_named && !has_persisted_query(&extensions) {
        let reason = "the request has no `query`: it must be a string with a GraphQL document";
        return Err(RequestError(reason.to_owned()));
    }
    Ok(OperationRequest {
        query: query.map(|it| it.into_string().into()).unwrap_or_default(),
        document_id: document_id.map(Into::into),
        operation_name: string_member("operationName", operation_name)?,
        variables: object_member("variables", variables)?,
        extensions,
    })
}

/// The known parameters; others are for proxies.
const PARAMETERS: [&str; 5] = ["query", "operationName", "variables", "extensions", "documentId"];

/// Parses the parameters of a URL: `?query=…&variables=…`.
pub(crate) fn parse_query_string(
    parameters: &str,
    place: OperationPlace,
) -> Result<OperationRequest, RequestError> {
    let mut request = OperationRequest::default();
    let mut is_named = place == OperationPlace::Path;
    let mut seen = Vec::new();
    for (name, value) in url::form_urlencoded::parse(parameters.as_bytes()) {
        if let Some(known) = PARAMETERS.into_iter().find(|known| *known == name) {
            // Readers differ in which of two equal parameters counts, so a proxy that checked the URL may have read the
            // other one.
            if seen.contains(&known) {
                return Err(RequestError(format!("the URL has the parameter `{known}` twice")));
            }
            seen.push(known);
        }
        match &*name {
            "query" => {
                is_named = true;
                request.query = value.into_owned().into();
            }
            "documentId" if !value.is_empty() => {
                is_named = true;
                request.document_id = Some(value.into());
            }
            "operationName" if !value.is_empty() => request.operation_name = Some(value.into()),
            "variables" => request.variables = object_parameter("variables", &value)?,
            "extensions" => request.extensions = object_parameter("extensions", &value)?,
            _ => {}
        }
    }
    if !is_named && !has_persisted_query(&request.extensions) {
        let reason = "the URL has no parameter `query` with a GraphQL document";
        return Err(RequestError(reason.to_owned()));
    }
    Ok(request)
}

/// True if the parameters of a URL name an operation.
pub(crate) fn has_operation(parameters: &str) -> bool {
    let mut parameters = url::form_urlencoded::parse(parameters.as_bytes());
    parameters.any(|(name, _)| matches!(&*name, "query" | "documentId" | "extensions"))
}

/// True if the URL asks for the first event alone: `once` and `once=true` do, `once=false` does not.
pub(crate) fn wants_first_event(uri: &http::Uri) -> bool {
    let query = uri.query().unwrap_or_default().as_bytes();
    let mut parameters = url::form_urlencoded::parse(query);
    parameters.any(|(name, value)| name == "once" && value != "false")
}

/// Returns the string in a member; `None` if the member is null or absent.
fn string_member(name: &str, value: Option<Bytes>) -> Result<Option<Box<str>>, RequestError> {
    let Some(value) = value.filter(|value| **value != *b"null") else { return Ok(None) };
    let not_a_string = || RequestError(format!("`{name}` must be a string"));
    if value.first() != Some(&b'"') {
        return Err(not_a_string());
    }
    DOCUMENT.with_borrow_mut(|document| {
        let text = document.parse(value).map(|value| document.as_str(value).map(Into::into));
        // Releases the request's text.
        document.reset();
        text.ok().flatten().map(Some).ok_or_else(not_a_string)
    })
}

/// Returns the text of the object in a member; empty if the member is null or absent.
fn object_member(name: &str, value: Option<Bytes>) -> Result<Bytes, RequestError> {
    match value {
        None => Ok(Bytes::new()),
        Some(value) => match value.first() {
            Some(b'n') => Ok(Bytes::new()),
            Some(b'{') => Ok(value),
            _ => Err(RequestError(format!("`{name}` must be a JSON object"))),
        },
    }
}

fn object_parameter(name: &str, text: &str) -> Result<Bytes, RequestError> {
    if text.is_empty() {
        return Ok(Bytes::new());
    }
    let text = Bytes::copy_from_slice(text.as_bytes());
    let kind = astjson::outline_members(&text, |_, _| {})
        .map_err(|error| RequestError(format!("parameter `{name}` is not valid JSON: {error}")))?;
    match kind {
        Kind::Null => Ok(Bytes::new()),
        Kind::Object => Ok(text),
        _ => Err(RequestError(format!("parameter `{name}` must be a JSON object"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_a_query_and_may_have_the_rest() {
        let body =
            br#"{"query":"{ a }","operationName":null,"variables":{"x":[1.0]},"extensions":null}"#;
        assert_eq!(
            parse_body(&Bytes::from_static(body), OperationPlace::Request, 0),
            Ok(ParsedRequest::One(OperationRequest {
                query: Bytes::from_static(b"{ a }"),
                document_id: None,
                operation_name: None,
                variables: Bytes::from_static(br#"{"x":[1.0]}"#),
                extensions: Bytes::new(),
            }))
        );
    }

    #[test]
    fn the_message_names_the_defect_of_a_body() {
        for (body, expected) in [
            ("{", "the request body is not valid JSON"),
            ("7", "the request body must be a JSON object"),
            ("[]", "batches of operations are turned off"),
            ("{}", "the request has no `query`"),
            (r#"{"query":7}"#, "`query` must be a string"),
            (r#"{"query":"{a}","operationName":[]}"#, "`operationName` must be a string"),
            (r#"{"query":"{a}","variables":[]}"#, "`variables` must be a JSON object"),
            (r#"{"query":"{a}","extensions":"x"}"#, "`extensions` must be a JSON object"),
            (r#"{"documentId":7}"#, "`documentId` must be a string"),
        ] {
            let body = Bytes::from_static(body.as_bytes());
            let Err(RequestError(message)) = parse_body(&body, OperationPlace::Request, 0) else {
                panic!("{body:?} was accepted");
            };
            assert!(message.contains(expected), "{body:?}: {message}");
        }
    }

    #[test]
    fn a_batch_is_an_array_of_some_operations_and_not_too_many() {
        let batch = |body: &'static str| {
            parse_body(&Bytes::from_static(body.as_bytes()), OperationPlace::Request, 2)
        };
        let query = |text: &'static str| OperationRequest {
            query: Bytes::from_static(text.as_bytes()),
            ..OperationRequest::default()
        };
        assert_eq!(
            batch(r#"[{"query":"{ a }"},{"query":"{ b }"}]"#),
            Ok(ParsedRequest::Batch(vec![query("{ a }"), query("{ b }")]))
        );
        for (body, expected) in [
            ("[]", "it has no operation in it"),
            (r#"[{},{},{}]"#, "it has 3 operations, and a batch may have 2"),
            (r#"[{"query":"{ a }"},7]"#, "operation 1 of the batch: it must be a JSON object"),
            (r#"[{}]"#, "operation 0 of the batch: the request has no `query`"),
            (r#"[[{"query":"{ a }"}]]"#, "operation 0 of the batch: it must be a JSON object"),
        ] {
            let Err(RequestError(message)) = batch(body) else { panic!("{body} was accepted") };
            assert!(message.contains(expected), "{body}: {message}");
        }
    }

    #[test]
    fn an_operation_is_named_by_its_text_its_id_or_its_hash() {
        let read = |body: &str, batch_max| {
            parse_body(&Bytes::from(body.to_owned()), OperationPlace::Request, batch_max)
        };
        let hash = r#"{"extensions":{"persistedQuery":{"version":1,"sha256Hash":"ab"}}}"#;
        let id = r#"{"documentId":"a:b","variables":{}}"#;
        for body in [hash, id, r#"{"query":"{ a }"}"#] {
            assert!(read(body, 0).is_ok(), "{body}");
            assert!(read(&format!("[{body}]"), 9).is_ok(), "{body}");
        }
        for body in ["{}", r#"{"extensions":{}}"#, r#"{"documentId":null}"#] {
            assert!(read(body, 0).is_err(), "{body}");
            assert!(read(&format!("[{body}]"), 9).is_err(), "{body}");
        }
        let by_get = |text: &str| parse_query_string(text, OperationPlace::Request);
        assert!(by_get("extensions=%7B%22persistedQuery%22%3A%7B%7D%7D").is_ok());
        let request = by_get("documentId=sha256%3Aab&variables=%7B%7D").expect("an id");
        assert_eq!(request.document_id.as_deref(), Some("sha256:ab"));
        assert!(by_get("documentId=").is_err());
        assert!(by_get("").is_err());
    }

    #[test]
    fn the_path_of_a_document_takes_the_place_of_its_text() {
        let read = |body: &'static str| {
            let parsed = parse_body(&Bytes::from_static(body.as_bytes()), OperationPlace::Path, 9);
            parsed.and_then(|it| it.with_path_id("a".into()))
        };
        let expected = OperationRequest {
            document_id: Some("a".into()),
            variables: Bytes::from_static(b"{}"),
            ..OperationRequest::default()
        };
        assert_eq!(read(r#"{"variables":{}}"#), Ok(ParsedRequest::One(expected)));
        for body in [r#"{"query":"{ a }"}"#, r#"{"documentId":"a"}"#, r#"[{"query":"{ a }"}]"#] {
            assert!(read(body).is_err(), "{body}");
        }
    }

    #[test]
    fn url_parameters_are_decoded() {
        let parse = |parameters| parse_query_string(parameters, OperationPlace::Request);
        let request = parse("query=%7B%20a%20%7D&variables=%7B%22x%22%3A1%7D&operationName=");
        assert_eq!(
            request,
            Ok(OperationRequest {
                query: Bytes::from_static(b"{ a }"),
                variables: Bytes::from_static(br#"{"x":1}"#),
                ..OperationRequest::default()
            })
        );
        assert!(parse("query=%7Ba%7D&variables=7").is_err());
        assert!(parse("query=%7Ba%7D&cache=1&cache=2").is_ok());
        assert!(parse("query=%7Ba%7D&query=%7Bb%7D").is_err());
        assert!(parse("").is_err());
    }

    #[test]
    fn the_parameter_is_on_unless_it_says_false() {
        for (uri, expected) in [
            ("/graphql?once", true),
            ("/graphql?query=x&once=true", true),
            ("/graphql?once=false", false),
            ("/graphql?query=once", false),
            ("/graphql", false),
        ] {
            assert_eq!(wants_first_event(&http::Uri::from_static(uri)), expected, "{uri}");
        }
    }
}
