//! Writes heads of requests, and reads heads of responses.

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Version};

use super::framing::{Framing, Malformed};

/// Maximum number of headers of a response; real ones have some twenty.
const HEADERS_MAX: usize = 100;

/// Maximum size of a head, as for HTTP/2; real ones have some hundred bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The head of a response, and its consequences for the body and the connection.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) head: Response<()>,
    pub(crate) framing: Framing,
    /// True if the connection may be used again after the body.
    pub(crate) keeps_alive: bool,
}

/// Writes the head of a request with a body of `length` bytes, or with a chunked body if the length is not known.
pub(crate) fn write_request(
    target: &str,
    headers: &HeaderMap,
    length: Option<usize>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"POST ");
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    for (name, value) in headers {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    match length {
        Some(length) => {
            out.extend_from_slice(b"content-length: ");
            out.extend_from_slice(length.to_string().as_bytes());
        }
        None => out.extend_from_slice(b"transfer-encoding: chunked"),
    }
    out.extend_from_slice(b"\r\n\r\n");
}

/// Takes a head off the front of `buffer`. `None` if it is not complete yet. Interim responses are
/// skipped (RFC 9110, section 15.2).
pub(crate) fn read_response(buffer: &mut BytesMut) -> Result<Option<ResponseHead>, Malformed> {
    loop {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut parsed = httparse::Response::new(&mut headers);
        let length = match parsed.parse(buffer) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if buffer.len() < HEAD_BYTES_MAX => return Ok(None),
            Ok(httparse::Status::Partial) => return Err("the head is too long"),
            Err(httparse::Error::TooManyHeaders) => return Err("there are too many headers"),
            Err(httparse::Error::Version) => return Err("the version is not known"),
            Err(_) => return Err("the head is malformed"),
        };
        // Both are set when a head is complete.
        let (version, code) = (parsed.version.unwrap_or(0), parsed.code.unwrap_or(0));
        let status = StatusCode::from_u16(code).map_err(|_| "the status is no status")?;
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Err("the server switches to another protocol without being asked");
        }
        if status.is_informational() {
            let _interim = buffer.split_to(length);
            continue;
        }
        // The ranges of names and values: taking the head off the buffer ends the borrow of it.
        let start = buffer.as_ptr() as usize;
        let range = |part: &[u8]| {
            let from = part.as_ptr() as usize - start;
            from..from + part.len()
        };
        let count = parsed.headers.len();
        let mut places = [const { (0..0, 0..0) }; HEADERS_MAX];
        for (place, header) in places.iter_mut().zip(parsed.headers.iter()) {
            *place = (range(header.name.as_bytes()), range(header.value));
        }
        let bytes = buffer.split_to(length).freeze();
        let mut map = HeaderMap::with_capacity(count);
        for (name, value) in &places[..count] {
            let name =
                HeaderName::from_bytes(&bytes[name.clone()]).map_err(|_| "a header's name")?;
            let value = shared_value(&bytes, value.clone())?;
            map.append(name, value);
        }
        return describe_head(status, version, map).map(Some);
    }
}

/// Returns a value that shares the memory of the head.
fn shared_value(head: &Bytes, place: std::ops::Range<usize>) -> Result<HeaderValue, Malformed> {
    HeaderValue::from_maybe_shared(head.slice(place)).map_err(|_| "a header's value")
}

fn describe_head(
    status: StatusCode,
    version: u8,
    headers: HeaderMap,
) -> Result<ResponseHead, Malformed> {
    let names = |name: &HeaderName, wanted: &[u8]| {
        let lists = headers.get_all(name).iter();
        lists
            .flat_map(|list| list.as_bytes().split(|&byte| byte == b','))
            .any(|it| it.trim_ascii().eq_ignore_ascii_case(wanted))
    };
    let mut keeps_alive = match version {
        0 => names(&CONNECTION, b"keep-alive"),
        _ => !names(&CONNECTION, b"close"),
    };
    // RFC 9112, section 6.3: with both headers, one of them is wrong, and the server and an
    // intermediary may disagree about the end of the body. The bytes after it cannot be trusted,
    // whatever the status says about a body.
    keeps_alive &=
        !(headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH));
    // The same section, in its order; the client sends only POST.
    let framing = if status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED {
        Framing::Length(0)
    } else if headers.contains_key(TRANSFER_ENCODING) {
        if version == 0 {
            return Err("transfer-encoding is not known to HTTP/1.0");
        }
        match is_chunked(&headers)? {
            true => Framing::chunked(),
            false => Framing::UntilClose,
        }
    } else {
        match content_length(&headers)? {
            Some(length) => Framing::Length(length),
            None => Framing::UntilClose,
        }
    };
    keeps_alive &= framing != Framing::UntilClose;
    let mut head = Response::new(());
    *head.status_mut() = status;
    *head.version_mut() = if version == 0 { Version::HTTP_10 } else { Version::HTTP_11 };
    *head.headers_mut() = headers;
    Ok(ResponseHead { head, framing, keeps_alive })
}

/// True if `chunked` is the only transfer coding. Others are not requested, and not undone.
fn is_chunked(headers: &HeaderMap) -> Result<bool, Malformed> {
    let codings = headers.get_all(TRANSFER_ENCODING).iter();
    let mut codings = codings.flat_map(|list| list.as_bytes().split(|&byte| byte == b','));
    match (codings.next(), codings.next()) {
        (Some(only), None) => Ok(only.trim_ascii().eq_ignore_ascii_case(b"chunked")),
        _ => Err("there are several transfer codings"),
    }
}

/// The announced length. Several equal ones are allowed.
fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Malformed> {
    let lists = headers.get_all(CONTENT_LENGTH).iter();
    let mut known = None;
    for text in lists.flat_map(|list| list.as_bytes().split(|&byte| byte == b',')) {
        let text = text.trim_ascii();
        let digits = std::str::from_utf8(text).ok().filter(|_| text.iter().all(u8::is_ascii_digit));
        let length = digits.and_then(|it| it.parse().ok()).ok_or("the length is no number")?;
        if known.is_some_and(|known| known != length) {
            return Err("there are several lengths");
        }
        known = Some(length);
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<(Framing, bool)>, Malformed> {
        let read = read_response(&mut BytesMut::from(text))?;
        Ok(read.map(|it| (it.framing, it.keeps_alive)))
    }

    #[test]
    fn the_head_determines_the_framing_and_the_reuse_of_the_connection() {
        use Framing::{Length, UntilClose};
        for (head, framing, keeps_alive) in [
            ("1.1 200 OK\r\ncontent-length: 3", Length(3), true),
            ("1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 3", Length(3), true),
            ("1.1 200 OK\r\ncontent-length: 3, 3", Length(3), true),
            ("1.1 200 OK\r\ncontent-length: 3\r\nconnection: Close", Length(3), false),
            ("1.1 200 OK\r\ncontent-length: 3\r\nconnection: a, close", Length(3), false),
            ("1.0 200 OK\r\ncontent-length: 3", Length(3), false),
            ("1.0 200 OK\r\ncontent-length: 3\r\nconnection: keep-alive", Length(3), true),
            ("1.1 200 OK", UntilClose, false),
            ("1.1 204 No Content", Length(0), true),
            ("1.1 304 Not Modified\r\ncontent-length: 9", Length(0), true),
            ("1.1 200 OK\r\ntransfer-encoding: Chunked", Framing::chunked(), true),
            (
                "1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 3",
                Framing::chunked(),
                false,
            ),
            ("1.1 200 OK\r\ntransfer-encoding: gzip", UntilClose, false),
            (
                "1.1 204 No Content\r\ntransfer-encoding: chunked\r\ncontent-length: 0",
                Length(0),
                false,
            ),
        ] {
            let text = format!("HTTP/{head}\r\n\r\n");
            assert_eq!(read(&text), Ok(Some((framing, keeps_alive))), "{head}");
        }
    }

    #[test]
    fn a_head_that_can_be_read_in_two_ways_is_refused() {
        for head in [
            "1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4",
            "1.1 200 OK\r\ncontent-length: +3",
            "1.1 200 OK\r\ncontent-length: ",
            "1.1 200 OK\r\ncontent-length: 3 3",
            "1.1 200 OK\r\ncontent-length: 99999999999999999999",
            "1.1 200 OK\r\ntransfer-encoding: gzip, chunked",
            "1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked",
            "1.0 200 OK\r\ntransfer-encoding: chunked",
            "1.1 200 OK\r\ncontent-length : 3",
            "1.1 200 OK\r\na: b\r\n c",
            "1.1 101 Switching Protocols",
            "1.1 99 Low",
            "2 200 OK",
        ] {
            assert!(read(&format!("HTTP/{head}\r\n\r\n")).is_err(), "{head}");
        }
    }

    #[test]
    fn interim_responses_are_skipped() {
        let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n\
                    HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{a}";
        let mut buffer = BytesMut::from(text);
        let head = read_response(&mut buffer).expect("well-formed").expect("complete").head;
        assert_eq!((head.status(), &buffer[..]), (StatusCode::OK, &b"{a}"[..]));
    }

    #[test]
    fn heads_have_bounds_and_may_come_in_pieces() {
        let text = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n";
        for length in 0..text.len() {
            assert_eq!(read(&text[..length]), Ok(None), "{length}");
        }
        let long = format!("HTTP/1.1 200 OK\r\na: {}", "a".repeat(HEAD_BYTES_MAX));
        assert_eq!(read(&long), Err("the head is too long"));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(read(&many), Err("there are too many headers"));
    }
}
