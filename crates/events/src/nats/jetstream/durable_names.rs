//! Names of durable consumers. Two readers of this process never share one.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::subject_filter::SubjectFilter;
use crate::Durable;

/// The maximum length of a part of a consumer's name that comes from a directive or the configuration. The broker
/// accepts 255 bytes in all.
const NAME_PART_BYTES_MAX: usize = 80;

/// The names in use, and the part of names that distinguishes this router from others.
#[derive(Debug)]
pub(in crate::nats) struct DurableNames {
    instance: Box<str>,
    taken: Mutex<HashSet<Box<str>>>,
}

/// A name that one reader uses until this value is dropped.
#[derive(Debug)]
pub(super) struct NameClaim {
    durable_names: Arc<DurableNames>,
    name: Box<str>,
}

impl DurableNames {
    pub(in crate::nats) fn new(instance: Option<Box<str>>) -> Self {
        Self { instance: instance.unwrap_or_else(host_name), taken: Mutex::default() }
    }

    /// Returns the consumer's name for these subjects of a stream, or `None` if no durable consumer is requested.
    /// Different subjects need different consumers, so the name contains a hash of them.
    pub(super) fn name(
        &self,
        durable: &Durable,
        stream: &str,
        filter: &SubjectFilter,
    ) -> Option<Box<str>> {
        let consumer = durable.consumer.as_deref()?;
        let parts = [consumer, &self.instance, stream];
        let subjects = filter.subjects().iter().map(|subject| &**subject);
        let hash = fnv(parts.into_iter().chain(subjects));
        let [consumer, instance] = [consumer, &self.instance].map(token);
        Some(format!("{consumer}-{instance}-{hash:016x}").into())
    }

    /// Claims a name. Returns `None` if another reader has it.
    pub(super) fn claim(self: &Arc<Self>, name: &str) -> Option<NameClaim> {
        // If a thread panicked while it held the lock, the set of names is still consistent.
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let name: Box<str> = name.into();
        taken.insert(name.clone()).then(|| NameClaim { durable_names: Arc::clone(self), name })
    }
}

impl NameClaim {
    /// Returns the claimed name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for NameClaim {
    fn drop(&mut self) {
        let mut taken = self.durable_names.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.remove(&self.name);
    }
}

/// Returns the text in a form that a name may contain. The broker accepts no dots, spaces, wildcards and slashes.
fn token(text: &str) -> String {
    text.chars()
        .take(NAME_PART_BYTES_MAX)
        .map(|it| if it.is_ascii_alphanumeric() || matches!(it, '-' | '_') { it } else { '_' })
        .collect()
}

/// Returns the FNV-1a hash of the parts. It is the same in all versions of the router, unlike the hashes of the
/// standard library.
fn fnv<'a>(parts: impl Iterator<Item = &'a str>) -> u64 {
    let bytes = parts.flat_map(|part| part.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Returns the system's name of this machine; in a container, of the container.
fn host_name() -> Box<str> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    match name.trim() {
        "" => "router".into(),
        name => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durable_names(instance: &str) -> Arc<DurableNames> {
        Arc::new(DurableNames::new(Some(instance.into())))
    }

    fn name(durable_names: &DurableNames, consumer: &str, subject: &str) -> Box<str> {
        let durable = Durable { consumer: Some(consumer.into()), ..Durable::default() };
        let filter = SubjectFilter::new(vec![subject.into()]);
        durable_names.name(&durable, "ORDERS", &filter).unwrap()
    }

    #[test]
    fn a_name_is_the_same_after_a_restart_and_another_for_other_routers_and_subjects() {
        let one = name(&durable_names("eu.1"), "orders feed", "orders.>");
        assert_eq!(&*one, "orders_feed-eu_1-1bff4e3a72c852cf");
        for other in [
            name(&durable_names("eu_1"), "orders feed", "orders.>"),
            name(&durable_names("eu.1"), "orders feed", "orders.*"),
            name(&durable_names("eu.1"), "orders.feed", "orders.>"),
        ] {
            assert_ne!(other, one);
        }
        let long = name(&durable_names(&"i".repeat(300)), &"c".repeat(300), "orders.>");
        assert!(long.len() < 255, "{}", long.len());
    }

    #[test]
    fn a_name_has_one_reader_at_a_time() {
        let durable_names = durable_names("a");
        let claim = durable_names.claim("x").unwrap();
        assert!(durable_names.claim("x").is_none());
        assert!(durable_names.claim("y").is_some());
        drop(claim);
        assert_eq!(durable_names.claim("x").unwrap().name(), "x");
    }
}
