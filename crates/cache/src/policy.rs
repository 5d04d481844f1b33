//! Cache policies: how long a response may be used, by which clients, and what makes it stale before.

use std::time::Duration;

use crate::address::EntryAddress;
use crate::body_copies::BodyCopies;
use crate::scope::Scope;
use crate::tags::{TAGS_MAX, Tag, Tags};
use crate::validator::Validator;

/// The time for which a response may be used, its scope and its tags.
///
/// A response is fresh for `fresh_for`. After that it may be served for `stale_for` during the next fetch, and for
/// `stale_if_error` if that fetch fails. Both times begin at the end of freshness (RFC 5861).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CachePolicy {
    /// The time for which the response is fresh, from the start of its fetch.
    pub fresh_for: Duration,
    /// The time for which a response that is no longer fresh may be served while it is fetched again.
    pub stale_for: Duration,
    /// The time for which a response that is no longer fresh may be served if fetching it fails.
    pub stale_if_error: Duration,
    /// The clients that may get the response.
    pub scope: Scope,
    /// The names that make the response stale when they are invalidated.
    pub tags: Tags,
}

impl CachePolicy {
    /// Returns the policy without the tags that follow from an address.
    #[must_use]
    pub fn without_implied_tags(&self, address: &EntryAddress) -> Self {
        let tags = match self.tags.is_unbounded() {
            true => self.tags.clone(),
            false => self.tags.iter().filter(|tag| !address.tags.contains(tag)).collect(),
        };
        Self { tags, ..self.clone() }
    }

    /// Returns the policy with the times that are left at this age.
    #[must_use]
    pub fn left_at(&self, age: Duration) -> Self {
        Self { tags: self.tags.clone(), ..self.times_left_at(age) }
    }

    /// As [`CachePolicy::left_at`], without tags.
    fn times_left_at(&self, age: Duration) -> Self {
        let until = |stale: Duration| self.fresh_for.saturating_add(stale).saturating_sub(age);
        let fresh_for = self.fresh_for.saturating_sub(age);
        Self {
            fresh_for,
            stale_for: until(self.stale_for) - fresh_for,
            stale_if_error: until(self.stale_if_error) - fresh_for,
            scope: self.scope,
            tags: Tags::default(),
        }
    }

    /// Returns the strictest combination of both: a response that is made of two responses with these policies may be
    /// used as long as both may, and everything that makes one of them stale makes it stale.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.restrict(other);
        self
    }

    /// Restricts this policy to what `other` permits too: see [`CachePolicy::and`].
    fn restrict(&mut self, other: &Self) {
        self.restrict_times(other);
        self.tags.insert_all(&other.tags);
    }

    fn restrict_times(&mut self, other: &Self) {
        // A part that is fresh for long covers the time in which another part is served stale.
        let ends = |mine: Duration, theirs: Duration| {
            let mine = self.fresh_for.saturating_add(mine);
            mine.min(other.fresh_for.saturating_add(theirs))
        };
        let fresh_for = self.fresh_for.min(other.fresh_for);
        let stale_for = ends(self.stale_for, other.stale_for) - fresh_for;
        let stale_if_error = ends(self.stale_if_error, other.stale_if_error) - fresh_for;
        (self.fresh_for, self.stale_for, self.stale_if_error) =
            (fresh_for, stale_for, stale_if_error);
        self.scope = self.scope.max(other.scope);
    }
}

/// Folds the policies of all parts of a response into one.
///
/// ```
/// use std::time::Duration;
///
/// use cache::{CachePolicy, PolicyFold};
///
/// let seconds = Duration::from_secs;
/// let product = CachePolicy { fresh_for: seconds(60), ..CachePolicy::default() };
/// let price = CachePolicy { fresh_for: seconds(20), stale_for: seconds(5), ..CachePolicy::default() };
///
/// let mut fold = PolicyFold::default();
/// fold.add(&product, seconds(50));
/// fold.add(&price, seconds(0));
/// let folded = fold.finish().expect("both parts may be stored");
/// assert_eq!(folded.policy.fresh_for, seconds(10), "the time that is left of the product");
/// assert_eq!(folded.age, seconds(50), "the age of the oldest part");
///
/// fold.forbid();
/// assert_eq!(fold.finish(), None, "one part that may not be stored is enough");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PolicyFold {
    /// The times that are left of the parts that may be stored, without tags; `None` without such a part.
    times: Option<CachePolicy>,
    /// True if a part may not be stored.
    is_forbidden: bool,
    age: Duration,
    /// The tags of all parts, in any order and with repetitions: they become a set at the end, which is quicker than
    /// one by one.
    tags: Vec<Tag>,
    /// True if the set counts as having every tag.
    is_unbounded: bool,
}

/// The number of tags, with repetitions, that are kept before they become a set.
const FOLDED_TAGS_MAX: usize = 4 * TAGS_MAX;

/// The policy of a response that is made of parts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FoldedPolicy {
    /// The times that are left of the parts.
    pub policy: CachePolicy,
    /// The age of the oldest part.
    pub age: Duration,
    /// The strong validator of the bytes of the response, if it is known: it is stored with a whole response. `None`
    /// after each change of the bytes.
    pub validator: Option<Validator>,
    /// The entry of the response, if it was found in a store: it has copies of the bytes in other codings. `None` after
    /// each change of the bytes.
    pub copies: Option<BodyCopies>,
}

/// The names that make a response stale.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dependencies {
    /// The tags of all parts that are known.
    pub tags: Tags,
    /// The time until the first part expires; `None` if no part does.
    pub fresh_for: Option<Duration>,
}

impl PolicyFold {
    /// Adds a part of this age.
    pub fn add(&mut self, policy: &CachePolicy, age: Duration) {
        self.add_part(policy, age, policy.tags.iter(), policy.tags.is_unbounded());
    }

    /// Adds a part of this age by its times and its tags, which may count as having every tag.
    pub fn add_part(
        &mut self,
        times: &CachePolicy,
        age: Duration,
        tags: impl IntoIterator<Item = Tag>,
        is_unbounded: bool,
    ) {
        self.add_left(&times.times_left_at(age), age, tags, is_unbounded);
    }

    /// Adds a part by the times that are left of it.
    fn add_left(
        &mut self,
        left: &CachePolicy,
        age: Duration,
        tags: impl IntoIterator<Item = Tag>,
        is_unbounded: bool,
    ) {
        match &mut self.times {
            None => self.times = Some(left.clone()),
            Some(times) => times.restrict_times(left),
        }
        self.age = self.age.max(age);
        self.add_tags(tags, is_unbounded);
    }

    /// Adds the tags of a part that may not be stored. Call [`PolicyFold::forbid`] for the part, too.
    pub fn add_tags(&mut self, tags: impl IntoIterator<Item = Tag>, is_unbounded: bool) {
        self.is_unbounded |= is_unbounded;
        if self.is_unbounded {
            self.tags = Vec::new();
            return;
        }
        self.tags.extend(tags);
        // Most repetitions are those of types and subgraphs.
        if self.tags.len() > FOLDED_TAGS_MAX {
            self.tags.sort_unstable();
            self.tags.dedup();
            if self.tags.len() > TAGS_MAX {
                (self.tags, self.is_unbounded) = (Vec::new(), true);
            }
        }
    }

    /// Adds a part that may not be stored: the response of a mutation, an error, a part without a policy.
    pub fn forbid(&mut self) {
        self.is_forbidden = true;
    }

    /// Adds all parts of `other`.
    pub fn merge(&mut self, other: &Self) {
        let Self { times, is_forbidden, age, tags, is_unbounded } = other;
        self.is_forbidden |= is_forbidden;
        match times {
            Some(times) => self.add_left(times, *age, tags.iter().copied(), *is_unbounded),
            None => self.add_tags(tags.iter().copied(), *is_unbounded),
        }
    }

    /// Returns the policy of the whole response. `None` if it may not be stored, because a part may not or because it
    /// has no parts.
    pub fn finish(&self) -> Option<FoldedPolicy> {
        let times = self.times.as_ref().filter(|_| !self.is_forbidden)?;
        let policy = CachePolicy { tags: self.all_tags(), ..times.clone() };
        Some(FoldedPolicy { policy, age: self.age, validator: None, copies: None })
    }

    /// Returns what makes the response stale, also if it may not be stored.
    pub fn dependencies(&self) -> Dependencies {
        let fresh_for = self.times.as_ref().map(|times| times.fresh_for);
        Dependencies { tags: self.all_tags(), fresh_for }
    }

    fn all_tags(&self) -> Tags {
        Tags::of_list(self.tags.clone(), self.is_unbounded)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn policy(fresh: u64, stale: u64, error: u64) -> CachePolicy {
        CachePolicy {
            fresh_for: seconds(fresh),
            stale_for: seconds(stale),
            stale_if_error: seconds(error),
            ..CachePolicy::default()
        }
    }

    #[test]
    fn stale_times_end_when_the_first_part_may_no_longer_be_used() {
        let both = policy(10, 30, 0).and(&policy(60, 0, 0));
        assert_eq!(both, policy(10, 30, 0), "the second part is fresh meanwhile");
        let both = policy(10, 30, 100).and(&policy(20, 5, 0));
        assert_eq!(both, policy(10, 15, 10));
    }

    #[test]
    fn private_wins_and_tags_are_joined() {
        let tagged = |scope, tag| CachePolicy {
            scope,
            tags: [Tag(tag)].into_iter().collect(),
            ..policy(1, 0, 0)
        };
        let both = tagged(Scope::Private, 1).and(&tagged(Scope::Public, 2));
        assert_eq!(both.scope, Scope::Private);
        assert_eq!(both.tags.iter().collect::<Vec<_>>(), [Tag(1), Tag(2)]);
    }

    #[test]
    fn a_response_without_parts_may_not_be_stored() {
        assert_eq!(PolicyFold::default().finish(), None);
    }

    #[test]
    fn a_part_that_may_not_be_stored_is_a_dependency_all_the_same() {
        let mut part = PolicyFold::default();
        part.add_tags([Tag(2)], false);
        part.forbid();
        let mut fold = PolicyFold::default();
        fold.add(
            &CachePolicy { tags: [Tag(1)].into_iter().collect(), ..policy(10, 0, 0) },
            seconds(3),
        );
        fold.merge(&part);
        assert_eq!(fold.finish(), None);
        let tags = [Tag(1), Tag(2)].into_iter().collect();
        assert_eq!(fold.dependencies(), Dependencies { tags, fresh_for: Some(seconds(7)) });
        assert_eq!(part.dependencies().fresh_for, None);
        part.add_tags([], true);
        assert!(part.dependencies().tags.is_unbounded());
    }

    #[test]
    fn a_part_that_is_served_stale_leaves_no_fresh_time() {
        assert_eq!(policy(10, 30, 90).left_at(seconds(25)), policy(0, 15, 75));
        assert_eq!(policy(10, 30, 90).left_at(seconds(1_000)), policy(0, 0, 0));
    }

    fn policies() -> impl Strategy<Value = CachePolicy> {
        (0u64..50, 0u64..50, 0u64..50, any::<bool>(), 0u64..4).prop_map(
            |(fresh, stale, error, is_private, tag)| CachePolicy {
                scope: if is_private { Scope::Private } else { Scope::Public },
                tags: [Tag(tag)].into_iter().collect(),
                ..policy(fresh, stale, error)
            },
        )
    }

    proptest! {
        /// The model asks each part whether it may be used at a time, and in which way.
        #[test]
        fn a_fold_permits_what_all_parts_permit(
            parts in proptest::collection::vec((policies(), 0u64..60), 1..6),
            later in 0u64..200,
        ) {
            let mut fold = PolicyFold::default();
            parts.iter().for_each(|(policy, age)| fold.add(policy, seconds(*age)));
            let folded = fold.finish().expect("parts").policy;
            // A fresh part covers any way of being served.
            let end = |policy: &CachePolicy, stale: Duration| policy.fresh_for + stale;
            let all = |end_of: &dyn Fn(&CachePolicy) -> Duration| {
                parts.iter().all(|(policy, age)| seconds(age + later) < end_of(policy))
            };
            prop_assert_eq!(all(&|it| it.fresh_for), seconds(later) < folded.fresh_for);
            let stale = seconds(later) < end(&folded, folded.stale_for);
            prop_assert_eq!(all(&|it| end(it, it.stale_for)), stale);
            let on_error = seconds(later) < end(&folded, folded.stale_if_error);
            prop_assert_eq!(all(&|it| end(it, it.stale_if_error)), on_error);
        }

        #[test]
        fn the_order_of_parts_makes_no_difference(
            parts in proptest::collection::vec((policies(), 0u64..60), 1..6),
        ) {
            let (mut forth, mut back) = (PolicyFold::default(), PolicyFold::default());
            parts.iter().for_each(|(policy, age)| forth.add(policy, seconds(*age)));
            parts.iter().rev().for_each(|(policy, age)| {
                let mut one = PolicyFold::default();
                one.add(policy, seconds(*age));
                back.merge(&one);
            });
            prop_assert_eq!(forth.finish(), back.finish());
        }
    }
}
