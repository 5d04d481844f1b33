//! The limit of descriptors of this process, which a load generator raises for its connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of descriptors in addition to those of the connections.
const OTHER_DESCRIPTORS: u64 = 64;

/// Raises the limit for this number of connections, as far as permitted. `what` names them in messages.
///
/// # Errors
/// A message: the hard limit is too low, or the limit cannot be changed.
pub(crate) fn raise_descriptors(connections: usize, what: &str) -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = connections as u64 + OTHER_DESCRIPTORS;
    let most = limit.maximum.unwrap_or(u64::MAX);
    if wanted > most {
        return Err(format!(
            "{connections} {what} need {wanted} descriptors, and this process may have {most}; raise the hard limit (`ulimit -Hn`, LimitNOFILE=), see docs/scaling.md"
        ));
    }
    if limit.current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
            .map_err(|error| format!("cannot raise the limit of descriptors: {error}"))?;
    }
    Ok(())
}
