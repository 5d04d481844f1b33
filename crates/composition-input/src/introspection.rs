//! Asking a subgraph's server for its schema: `_service { sdl }` of the federation specification, and GraphQL's own
//! introspection for servers that do not know that field.

use std::time::Duration;

use bytes::Bytes;
use compose::SDL_BYTES_MAX;
use config::Secret;
use execute::FetchError;
use http::{HeaderMap, HeaderName, HeaderValue};
use net::TlsClient;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use upstream::{Resource, belongs_to_connection};

use crate::introspected_schema::{INTROSPECTION_QUERY, SchemaData};
use crate::load_error::LoadErrorKind;

/// The time that a server has. Subgraphs that build their schema on the first request take some seconds.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum size of a response: a schema of the maximum size, and room for its JSON escapes.
const BODY_BYTES_MAX: usize = SDL_BYTES_MAX + SDL_BYTES_MAX / 4;

/// The media types of GraphQL responses.
const ACCEPT: &str = "application/graphql-response+json, application/json";

/// The number of errors of a response that a message repeats.
const ERRORS_SHOWN_MAX: usize = 3;

/// The number of characters of an error that a message repeats.
const ERROR_CHARS_MAX: usize = 300;

/// The length from which the value of a header is masked in errors. Shorter ones, such as `1`, are parts of other words.
const SECRET_BYTES_MIN: usize = 4;

/// The field that servers of federated subgraphs have.
const SERVICE_FIELD: &str = "_service";

/// The schema that a server returned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Introspected {
    /// The schema.
    pub sdl: String,
    /// True if the schema was made from GraphQL's own introspection, which does not contain federation directives.
    pub is_plain: bool,
}

/// Asks one server for its schema. With `is_plain`, `_service { sdl }` is not tried.
///
/// # Errors
/// The reason why there is no schema.
pub async fn introspect(
    url: &str,
    headers: &[(String, Secret)],
    is_plain: bool,
) -> Result<Introspected, LoadErrorKind> {
    Endpoint::new(url, headers, TIMEOUT)?.introspect(is_plain).await
}

/// Returns a URL as messages show it: without credentials and without the query, which may contain a key.
pub(crate) fn displayed_url(url: &str) -> String {
    if url.starts_with("unix:") {
        return url.to_owned();
    }
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let url = &url[..end];
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// The GraphQL endpoint of a subgraph. Created apart from [`introspect`], so that tests can set the timeout.
pub(crate) struct Endpoint {
    resource: Resource,
    headers: HeaderMap,
}

/// A GraphQL response with data of type `T`.
#[derive(Deserialize)]
struct GraphqlResponse<T> {
    data: Option<T>,
    #[serde(default)]
    errors: Vec<ResponseError>,
}

#[derive(Deserialize)]
struct ResponseError {
    #[serde(default)]
    message: String,
    /// The response keys that lead to the value that failed: a list, or null.
    #[serde(default)]
    path: serde_json::Value,
}

/// The failure of a request.
struct RequestFailure {
    kind: LoadErrorKind,
    /// True if the server does not know `_service`.
    lacks_service: bool,
}

#[derive(Deserialize)]
struct ServiceData {
    #[serde(rename = "_service")]
    service: Option<Service>,
}

#[derive(Deserialize)]
struct Service {
    sdl: Option<String>,
}

impl Endpoint {
    pub(crate) fn new(
        url: &str,
        headers: &[(String, Secret)],
        timeout: Duration,
    ) -> Result<Self, LoadErrorKind> {
        let request_error =
            |error: &dyn std::fmt::Display| LoadErrorKind::Request(error.to_string());
        let header_error = LoadErrorKind::Header;
        let tls = match url.get(..6).is_some_and(|it| it.eq_ignore_ascii_case("https:")) {
            true => Some(
                TlsClient::with_native_roots(&[b"http/1.1"])
                    .map_err(|error| request_error(&error))?,
            ),
            false => None,
        };
        let resource = Resource::new(url, tls, ACCEPT, BODY_BYTES_MAX, timeout)
            .map_err(|error| request_error(&error))?;
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let Ok(header) = HeaderName::try_from(name.as_str()) else {
                return Err(header_error(format!("{name:?} is not the name of a header")));
            };
            if belongs_to_connection(&header) {
                return Err(header_error(format!("the header `{name}` cannot be chosen")));
            }
            let Ok(mut value) = HeaderValue::try_from(value.expose()) else {
                // The value is a secret.
                return Err(header_error(format!("the value of the header `{name}` is not valid")));
            };
            value.set_sensitive(true);
            map.append(header, value);
        }
        Ok(Self { resource, headers: map })
    }

    pub(crate) async fn introspect(&self, is_plain: bool) -> Result<Introspected, LoadErrorKind> {
        let sdl = if is_plain { None } else { self.request_service().await? };
        let is_plain = sdl.is_none();
        let sdl = match sdl {
            Some(sdl) => sdl,
            None => self.request_introspection().await?,
        };
        if sdl.trim().is_empty() {
            return Err(LoadErrorKind::Empty);
        }
        if sdl.len() > SDL_BYTES_MAX {
            return Err(LoadErrorKind::TooLarge(SDL_BYTES_MAX));
        }
        Ok(Introspected { sdl, is_plain })
    }

    /// Returns `_service { sdl }`, or `None` if the server does not know that field.
    async fn request_service(&self) -> Result<Option<String>, LoadErrorKind> {
        match self.request::<ServiceData>("{ _service { sdl } }").await {
            Ok(data) => {
                let sdl = data.service.and_then(|it| it.sdl);
                sdl.map(Some).ok_or(LoadErrorKind::Empty)
            }
            Err(failure) if failure.lacks_service => Ok(None),
            Err(failure) => Err(failure.kind),
        }
    }

    async fn request_introspection(&self) -> Result<String, LoadErrorKind> {
        let data = self.request::<SchemaData>(INTROSPECTION_QUERY).await;
        data.map(|it| it.to_sdl()).map_err(|failure| failure.kind)
    }

    async fn request<T: DeserializeOwned>(&self, query: &str) -> Result<T, RequestFailure> {
        let body = Bytes::from(json!({ "query": query }).to_string());
        let response = self.resource.post_json(body, self.headers.clone()).await;
        let body = response.map_err(|error| self.convert_fetch_error(error))?;
        let response: GraphqlResponse<T> = serde_json::from_slice(&body)
            .map_err(|error| LoadErrorKind::NotGraphql(describe_json_error(&error)))?;
        match response.data {
            Some(data) if response.errors.is_empty() => Ok(data),
            None if response.errors.is_empty() => {
                let reason = "there is neither `data` nor `errors`".to_owned();
                Err(LoadErrorKind::NotGraphql(reason).into())
            }
            _ => Err(RequestFailure {
                kind: LoadErrorKind::Refused(self.shown_errors(&response.errors)),
                lacks_service: lacks_service(&response.errors),
            }),
        }
    }

    fn convert_fetch_error(&self, error: FetchError) -> RequestFailure {
        let kind = match error {
            FetchError::Timeout(timeout) => LoadErrorKind::Timeout(timeout),
            FetchError::TooLarge { .. } => LoadErrorKind::TooLarge(SDL_BYTES_MAX),
            FetchError::Status { status, body, .. } => {
                let errors = body.and_then(|body| {
                    let response =
                        serde_json::from_slice::<GraphqlResponse<serde::de::IgnoredAny>>(&body);
                    response.ok().map(|it| it.errors)
                });
                let errors = errors.unwrap_or_default();
                let shown = self.shown_errors(&errors);
                return RequestFailure {
                    kind: LoadErrorKind::Status { status: status.as_u16(), errors: shown },
                    lacks_service: lacks_service(&errors),
                };
            }
            FetchError::Protocol(reason) => LoadErrorKind::NotGraphql(reason),
            FetchError::Connect(reason) => LoadErrorKind::Unreachable(reason),
            other => LoadErrorKind::Unreachable(other.to_string()),
        };
        kind.into()
    }

    /// Returns the first messages in one line each, shortened. Some servers repeat the token that they refuse.
    fn shown_errors(&self, errors: &[ResponseError]) -> Vec<String> {
        let shown = |error: &ResponseError| -> String {
            let message = self.mask_secrets(&error.message);
            let line = message.chars().map(|it| if it.is_control() { ' ' } else { it });
            let text: String = line.take(ERROR_CHARS_MAX).collect();
            if text.is_empty() { "an error without a message".to_owned() } else { text }
        };
        let mut messages: Vec<_> = errors.iter().take(ERRORS_SHOWN_MAX).map(shown).collect();
        if errors.len() > ERRORS_SHOWN_MAX {
            messages.push(format!("and {} more errors", errors.len() - ERRORS_SHOWN_MAX));
        }
        messages
    }

    /// Replaces the values of headers in a text, also without the scheme before a token, as in `Bearer TOKEN`.
    fn mask_secrets(&self, text: &str) -> String {
        let values = self.headers.values().filter_map(|value| value.to_str().ok());
        let words = values.flat_map(|value| [value, value.rsplit(' ').next().unwrap_or(value)]);
        let secrets = words.filter(|it| it.len() >= SECRET_BYTES_MIN);
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret, "******"))
    }
}

impl From<LoadErrorKind> for RequestFailure {
    fn from(kind: LoadErrorKind) -> Self {
        Self { kind, lacks_service: false }
    }
}

/// True if an error of validation names `_service`. An error of the field itself has a path that begins with it: then
/// the schema of introspection would lack the federation directives that the subgraph has.
fn lacks_service(errors: &[ResponseError]) -> bool {
    let is_unknown =
        |it: &ResponseError| it.message.contains(SERVICE_FIELD) && it.path[0] != SERVICE_FIELD;
    errors.iter().any(is_unknown)
}

/// Describes what is wrong with a body. Values of the response are not repeated.
fn describe_json_error(error: &serde_json::Error) -> String {
    match error.classify() {
        serde_json::error::Category::Data => {
            format!("the JSON has another form (line {}, column {})", error.line(), error.column())
        }
        _ => "the body is not JSON".to_owned(),
    }
}
