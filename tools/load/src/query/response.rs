//! Reads HTTP/1.1 responses as bytes arrive, without keeping them (RFC 9112, sections 4, 6 and 7).

/// The maximum length of a head; servers send some hundred bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The maximum number of fields of one head.
const FIELDS_MAX: usize = 100;

/// The maximum length of the line before a chunk, including extensions, and of a line of a trailer.
const LINE_BYTES_MAX: usize = 4096;

/// The properties of a complete response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CompletedResponse {
    pub(crate) status: u16,
    /// True if the connection can carry another request.
    pub(crate) keep_alive: bool,
    /// True if the body has a content coding, so that it is not JSON text.
    pub(crate) encoded: bool,
    /// The seconds for which a cache of one client may keep the response: `max-age` less `age`.
    pub(crate) fresh_seconds: Option<u32>,
    /// The seconds after which the client may try again. Dates, the other form of `retry-after`, are ignored.
    pub(crate) retry_after_seconds: Option<u32>,
}

/// The response cannot be parsed; the connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MalformedResponse(pub(crate) &'static str);

/// Reads the responses on one connection, one after the other.
#[derive(Debug)]
pub(crate) struct ResponseReader {
    state: ReadState,
    /// The part of a head or line that has arrived, if it did not arrive in one piece.
    partial: Vec<u8>,
    response: CompletedResponse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadState {
    Head,
    /// In a body with this number of bytes left.
    Body(u64),
    ChunkSize,
    Chunk(u64),
    /// Before the line end after a chunk.
    ChunkEnd,
    Trailer,
    /// In a body that ends with the connection.
    Rest,
}

/// The end of the body of a response.
enum Framing {
    Length(u64),
    Chunked,
    Close,
}

/// The properties of a response before its head was read.
pub(super) const NOTHING: CompletedResponse = CompletedResponse {
    status: 0,
    keep_alive: true,
    encoded: false,
    fresh_seconds: None,
    retry_after_seconds: None,
};

impl Default for ResponseReader {
    fn default() -> Self {
        Self { state: ReadState::Head, partial: Vec::new(), response: NOTHING }
    }
}

impl ResponseReader {
    /// True if no byte of a response has arrived.
    #[cfg(test)]
    fn is_idle(&self) -> bool {
        self.state == ReadState::Head && self.partial.is_empty()
    }

    /// Consumes the front of `input` and passes the bytes of the body to `body`. Returns when a response is complete, or
    /// with an empty input.
    // hot path: a head in one piece is parsed in place; the body is passed on as it is.
    pub(crate) fn read(
        &mut self,
        input: &mut &[u8],
        mut body: impl FnMut(&[u8]),
    ) -> Result<Option<CompletedResponse>, MalformedResponse> {
        while !input.is_empty() {
            match self.state {
                ReadState::Head => {
                    let Some(framing) = self.head(input)? else { continue };
                    self.state = match framing {
                        Framing::Length(0) => return Ok(Some(self.complete())),
                        Framing::Length(length) => ReadState::Body(length),
                        Framing::Chunked => ReadState::ChunkSize,
                        Framing::Close => ReadState::Rest,
                    };
                }
                ReadState::Body(left) => {
                    let taken = take(input, left);
                    body(taken);
                    let left = left - taken.len() as u64;
                    if left == 0 {
                        return Ok(Some(self.complete()));
                    }
                    self.state = ReadState::Body(left);
                }
                ReadState::Rest => body(std::mem::take(input)),
                ReadState::ChunkSize => {
                    let Some(size) = self.line(input, chunk_size)? else { continue };
                    self.state = match size? {
                        0 => ReadState::Trailer,
                        size => ReadState::Chunk(size),
                    };
                }
                ReadState::Chunk(left) => {
                    let taken = take(input, left);
                    body(taken);
                    let left = left - taken.len() as u64;
                    self.state =
                        if left == 0 { ReadState::ChunkEnd } else { ReadState::Chunk(left) };
                }
                ReadState::ChunkEnd => {
                    let Some(empty) = self.line(input, <[u8]>::is_empty)? else { continue };
                    if !empty {
                        return Err(MalformedResponse("a chunk is longer than its announced size"));
                    }
                    self.state = ReadState::ChunkSize;
                }
                ReadState::Trailer => {
                    let Some(last) = self.line(input, <[u8]>::is_empty)? else { continue };
                    if last {
                        return Ok(Some(self.complete()));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Handles the end of the connection. Returns the response if that completes it.
    pub(crate) fn closed(&mut self) -> Option<CompletedResponse> {
        (self.state == ReadState::Rest).then(|| self.complete())
    }

    fn complete(&mut self) -> CompletedResponse {
        self.state = ReadState::Head;
        std::mem::replace(&mut self.response, NOTHING)
    }

    /// Reads a head, or the part of it that is available.
    fn head(&mut self, input: &mut &[u8]) -> Result<Option<Framing>, MalformedResponse> {
        if self.partial.is_empty() {
            let Some((length, status, framing)) = parse_head(input, &mut self.response)? else {
                if input.len() > HEAD_BYTES_MAX {
                    return Err(MalformedResponse("the head is too long"));
                }
                self.partial.extend_from_slice(std::mem::take(input));
                return Ok(None);
            };
            *input = &input[length..];
            return Ok((status >= 200).then_some(framing));
        }
        let before = self.partial.len();
        let room = (HEAD_BYTES_MAX + 1).saturating_sub(before).min(input.len());
        self.partial.extend_from_slice(&input[..room]);
        match parse_head(&self.partial, &mut self.response)? {
            Some((length, status, framing)) => {
                // The kept bytes did not complete the head, so its end is in the new bytes.
                *input = &input[length - before..];
                self.partial.clear();
                Ok((status >= 200).then_some(framing))
            }
            None if self.partial.len() > HEAD_BYTES_MAX => {
                Err(MalformedResponse("the head is too long"))
            }
            None => {
                *input = &[];
                Ok(None)
            }
        }
    }

    /// Reads a line without its end.
    fn line<T>(
        &mut self,
        input: &mut &[u8],
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, MalformedResponse> {
        let end = memchr::memchr(b'\n', input);
        let taken = &input[..end.map_or(input.len(), |end| end + 1)];
        *input = &input[taken.len()..];
        if self.partial.len() + taken.len() > LINE_BYTES_MAX {
            return Err(MalformedResponse("a line of the body's framing is too long"));
        }
        if end.is_some() && self.partial.is_empty() {
            return Ok(Some(read(taken.trim_ascii_end())));
        }
        self.partial.extend_from_slice(taken);
        if end.is_none() {
            return Ok(None);
        }
        let result = read(self.partial.trim_ascii_end());
        self.partial.clear();
        Ok(Some(result))
    }
}

fn take<'a>(input: &mut &'a [u8], maximum: u64) -> &'a [u8] {
    let length = usize::try_from(maximum).unwrap_or(usize::MAX).min(input.len());
    let (taken, rest) = input.split_at(length);
    *input = rest;
    taken
}

fn chunk_size(line: &[u8]) -> Result<u64, MalformedResponse> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let text = std::str::from_utf8(digits).unwrap_or_default();
    // Sixteen digits fill a u64. A sign, which Rust would accept, is not a digit.
    if text.is_empty() || text.len() > 16 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(MalformedResponse("a chunk has no valid size"));
    }
    u64::from_str_radix(text, 16).map_err(|_| MalformedResponse("a chunk has no valid size"))
}

fn parse_head(
    bytes: &[u8],
    properties: &mut CompletedResponse,
) -> Result<Option<(usize, u16, Framing)>, MalformedResponse> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(MalformedResponse("the response is not HTTP/1.1")),
    };
    let status = response.code.unwrap_or(0);
    let (mut close, mut keep) = (false, false);
    let (mut content_length, mut chunked, mut encoded) = (None, false, false);
    let (mut max_age, mut age, mut retry_after_seconds) = (None, 0, None);
    for field in response.headers.iter() {
        let name = field.name;
        if name.eq_ignore_ascii_case("content-length") {
            let text = std::str::from_utf8(field.value).unwrap_or_default().trim();
            let number =
                text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>());
            match number {
                Some(Ok(number)) if content_length.is_none_or(|other| other == number) => {
                    content_length = Some(number);
                }
                _ => return Err(MalformedResponse("the content-length is not a number")),
            }
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            chunked = field.value.to_ascii_lowercase().trim_ascii().ends_with(b"chunked");
        } else if name.eq_ignore_ascii_case("connection") {
            let value = field.value.to_ascii_lowercase();
            let mut options = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
            close |= options.clone().any(|option| option == b"close");
            keep |= options.any(|option| option == b"keep-alive");
        } else if name.eq_ignore_ascii_case("content-encoding") {
            encoded |= !field.value.eq_ignore_ascii_case(b"identity");
        } else if name.eq_ignore_ascii_case("cache-control") {
            max_age = private_max_age(field.value);
        } else if name.eq_ignore_ascii_case("age") {
            age = seconds(field.value).unwrap_or(0);
        } else if name.eq_ignore_ascii_case("retry-after") {
            retry_after_seconds = seconds(field.value);
        }
    }
    let framing = match (status, chunked, content_length) {
        (204 | 304, ..) => Framing::Length(0),
        (_, true, _) => Framing::Chunked,
        (_, false, Some(length)) => Framing::Length(length),
        (_, false, None) => Framing::Close,
    };
    let http_1_0 = response.version == Some(0);
    let keep_alive = !close && (!http_1_0 || keep) && !matches!(framing, Framing::Close);
    let fresh_seconds = max_age.map(|max_age: u32| max_age.saturating_sub(age));
    *properties =
        CompletedResponse { status, keep_alive, encoded, fresh_seconds, retry_after_seconds };
    Ok(Some((length, status, framing)))
}

/// Returns the `max-age` of a `cache-control`; `None` if there is none, or if the response must not be stored or used
/// again without asking (RFC 9111, section 5.2.2).
fn private_max_age(value: &[u8]) -> Option<u32> {
    let mut max_age = None;
    for directive in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
        if directive.eq_ignore_ascii_case(b"no-store")
            || directive.eq_ignore_ascii_case(b"no-cache")
        {
            return None;
        }
        let (name, argument) = directive.split_at(directive.len().min("max-age=".len()));
        if name.eq_ignore_ascii_case(b"max-age=") {
            max_age = seconds(argument);
        }
    }
    max_age
}

/// Parses a number of seconds; one that is too large for the type becomes its largest value (RFC 9111, section 1.2.2).
fn seconds(value: &[u8]) -> Option<u32> {
    let digits = value.trim_ascii();
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    Some(text.parse().unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `text` in pieces of `size` bytes; returns the responses and their bodies, or the error.
    fn read(text: &str, size: usize) -> Result<Vec<(u16, bool, String)>, MalformedResponse> {
        let mut reader = ResponseReader::default();
        let mut responses = Vec::new();
        let mut body = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            let mut piece = piece;
            while !piece.is_empty() {
                let done = reader.read(&mut piece, |bytes| body.extend_from_slice(bytes))?;
                if let Some(done) = done {
                    let text = String::from_utf8(std::mem::take(&mut body)).unwrap();
                    responses.push((done.status, done.keep_alive, text));
                }
            }
        }
        if let Some(done) = reader.closed() {
            responses.push((done.status, done.keep_alive, String::from_utf8(body).unwrap()));
        } else if !reader.is_idle() {
            return Err(MalformedResponse("cut off"));
        }
        Ok(responses)
    }

    #[test]
    fn responses_do_not_depend_on_how_they_arrive() {
        for (text, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", vec![(200, true, "hi")]),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\naHTTP/1.1 500 x\r\ncontent-length: 0\r\n\r\n",
                vec![(200, true, "a"), (500, true, "")],
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nt: v\r\n\r\n",
                vec![(200, true, "abc0123456789")],
            ),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\nconnection: close\r\n\r\na",
                vec![(200, false, "a")],
            ),
            ("HTTP/1.1 204 No Content\r\n\r\n", vec![(204, true, "")]),
            ("HTTP/1.0 200 OK\r\n\r\nuntil the end", vec![(200, false, "until the end")]),
        ] {
            for size in [1, 2, 3, 7, text.len()] {
                let expected: Vec<_> = expected
                    .iter()
                    .map(|(status, keep_alive, body)| (*status, *keep_alive, (*body).to_owned()))
                    .collect();
                assert_eq!(read(text, size), Ok(expected), "{text:?} by {size}");
            }
        }
    }

    #[test]
    fn times_for_clients_are_read_from_the_head() {
        for (head, fresh, retry) in [
            ("cache-control: private, Max-Age=60", Some(60), None),
            ("Cache-Control: max-age=60\r\nage: 20", Some(40), None),
            ("age: 90\r\ncache-control: public,max-age=60", Some(0), None),
            ("cache-control: max-age=60, no-store", None, None),
            ("cache-control: no-cache, max-age=60", None, None),
            ("cache-control: s-maxage=60", None, None),
            ("cache-control: max-age=99999999999", Some(u32::MAX), None),
            ("retry-after: 3", None, Some(3)),
            ("retry-after: Fri, 31 Dec 1999 23:59:59 GMT", None, None),
        ] {
            let text = format!("HTTP/1.1 200 OK\r\n{head}\r\ncontent-length: 0\r\n\r\n");
            let response = ResponseReader::default().read(&mut text.as_bytes(), |_| {});
            let response = response.unwrap().unwrap();
            assert_eq!((response.fresh_seconds, response.retry_after_seconds), (fresh, retry));
        }
    }

    #[test]
    fn malformed_responses_are_refused() {
        let long = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(HEAD_BYTES_MAX));
        for text in [
            "HTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n+1\r\na\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab",
            long.as_str(),
        ] {
            // A head is parsed anew with each piece of it, so a long one is not read byte by byte here.
            for size in [text.len().div_ceil(50), text.len()] {
                assert!(read(text, size).is_err(), "{text:.60} by {size}");
            }
        }
    }
}
