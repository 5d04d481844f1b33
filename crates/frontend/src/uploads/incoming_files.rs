//! The files of a client's form: they flow to the requests of the operation, which runs meanwhile.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clients::offload::INLINE_BYTES_MAX;
use execute::{FileHead, FileTransfer};
use futures_util::future::{Either, select};
use http::header::HeaderValue;
use multer::{Field, Multipart};
use tokio::time::Instant;

use super::form_source::FormSource;
use super::memory::ReservedMemory;
use super::refusal::{UploadRefusal, form_error, larger_than_all, too_slow};
use super::stats::UploadStats;
use super::upload_map::FilePaths;

/// The maximum size of a form apart from its files: the two fields above, and 1 KiB of headers for each of a hundred
/// parts.
const FORM_BYTES_BESIDE_FILES: usize = 2 * INLINE_BYTES_MAX + 100 * 1024;

/// The maximum length of the name of a file, in bytes, as most file systems have it.
const FILE_NAME_BYTES_MAX: usize = 255;

/// The time for which the rest of a form is discarded, so that its client sees the response: one that still sends when
/// the connection closes would not. Afterwards the connection is closed in any case.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// The files of a request that are still to be read.
pub(crate) struct IncomingFiles {
    pub(super) form: Multipart<'static>,
    pub(super) source: FormSource,
    pub(super) memory: Arc<ReservedMemory>,
    pub(super) map: Vec<FilePaths>,
    pub(super) transfer: Arc<FileTransfer>,
    pub(super) settings: config::Uploads,
    pub(super) stats: Arc<UploadStats>,
    pub(super) deadline: Instant,
}

impl IncomingFiles {
    /// Receives the files while `operation` sends them to subgraphs, and returns its result. If the operation ends
    /// first, the rest of the files is discarded.
    ///
    /// # Errors
    /// The files are not well-formed, over a limit, or too slow. The operation was dropped then.
    pub(crate) async fn run<F: Future>(self, operation: F) -> Result<F::Output, UploadRefusal> {
        let Self { form, source, memory, map, transfer, settings, stats, deadline } = self;
        let bytes_max = body_bytes_max(&settings);
        let files = FileReader { map: &map, transfer: &transfer, memory, settings: &settings };
        let receiving = Box::pin(tokio::time::timeout_at(deadline, files.read(form)));
        let outcome = match select(receiving, Box::pin(operation)).await {
            Either::Left((received, operation)) => match received {
                Ok(Ok(())) => Ok(operation.await),
                // Requests over HTTP/2 are tasks of their own, which notice the end of the transfer.
                Ok(Err(refusal)) => {
                    transfer.abort();
                    drop(operation);
                    Err(refusal)
                }
                // The client has sent what it could: its subgraph takes nothing.
                Err(_) if transfer.is_blocked() => {
                    transfer.stall();
                    let response = operation.await;
                    discard_rest(&source, bytes_max).await;
                    Ok(response)
                }
                Err(_) => {
                    transfer.abort();
                    drop(operation);
                    Err(too_slow(&settings))
                }
            },
            Either::Right((response, receiving)) => {
                transfer.abort();
                drop(receiving);
                discard_rest(&source, bytes_max).await;
                Ok(response)
            }
        };
        if transfer.has_buffered() {
            stats.buffered.fetch_add(1, Ordering::Relaxed);
        }
        if let Err(refusal) = &outcome {
            refusal.count(&stats);
            stats.broken_off.fetch_add(1, Ordering::Relaxed);
            discard_rest(&source, bytes_max).await;
        }
        outcome
    }
}

/// Reads the files of a form.
struct FileReader<'a> {
    map: &'a [FilePaths],
    transfer: &'a FileTransfer,
    memory: Arc<ReservedMemory>,
    settings: &'a config::Uploads,
}

impl FileReader<'_> {
    /// Reads the files in the order in which they arrive, to the end of the form.
    async fn read(self, mut form: Multipart<'static>) -> Result<(), UploadRefusal> {
        let mut left = self.settings.max_bytes;
        while let Some(field) =
            form.next_field().await.map_err(|it| form_error(&it, self.settings))?
        {
            let name = field.name().unwrap_or_default();
            let Some(index) = self.map.iter().position(|file| *file.name == *name) else {
                let reason = "the form has a part that `map` does not name";
                return Err(UploadRefusal::malformed(reason));
            };
            self.read_file(index, field, &mut left).await?;
        }
        if let Some(missing) = self.transfer.missing_file() {
            let name = &self.map[missing].name;
            return Err(UploadRefusal::malformed(format!("the file `{name}` of `map` is missing")));
        }
        self.transfer.complete();
        Ok(())
    }

    /// Reads one file; `left` are the bytes that the files of the request may still have.
    async fn read_file(
        &self,
        index: usize,
        mut field: Field<'static>,
        left: &mut usize,
    ) -> Result<(), UploadRefusal> {
        let name = field.file_name().map(Box::<str>::from);
        if name.as_ref().is_some_and(|name| name.len() > FILE_NAME_BYTES_MAX) {
            let reason = format!("a file has a name of more than {FILE_NAME_BYTES_MAX} bytes");
            return Err(UploadRefusal::malformed(reason));
        }
        let content_type = field.content_type().map(ToString::to_string);
        let content_type = content_type.and_then(|kind| HeaderValue::try_from(kind).ok());
        let content_type = content_type.filter(|kind| kind.to_str().is_ok());
        if !self.transfer.begin_file(index, FileHead { name, content_type }) {
            let name = &self.map[index].name;
            return Err(UploadRefusal::malformed(format!("the file `{name}` comes twice")));
        }
        while let Some(piece) = field.chunk().await.map_err(|it| form_error(&it, self.settings))? {
            let rest = left.checked_sub(piece.len());
            *left = rest.ok_or_else(|| larger_than_all(self.settings))?;
            self.transfer.push(index, self.memory.release_with(piece)).await;
        }
        self.transfer.end_file(index);
        Ok(())
    }
}

/// The maximum size of the body of a request with files.
pub(super) fn body_bytes_max(settings: &config::Uploads) -> usize {
    settings.max_bytes.saturating_add(FORM_BYTES_BESIDE_FILES)
}

/// Discards the rest of a form, so that its client sees the response.
pub(super) async fn discard_rest(source: &FormSource, bytes_max: usize) {
    let _ = tokio::time::timeout(DISCARD_TIMEOUT, pin!(source.discard(bytes_max))).await;
}
