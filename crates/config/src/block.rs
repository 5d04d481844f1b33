//! Conditions under which operations are refused.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::expression::Expression;
use super::format::OperationConditionText;

/// The operations that are refused with the code `OPERATION_BLOCKED`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Block {
    /// Refuses mutations: `true`, or under a condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null), with = "Option<OperationConditionText>", example = &"request.client_address != '192.0.2.7'")]
    pub mutations: Option<Expression>,

    /// Refuses subscriptions: `true`, or under a condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null), with = "Option<OperationConditionText>", example = &"!has(claims.sub)")]
    pub subscriptions: Option<Expression>,

    /// Refuses operations with introspection fields (`__schema`, `__type`): `true`, or under a condition.
    /// The section `introspection` has the condition under which it is allowed; both apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null), with = "Option<OperationConditionText>", example = &"client.name != 'studio'")]
    pub introspection: Option<Expression>,

    /// Refuses operations of applications that state no name (`client_info`): `true`, or under a condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null), with = "Option<OperationConditionText>", example = true)]
    pub unknown_clients: Option<Expression>,

    /// Further conditions. An operation is refused if any of them is true.
    #[schemars(length(max = 100))]
    pub rules: Vec<BlockRule>,
}

/// A condition under which operations are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockRule {
    /// The condition. It may use `request`, `client`, `claims` and `operation`. If it cannot be evaluated, for example
    /// because a claim is absent, the operation is refused.
    #[schemars(with = "OperationConditionText", example = &"client.name == 'web' && client.version.startsWith('1.')")]
    pub when: Expression,

    /// The message of the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null), length(max = 500), example = &"this version is no longer supported: please update")]
    pub message: Option<String>,
}

impl Block {
    /// Iterates over the conditions, each with its path in the file.
    pub fn conditions(&self) -> impl Iterator<Item = (String, &Expression)> {
        let named = [
            ("mutations", &self.mutations),
            ("subscriptions", &self.subscriptions),
            ("introspection", &self.introspection),
            ("unknown_clients", &self.unknown_clients),
        ];
        let named = named.into_iter();
        let named = named.filter_map(|(key, it)| Some((format!("block.{key}"), it.as_ref()?)));
        let rules = self.rules.iter().enumerate();
        named.chain(rules.map(|(index, rule)| (format!("block.rules[{index}].when"), &rule.when)))
    }
}
