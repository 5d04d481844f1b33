//! The endpoints of the graphs that the process serves, and the choice of one for a request.
//!
//! Everything else of the pipeline is the same for all graphs. Which graph is behind an endpoint, its service knows.

use std::sync::Arc;

use config::GraphSettings;
use http::header::HOST;
use http::{HeaderName, HeaderValue, Request};

use super::page::EndpointPage;
use super::service::GraphqlService;
use super::transport;

/// The endpoint of one graph.
pub struct Endpoint {
    /// The name of the graph, for logs and traces; `None` if the process serves one graph only.
    pub graph: Option<Arc<str>>,
    /// The page for browsers, at the path of the endpoint.
    pub page: EndpointPage,
    /// Executes operations.
    pub service: Arc<dyn GraphqlService>,
}

/// The endpoints of all graphs.
pub struct Endpoints {
    /// The endpoint of all requests that no further graph takes.
    pub default: Endpoint,
    /// The endpoints of further graphs, in the order of the configuration.
    pub further: Vec<(EndpointCondition, Endpoint)>,
}

/// The conditions under which a request reaches a further graph, in addition to the path of its endpoint. All of them
/// must hold.
#[derive(Debug)]
pub struct EndpointCondition {
    /// The host without its port.
    host: Option<Box<str>>,
    /// The name and the value of a header. A value that no header can have matches nothing.
    header: Option<(HeaderName, HeaderValue)>,
}

impl EndpointCondition {
    /// Creates the conditions of a graph. The configuration has been checked, so that its header is valid.
    pub fn new(settings: &GraphSettings) -> Self {
        let header = settings.header.as_ref().and_then(|it| {
            let name = HeaderName::from_bytes(it.name.as_bytes()).ok()?;
            Some((name, HeaderValue::from_str(&it.value).ok()?))
        });
        Self { host: settings.host.as_deref().map(Into::into), header }
    }

    fn holds<B>(&self, request: &Request<B>) -> bool {
        let has_host = self.host.as_deref().is_none_or(|host| is_to(request, host));
        let has_header = self.header.as_ref().is_none_or(|(name, value)| {
            request.headers().get_all(name).iter().any(|given| given == value)
        });
        has_host && has_header
    }
}

/// True if the client has sent the request to this host. Requests of HTTP/2 and those to a proxy name it in their URI.
fn is_to<B>(request: &Request<B>, host: &str) -> bool {
    if let Some(named) = request.uri().host() {
        return named.eq_ignore_ascii_case(host);
    }
    let named = request.headers().get(HOST).and_then(|it| it.to_str().ok()).unwrap_or_default();
    without_port(named).eq_ignore_ascii_case(host)
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        // The colons of an IPv6 address without a port are within brackets.
        Some((host, port)) if port.bytes().all(|it| it.is_ascii_digit()) => host,
        _ => authority,
    }
}

impl Endpoint {
    /// Returns the name of the graph that a request to this path is for. `None` for paths that belong to no graph, and
    /// if the process serves one graph only.
    pub(super) fn graph_of(&self, path: &str) -> Option<&Arc<str>> {
        // hot path: most routers serve one graph.
        let graph = self.graph.as_ref()?;
        (self.page.path == path || transport::document_id(path, &self.page).is_some())
            .then_some(graph)
    }
}

impl Endpoints {
    /// Returns the endpoint of a request.
    pub(super) fn of<B>(&self, request: &Request<B>) -> &Endpoint {
        // hot path: most routers serve one graph.
        if self.further.is_empty() {
            return &self.default;
        }
        let further = self.further.iter().map(|(condition, endpoint)| (Some(condition), endpoint));
        let all = further.chain([(None, &self.default)]);
        choose(request, all, |endpoint| &endpoint.page).unwrap_or(&self.default)
    }
}

/// Returns the first endpoint that takes a request, at its path or at that of one of its persisted documents. `None`
/// for other paths. The path of an endpoint is that of no document of another one.
fn choose<'a, E: 'a, B>(
    request: &Request<B>,
    endpoints: impl Iterator<Item = (Option<&'a EndpointCondition>, &'a E)> + Clone,
    page_of: impl Fn(&E) -> &EndpointPage,
) -> Option<&'a E> {
    let path = request.uri().path();
    let find = |has_path: &dyn Fn(&EndpointPage) -> bool| {
        let mut at_path = endpoints.clone().filter(|(_, endpoint)| has_path(page_of(endpoint)));
        let found = at_path.find(|(condition, _)| condition.is_none_or(|it| it.holds(request)));
        found.map(|(_, endpoint)| endpoint)
    };
    find(&|page| page.path == path)
        .or_else(|| find(&|page| transport::document_id(path, page).is_some()))
}

#[cfg(test)]
mod tests {
    use config::{GraphHeader, Supergraph};

    use super::*;

    fn condition(host: Option<&str>, header: Option<[&str; 2]>) -> EndpointCondition {
        EndpointCondition::new(&GraphSettings {
            name: "beta".into(),
            path: None,
            host: host.map(Into::into),
            header: header
                .map(|[name, value]| GraphHeader { name: name.into(), value: value.into() }),
            supergraph: Supergraph::default(),
        })
    }

    fn holds(condition: &EndpointCondition, uri: &str, headers: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        condition.holds(&request.body(()).expect("a request"))
    }

    /// Returns the path of the endpoint that is chosen of these; empty if none is.
    fn chosen<'e>(
        endpoints: &'e [(EndpointCondition, EndpointPage)],
        uri: &str,
        headers: &[(&str, &str)],
    ) -> &'e str {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("a request");
        let all = endpoints.iter().map(|(condition, page)| (Some(condition), page));
        choose(&request, all, |page| page).map_or("", |page| &page.path)
    }

    fn page(path: &str, has_documents: bool) -> EndpointPage {
        EndpointPage { path: path.into(), has_documents, page: None }
    }

    #[test]
    fn a_request_reaches_the_first_endpoint_at_its_path_or_at_that_of_a_document() {
        let any = || condition(None, None);
        let flag = condition(None, Some(["x-flag", "on"]));
        let endpoints = |has_documents| {
            [
                (any(), page("/", has_documents)),
                (any(), page("/api", has_documents)),
                (any(), page("/api/beta", has_documents)),
                (any(), page("/graphql", has_documents)),
            ]
        };
        let documents = endpoints(true);
        for (uri, expected) in [
            ("/api", "/api"),
            ("/api?query=a", "/api"),
            ("/api/beta", "/api/beta"),
            ("/api/sha256:a", "/api"),
            ("/api/beta/sha256:a", "/api/beta"),
            ("/graphql", "/graphql"),
            ("/graphql/sha256:a", "/graphql"),
            ("/sha256:a", "/"),
            ("/api/beta/a/b", ""),
            ("/x/graphql", ""),
        ] {
            assert_eq!(chosen(&documents, uri, &[]), expected, "{uri}");
        }
        let plain = endpoints(false);
        for (uri, expected) in
            [("/", "/"), ("/graphql", "/graphql"), ("/api/a", ""), ("/graphqls", "")]
        {
            assert_eq!(chosen(&plain, uri, &[]), expected, "{uri}");
        }
        // A condition takes no request from the path of another graph.
        let flagged = [
            (flag, page("/graphql", true)),
            (any(), page("/beta", true)),
            (any(), page("/", true)),
        ];
        let on = [("x-flag", "on")];
        assert_eq!(chosen(&flagged, "/beta", &on), "/beta");
        assert_eq!(chosen(&flagged, "/graphql/sha256:a", &on), "/graphql");
        assert_eq!(chosen(&flagged, "/graphql", &[]), "/");
    }

    #[test]
    fn a_host_is_compared_without_case_and_port() {
        let beta = condition(Some("beta.example.com"), None);
        for host in ["beta.example.com", "Beta.Example.com:8443"] {
            assert!(holds(&beta, "/graphql", &[("host", host)]), "{host}");
            assert!(holds(&beta, &format!("https://{host}/graphql"), &[]), "{host}");
        }
        for host in ["example.com", "beta.example.com.example.org", "beta.example.com:a", ""] {
            assert!(!holds(&beta, "/graphql", &[("host", host)]), "{host}");
        }
        // RFC 9112, section 3.2.2: the URI decides.
        assert!(!holds(&beta, "http://example.com/graphql", &[("host", "beta.example.com")]));
        let address = condition(Some("[::1]"), None);
        assert!(holds(&address, "/graphql", &[("host", "[::1]:4000")]));
        assert!(holds(&address, "/graphql", &[("host", "[::1]")]));
    }

    #[test]
    fn a_header_has_the_whole_value_and_all_conditions_must_hold() {
        let flag = condition(None, Some(["x-flag", "on"]));
        assert!(holds(&flag, "/graphql", &[("x-flag", "on")]));
        assert!(holds(&flag, "/graphql", &[("x-flag", "off"), ("x-flag", "on")]));
        for value in ["On", "on, off", ""] {
            assert!(!holds(&flag, "/graphql", &[("x-flag", value)]), "{value}");
        }
        let all = condition(Some("a"), Some(["x-flag", "on"]));
        assert!(holds(&all, "/beta", &[("host", "a"), ("x-flag", "on")]));
        assert!(!holds(&all, "/beta", &[("host", "a")]));
        assert!(!holds(&all, "/beta", &[("host", "b"), ("x-flag", "on")]));
    }
}
