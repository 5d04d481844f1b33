//! Counters by the values of one label, of which there are few, such as statuses and reasons.
//!
//! Values that clients choose belong into a [`crate::name_table`], which bounds their number.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::metric::{Samples, read};

/// Counters by the values of one label.
#[derive(Debug, Default)]
pub struct LabelledCounters(RwLock<BTreeMap<Box<str>, Arc<AtomicU64>>>);

impl LabelledCounters {
    /// Creates counters of which those with these values exist from the start, because an alert on a metric that does
    /// not exist yet never fires.
    pub fn with_values<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let counters = Self::default();
        for value in values {
            drop(counters.counter(value));
        }
        counters
    }

    /// Returns the counter of a value, which is created if it does not exist.
    pub fn counter(&self, value: &str) -> Arc<AtomicU64> {
        let counters = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(counter) = counters.get(value) {
            return Arc::clone(counter);
        }
        drop(counters);
        let mut counters = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(counters.entry(value.into()).or_default())
    }

    /// Adds to the counter of a value.
    pub fn add(&self, value: &str, count: u64) {
        self.counter(value).fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the sum of all counters.
    pub fn sum(&self) -> u64 {
        let counters = self.0.read().unwrap_or_else(PoisonError::into_inner);
        counters.values().map(|counter| read(counter)).sum()
    }

    /// Writes all values under the label `name`, in their order.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn write(&self, name: &str, samples: &mut Samples<'_, '_>) -> fmt::Result {
        let counters = self.0.read().unwrap_or_else(PoisonError::into_inner);
        counters
            .iter()
            .try_for_each(|(value, counter)| samples.add_labelled((name, value), read(counter)))
    }
}
