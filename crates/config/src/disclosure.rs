//! Settings of the disclosure of subgraph errors to clients.

use std::collections::BTreeMap;

use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::findings::{Findings, KeyPlaces};
use super::format::MessagePatternText;
use super::pattern::{self, pattern_traits};

/// The parts of subgraph errors that clients see.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IncludeSubgraphErrors {
    /// Passes the messages of all subgraphs on to clients. `false` replaces each message by a fixed text.
    #[schemars(example = true)]
    pub all: bool,

    /// Names the subgraph in the fixed text, in the message and as `extensions.serviceName`.
    #[schemars(example = true)]
    pub subgraph_names: bool,

    /// The members of an error's `extensions` that clients see in addition to `code`, also if its message is hidden.
    /// All others are dropped, because many servers put stack traces and queries there.
    #[schemars(length(max = 64), example = ["retryAfter"])]
    pub extensions: Vec<String>,

    /// Exceptions from `all` for single subgraphs, by the name they have in the supergraph.
    pub subgraphs: BTreeMap<String, bool>,

    /// Exceptions from `all` and `subgraphs` for single errors, by their code and message. The first rule that fits an
    /// error decides about its message.
    #[schemars(length(max = 100))]
    pub rules: Vec<SubgraphErrorRule>,
}

impl IncludeSubgraphErrors {
    /// True if the messages of this subgraph reach clients, unless a rule says otherwise.
    pub fn of(&self, subgraph: &str) -> bool {
        self.subgraphs.get(subgraph).copied().unwrap_or(self.all)
    }

    /// Reports rules that contradict themselves.
    pub(super) fn check_rules(&self, places: &KeyPlaces, findings: &mut Findings) {
        for (index, rule) in self.rules.iter().enumerate() {
            if rule.show && rule.message.is_some() {
                let path = format!("include_subgraph_errors.rules[{index}]");
                findings
                    .error("conflict", format!("`{path}` shows a message and replaces it"))
                    .at_place(
                        places.get(&format!("{path}.show")),
                        "shows the message of the subgraph",
                    )
                    .related_place(places.get(&format!("{path}.message")), "replaces it")
                    .help("remove one of them");
            }
        }
    }
}

/// A rule about the messages of some errors. An error must meet each condition that is set; without conditions the rule
/// fits every error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SubgraphErrorRule {
    /// The subgraphs that the rule is about, by the name they have in the supergraph. By default all.
    #[schemars(length(max = 1000), example = ["stock"])]
    pub subgraphs: Vec<String>,

    /// The codes (`extensions.code`) of these errors, as the subgraph or the router sets them. By default all, also
    /// errors without a code.
    #[schemars(length(max = 100), example = ["OUT_OF_STOCK"])]
    pub codes: Vec<String>,

    /// A regular expression for their messages. Without `^` and `$` it may match a part of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null), with = "Option<MessagePatternText>", example = &"^The article .* is sold out")]
    pub matching: Option<MessagePattern>,

    /// Shows the message to clients. `false` hides it, also if `all` or `subgraphs` shows it.
    #[schemars(example = true)]
    pub show: bool,

    /// The text that clients see in place of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null), length(max = 1000), example = &"This article is sold out.")]
    pub message: Option<String>,
}

impl SubgraphErrorRule {
    /// True if the rule shows the messages of all errors.
    pub(super) fn shows_everything(&self) -> bool {
        let Self { subgraphs, codes, matching, show, message: _ } = self;
        *show && subgraphs.is_empty() && codes.is_empty() && matching.is_none()
    }
}

/// A regular expression for messages of errors.
#[derive(Clone)]
pub struct MessagePattern(Regex);

impl MessagePattern {
    /// Compiles a pattern in the syntax of the `regex` crate: matching takes linear time.
    ///
    /// # Errors
    /// Describes in one line what is wrong with the pattern.
    pub fn new(pattern: &str) -> Result<Self, String> {
        pattern::compile(&mut RegexBuilder::new(pattern)).map(Self)
    }

    fn text(&self) -> &str {
        self.0.as_str()
    }

    /// True if the pattern matches a part of the message.
    pub fn matches(&self, message: &str) -> bool {
        self.0.is_match(message)
    }
}

pattern_traits!(MessagePattern);
