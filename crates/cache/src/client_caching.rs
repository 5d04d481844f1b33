//! The headers that tell clients and their caches how long they may use a response.

use std::time::Duration;

use crate::jitter::Jitter;
use crate::policy::FoldedPolicy;
use crate::scope::Scope;

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
    /// Returns the headers of a response that was folded now, for clients of this scope. `random` spreads the ends of
    /// equal responses.
    ///
    /// Times are rounded down to seconds. `max-age=0` makes clients ask with `If-None-Match` before each use.
    ///
    /// Hot path: one allocation.
    pub fn of(
        folded: &FoldedPolicy,
        scope: Scope,
        style: AgeStyle,
        jitter: Jitter,
        random: u64,
    ) -> Self {
        let FoldedPolicy { policy, age, .. } = folded;
        let age = match style {
            AgeStyle::Deducted => 0,
            // Rounded up, so that the time that is left is never longer than it is.
            AgeStyle::Stated => age.as_secs() + u64::from(age.subsec_nanos() > 0),
        };
        let fresh = jitter.apply(policy.fresh_for, random).as_secs();
        let mut cache_control = String::with_capacity(CACHE_CONTROL_BYTES);
        cache_control.push_str(match scope {
            Scope::Public => "public",
            Scope::Private => "private",
        });
        push_seconds(&mut cache_control, ", max-age=", fresh.saturating_add(age));
        let mut add = |name: &str, time: Duration| {
            if time.as_secs() > 0 {
                push_seconds(&mut cache_control, name, time.as_secs());
            }
        };
        add(", stale-while-revalidate=", policy.stale_for);
        add(", stale-if-error=", policy.stale_if_error);
        Self { cache_control, age: (style == AgeStyle::Stated).then_some(age) }
    }
}

/// The length of a value with all directives and times of up to ten digits.
const CACHE_CONTROL_BYTES: usize = 96;

/// Appends a name and a number. The formatter of the standard library costs ten times as much.
fn push_seconds(text: &mut String, name: &str, mut seconds: u64) {
    text.push_str(name);
    let mut digits = ['0'; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        // The remainder is one digit.
        digits[first] = char::from(b'0' + (seconds % 10) as u8);
        seconds /= 10;
        if seconds == 0 {
            break;
        }
    }
    text.extend(&digits[first..]);
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
        let of = |folded: &FoldedPolicy, style| {
            ClientCaching::of(folded, folded.policy.scope, style, Jitter::NONE, u64::MAX)
        };
        let response = folded(60, 50, Scope::Public);
        let expected = "public, max-age=10, stale-while-revalidate=30";
        assert_eq!(
            of(&response, AgeStyle::Deducted),
            ClientCaching { cache_control: expected.into(), age: None }
        );
        let expected = "public, max-age=60, stale-while-revalidate=30";
        assert_eq!(
            of(&response, AgeStyle::Stated),
            ClientCaching { cache_control: expected.into(), age: Some(50) }
        );
        let expired = folded(60, 70, Scope::Private);
        let expected = "private, max-age=0, stale-while-revalidate=20";
        assert_eq!(of(&expired, AgeStyle::Deducted).cache_control, expected);
        let shared = ClientCaching::of(
            &response,
            Scope::Private,
            AgeStyle::Deducted,
            Jitter::NONE,
            u64::MAX,
        );
        assert!(shared.cache_control.starts_with("private, "), "{}", shared.cache_control);
        let most = ClientCaching::of(
            &folded(u64::MAX, 0, Scope::Public),
            Scope::Public,
            AgeStyle::Deducted,
            Jitter::NONE,
            0,
        );
        assert_eq!(most.cache_control, format!("public, max-age={}", u64::MAX));
    }

    proptest! {
        /// Both styles leave at most the time that is left, and at least nine tenths of it, whole seconds aside.
        #[test]
        fn no_client_may_use_a_response_for_longer_than_the_router(
            fresh in 0u64..100_000, age in 0u64..100_000, random: u64, is_stated: bool,
        ) {
            let folded = folded(fresh, age, Scope::Public);
            let style = if is_stated { AgeStyle::Stated } else { AgeStyle::Deducted };
            let told = ClientCaching::of(&folded, Scope::Public, style, Jitter::default(), random);
            let mut directives = ResponseDirectives::default();
            directives.read_field(told.cache_control.as_bytes());
            let left = directives.max_age.expect("a max-age").as_secs() - told.age.unwrap_or_default();
            let allowed = fresh.saturating_sub(age);
            prop_assert!(left <= allowed);
            prop_assert!(left + 1 >= allowed - allowed / 10);
        }
    }
}
