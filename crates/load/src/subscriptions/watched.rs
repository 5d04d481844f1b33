//! The server's process at the points of a run.

use std::time::Duration;

use super::SubscriptionsError;
use crate::process::{Process, Usage};

/// What a process has at one time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) usage: Usage,
    pub(super) descriptors: Option<usize>,
}

/// A process, if one was named.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watched(pub(super) Option<u32>);

impl Watched {
    pub(super) fn process(self) -> Option<Process> {
        self.0.map(Process::Id)
    }

    /// What it has now.
    pub(super) fn moment(self) -> Option<Moment> {
        let process = self.process()?;
        let usage = process.usage().ok()?;
        Some(Moment { usage, descriptors: process.descriptors().ok() })
    }

    /// What it has now; an error where it cannot be watched though it was named.
    pub(super) fn first(self) -> Result<Option<Moment>, SubscriptionsError> {
        let Some(pid) = self.0 else { return Ok(None) };
        let usage =
            Process::Id(pid).usage().map_err(|error| SubscriptionsError::Process { pid, error })?;
        Ok(Some(Moment { usage, descriptors: Process::Id(pid).descriptors().ok() }))
    }
}

impl Moment {
    pub(super) fn resident_mib(&self) -> f64 {
        self.usage.resident_kib as f64 / 1024.0
    }

    /// CPU time since another moment.
    pub(super) fn cpu_since(&self, earlier: &Self) -> Duration {
        self.usage.cpu.saturating_sub(earlier.usage.cpu)
    }
}
