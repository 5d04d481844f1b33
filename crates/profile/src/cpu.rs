//! CPU profiles: samples the stacks of running threads about a hundred times a second.
//!
//! The crate `pprof` provides the signal, its timer and the stack walk. Only running threads are sampled, in
//! proportion to the CPU time they use.

use std::time::Duration;

use pprof::ProfilerGuardBuilder;

use crate::ProfileError;
use crate::encoding::{Function, ProfileEncoder, ValueType};
use crate::names::name_function;

/// Samples per second of CPU time. Not a round number, so that periodic work does not fall between samples.
const FREQUENCY: i32 = 99;

/// The libraries in which no stack is walked: the walk could wait for a lock that the interrupted code holds.
const BLOCKLIST: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];

/// Samples the process until `wait` returns, and returns the profile. `wait` may block for any time.
///
/// # Errors
/// [`ProfileError::Busy`] while another profile is taken, or an error of the system if signals or timers are
/// unavailable.
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
    let mut encoder =
        ProfileEncoder::new(&[ValueType("samples", "count"), ValueType("cpu", "nanoseconds")]);
    encoder.set_period(report.timing.start_time, report.timing.duration, &cpu, nanos);
    for (stack, count) in &report.data {
        let count = u64::try_from(*count).unwrap_or(0);
        let locations: Vec<Vec<Function>> = stack
            .frames
            .iter()
            .map(|inlined| {
                let named = |symbol: &pprof::Symbol| {
                    name_function(symbol.name(), symbol.filename().into_owned(), symbol.lineno())
                };
                inlined.iter().map(named).collect()
            })
            .collect();
        let label = Some(("thread", stack.thread_name.as_str()));
        encoder.add_sample(locations.iter().map(Vec::as_slice), &[count, count * nanos], label);
    }
    Ok(encoder.finish())
}
