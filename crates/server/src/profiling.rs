//! The profiles of the process on the admin listener (`/debug/pprof/…`): its use of CPU and memory. Off by default,
//! because a profile costs time and reveals details.
//!
//! The crate `profile` takes the profiles; this module contains their limits and their HTTP.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use clients::workers::Workers;
use frontend::response::{self, Response};
use http::header::CONTENT_DISPOSITION;
use http::{HeaderValue, Method, Request, StatusCode};
use profile::ProfileError;

/// The common prefix of all paths.
pub(crate) const PREFIX: &str = "/debug/pprof/";

/// The default duration of a CPU profile, the same as in other servers for pprof.
const SECONDS_DEFAULT: u64 = 30;

/// The maximum duration of a CPU profile. Only one is taken at a time.
const SECONDS_MAX: u64 = 300;

const HELP: &str = "There are:\n\
     GET  /debug/pprof/profile?seconds=30  where CPU time goes (pprof)\n\
     GET  /debug/pprof/heap                where memory was allocated (pprof); needs _RJEM_MALLOC_CONF=prof:true at start\n\
     GET  /debug/pprof/tasks               threads by name, and the load of each worker\n";

/// Responds to a request below [`PREFIX`].
pub(crate) async fn handle<B>(
    settings: &config::Admin,
    workers: &Workers,
    request: &Request<B>,
) -> Response {
    if !settings.profiling {
        return response::text(
            StatusCode::NOT_FOUND,
            "profiling is off; `admin: {profiling: true}` in the configuration allows it\n",
        );
    }
    if request.method() != Method::GET {
        return response::text(StatusCode::METHOD_NOT_ALLOWED, "only GET is allowed here\n");
    }
    match request.uri().path().strip_prefix(PREFIX) {
        Some("tasks") => response::text(StatusCode::OK, tasks(workers)),
        Some("heap") => take("heap", profile::heap).await,
        Some("profile") => match seconds(request.uri().query()) {
            Some(seconds) => {
                let wait = move || std::thread::sleep(Duration::from_secs(seconds));
                take("profile", move || profile::cpu(wait)).await
            }
            None => response::text(
                StatusCode::BAD_REQUEST,
                format!("`seconds` is a whole number from 1 to {SECONDS_MAX}\n"),
            ),
        },
        _ => response::text(StatusCode::NOT_FOUND, HELP),
    }
}

/// Returns the duration of a CPU profile; `None` if it is invalid.
fn seconds(query: Option<&str>) -> Option<u64> {
    let pairs = query.unwrap_or_default().split('&');
    let given = pairs.filter_map(|pair| pair.strip_prefix("seconds=")).next_back();
    let seconds = given.map_or(Some(SECONDS_DEFAULT), |text| text.parse().ok())?;
    (1..=SECONDS_MAX).contains(&seconds).then_some(seconds)
}

/// Takes a profile on a thread of its own, so that the control runtime is not blocked.
async fn take(
    name: &'static str,
    profile: impl FnOnce() -> Result<Vec<u8>, ProfileError> + Send + 'static,
) -> Response {
    let refusal = match tokio::task::spawn_blocking(profile).await {
        Ok(Ok(bytes)) => {
            let bytes = Bytes::from(bytes);
            let mut answer = response::with_type(StatusCode::OK, "application/octet-stream", bytes);
            let file = format!("attachment; filename=\"starling-{name}.pb\"");
            if let Ok(value) = HeaderValue::from_str(&file) {
                answer.headers_mut().insert(CONTENT_DISPOSITION, value);
            }
            return answer;
        }
        Ok(Err(error)) => refused(error),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the profile could not be taken".to_owned()),
    };
    response::text(refusal.0, format!("{}\n", refusal.1))
}

/// Returns the status and the text for a profile that was not taken.
fn refused(error: ProfileError) -> (StatusCode, String) {
    let status = match error {
        ProfileError::Busy => StatusCode::CONFLICT,
        ProfileError::HeapProfilerOff => StatusCode::NOT_FOUND,
        ProfileError::NotBuilt | ProfileError::NotLinux => StatusCode::NOT_IMPLEMENTED,
        ProfileError::System(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, error.to_string())
}

/// Returns the load of each worker, and the threads with the CPU time that they have used.
fn tasks(workers: &Workers) -> String {
    let mut text = String::new();
    for (worker, load) in workers.loads().into_iter().enumerate() {
        let _ = writeln!(text, "worker-{worker}: {load} connections and events");
    }
    let control = tokio::runtime::Handle::current().metrics();
    let _ = writeln!(text, "control: {} tasks", control.num_alive_tasks());
    let _ = writeln!(text, "\n{:>8}  {:15}  state  CPU s", "thread", "name");
    for thread in profile::threads() {
        let profile::Thread { id, name, state, cpu_seconds } = thread;
        let _ = writeln!(text, "{id:>8}  {name:15}  {state:5}  {cpu_seconds:.2}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_profile_is_bounded() {
        for (query, expected) in [
            (None, Some(30)),
            (Some(""), Some(30)),
            (Some("seconds=5"), Some(5)),
            (Some("a=1&seconds=300"), Some(300)),
            (Some("seconds=0"), None),
            (Some("seconds=301"), None),
            (Some("seconds=-1"), None),
            (Some("seconds=x"), None),
        ] {
            assert_eq!(seconds(query), expected, "{query:?}");
        }
    }
}
