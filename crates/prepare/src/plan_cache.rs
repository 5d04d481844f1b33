//! Plans by operation: texts that differ in literals, spaces or fragments share one. A plan is made
//! once, also if several texts arrive at the same time, and kept as long as a text that needs it is
//! kept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cost::OperationCost;
use execute::{Executable, StatePlan};

/// The part of a prepared operation that texts share.
#[derive(Debug)]
pub(crate) struct SharedPlan {
    pub(crate) executable: Arc<Executable>,
    /// The plan that fetches the current state of a subscription, if its field has one.
    pub(crate) state: Option<Arc<StatePlan>>,
    /// The cost of the operation, if costs are estimated.
    pub(crate) cost: Option<Arc<OperationCost>>,
}

/// The plans of all operations that are in use.
#[derive(Debug, Default)]
pub(crate) struct PlanCache(Mutex<PlanSlots>);

#[derive(Debug, Default)]
struct PlanSlots {
    by_operation: HashMap<u128, Arc<PlanSlot>>,
    /// The number of entries after the last removal of those without a plan.
    swept: usize,
}

/// The plan of one operation. Locked while the plan is made.
type PlanSlot = Mutex<Weak<SharedPlan>>;

/// Minimum number of entries for a removal of those without a plan. Further removals happen when
/// the list has doubled.
const SWEEP_MIN: usize = 1_024;

impl PlanCache {
    /// Returns the plan of an operation, made by `make` if there is none. The flag is true if it
    /// existed.
    pub(crate) fn get_or_make<E>(
        &self,
        operation_id: u128,
        make: impl FnOnce() -> Result<SharedPlan, E>,
    ) -> Result<(Arc<SharedPlan>, bool), E> {
        let slot = {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if known.by_operation.len() >= SWEEP_MIN.max(2 * known.swept) {
                known.by_operation.retain(|_, slot| {
                    // Another reference exists while a plan is being made.
                    Arc::strong_count(slot) > 1
                        || slot.try_lock().is_ok_and(|plan| plan.strong_count() > 0)
                });
                known.swept = known.by_operation.len();
            }
            Arc::clone(known.by_operation.entry(operation_id).or_default())
        };
        // A panic while planning leaves the slot unchanged.
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(planned) = slot.upgrade() {
            return Ok((planned, true));
        }
        let planned = Arc::new(make()?);
        *slot = Arc::downgrade(&planned);
        Ok((planned, false))
    }
}
