//! Certificates of listeners: read at the start, and again when their files have changed.

use std::sync::Arc;
use std::time::Duration;

use config::{Http, TlsFiles};
use frontend::stream::{ALPN_HTTP1, ALPN_HTTP2};
use net::{TlsServer, TlsServerError, TlsServerFiles};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::file_watch::Stamp;

/// The interval at which the files are checked. Notifications of the system would save three checks per second, and
/// miss changes on network file systems, behind links in parent folders, and in mounts of single files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The certificates of one listener, and the files they come from.
pub(crate) struct Certificates {
    pub(crate) server: Arc<TlsServer>,
    /// The stamps of the files at the last check.
    seen: Vec<Option<Stamp>>,
    /// The stamps of the files before they were last read.
    read: Vec<Option<Stamp>>,
}

impl Certificates {
    /// Reads the files of a listener.
    ///
    /// # Errors
    /// The same as for [`TlsServer::load`].
    pub(crate) fn load(files: &TlsFiles, http: &Http) -> Result<Self, TlsServerError> {
        let protocols = [ALPN_HTTP2, ALPN_HTTP1];
        let protocols = &protocols[usize::from(!http.http2.enabled)..];
        Self::read(files, protocols, false)
    }

    /// Reads the files of the admin listener, which checks the certificates of clients by the path of a request.
    ///
    /// # Errors
    /// The same as for [`TlsServer::load`].
    pub(crate) fn load_for_admin(files: &TlsFiles) -> Result<Self, TlsServerError> {
        Self::read(files, &[ALPN_HTTP1], true)
    }

    fn read(
        files: &TlsFiles,
        protocols: &[&[u8]],
        accepts_anonymous: bool,
    ) -> Result<Self, TlsServerError> {
        let files = TlsServerFiles {
            certificates: files.cert.clone(),
            key: files.key.clone(),
            client_authorities: files.client_ca.clone(),
            accepts_anonymous,
        };
        let seen = stamps(&files);
        let server = Arc::new(TlsServer::load(files, protocols)?);
        Ok(Self { server, read: seen.clone(), seen })
    }

    /// Reads the files again if they have changed. Blocks.
    fn reload_if_changed(&mut self) {
        let now = stamps(self.server.files());
        let has_settled = now == self.seen;
        self.seen = now;
        // Certificate and key are written one after the other, and do not match in between, so the files must be
        // unchanged for one interval.
        if !has_settled || self.seen == self.read {
            return;
        }
        self.read.clone_from(&self.seen);
        let file = self.server.files().certificates.display();
        match self.server.reload() {
            Ok(()) => tracing::info!(%file, "a new certificate is in use"),
            Err(error) => {
                tracing::error!(%error, "the new certificate cannot be used; the old one stays in use");
            }
        }
    }
}

fn stamps(files: &TlsServerFiles) -> Vec<Option<Stamp>> {
    let paths = [Some(&files.certificates), Some(&files.key), files.client_authorities.as_ref()];
    paths.into_iter().flatten().map(|path| Stamp::of_file(path)).collect()
}

/// Reads changed files, until shutdown.
pub(crate) async fn watch_files(mut all: Vec<Certificates>, mut shutdown: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
        let checked = tokio::task::spawn_blocking(move || {
            all.iter_mut().for_each(Certificates::reload_if_changed);
            all
        });
        all = match checked.await {
            Ok(all) => all,
            Err(panic) => {
                tracing::error!(%panic, "certificates are no longer watched because of a defect");
                return;
            }
        };
    }
}
