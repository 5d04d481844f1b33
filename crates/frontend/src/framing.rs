//! The end of a request: all readers on its way must find the same one.
//!
//! The HTTP library refuses conflicting lengths and broken chunks. It accepts any list of transfer codings that ends
//! with `chunked`, although it decodes only that one; another reader on the way may find another end.

use http::header::TRANSFER_ENCODING;
use http::{Request, Version};

/// Checks how a request marks its end.
///
/// # Errors
/// The defect. The response has status 400, and the connection closes (RFC 9112, section 6.1).
pub(crate) fn check_framing<B>(request: &Request<B>) -> Result<(), &'static str> {
    if request.version() >= Version::HTTP_2 {
        // In HTTP/2 such a request is malformed, and the library resets it.
        return Ok(());
    }
    let mut codings = request.headers().get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(one), None) if one.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err("the transfer encoding of the request is not `chunked` alone"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_transfer_coding_is_chunked_once() {
        for (codings, is_fine) in [
            (&[][..], true),
            (&["chunked"], true),
            (&["Chunked"], true),
            (&["chunked, chunked"], false),
            (&["chunked", "chunked"], false),
            (&["gzip, chunked"], false),
            (&["identity"], false),
            (&[""], false),
        ] {
            let mut builder = Request::builder();
            for coding in codings {
                builder = builder.header(TRANSFER_ENCODING, *coding);
            }
            let request = builder.body(()).expect("a request");
            assert_eq!(check_framing(&request).is_ok(), is_fine, "{codings:?}");
        }
    }
}
