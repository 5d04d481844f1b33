//! Reading of the graph, and waiting for changes of what it is read from: files, URLs, the schemas of running
//! subgraphs, and SIGHUP. Loading a changed graph is left to `reload`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use composition_input::is_schema_file_name;
use config::diagnostic::{Diagnostic, SourceText};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use crate::composition::{Composer, CompositionState, ReadScope, SubgraphList};
use crate::file_watch::{FileDifference, FileWatch};
use crate::supergraph_download::{SupergraphDownloadMetrics, SupergraphDownloader};
use crate::supergraph_source::{SupergraphSource, read_supergraph_file};

/// The quiet time after the last change before a file is read, because editors and deployments write a file in several
/// steps.
const SETTLE: Duration = Duration::from_millis(200);

/// The maximum delay for a file that keeps changing.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(5);

/// The interval at which files are checked without a notification. There are no notifications on network file systems,
/// for bind mounts of single files, and when a link further up the path is changed to another release.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The time for which schemas are read before a change of a file begins the reading again. Servers that work respond
/// within it, so files that keep changing do not keep a graph from being read.
const UNINTERRUPTED_READ: Duration = Duration::from_secs(1);

/// The interval of polls that never happen: about a century.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A graph that was read or composed.
#[derive(Clone, Debug)]
pub(crate) struct ReadGraph {
    /// The supergraph SDL.
    pub(crate) text: Arc<SourceText>,
    /// Probable mistakes, which do not keep the graph from serving.
    pub(crate) warnings: Vec<Diagnostic>,
}

/// The parts of a graph that are read.
enum GraphReader {
    File(PathBuf),
    Text(Arc<SourceText>),
    Download(Box<SupergraphDownloader>),
    Composition(Composer),
}

/// A reason to read the graph again. The later one includes the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Notice {
    /// A file has changed.
    File,
    /// SIGHUP was received.
    HangUp,
}

/// The notices of changes.
struct Notices {
    received: mpsc::Receiver<Notice>,
    /// What has been received and not returned by [`Self::settle`].
    noticed: Option<Notice>,
}

impl Notices {
    fn new(received: mpsc::Receiver<Notice>) -> Self {
        Self { received, noticed: None }
    }

    /// Waits for a notice, unless there is one that has not been returned.
    ///
    /// # Cancellation
    /// No notice is lost if the future is dropped before it is ready.
    async fn wait(&mut self) {
        if self.noticed.is_some() {
            return;
        }
        match self.received.recv().await {
            Some(notice) => self.noticed = Some(notice),
            None => std::future::pending().await,
        }
    }

    /// Waits until no notice has followed for [`SETTLE`]. Returns the schemas that must be read again.
    ///
    /// # Cancellation
    /// No notice is lost if the future is dropped before it is ready.
    async fn settle(&mut self) -> ReadScope {
        let quiet = async {
            while let Ok(Some(notice)) = tokio::time::timeout(SETTLE, self.received.recv()).await {
                self.noticed = self.noticed.max(Some(notice));
            }
        };
        let _ = tokio::time::timeout(SETTLE_TIME_MAX, quiet).await;
        match self.noticed.take() {
            Some(Notice::HangUp) => ReadScope::Everything,
            Some(Notice::File) | None => ReadScope::Files,
        }
    }
}

/// Reads a graph and notices its changes.
pub(crate) struct GraphWatch {
    reader: GraphReader,
    files: FileWatch,
    notices: Notices,
    checks: Interval,
    polls: Interval,
    /// True if the graph was read once.
    was_read: bool,
}

impl GraphWatch {
    /// Creates a watch that has read nothing yet. With `reloads_on_hang_up`, SIGHUP counts as a change.
    ///
    /// # Errors
    /// Settings of a URL that cannot be used.
    pub(crate) fn new(
        source: SupergraphSource,
        reloads_on_hang_up: bool,
    ) -> Result<Self, Vec<Diagnostic>> {
        // One waiting notice is enough for any number of changes.
        let (sender, received) = mpsc::channel(1);
        let file_sender = sender.clone();
        let notify = move || {
            let _ = file_sender.try_send(Notice::File);
        };
        // The system has few watchers for each user.
        let files = match source.has_files() {
            true => FileWatch::new(notify),
            false => FileWatch::default(),
        };
        // Otherwise there is nothing to reload, and closing the terminal must end the process.
        if reloads_on_hang_up && source.can_change() {
            send_hang_ups(sender);
        }
        let polls = match &source {
            SupergraphSource::Composition { poll_interval, .. } if !poll_interval.is_zero() => {
                *poll_interval
            }
            _ => NEVER,
        };
        let reader = match source {
            SupergraphSource::File(path) => GraphReader::File(path),
            SupergraphSource::Url(settings) => {
                GraphReader::Download(Box::new(SupergraphDownloader::new(&settings)?))
            }
            SupergraphSource::Text { name, sdl } => {
                GraphReader::Text(Arc::new(SourceText { name, text: sdl }))
            }
            SupergraphSource::Composition { file, .. } => {
                GraphReader::Composition(Composer::new(SubgraphList::File(file)))
            }
            SupergraphSource::Directory { folder, urls } => {
                GraphReader::Composition(Composer::new(SubgraphList::Folder { folder, urls }))
            }
        };
        let (notices, checks, polls) =
            (Notices::new(received), every(CHECK_INTERVAL), every(polls));
        Ok(Self { reader, files, notices, checks, polls, was_read: false })
    }

    /// Returns the state of composition for metrics.
    pub(crate) fn composition_state(&self) -> Arc<CompositionState> {
        match &self.reader {
            GraphReader::Composition(composer) => composer.state(),
            _ => Arc::default(),
        }
    }

    /// Returns the counters of requests for a supergraph by URL.
    pub(crate) fn download_metrics(&self) -> Option<Arc<SupergraphDownloadMetrics>> {
        match &self.reader {
            GraphReader::Download(downloader) => Some(downloader.metrics()),
            _ => None,
        }
    }

    /// True if the router composes the graph.
    pub(crate) fn is_composed(&self) -> bool {
        matches!(self.reader, GraphReader::Composition(_))
    }

    /// Reads the graph. Later changes of what was read are noticed, also those that happen meanwhile.
    ///
    /// # Errors
    /// All reasons why there is no graph.
    pub(crate) async fn read(&mut self, scope: ReadScope) -> Result<ReadGraph, Vec<Diagnostic>> {
        match &mut self.reader {
            GraphReader::Text(text) => {
                Ok(ReadGraph { text: Arc::clone(text), warnings: Vec::new() })
            }
            GraphReader::File(path) => {
                self.files.restart(path).await;
                let path = path.clone();
                let text = tokio::task::spawn_blocking(move || read_supergraph_file(&path)).await;
                let text = text.unwrap_or_else(|panic| {
                    Err(Box::new(Diagnostic::error("internal", panic.to_string())))
                });
                let text = Arc::new(text.map_err(|error| vec![*error])?);
                Ok(ReadGraph { text, warnings: Vec::new() })
            }
            GraphReader::Download(downloader) => {
                if self.was_read {
                    let text = downloader.read(scope == ReadScope::Everything).await?;
                    return Ok(ReadGraph { text, warnings: Vec::new() });
                }
                let (text, warnings) = downloader.read_first().await?;
                self.was_read = true;
                Ok(ReadGraph { text, warnings })
            }
            GraphReader::Composition(_) => self.read_composition(scope).await,
        }
    }

    /// Returns the last good graph of an earlier process, for a start without a graph that loads, if there is one
    /// and it is another one.
    pub(crate) fn take_fallback(&mut self) -> Option<Arc<SourceText>> {
        match &mut self.reader {
            GraphReader::Download(downloader) => downloader.take_fallback(),
            _ => None,
        }
    }

    /// Must be called when the graph that was read last has been loaded. A graph from a URL is copied to disk then.
    pub(crate) async fn on_loaded(&mut self) {
        if let GraphReader::Download(downloader) = &mut self.reader {
            downloader.keep().await;
        }
    }

    /// Reads the schemas and composes them. If a file changes while a server does not respond, all begins again: the
    /// change may be that this server is no longer needed.
    async fn read_composition(
        &mut self,
        mut scope: ReadScope,
    ) -> Result<ReadGraph, Vec<Diagnostic>> {
        let Self { reader, files, notices, .. } = self;
        let GraphReader::Composition(composer) = reader else { return Err(Vec::new()) };
        loop {
            match composer.list() {
                SubgraphList::File(file) => files.restart(file).await,
                SubgraphList::Folder { folder, .. } => {
                    files.restart_folder(folder, is_schema_file_name).await;
                }
            }
            composer.read_config().await?;
            for file in composer.schema_files() {
                files.add(file).await;
            }
            let late_change = async {
                tokio::time::sleep(UNINTERRUPTED_READ).await;
                notices.wait().await;
            };
            tokio::select! {
                inputs = composer.read_schemas(scope) => {
                    let composed = composer.compose(inputs?).await?;
                    let text = Arc::new(composed.text);
                    return Ok(ReadGraph { text, warnings: composed.warnings });
                }
                () = late_change => {}
            }
            if notices.settle().await == ReadScope::Everything {
                scope = ReadScope::Everything;
            }
        }
    }

    /// Waits for a change; returns the schemas that must be read again. A server that does not respond does not delay
    /// the changes of files.
    ///
    /// # Cancellation
    /// No notice is lost if the future is dropped before it is ready.
    pub(crate) async fn wait_for_change(&mut self) -> ReadScope {
        let Self { reader, files, notices, checks, polls, .. } = self;
        tokio::select! {
            () = notices.wait() => {}
            () = wait_for_files(files, checks) => return ReadScope::Files,
            () = wait_for_servers(reader, polls) => return ReadScope::Files,
        }
        notices.settle().await
    }
}

/// Waits until a check finds that a file has changed, or two checks in a row that one is missing: a file that is being
/// replaced is missing for a moment.
async fn wait_for_files(files: &FileWatch, checks: &mut Interval) {
    let mut was_missing = false;
    loop {
        checks.tick().await;
        match files.compare().await {
            FileDifference::None => was_missing = false,
            FileDifference::Missing if !was_missing => was_missing = true,
            FileDifference::Missing | FileDifference::Changed => return,
        }
    }
}

/// Waits until a poll finds that a server returns another schema or another supergraph.
async fn wait_for_servers(reader: &mut GraphReader, polls: &mut Interval) {
    if let GraphReader::Download(downloader) = reader {
        return downloader.wait_for_change().await;
    }
    loop {
        polls.tick().await;
        if let GraphReader::Composition(composer) = reader
            && composer.is_polled()
            && composer.poll().await
        {
            return;
        }
    }
}

/// Returns an interval whose first tick is one period from now.
fn every(period: Duration) -> Interval {
    let mut ticks = tokio::time::interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

#[cfg(unix)]
fn send_hang_ups(changed: mpsc::Sender<Notice>) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut hang_ups) = signal(SignalKind::hangup()) else { return };
    tokio::spawn(async move {
        while hang_ups.recv().await.is_some() {
            // Not `try_send`: a waiting notice of a file does not make servers being asked.
            if changed.send(Notice::HangUp).await.is_err() {
                return;
            }
        }
    });
}

#[cfg(not(unix))]
fn send_hang_ups(_changed: mpsc::Sender<Notice>) {}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::schema_server::{Behaviour, SchemaServer};

    /// More than a change takes, and less than a server has for its response.
    const DEADLINE: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_server_that_hangs_does_not_delay_changed_files() {
        let mut server = SchemaServer::start().await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("supergraph.yaml");
        let text = format!("subgraphs: {{a: {{schema: {{subgraph_url: \"{}\"}}}}}}\n", server.url);
        fs::write(&file, &text).unwrap();
        let poll_interval = Duration::from_millis(1);
        let source = SupergraphSource::Composition { file: file.clone(), poll_interval };
        let mut watch = GraphWatch::new(source, false).unwrap();
        watch.read(ReadScope::Everything).await.unwrap();

        server.set(Behaviour::Hang);
        let change_file = async {
            server.wait_for_request().await;
            fs::write(&file, text + "# changed\n").unwrap();
        };
        let both = async { tokio::join!(watch.wait_for_change(), change_file).0 };
        assert_eq!(tokio::time::timeout(DEADLINE, both).await, Ok(ReadScope::Files));
    }

    #[tokio::test]
    async fn a_changed_file_is_read_while_a_server_hangs() {
        let mut server = SchemaServer::start().await;
        server.set(Behaviour::Hang);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("supergraph.yaml");
        let url = server.url.clone();
        let yaml = |schema: &str| {
            format!("subgraphs: {{a: {{routing_url: '{url}', schema: {{{schema}}}}}}}\n")
        };
        fs::write(&file, yaml(&format!("subgraph_url: '{url}'"))).unwrap();
        let poll_interval = Duration::from_millis(1);
        let source = SupergraphSource::Composition { file: file.clone(), poll_interval };
        let mut watch = GraphWatch::new(source, false).unwrap();
        let correct = async {
            server.wait_for_request().await;
            fs::write(&file, yaml("sdl: 'type Query { a: Int }'")).unwrap();
        };
        let both = async { tokio::join!(watch.read(ReadScope::Everything), correct).0 };
        let read = tokio::time::timeout(DEADLINE, both).await.unwrap();
        assert!(read.unwrap().text.text.contains("type Query"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hang_up_is_kept_when_waiting_for_its_change_is_cancelled() {
        let source = SupergraphSource::Text { name: "a.graphql".into(), sdl: String::new() };
        let mut watch = GraphWatch::new(source, false).unwrap();
        let (sender, received) = mpsc::channel(1);
        watch.notices = Notices::new(received);
        // An operator's request ends the first wait.
        sender.try_send(Notice::HangUp).unwrap();
        let cancelled = tokio::time::timeout(SETTLE / 2, watch.wait_for_change()).await;
        assert!(cancelled.is_err());
        sender.try_send(Notice::File).unwrap();
        assert_eq!(watch.wait_for_change().await, ReadScope::Everything);
        sender.try_send(Notice::File).unwrap();
        assert_eq!(watch.wait_for_change().await, ReadScope::Files);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_stays_missing_is_a_change_at_the_second_check() {
        let folder = tempfile::tempdir().unwrap();
        let (missing, other) = (folder.path().join("a"), folder.path().join("b"));
        for file in [&missing, &other] {
            fs::write(file, "").unwrap();
        }
        // As on a file system without notifications.
        let mut files = FileWatch::default();
        files.restart(&missing).await;
        files.add(&other).await;
        fs::remove_file(&missing).unwrap();
        fs::write(&other, "changed").unwrap();
        let begin = Instant::now();
        wait_for_files(&files, &mut every(CHECK_INTERVAL)).await;
        assert!((CHECK_INTERVAL * 2..CHECK_INTERVAL * 3).contains(&begin.elapsed()));
    }
}
