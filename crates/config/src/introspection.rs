//! Settings of introspection: which clients may query the schema, and which part of it they see.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::expression::Expression;
use super::findings::{Findings, KeyPlaces};
use super::format::OperationConditionText;

/// Introspection queries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Introspection {
    /// Allows introspection queries. `false` refuses them for all clients.
    #[schemars(example = false)]
    pub enabled: bool,

    /// The condition under which introspection is allowed; by default it always is. It may use `request`, `client`,
    /// `claims` and `operation`. Operations are refused with the code `OPERATION_BLOCKED` if it is false or cannot be
    /// evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null), with = "Option<OperationConditionText>", example = &"claims.?role.orValue('') == 'developer'")]
    pub when: Option<Expression>,

    /// Shows each client only the types and fields that it may use by `@authenticated`, `@requiresScopes` and
    /// `@policy` (`docs/field-authorization.md`).
    #[schemars(example = true)]
    pub filter: bool,
}

impl Default for Introspection {
    fn default() -> Self {
        Self { enabled: true, when: None, filter: false }
    }
}

impl Introspection {
    /// Introspection for all clients, or for none.
    pub fn switched(enabled: bool) -> Self {
        Self { enabled, ..Self::default() }
    }

    /// Warns about keys without effect.
    pub(super) fn check_switch(&self, places: &KeyPlaces, findings: &mut Findings) {
        if self.enabled {
            return;
        }
        let unused = [("when", self.when.is_some()), ("filter", self.filter)];
        for (key, _) in unused.into_iter().filter(|(_, is_set)| *is_set) {
            let switch = ("introspection.enabled", "introspection is turned off");
            findings.warn_turned_off(&format!("introspection.{key}"), switch, places);
        }
    }
}

/// The forms that `introspection` may have, for the schema: a switch, or keys.
pub(super) struct IntrospectionForms;

impl JsonSchema for IntrospectionForms {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Introspection".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let keys = generator.subschema_for::<Introspection>();
        json_schema!({"anyOf": [{"type": "boolean"}, keys]})
    }
}

/// Serialization for `#[serde(with = …)]` in both forms.
pub(super) mod forms {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Introspection;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Forms {
        Switch(bool),
        Keys(Introspection),
    }

    pub(crate) fn serialize<S: Serializer>(
        introspection: &Introspection,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let enabled = introspection.enabled;
        match *introspection == Introspection::switched(enabled) {
            true => serializer.serialize_bool(enabled),
            false => introspection.serialize(serializer),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Introspection, D::Error> {
        Ok(match Forms::deserialize(deserializer)? {
            Forms::Switch(enabled) => Introspection::switched(enabled),
            Forms::Keys(keys) => keys,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{Config, Expression, Introspection, Overrides, parse};

    fn parsed(text: &str) -> Introspection {
        let none = |_: &str| None;
        let loaded = parse(text, "starling.yaml", Path::new(""), &Overrides::default(), &none);
        loaded.unwrap_or_else(|error| panic!("{text}: {error:?}")).config.introspection
    }

    #[test]
    fn a_switch_and_keys_say_the_same() {
        assert_eq!(parsed(""), Introspection::default());
        assert_eq!(parsed("introspection: true"), Introspection::switched(true));
        assert_eq!(parsed("introspection: false"), Introspection::switched(false));
        assert_eq!(parsed("introspection: {enabled: false}"), Introspection::switched(false));
        let when = Some(Expression::new("claims.?role.orValue('') == 'developer'"));
        assert_eq!(
            parsed(
                "introspection: {when: \"claims.?role.orValue('') == 'developer'\", filter: true}"
            ),
            Introspection { enabled: true, when, filter: true }
        );
    }

    #[test]
    fn a_configuration_is_written_in_the_form_that_says_all() {
        let written = |introspection: Introspection| {
            let config = Config { introspection, ..Config::default() };
            let json = serde_json::to_value(&config).expect("serializable");
            json["introspection"].to_string()
        };
        assert_eq!(written(Introspection::switched(false)), "false");
        let filtered = Introspection { filter: true, ..Introspection::default() };
        assert_eq!(written(filtered), r#"{"enabled":true,"filter":true}"#);
    }
}
