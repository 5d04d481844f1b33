//! Compressed responses (RFC 9110, section 8.4): reads their codings, and expands them on another
//! thread if that may take long. The codings themselves are in the crate `coding`.

use bytes::Bytes;
use coding::{Coding, ExpandError};
use execute::FetchError;
use http::header::{CONTENT_ENCODING, HeaderMap, HeaderValue};

/// The accepted codings.
pub(crate) const ACCEPT_ENCODING: HeaderValue = HeaderValue::from_static(Coding::ACCEPT);

/// Maximum number of codings on top of each other. More than one is rare already.
const CODINGS_MAX: usize = 3;

/// Maximum size of a response that is expanded on the worker's thread, in some 0.3 ms. Larger ones
/// are started again on another thread.
const INLINE_BYTES_MAX: usize = 128 * 1024;

/// The codings of a response, in the order in which they were applied.
pub(crate) fn read_codings(headers: &HeaderMap) -> Result<Vec<Coding>, FetchError> {
    let mut codings = Vec::new();
    for value in headers.get_all(CONTENT_ENCODING) {
        let Ok(value) = value.to_str() else { return Err(unknown_coding()) };
        let names = value.split(',').map(str::trim);
        for name in names.filter(|it| !it.is_empty() && !it.eq_ignore_ascii_case("identity")) {
            codings.push(Coding::from_name(name).ok_or_else(unknown_coding)?);
            if codings.len() > CODINGS_MAX {
                return Err(unknown_coding());
            }
        }
    }
    Ok(codings)
}

fn unknown_coding() -> FetchError {
    let message = format!("the response has a content coding other than {}", Coding::ACCEPT);
    FetchError::Protocol(message)
}

/// Expands `body` to at most `limit` bytes.
pub(crate) async fn expand(
    body: Bytes,
    codings: Vec<Coding>,
    limit: u64,
) -> Result<Bytes, FetchError> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    match undo_codings(&body, &codings, limit.min(INLINE_BYTES_MAX)) {
        Err(ExpandError::TooLarge(_)) if limit > INLINE_BYTES_MAX => {}
        done => return done.map(Bytes::from).map_err(|error| to_fetch_error(error, limit)),
    }
    // If the request is cancelled, the thread ends by itself, at the limit at the latest.
    let undone = tokio::task::spawn_blocking(move || undo_codings(&body, &codings, limit)).await;
    let Ok(undone) = undone else {
        return Err(FetchError::Protocol("expanding the response broke off".into()));
    };
    undone.map(Bytes::from).map_err(|error| to_fetch_error(error, limit))
}

fn undo_codings(body: &[u8], codings: &[Coding], limit: usize) -> Result<Vec<u8>, ExpandError> {
    let (last, before) = match codings.split_last() {
        Some((last, before)) => (*last, before),
        None => return Ok(body.to_vec()),
    };
    let mut expanded = coding::expand(last, body, limit)?;
    for coding in before.iter().rev() {
        expanded = coding::expand(*coding, &expanded, limit)?;
    }
    Ok(expanded)
}

fn to_fetch_error(error: ExpandError, limit: usize) -> FetchError {
    match error {
        ExpandError::TooLarge(_) => FetchError::TooLarge { limit: limit as u64 },
        ExpandError::Broken { coding, .. } => {
            FetchError::Protocol(format!("the response is not valid {}", coding.name()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compressed(text: &[u8], codings: &[Coding]) -> Bytes {
        let compress = |text: Vec<u8>, coding: &Coding| coding::compress(*coding, &text).unwrap();
        codings.iter().fold(text.to_vec(), compress).into()
    }

    #[tokio::test]
    async fn expands_responses_of_all_sizes_and_refuses_those_over_the_limit() {
        for size in [1_000, 2 * INLINE_BYTES_MAX] {
            let text = b"{\"a\":1}".repeat(size / 7);
            for codings in [[Coding::Gzip], [Coding::Brotli], [Coding::Zstd], [Coding::Deflate]] {
                let body = compressed(&text, &codings);
                let whole = expand(body.clone(), codings.to_vec(), text.len() as u64).await;
                assert_eq!(whole.as_deref(), Ok(&*text), "{codings:?}");
                let limit = text.len() as u64 - 1;
                let refused = expand(body, codings.to_vec(), limit).await;
                assert_eq!(refused, Err(FetchError::TooLarge { limit }));
            }
        }
    }

    #[tokio::test]
    async fn refuses_a_body_that_is_not_compressed() {
        let body = Bytes::from_static(b"{\"a\":1}");
        let refused = expand(body, vec![Coding::Gzip], 1000).await.unwrap_err();
        assert_eq!(refused.to_string(), "the response is not valid gzip");
    }

    #[test]
    fn the_header_is_read_in_all_its_forms() {
        use Coding::{Brotli, Gzip, Zstd};
        let read = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(CONTENT_ENCODING, HeaderValue::from_static(value));
            }
            read_codings(&headers)
        };
        assert_eq!(read(&[]), Ok(vec![]));
        assert_eq!(read(&["identity"]), Ok(vec![]));
        assert_eq!(read(&["GZip"]), Ok(vec![Gzip]));
        assert_eq!(read(&["zstd, br", "x-gzip"]), Ok(vec![Zstd, Brotli, Gzip]));
        assert_eq!(read(&["compress"]), Err(unknown_coding()));
        assert_eq!(read(&["gzip,gzip,gzip,gzip"]), Err(unknown_coding()));
    }
}
