//! The outlets that a shard speaks to, numbered, and how many members of which group sit behind each. Who they are
//! stands in the lists of the outlets and nowhere else: a million members cost the hub a few counters.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexMap;

use crate::{GroupId, Outlet, OutletCommand};

/// An outlet, numbered by its shard. A number is used again when nobody sits behind its outlet any more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct OutletId(u32);

/// See the module.
#[derive(Default)]
pub(super) struct Outlets {
    slots: Vec<Slot>,
    free: Vec<OutletId>,
    /// By the address of the outlet, which its slot keeps alive.
    by_address: HashMap<usize, OutletId, foldhash::fast::RandomState>,
}

#[derive(Default)]
struct Slot {
    outlet: Option<Arc<dyn Outlet>>,
    members: u64,
}

impl Outlets {
    /// One member more behind `outlet`.
    pub(super) fn enter(&mut self, outlet: Arc<dyn Outlet>) -> OutletId {
        let address = Arc::as_ptr(&outlet).cast::<()>().addr();
        let id = *self.by_address.entry(address).or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.slots.push(Slot::default());
                // Each outlet is an allocation of its own, so there are far fewer than numbers.
                OutletId((self.slots.len() - 1) as u32)
            })
        });
        let slot = &mut self.slots[id.0 as usize];
        slot.members += 1;
        slot.outlet.get_or_insert(outlet);
        id
    }

    /// So many members fewer.
    pub(super) fn leave(&mut self, id: OutletId, members: u64) {
        let slot = &mut self.slots[id.0 as usize];
        debug_assert!(slot.members >= members, "who leaves was there");
        slot.members = slot.members.saturating_sub(members);
        if slot.members == 0
            && let Some(outlet) = slot.outlet.take()
        {
            self.by_address.remove(&Arc::as_ptr(&outlet).cast::<()>().addr());
            self.free.push(id);
        }
    }

    pub(super) fn send(&self, id: OutletId, command: OutletCommand) {
        let outlet = self.slots.get(id.0 as usize).and_then(|slot| slot.outlet.as_ref());
        debug_assert!(outlet.is_some(), "an outlet is known while it has members");
        if let Some(outlet) = outlet {
            outlet.send(command);
        }
    }

    /// Do the members of that group keep up?
    pub(super) fn have_room(&self, group: GroupId, members: &Members) -> bool {
        members.by_outlet().all(|(id, _)| {
            let outlet = self.slots.get(id.0 as usize).and_then(|slot| slot.outlet.as_ref());
            outlet.is_none_or(|outlet| outlet.has_room(group))
        })
    }

    /// True if no outlet of the group would drop another result of it, see [`Outlet::accepts_result`].
    pub(super) fn accept_result(&self, group: GroupId, members: &Members) -> bool {
        members.by_outlet().all(|(id, _)| {
            let outlet = self.slots.get(id.0 as usize).and_then(|slot| slot.outlet.as_ref());
            outlet.is_none_or(|outlet| outlet.accepts_result(group))
        })
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_address.is_empty() && self.free.len() == self.slots.len()
    }
}

/// The members of one group, by outlet. Most groups sit behind one.
#[derive(Default)]
pub(super) enum Members {
    #[default]
    None,
    One(OutletId, u64),
    Many(Box<IndexMap<OutletId, u64, foldhash::fast::RandomState>>),
}

impl Members {
    pub(super) fn add(&mut self, outlet: OutletId) {
        self.add_many(outlet, 1);
    }

    /// So many behind one outlet.
    pub(super) fn add_many(&mut self, outlet: OutletId, more: u64) {
        match self {
            _ if more == 0 => {}
            Self::One(known, count) if *known == outlet => *count += more,
            Self::Many(all) => *all.entry(outlet).or_default() += more,
            Self::None => *self = Self::One(outlet, more),
            Self::One(known, count) => {
                let both = [(*known, *count), (outlet, more)];
                *self = Self::Many(Box::new(both.into_iter().collect()));
            }
        }
    }

    /// False: nobody of the group is there.
    pub(super) fn remove(&mut self, outlet: OutletId) -> bool {
        match self {
            Self::One(known, count) if *known == outlet => {
                *count -= 1;
                if *count == 0 {
                    *self = Self::None;
                }
                true
            }
            Self::None | Self::One(..) => false,
            Self::Many(all) => {
                let Some(count) = all.get_mut(&outlet) else { return false };
                *count -= 1;
                if *count == 0 {
                    all.swap_remove(&outlet);
                }
                if all.is_empty() {
                    *self = Self::None;
                }
                true
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    /// How many in all.
    pub(super) fn count(&self) -> u64 {
        self.by_outlet().map(|(_, count)| count).sum()
    }

    /// How many behind each outlet.
    pub(super) fn by_outlet(&self) -> impl ExactSizeIterator<Item = (OutletId, u64)> {
        let entry = |index: usize| match self {
            Self::One(outlet, count) => Some((*outlet, *count)),
            Self::Many(all) => all.get_index(index).map(|(outlet, count)| (*outlet, *count)),
            Self::None => None,
        };
        let length = match self {
            Self::None => 0,
            Self::One(..) => 1,
            Self::Many(all) => all.len(),
        };
        // `length` entries are there.
        (0..length).map(move |index| entry(index).unwrap_or((OutletId(u32::MAX), 0)))
    }
}

// Of each group there is one; with a filter or a partition for each user that is one for each subscriber.
const _: () = assert!(size_of::<Members>() <= 24);
