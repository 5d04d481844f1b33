//! Durable consumers: what they are called, and that no two readers of this process share one.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::filter::Filter;
use crate::Durable;

/// Longest part of a consumer's name that comes from a directive or the configuration; the broker takes 255 bytes.
const NAME_PART_BYTES_MAX: usize = 80;

/// The names in use, and what tells this router from others.
#[derive(Debug)]
pub(super) struct Bookmarks {
    instance: Box<str>,
    taken: Mutex<HashSet<Box<str>>>,
}

/// A name that is ours until this is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    bookmarks: Arc<Bookmarks>,
    name: Box<str>,
}

impl Bookmarks {
    pub(super) fn new(instance: Option<Box<str>>) -> Self {
        Self { instance: instance.unwrap_or_else(host_name), taken: Mutex::default() }
    }

    /// The consumer's name for what is read; none: no durable consumer is wanted. Different subjects are read by
    /// different consumers, so their hash is part of it.
    pub(super) fn name(
        &self,
        durable: &Durable,
        stream: &str,
        filter: &Filter,
    ) -> Option<Box<str>> {
        let consumer = durable.consumer.as_deref()?;
        let parts = [consumer, &self.instance, stream];
        let subjects = filter.subjects().iter().map(|subject| &**subject);
        let hash = fnv(parts.into_iter().chain(subjects));
        let [consumer, instance] = [consumer, &self.instance].map(token);
        Some(format!("{consumer}-{instance}-{hash:016x}").into())
    }

    /// Takes a name, unless another reader has it.
    pub(super) fn claim(self: &Arc<Self>, name: &str) -> Option<Claim> {
        // Whatever panicked while it held the lock, a set of names is whole.
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let name: Box<str> = name.into();
        taken.insert(name.clone()).then(|| Claim { bookmarks: Arc::clone(self), name })
    }
}

impl Claim {
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut taken = self.bookmarks.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.remove(&self.name);
    }
}

/// As it may stand in a name: the broker takes no dots, spaces, wildcards and slashes.
fn token(text: &str) -> String {
    text.chars()
        .take(NAME_PART_BYTES_MAX)
        .map(|it| if it.is_ascii_alphanumeric() || matches!(it, '-' | '_') { it } else { '_' })
        .collect()
}

/// FNV-1a over the parts: the same in all versions of the router, unlike the hashes of the standard library.
fn fnv<'a>(parts: impl Iterator<Item = &'a str>) -> u64 {
    let bytes = parts.flat_map(|part| part.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// What the system calls this machine; in a container, the container.
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

    fn bookmarks(instance: &str) -> Arc<Bookmarks> {
        Arc::new(Bookmarks::new(Some(instance.into())))
    }

    fn name(bookmarks: &Bookmarks, consumer: &str, subject: &str) -> Box<str> {
        let durable = Durable { consumer: Some(consumer.into()), ..Durable::default() };
        let filter = Filter::new(vec![subject.into()]);
        bookmarks.name(&durable, "ORDERS", &filter).unwrap()
    }

    #[test]
    fn a_name_is_the_same_after_a_restart_and_another_for_other_routers_and_subjects() {
        let one = name(&bookmarks("eu.1"), "orders feed", "orders.>");
        assert_eq!(&*one, "orders_feed-eu_1-1bff4e3a72c852cf");
        for other in [
            name(&bookmarks("eu_1"), "orders feed", "orders.>"),
            name(&bookmarks("eu.1"), "orders feed", "orders.*"),
            name(&bookmarks("eu.1"), "orders.feed", "orders.>"),
        ] {
            assert_ne!(other, one);
        }
        let long = name(&bookmarks(&"i".repeat(300)), &"c".repeat(300), "orders.>");
        assert!(long.len() < 255, "{}", long.len());
    }

    #[test]
    fn a_name_has_one_reader_at_a_time() {
        let bookmarks = bookmarks("a");
        let claim = bookmarks.claim("x").unwrap();
        assert!(bookmarks.claim("x").is_none());
        assert!(bookmarks.claim("y").is_some());
        drop(claim);
        assert_eq!(bookmarks.claim("x").unwrap().name(), "x");
    }
}
