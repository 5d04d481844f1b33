//! The check of the host in requests to the admin listener. A web page whose name resolves to this machine (DNS
//! rebinding) can send requests of the same origin under that name, and could read metrics and publish events.

use std::net::IpAddr;

use http::header::HOST;
use http::{HeaderMap, Uri};

/// True if every host in the request is an IP address, `localhost`, or one of `allowed`. An address cannot be rebound:
/// a page that is loaded from it comes from this listener. Requests of HTTP/1.0 may contain no host.
pub(crate) fn is_allowed(uri: &Uri, headers: &HeaderMap, allowed: &[String]) -> bool {
    let of_headers = headers.get_all(HOST).iter().map(|value| value.to_str().ok());
    let of_target = uri.authority().map(|it| Some(it.as_str()));
    of_headers.chain(of_target).all(|host| {
        let name = host.map(without_port);
        name.is_some_and(|name| {
            is_local_name(name) || is_address(name) || allowed.iter().any(|it| is_same(it, name))
        })
    })
}

/// Returns the host of an authority; an IPv6 address keeps its brackets.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) && !name.is_empty() => {
            name
        }
        _ => host,
    }
}

/// True for names that resolve to the loopback interface everywhere (RFC 6761, section 6.3).
fn is_local_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

fn is_address(name: &str) -> bool {
    let bare = name.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    match bare {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => name.parse::<IpAddr>().is_ok_and(|it| it.is_ipv4()),
    }
}

fn is_same(allowed: &str, name: &str) -> bool {
    name.strip_suffix('.').unwrap_or(name).eq_ignore_ascii_case(allowed)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn allows(uri: &str, hosts: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(HOST, HeaderValue::from_str(host).expect("a value"));
        }
        let uri = uri.parse().expect("a target");
        is_allowed(&uri, &headers, &["starling.internal".to_owned()])
    }

    #[test]
    fn addresses_local_names_and_listed_names_are_allowed() {
        for host in [
            "127.0.0.1:8088",
            "127.0.0.1",
            "10.1.2.3:8088",
            "[::1]:8088",
            "[::1]",
            "localhost:8088",
            "LocalHost",
            "localhost.",
            "router.localhost:1",
            "starling.internal:8088",
            "Starling.Internal",
            "starling.internal.",
        ] {
            assert!(allows("/metrics", &[host]), "{host}");
        }
        assert!(allows("/metrics", &[]));
        assert!(allows("http://localhost:8088/metrics", &["localhost"]));
    }

    #[test]
    fn names_that_a_web_page_could_point_here_are_refused() {
        for host in [
            "evil.example",
            "evil.example:8088",
            "127.0.0.1.evil.example",
            "127.0.0.1:8088.evil.example",
            "localhost.evil.example",
            "notlocalhost",
            "evil.example:starling.internal",
            "x.starling.internal",
            "[::1].evil.example",
            "[evil.example]",
            "[127.0.0.1]",
            "",
            ":8088",
            "::1",
            "user@localhost",
        ] {
            assert!(!allows("/metrics", &[host]), "{host}");
        }
        assert!(!allows("/metrics", &["localhost", "evil.example"]), "every host is checked");
        assert!(
            !allows("http://evil.example/metrics", &["localhost"]),
            "the target is checked too"
        );
    }
}
