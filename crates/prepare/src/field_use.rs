//! The fields, arguments and types that the text of an operation names, as schema coordinates.
//!
//! They are those of the text and not of the normalised operation, because a client depends on what it has written: on
//! a field of an interface also where all its objects have the field. Conditions (`@skip`, `@include`) do not count.

use std::collections::{BTreeSet, HashSet};

use apollo_compiler::Name;
use apollo_compiler::executable::{ExecutableDocument, Field, Operation, Selection, SelectionSet};

/// The coordinates that an operation uses: `Type.field`, `Type.field(argument:)`, and `Type` for the condition of a
/// fragment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FieldUse {
    /// The coordinates in lines: one allocation for all.
    lines: Box<str>,
}

impl FieldUse {
    /// Collects the coordinates of a valid operation. Introspection has none.
    pub(crate) fn of(document: &ExecutableDocument, operation: &Operation) -> Self {
        let mut collector =
            UseCollector { document, uses: BTreeSet::new(), fragments: HashSet::new() };
        collector.visit_selections(&operation.selection_set);
        let mut lines = String::new();
        for (ty, field, argument) in collector.uses {
            lines.push_str(ty);
            for (separator, part) in [(".", field), ("(", argument)] {
                if !part.is_empty() {
                    lines.push_str(separator);
                    lines.push_str(part);
                }
            }
            lines.push_str(if argument.is_empty() { "\n" } else { ":)\n" });
        }
        Self { lines: lines.into() }
    }

    /// Iterates over the coordinates, in their order, each once.
    pub fn coordinates(&self) -> impl Iterator<Item = &str> {
        self.lines.lines()
    }

    /// The memory in bytes.
    pub fn memory(&self) -> u64 {
        self.lines.len() as u64
    }
}

/// Makes the use of some coordinates.
impl<'c> FromIterator<&'c str> for FieldUse {
    fn from_iter<T: IntoIterator<Item = &'c str>>(coordinates: T) -> Self {
        let lines: String = coordinates.into_iter().flat_map(|it| [it, "\n"]).collect();
        Self { lines: lines.into() }
    }
}

/// A type, a field of it, and an argument of the field; empty where there is none.
type Coordinate<'d> = (&'d str, &'d str, &'d str);

struct UseCollector<'d> {
    document: &'d ExecutableDocument,
    uses: BTreeSet<Coordinate<'d>>,
    /// The fragments that were visited: their uses do not depend on the place of the spread.
    fragments: HashSet<&'d Name>,
}

impl<'d> UseCollector<'d> {
    /// The recursion is as deep as the operation, which is limited.
    fn visit_selections(&mut self, set: &'d SelectionSet) {
        for selection in &set.selections {
            match selection {
                Selection::Field(field) => self.visit_field(&set.ty, field),
                Selection::InlineFragment(fragment) => {
                    if let Some(condition) = &fragment.type_condition {
                        self.uses.insert((condition, "", ""));
                    }
                    self.visit_selections(&fragment.selection_set);
                }
                Selection::FragmentSpread(spread) => {
                    let Some(fragment) = self.document.fragments.get(&spread.fragment_name) else {
                        continue;
                    };
                    if self.fragments.insert(&spread.fragment_name) {
                        self.uses.insert((fragment.type_condition(), "", ""));
                        self.visit_selections(&fragment.selection_set);
                    }
                }
            }
        }
    }

    fn visit_field(&mut self, ty: &'d Name, field: &'d Field) {
        if field.name.starts_with("__") {
            return;
        }
        self.uses.insert((ty, &field.name, ""));
        for argument in &field.arguments {
            self.uses.insert((ty, &field.name, &argument.name));
        }
        self.visit_selections(&field.selection_set);
    }
}

#[cfg(test)]
mod tests {
    use apollo_compiler::Schema;

    use super::*;

    const SCHEMA: &str = "
        type Query { node(id: ID!, deep: Boolean): Node search: [Result!] product: Product }
        interface Node { id: ID! }
        type Product implements Node { id: ID! name(short: Boolean): String parts(max: Int): [Product] }
        type Shop implements Node { id: ID! name: String }
        union Result = Product | Shop";

    fn uses(query: &str) -> Vec<String> {
        let schema = Schema::parse_and_validate(SCHEMA, "schema.graphql").expect("a schema");
        let document = ExecutableDocument::parse_and_validate(&schema, query, "query.graphql");
        let document = document.expect("an operation");
        let operation = document.operations.get(Some("Q")).expect("the operation");
        FieldUse::of(&document, operation).coordinates().map(Into::into).collect()
    }

    #[test]
    fn fields_and_given_arguments_count_once() {
        let query = "query Q($max: Int) { product { name again: name(short: true) parts(max: $max) { name } } }";
        let expected = [
            "Product.name",
            "Product.name(short:)",
            "Product.parts",
            "Product.parts(max:)",
            "Query.product",
        ];
        assert_eq!(uses(query), expected);
    }

    #[test]
    fn fragments_count_with_their_conditions() {
        let query = "
            query Q { search { ...Common ... on Shop { name @include(if: false) } __typename } node(id: 1) { id } }
            query Other { product { name } }
            fragment Common on Node { id ... on Product { parts { ...Name } ...Name } }
            fragment Name on Product { name }";
        let expected = [
            "Node",
            "Node.id",
            "Product",
            "Product.name",
            "Product.parts",
            "Query.node",
            "Query.node(id:)",
            "Query.search",
            "Shop",
            "Shop.name",
        ];
        assert_eq!(uses(query), expected);
    }

    #[test]
    fn introspection_uses_nothing() {
        assert_eq!(uses("query Q { __schema { types { name } } __typename }"), [""; 0]);
    }
}
