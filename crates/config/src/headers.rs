//! Rules for headers: those that reach the subgraphs, and those of subgraphs that reach clients.

use std::collections::BTreeMap;

use execute::ClaimPath;
use http::{HeaderName, HeaderValue};
use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::expression::Expression;
use super::format::{
    HeaderDefaultText, HeaderExpressionText, HeaderNameText, HeaderPatternText, HeaderValueText,
    MemberPathText, ResponseExpressionText,
};
use super::pattern::{self, pattern_traits};
use super::secret::HIDDEN;

/// Rules for headers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Headers {
    /// Rules for every subgraph.
    pub all: HeaderRules,

    /// Further rules for single subgraphs, by the name they have in the supergraph. They apply after those of
    /// `headers.all`.
    pub subgraphs: BTreeMap<String, HeaderRules>,
}

impl Headers {
    /// Returns the rules for requests to one subgraph, in the order in which they apply.
    pub fn request_rules<'a>(
        &'a self,
        subgraph: &str,
    ) -> impl Iterator<Item = &'a HeaderRule> + use<'a> {
        let special = self.subgraphs.get(subgraph).map_or(&[][..], |rules| &rules.request);
        self.all.request.iter().chain(special)
    }

    /// Returns the rules for responses of one subgraph, in the order in which they apply.
    pub fn response_rules<'a>(
        &'a self,
        subgraph: &str,
    ) -> impl Iterator<Item = &'a HeaderRule> + use<'a> {
        let special = self.subgraphs.get(subgraph).map_or(&[][..], |rules| &rules.response);
        self.all.response.iter().chain(special)
    }
}

/// Rules for the headers of requests and responses.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HeaderRules {
    /// Rules for the request to the subgraph, applied in order, each to the result of the previous ones.
    #[schemars(with = "Vec<RequestRuleKeys>")]
    #[schemars(example = [serde_json::json!({"propagate": {"named": "authorization"}})])]
    pub request: Vec<HeaderRule>,

    /// Rules for the headers of the subgraph's response that reach the client, applied in order to each response. They
    /// apply to responses to queries and mutations over HTTP; streams and WebSockets have sent their headers already.
    /// If the rules of a graph let cookies through, the requests that may get them share no work.
    #[schemars(with = "Vec<ResponseRuleKeys>")]
    #[schemars(example = [serde_json::json!({"propagate": {"named": "x-request-cost", "algorithm": "append"}})])]
    pub response: Vec<HeaderRule>,
}

/// One rule: an action on a header.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeaderRule {
    /// Copies headers of the message.
    Propagate(Propagation),
    /// Sets a header, and replaces any existing value.
    Insert(HeaderInsertion),
    /// Removes headers that earlier rules added.
    Remove(HeaderSelection),
    /// Sets a header to a claim of the client's token, and never to another value.
    Claim(ClaimForwarding),
    /// Sets a header to the value of an expression, and never to another value.
    Set(ComputedHeader),
}

/// A header with a computed value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComputedHeader {
    /// The name of the header.
    #[serde(with = "header_name")]
    pub name: HeaderName,
    /// The expression of its value. For requests it has the scope [`expressions::Scope::COSTED_OPERATION`], for
    /// responses [`expressions::Scope::RESPONSE`].
    pub expression: Expression,
}

/// A claim that subgraphs get as a header.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClaimForwarding {
    /// The path of the claim.
    #[serde(rename = "path", with = "claim_path")]
    pub claim: ClaimPath,
    /// The name of the header.
    #[serde(with = "header_name")]
    pub name: HeaderName,
    /// The value if the token has no such claim.
    #[serde(default, with = "optional_header_value", skip_serializing_if = "Option::is_none")]
    pub default: Option<HeaderValue>,
}

mod claim_path {
    use super::{ClaimPath, Deserialize, Deserializer, Error, Serializer};

    pub(super) fn serialize<S: Serializer>(
        path: &ClaimPath,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(path)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<ClaimPath, D::Error> {
        let text = String::deserialize(deserializer)?;
        ClaimPath::parse(&text).ok_or_else(|| D::Error::custom("it has an empty name"))
    }
}

/// The headers to copy, and how to copy them. Exactly one of `named` and `matching` is set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Propagation {
    /// The header with this name.
    #[serde(with = "optional_header_name", skip_serializing_if = "Option::is_none")]
    pub named: Option<HeaderName>,
    /// The headers with a name that matches the pattern.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matching: Option<HeaderPattern>,
    /// The new name of the header.
    #[serde(with = "optional_header_name", skip_serializing_if = "Option::is_none")]
    pub rename: Option<HeaderName>,
    /// The value if the message has no such header.
    #[serde(with = "optional_header_value", skip_serializing_if = "Option::is_none")]
    pub default: Option<HeaderValue>,
    /// The way to merge the header of several responses. Not used for requests.
    #[serde(rename = "algorithm")]
    pub merge: Merge,
}

impl Propagation {
    /// True if this rule applies to a header of this name.
    pub fn selects(&self, name: &HeaderName) -> bool {
        self.named.as_ref() == Some(name)
            || self.matching.as_ref().is_some_and(|it| it.matches(name))
    }
}

/// The way to merge a header that several subgraphs send. The order is that of the plan, not that in which the
/// responses arrive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Merge {
    /// Takes the first value.
    First,
    /// Takes the last value.
    #[default]
    Last,
    /// Sends all values to the client.
    Append,
}

/// The headers that a rule applies to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeaderSelection {
    /// The header with this name.
    #[serde(with = "header_name")]
    Named(HeaderName),
    /// The headers with a name that matches the pattern.
    Matching(HeaderPattern),
}

impl HeaderSelection {
    /// True if this rule applies to a header of this name.
    pub fn selects(&self, name: &HeaderName) -> bool {
        match self {
            Self::Named(named) => named == name,
            Self::Matching(pattern) => pattern.matches(name),
        }
    }
}

/// A header to set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderInsertion {
    /// The name of the header.
    #[serde(with = "header_name")]
    pub name: HeaderName,
    /// The value of the header. It is marked as sensitive, because it may be a key, so logs hide it.
    #[serde(with = "header_value")]
    pub value: HeaderValue,
}

/// A regular expression for header names, case-insensitive.
#[derive(Clone)]
pub struct HeaderPattern(Regex);

impl HeaderPattern {
    /// Compiles a pattern in the syntax of the `regex` crate: matching takes linear time.
    ///
    /// # Errors
    /// Describes in one line what is wrong with the pattern.
    pub fn new(pattern: &str) -> Result<Self, String> {
        pattern::compile(RegexBuilder::new(pattern).case_insensitive(true)).map(Self)
    }

    fn text(&self) -> &str {
        self.0.as_str()
    }

    /// True if the pattern matches the name. Without `^` and `$` it may match a part of the name.
    pub fn matches(&self, name: &HeaderName) -> bool {
        self.0.is_match(name.as_str())
    }
}

pattern_traits!(HeaderPattern);

pub(super) mod header_name {
    use super::{Deserialize, Deserializer, Error, HeaderName, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        name: &HeaderName,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(name.as_str())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<HeaderName, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

pub(super) mod header_names {
    use super::{Deserialize, Deserializer, Error, HeaderName, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        names: &[HeaderName],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(names.iter().map(HeaderName::as_str))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<HeaderName>, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?.into_iter();
        names.map(|name| name.parse().map_err(D::Error::custom)).collect()
    }
}

mod header_value {
    use super::{Deserialize, Deserializer, Error, HIDDEN, HeaderValue, Serializer};

    pub(super) fn serialize<S: Serializer>(
        _: &HeaderValue,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<HeaderValue, D::Error> {
        let mut value =
            HeaderValue::try_from(String::deserialize(deserializer)?).map_err(D::Error::custom)?;
        value.set_sensitive(true);
        Ok(value)
    }
}

mod optional_header_name {
    use super::{Deserialize, Deserializer, Error, HeaderName, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        name: &Option<HeaderName>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        name.as_ref().map(HeaderName::as_str).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<HeaderName>, D::Error> {
        let name = Option::<String>::deserialize(deserializer)?;
        name.map(|name| name.parse().map_err(D::Error::custom)).transpose()
    }
}

mod optional_header_value {
    use super::{
        Deserialize, Deserializer, HIDDEN, HeaderValue, Serialize, Serializer, header_value,
    };

    pub(super) fn serialize<S: Serializer>(
        value: &Option<HeaderValue>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().map(|_| HIDDEN).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<HeaderValue>, D::Error> {
        #[derive(Deserialize)]
        struct Value(#[serde(with = "header_value")] HeaderValue);
        Ok(Option::<Value>::deserialize(deserializer)?.map(|it| it.0))
    }
}

/// One rule for requests: exactly one of these keys.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("minProperties" = 1, "maxProperties" = 1))]
#[expect(dead_code, reason = "describes the shape for the schema; never built")]
pub(super) struct RequestRuleKeys {
    /// Copies headers of the client's request. Headers that belong to a single connection, such as `connection` and
    /// `content-length`, are never copied. If the client sends the header, the copy replaces the result of earlier
    /// rules for it.
    propagate: Option<RequestPropagationKeys>,
    /// Sets a header, and replaces any existing value.
    insert: Option<HeaderInsertionKeys>,
    /// Removes headers that earlier rules added.
    remove: Option<HeaderSelectionKeys>,
    /// Sets a header to a claim of the client's token: strings unchanged, everything else as JSON. A header of this
    /// name in the client's request never passes, even if there is no such claim. These rules come after all others.
    /// Clients with different values of the claim share no work.
    claim: Option<ClaimForwardingKeys>,
    /// Sets a header to the value of an expression (`docs/expressions.md`). A header of this name in the client's
    /// request never passes, even if the value is null or the evaluation fails, which leaves the header out. These
    /// rules come after all others. Clients with different values share no work.
    set: Option<ComputedHeaderKeys>,
}

/// A header with a computed value.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the shape for the schema; never built")]
struct ComputedHeaderKeys {
    /// The name of the header.
    #[schemars(with = "HeaderNameText", example = &"x-tenant")]
    name: String,
    /// The value. It may use `request`, `client`, `claims` and `operation`; `operation.cost` needs `cost.mode`.
    #[schemars(with = "HeaderExpressionText", example = &"claims.?tenant.orValue('none')")]
    expression: String,
}

/// A header with a value that is computed from a response.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the shape for the schema; never built")]
struct ComputedResponseHeaderKeys {
    /// The name of the header.
    #[schemars(with = "HeaderNameText", example = &"x-served-by")]
    name: String,
    /// The value. It may use `subgraph` and `response`.
    #[schemars(with = "ResponseExpressionText", example = &"subgraph.name")]
    expression: String,
}

/// A claim that subgraphs get as a header.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the shape for the schema; never built")]
struct ClaimForwardingKeys {
    /// The claim: a name, or several with points between them.
    #[schemars(with = "MemberPathText", example = &"sub")]
    path: String,
    /// The name of the header.
    #[schemars(with = "HeaderNameText", example = &"x-user")]
    name: String,
    /// The value if there is no such claim, and for clients without a token. By default, the subgraph then gets no such
    /// header.
    #[schemars(with = "Option<HeaderDefaultText>", example = &"anonymous")]
    #[serde(default)]
    default: Option<String>,
}

/// The headers to copy: `named` or `matching`.
#[derive(Default, JsonSchema)]
#[schemars(default, deny_unknown_fields, extend("x-one-of" = ["named", "matching"]))]
#[schemars(extend("dependentRequired" = {"rename": ["named"], "default": ["named"]}))]
struct RequestPropagationKeys {
    /// The name of the header, case-insensitive.
    #[schemars(with = "Option<HeaderNameText>", example = &"authorization")]
    named: Option<String>,
    /// A regular expression for names, case-insensitive. It may match anywhere in a name: begin it with `^` and end it
    /// with `$` to match the whole name.
    #[schemars(with = "Option<HeaderPatternText>", example = &"^x-tenant-")]
    matching: Option<String>,
    /// The name under which the subgraph gets the header. Only with `named`.
    #[schemars(with = "Option<HeaderNameText>", example = &"x-user")]
    rename: Option<String>,
    /// The value that the subgraph gets if the client sends no such header. Only with `named`.
    #[schemars(with = "Option<HeaderDefaultText>", example = &"anonymous")]
    default: Option<String>,
}

/// One rule for responses: exactly one of these keys.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("minProperties" = 1, "maxProperties" = 1))]
#[expect(dead_code, reason = "describes the shape for the schema; never built")]
pub(super) struct ResponseRuleKeys {
    /// Copies headers of the subgraph's response. Headers that belong to a single connection, that describe a body, or
    /// that the router writes itself (`access-control-*`, `date`) are never copied.
    propagate: Option<ResponsePropagationKeys>,
    /// Sets a header, and replaces any existing value.
    insert: Option<HeaderInsertionKeys>,
    /// Removes headers that earlier rules took from this response.
    remove: Option<HeaderSelectionKeys>,
    /// Sets a header to the value of an expression (`docs/expressions.md`). If the value is null or the evaluation
    /// fails, the header is left out. These rules come after all others. Of several subgraphs, the last one in the
    /// order of the plan sets the value.
    set: Option<ComputedResponseHeaderKeys>,
}

/// The headers to copy: `named` or `matching`.
#[derive(Default, JsonSchema)]
#[schemars(default, deny_unknown_fields, extend("x-one-of" = ["named", "matching"]))]
#[schemars(extend("dependentRequired" = {"rename": ["named"], "default": ["named"]}))]
struct ResponsePropagationKeys {
    /// The name of the header, case-insensitive.
    #[schemars(with = "Option<HeaderNameText>", example = &"x-request-cost")]
    named: Option<String>,
    /// A regular expression for names, case-insensitive. It may match anywhere in a name: begin it with `^` and end it
    /// with `$` to match the whole name. It never copies headers that control caches, cookies or the interpretation of
    /// the body (`cache-control`, `set-cookie`, `vary`, `content-*` and others): copy those by `named`.
    #[schemars(with = "Option<HeaderPatternText>", example = &"^x-debug-")]
    matching: Option<String>,
    /// The name under which the client gets the header. Only with `named`.
    #[schemars(with = "Option<HeaderNameText>", example = &"x-reviews-cost")]
    rename: Option<String>,
    /// The value that the client gets if the response has no such header. Only with `named`.
    #[schemars(with = "Option<HeaderDefaultText>", example = &"0")]
    default: Option<String>,
    /// The way to merge the header if several subgraphs send it, in the order of the plan: take the `first` or the
    /// `last` value, or `append` all. `set-cookie` is always appended.
    #[schemars(example = &"append")]
    algorithm: Merge,
}

/// The headers that a rule applies to: exactly one of these keys.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("minProperties" = 1, "maxProperties" = 1))]
#[expect(dead_code, reason = "describes the shape for the schema; never built")]
struct HeaderSelectionKeys {
    /// The name of the header, case-insensitive.
    #[schemars(with = "Option<HeaderNameText>", example = &"authorization")]
    named: Option<String>,
    /// A regular expression for names, case-insensitive. It may match anywhere in a name: begin it with `^` and end it
    /// with `$` to match the whole name.
    #[schemars(with = "Option<HeaderPatternText>", example = &"^x-tenant-")]
    matching: Option<String>,
}

/// A header to set.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the shape for the schema; never built")]
pub(super) struct HeaderInsertionKeys {
    /// The name of the header.
    #[schemars(with = "HeaderNameText", example = &"x-api-key")]
    name: String,
    /// The value of the header. Messages and logs never show it.
    #[schemars(with = "HeaderValueText", example = &"${REVIEWS_API_KEY}")]
    value: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_finds_names_in_any_letter_case() {
        let pattern = HeaderSelection::Matching(HeaderPattern::new("^X-Tenant-").unwrap());
        assert!(pattern.selects(&HeaderName::from_static("x-tenant-id")));
        assert!(!pattern.selects(&HeaderName::from_static("not-x-tenant-id")));
    }

    #[test]
    fn a_broken_pattern_is_explained_in_one_line() {
        assert_eq!(HeaderPattern::new("x-(").unwrap_err(), "unclosed group");
        let huge = HeaderPattern::new("x{1000}{1000}{1000}").unwrap_err();
        assert!(huge.contains("size limit"), "{huge}");
    }

    #[test]
    fn rules_of_a_subgraph_come_after_those_of_all() {
        let propagate = |name: &'static str| {
            let named = Some(HeaderName::from_static(name));
            HeaderRule::Propagate(Propagation { named, ..Propagation::default() })
        };
        let rules = |rule| HeaderRules { request: vec![rule], ..HeaderRules::default() };
        let headers = Headers {
            all: rules(propagate("a")),
            subgraphs: [("one".to_owned(), rules(propagate("b")))].into(),
        };
        assert_eq!(
            headers.request_rules("one").collect::<Vec<_>>(),
            [&propagate("a"), &propagate("b")]
        );
        assert_eq!(headers.request_rules("two").collect::<Vec<_>>(), [&propagate("a")]);
    }
}
