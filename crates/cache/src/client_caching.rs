//! The headers that tell clients and their caches how long they may use a response.

use std::fmt::Write;
use std::time::Duration;

use crate::jitter::Jitter;
use crate::policy::{FoldedPolicy, Scope};

/// The form in which clients learn the age of a response's parts. Both forms leave the same time in a cache that
/// follows RFC 9111.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AgeStyle {
    /// `max-age` is the time that is left, and there is no `Age`. Right also for caches that ignore `Age`, as nginx
    /// does, and for programs that read `max-age` only.
    #[default]
    Deducted,
    /// `max-age` is the time from the fetch of the oldest part, and `Age` is how much of it has passed.
    Stated,
}

/// The caching headers of one response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientCaching {
    /// The value of `Cache-Control`.
    pub cache_control: String,
    /// The value of `Age`, in seconds, if it is sent.
    pub age: Option<u64>,
}

impl ClientCaching {
    /// The headers of a response that no cache may store: errors, mutations, and responses with a part that has no
    /// policy.
    pub fn no_store() -> Self {
        Self { cache_control: "no-store".to_owned(), age: None }
    }

    /// Returns the headers of a response that was folded now. `random` spreads the ends of equal responses.
    ///
    /// Times are rounded down to seconds. `max-age=0` makes clients ask with `If-None-Match` before each use.
    pub fn of(folded: Option<&FoldedPolicy>, style: AgeStyle, jitter: Jitter, random: u64) -> Self {
        let Some(FoldedPolicy { policy, age, .. }) = folded else { return Self::no_store() };
        let age = match style {
            AgeStyle::Deducted => 0,
            // Rounded up, so that the time that is left is never longer than it is.
            AgeStyle::Stated => age.as_secs() + u64::from(age.subsec_nanos() > 0),
        };
        let fresh = jitter.apply(policy.fresh_for, random).as_secs();
        let scope = match policy.scope {
            Scope::Public => "public",
            Scope::Private => "private",
        };
        let mut cache_control = format!("{scope}, max-age={}", fresh.saturating_add(age));
        let mut add = |name: &str, time: Duration| {
            if time.as_secs() > 0 {
                // Writing to a string succeeds.
                let _ = write!(cache_control, ", {name}={}", time.as_secs());
            }
        };
        add("stale-while-revalidate", policy.stale_for);
        add("stale-if-error", policy.stale_if_error);
        Self { cache_control, age: (style == AgeStyle::Stated).then_some(age) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cache_control::ResponseDirectives;
    use crate::policy::{CachePolicy, PolicyFold};

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn folded(fresh: u64, age: u64, scope: Scope) -> FoldedPolicy {
        let mut fold = PolicyFold::default();
        let (stale_for, stale_if_error) = (seconds(30), Duration::from_millis(900));
        let tags = Default::default();
        let policy =
            CachePolicy { fresh_for: seconds(fresh), stale_for, stale_if_error, scope, tags };
        fold.add(&policy, seconds(age));
        fold.finish().expect("a part")
    }

    #[test]
    fn clients_are_told_the_time_that_is_left() {
        let of = |folded: Option<&FoldedPolicy>, style| {
            ClientCaching::of(folded, style, Jitter::NONE, u64::MAX)
        };
        let response = folded(60, 50, Scope::Public);
        let expected = "public, max-age=10, stale-while-revalidate=30";
        assert_eq!(
            of(Some(&response), AgeStyle::Deducted),
            ClientCaching { cache_control: expected.into(), age: None }
        );
        let expected = "public, max-age=60, stale-while-revalidate=30";
        assert_eq!(
            of(Some(&response), AgeStyle::Stated),
            ClientCaching { cache_control: expected.into(), age: Some(50) }
        );
        let expired = folded(60, 70, Scope::Private);
        let expected = "private, max-age=0, stale-while-revalidate=20";
        assert_eq!(of(Some(&expired), AgeStyle::Deducted).cache_control, expected);
        assert_eq!(of(None, AgeStyle::Stated), ClientCaching::no_store());
    }

    proptest! {
        /// Both styles leave at most the time that is left, and at least nine tenths of it, whole seconds aside.
        #[test]
        fn no_client_may_use_a_response_for_longer_than_the_router(
            fresh in 0u64..100_000, age in 0u64..100_000, random: u64, is_stated: bool,
        ) {
            let folded = folded(fresh, age, Scope::Public);
            let style = if is_stated { AgeStyle::Stated } else { AgeStyle::Deducted };
            let told = ClientCaching::of(Some(&folded), style, Jitter::default(), random);
            let mut directives = ResponseDirectives::default();
            directives.read_field(told.cache_control.as_bytes());
            let left = directives.max_age.expect("a max-age").as_secs() - told.age.unwrap_or_default();
            let allowed = fresh.saturating_sub(age);
            prop_assert!(left <= allowed);
            prop_assert!(left + 1 >= allowed - allowed / 10);
        }
    }
}
