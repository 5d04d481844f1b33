//! Fingerprints of values that clients have sent: logs and pages of operators show them in place of the values.
//!
//! # Why a fingerprint is safe here
//!
//! It is SipHash-2-4, a pseudo-random function, under a secret that the process draws when it starts and shows nowhere.
//! Without the secret, a list of likely values (numbers of customers, addresses) cannot be compared with fingerprints.
//! Equal values have equal fingerprints until the process ends, so an operator can tell values apart, and find one
//! again.

use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::LazyLock;

use siphasher::sip::SipHasher24;

/// The hasher with the secret of this process.
static SECRET: LazyLock<SipHasher24> = LazyLock::new(|| {
    // The standard library keys its hash tables with random bytes of the system; both words are derived from them.
    let random = RandomState::new();
    SipHasher24::new_with_keys(random.hash_one(0_u64), random.hash_one(1_u64))
});

/// The fingerprint of a value, such as `#3fa9c1d2`. Of a thousand different values, two have the same one with a
/// probability of 1 in 8,600.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ValueFingerprint(u32);

impl ValueFingerprint {
    /// Returns the fingerprint of a value.
    pub fn of(value: &str) -> Self {
        let mut hasher = *SECRET;
        hasher.write(value.as_bytes());
        // Every part of the hash is uniform.
        Self(hasher.finish() as u32)
    }
}

impl fmt::Display for ValueFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn equal_values_have_equal_fingerprints_and_others_differ() {
        let of = |number: u32| ValueFingerprint::of(&format!("orders.{number}"));
        let all: HashSet<_> = (0..1_000).map(of).collect();
        // Two equal ones are possible, five are not.
        assert!(all.len() > 995, "{}", all.len());
        assert!((0..1_000).all(|number| all.contains(&of(number))));
    }

    #[test]
    fn a_fingerprint_is_short_and_depends_on_the_secret_of_the_process() {
        let shown = ValueFingerprint::of("7").to_string();
        let is_digit = |it: char| matches!(it, '0'..='9' | 'a'..='f');
        let digits = shown.strip_prefix('#').expect("a number sign");
        assert!(digits.len() == 8 && digits.chars().all(is_digit), "{shown}");
        let mut without_secret = SipHasher24::new();
        without_secret.write(b"7");
        // Equal once in four billion runs.
        assert_ne!(ValueFingerprint::of("7"), ValueFingerprint(without_secret.finish() as u32));
    }
}
