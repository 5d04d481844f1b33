//! Reading of the graph, and waiting for changes of what it is read from: files, the schemas of running subgraphs, and
//! SIGHUP. Loading a changed graph is left to `reload`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use config::diagnostic::{Diagnostic, SourceText};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use crate::composition::{Composer, CompositionState, ReadScope};
use crate::file_watch::{FileDifference, FileWatch};
use crate::supergraph_source::{SupergraphSource, read_supergraph_file};

/// The quiet time after the last change before a file is read, because editors and deployments write a file in several
/// steps.
const SETTLE: Duration = Duration::from_millis(200);

/// The maximum delay for a file that keeps changing.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(5);

/// The interval at which files are checked without a notification. There are no notifications on network file systems,
/// for bind mounts of single files, and when a link further up the path is changed to another release.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The interval of polls that never happen: about a century.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A graph that was read or composed.
#[derive(Clone, Debug)]
pub struct ReadGraph {
    /// The supergraph SDL.
    pub text: Arc<SourceText>,
    /// Probable mistakes, which do not keep the graph from serving.
    pub warnings: Vec<Diagnostic>,
}

/// The parts of a graph that are read.
enum GraphReader {
    File(PathBuf),
    Text(Arc<SourceText>),
    Composition(Composer),
}

/// A reason to read the graph again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Notice {
    /// A file has changed.
    File,
    /// SIGHUP was received.
    HangUp,
}

/// Reads a graph and notices its changes.
pub struct GraphWatch {
    reader: GraphReader,
    files: FileWatch,
    changed: mpsc::Receiver<Notice>,
    checks: Interval,
    polls: Interval,
}

impl GraphWatch {
    /// Creates a watch that has read nothing yet. With `reloads_on_hang_up`, SIGHUP counts as a change.
    pub fn new(source: SupergraphSource, reloads_on_hang_up: bool) -> Self {
        // One waiting notice is enough for any number of changes.
        let (sender, changed) = mpsc::channel(1);
        let notices = sender.clone();
        let files = FileWatch::new(move || {
            let _ = notices.try_send(Notice::File);
        });
        // Without a file there is nothing to reload, and closing the terminal must end the process.
        if reloads_on_hang_up && source.file().is_some() {
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
            SupergraphSource::Text { name, sdl } => {
                GraphReader::Text(Arc::new(SourceText { name, text: sdl }))
            }
            SupergraphSource::Composition { file, .. } => {
                GraphReader::Composition(Composer::new(file))
            }
        };
        Self { reader, files, changed, checks: every(CHECK_INTERVAL), polls: every(polls) }
    }

    /// Returns the state of composition for metrics.
    pub(crate) fn composition_state(&self) -> Arc<CompositionState> {
        match &self.reader {
            GraphReader::Composition(composer) => composer.state(),
            GraphReader::File(_) | GraphReader::Text(_) => Arc::default(),
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
    pub async fn read(&mut self, scope: ReadScope) -> Result<ReadGraph, Vec<Diagnostic>> {
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
            GraphReader::Composition(composer) => {
                self.files.restart(composer.file()).await;
                composer.read_config().await?;
                for file in composer.schema_files() {
                    self.files.add(file).await;
                }
                let composed = composer.compose(scope).await?;
                Ok(ReadGraph { text: Arc::new(composed.text), warnings: composed.warnings })
            }
        }
    }

    /// Waits for a change; returns the schemas that must be read again.
    pub async fn wait_for_change(&mut self) -> ReadScope {
        loop {
            tokio::select! {
                Some(notice) = self.changed.recv() => return self.settle(notice).await,
                _ = self.checks.tick() => {
                    // A missing file is about to be replaced. After a notice it is an error that is reported.
                    if self.files.compare().await == FileDifference::Changed {
                        return ReadScope::Files;
                    }
                }
                _ = self.polls.tick() => {
                    if let GraphReader::Composition(composer) = &mut self.reader
                        && composer.is_polled()
                        && composer.poll().await
                    {
                        return ReadScope::Files;
                    }
                }
            }
        }
    }

    /// Waits until no notice has followed for [`SETTLE`].
    async fn settle(&mut self, first: Notice) -> ReadScope {
        let mut has_hung_up = first == Notice::HangUp;
        let quiet = async {
            while let Ok(Some(notice)) = tokio::time::timeout(SETTLE, self.changed.recv()).await {
                has_hung_up |= notice == Notice::HangUp;
            }
        };
        let _ = tokio::time::timeout(SETTLE_TIME_MAX, quiet).await;
        if has_hung_up { ReadScope::Everything } else { ReadScope::Files }
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
