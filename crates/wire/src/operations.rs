//! The operations in progress on one WebSocket connection, under the client's name and under ours.

use std::sync::Arc;

/// An operation in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The client's name for it.
    pub id: Arc<str>,
    /// Our name for it.
    pub number: u32,
}

/// See the module. Empty, it holds no heap memory.
#[derive(Default)]
pub(crate) struct Operations {
    /// Sorted by id. A slice and no map: one entry is the rule, and it must be small. It has no room
    /// to grow in: an operation that begins costs far more than moving the others.
    list: Box<[Subscription]>,
    next_number: u32,
}

impl Operations {
    /// All of them, sorted by id.
    pub(crate) fn list(&self) -> &[Subscription] {
        &self.list
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        self.position(id).is_ok()
    }

    /// The id of an operation. Looks at each: there are seldom more than a few, and the most that
    /// there may be are read in under a microsecond.
    pub(crate) fn id_of(&self, number: u32) -> Option<&Arc<str>> {
        self.list.iter().find(|it| it.number == number).map(|it| &it.id)
    }

    /// Adds an operation under a number of its own. One that had the id before is replaced.
    pub(crate) fn insert(&mut self, id: &str) -> Subscription {
        // After four thousand million operations on one connection numbers repeat; by then the one
        // that had the number first is long over.
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        let subscription = Subscription { id: id.into(), number };
        match self.position(id) {
            Ok(position) => self.list[position] = subscription.clone(),
            Err(position) => {
                let mut list = std::mem::take(&mut self.list).into_vec();
                list.reserve_exact(1);
                list.insert(position, subscription.clone());
                self.list = list.into();
            }
        }
        subscription
    }

    pub(crate) fn remove(&mut self, id: &str) -> Option<Subscription> {
        let position = self.position(id).ok()?;
        let mut list = std::mem::take(&mut self.list).into_vec();
        let subscription = list.remove(position);
        self.list = list.into();
        Some(subscription)
    }

    pub(crate) fn clear(&mut self) {
        self.list = Box::default();
    }

    fn position(&self, id: &str) -> Result<usize, usize> {
        self.list.binary_search_by(|it| (*it.id).cmp(id))
    }
}
