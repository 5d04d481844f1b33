//! Plans by operation: texts that differ in literals, spaces or fragments have one between them. Planned once,
//! also where several texts arrive at the same time; kept as long as a text that needs it is kept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use execute::{Executable, StatePlan};

/// What texts share.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) executable: Arc<Executable>,
    /// How the current state of a subscription is asked for, where its field has one.
    pub(crate) state: Option<Arc<StatePlan>>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Plans(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    by_operation: HashMap<u128, Arc<Slot>>,
    /// How many entries there were when those without a plan were last swept out.
    swept: usize,
}

/// Locked while the plan is made.
type Slot = Mutex<Weak<Planned>>;

/// Entries whose plan has gone are looked for when the list has doubled, and not below this.
const SWEEP_MIN: usize = 1_024;

impl Plans {
    /// The plan of an operation, made by `make` if nobody has it. True: it was there.
    pub(crate) fn get<E>(
        &self,
        operation_id: u128,
        make: impl FnOnce() -> Result<Planned, E>,
    ) -> Result<(Arc<Planned>, bool), E> {
        let slot = {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if known.by_operation.len() >= SWEEP_MIN.max(2 * known.swept) {
                known.by_operation.retain(|_, slot| {
                    // Held by somebody: a plan is being made.
                    Arc::strong_count(slot) > 1
                        || slot.try_lock().is_ok_and(|plan| plan.strong_count() > 0)
                });
                known.swept = known.by_operation.len();
            }
            Arc::clone(known.by_operation.entry(operation_id).or_default())
        };
        // A panic while planning leaves the slot as it was.
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(planned) = slot.upgrade() {
            return Ok((planned, true));
        }
        let planned = Arc::new(make()?);
        *slot = Arc::downgrade(&planned);
        Ok((planned, false))
    }
}
