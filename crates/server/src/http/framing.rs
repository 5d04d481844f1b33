//! Where a request ends: said in one way that everybody reads alike.
//!
//! The HTTP library refuses conflicting lengths and broken chunks. It accepts any list of transfer codings that ends
//! with `chunked`, though it undoes only that one; another reader on the way may see another end.

use http::header::TRANSFER_ENCODING;
use http::{Request, Version};

/// Checks what a request says about its end.
///
/// # Errors
/// Says what is wrong: the request is to be answered with status 400, and its connection closed (RFC 9112,
/// section 6.1).
pub(crate) fn check_framing<B>(request: &Request<B>) -> Result<(), &'static str> {
    if request.version() >= Version::HTTP_2 {
        // There it is a malformed request, which the library resets.
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
