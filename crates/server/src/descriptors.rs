//! Descriptors of files and sockets: how many the process may have, and how many of them are kept from clients, so that
//! health checks, metrics and subgraphs are served when clients have taken all others.

use std::fs::File;

/// The fewest descriptors that are kept back: 64 connections of the admin listener, some subgraphs and brokers,
/// runtimes and files.
const RESERVED_MIN: usize = 128;

/// The most descriptors that are kept back. Subgraphs have 1,024 connections each at most by default.
const RESERVED_MAX: usize = 4_096;

/// One in so many descriptors is kept back.
const RESERVED_PART: usize = 8;

/// How many connections clients may have where the configuration sets no bound and the process may open so many files.
pub(crate) fn connections_for(descriptors: usize) -> usize {
    let reserved = (descriptors / RESERVED_PART).clamp(RESERVED_MIN, RESERVED_MAX);
    // A process with very few keeps half.
    (descriptors - reserved.min(descriptors / 2)).max(1)
}

/// Raises the limit of open files to what the system allows. Returns it; `None`: there is none.
pub(crate) fn raise_limit() -> Option<usize> {
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

/// A descriptor that is kept for the moment when there is no other: with it one more connection can be accepted, told
/// why it is refused, and closed. Without it the client would wait, because the system has accepted the connection
/// already.
#[derive(Debug)]
pub(crate) struct SpareDescriptor(Option<File>);

impl SpareDescriptor {
    /// Takes a descriptor, if there is one.
    pub(crate) fn take() -> Self {
        Self(File::open("/dev/null").ok())
    }

    /// Frees the descriptor for what comes next. True if there was one.
    pub(crate) fn free(&mut self) -> bool {
        self.0.take().is_some()
    }

    /// Takes a descriptor again if there is none.
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
