//! The span of one request of a client, after OpenTelemetry's semantic conventions for HTTP servers: begun with the head
//! of the request, ended with that of the response.

use std::net::IpAddr;
use std::sync::Arc;

use clients::request_source::ConnectionOrigin;
use clients::trace_headers::read_trace_context;
use execute::ErrorCode;
use http::header::{HOST, USER_AGENT};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, Method, Request, StatusCode, Uri, Version};
use http_body::Body;
use telemetry::spans::{Attribute, RequestSpans, RootSpan, SpanKind, TraceId, Tracer};

use super::response::{Response, ResponseErrors};

/// The maximum length of a text of the client in an attribute. Longer ones are cut.
const TEXT_BYTES_MAX: usize = 256;

/// The span of a request. A request that ends without a response, because its client has gone, ends its span too.
pub(crate) struct ServerSpan {
    spans: Arc<RequestSpans>,
    /// `None` if nothing of the trace can be exported, and once the span has ended.
    facts: Option<RequestFacts>,
}

/// The facts about a request. They are copied: its head is a part of the memory that its connection reads into.
struct RequestFacts {
    origin: ConnectionOrigin,
    method: Method,
    path: Box<str>,
    /// True if the path is that of the endpoint.
    is_endpoint: bool,
    /// The name of the graph, if there are several.
    graph: Option<Arc<str>>,
    version: Version,
    host: Option<Box<str>>,
    agent: Option<Box<str>>,
}

/// The outcome of a request.
#[derive(Clone, Copy)]
struct RequestOutcome {
    status: StatusCode,
    bytes: Option<u64>,
    errors: Option<ResponseErrors>,
}

impl ServerSpan {
    /// Begins the span of a request. The request carries the buffer of its spans from now on. `endpoint` is the path of
    /// the GraphQL endpoint, and `graph` the name of the graph behind it, if there are several.
    pub(crate) fn begin<B>(
        tracer: &Arc<Tracer>,
        origin: ConnectionOrigin,
        (endpoint, graph): (&str, Option<&Arc<str>>),
        request: &mut Request<B>,
    ) -> Self {
        let headers = request.headers();
        let spans = RequestSpans::start(tracer, read_trace_context(tracer.propagation(), headers));
        let facts = spans.is_recorded().then(|| RequestFacts {
            origin,
            method: request.method().clone(),
            path: shorten(request.uri().path()).into(),
            is_endpoint: request.uri().path() == endpoint,
            graph: graph.cloned(),
            version: request.version(),
            host: host_of(request.uri(), headers),
            agent: text_of(headers, &USER_AGENT),
        });
        request.extensions_mut().insert(Arc::clone(&spans));
        Self { spans, facts }
    }

    /// Returns the id of the trace.
    pub(crate) fn trace(&self) -> TraceId {
        self.spans.context().trace
    }

    /// Ends the span with the head of the response.
    pub(crate) fn finish(mut self, response: &Response) {
        let Some(facts) = self.facts.take() else { return };
        let outcome = RequestOutcome {
            status: response.status(),
            bytes: response.body().size_hint().exact(),
            errors: response.extensions().get::<ResponseErrors>().copied(),
        };
        self.spans.finish(outcome.has_failed(), move || facts.into_span(Some(outcome)));
    }
}

impl Drop for ServerSpan {
    fn drop(&mut self) {
        if let Some(facts) = self.facts.take() {
            self.spans.finish(false, move || facts.into_span(None));
        }
    }
}

impl RequestOutcome {
    /// True if the router or a subgraph has failed. Requests that the overload protection refuses are not failures:
    /// they must stay cheap.
    fn has_failed(&self) -> bool {
        let code = self.errors.and_then(|it| it.code);
        self.status.is_server_error() && code != Some(ErrorCode::Overloaded)
    }
}

impl RequestFacts {
    fn into_span(self, outcome: Option<RequestOutcome>) -> RootSpan {
        let method = known_method(&self.method);
        let mut attributes = vec![
            Attribute::text("http.request.method", method.unwrap_or("_OTHER")),
            Attribute::text("url.path", String::from(self.path.clone())),
            Attribute::text("url.scheme", if self.origin.is_tls { "https" } else { "http" }),
            Attribute::text("network.protocol.name", "http"),
            Attribute::text("network.protocol.version", version_number(self.version)),
        ];
        let mut add = |name, value: Option<String>| {
            attributes.extend(value.map(|it| Attribute::text(name, it)));
        };
        add("http.route", self.is_endpoint.then(|| String::from(self.path.clone())));
        let authority = self.host.as_deref().and_then(|it| it.parse::<Authority>().ok());
        add("server.address", authority.as_ref().map(|it| it.host().to_owned()));
        add("client.address", self.origin.address.as_ref().map(IpAddr::to_string));
        add("user_agent.original", self.agent.map(Into::into));
        add("starling.graph.name", self.graph.map(|it| String::from(&*it)));
        let port = authority.and_then(|it| it.port_u16());
        attributes.extend(port.map(|it| Attribute::number("server.port", it)));
        let mut error = None;
        if let Some(RequestOutcome { status, bytes, errors }) = outcome {
            let number = status.as_u16();
            attributes.push(Attribute::number("http.response.status_code", number));
            attributes.extend(bytes.map(|it| Attribute::number("http.response.body.size", it)));
            if let Some(errors) = errors {
                attributes.push(Attribute::number("starling.response.errors", errors.count));
            }
            let code = errors.and_then(|it| it.code);
            if let Some(code) = code {
                attributes.push(Attribute::text("error.type", code.as_str()));
            } else if status.is_server_error() {
                attributes.push(Attribute::text("error.type", number.to_string()));
            }
            // A failure of the client is none of the server.
            if status.is_server_error() {
                error = Some(format!("HTTP status {number}").into());
            }
        } else {
            attributes.push(Attribute::text("error.type", "cancelled"));
        }
        // Other paths and methods are chosen by clients, so that their number is not limited.
        let method = method.unwrap_or("HTTP");
        let name = match self.is_endpoint {
            true => format!("{method} {}", self.path),
            false => method.to_owned(),
        };
        RootSpan { name: name.into(), kind: SpanKind::Server, attributes, error }
    }
}

/// Returns the name of a method that the semantic conventions know.
fn known_method(method: &Method) -> Option<&'static str> {
    let names = ["GET", "POST", "OPTIONS", "HEAD", "PUT", "DELETE", "PATCH", "CONNECT", "TRACE"];
    names.into_iter().find(|name| *name == method.as_str())
}

/// Returns the authority that the client asked for, which HTTP/2 has in the URL.
fn host_of(uri: &Uri, headers: &HeaderMap) -> Option<Box<str>> {
    let authority = uri.authority().map(|it| shorten(it.as_str()).into());
    authority.or_else(|| text_of(headers, &HOST))
}

fn text_of(headers: &HeaderMap, name: &HeaderName) -> Option<Box<str>> {
    headers.get(name)?.to_str().ok().map(|it| shorten(it).into())
}

fn shorten(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

fn version_number(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use telemetry::spans::{AttributeValue, Propagation, SamplingRules, Span, TracerSettings};

    use super::super::response;
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn tracer(ratio: f64) -> Arc<Tracer> {
        let sampling = SamplingRules {
            ratio,
            follows_parent: true,
            slow: None,
            failed: true,
            has_conditions: false,
        };
        Arc::new(Tracer::new(TracerSettings {
            sampling,
            propagation: Propagation::default(),
            queue_bytes_max: 1 << 20,
            spans_max: 9,
            batch_spans: 9,
        }))
    }

    fn begin(tracer: &Arc<Tracer>, uri: &str, headers: &[(&'static str, &str)]) -> ServerSpan {
        let mut request = Request::post(uri).body(()).expect("a request");
        for (name, value) in headers {
            let value = HeaderValue::from_str(value).expect("a value");
            request.headers_mut().append(*name, value);
        }
        let origin = ConnectionOrigin {
            address: Some([192, 0, 2, 7].into()),
            ..ConnectionOrigin::default()
        };
        let graph: Arc<str> = "beta".into();
        let endpoint = ("/graphql", Some(&graph));
        let span = ServerSpan::begin(tracer, origin, endpoint, &mut request);
        assert!(request.extensions().get::<Arc<RequestSpans>>().is_some());
        span
    }

    fn exported(tracer: &Arc<Tracer>) -> Option<Span> {
        tracer.take_batch().pop().map(|mut it| it.spans.remove(0))
    }

    fn text(span: &Span, name: &str) -> Option<String> {
        let found = span.attributes.iter().find(|it| it.name == name)?;
        Some(match &found.value {
            AttributeValue::Text(text) => text.to_string(),
            AttributeValue::Number(number) => number.to_string(),
            AttributeValue::Flag(flag) => flag.to_string(),
        })
    }

    #[test]
    fn a_request_to_the_endpoint_is_described_without_its_query() {
        let tracer = tracer(0.0);
        let headers = [("traceparent", PARENT), ("user-agent", "curl"), ("host", "example:4000")];
        let span = begin(&tracer, "/graphql?query=secret", &headers);
        span.finish(&response::options("GET"));
        let span = exported(&tracer).expect("the client has selected it");
        assert_eq!(span.name, "POST /graphql");
        assert_eq!(span.parent.map(|it| it.to_string()).as_deref(), Some("b7ad6b7169203331"));
        let known = ["url.path", "http.route", "client.address", "user_agent.original"];
        let known = known.map(|name| text(&span, name).unwrap_or_default());
        assert_eq!(known, ["/graphql", "/graphql", "192.0.2.7", "curl"]);
        assert_eq!(text(&span, "starling.graph.name").as_deref(), Some("beta"));
        assert_eq!(text(&span, "http.response.status_code").as_deref(), Some("204"));
        assert!(!format!("{span:?}").contains("secret"));
    }

    #[test]
    fn another_path_and_two_parents_make_a_trace_with_a_plain_name() {
        let tracer = tracer(1.0);
        let twice = [("traceparent", PARENT), ("traceparent", PARENT)];
        begin(&tracer, "/a/b", &twice).finish(&response::options("GET"));
        let span = exported(&tracer).expect("sampled");
        assert_eq!((&*span.name, span.parent, text(&span, "http.route")), ("POST", None, None));
    }

    #[test]
    fn a_failure_is_selected_and_a_refusal_under_load_is_not() {
        let tracer = tracer(0.0);
        let fails = |status, code| {
            let error = execute::GraphqlError::new(code, "no");
            let format = super::super::media::ResponseFormat::Json;
            let response = response::refused(status, &[error], format);
            begin(&tracer, "/graphql", &[]).finish(&response);
            exported(&tracer)
        };
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        assert_eq!(fails(unavailable, ErrorCode::Overloaded), None);
        assert_eq!(fails(StatusCode::BAD_REQUEST, ErrorCode::BadRequest), None);
        let span = fails(unavailable, ErrorCode::ShuttingDown).expect("a failure");
        assert_eq!(span.error.as_deref(), Some("HTTP status 503"));
        assert_eq!(text(&span, "error.type").as_deref(), Some("SHUTTING_DOWN"));
    }

    #[test]
    fn a_client_that_goes_ends_the_span() {
        let tracer = tracer(1.0);
        drop(begin(&tracer, "/graphql", &[]));
        let span = exported(&tracer).expect("sampled");
        assert_eq!(text(&span, "error.type").as_deref(), Some("cancelled"));
        assert_eq!(text(&span, "http.response.status_code"), None);
    }
}
