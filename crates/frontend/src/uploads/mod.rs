//! Requests with files (GraphQL multipart request specification): a form with the parts `operations`, `map`, and the
//! files, in this order.
//!
//! The operation starts when the map is read, and the files flow to the subgraphs that take them while they arrive
//! (`execute::FileTransfer`): a slow subgraph slows the client. If the client's form turns out to be of no use, the
//! operation is dropped, which aborts its requests to subgraphs.

mod form_source;
mod incoming_files;
mod memory;
mod metrics;
mod refusal;
mod stats;
mod upload_map;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use admission::memory::MemoryAccount;
use bytes::Bytes;
use execute::{FileTransfer, Uploads};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use http_body::Body;
use multer::{Constraints, Multipart, SizeLimit};
use prepare::OperationRequest;
use telemetry::LogLimit;
use tokio::time::Instant;

use self::form_source::FormSource;
use self::incoming_files::{IncomingFiles, body_bytes_max, discard_rest};
use self::memory::ReservedMemory;
pub use self::metrics::UPLOAD_METRICS;
pub(crate) use self::refusal::UploadRefusal;
use self::refusal::{FORM_FIELD_BYTES_MAX, form_error, larger_than_all, too_slow};
use self::stats::UploadStats;
use super::request::{self, OperationPlace, ParsedRequest};

/// The number of random bytes that markers contain.
const SECRET_BYTES: usize = 16;

/// Receives requests with files.
#[derive(Debug)]
pub struct UploadReceiver {
    settings: config::Uploads,
    stats: Arc<UploadStats>,
    /// The memory of the process.
    process_memory: Arc<MemoryAccount>,
}

/// A request with files, of which the first parts have been read.
pub(crate) struct IncomingUpload {
    /// The operation, with markers in place of the files.
    pub(crate) operation: OperationRequest,
    /// The files, for the requests to subgraphs.
    pub(crate) uploads: Arc<Uploads>,
    files: IncomingFiles,
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
    pub fn new(settings: &config::Uploads, memory: &Arc<MemoryAccount>) -> Option<Self> {
        settings.enabled.then(|| Self {
            settings: settings.clone(),
            stats: Arc::default(),
            process_memory: Arc::clone(memory),
        })
    }

    /// Reads a request with files up to the files.
    ///
    /// # Errors
    /// The request is not well-formed, over a limit, or too slow.
    pub(crate) async fn begin<B>(
        &self,
        headers: &HeaderMap,
        body: B,
    ) -> Result<IncomingUpload, UploadRefusal>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: std::error::Error,
    {
        self.stats.requests.fetch_add(1, Ordering::Relaxed);
        let deadline = Instant::now() + self.settings.timeout;
        let source = FormSource::new(body);
        let limit = body_bytes_max(&self.settings);
        if source.size_min().await > limit as u64 {
            self.discard_source(&source).await;
            return Err(larger_than_all(&self.settings));
        }
        let read =
            tokio::time::timeout_at(deadline, self.read_map(headers, &source, deadline)).await;
        let read = read.unwrap_or_else(|_| Err(too_slow(&self.settings)));
        if let Err(refusal) = &read {
            refusal.count(&self.stats);
            discard_rest(&source, limit).await;
        }
        read
    }

    /// Reads a form that is refused unread, so that its client sees the response. A form of more than twice the allowed
    /// size is not read.
    pub(crate) async fn discard<B>(&self, body: B)
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: std::error::Error,
    {
        self.discard_source(&FormSource::new(body)).await;
    }

    async fn discard_source(&self, source: &FormSource) {
        let bytes_max = self.settings.max_bytes.saturating_mul(2);
        if source.size_min().await <= bytes_max as u64 {
            discard_rest(source, bytes_max).await;
        }
    }

    /// Reads the parts `operations` and `map`.
    async fn read_map(
        &self,
        headers: &HeaderMap,
        source: &FormSource,
        deadline: Instant,
    ) -> Result<IncomingUpload, UploadRefusal> {
        let settings = &self.settings;
        let boundary = boundary(headers)?;
        let limits = SizeLimit::new()
            .whole_stream(body_bytes_max(settings) as u64)
            .per_field(settings.max_file_bytes as u64)
            .for_field("operations", FORM_FIELD_BYTES_MAX)
            .for_field("map", FORM_FIELD_BYTES_MAX);
        let constraints = Constraints::new().size_limit(limits);
        let memory = ReservedMemory::new(&self.stats, &self.process_memory);
        let pieces = source.pieces(&memory, settings.max_bytes_total);
        let mut form = Multipart::with_constraints(pieces, boundary, constraints);
        let operations = text(&mut form, "operations", settings).await?;
        let map = text(&mut form, "map", settings).await?;
        let operation = parse_operation(&operations)?;
        let map = upload_map::parse(&map).map_err(UploadRefusal::malformed)?;
        let max = usize::from(settings.max_files);
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
        let transfer = FileTransfer::new(map.len());
        let uploads = Uploads::new(&secret, Arc::clone(&transfer), settings.timeout);
        let files = IncomingFiles {
            form,
            source: source.clone(),
            memory,
            map,
            transfer,
            settings: settings.clone(),
            stats: Arc::clone(&self.stats),
            deadline,
        };
        let operation = OperationRequest { variables, ..operation };
        Ok(IncomingUpload { operation, uploads: Arc::new(uploads), files })
    }
}

impl IncomingUpload {
    /// Divides the request into the operation, the files for subgraphs, and the files that are still to be read.
    pub(crate) fn into_parts(self) -> (OperationRequest, Arc<Uploads>, IncomingFiles) {
        (self.operation, self.uploads, self.files)
    }
}

/// Returns the boundary of a form.
fn boundary(headers: &HeaderMap) -> Result<String, UploadRefusal> {
    if headers.contains_key(CONTENT_ENCODING) {
        return Err(UploadRefusal::Invalid(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "a request with files cannot be compressed: leave `content-encoding` out".into(),
        ));
    }
    let boundary = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    boundary.and_then(|value| multer::parse_boundary(value).ok()).ok_or_else(|| {
        UploadRefusal::malformed(
            "`content-type` has no `boundary`: leave it to the library that builds the form",
        )
    })
}

/// Returns the text of the next part, which must have this name.
async fn text(
    form: &mut Multipart<'static>,
    name: &str,
    settings: &config::Uploads,
) -> Result<Bytes, UploadRefusal> {
    match form.next_field().await.map_err(|error| form_error(&error, settings))? {
        Some(field) if field.name() == Some(name) => {
            field.bytes().await.map_err(|error| form_error(&error, settings))
        }
        _ => Err(UploadRefusal::malformed(format!(
            "the form must begin with the parts `operations` and `map`, and `{name}` is not where it belongs"
        ))),
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
        static LIMIT: LogLimit = LogLimit::new();
        if let Some(suppressed) = LIMIT.admit(std::time::Instant::now()) {
            let problem = "the system provides no random bytes, so files cannot be received";
            tracing::error!(%error, suppressed, "{problem}");
        }
        return None;
    }
    Some(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use clients::offload::INLINE_BYTES_MAX;
    use http::header::HeaderValue;
    use http_body_util::Full;

    use super::*;

    /// The status and the reason of a refusal; 200 if the form is accepted.
    async fn outcome(settings: config::Uploads, form: &str) -> (u16, String) {
        let receiver = UploadReceiver::new(
            &config::Uploads { enabled: true, ..settings },
            &MemoryAccount::unlimited(),
        )
        .unwrap();
        let kind = HeaderValue::from_static("multipart/form-data; boundary=x");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, kind)]);
        let body = Full::new(Bytes::from(form.replace('\n', "\r\n")));
        let received = match receiver.begin(&headers, body).await {
            Ok(upload) => {
                let (operation, uploads, files) = upload.into_parts();
                // Requests to subgraphs take the files at once.
                let sent = send_all(&uploads, &operation.variables);
                let query = operation.query.clone();
                files.run(sent).await.map(|sent| (query, sent))
            }
            Err(refusal) => Err(refusal),
        };
        let outcome = match &received {
            Ok((query, sent)) => (200, format!("{} {sent}", String::from_utf8_lossy(query))),
            Err(UploadRefusal::Invalid(status, reason)) => (status.as_u16(), reason.clone()),
            Err(UploadRefusal::TooSlow(reason)) => (408, reason.clone()),
            Err(UploadRefusal::Overloaded) => (503, String::new()),
        };
        drop(received);
        assert_eq!(receiver.stats.bytes.load(Ordering::Relaxed), 0, "memory is given back");
        outcome
    }

    /// Sends the files as a request to a subgraph would. Returns the form without its heads.
    async fn send_all(uploads: &Uploads, variables: &Bytes) -> String {
        let form = uploads.claim(variables).expect("free files").expect("files");
        let mut sent = Vec::new();
        while let Ok(Some(piece)) = poll_fn(|context| form.body.poll_piece(context)).await {
            sent.extend_from_slice(&piece);
        }
        let sent = String::from_utf8(sent).unwrap();
        let parts = sent.split("\r\n\r\n").filter_map(|part| part.split("\r\n--").next());
        parts.skip(3).collect::<Vec<_>>().join(" ")
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
        assert_eq!(accepted, (200, "q b a".to_owned()));
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

    /// A form that stops within its first file; it continues when the sender is dropped.
    async fn begin_unfinished(
        settings: config::Uploads,
        file: usize,
    ) -> (IncomingUpload, tokio::sync::mpsc::Sender<Bytes>) {
        let receiver = UploadReceiver::new(
            &config::Uploads { enabled: true, ..settings },
            &MemoryAccount::unlimited(),
        );
        let (sender, pieces) = tokio::sync::mpsc::channel(1000);
        let head = operations() + &map();
        let head = head.replace('\n', "\r\n")
            + "--x\r\ncontent-disposition: form-data; name=\"0\"\r\n\r\n";
        sender.try_send(Bytes::from(head)).expect("room");
        for _ in 0..file / 1024 {
            sender.try_send(Bytes::from(vec![b'x'; 1024])).expect("room");
        }
        let body = super::super::response::ResponseBody::Stream(pieces);
        let kind = HeaderValue::from_static("multipart/form-data; boundary=x");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, kind)]);
        let begun = receiver.unwrap().begin(&headers, body).await;
        (begun.unwrap_or_else(|refusal| panic!("{refusal:?}")), sender)
    }

    #[tokio::test(start_paused = true)]
    async fn a_form_that_never_ends_times_out() {
        let (upload, _held) = begin_unfinished(config::Uploads::default(), 0).await;
        let (operation, uploads, files) = upload.into_parts();
        let received = files.run(send_all(&uploads, &operation.variables)).await;
        assert!(matches!(received, Err(UploadRefusal::TooSlow(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_subgraph_that_takes_nothing_is_late_and_not_the_client() {
        let (upload, _held) = begin_unfinished(config::Uploads::default(), 900 * 1024).await;
        let (operation, uploads, files) = upload.into_parts();
        let form = uploads.claim(&operation.variables).expect("free files").expect("files");
        let end = files.run(poll_fn(|context| form.body.poll_sending_end(context))).await;
        assert_eq!(end.expect("no refusal"), execute::SendingEnd::Stalled);
    }

    #[tokio::test(start_paused = true)]
    async fn an_operation_that_ends_early_does_not_wait_for_the_files() {
        let (upload, held) = begin_unfinished(config::Uploads::default(), 900 * 1024).await;
        drop(held);
        let (_, _, files) = upload.into_parts();
        assert_eq!(files.run(async { 7 }).await.expect("no refusal"), 7);
    }

    #[tokio::test]
    async fn a_client_that_breaks_off_ends_the_operation() {
        let (upload, held) = begin_unfinished(config::Uploads::default(), 2048).await;
        drop(held);
        let (operation, uploads, files) = upload.into_parts();
        let form = uploads.claim(&operation.variables).expect("free files").expect("files");
        let received = files.run(std::future::pending::<()>()).await;
        assert!(matches!(received, Err(UploadRefusal::Invalid(StatusCode::BAD_REQUEST, _))));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let piece = form.body.poll_piece(&mut context);
        assert_eq!(piece, std::task::Poll::Ready(Err(execute::FormAborted)));
    }
}
