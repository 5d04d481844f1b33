//! The latency of an operation without load, learnt from its executions and from the slow-down of all operations.
//!
//! A window is a time over which the slow-down of all operations was measured. The mean latency of an operation in a
//! window, divided by that slow-down, is folded into its baseline once the window has ended.

/// The share of a window's mean latency in the baseline of an operation, if the window has enough executions.
const LATENCY_STEP: f64 = 0.1;

/// The number of executions in a window that give its mean the full share.
const LATENCY_EXECUTIONS: f64 = 4.0;

/// The number of executions that make up the first baseline. A single one may be far from the mean.
const FIRST_EXECUTIONS: u32 = 8;

/// The number of windows with a slow-down that is remembered, for operations that are rarely executed.
const WINDOWS_KEPT: usize = 16;

/// The slow-downs of the latest windows.
#[derive(Debug)]
pub(crate) struct Windows {
    /// The number of windows that have ended.
    ended: u32,
    slow_downs: [f64; WINDOWS_KEPT],
}

impl Windows {
    pub(crate) fn new() -> Self {
        Self { ended: 0, slow_downs: [1.0; WINDOWS_KEPT] }
    }

    /// Ends a window in which all operations together took `slow_down` times their baselines.
    pub(crate) fn end(&mut self, slow_down: f64) {
        self.slow_downs[self.ended as usize % WINDOWS_KEPT] = slow_down;
        self.ended = self.ended.wrapping_add(1);
    }

    /// Returns the slow-down of the latest window, if there was one.
    pub(crate) fn latest(&self) -> Option<f64> {
        (self.ended > 0).then(|| self.of(self.ended.wrapping_sub(1)))
    }

    /// Returns the slow-down of a window; of the latest one if it is not remembered.
    fn of(&self, window: u32) -> f64 {
        let age = self.ended.wrapping_sub(window) as usize;
        let index = if age <= WINDOWS_KEPT { window } else { self.ended.wrapping_sub(1) };
        self.slow_downs[index as usize % WINDOWS_KEPT]
    }
}

/// The baseline of an operation.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Baseline {
    /// The latency without load in seconds; 0 if it is not known.
    latency: f64,
    /// The window in which `sum` and `count` were counted.
    window: u32,
    /// The latencies of the window, in seconds.
    sum: f32,
    count: u32,
}

impl Baseline {
    /// Creates the baseline of an operation with this latency without load.
    pub(crate) fn with_latency(latency: f64, windows: &Windows) -> Self {
        let latency = latency.max(f64::MIN_POSITIVE);
        Self { latency, window: windows.ended, sum: 0.0, count: 0 }
    }

    /// Returns the latency without load in seconds, if it is known.
    pub(crate) fn latency(&self) -> Option<f64> {
        Some(self.latency).filter(|&it| it > 0.0)
    }

    /// Counts the latency of an execution, in seconds.
    pub(crate) fn count(&mut self, latency: f64, windows: &Windows) {
        let is_known = self.latency > 0.0;
        if is_known && self.window != windows.ended {
            self.fold(windows);
            (self.window, self.sum, self.count) = (windows.ended, 0.0, 0);
        }
        self.sum += latency as f32;
        self.count += 1;
        if !is_known && self.count == FIRST_EXECUTIONS {
            let mean = f64::from(self.sum) / f64::from(self.count);
            *self = Self::with_latency(mean / windows.latest().unwrap_or(1.0), windows);
        }
    }

    /// Folds the mean of the window into the baseline.
    fn fold(&mut self, windows: &Windows) {
        if self.count == 0 {
            return;
        }
        let mean = f64::from(self.sum) / f64::from(self.count) / windows.of(self.window);
        let step = LATENCY_STEP * (f64::from(self.count) / LATENCY_EXECUTIONS).min(1.0);
        self.latency = (self.latency + (mean - self.latency) * step).max(f64::MIN_POSITIVE);
    }
}
