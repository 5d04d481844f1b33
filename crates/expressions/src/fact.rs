//! The facts that programs read: the name of each in the language, and its type.

use std::fmt;

use execute::ClaimPath;
use http::HeaderName;

use crate::scope::Scope;

/// The type of an expression, as far as it is known before the evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Bool,
    Integer,
    Float,
    Text,
    Null,
    List,
    Map,
    /// A value that may be absent: the result of `?.` and `[?…]`.
    Optional,
    /// A type that only the evaluation knows, such as that of a claim.
    Unknown,
}

impl Type {
    /// Returns the words for a value of the type.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Bool => "`true` or `false`",
            Self::Integer => "a whole number",
            Self::Float => "a decimal number",
            Self::Text => "a text",
            Self::Null => "null",
            Self::List => "a list",
            Self::Map => "a map",
            Self::Optional => "an optional value",
            Self::Unknown => "a value",
        }
    }

    pub(crate) fn is_number(self) -> bool {
        matches!(self, Self::Integer | Self::Float)
    }

    pub(crate) fn may_be(self, other: Self) -> bool {
        self == other || self == Self::Unknown
    }
}

/// A fact about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fact {
    Method,
    Path,
    ClientAddress,
    IsTls,
    ClientName,
    ClientVersion,
    OperationName,
    OperationKind,
    OperationId,
    OperationDepth,
    OperationCost,
    SubgraphName,
    Status,
    Errors,
    ResponseBytes,
    Milliseconds,
    Header(HeaderName),
    ResponseHeader(HeaderName),
    Claim(ClaimPath),
}

/// The facts with a fixed name: the variable, its member, and the scopes that have it.
type FixedFact = (&'static str, &'static str, Fact, Type, fn(Scope) -> bool);

const FIXED: [FixedFact; 16] = [
    ("request", "method", Fact::Method, Type::Text, Scope::has_request),
    ("request", "path", Fact::Path, Type::Text, Scope::has_request),
    ("request", "client_address", Fact::ClientAddress, Type::Text, Scope::has_request),
    ("request", "tls", Fact::IsTls, Type::Bool, Scope::has_request),
    ("client", "name", Fact::ClientName, Type::Text, Scope::has_request),
    ("client", "version", Fact::ClientVersion, Type::Text, Scope::has_request),
    ("operation", "name", Fact::OperationName, Type::Text, Scope::has_operation),
    ("operation", "kind", Fact::OperationKind, Type::Text, Scope::has_operation),
    ("operation", "id", Fact::OperationId, Type::Text, Scope::has_operation),
    ("operation", "depth", Fact::OperationDepth, Type::Integer, Scope::has_operation),
    ("operation", "cost", Fact::OperationCost, Type::Integer, Scope::has_cost),
    ("subgraph", "name", Fact::SubgraphName, Type::Text, Scope::has_response),
    ("response", "status", Fact::Status, Type::Integer, Scope::has_outcome),
    ("response", "errors", Fact::Errors, Type::Integer, Scope::has_outcome),
    ("response", "bytes", Fact::ResponseBytes, Type::Integer, Scope::has_outcome),
    ("response", "milliseconds", Fact::Milliseconds, Type::Integer, Scope::has_outcome),
];

/// A map of facts: the variable, its member if it is not the variable itself, and whether a place has it.
type FactMap = (&'static str, Option<&'static str>, fn(Scope) -> bool);

/// The maps of facts.
const MAPS: [FactMap; 3] = [
    ("request", Some("headers"), Scope::has_request),
    ("response", Some("headers"), Scope::has_response),
    ("claims", None, Scope::has_request),
];

/// Returns the fact `variable.member` of a scope, with its type.
pub(crate) fn fixed(scope: Scope, variable: &str, member: &str) -> Option<(Fact, Type)> {
    let known = FIXED.iter().filter(|(.., exists)| exists(scope));
    let mut known = known.filter(|(v, m, ..)| *v == variable && *m == member);
    known.next().map(|(_, _, fact, kind, _)| (fact.clone(), *kind))
}

/// Returns the variables of a scope.
pub(crate) fn variables(scope: Scope) -> Vec<&'static str> {
    let fixed = FIXED.iter().filter(|(.., exists)| exists(scope)).map(|(variable, ..)| *variable);
    let maps = MAPS.iter().filter(|(.., exists)| exists(scope)).map(|(variable, ..)| *variable);
    let mut all: Vec<_> = fixed.chain(maps).collect();
    let mut seen = Vec::new();
    all.retain(|name| {
        !seen.contains(name) && {
            seen.push(*name);
            true
        }
    });
    all
}

/// Returns the members of a variable in a scope; none for `claims`, whose members are those of the token.
pub(crate) fn members(scope: Scope, variable: &str) -> Vec<&'static str> {
    let fixed = FIXED.iter().filter(|(v, .., exists)| *v == variable && exists(scope));
    let maps = MAPS.iter().filter(|(v, _, exists)| *v == variable && exists(scope));
    fixed.map(|(_, member, ..)| *member).chain(maps.filter_map(|(_, member, _)| *member)).collect()
}

/// True if the variable exists in any scope.
pub(crate) fn is_variable(name: &str) -> bool {
    FIXED.iter().any(|(variable, ..)| *variable == name)
        || MAPS.iter().any(|(variable, ..)| *variable == name)
}

/// Prints the fact as expressions name it.
impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "request.headers[\"{name}\"]"),
            Self::ResponseHeader(name) => write!(f, "response.headers[\"{name}\"]"),
            Self::Claim(path) => write!(f, "claims.{path}"),
            fixed => match FIXED.iter().find(|(_, _, fact, ..)| fact == fixed) {
                Some((variable, member, ..)) => write!(f, "{variable}.{member}"),
                None => f.write_str("a fact"),
            },
        }
    }
}

/// The way in which a program reads a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// The value. The evaluation fails if it is absent.
    Value,
    /// Whether there is a value.
    Presence,
    /// The value, or nothing.
    Optional,
}

/// A place in a program where a fact is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) fact: Fact,
    pub(crate) access: Access,
}
