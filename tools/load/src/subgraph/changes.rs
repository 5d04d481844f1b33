//! Changes of made-up entities at run time: what a mock needs to show whether caches and live queries notice a change.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::{Map, Value};

use super::invention::Identity;

/// The maximum number of entities of a subgraph with changes. Each change copies the table, which takes less than a
/// millisecond at this size.
const CHANGED_ENTITIES_MAX: usize = 10_000;

/// The fields that have changed, by entity. A field without a change is made up.
pub(super) type ChangedEntities = HashMap<Identity, Arc<Map<String, Value>>>;

/// The changes of a subgraph since its start.
#[derive(Default)]
pub(super) struct EntityChanges {
    state: RwLock<ChangeState>,
}

#[derive(Default)]
struct ChangeState {
    entities: Arc<ChangedEntities>,
    count: u64,
}

impl EntityChanges {
    /// Returns the fields that have changed until now. An execution reads one snapshot, so that its response is
    /// consistent.
    pub(super) fn snapshot(&self) -> Arc<ChangedEntities> {
        // Each change leaves the state consistent, so a poisoned lock is sound, here and below.
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner).entities)
    }

    /// Returns the number of changes.
    pub(super) fn count(&self) -> u64 {
        self.state.read().unwrap_or_else(PoisonError::into_inner).count
    }

    /// Sets fields of an entity, for every execution that begins later.
    ///
    /// # Errors
    /// Too many entities have changes.
    pub(super) fn apply(
        &self,
        identity: Identity,
        fields: Map<String, Value>,
    ) -> Result<(), String> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = !state.entities.contains_key(&identity);
        if is_new && state.entities.len() == CHANGED_ENTITIES_MAX {
            return Err(format!("{CHANGED_ENTITIES_MAX} entities have changes, the maximum"));
        }
        let entities = Arc::make_mut(&mut state.entities);
        Arc::make_mut(entities.entry(identity).or_default()).extend(fields);
        state.count += 1;
        Ok(())
    }
}
