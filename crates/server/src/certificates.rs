//! Certificates of listeners: read at the start, and again when their files have changed.

use std::sync::Arc;
use std::time::Duration;

use net::{TlsServer, TlsServerError, TlsServerFiles};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::config::{Http, TlsFiles};
use crate::http::stream::{ALPN_HTTP1, ALPN_HTTP2};
use crate::reload::Stamp;

/// How often the files are looked at. Being told of changes would save three looks a second, and miss those that
/// nobody tells: on network file systems, through links further up, in mounts of single files.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The certificates of one listener, and the files they come from.
pub(crate) struct Certificates {
    pub(crate) server: Arc<TlsServer>,
    /// The files as they were at the last look.
    seen: Vec<Option<Stamp>>,
    /// As they were before they were read.
    read: Vec<Option<Stamp>>,
}

impl Certificates {
    /// Reads the files of a listener.
    ///
    /// # Errors
    /// As [`TlsServer::load`].
    pub(crate) fn load(files: &TlsFiles, http: &Http) -> Result<Self, TlsServerError> {
        let files = TlsServerFiles {
            certificates: files.cert.clone(),
            key: files.key.clone(),
            client_authorities: files.client_ca.clone(),
        };
        let seen = stamps(&files);
        let protocols = [ALPN_HTTP2, ALPN_HTTP1];
        let protocols = &protocols[usize::from(!http.http2.enabled)..];
        let server = Arc::new(TlsServer::load(files, protocols)?);
        Ok(Self { server, read: seen.clone(), seen })
    }

    /// Reads the files again if they have changed. Blocks.
    fn look(&mut self) {
        let now = stamps(self.server.files());
        let has_settled = now == self.seen;
        self.seen = now;
        // Certificate and key are written one after the other; in between they do not belong together.
        if !has_settled || self.seen == self.read {
            return;
        }
        self.read.clone_from(&self.seen);
        let file = self.server.files().certificates.display();
        match self.server.reload() {
            Ok(()) => tracing::info!(%file, "a new certificate is used from now on"),
            Err(error) => {
                tracing::error!(%error, "the new certificate cannot be used; the old one goes on");
            }
        }
    }
}

fn stamps(files: &TlsServerFiles) -> Vec<Option<Stamp>> {
    let paths = [Some(&files.certificates), Some(&files.key), files.client_authorities.as_ref()];
    paths.into_iter().flatten().map(|path| Stamp::of_file(path)).collect()
}

/// Reads what has changed, until shutdown.
pub(crate) async fn follow(mut all: Vec<Certificates>, mut shutdown: watch::Receiver<bool>) {
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
        let looked = tokio::task::spawn_blocking(move || {
            all.iter_mut().for_each(Certificates::look);
            all
        });
        all = match looked.await {
            Ok(all) => all,
            Err(panic) => {
                tracing::error!(%panic, "certificates are watched no more, by a defect");
                return;
            }
        };
    }
}
