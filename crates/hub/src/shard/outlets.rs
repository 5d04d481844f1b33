//! The outlets of a shard, numbered, and the number of subscribers of each group behind each outlet. Only the outlets
//! have lists of subscribers: a million subscribers cost the hub a few counters.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexMap;

use crate::{GroupId, Outlet, OutletCommand, TransportCounts, TransportId};

/// The number of an outlet within its shard. A number is reused when its outlet has no subscribers left.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct OutletId(u32);

/// The outlet of a subscriber and its transport, in four bytes: each subscription has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OutletPlace(u32);

/// The number of the low bits of an [`OutletPlace`] that hold the transport. The others hold the outlet: that is enough
/// for 500 million of them.
const TRANSPORT_BITS: u32 = TransportId::COUNT_MAX.ilog2();

impl OutletPlace {
    pub(super) fn new(outlet: OutletId, transport: TransportId) -> Self {
        debug_assert!(outlet.0 >> (u32::BITS - TRANSPORT_BITS) == 0, "there are far fewer outlets");
        Self((outlet.0 << TRANSPORT_BITS) | transport.number() as u32)
    }

    /// Returns the outlet.
    pub(super) fn id(self) -> OutletId {
        OutletId(self.0 >> TRANSPORT_BITS)
    }

    fn transport(self) -> TransportId {
        // The low bits hold a number below the maximum, which is a power of two.
        TransportId::new((self.0 % (1 << TRANSPORT_BITS)) as u8)
    }
}

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

/// The numbers of subscribers of one group, by outlet and by transport. Most groups have one of each.
#[derive(Default)]
pub(super) enum SubscriberCounts {
    #[default]
    None,
    /// All subscribers have this outlet and this transport.
    One(OutletPlace, u64),
    Many(Box<SubscriberSums>),
}

/// The numbers of subscribers of a group with several outlets or transports.
#[derive(Default)]
pub(super) struct SubscriberSums {
    by_outlet: IndexMap<OutletId, u64, foldhash::fast::RandomState>,
    by_transport: TransportCounts,
}

impl SubscriberSums {
    fn add(&mut self, outlet: OutletPlace, more: u64) {
        *self.by_outlet.entry(outlet.id()).or_default() += more;
        self.by_transport[outlet.transport().number()] += more;
    }

    /// Removes a subscriber. Returns false if there is none behind that outlet.
    fn remove(&mut self, outlet: OutletPlace) -> bool {
        let Some(count) = self.by_outlet.get_mut(&outlet.id()) else { return false };
        *count -= 1;
        if *count == 0 {
            self.by_outlet.swap_remove(&outlet.id());
        }
        let of_transport = &mut self.by_transport[outlet.transport().number()];
        debug_assert!(*of_transport > 0, "a subscriber leaves with its transport");
        *of_transport = of_transport.saturating_sub(1);
        true
    }
}

impl SubscriberCounts {
    /// Adds a subscriber.
    pub(super) fn add(&mut self, outlet: OutletPlace) {
        self.add_many(outlet, 1);
    }

    fn add_many(&mut self, outlet: OutletPlace, more: u64) {
        match self {
            _ if more == 0 => {}
            Self::One(known, count) if *known == outlet => *count += more,
            Self::Many(all) => all.add(outlet, more),
            Self::None => *self = Self::One(outlet, more),
            Self::One(..) => {
                let mut both = std::mem::take(self).into_sums();
                both.add(outlet, more);
                *self = Self::Many(both);
            }
        }
    }

    /// Adds the subscribers of another group.
    pub(super) fn add_all(&mut self, others: &Self) {
        match others {
            Self::None => {}
            Self::One(outlet, count) => self.add_many(*outlet, *count),
            Self::Many(others) => {
                let mut all = std::mem::take(self).into_sums();
                for (outlet, count) in &others.by_outlet {
                    *all.by_outlet.entry(*outlet).or_default() += count;
                }
                for (sum, count) in all.by_transport.iter_mut().zip(others.by_transport) {
                    *sum += count;
                }
                *self = Self::Many(all);
            }
        }
    }

    fn into_sums(self) -> Box<SubscriberSums> {
        match self {
            Self::None => Box::default(),
            Self::One(outlet, count) => {
                let mut sums = Box::<SubscriberSums>::default();
                sums.add(outlet, count);
                sums
            }
            Self::Many(sums) => sums,
        }
    }

    /// Removes a subscriber. Returns false if there is none behind that outlet.
    pub(super) fn remove(&mut self, outlet: OutletPlace) -> bool {
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
                let is_removed = all.remove(outlet);
                if all.by_outlet.is_empty() {
                    *self = Self::None;
                }
                is_removed
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
            Self::One(outlet, count) => Some((outlet.id(), *count)),
            Self::Many(all) => {
                all.by_outlet.get_index(index).map(|(outlet, count)| (*outlet, *count))
            }
            Self::None => None,
        };
        let length = match self {
            Self::None => 0,
            Self::One(..) => 1,
            Self::Many(all) => all.by_outlet.len(),
        };
        // The index is below the length, so the entry exists.
        (0..length).map(move |index| entry(index).unwrap_or((OutletId(u32::MAX), 0)))
    }

    /// Returns the number of subscribers with each transport.
    pub(super) fn by_transport(&self) -> TransportCounts {
        let mut counts = TransportCounts::default();
        match self {
            Self::None => {}
            Self::One(outlet, count) => counts[outlet.transport().number()] = *count,
            Self::Many(all) => counts = all.by_transport,
        }
        counts
    }
}

// There is one for each group; with a filter or a partition per user that is one for each subscriber.
const _: () = assert!(size_of::<SubscriberCounts>() <= 24);

#[cfg(test)]
mod tests {
    use super::*;

    const SOCKET: TransportId = TransportId::new(0);
    const STREAM: TransportId = TransportId::new(TransportId::COUNT_MAX as u8 - 1);

    fn place(outlet: u32, transport: TransportId) -> OutletPlace {
        OutletPlace::new(OutletId(outlet), transport)
    }

    /// Returns the numbers by outlet, and those of the two transports.
    fn counts(members: &SubscriberCounts) -> (Vec<(u32, u64)>, [u64; 2]) {
        let by_transport = members.by_transport();
        assert_eq!(by_transport.iter().sum::<u64>(), members.count());
        let by_outlet = members.by_outlet().map(|(outlet, count)| (outlet.0, count)).collect();
        (by_outlet, [SOCKET, STREAM].map(|it| by_transport[it.number()]))
    }

    #[test]
    fn subscribers_are_counted_by_outlet_and_by_transport() {
        let mut members = SubscriberCounts::default();
        assert_eq!(counts(&members), (vec![], [0, 0]));
        members.add(place(7, SOCKET));
        members.add(place(7, SOCKET));
        assert_eq!(counts(&members), (vec![(7, 2)], [2, 0]));
        members.add(place(7, STREAM));
        assert_eq!(counts(&members), (vec![(7, 3)], [2, 1]), "an outlet with two transports");
        members.add(place(9, STREAM));
        assert_eq!(counts(&members), (vec![(7, 3), (9, 1)], [2, 2]));
        assert!(members.remove(place(7, SOCKET)));
        assert!(!members.remove(place(8, SOCKET)), "no subscriber has this outlet");
        assert_eq!(counts(&members), (vec![(7, 2), (9, 1)], [1, 2]));
        for place in [place(7, STREAM), place(9, STREAM), place(7, SOCKET)] {
            assert!(members.remove(place));
        }
        assert!(members.is_empty());
        assert_eq!(counts(&members), (vec![], [0, 0]));
    }

    #[test]
    fn a_group_gets_the_counts_of_a_group_that_merges_into_it() {
        let group = |places: &[OutletPlace]| {
            let mut members = SubscriberCounts::default();
            places.iter().for_each(|it| members.add(*it));
            members
        };
        let (socket, stream) = (place(7, SOCKET), place(7, STREAM));
        let (none, one) = (group(&[]), group(&[socket, socket]));
        let many = group(&[stream, place(9, STREAM), socket]);
        let merged = |into: &[OutletPlace], from: &SubscriberCounts| {
            let mut members = group(into);
            members.add_all(from);
            counts(&members)
        };
        assert_eq!(merged(&[socket], &none), (vec![(7, 1)], [1, 0]));
        assert_eq!(merged(&[], &one), (vec![(7, 2)], [2, 0]));
        assert_eq!(merged(&[stream], &one), (vec![(7, 3)], [2, 1]));
        assert_eq!(merged(&[], &many), (vec![(7, 2), (9, 1)], [1, 2]));
        assert_eq!(merged(&[socket], &many), (vec![(7, 3), (9, 1)], [2, 2]));
        assert_eq!(merged(&[stream, socket], &many), (vec![(7, 4), (9, 1)], [2, 3]));
    }
}
