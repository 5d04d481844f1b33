//! The host of a request, which the request must name exactly once.
//!
//! A request that two readers assign to different hosts could pass the access rules of the first reader.

use http::header::{HOST, HeaderValue};
use http::{Request, Version};

/// Checks the host of a request and puts it into the header `host`, wherever the request named it.
///
/// # Errors
/// The defect. The response has status 400 (RFC 9112, section 3.2).
pub(crate) fn normalize_host<B>(request: &mut Request<B>) -> Result<(), &'static str> {
    let mut given = request.headers().get_all(HOST).iter();
    let host = given.next();
    if given.next().is_some() {
        return Err("the request has more than one header `host`");
    }
    if let Some(host) = host
        && !is_host(host)
    {
        return Err("the header `host` is not a valid host name");
    }
    match (request.uri().authority(), request.version()) {
        (None, Version::HTTP_11) if host.is_none() => Err("the request has no header `host`"),
        (None, _) => Ok(()),
        (Some(authority), version) => {
            let is_same = |host: &HeaderValue| {
                host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes())
            };
            // In HTTP/1.1 the target decides and the header is ignored (RFC 9112, section 3.2.2).
            if version == Version::HTTP_2 && !host.is_none_or(is_same) {
                return Err("the header `host` and `:authority` are not the same");
            }
            if authority.as_str().contains('@') {
                return Err("the host of the request must not contain a user name");
            }
            let host = HeaderValue::from_str(authority.as_str());
            let host = host.map_err(|_| "the host of the request is not a valid host name")?;
            request.headers_mut().insert(HOST, host);
            Ok(())
        }
    }
}

/// True if the value can be a host. It may be empty (RFC 9110, section 7.2). RFC 3986 allows a comma, but here it would
/// rather separate two hosts.
// hot path: every request of HTTP/1.1; an `http::uri::Authority` would be an allocation.
fn is_host(value: &HeaderValue) -> bool {
    let is_host_byte =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+;=%:[]".contains(byte);
    value.as_bytes().iter().all(is_host_byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalized(version: Version, uri: &str, hosts: &[&str]) -> Result<String, &'static str> {
        let mut builder = Request::builder().version(version).uri(uri);
        for host in hosts {
            builder = builder.header(HOST, *host);
        }
        let mut request = builder.body(()).expect("a request");
        normalize_host(&mut request)?;
        let host = request.headers().get(HOST).map(|it| it.to_str().expect("text").to_owned());
        Ok(host.unwrap_or_default())
    }

    #[test]
    fn a_request_names_its_host_once() {
        use Version as V;
        let absolute = "http://a.example/graphql";
        for (version, uri, hosts, expected) in [
            (V::HTTP_11, "/graphql", &["a.example:4000"][..], Ok("a.example:4000")),
            (V::HTTP_11, "/graphql", &["[::1]:4000"], Ok("[::1]:4000")),
            (V::HTTP_11, "/graphql", &[""], Ok("")),
            (V::HTTP_11, "/graphql", &[], Err("the request has no header `host`")),
            (V::HTTP_10, "/graphql", &[], Ok("")),
            (
                V::HTTP_11,
                "/graphql",
                &["a.example", "a.example"],
                Err("the request has more than one header `host`"),
            ),
            (
                V::HTTP_11,
                "/graphql",
                &["a.example, b.example"],
                Err("the header `host` is not a valid host name"),
            ),
            (
                V::HTTP_11,
                "/graphql",
                &["me@a.example"],
                Err("the header `host` is not a valid host name"),
            ),
            (V::HTTP_11, absolute, &["b.example"], Ok("a.example")),
            (V::HTTP_2, absolute, &[], Ok("a.example")),
            (V::HTTP_2, absolute, &["A.example"], Ok("a.example")),
            (
                V::HTTP_2,
                absolute,
                &["b.example"],
                Err("the header `host` and `:authority` are not the same"),
            ),
        ] {
            let host = normalized(version, uri, hosts);
            assert_eq!(host.as_deref(), expected.as_ref().map(|it| &**it), "{uri} {hosts:?}");
        }
    }
}
