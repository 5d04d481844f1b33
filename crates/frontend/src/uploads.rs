//! Requests with files (GraphQL multipart request specification): a form with the parts `operations`, `map`, and the
//! files, in this order.
//!
//! The files are received into memory, within bounds for a file, a request, and all requests together. They are not
//! streamed: a subgraph that reads slowly, or a client that sends slowly, costs memory until `uploads.timeout`.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use clients::offload::INLINE_BYTES_MAX;
use execute::{UploadedFile, Uploads};
use futures_util::{Stream, StreamExt};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use multer::{Constraints, Field, Multipart, SizeLimit};
use prepare::OperationRequest;
use telemetry::{Metric, read};
use tokio::sync::Mutex;

use super::request::{self, OperationPlace, ParsedRequest};
use super::upload_map::{self, FilePaths};

/// The maximum size of each of the parts `operations` and `map`: they are parsed at once, as small bodies are.
const FORM_FIELD_BYTES_MAX: u64 = INLINE_BYTES_MAX as u64;

/// The maximum size of a form apart from its files: the two fields above, and 1 KiB of headers for each of a hundred
/// parts.
const FORM_BYTES_BESIDE_FILES: usize = 2 * INLINE_BYTES_MAX + 100 * 1024;

/// The maximum length of the name of a file, in bytes, as most file systems have it.
const FILE_NAME_BYTES_MAX: usize = 255;

/// The time for which a form that is refused unread is discarded.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of random bytes that markers contain.
const SECRET_BYTES: usize = 16;

/// The reason that a request with files is refused: a status, and a message for the client.
#[derive(Debug)]
pub(crate) enum UploadRefusal {
    /// The request is not well-formed, or over a limit.
    Invalid(StatusCode, String),
    /// The request did not arrive in time.
    TooSlow(String),
    /// All requests together are over their limit.
    Overloaded,
}

impl UploadRefusal {
    fn malformed(reason: impl Into<String>) -> Self {
        Self::Invalid(StatusCode::BAD_REQUEST, reason.into())
    }

    fn too_large(reason: impl Into<String>) -> Self {
        Self::Invalid(StatusCode::PAYLOAD_TOO_LARGE, reason.into())
    }
}

/// Counters of requests with files.
#[derive(Debug, Default)]
pub(crate) struct UploadMetrics {
    /// The bytes of requests with files that are in memory.
    bytes: AtomicUsize,
    requests: AtomicU64,
    overloaded: AtomicU64,
}

/// The metrics of requests with files.
pub const UPLOAD_METRICS: &[Metric<UploadReceiver>] = &[
    Metric::counter("starling_uploads", "Requests with files", |it| read(&it.metrics.requests)),
    Metric::counter(
        "starling_uploads_overloaded",
        "Requests with files that were refused because of uploads.max_bytes_total",
        |it| read(&it.metrics.overloaded),
    ),
    Metric::gauge("starling_uploads_bytes", "Bytes of requests with files in memory", |it| {
        it.metrics.bytes.load(Ordering::Relaxed) as u64
    }),
];

/// Receives requests with files.
#[derive(Debug)]
pub struct UploadReceiver {
    settings: config::Uploads,
    metrics: Arc<UploadMetrics>,
}

/// The bytes of one request in [`UploadMetrics`].
struct ReservedMemory {
    metrics: Arc<UploadMetrics>,
    bytes: AtomicUsize,
}

impl Drop for ReservedMemory {
    fn drop(&mut self) {
        self.metrics.bytes.fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
    }
}

/// The reason that the body of a form cannot be received.
#[derive(Debug, thiserror::Error)]
enum FormBodyError {
    #[error("over the limit of all requests with files")]
    Overloaded,
    #[error("{0}")]
    Broken(String),
}

/// True if the body of a request is a form with files.
pub(crate) fn is_form(headers: &HeaderMap) -> bool {
    let Some(Ok(value)) = headers.get(CONTENT_TYPE).map(|value| value.to_str()) else {
        return false;
    };
    let media = value.split(';').next().unwrap_or_default().trim();
    media.eq_ignore_ascii_case("multipart/form-data")
}

impl UploadReceiver {
    /// Creates a receiver; `None` if files are not accepted.
    pub fn new(settings: &config::Uploads) -> Option<Self> {
        let receiver = Self { settings: settings.clone(), metrics: Arc::default() };
        settings.enabled.then_some(receiver)
    }

    /// Receives a request with files.
    ///
    /// # Errors
    /// The request is not well-formed, over a limit, or too slow.
    pub(crate) async fn receive<B>(
        &self,
        headers: &HeaderMap,
        body: B,
    ) -> Result<(OperationRequest, Arc<Uploads>), UploadRefusal>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: std::error::Error,
    {
        self.metrics.requests.fetch_add(1, Ordering::Relaxed);
        let time = self.settings.timeout;
        let received = tokio::time::timeout(time, self.receive_form(headers, body)).await;
        let received = received.unwrap_or_else(|_| {
            let reason = format!("the files did not arrive within {time:?} (`uploads.timeout`)");
            Err(UploadRefusal::TooSlow(reason))
        });
        if matches!(received, Err(UploadRefusal::Overloaded)) {
            self.metrics.overloaded.fetch_add(1, Ordering::Relaxed);
        }
        received
    }

    async fn receive_form<B>(
        &self,
        headers: &HeaderMap,
        body: B,
    ) -> Result<(OperationRequest, Arc<Uploads>), UploadRefusal>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: std::error::Error,
    {
        if headers.contains_key(CONTENT_ENCODING) {
            return Err(UploadRefusal::Invalid(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "a request with files cannot be compressed: leave `content-encoding` out".into(),
            ));
        }
        let boundary = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let boundary = boundary.and_then(|value| multer::parse_boundary(value).ok());
        let Some(boundary) = boundary else {
            return Err(UploadRefusal::malformed(
                "`content-type` has no `boundary`: leave it to the library that builds the form",
            ));
        };
        let limit = self.settings.max_bytes.saturating_add(FORM_BYTES_BESIDE_FILES);
        if body.size_hint().lower() > limit as u64 {
            self.discard(body).await;
            return Err(self.larger_than_all());
        }
        let memory = Arc::new(ReservedMemory {
            metrics: Arc::clone(&self.metrics),
            bytes: AtomicUsize::new(0),
        });
        let limits = SizeLimit::new()
            .whole_stream(limit as u64)
            .per_field(self.settings.max_file_bytes as u64)
            .for_field("operations", FORM_FIELD_BYTES_MAX)
            .for_field("map", FORM_FIELD_BYTES_MAX);
        let constraints = Constraints::new().size_limit(limits);
        let body = Arc::new(Mutex::new(Box::pin(body)));
        let stream = self.counted(Arc::clone(&body), &memory);
        let form = Multipart::with_constraints(stream, boundary, constraints);
        let received = self.read_form(form, memory).await;
        if received.is_err() {
            // A client that still sends would not see the response.
            discard(body.lock().await.as_mut(), limit).await;
        }
        received
    }

    /// Reads a form that is refused unread, so that its client sees the response: one that still sends when the
    /// connection closes would not. A form of more than twice the allowed size is not read.
    pub(crate) async fn discard<B: Body<Data = Bytes>>(&self, body: B) {
        let bytes_max = self.settings.max_bytes.saturating_mul(2);
        if body.size_hint().lower() <= bytes_max as u64 {
            let body = pin!(body);
            let discarded = discard(body, bytes_max);
            // Afterwards the connection is closed in any case.
            let _ = tokio::time::timeout(DISCARD_TIMEOUT, discarded).await;
        }
    }

    /// Reads the parts of a form.
    async fn read_form(
        &self,
        mut form: Multipart<'_>,
        memory: Arc<ReservedMemory>,
    ) -> Result<(OperationRequest, Arc<Uploads>), UploadRefusal> {
        let (operations, map) =
            (self.text(&mut form, "operations").await?, self.text(&mut form, "map").await?);
        let operation = parse_operation(&operations)?;
        let map = upload_map::parse(&map).map_err(UploadRefusal::malformed)?;
        let max = usize::from(self.settings.max_files);
        if map.len() > max {
            return Err(UploadRefusal::too_large(format!(
                "the request has {} files, and {max} are allowed (`uploads.max_files`)",
                map.len()
            )));
        }
        let secret = random_secret().ok_or(UploadRefusal::Overloaded)?;
        let marker = |file| Uploads::marker(&secret, file);
        let variables = upload_map::put_markers(&operation.variables, &map, marker);
        let variables = variables.map_err(UploadRefusal::malformed)?;
        let files = self.files(&mut form, &map).await?;
        drop(form);
        let uploads = Uploads::new(&secret, files, Box::new(memory));
        Ok((OperationRequest { variables, ..operation }, Arc::new(uploads)))
    }

    /// Returns the pieces of a body, each counted before it is kept.
    fn counted<B>(
        &self,
        body: SharedBody<B>,
        memory: &Arc<ReservedMemory>,
    ) -> impl Stream<Item = Result<Bytes, FormBodyError>> + Send + use<B>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: std::error::Error,
    {
        let (memory, bound) = (Arc::clone(memory), self.settings.max_bytes_total);
        let frames = futures_util::stream::unfold(body, |body: SharedBody<B>| async move {
            let frame = body.lock().await.frame().await?;
            let piece = frame.map(|frame| frame.into_data().unwrap_or_default());
            Some((piece.map_err(|error| FormBodyError::Broken(error.to_string())), body))
        });
        frames.map(move |piece| {
            let piece = piece?;
            let before = memory.metrics.bytes.fetch_add(piece.len(), Ordering::Relaxed);
            memory.bytes.fetch_add(piece.len(), Ordering::Relaxed);
            if before + piece.len() > bound {
                return Err(FormBodyError::Overloaded);
            }
            Ok(piece)
        })
    }

    /// Returns the text of the next part, which must have this name.
    async fn text(&self, form: &mut Multipart<'_>, name: &str) -> Result<Bytes, UploadRefusal> {
        let field = form.next_field().await.map_err(|error| self.refuse(&error))?;
        match field {
            Some(field) if field.name() == Some(name) => {
                field.bytes().await.map_err(|error| self.refuse(&error))
            }
            _ => Err(UploadRefusal::malformed(format!(
                "the form must begin with the parts `operations` and `map`, and `{name}` is not where it belongs"
            ))),
        }
    }

    /// Receives the files in the order in which they arrive. Returns them in the order of the map.
    async fn files(
        &self,
        form: &mut Multipart<'_>,
        map: &[FilePaths],
    ) -> Result<Vec<UploadedFile>, UploadRefusal> {
        let mut files: Vec<Option<UploadedFile>> = map.iter().map(|_| None).collect();
        let mut left = self.settings.max_bytes;
        while let Some(field) = form.next_field().await.map_err(|error| self.refuse(&error))? {
            let name = field.name().unwrap_or_default();
            let Some(index) = map.iter().position(|file| *file.name == *name) else {
                let reason = "the form has a part that `map` does not name";
                return Err(UploadRefusal::malformed(reason));
            };
            if files[index].is_some() {
                return Err(UploadRefusal::malformed(format!("the file `{name}` comes twice")));
            }
            files[index] = Some(self.file(field, &mut left).await?);
        }
        let missing = files.iter().position(Option::is_none);
        if let Some(missing) = missing {
            let name = &map[missing].name;
            return Err(UploadRefusal::malformed(format!("the file `{name}` of `map` is missing")));
        }
        Ok(files.into_iter().flatten().collect())
    }

    /// Receives one file; `left` are the bytes that the files of the request may still have.
    async fn file(
        &self,
        mut field: Field<'_>,
        left: &mut usize,
    ) -> Result<UploadedFile, UploadRefusal> {
        let file_name = field.file_name().map(Box::<str>::from);
        if file_name.as_ref().is_some_and(|name| name.len() > FILE_NAME_BYTES_MAX) {
            let reason = format!("a file has a name of more than {FILE_NAME_BYTES_MAX} bytes");
            return Err(UploadRefusal::malformed(reason));
        }
        let kind = field.content_type().map(ToString::to_string);
        let kind = kind.and_then(|kind| HeaderValue::try_from(kind).ok());
        let kind = kind.filter(|kind| kind.to_str().is_ok());
        // Copied, because the pieces are slices of larger buffers.
        let mut content = Vec::new();
        while let Some(piece) = field.chunk().await.map_err(|error| self.refuse(&error))? {
            *left = left.checked_sub(piece.len()).ok_or_else(|| self.larger_than_all())?;
            content.extend_from_slice(&piece);
        }
        content.shrink_to_fit();
        Ok(UploadedFile::new(file_name, kind, content.into()))
    }

    fn larger_than_all(&self) -> UploadRefusal {
        let bytes = self.settings.max_bytes;
        let reason = format!("the files have more than {bytes} bytes (`uploads.max_bytes`)");
        UploadRefusal::too_large(reason)
    }

    /// Returns the refusal for an error of the form.
    fn refuse(&self, error: &multer::Error) -> UploadRefusal {
        match error {
            multer::Error::FieldSizeExceeded { field_name: Some(name), .. }
                if name == "operations" || name == "map" =>
            {
                UploadRefusal::too_large(format!(
                    "the part `{name}` has more than {FORM_FIELD_BYTES_MAX} bytes"
                ))
            }
            multer::Error::FieldSizeExceeded { .. } => UploadRefusal::too_large(format!(
                "a file has more than {} bytes (`uploads.max_file_bytes`)",
                self.settings.max_file_bytes
            )),
            multer::Error::StreamSizeExceeded { .. } => self.larger_than_all(),
            multer::Error::StreamReadFailed(error) => match error.downcast_ref() {
                Some(FormBodyError::Overloaded) => UploadRefusal::Overloaded,
                _ => UploadRefusal::malformed(format!("the request body broke off: {error}")),
            },
            error => UploadRefusal::malformed(format!("the form cannot be read: {error}")),
        }
    }
}

/// A body that a form reads, and the discarding of its rest.
type SharedBody<B> = Arc<Mutex<Pin<Box<B>>>>;

/// Reads the rest of a body, at most so many bytes.
async fn discard<B: Body<Data = Bytes>>(mut body: Pin<&mut B>, bytes_max: usize) {
    let mut left = bytes_max;
    while let Some(Ok(frame)) = body.frame().await {
        let size = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(size) {
            Some(rest) => left = rest,
            None => break,
        }
    }
}

fn parse_operation(text: &Bytes) -> Result<OperationRequest, UploadRefusal> {
    let in_part = |reason: String| UploadRefusal::malformed(format!("`operations`: {reason}"));
    match request::parse_body(text, OperationPlace::Request, 0) {
        Ok(ParsedRequest::One(operation)) => Ok(operation),
        Ok(ParsedRequest::Batch(_)) => Err(in_part("batches carry no files".into())),
        Err(_) if text.trim_ascii_start().first() == Some(&b'[') => {
            Err(in_part("batches carry no files: send one object with `query`".into()))
        }
        Err(error) => Err(in_part(error.to_string())),
    }
}

/// Returns random hexadecimal digits; `None` if the system provides no random bytes.
fn random_secret() -> Option<String> {
    let mut random = [0; SECRET_BYTES];
    if let Err(error) = getrandom::fill(&mut random) {
        tracing::error!(%error, "the system provides no random bytes, so files cannot be received");
        return None;
    }
    Some(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    /// The status and the reason of a refusal; 200 if the form is accepted.
    async fn outcome(settings: config::Uploads, form: &str) -> (u16, String) {
        let receiver = UploadReceiver::new(&config::Uploads { enabled: true, ..settings }).unwrap();
        let kind = HeaderValue::from_static("multipart/form-data; boundary=x");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, kind)]);
        let body = Full::new(Bytes::from(form.replace('\n', "\r\n")));
        let received = receiver.receive(&headers, body).await;
        let outcome = match &received {
            Ok((operation, uploads)) => {
                (200, format!("{} {uploads:?}", String::from_utf8_lossy(&operation.query)))
            }
            Err(UploadRefusal::Invalid(status, reason)) => (status.as_u16(), reason.clone()),
            Err(UploadRefusal::TooSlow(reason)) => (408, reason.clone()),
            Err(UploadRefusal::Overloaded) => (503, String::new()),
        };
        drop(received);
        assert_eq!(receiver.metrics.bytes.load(Ordering::Relaxed), 0, "memory is given back");
        outcome
    }

    fn part(name: &str, content: &str) -> String {
        format!("--x\ncontent-disposition: form-data; name=\"{name}\"\n\n{content}\n")
    }

    fn file(name: &str, content: &str) -> String {
        format!(
            "--x\ncontent-disposition: form-data; name=\"{name}\"; filename=\"a.txt\"\n\
             content-type: text/plain\n\n{content}\n"
        )
    }

    const END: &str = "--x--\n";

    fn operations() -> String {
        part("operations", r#"{"query":"q","variables":{"a":null,"b":null}}"#)
    }

    fn map() -> String {
        part("map", r#"{"0":["variables.a"],"1":["variables.b"]}"#)
    }

    #[tokio::test]
    async fn a_form_with_all_of_its_parts_is_accepted() {
        let form = operations() + &map() + &file("1", "b") + &file("0", "a") + END;
        let accepted = outcome(config::Uploads::default(), &form).await;
        assert_eq!(accepted, (200, "q Uploads(2 files)".to_owned()));
    }

    #[tokio::test]
    async fn a_form_over_a_limit_is_refused_with_the_limit() {
        let form = operations() + &map() + &file("0", "12345") + &file("1", "12345") + END;
        let default = config::Uploads::default;
        for (settings, expected) in [
            (config::Uploads { max_files: 1, ..default() }, "`uploads.max_files`"),
            (config::Uploads { max_file_bytes: 4, ..default() }, "`uploads.max_file_bytes`"),
            (config::Uploads { max_bytes: 9, ..default() }, "`uploads.max_bytes`"),
        ] {
            let (status, reason) = outcome(settings, &form).await;
            assert!(status == 413 && reason.contains(expected), "{status} {reason}");
        }
        let large = part("operations", &"x".repeat(INLINE_BYTES_MAX + 1)) + END;
        assert_eq!(outcome(default(), &large).await.0, 413);
        let (status, _) =
            outcome(config::Uploads { max_bytes_total: 99, ..default() }, &form).await;
        assert_eq!(status, 503);
    }

    #[tokio::test]
    async fn a_form_with_missing_or_misplaced_parts_is_refused() {
        for (form, expected) in [
            (map() + &operations() + END, "`operations` is not where it belongs"),
            (operations() + &file("0", "a") + END, "`map` is not where it belongs"),
            (operations() + &map() + &file("0", "a") + END, "the file `1` of `map` is missing"),
            (operations() + &map() + &file("2", "a") + END, "a part that `map` does not name"),
            (
                operations() + &map() + &file("0", "a") + &file("0", "a") + END,
                "the file `0` comes twice",
            ),
            (
                operations() + &map() + "--x\ncontent-disposition: form-data; name=\"0\"\n\nabc",
                "the form cannot be read",
            ),
            (part("operations", "[]") + &map() + END, "batches carry no files"),
            (part("operations", "{}") + &map() + END, "the request has no `query`"),
            (operations() + &part("map", r#"{"0":["variables.c"]}"#) + END, "`variables.c`"),
            ("no form at all".to_owned(), "the form cannot be read"),
        ] {
            let (status, reason) = outcome(config::Uploads::default(), &form).await;
            assert!(status == 400 && reason.contains(expected), "{form}: {status} {reason}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_form_that_never_ends_times_out() {
        let receiver =
            UploadReceiver::new(&config::Uploads { enabled: true, ..config::Uploads::default() });
        let (_held, pieces) = tokio::sync::mpsc::channel(1);
        let body = super::super::response::ResponseBody::Stream(pieces);
        let kind = HeaderValue::from_static("multipart/form-data; boundary=x");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, kind)]);
        let received = receiver.unwrap().receive(&headers, body).await;
        assert!(matches!(received, Err(UploadRefusal::TooSlow(_))));
    }
}
