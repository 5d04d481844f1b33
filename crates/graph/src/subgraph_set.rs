//! A set of subgraphs as bits, such as the resolvers of a field or the holders of an object.

use crate::SubgraphId;

/// The maximum number of subgraphs in one supergraph. Four words keep a set in half a cache line; the largest public
/// federations have about 200.
pub const SUBGRAPHS_MAX: usize = 256;

const WORDS: usize = SUBGRAPHS_MAX / 64;

/// A set of subgraphs of one supergraph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SubgraphSet([u64; WORDS]);

impl SubgraphSet {
    /// The set without members.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// Creates the set with the single member `subgraph`.
    pub fn of(subgraph: SubgraphId) -> Self {
        let mut set = Self::EMPTY;
        set.insert(subgraph);
        set
    }

    /// Adds `subgraph`. Ids at or above [`SUBGRAPHS_MAX`] do not occur: loading a supergraph refuses them.
    pub fn insert(&mut self, subgraph: SubgraphId) {
        self.0[usize::from(subgraph.0) / 64] |= 1 << (subgraph.0 % 64);
    }

    /// Removes `subgraph`.
    pub fn remove(&mut self, subgraph: SubgraphId) {
        self.0[usize::from(subgraph.0) / 64] &= !(1 << (subgraph.0 % 64));
    }

    /// True if `subgraph` is a member.
    pub fn contains(&self, subgraph: SubgraphId) -> bool {
        self.0[usize::from(subgraph.0) / 64] & (1 << (subgraph.0 % 64)) != 0
    }

    /// Returns the members of either set.
    pub fn union(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a |= b);
        self
    }

    /// Returns the members of both sets.
    pub fn intersection(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a &= b);
        self
    }

    /// Returns the members of `self` that `other` lacks.
    pub fn difference(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a &= !b);
        self
    }

    /// True if the set has no members.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// True if every member of `self` is a member of `other`.
    pub fn is_subset(&self, other: Self) -> bool {
        self.difference(other).is_empty()
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns the members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = SubgraphId> + '_ {
        self.0.iter().enumerate().flat_map(|(word, &bits)| {
            std::iter::successors(Some(bits), |bits| Some(bits & bits.wrapping_sub(1)))
                .take_while(|&bits| bits != 0)
                .map(move |bits| SubgraphId((word * 64) as u16 + bits.trailing_zeros() as u16))
        })
    }
}

impl FromIterator<SubgraphId> for SubgraphSet {
    fn from_iter<T: IntoIterator<Item = SubgraphId>>(members: T) -> Self {
        let mut set = Self::EMPTY;
        members.into_iter().for_each(|member| set.insert(member));
        set
    }
}

impl std::fmt::Debug for SubgraphSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter().map(|member| member.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_out_ascending_across_words() {
        let members = [0, 63, 64, 200, 255].map(SubgraphId);
        let set: SubgraphSet = members.into_iter().rev().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), members);
        assert_eq!(set.len(), 5);
        assert!(SubgraphSet::of(SubgraphId(64)).is_subset(set));
        assert!(set.difference(set).is_empty());
    }
}
