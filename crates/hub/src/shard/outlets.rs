//! The outlets of a shard, numbered, and the number of subscribers of each group behind each outlet. Only the outlets
//! have lists of subscribers: a million subscribers cost the hub a few counters.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexMap;

use crate::{GroupId, Outlet, OutletCommand};

/// The number of an outlet within its shard. A number is reused when its outlet has no subscribers left.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct OutletId(u32);

/// The outlets of a shard.
#[derive(Default)]
pub(super) struct Outlets {
    slots: Vec<Slot>,
    free: Vec<OutletId>,
    /// The outlets by address, which stays valid because the slot holds the outlet.
    by_address: HashMap<usize, OutletId, foldhash::fast::RandomState>,
}

#[derive(Default)]
struct Slot {
    outlet: Option<Arc<dyn Outlet>>,
    members: u64,
}

impl Outlets {
    /// Adds a subscriber behind `outlet`.
    pub(super) fn add_subscriber(&mut self, outlet: Arc<dyn Outlet>) -> OutletId {
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

    /// Removes subscribers of an outlet.
    pub(super) fn remove_subscribers(&mut self, id: OutletId, members: u64) {
        let slot = &mut self.slots[id.0 as usize];
        debug_assert!(slot.members >= members, "a subscriber that leaves was added before");
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

    /// True if all subscribers of that group have room for more.
    pub(super) fn have_room(&self, group: GroupId, members: &SubscriberCounts) -> bool {
        members.by_outlet().all(|(id, _)| {
            let outlet = self.slots.get(id.0 as usize).and_then(|slot| slot.outlet.as_ref());
            outlet.is_none_or(|outlet| outlet.has_room(group))
        })
    }

    /// True if no outlet of the group would drop another result of it, see [`Outlet::accepts_result`].
    pub(super) fn accept_result(&self, group: GroupId, members: &SubscriberCounts) -> bool {
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

/// The numbers of subscribers of one group by outlet. Most groups have one outlet.
#[derive(Default)]
pub(super) enum SubscriberCounts {
    #[default]
    None,
    One(OutletId, u64),
    Many(Box<IndexMap<OutletId, u64, foldhash::fast::RandomState>>),
}

impl SubscriberCounts {
    pub(super) fn add(&mut self, outlet: OutletId) {
        self.add_many(outlet, 1);
    }

    /// Adds subscribers behind one outlet.
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

    /// Removes a subscriber behind an outlet. Returns false if there is none.
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

    /// Returns the number of all subscribers.
    pub(super) fn count(&self) -> u64 {
        self.by_outlet().map(|(_, count)| count).sum()
    }

    /// Returns the number of subscribers behind each outlet.
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
        // The index is below the length, so the entry exists.
        (0..length).map(move |index| entry(index).unwrap_or((OutletId(u32::MAX), 0)))
    }
}

// There is one for each group; with a filter or a partition per user that is one for each subscriber.
const _: () = assert!(size_of::<SubscriberCounts>() <= 24);
