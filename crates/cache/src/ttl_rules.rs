//! Times to live of the configuration: by subgraph, type and field.

use std::collections::HashMap;
use std::time::Duration;

/// The times of the whole configuration. The most specific one counts: field, type, subgraph, default.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TtlRules {
    /// The time for all subgraphs; `None` if nothing is cached unless something else says so.
    pub default: Option<Duration>,
    /// The times of single subgraphs.
    pub subgraphs: HashMap<Box<str>, SubgraphTtl>,
}

/// The times of one subgraph.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SubgraphTtl {
    /// The time for everything of the subgraph.
    pub default: Option<Duration>,
    /// The times of types.
    pub types: HashMap<Box<str>, TypeTtl>,
}

/// The times of one type in one subgraph.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TypeTtl {
    /// The time of objects of the type.
    pub default: Option<Duration>,
    /// The times of fields of the type.
    pub fields: HashMap<Box<str>, Duration>,
}

impl TtlRules {
    /// Returns the time of objects of a type.
    pub fn of_type(&self, subgraph: &str, type_name: &str) -> Option<Duration> {
        let Some(rules) = self.subgraphs.get(subgraph) else { return self.default };
        let of_type = rules.types.get(type_name).and_then(|it| it.default);
        of_type.or(rules.default).or(self.default)
    }

    /// Returns the time of a field by the type that it is a field of. `value_type` is the type of its value if that is
    /// an object, an interface or a union: its time counts if the field has none. The time of the subgraph counts for
    /// such fields and for root fields only, because other fields have the time of their object.
    pub fn of_field(
        &self,
        subgraph: &str,
        parent_type: &str,
        field: &str,
        value_type: Option<&str>,
        is_root: bool,
    ) -> Option<Duration> {
        let parent = self.subgraphs.get(subgraph).and_then(|it| it.types.get(parent_type));
        let of_field = parent.and_then(|it| it.fields.get(field).copied());
        of_field.or_else(|| match value_type {
            Some(value_type) => self.of_type(subgraph, value_type),
            None if is_root => self.of_type(subgraph, parent_type),
            None => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> TtlRules {
        let seconds = Duration::from_secs;
        let price = TypeTtl {
            default: Some(seconds(5)),
            fields: HashMap::from([("history".into(), seconds(600))]),
        };
        let prices = SubgraphTtl {
            default: Some(seconds(60)),
            types: HashMap::from([("Price".into(), price)]),
        };
        TtlRules {
            default: Some(seconds(1)),
            subgraphs: HashMap::from([
                ("prices".into(), prices),
                ("stock".into(), SubgraphTtl::default()),
            ]),
        }
    }

    #[test]
    fn the_most_specific_time_counts() {
        let of_type = |subgraph, name| rules().of_type(subgraph, name).map(|it| it.as_secs());
        assert_eq!(of_type("prices", "Price"), Some(5));
        assert_eq!(of_type("prices", "Currency"), Some(60));
        assert_eq!(of_type("stock", "Price"), Some(1));
        assert_eq!(of_type("users", "User"), Some(1));
        assert_eq!(TtlRules::default().of_type("users", "User"), None);
    }

    #[test]
    fn a_field_has_its_own_time_or_that_of_its_value() {
        let of_field = |parent, field, value, is_root| {
            rules().of_field("prices", parent, field, value, is_root).map(|it| it.as_secs())
        };
        assert_eq!(of_field("Price", "history", Some("Currency"), false), Some(600));
        assert_eq!(of_field("Product", "price", Some("Price"), false), Some(5));
        assert_eq!(of_field("Price", "amount", None, false), None);
        assert_eq!(of_field("Query", "count", None, true), Some(60));
    }
}
