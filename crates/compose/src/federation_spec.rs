//! The federation specification: its versions, its directives with their definitions, and its types. The names that
//! they have in one subgraph are in `links`.

/// The latest minor version of Federation 2 that is known.
pub(crate) const LATEST_MINOR: u32 = 12;

/// The federation version of a subgraph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum FederationVersion {
    /// Federation 1: no `@link` to the specification.
    One,
    /// Federation 2 with its minor version.
    Two(u32),
}

/// A directive of the federation specification.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum FederationDirective {
    Key,
    Requires,
    Provides,
    External,
    Tag,
    Extends,
    Shareable,
    Inaccessible,
    Override,
    ComposeDirective,
    InterfaceObject,
    Authenticated,
    RequiresScopes,
    Policy,
    Context,
    FromContext,
    Cost,
    ListSize,
    CacheTag,
}

use FederationDirective as D;

/// The definition of a federation directive.
pub(crate) struct DirectiveSpec {
    pub(crate) directive: FederationDirective,
    pub(crate) name: &'static str,
    /// The minor version of Federation 2 that introduced the directive.
    pub(crate) since: u32,
    pub(crate) is_in_federation_one: bool,
    /// The arguments as `name: Type`. Types that begin with `$` are types of the specification.
    pub(crate) arguments: &'static [(&'static str, &'static str)],
    pub(crate) is_repeatable: bool,
    pub(crate) locations: &'static str,
}

const fn spec(
    directive: FederationDirective,
    name: &'static str,
    since: u32,
    arguments: &'static [(&'static str, &'static str)],
    is_repeatable: bool,
    locations: &'static str,
) -> DirectiveSpec {
    let is_in_federation_one =
        matches!(directive, D::Key | D::Requires | D::Provides | D::External | D::Tag | D::Extends);
    DirectiveSpec {
        directive,
        name,
        since,
        is_in_federation_one,
        arguments,
        is_repeatable,
        locations,
    }
}

const ALL_INPUT_AND_OUTPUT: &str = "FIELD_DEFINITION | OBJECT | INTERFACE | UNION | ARGUMENT_DEFINITION | SCALAR | ENUM | ENUM_VALUE | INPUT_OBJECT | INPUT_FIELD_DEFINITION";
const PROTECTED: &str = "FIELD_DEFINITION | OBJECT | INTERFACE | SCALAR | ENUM";

/// The definitions of all directives, in the order of their introduction.
pub(crate) const DIRECTIVES: &[DirectiveSpec] = &[
    spec(
        D::Key,
        "key",
        0,
        &[("fields", "$FieldSet!"), ("resolvable", "Boolean = true")],
        true,
        "OBJECT | INTERFACE",
    ),
    spec(D::Requires, "requires", 0, &[("fields", "$FieldSet!")], false, "FIELD_DEFINITION"),
    spec(D::Provides, "provides", 0, &[("fields", "$FieldSet!")], false, "FIELD_DEFINITION"),
    spec(D::External, "external", 0, &[("reason", "String")], false, "OBJECT | FIELD_DEFINITION"),
    spec(
        D::Tag,
        "tag",
        0,
        &[("name", "String!")],
        true,
        "FIELD_DEFINITION | OBJECT | INTERFACE | UNION | ARGUMENT_DEFINITION | SCALAR | ENUM | ENUM_VALUE | INPUT_OBJECT | INPUT_FIELD_DEFINITION | SCHEMA",
    ),
    spec(D::Extends, "extends", 0, &[], false, "OBJECT | INTERFACE"),
    spec(D::Shareable, "shareable", 0, &[], true, "OBJECT | FIELD_DEFINITION"),
    spec(D::Inaccessible, "inaccessible", 0, &[], false, ALL_INPUT_AND_OUTPUT),
    spec(
        D::Override,
        "override",
        0,
        &[("from", "String!"), ("label", "String")],
        false,
        "FIELD_DEFINITION",
    ),
    spec(D::ComposeDirective, "composeDirective", 1, &[("name", "String")], true, "SCHEMA"),
    spec(D::InterfaceObject, "interfaceObject", 3, &[], false, "OBJECT"),
    spec(D::Authenticated, "authenticated", 5, &[], false, PROTECTED),
    spec(D::RequiresScopes, "requiresScopes", 5, &[("scopes", "[[$Scope!]!]!")], false, PROTECTED),
    spec(D::Policy, "policy", 6, &[("policies", "[[$Policy!]!]!")], false, PROTECTED),
    spec(D::Context, "context", 8, &[("name", "String!")], true, "INTERFACE | OBJECT | UNION"),
    spec(
        D::FromContext,
        "fromContext",
        8,
        &[("field", "$ContextFieldValue")],
        false,
        "ARGUMENT_DEFINITION",
    ),
    spec(
        D::Cost,
        "cost",
        9,
        &[("weight", "Int!")],
        false,
        "ARGUMENT_DEFINITION | ENUM | FIELD_DEFINITION | INPUT_FIELD_DEFINITION | OBJECT | SCALAR",
    ),
    spec(
        D::ListSize,
        "listSize",
        9,
        &[
            ("assumedSize", "Int"),
            ("slicingArguments", "[String!]"),
            ("sizedFields", "[String!]"),
            ("requireOneSlicingArgument", "Boolean = true"),
        ],
        false,
        "FIELD_DEFINITION",
    ),
    spec(
        D::CacheTag,
        "cacheTag",
        12,
        &[("format", "String!")],
        true,
        "OBJECT | FIELD_DEFINITION | INTERFACE",
    ),
];

/// The types of the specification.
pub(crate) const TYPES: [&str; 4] = ["FieldSet", "Scope", "Policy", "ContextFieldValue"];

impl FederationDirective {
    /// Returns the definition of the directive.
    pub(crate) fn spec(self) -> &'static DirectiveSpec {
        // The table has one entry for each variant, in the order of the variants: see the test below.
        &DIRECTIVES[self as usize]
    }

    /// Returns the directive of that name in the specification.
    pub(crate) fn named(name: &str) -> Option<Self> {
        DIRECTIVES.iter().find(|spec| spec.name == name).map(|spec| spec.directive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_directives_is_in_the_order_of_the_variants() {
        for (index, spec) in DIRECTIVES.iter().enumerate() {
            assert_eq!(spec.directive as usize, index, "{}", spec.name);
        }
    }
}
