//! Which host a request is for: said once, or not at all.
//!
//! A request that two readers understand as one for different hosts is a way past the first of them.

use http::header::{HOST, HeaderValue};
use http::{Request, Version};

/// Checks what a request says about its host, and leaves it in the header `host`, wherever it stood before.
///
/// # Errors
/// Says what is wrong: the request is to be answered with status 400 (RFC 9112, section 3.2).
pub(crate) fn normalize_host<B>(request: &mut Request<B>) -> Result<(), &'static str> {
    let mut given = request.headers().get_all(HOST).iter();
    let host = given.next();
    if given.next().is_some() {
        return Err("the request has more than one header `host`");
    }
    if let Some(host) = host
        && !is_host(host)
    {
        return Err("the header `host` is not the name of a host");
    }
    match (request.uri().authority(), request.version()) {
        (None, Version::HTTP_11) if host.is_none() => Err("the request has no header `host`"),
        (None, _) => Ok(()),
        (Some(authority), version) => {
            let is_same = |host: &HeaderValue| {
                host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes())
            };
            // In HTTP/1.1 the target counts and the header does not (RFC 9112, section 3.2.2).
            if version == Version::HTTP_2 && !host.is_none_or(is_same) {
                return Err("the header `host` and `:authority` are not the same");
            }
            if authority.as_str().contains('@') {
                return Err("the host of a request has no user name");
            }
            let host = HeaderValue::from_str(authority.as_str());
            let host = host.map_err(|_| "the host of the request is not the name of a host")?;
            request.headers_mut().insert(HOST, host);
            Ok(())
        }
    }
}

/// May be empty (RFC 9110, section 7.2). A comma is allowed there by RFC 3986, but here it is rather two hosts.
// hot path: every request of HTTP/1.1; an `http::uri::Authority` would be an allocation.
fn is_host(value: &HeaderValue) -> bool {
    let is_of_hosts =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+;=%:[]".contains(byte);
    value.as_bytes().iter().all(is_of_hosts)
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
                Err("the header `host` is not the name of a host"),
            ),
            (
                V::HTTP_11,
                "/graphql",
                &["me@a.example"],
                Err("the header `host` is not the name of a host"),
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
