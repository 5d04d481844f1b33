//! The operations in progress on one WebSocket connection, each with the client's id and the server's number.

use std::collections::HashMap;

/// An operation in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ActiveOperation {
    /// The id that the client chose.
    pub(crate) id: Box<str>,
    /// The number that the server chose.
    pub(crate) number: u32,
}

/// The operations of one connection. With one operation at most, they hold no heap memory except for the id.
#[derive(Default)]
pub(crate) struct ActiveOperations {
    list: List,
    next_number: u32,
}

// A part of the memory of an idle connection, see `subprotocol`.
const _: () = assert!(size_of::<ActiveOperations>() <= 32);

#[derive(Default)]
enum List {
    #[default]
    None,
    /// The usual case. The fields are listed instead of an [`ActiveOperation`], which saves eight bytes.
    One { number: u32, id: Box<str> },
    /// Sorted by id. A slice instead of a map, because it must be small. It has no spare room: the start of an
    /// operation costs far more than moving the other entries.
    Many(Box<[ActiveOperation]>),
    /// More than [`LISTED_MAX`] operations, found by id and by number.
    Maps(Box<Maps>),
}

/// The maximum number of operations that are found by comparing each entry.
const LISTED_MAX: usize = 64;

#[derive(Default)]
struct Maps {
    numbers: HashMap<Box<str>, u32>,
    ids: HashMap<u32, Box<str>>,
}

impl Maps {
    fn insert(&mut self, ActiveOperation { id, number }: ActiveOperation) {
        self.ids.insert(number, id.clone());
        self.numbers.insert(id, number);
    }
}

impl ActiveOperations {
    /// Returns the number of operations.
    pub(crate) fn len(&self) -> usize {
        match &self.list {
            List::None => 0,
            List::One { .. } => 1,
            List::Many(list) => list.len(),
            List::Maps(maps) => maps.numbers.len(),
        }
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        match &self.list {
            List::None => false,
            List::One { id: only, .. } => **only == *id,
            List::Many(list) => position(list, id).is_ok(),
            List::Maps(maps) => maps.numbers.contains_key(id),
        }
    }

    /// Returns the id of an operation.
    pub(crate) fn id_of(&self, wanted: u32) -> Option<&str> {
        match &self.list {
            List::One { number, id } if *number == wanted => Some(id),
            List::None | List::One { .. } => None,
            List::Many(list) => list.iter().find(|it| it.number == wanted).map(|it| &*it.id),
            List::Maps(maps) => maps.ids.get(&wanted).map(|id| &**id),
        }
    }

    /// Adds an operation and returns its number. No other operation may have the same id.
    pub(crate) fn insert(&mut self, id: &str) -> u32 {
        debug_assert!(!self.contains(id), "two operations would have the same id");
        // Numbers repeat after four thousand million operations on one connection; the earlier operation with the same
        // number ended long before.
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        self.list = match std::mem::take(&mut self.list) {
            List::None => List::One { number, id: id.into() },
            List::One { number: first, id: only } => {
                let mut list = [
                    ActiveOperation { id: only, number: first },
                    ActiveOperation { id: id.into(), number },
                ];
                list.sort_by(|a, b| a.id.cmp(&b.id));
                List::Many(list.into())
            }
            List::Many(list) if list.len() >= LISTED_MAX => {
                let mut maps = Box::<Maps>::default();
                list.into_iter().for_each(|it| maps.insert(it));
                maps.insert(ActiveOperation { id: id.into(), number });
                List::Maps(maps)
            }
            List::Maps(mut maps) => {
                maps.insert(ActiveOperation { id: id.into(), number });
                List::Maps(maps)
            }
            List::Many(list) => {
                let (Ok(at) | Err(at)) = position(&list, id);
                let mut list = list.into_vec();
                list.reserve_exact(1);
                list.insert(at, ActiveOperation { id: id.into(), number });
                List::Many(list.into())
            }
        };
        number
    }

    pub(crate) fn remove(&mut self, id: &str) -> Option<ActiveOperation> {
        match std::mem::take(&mut self.list) {
            List::One { number, id: only } if *only == *id => {
                Some(ActiveOperation { id: only, number })
            }
            List::Many(list) => {
                let at = position(&list, id);
                let mut list = list.into_vec();
                let removed = at.ok().map(|at| list.remove(at));
                self.list = match <[ActiveOperation; 1]>::try_from(list) {
                    Ok([ActiveOperation { id, number }]) => List::One { number, id },
                    Err(list) => List::Many(list.into()),
                };
                removed
            }
            List::Maps(mut maps) => {
                let number = maps.numbers.remove(id);
                let removed = number.and_then(|number| {
                    Some(ActiveOperation { id: maps.ids.remove(&number)?, number })
                });
                if !maps.numbers.is_empty() {
                    self.list = List::Maps(maps);
                }
                removed
            }
            other => {
                self.list = other;
                None
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.list = List::None;
    }
}

fn position(list: &[ActiveOperation], id: &str) -> Result<usize, usize> {
    list.binary_search_by(|it| (*it.id).cmp(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_found_by_id_and_number_however_many_there_are() {
        let mut operations = ActiveOperations::default();
        let ids = ["m", "a", "z", "b"];
        for (number, id) in (0..).zip(ids) {
            assert!(!operations.contains(id) && operations.id_of(number).is_none());
            assert_eq!(operations.insert(id), number);
            assert_eq!(operations.len(), number as usize + 1);
            assert!((0..).zip(&ids[..=number as usize]).all(|(number, id)| {
                operations.contains(id) && operations.id_of(number) == Some(*id)
            }));
        }
        assert_eq!(operations.remove("q"), None);
        for (number, id) in [(1, "a"), (3, "b"), (0, "m"), (2, "z")] {
            assert_eq!(operations.remove(id), Some(ActiveOperation { id: id.into(), number }));
            assert_eq!(operations.remove(id), None);
            assert_eq!(operations.id_of(number), None);
        }
        assert!(matches!(operations.list, List::None));
        assert_eq!(operations.insert("a"), 4);
        let many = || (5..5 + 3 * LISTED_MAX as u32).map(|number| (number, number.to_string()));
        assert!(many().all(|(number, id)| operations.insert(&id) == number));
        assert_eq!(operations.len(), 1 + 3 * LISTED_MAX);
        for (number, id) in many() {
            assert!(operations.contains(&id) && operations.id_of(number) == Some(&id));
            let removed = operations.remove(&id);
            assert_eq!(removed, Some(ActiveOperation { id: id.as_str().into(), number }));
            assert!(!operations.contains(&id) && operations.id_of(number).is_none());
        }
        assert_eq!((operations.len(), operations.id_of(4)), (1, Some("a")));
        operations.clear();
        assert_eq!((operations.len(), operations.contains("a")), (0, false));
    }
}
