//! The way of files from the client's form to requests to subgraphs, piece by piece.
//!
//! One side is the reader of the client's form, which puts in the files in the order in which they arrive. The other
//! side are the forms for subgraphs ([`FormBody`]): each has claimed some of the files, and sends them in the order in
//! which they arrive, so that none of them waits for another one of the same form.
//!
//! The reader waits while a file has [`FILE_WINDOW_BYTES`] that its form has not taken: a slow subgraph slows the
//! client. There is one exception. If a form waits for a file that has not begun to arrive, the files before it are
//! kept in memory, because waiting would never end; the reader's own bound on memory applies to them.
//!
//! The last bytes of a form are held back until the client's form has ended well. So a client that breaks off, or sends
//! a file that is too large, never makes a subgraph run the operation. If further files belong to other forms, a form
//! ends with its own last file, because the other forms may be for requests that follow its response.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::HeaderValue;

/// The number of bytes of a file that wait for a subgraph before the client has to wait. As much as a connection over
/// a long distance has in flight.
pub const FILE_WINDOW_BYTES: usize = 256 * 1024;

/// The description of a file by the client.
#[derive(Clone, Debug, Default)]
pub struct FileHead {
    /// The name of the file.
    pub name: Option<Box<str>>,
    /// The media type.
    pub content_type: Option<HeaderValue>,
}

/// The files of one request while they arrive.
pub struct FileTransfer {
    state: Mutex<TransferState>,
}

struct TransferState {
    files: Box<[ArrivingFile]>,
    forms: Vec<OutgoingForm>,
    stage: Stage,
    /// The number of files that have begun to arrive.
    arrived: usize,
    /// True once a file was kept beyond its window.
    has_buffered: bool,
    /// The reader of the client's form, if it waits for room.
    reader: Option<Waker>,
}

/// The stage of the client's form.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Arriving,
    /// All files have arrived.
    Complete,
    /// A subgraph did not take the files in time.
    Stalled,
    /// The client's form is of no use, or the operation has ended.
    Aborted,
}

#[derive(Default)]
struct ArrivingFile {
    /// Set once the file begins to arrive.
    head: Option<FileHead>,
    /// The place in the order of arrival.
    arrival: usize,
    pieces: VecDeque<Bytes>,
    /// The bytes of `pieces`.
    queued: usize,
    is_complete: bool,
    claim: Claim,
}

/// The form that sends a file.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Claim {
    /// None yet.
    #[default]
    Free,
    /// The form with this number.
    Form(usize),
    /// A form of a request that has ended: the bytes are dropped.
    Ended,
}

/// A form for a subgraph.
struct OutgoingForm {
    boundary: Box<str>,
    /// The parts before the files.
    head: Option<Bytes>,
    files: Vec<FormPart>,
    /// The part that is being sent.
    current: Option<usize>,
    /// True once a byte was taken.
    has_begun: bool,
    /// True once the last byte was taken.
    is_sent: bool,
    /// The task that sends the body.
    sender: Option<Waker>,
    /// The task that waits for the end of sending.
    watcher: Option<Waker>,
}

struct FormPart {
    file: usize,
    is_sent: bool,
}

/// The reason that a form cannot be sent to its end. The request must not be completed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the files of the request do not arrive")]
pub struct FormAborted;

/// The end of sending a form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendingEnd {
    /// The last byte was taken.
    Sent,
    /// The subgraph did not take the files within `uploads.timeout`.
    Stalled,
}

impl FileTransfer {
    /// Creates the transfer of so many files.
    pub fn new(files: usize) -> Arc<Self> {
        let state = TransferState {
            files: (0..files).map(|_| ArrivingFile::default()).collect(),
            forms: Vec::new(),
            stage: Stage::Arriving,
            arrived: 0,
            has_buffered: false,
            reader: None,
        };
        Arc::new(Self { state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, TransferState> {
        // The state is consistent between any two statements that can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of files.
    pub(crate) fn file_count(&self) -> usize {
        self.lock().files.len()
    }

    /// True once a file was kept in memory beyond its window, because the operation needs a later one first.
    pub fn has_buffered(&self) -> bool {
        self.lock().has_buffered
    }

    /// True while the reader of the client's form waits for a subgraph.
    pub fn is_blocked(&self) -> bool {
        self.lock().reader.is_some()
    }

    /// Notes that a file begins to arrive. False if it has begun before.
    pub fn begin_file(&self, file: usize, head: FileHead) -> bool {
        let state = &mut *self.lock();
        let arriving = &mut state.files[file];
        if arriving.head.is_some() {
            return false;
        }
        arriving.head = Some(head);
        arriving.arrival = state.arrived;
        state.arrived += 1;
        state.wake_senders();
        true
    }

    /// Adds bytes of a file, and waits for room before that. Bytes that no request will take are dropped.
    ///
    /// Cancellation: the bytes are lost if the future is dropped.
    pub async fn push(&self, file: usize, piece: Bytes) {
        let has_taker = poll_fn(|context| self.lock().poll_room(file, context)).await;
        if has_taker && !piece.is_empty() {
            let state = &mut *self.lock();
            let arriving = &mut state.files[file];
            arriving.queued += piece.len();
            arriving.pieces.push_back(piece);
            state.wake_senders();
        }
    }

    /// Notes that a file has arrived to its end.
    pub fn end_file(&self, file: usize) {
        let state = &mut *self.lock();
        state.files[file].is_complete = true;
        state.wake_senders();
    }

    /// Returns the first file that has not arrived to its end.
    pub fn missing_file(&self) -> Option<usize> {
        self.lock().files.iter().position(|file| !file.is_complete)
    }

    /// Notes that the client's form has ended as it should.
    pub fn complete(&self) {
        self.lock().end(Stage::Complete);
    }

    /// Notes that a subgraph did not take the files in time: its request fails with a timeout.
    pub fn stall(&self) {
        self.lock().end(Stage::Stalled);
    }

    /// Ends the transfer. Forms that are not sent to their end fail, and further files are dropped.
    pub fn abort(&self) {
        self.lock().end(Stage::Aborted);
    }

    /// Claims files for a form that begins with the parts `head`; `None` if one of them is claimed already. The parts
    /// of the files are named by their places in `files`.
    pub(crate) fn claim(
        self: &Arc<Self>,
        files: &[usize],
        boundary: &str,
        head: Bytes,
    ) -> Option<FormBody> {
        let state = &mut *self.lock();
        if files.iter().any(|&file| state.files[file].claim != Claim::Free) {
            return None;
        }
        let number = state.forms.len();
        for &file in files {
            state.files[file].claim = Claim::Form(number);
        }
        state.forms.push(OutgoingForm {
            boundary: boundary.into(),
            head: Some(head),
            files: files.iter().map(|&file| FormPart { file, is_sent: false }).collect(),
            current: None,
            has_begun: false,
            is_sent: false,
            sender: None,
            watcher: None,
        });
        // The form may need a file behind the one that fills its window.
        state.wake_reader();
        Some(FormBody(Arc::new(FormHandle { transfer: Arc::clone(self), number })))
    }
}

impl std::fmt::Debug for FileTransfer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "FileTransfer({} files)", self.file_count())
    }
}

impl TransferState {
    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn wake_senders(&mut self) {
        for waker in self.forms.iter_mut().filter_map(|form| form.sender.take()) {
            waker.wake();
        }
    }

    fn end(&mut self, stage: Stage) {
        // The first end holds: a transfer that was aborted is never complete.
        if self.stage == Stage::Arriving {
            self.stage = stage;
        } else if stage == Stage::Aborted {
            self.stage = Stage::Aborted;
        }
        self.wake_reader();
        self.wake_senders();
        for waker in self.forms.iter_mut().filter_map(|form| form.watcher.take()) {
            waker.wake();
        }
    }

    /// Waits until a file may get more bytes. False if they are of no use.
    fn poll_room(&mut self, file: usize, context: &mut Context<'_>) -> Poll<bool> {
        let arriving = &self.files[file];
        if self.stage != Stage::Arriving || arriving.claim == Claim::Ended {
            return Poll::Ready(false);
        }
        if arriving.queued < FILE_WINDOW_BYTES {
            return Poll::Ready(true);
        }
        if self.waits_for_later_file() {
            self.has_buffered = true;
            return Poll::Ready(true);
        }
        self.reader = Some(context.waker().clone());
        Poll::Pending
    }

    /// True if a form cannot proceed before another file begins to arrive.
    fn waits_for_later_file(&self) -> bool {
        self.forms.iter().any(|form| {
            let mut rest = form.files.iter().filter(|part| !part.is_sent).peekable();
            rest.peek().is_some() && rest.all(|part| self.is_awaited(part))
        })
    }

    fn is_awaited(&self, part: &FormPart) -> bool {
        let file = &self.files[part.file];
        file.head.is_none() && file.claim != Claim::Ended
    }

    /// Takes the next piece of a form.
    fn poll_piece(
        &mut self,
        number: usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, FormAborted>> {
        let form = &mut self.forms[number];
        if form.is_sent {
            return Poll::Ready(Ok(None));
        }
        if matches!(self.stage, Stage::Stalled | Stage::Aborted) {
            return Poll::Ready(Err(FormAborted));
        }
        form.has_begun = true;
        if let Some(head) = form.head.take() {
            return Poll::Ready(Ok(Some(head)));
        }
        if let Some(index) = form.current {
            let file = &mut self.files[form.files[index].file];
            if let Some(piece) = file.pieces.pop_front() {
                file.queued -= piece.len();
                self.wake_reader();
                return Poll::Ready(Ok(Some(piece)));
            }
            if file.is_complete {
                form.files[index].is_sent = true;
                form.current = None;
                return Poll::Ready(Ok(Some(Bytes::from_static(b"\r\n"))));
            }
            form.sender = Some(context.waker().clone());
            return Poll::Pending;
        }
        let unsent = form.files.iter().enumerate().filter(|(_, part)| !part.is_sent);
        let begun = unsent.filter(|(_, part)| self.files[part.file].head.is_some());
        let next = begun.min_by_key(|(_, part)| self.files[part.file].arrival);
        if let Some((index, part)) = next {
            let head = part_head(&form.boundary, index, self.files[part.file].head.as_ref());
            form.current = Some(index);
            return Poll::Ready(Ok(Some(head)));
        }
        let is_last = form.files.iter().all(|part| part.is_sent);
        let has_others =
            || self.files.iter().any(|it| !it.is_complete && it.claim != Claim::Form(number));
        if is_last && (self.stage == Stage::Complete || has_others()) {
            form.is_sent = true;
            let end = format!("--{}--\r\n", form.boundary);
            if let Some(watcher) = form.watcher.take() {
                watcher.wake();
            }
            return Poll::Ready(Ok(Some(end.into())));
        }
        form.sender = Some(context.waker().clone());
        // The files before the one that this form needs are kept from now on.
        self.wake_reader();
        Poll::Pending
    }
}

/// Returns the head of the part with a file.
fn part_head(boundary: &str, index: usize, head: Option<&FileHead>) -> Bytes {
    let name = head.and_then(|head| head.name.as_deref()).unwrap_or("blob");
    let kind = head.and_then(|head| head.content_type.as_ref()?.to_str().ok());
    let kind = kind.unwrap_or("application/octet-stream");
    let name = escape(name);
    let head = format!(
        "--{boundary}\r\ncontent-disposition: form-data; name=\"{index}\"; filename=\"{name}\"\r\n\
         content-type: {kind}\r\n\r\n"
    );
    head.into()
}

/// Escapes the name of a file as browsers do (HTML standard, section 4.10.22.7).
fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter {
            '"' => escaped.push_str("%22"),
            letter if letter.is_control() => escaped.push('_'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// The body of a request that is a form with files. Its pieces can be taken once; clones share them. When the last
/// clone is dropped, the files that were not taken are dropped too.
#[derive(Clone)]
pub struct FormBody(Arc<FormHandle>);

struct FormHandle {
    transfer: Arc<FileTransfer>,
    number: usize,
}

impl FormBody {
    /// Takes the next piece; `None` after the last one.
    ///
    /// # Errors
    /// The rest will not come.
    pub fn poll_piece(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, FormAborted>> {
        self.0.transfer.lock().poll_piece(self.0.number, context)
    }

    /// Waits until the last piece is taken, or the subgraph has taken none for too long.
    pub fn poll_sending_end(&self, context: &mut Context<'_>) -> Poll<SendingEnd> {
        let state = &mut *self.0.transfer.lock();
        let form = &mut state.forms[self.0.number];
        if form.is_sent {
            return Poll::Ready(SendingEnd::Sent);
        }
        if state.stage == Stage::Stalled {
            return Poll::Ready(SendingEnd::Stalled);
        }
        form.watcher = Some(context.waker().clone());
        Poll::Pending
    }

    /// True once a piece was taken: the request cannot be sent again.
    pub fn has_begun(&self) -> bool {
        self.0.transfer.lock().forms[self.0.number].has_begun
    }
}

impl Drop for FormHandle {
    fn drop(&mut self) {
        let state = &mut *self.transfer.lock();
        for part in &state.forms[self.number].files {
            let file = &mut state.files[part.file];
            file.claim = Claim::Ended;
            file.pieces.clear();
            file.queued = 0;
        }
        state.wake_reader();
        // Another form may have held back its end for a file of this one.
        state.wake_senders();
    }
}

impl std::fmt::Debug for FormBody {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "FormBody({})", self.0.number)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn take(form: &FormBody) -> Poll<Result<Option<String>, FormAborted>> {
        let mut context = Context::from_waker(Waker::noop());
        let piece = form.poll_piece(&mut context);
        piece.map_ok(|piece| piece.map(|it| String::from_utf8(it.to_vec()).unwrap()))
    }

    /// Takes all pieces that are there.
    fn take_all(form: &FormBody) -> String {
        let mut all = String::new();
        while let Poll::Ready(Ok(Some(piece))) = take(form) {
            all.push_str(&piece);
        }
        all.replace("\r\n", "\n")
    }

    fn push(transfer: &FileTransfer, file: usize, text: &'static str) -> bool {
        transfer.push(file, Bytes::from_static(text.as_bytes())).now_or_never().is_some()
    }

    /// Adds pieces until the reader has to wait. Returns false if that does not happen within four windows.
    fn fills_up(transfer: &FileTransfer, file: usize) -> bool {
        let piece = Bytes::from(vec![b'x'; FILE_WINDOW_BYTES / 4]);
        (0..16).any(|_| transfer.push(file, piece.clone()).now_or_never().is_none())
    }

    fn claim(transfer: &Arc<FileTransfer>, files: &[usize]) -> FormBody {
        transfer.claim(files, "b", Bytes::from_static(b"head\r\n")).expect("free files")
    }

    fn file_part(index: usize, content: &str) -> String {
        format!(
            "--b\ncontent-disposition: form-data; name=\"{index}\"; filename=\"blob\"\n\
             content-type: application/octet-stream\n\n{content}\n"
        )
    }

    #[test]
    fn files_are_sent_in_the_order_in_which_they_arrive() {
        let transfer = FileTransfer::new(2);
        let form = claim(&transfer, &[0, 1]);
        assert_eq!(take_all(&form), "head\n");
        assert!(transfer.begin_file(1, FileHead::default()));
        assert!(push(&transfer, 1, "second"));
        assert!(take_all(&form).ends_with("\n\nsecond"));
        transfer.end_file(1);
        assert!(transfer.begin_file(0, FileHead::default()));
        assert!(push(&transfer, 0, "first"));
        transfer.end_file(0);
        assert_eq!(take_all(&form), format!("\n{}", file_part(0, "first")));
        // The end waits for the end of the client's form.
        assert!(take(&form).is_pending());
        transfer.complete();
        assert_eq!(take_all(&form), "--b--\n");
        assert_eq!(take(&form), Poll::Ready(Ok(None)));
    }

    #[test]
    fn a_file_that_arrives_waits_for_its_subgraph() {
        let transfer = FileTransfer::new(1);
        transfer.begin_file(0, FileHead::default());
        assert!(fills_up(&transfer, 0), "no request has claimed it");
        let form = claim(&transfer, &[0]);
        assert!(fills_up(&transfer, 0), "the subgraph takes nothing");
        take_all(&form);
        assert!(push(&transfer, 0, "more"));
        assert!(!transfer.has_buffered());
    }

    #[test]
    fn a_file_before_one_that_is_needed_first_is_kept() {
        let transfer = FileTransfer::new(2);
        let first = claim(&transfer, &[1]);
        assert_eq!(take_all(&first), "head\n");
        transfer.begin_file(0, FileHead::default());
        assert!(!fills_up(&transfer, 0));
        assert!(transfer.has_buffered());
        transfer.end_file(0);
        transfer.begin_file(1, FileHead::default());
        assert!(fills_up(&transfer, 1), "this one is being sent");
    }

    #[test]
    fn a_form_ends_with_its_last_file_if_others_follow_for_other_forms() {
        let transfer = FileTransfer::new(2);
        let first = claim(&transfer, &[0]);
        transfer.begin_file(0, FileHead::default());
        assert!(push(&transfer, 0, "a"));
        transfer.end_file(0);
        assert!(take_all(&first).ends_with("--b--\n"));
        let second = claim(&transfer, &[1]);
        assert!(transfer.claim(&[1], "b", Bytes::new()).is_none(), "a file is sent once");
        transfer.begin_file(1, FileHead::default());
        transfer.end_file(1);
        transfer.complete();
        assert_eq!(take_all(&second), format!("head\n{}--b--\n", file_part(0, "")));
    }

    #[test]
    fn a_form_whose_files_do_not_arrive_is_not_completed() {
        for end in [FileTransfer::abort as fn(&FileTransfer), FileTransfer::stall] {
            let transfer = FileTransfer::new(1);
            let form = claim(&transfer, &[0]);
            transfer.begin_file(0, FileHead::default());
            assert!(push(&transfer, 0, "a"));
            transfer.end_file(0);
            take_all(&form);
            end(&transfer);
            transfer.complete();
            assert_eq!(take(&form), Poll::Ready(Err(FormAborted)));
        }
    }

    #[test]
    fn files_of_a_request_that_has_ended_are_dropped() {
        let transfer = FileTransfer::new(2);
        let form = claim(&transfer, &[0]);
        transfer.begin_file(0, FileHead::default());
        assert!(fills_up(&transfer, 0));
        drop(form);
        assert!(!fills_up(&transfer, 0));
        assert!(!transfer.has_buffered());
    }

    #[test]
    fn the_end_of_sending_is_noticed() {
        let mut context = Context::from_waker(Waker::noop());
        let transfer = FileTransfer::new(1);
        let form = claim(&transfer, &[0]);
        assert!(!form.has_begun());
        transfer.begin_file(0, FileHead::default());
        transfer.end_file(0);
        transfer.complete();
        assert!(form.poll_sending_end(&mut context).is_pending());
        take_all(&form);
        assert!(form.has_begun());
        assert_eq!(form.poll_sending_end(&mut context), Poll::Ready(SendingEnd::Sent));
    }

    #[test]
    fn names_of_files_cannot_break_the_head_of_a_part() {
        let head = FileHead { name: Some("a\"\r\nb.txt".into()), content_type: None };
        let head = part_head("b", 3, Some(&head));
        assert!(
            String::from_utf8_lossy(&head).contains("name=\"3\"; filename=\"a%22__b.txt\"\r\n")
        );
    }
}
