//! The members of a group among the connections of one reactor: a sorted list in chunks. A broadcast visits the
//! connections in the order of their memory, a member takes little more than twelve bytes, and a join or leave costs
//! the search for a chunk and a move within it.

use std::collections::BTreeMap;
use std::ops::Bound;

use hub::Subscriber;

/// The members per chunk: 1.5 KiB, which the allocator provides without waste.
const CHUNK_LENGTH: usize = 128;

/// The length below which a chunk is merged with a neighbour, so that the few members that remain of many do not keep
/// the memory of all.
const CHUNK_LENGTH_MIN: usize = CHUNK_LENGTH / 4;

/// A [`Subscriber`] in four bytes less and in the order of memory: connections in neighbouring places are neighbours,
/// regardless of earlier users of these places.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct MemberKey {
    place: u32,
    generation: u32,
    operation: u32,
}

const _: () = assert!(size_of::<MemberKey>() == 12);

/// The members of a group, see the module.
#[derive(Default, Debug)]
pub(super) struct GroupMembers {
    /// The members below all of `rest`. Most groups have no others.
    first: Vec<MemberKey>,
    /// Non-empty chunks, each under a bound: not above any of its members, and above all members of the chunk before.
    rest: BTreeMap<MemberKey, Vec<MemberKey>>,
}

impl GroupMembers {
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_empty() && self.rest.is_empty()
    }

    /// Returns the number of members.
    pub(super) fn len(&self) -> usize {
        self.first.len() + self.rest.values().map(Vec::len).sum::<usize>()
    }

    /// Returns all members in the order of memory.
    pub(super) fn iter(&self) -> impl Iterator<Item = Subscriber> {
        self.first.iter().chain(self.rest.values().flatten()).map(|key| key.member())
    }

    /// True if a subscriber is one of the members.
    pub(super) fn contains(&self, member: Subscriber) -> bool {
        let key = MemberKey::of_member(member);
        let chunk = match self.rest.range(..=key).next_back() {
            Some((_, chunk)) => chunk,
            None => &self.first,
        };
        chunk.binary_search(&key).is_ok()
    }

    /// Adds a member, unless it is there already.
    pub(super) fn insert(&mut self, member: Subscriber) {
        self.insert_key(MemberKey::of_member(member));
    }

    fn insert_key(&mut self, key: MemberKey) {
        let chunk = match self.rest.range_mut(..=key).next_back() {
            Some((_, chunk)) => chunk,
            None => &mut self.first,
        };
        let Err(at) = chunk.binary_search(&key) else { return };
        if chunk.capacity() == 0 {
            // A client with a group of its own stays its only member; a list that grows by itself begins with room for
            // four.
            chunk.reserve_exact(1);
        }
        if chunk.len() < CHUNK_LENGTH {
            return chunk.insert(at, key);
        }
        if at == CHUNK_LENGTH {
            // New connections usually have the highest place: then the full chunk stays full, instead of becoming two
            // halves.
            self.rest.insert(key, vec![key]);
            return;
        }
        let mut upper = chunk.split_off(CHUNK_LENGTH / 2);
        match at.checked_sub(CHUNK_LENGTH / 2) {
            Some(at) if at > 0 => upper.insert(at, key),
            _ => chunk.insert(at, key),
        }
        if let Some(&bound) = upper.first() {
            self.rest.insert(bound, upper);
        }
    }

    /// Removes a member. Returns true if it was there.
    pub(super) fn remove(&mut self, member: Subscriber) -> bool {
        let key = MemberKey::of_member(member);
        let (bound, chunk) = match self.rest.range_mut(..=key).next_back() {
            Some((bound, chunk)) => (Some(*bound), chunk),
            None => (None, &mut self.first),
        };
        let Ok(at) = chunk.binary_search(&key) else { return false };
        chunk.remove(at);
        if chunk.len() < CHUNK_LENGTH_MIN {
            self.shrink(bound);
        }
        true
    }

    /// Merges a small chunk with a neighbour if both together fill half a chunk at most, and removes an empty one.
    fn shrink(&mut self, bound: Option<MemberKey>) {
        if let Some(bound) = bound {
            let before = self.rest.range(..bound).next_back().map(|(before, _)| *before);
            if self.join_chunks(before, bound) {
                return;
            }
        }
        let behind = bound.map_or(Bound::Unbounded, Bound::Excluded);
        if let Some((&next, _)) = self.rest.range((behind, Bound::Unbounded)).next() {
            self.join_chunks(bound, next);
        }
    }

    /// Merges the chunk at `right` into the one before it, at `left`. Returns true if there was room.
    fn join_chunks(&mut self, left: Option<MemberKey>, right: MemberKey) -> bool {
        let len = |chunk: Option<&Vec<MemberKey>>| chunk.map_or(0, Vec::len);
        let left_len = left.map_or(self.first.len(), |left| len(self.rest.get(&left)));
        let right_len = len(self.rest.get(&right));
        if right_len > 0 && left_len + right_len > CHUNK_LENGTH / 2 {
            return false;
        }
        let moved = self.rest.remove(&right).unwrap_or_default();
        match left.and_then(|left| self.rest.get_mut(&left)) {
            Some(chunk) => chunk.extend(moved),
            None => self.first.extend(moved),
        }
        true
    }

    /// Adds all members of another list.
    pub(super) fn append(&mut self, mut other: Self) {
        if self.rest.len() < other.rest.len() {
            std::mem::swap(self, &mut other);
        }
        for key in other.first.into_iter().chain(other.rest.into_values().flatten()) {
            self.insert_key(key);
        }
    }
}

impl MemberKey {
    fn of_member(member: Subscriber) -> Self {
        let Subscriber { connection, operation } = member;
        // The two halves of a token of the reactor.
        let (generation, place) = ((connection >> 32) as u32, connection as u32);
        Self { place, generation, operation }
    }

    fn member(self) -> Subscriber {
        let Self { place, generation, operation } = self;
        Subscriber { connection: u64::from(generation) << 32 | u64::from(place), operation }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn member((generation, place, operation): (u64, u64, u32)) -> Subscriber {
        Subscriber { connection: generation << 32 | place, operation }
    }

    /// Checks that every chunk is between its bounds, and that none is empty or too large.
    fn check(members: &GroupMembers) {
        let chunks = std::iter::once(&members.first).chain(members.rest.values());
        assert!(chunks.clone().all(|chunk| chunk.len() <= CHUNK_LENGTH && chunk.is_sorted()));
        assert!(members.rest.iter().all(|(bound, chunk)| chunk.first() >= Some(bound)));
        let all: Vec<&MemberKey> = chunks.flatten().collect();
        assert!(all.is_sorted_by(|a, b| a < b));
    }

    fn model(members: &GroupMembers) -> BTreeSet<Subscriber> {
        members.iter().collect()
    }

    #[test]
    fn members_in_order_fill_chunks_and_removed_members_leave_none() {
        let mut members = GroupMembers::default();
        let all: Vec<Subscriber> =
            (0..100 * CHUNK_LENGTH as u64).map(|place| member((7, place, 1))).collect();
        all.iter().for_each(|&it| members.insert(it));
        assert_eq!(members.rest.len(), 99);
        assert!(members.iter().eq(all.iter().copied()));
        // Removes all but one of a hundred members, everywhere.
        for (number, it) in all.iter().enumerate() {
            assert!(number % 100 == 0 || (members.remove(*it) && !members.remove(*it)));
        }
        check(&members);
        assert!(members.rest.len() < 8, "{} chunks for 128 members", members.rest.len());
        assert!(members.iter().eq(all.iter().copied().step_by(100)));
        all.iter().for_each(|&it| _ = members.remove(it));
        assert!(members.is_empty());
    }

    #[test]
    fn members_are_ordered_by_place_and_not_by_generation() {
        let mut members = GroupMembers::default();
        for it in [(3, 1, 0), (0, 2, 5), (9, 0, 1), (0, 2, 4)] {
            members.insert(member(it));
        }
        let expected = [(9, 0, 1), (3, 1, 0), (0, 2, 4), (0, 2, 5)].map(member);
        assert!(members.iter().eq(expected));
    }

    proptest! {
        #[test]
        fn it_holds_what_a_set_holds(
            steps in vec((any::<bool>(), 0_u64..3, 0_u64..900, 0_u32..2), 0..3000),
            others in vec((0_u64..3, 0_u64..900, 0_u32..2), 0..600),
        ) {
            let (mut members, mut expected) = (GroupMembers::default(), BTreeSet::new());
            for (comes, generation, place, operation) in steps {
                let it = member((generation, place, operation));
                if comes || expected.len() < 300 {
                    members.insert(it);
                    expected.insert(it);
                } else {
                    prop_assert_eq!(members.remove(it), expected.remove(&it));
                }
            }
            check(&members);
            prop_assert_eq!(model(&members), expected.clone());
            let mut other = GroupMembers::default();
            others.iter().for_each(|&it| other.insert(member(it)));
            expected.extend(others.into_iter().map(member));
            members.append(other);
            check(&members);
            prop_assert_eq!(model(&members), expected.clone());
            for it in expected {
                prop_assert!(members.contains(it) && members.remove(it) && !members.contains(it));
            }
            prop_assert!(members.is_empty() && members.rest.is_empty());
        }
    }
}
