//! File descriptors: the number that the process may have, and the part that is reserved, so that health checks,
//! metrics and subgraphs are served when clients have taken all others.

use std::fs::File;

/// The minimum number of reserved descriptors: 64 connections of the admin listener, some subgraphs and brokers,
/// runtimes and files.
const RESERVED_MIN: usize = 128;

/// The maximum number of reserved descriptors. Subgraphs have 1,024 connections each at most by default.
const RESERVED_MAX: usize = 4_096;

/// One in this number of descriptors is reserved.
const RESERVED_PART: usize = 8;

/// Returns the maximum number of client connections if the configuration sets none and the process may open this many
/// files.
pub fn connections_for(descriptors: usize) -> usize {
    let reserved = (descriptors / RESERVED_PART).clamp(RESERVED_MIN, RESERVED_MAX);
    // A process with very few descriptors reserves half.
    (descriptors - reserved.min(descriptors / 2)).max(1)
}

/// Raises the limit of open files to the maximum of the system. Returns it; `None` if there is no limit.
pub fn raise_limit() -> Option<usize> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "the limit of open files could not be raised");
        }
    }
    let descriptors = getrlimit(Resource::Nofile).current;
    descriptors.map(|it| usize::try_from(it).unwrap_or(usize::MAX))
}

/// A descriptor that is reserved for the moment when no other is free: with it one more connection can be accepted,
/// refused with a reason, and closed. Without it the client would wait, because the system has accepted the connection
/// already.
#[derive(Debug)]
pub(crate) struct SpareDescriptor(Option<File>);

impl SpareDescriptor {
    /// Takes a descriptor, if one is free.
    pub(crate) fn take() -> Self {
        Self(File::open("/dev/null").ok())
    }

    /// Frees the descriptor for the next connection. True if there was one.
    pub(crate) fn free(&mut self) -> bool {
        self.0.take().is_some()
    }

    /// Takes a descriptor again if it was freed.
    pub(crate) fn take_again(&mut self) {
        if self.0.is_none() {
            *self = Self::take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_descriptors_is_kept_from_clients() {
        let cases = [
            (1, 1),
            (64, 32),
            (256, 128),
            (1_024, 896),
            (20_000, 17_500),
            (1_048_576, 1_044_480),
            (usize::MAX, usize::MAX - RESERVED_MAX),
        ];
        for (descriptors, connections) in cases {
            assert_eq!(connections_for(descriptors), connections, "{descriptors}");
        }
    }
}
