//! A queue that is one pointer wide and holds no memory while it is empty: what machines have that are idle nearly always.

use std::collections::VecDeque;

/// See the module.
#[derive(Debug)]
#[expect(
    clippy::box_collection,
    reason = "24 bytes less in each of several queues of every idle connection"
)]
pub(crate) struct Queue<T>(Option<Box<VecDeque<T>>>);

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Queue<T> {
    pub(crate) fn push_back(&mut self, item: T) {
        self.0.get_or_insert_default().push_back(item);
    }

    /// Takes from the front, and gives the queue's memory back with its last entry.
    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let queue = self.0.as_mut()?;
        let front = queue.pop_front();
        if queue.is_empty() {
            self.0 = None;
        }
        front
    }

    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |queue| queue.len())
    }

    pub(crate) fn front(&self) -> Option<&T> {
        self.0.as_ref()?.front()
    }

    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }
}

const _: () = assert!(size_of::<Queue<[u64; 4]>>() == size_of::<usize>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out_in_order_and_nothing_is_kept() {
        let mut queue = Queue::default();
        for round in 0..3 {
            (0..5).for_each(|item| queue.push_back((round, item)));
            assert_eq!(queue.front(), Some(&(round, 0)));
            let all: Vec<_> = std::iter::from_fn(|| queue.pop_front()).collect();
            assert_eq!(all, (0..5).map(|item| (round, item)).collect::<Vec<_>>());
            assert!(queue.0.is_none());
        }
        queue.push_back((9, 9));
        queue.clear();
        assert!(queue.front().is_none() && queue.pop_front().is_none());
    }
}
