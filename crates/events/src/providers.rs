//! All configured providers, found by the names that directives use: `kind/id`, or a bare id that only one kind has. A
//! broker takes precedence over a memory provider: `memory/default` always exists, so a bare `default` means the broker
//! of that name if one is configured.

use std::sync::Arc;

use crate::Provider;

/// The configured providers. They live as long as the configuration, across generations of the graph.
#[derive(Clone, Default)]
pub struct Providers {
    /// The providers, sorted by name.
    list: Arc<[Arc<dyn Provider>]>,
}

/// The kind of providers that keep events in this process.
const MEMORY: &str = "memory";

/// An invalid list of providers.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProvidersError {
    /// Two providers have the same name.
    #[error("two providers are named {name}")]
    Duplicate {
        /// The name of the provider, `kind/id`.
        name: Box<str>,
    },
}

/// The reason why a name does not identify a provider.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ResolveError {
    /// No provider has that name.
    #[error("no provider {wanted:?} is configured; {}", configured(.known))]
    Unknown {
        /// The name as written.
        wanted: Box<str>,
        /// The names of providers that could have been meant.
        known: Vec<Box<str>>,
    },
    /// Several kinds have a provider with that id.
    #[error("provider id {wanted:?} is ambiguous: write one of {}", .candidates.join(", "))]
    Ambiguous {
        /// The id as written.
        wanted: Box<str>,
        /// The names to choose from.
        candidates: Vec<Box<str>>,
    },
}

fn configured(known: &[Box<str>]) -> String {
    if known.is_empty() {
        "there are none of this kind".into()
    } else {
        format!("configured: {}", known.join(", "))
    }
}

impl Providers {
    /// Makes the list of providers. Fails if two have the same name.
    pub fn new(list: impl IntoIterator<Item = Arc<dyn Provider>>) -> Result<Self, ProvidersError> {
        let mut list: Vec<_> = list.into_iter().collect();
        list.sort_by(|a, b| a.name().cmp(b.name()));
        match list.windows(2).find(|pair| pair[0].name() == pair[1].name()) {
            Some(pair) => Err(ProvidersError::Duplicate { name: pair[0].name().into() }),
            None => Ok(Self { list: list.into() }),
        }
    }

    /// Iterates over the providers in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Provider>> {
        self.list.iter()
    }

    /// Returns the provider that `id` identifies. `kind/id` is exact. A bare id must be unique among brokers; it
    /// identifies a memory provider only if no broker has it.
    pub fn resolve(&self, id: &str) -> Result<&Arc<dyn Provider>, ResolveError> {
        if id.contains('/') {
            return self.named(id).ok_or_else(|| self.unknown(id, |_| true));
        }
        let mut candidates: Vec<_> =
            self.iter().filter(|provider| split(provider.name()).1 == id).collect();
        if candidates.len() > 1 {
            candidates.retain(|provider| split(provider.name()).0 != MEMORY);
        }
        match candidates.as_slice() {
            [one] => Ok(one),
            [] => Err(self.unknown(id, |_| true)),
            several => Err(ResolveError::Ambiguous {
                wanted: id.into(),
                candidates: several.iter().map(|provider| provider.name().into()).collect(),
            }),
        }
    }

    /// Returns the provider of that kind that `id` identifies: a bare id, or `kind/id` with this kind.
    pub fn resolve_kind(&self, kind: &str, id: &str) -> Result<&Arc<dyn Provider>, ResolveError> {
        let name = if id.contains('/') { id.to_owned() } else { format!("{kind}/{id}") };
        self.named(&name)
            .filter(|provider| split(provider.name()).0 == kind)
            .ok_or_else(|| self.unknown(id, |provider_kind| provider_kind == kind))
    }

    fn named(&self, name: &str) -> Option<&Arc<dyn Provider>> {
        self.iter().find(|provider| provider.name() == name)
    }

    fn unknown(&self, wanted: &str, kinds: impl Fn(&str) -> bool) -> ResolveError {
        let known = self
            .iter()
            .map(|provider| provider.name())
            .filter(|name| kinds(split(name).0))
            .map(Into::into)
            .collect();
        ResolveError::Unknown { wanted: wanted.into(), known }
    }
}

impl std::fmt::Debug for Providers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(|provider| provider.name())).finish()
    }
}

fn split(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or(("", name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Memory, MemorySettings};

    fn providers(names: &[&str]) -> Providers {
        let list = names.iter().map(|name| {
            Arc::new(Memory::with_name(name, MemorySettings::default())) as Arc<dyn Provider>
        });
        Providers::new(list).unwrap()
    }

    fn resolved(result: Result<&Arc<dyn Provider>, ResolveError>) -> String {
        result.map_or_else(|error| error.to_string(), |provider| provider.name().to_owned())
    }

    #[test]
    fn a_bare_id_means_the_only_provider_that_has_it() {
        let all = providers(&["memory/default", "nats/orders"]);
        assert_eq!(resolved(all.resolve("orders")), "nats/orders");
        assert_eq!(resolved(all.resolve("memory/default")), "memory/default");
        assert_eq!(
            resolved(all.resolve("order")),
            r#"no provider "order" is configured; configured: memory/default, nats/orders"#
        );
    }

    #[test]
    fn a_bare_id_of_two_kinds_is_ambiguous_and_the_error_lists_them() {
        let all = providers(&["memory/default", "nats/default", "redis/default"]);
        assert_eq!(
            resolved(all.resolve("default")),
            r#"provider id "default" is ambiguous: write one of nats/default, redis/default"#
        );
    }

    #[test]
    fn a_bare_id_means_the_broker_where_a_memory_provider_has_it_too() {
        let all = providers(&["memory/default", "nats/default"]);
        assert_eq!(resolved(all.resolve("default")), "nats/default");
        assert_eq!(resolved(all.resolve("memory/default")), "memory/default");
        assert_eq!(resolved(providers(&["memory/default"]).resolve("default")), "memory/default");
    }

    #[test]
    fn a_directive_of_one_kind_sees_only_that_kind() {
        let all = providers(&["memory/default", "nats/default", "nats/orders"]);
        assert_eq!(resolved(all.resolve_kind("nats", "default")), "nats/default");
        assert_eq!(resolved(all.resolve_kind("nats", "nats/orders")), "nats/orders");
        assert_eq!(
            resolved(all.resolve_kind("nats", "memory/default")),
            r#"no provider "memory/default" is configured; configured: nats/default, nats/orders"#
        );
        assert_eq!(
            resolved(all.resolve_kind("kafka", "default")),
            r#"no provider "default" is configured; there are none of this kind"#
        );
    }

    #[test]
    fn two_providers_of_one_name_are_refused() {
        let twice = ["nats/a", "nats/a"].map(|name| {
            Arc::new(Memory::with_name(name, MemorySettings::default())) as Arc<dyn Provider>
        });
        assert_eq!(
            Providers::new(twice).unwrap_err().to_string(),
            "two providers are named nats/a"
        );
    }
}
