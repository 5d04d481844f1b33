//! The resource usage of the server's process at points of a run.

use std::time::Duration;

use super::run_error::SubscriptionRunError;
use crate::process::{Process, Usage};

/// The resource usage of a process at one time.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerSample {
    pub(super) usage: Usage,
    pub(super) descriptors: Option<usize>,
}

/// The id of the server's process, if it was given.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObservedServer(pub(super) Option<u32>);

impl ObservedServer {
    pub(super) fn process(self) -> Option<Process> {
        self.0.map(Process::Id)
    }

    /// Returns the current resource usage, if a process was given.
    pub(super) fn sample(self) -> Option<ServerSample> {
        let process = self.process()?;
        let usage = process.usage().ok()?;
        Some(ServerSample { usage, descriptors: process.descriptors().ok() })
    }

    /// Returns the current resource usage; an error if a process was given that cannot be observed.
    pub(super) fn first_sample(self) -> Result<Option<ServerSample>, SubscriptionRunError> {
        let Some(pid) = self.0 else { return Ok(None) };
        let usage = Process::Id(pid)
            .usage()
            .map_err(|error| SubscriptionRunError::Process { pid, error })?;
        Ok(Some(ServerSample { usage, descriptors: Process::Id(pid).descriptors().ok() }))
    }
}

impl ServerSample {
    pub(super) fn resident_mib(&self) -> f64 {
        self.usage.resident_kib as f64 / 1024.0
    }

    /// Returns the CPU time since an earlier point.
    pub(super) fn cpu_since(&self, earlier: &Self) -> Duration {
        self.usage.cpu.saturating_sub(earlier.usage.cpu)
    }
}
