//! Where CPU time goes: the stacks of running threads, some hundred times a second.
//!
//! The signal, its timer and the walk of the stack are the crate `pprof`'s; only threads that run are seen, each as
//! often as it runs.

use std::time::Duration;

use pprof::ProfilerGuardBuilder;

use crate::ProfileError;
use crate::encoding::{Encoding, Function, ValueType};
use crate::names::function;

/// Samples a second of CPU time. Not a round number, so that nothing periodic hides between them.
const FREQUENCY: i32 = 99;

/// Walking the stack there can wait for a lock that the interrupted code holds.
const BLOCKLIST: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];

/// Samples the process until `wait` returns, which may sleep for as long as it likes.
///
/// # Errors
/// [`ProfileError::Busy`] while another profile is taken, and where signals or timers are not to be had.
pub fn cpu(wait: impl FnOnce()) -> Result<Vec<u8>, ProfileError> {
    let guard = ProfilerGuardBuilder::default()
        .frequency(FREQUENCY)
        .blocklist(&BLOCKLIST)
        .build()
        .map_err(|error| match error {
            pprof::Error::Running => ProfileError::Busy,
            other => ProfileError::System(format!("cannot sample: {other}")),
        })?;
    wait();
    let report = guard
        .report()
        .build()
        .map_err(|error| ProfileError::System(format!("cannot read the samples: {error}")))?;
    drop(guard);

    let nanos = Duration::from_secs(1).as_nanos() as u64 / FREQUENCY as u64;
    let cpu = ValueType("cpu", "nanoseconds");
    let mut encoding =
        Encoding::new(&[ValueType("samples", "count"), ValueType("cpu", "nanoseconds")]);
    encoding.taken(report.timing.start_time, report.timing.duration, &cpu, nanos);
    for (stack, count) in &report.data {
        let count = u64::try_from(*count).unwrap_or(0);
        let locations: Vec<Vec<Function>> = stack
            .frames
            .iter()
            .map(|inlined| {
                let named = |symbol: &pprof::Symbol| {
                    function(symbol.name(), symbol.filename().into_owned(), symbol.lineno())
                };
                inlined.iter().map(named).collect()
            })
            .collect();
        let label = Some(("thread", stack.thread_name.as_str()));
        encoding.sample(locations.iter().map(Vec::as_slice), &[count, count * nanos], label);
    }
    Ok(encoding.finish())
}
