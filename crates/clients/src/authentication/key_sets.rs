//! The key sets of issuers: read at start, and again at intervals if they can change.
//! [`authentication::RefreshSchedule`] decides the times; callers that wait for a set are notified when it has been
//! refreshed.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use authentication::{Algorithm, Issuer, IssuerId, KeySet, RefreshSchedule, Verifier};
use config::diagnostic::Diagnostic;
use config::{Jwks, Jwt, JwtAlgorithm, JwtIssuer};
use tokio::sync::{Notify, watch};
use upstream::{Resource, resource_tls};

/// The time that the start of the router waits for key sets. After it the router serves, and refuses tokens until the
/// key sets are there.
const START_TIME_MAX: Duration = Duration::from_secs(5);

/// The media types that are requested from the server (RFC 7517, section 8.5.2).
const ACCEPT: &str = "application/jwk-set+json, application/json";

/// The key sets of all issuers that are read more than once.
#[derive(Debug)]
pub struct KeySets(Vec<Arc<FollowedKeySet>>);

/// A key set that is refreshed.
#[derive(Debug)]
pub struct FollowedKeySet {
    issuer: IssuerId,
    /// The name of the issuer in logs and metrics.
    pub name: String,
    location: KeySetLocation,
    schedule: Mutex<RefreshSchedule>,
    /// Notified when the schedule has changed.
    schedule_changed: Notify,
    /// The number of refreshes that have ended.
    refreshes: watch::Sender<u64>,
    /// The number of refreshes that succeeded.
    pub fetched: AtomicU64,
    /// The number of refreshes that failed.
    pub failed: AtomicU64,
    /// The number of keys in use.
    pub keys: AtomicU64,
    /// The number of times that the keys became too old to be used.
    pub expired: AtomicU64,
    /// The text of the last good key set.
    last_text: Mutex<Vec<u8>>,
}

#[derive(Debug)]
enum KeySetLocation {
    Url(Box<Resource>),
    File(PathBuf, usize),
}

/// Returns the configured issuers, and the key sets to follow.
///
/// # Errors
/// All keys that cannot be used.
pub(super) fn load_issuers(settings: &Jwt) -> Result<(Vec<Issuer>, KeySets), Vec<Diagnostic>> {
    let (mut issuers, mut followed, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for (number, configured) in settings.issuers.iter().enumerate() {
        let algorithms: Vec<_> = configured.algorithms().into_iter().map(algorithm).collect();
        let path = format!("authentication.jwt.issuers[{number}]");
        let keys = match keys_of(configured, &algorithms, &path) {
            Ok(keys) => keys,
            Err(message) => {
                problems.push(Diagnostic::error("authentication", message));
                continue;
            }
        };
        let keys = match keys {
            IssuerKeys::Fixed(keys) => keys,
            IssuerKeys::Followed { location, interval, age_max } => {
                let name = configured.issuer.clone().unwrap_or_else(|| number.to_string());
                followed.push(Arc::new(FollowedKeySet {
                    issuer: IssuerId(number),
                    name,
                    location,
                    schedule: Mutex::new(RefreshSchedule::new(interval, age_max, Instant::now())),
                    schedule_changed: Notify::new(),
                    refreshes: watch::Sender::new(0),
                    fetched: AtomicU64::new(0),
                    failed: AtomicU64::new(0),
                    last_text: Mutex::default(),
                    keys: AtomicU64::new(0),
                    expired: AtomicU64::new(0),
                }));
                KeySet::default()
            }
        };
        issuers.push(Issuer {
            name: configured.issuer.as_deref().map(Into::into),
            audiences: configured.audiences.iter().map(|it| it.as_str().into()).collect(),
            algorithms,
            leeway: configured.leeway,
            keys,
        });
    }
    if problems.is_empty() { Ok((issuers, KeySets(followed))) } else { Err(problems) }
}

/// Returns warnings about files of key sets that cannot be used now. The router starts without them, and reads them
/// again.
pub fn unreadable_files(settings: &Jwt) -> Vec<Diagnostic> {
    let mut warnings = Vec::new();
    for (number, issuer) in settings.issuers.iter().enumerate() {
        let Some(jwks) = &issuer.jwks else { continue };
        let Some(file) = &jwks.file else { continue };
        let text = read_file(file, jwks.max_size);
        let reason = match text.map(|text| KeySet::from_jwks(&text)) {
            Ok(Ok(keys)) if !keys.is_empty() => continue,
            Ok(Ok(_)) => "it has no usable key".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error,
        };
        let path = format!("authentication.jwt.issuers[{number}].jwks.file");
        let message = format!("`{path}`: {}: {reason}", file.display());
        let help = "tokens of this issuer are refused until the file has keys";
        warnings.push(Diagnostic::warning("authentication", message).help(help));
    }
    warnings
}

/// Reads the file of a key set.
///
/// # Errors
/// The reason: the file cannot be read, or has more than `bytes_max` bytes.
fn read_file(path: &Path, bytes_max: usize) -> Result<Vec<u8>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut text = Vec::new();
    // One byte more than allowed, to find out whether the file exceeds the limit.
    let read = file.take(bytes_max as u64 + 1).read_to_end(&mut text);
    read.map_err(|error| error.to_string())?;
    match text.len() > bytes_max {
        true => Err(format!("it is larger than {bytes_max} bytes")),
        false => Ok(text),
    }
}

enum IssuerKeys {
    Fixed(KeySet),
    Followed { location: KeySetLocation, interval: Duration, age_max: Duration },
}

fn keys_of(
    configured: &JwtIssuer,
    algorithms: &[Algorithm],
    path: &str,
) -> Result<IssuerKeys, String> {
    if let Some(secret) = &configured.secret {
        let keys = KeySet::from_secret(secret.expose().as_bytes(), algorithms);
        return keys.map(IssuerKeys::Fixed).map_err(|error| format!("`{path}.secret`: {error}"));
    }
    if let Some(key) = &configured.public_key {
        let keys = KeySet::from_public_key(key.expose().as_bytes());
        return keys
            .map(IssuerKeys::Fixed)
            .map_err(|error| format!("`{path}.public_key`: {error}"));
    }
    let Some(jwks) = &configured.jwks else {
        return Err(format!("`{path}` needs one of `jwks`, `public_key` and `secret`"));
    };
    let location = location_of(jwks).map_err(|error| format!("`{path}.jwks`: {error}"))?;
    Ok(IssuerKeys::Followed { location, interval: jwks.refresh, age_max: jwks.max_age })
}

fn location_of(jwks: &Jwks) -> Result<KeySetLocation, String> {
    if let Some(file) = &jwks.file {
        return Ok(KeySetLocation::File(file.clone(), jwks.max_size));
    }
    let Some(url) = &jwks.url else { return Err("it needs `url` or `file`".to_owned()) };
    let tls = resource_tls(url, jwks.ca.as_deref())?;
    let resource = Resource::new(url, tls, ACCEPT, jwks.max_size, jwks.timeout);
    resource.map(|it| KeySetLocation::Url(Box::new(it))).map_err(|error| error.to_string())
}

fn algorithm(configured: JwtAlgorithm) -> Algorithm {
    match configured {
        JwtAlgorithm::RS256 => Algorithm::RS256,
        JwtAlgorithm::RS384 => Algorithm::RS384,
        JwtAlgorithm::RS512 => Algorithm::RS512,
        JwtAlgorithm::PS256 => Algorithm::PS256,
        JwtAlgorithm::PS384 => Algorithm::PS384,
        JwtAlgorithm::PS512 => Algorithm::PS512,
        JwtAlgorithm::ES256 => Algorithm::ES256,
        JwtAlgorithm::ES384 => Algorithm::ES384,
        JwtAlgorithm::EdDSA => Algorithm::EdDSA,
        JwtAlgorithm::HS256 => Algorithm::HS256,
        JwtAlgorithm::HS384 => Algorithm::HS384,
        JwtAlgorithm::HS512 => Algorithm::HS512,
    }
}

impl KeySets {
    /// Returns all key sets, for metrics.
    pub fn iter(&self) -> impl Iterator<Item = &FollowedKeySet> {
        self.0.iter().map(|it| &**it)
    }

    /// Follows the key sets until shutdown, by tasks of this runtime. Returns when each was refreshed once, or after
    /// `START_TIME_MAX`.
    pub async fn start(&self, verifier: &Arc<Verifier>, shutdown: &watch::Receiver<bool>) {
        let first: Vec<_> = self.0.iter().map(|it| it.refreshes.subscribe()).collect();
        for followed in &self.0 {
            let (followed, verifier) = (Arc::clone(followed), Arc::clone(verifier));
            let mut shutdown = shutdown.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = followed.follow(&verifier) => {}
                    _ = shutdown.wait_for(|stop| *stop) => {}
                }
            });
        }
        let all = async {
            for mut refreshes in first {
                // The sender lives as long as `self`.
                let _ = refreshes.wait_for(|refreshes| *refreshes > 0).await;
            }
        };
        let _ = tokio::time::timeout(START_TIME_MAX, all).await;
    }

    /// Refreshes the key set of an issuer because a token names an unknown key, unless the last refresh was too recent.
    /// Returns true when a refresh has ended; `false` if none was started.
    pub(super) async fn refresh_for_unknown_key(&self, issuer: IssuerId) -> bool {
        let Some(followed) = self.0.iter().find(|it| it.issuer == issuer) else { return false };
        let mut refreshes = followed.refreshes.subscribe();
        let before = *refreshes.borrow_and_update();
        {
            let mut schedule = followed.schedule();
            if !schedule.is_in_progress() && !schedule.ask(Instant::now()) {
                return false;
            }
        }
        followed.schedule_changed.notify_one();
        // The timeout of the refresh bounds the wait; the sender lives as long as `self`.
        refreshes.wait_for(|refreshes| *refreshes > before).await.is_ok()
    }

    /// True if the last refresh of that issuer's keys failed: a key that is not known may exist.
    pub(super) fn is_failing(&self, issuer: IssuerId) -> bool {
        let followed = self.0.iter().find(|it| it.issuer == issuer);
        followed.is_some_and(|it| it.schedule().is_failing())
    }
}

impl FollowedKeySet {
    async fn follow(&self, verifier: &Verifier) {
        loop {
            let due = self.schedule().due();
            tokio::select! {
                () = tokio::time::sleep_until(due.into()) => {}
                () = self.schedule_changed.notified() => continue,
            }
            self.schedule().begins(Instant::now());
            let outcome = self.refresh(verifier).await;
            let now = Instant::now();
            match outcome {
                Ok(()) => {
                    self.fetched.fetch_add(1, Ordering::Relaxed);
                    self.schedule().succeeded(now);
                }
                Err(reason) => {
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    let pause = self.schedule().failed(now);
                    tracing::warn!(
                        issuer = self.name,
                        reason,
                        ?pause,
                        has_keys = !self.last_text().is_empty(),
                        "the key set of an issuer could not be read; the last good one stays in use"
                    );
                    self.expire(verifier, now);
                }
            }
            self.refreshes.send_modify(|refreshes| *refreshes += 1);
        }
    }

    async fn refresh(&self, verifier: &Verifier) -> Result<(), String> {
        let text = match &self.location {
            KeySetLocation::Url(resource) => {
                resource.get().await.map_err(|error| error.to_string())?.to_vec()
            }
            KeySetLocation::File(path, bytes_max) => {
                let (path, bytes_max) = (path.clone(), *bytes_max);
                let read = tokio::task::spawn_blocking(move || read_file(&path, bytes_max));
                read.await.map_err(|error| error.to_string())??
            }
        };
        if *self.last_text() == text {
            return Ok(());
        }
        let keys = KeySet::from_jwks(&text).map_err(|error| error.to_string())?;
        if keys.is_empty() {
            tracing::warn!(
                issuer = self.name,
                "the key set of an issuer has no usable key (RSA of 2048 bits or more, P-256, P-384, Ed25519); all of \
                 its tokens are refused until it has one"
            );
        } else {
            let count = keys.len();
            tracing::info!(issuer = self.name, keys = count, "the key set of an issuer is read");
        }
        self.keys.store(keys.len() as u64, Ordering::Relaxed);
        verifier.replace_keys(self.issuer, keys);
        *self.last_text() = text;
        Ok(())
    }

    /// Stops using keys that could not be read again for too long: the issuer may have revoked them.
    fn expire(&self, verifier: &Verifier, now: Instant) {
        if !self.schedule().expire(now) {
            return;
        }
        // This heals by itself when the issuer responds again, so the level is not that of an error.
        tracing::warn!(
            issuer = self.name,
            "the keys of an issuer could not be read again within `max_age` and are not used any more; its tokens get \
             the response AUTHENTICATION_UNAVAILABLE until they can be read"
        );
        self.expired.fetch_add(1, Ordering::Relaxed);
        self.keys.store(0, Ordering::Relaxed);
        verifier.replace_keys(self.issuer, KeySet::default());
        self.last_text().clear();
    }

    /// Returns the age of the keys in use; `None` if there are none.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.schedule().age(now)
    }

    /// Locks the schedule. No user code runs under this lock, so a poisoned one holds a sound schedule.
    fn schedule(&self) -> MutexGuard<'_, RefreshSchedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the text. No user code runs under this lock, so a poisoned one holds a sound text.
    fn last_text(&self) -> MutexGuard<'_, Vec<u8>> {
        self.last_text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
