//! `Vary`: the request headers on which a response depends, of subgraphs and for clients.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue, VARY};

/// The maximum number of names that are kept of `Vary` fields; more count as `*`.
pub const VARY_NAMES_MAX: usize = 32;

/// The names of request headers on which a response depends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Vary {
    /// `Vary: *`: no stored response may be used. Also the meaning of a field that cannot be read.
    Any,
    /// These headers, sorted by name; none if the response does not depend on headers.
    Names(Vec<HeaderName>),
}

impl Default for Vary {
    fn default() -> Self {
        Self::Names(Vec::new())
    }
}

impl Vary {
    /// Reads all `Vary` fields of a response.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let mut vary = Self::default();
        headers.get_all(VARY).iter().for_each(|value| vary.read_field(value.as_bytes()));
        vary
    }

    /// Adds the names of one field.
    pub fn read_field(&mut self, field: &[u8]) {
        for name in field.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if name.is_empty() {
                continue;
            }
            match HeaderName::from_bytes(name) {
                Ok(name) if name != "*" => self.insert(name),
                _ => *self = Self::Any,
            }
        }
    }

    /// Adds one name.
    pub fn insert(&mut self, name: HeaderName) {
        let Self::Names(names) = self else { return };
        if let Err(place) = names.binary_search_by(|known| known.as_str().cmp(name.as_str())) {
            if names.len() >= VARY_NAMES_MAX {
                *self = Self::Any;
            } else {
                names.insert(place, name);
            }
        }
    }

    /// Adds all names of `other`: the `Vary` of a response that is made of both.
    pub fn merge(&mut self, other: &Self) {
        match other {
            Self::Any => *self = Self::Any,
            Self::Names(names) => names.iter().for_each(|name| self.insert(name.clone())),
        }
    }

    /// Returns the value of the field. `None` if the response depends on no header.
    pub fn header_value(&self) -> Option<HeaderValue> {
        match self {
            Self::Any => Some(HeaderValue::from_static("*")),
            Self::Names(names) if names.is_empty() => None,
            Self::Names(names) => {
                let names: Vec<&str> = names.iter().map(HeaderName::as_str).collect();
                // Names of headers are valid values.
                HeaderValue::try_from(names.join(", ")).ok()
            }
        }
    }
}

/// The forwarded headers that the configuration says a subgraph ignores.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum IgnoredHeaders {
    /// None: every forwarded header is part of the key.
    #[default]
    None,
    /// All of them.
    All,
    /// These.
    Named(Vec<HeaderName>),
}

/// The forwarded headers that are part of the keys of one subgraph: those that it does not ignore, and those that its
/// responses have named in `Vary`.
///
/// The subgraph's `Vary` goes before the configuration. Its names are only ever added, so a key that was made before a
/// name was known never finds an entry that depends on that header.
#[derive(Debug)]
pub struct KeyHeaders {
    ignored: IgnoredHeaders,
    varied: ArcSwap<Vary>,
}

impl KeyHeaders {
    /// Creates the headers of a subgraph that has not responded yet.
    pub fn new(ignored: IgnoredHeaders) -> Self {
        Self { ignored, varied: ArcSwap::new(Arc::new(Vary::default())) }
    }

    /// Adds the `Vary` of a response. If this returns true, the keys of the request that it belongs to must be made
    /// again before the response is stored.
    pub fn learn(&self, vary: &Vary) -> bool {
        let is_known = |known: &Vary| match vary {
            Vary::Names(names) => names.iter().all(|name| self.has_name(known, name)),
            // The response is not stored, so it changes no key.
            Vary::Any => true,
        };
        if is_known(&self.varied.load()) {
            return false;
        }
        self.varied.rcu(|known| {
            let mut known = Vary::clone(known);
            known.merge(vary);
            known
        });
        true
    }

    /// True if a forwarded header is part of the key.
    pub fn is_part_of_key(&self, name: &HeaderName) -> bool {
        self.has_name(&self.varied.load(), name)
    }

    /// Returns those of `headers` that are part of the key, as they are now.
    pub fn select<'a>(
        &self,
        headers: &'a [(HeaderName, HeaderValue)],
    ) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a, '_> {
        let varied = self.varied.load_full();
        headers
            .iter()
            .filter(move |(name, _)| self.has_name(&varied, name))
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
    }

    fn has_name(&self, varied: &Vary, name: &HeaderName) -> bool {
        let is_ignored = match &self.ignored {
            IgnoredHeaders::None => false,
            IgnoredHeaders::All => true,
            IgnoredHeaders::Named(names) => names.contains(name),
        };
        !is_ignored
            || match varied {
                Vary::Any => true,
                Vary::Names(names) => names.contains(name),
            }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vary(fields: &[&'static str]) -> Vary {
        let fields = fields.iter().map(|field| (VARY, HeaderValue::from_static(field)));
        let mut headers = HeaderMap::new();
        fields.for_each(|(name, value)| {
            headers.append(name, value);
        });
        Vary::from_headers(&headers)
    }

    fn printed(vary: &Vary) -> Option<String> {
        vary.header_value().map(|value| value.to_str().expect("text").to_owned())
    }

    #[test]
    fn names_of_all_fields_are_merged_without_repetition() {
        let both = vary(&["Accept-Language, x-tenant", "accept-language,,"]);
        assert_eq!(printed(&both).as_deref(), Some("accept-language, x-tenant"));
        assert_eq!(printed(&vary(&[])), None);
        let mut merged = both;
        merged.merge(&vary(&["accept"]));
        assert_eq!(printed(&merged).as_deref(), Some("accept, accept-language, x-tenant"));
        merged.merge(&vary(&["accept, *"]));
        assert_eq!(printed(&merged).as_deref(), Some("*"));
    }

    #[test]
    fn a_field_that_cannot_be_read_counts_as_any() {
        assert_eq!(vary(&["accept language"]), Vary::Any);
        let many: String = (0..=VARY_NAMES_MAX).map(|number| format!("h{number},")).collect();
        let mut too_many = Vary::default();
        too_many.read_field(many.as_bytes());
        assert_eq!(too_many, Vary::Any);
    }

    fn header(name: &'static str) -> (HeaderName, HeaderValue) {
        (HeaderName::from_static(name), HeaderValue::from_static("v"))
    }

    #[test]
    fn vary_goes_before_headers_that_the_configuration_ignores() {
        let forwarded = [header("accept-language"), header("x-trace")];
        let selected = |keys: &KeyHeaders| {
            keys.select(&forwarded).map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
        };
        let all = KeyHeaders::new(IgnoredHeaders::None);
        assert_eq!(selected(&all), ["accept-language", "x-trace"]);
        assert!(!all.learn(&vary(&["accept-language"])), "it is part of the key already");

        let keys = KeyHeaders::new(IgnoredHeaders::All);
        assert_eq!(selected(&keys), [""; 0]);
        assert!(keys.learn(&vary(&["Accept-Language, accept-encoding"])));
        assert!(!keys.learn(&vary(&["accept-language"])));
        assert_eq!(selected(&keys), ["accept-language"]);

        let ignored = IgnoredHeaders::Named(vec![HeaderName::from_static("x-trace")]);
        assert_eq!(selected(&KeyHeaders::new(ignored)), ["accept-language"]);
    }

    proptest! {
        #[test]
        fn reading_never_panics_and_is_bounded(fields in proptest::collection::vec(any::<Vec<u8>>(), 0..4)) {
            let mut vary = Vary::default();
            fields.iter().for_each(|field| vary.read_field(field));
            if let Vary::Names(names) = &vary {
                prop_assert!(names.len() <= VARY_NAMES_MAX);
                prop_assert!(names.is_sorted_by(|left, right| left.as_str() < right.as_str()));
            }
            let _ = vary.header_value();
        }
    }
}
