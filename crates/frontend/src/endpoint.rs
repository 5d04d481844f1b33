//! The endpoints of the graphs that the process serves, and the choice of one for a request.
//!
//! Everything else of the pipeline is the same for all graphs. Which graph is behind an endpoint, its service knows.

use std::sync::Arc;

use config::GraphSettings;
use http::header::HOST;
use http::{HeaderName, HeaderValue, Request};

use super::page::EndpointPage;
use super::service::GraphqlService;

/// The endpoint of one graph.
pub struct Endpoint {
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

/// The conditions under which a request reaches a further graph. All of them must hold.
#[derive(Debug)]
pub struct EndpointCondition {
    /// The path, or the beginning of a path with a `/` behind it.
    path: Option<Box<str>>,
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
        Self {
            path: settings.path.as_deref().map(Into::into),
            host: settings.host.as_deref().map(Into::into),
            header,
        }
    }

    fn holds<B>(&self, request: &Request<B>) -> bool {
        let has_path = self.path.as_deref().is_none_or(|path| is_at(request.uri().path(), path));
        let has_host = self.host.as_deref().is_none_or(|host| is_to(request, host));
        let has_header = self.header.as_ref().is_none_or(|(name, value)| {
            request.headers().get_all(name).iter().any(|given| given == value)
        });
        has_path && has_host && has_header
    }
}

/// True for the path of an endpoint, and for those of its persisted documents.
fn is_at(path: &str, endpoint: &str) -> bool {
    let below = path.strip_prefix(endpoint.trim_end_matches('/'));
    path == endpoint || below.is_some_and(|it| it.starts_with('/'))
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

impl Endpoints {
    /// Returns the endpoint of a request.
    pub(super) fn of<B>(&self, request: &Request<B>) -> &Endpoint {
        // hot path: most routers serve one graph.
        let found = self.further.iter().find(|(condition, _)| condition.holds(request));
        found.map_or(&self.default, |(_, endpoint)| endpoint)
    }
}

#[cfg(test)]
mod tests {
    use config::{GraphHeader, Supergraph};

    use super::*;

    fn condition(
        path: Option<&str>,
        host: Option<&str>,
        header: Option<[&str; 2]>,
    ) -> EndpointCondition {
        EndpointCondition::new(&GraphSettings {
            name: "beta".into(),
            path: path.map(Into::into),
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

    #[test]
    fn a_path_is_that_of_an_endpoint_and_of_its_documents() {
        let beta = condition(Some("/beta/graphql"), None, None);
        for path in ["/beta/graphql", "/beta/graphql?query=a", "/beta/graphql/sha256:a"] {
            assert!(holds(&beta, path, &[]), "{path}");
        }
        for path in ["/", "/graphql", "/beta", "/beta/graphqls", "/x/beta/graphql"] {
            assert!(!holds(&beta, path, &[]), "{path}");
        }
    }

    #[test]
    fn a_host_is_compared_without_case_and_port() {
        let beta = condition(None, Some("beta.example.com"), None);
        for host in ["beta.example.com", "Beta.Example.com:8443"] {
            assert!(holds(&beta, "/graphql", &[("host", host)]), "{host}");
            assert!(holds(&beta, &format!("https://{host}/graphql"), &[]), "{host}");
        }
        for host in ["example.com", "beta.example.com.example.org", "beta.example.com:a", ""] {
            assert!(!holds(&beta, "/graphql", &[("host", host)]), "{host}");
        }
        // RFC 9112, section 3.2.2: the URI decides.
        assert!(!holds(&beta, "http://example.com/graphql", &[("host", "beta.example.com")]));
        let address = condition(None, Some("[::1]"), None);
        assert!(holds(&address, "/graphql", &[("host", "[::1]:4000")]));
        assert!(holds(&address, "/graphql", &[("host", "[::1]")]));
    }

    #[test]
    fn a_header_has_the_whole_value_and_all_conditions_must_hold() {
        let flag = condition(None, None, Some(["x-flag", "on"]));
        assert!(holds(&flag, "/graphql", &[("x-flag", "on")]));
        assert!(holds(&flag, "/graphql", &[("x-flag", "off"), ("x-flag", "on")]));
        for value in ["On", "on, off", ""] {
            assert!(!holds(&flag, "/graphql", &[("x-flag", value)]), "{value}");
        }
        let all = condition(Some("/beta"), Some("a"), Some(["x-flag", "on"]));
        assert!(holds(&all, "/beta", &[("host", "a"), ("x-flag", "on")]));
        assert!(!holds(&all, "/beta", &[("host", "a")]));
        assert!(!holds(&all, "/beta", &[("host", "b"), ("x-flag", "on")]));
        assert!(!holds(&all, "/graphql", &[("host", "a"), ("x-flag", "on")]));
    }
}
