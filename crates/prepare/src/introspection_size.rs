//! Computes the size of an introspection response before it is executed.
//!
//! `types { fields { type { fields { type { name } } } } }` under a hundred aliases selects tens of
//! millions of values from a schema of a thousand types. This module counts them, each pair of
//! selection set and schema element once.

use std::collections::HashMap;

use apollo_compiler::Schema;
use apollo_compiler::ast::{
    DirectiveDefinition, FieldDefinition, InputValueDefinition, Type, Value,
};
use apollo_compiler::executable::{ExecutableDocument, Field, Selection, SelectionSet};
use apollo_compiler::schema::ExtendedType;
use apollo_compiler::validation::Valid;

use crate::introspection::SchemaFacts;

/// Number of values that one response may have for each element of the schema (type, field,
/// argument, enum value, directive). The query of the usual tools takes up to 40.
const VALUES_PER_ELEMENT: u64 = 200;

/// Minimum of the limit, so that a tiny schema allows any query.
const VALUES_MIN: u64 = 100_000;

/// The number of values that a response may have.
pub(crate) fn values_max(schema: &Schema) -> u64 {
    let of_fields = |fields: &mut dyn Iterator<Item = &FieldDefinition>| {
        fields.map(|field| 1 + field.arguments.len()).sum()
    };
    let of_type = |ty: &ExtendedType| -> usize {
        1 + match ty {
            ExtendedType::Object(it) => of_fields(&mut it.fields.values().map(|it| &***it)),
            ExtendedType::Interface(it) => of_fields(&mut it.fields.values().map(|it| &***it)),
            ExtendedType::Enum(it) => it.values.len(),
            ExtendedType::InputObject(it) => it.fields.len(),
            ExtendedType::Scalar(_) | ExtendedType::Union(_) => 0,
        }
    };
    let types: usize = schema.types.values().map(of_type).sum();
    let directives = schema.directive_definitions.values().map(|it| 1 + it.arguments.len());
    let elements = types + directives.sum::<usize>();
    (elements as u64).saturating_mul(VALUES_PER_ELEMENT).max(VALUES_MIN)
}

/// True if the response to `set`, the root of an operation of `document`, has at most `max` values.
/// Conditions count as true, and repeated fields each time.
pub(crate) fn fits(
    facts: &SchemaFacts,
    document: &Valid<ExecutableDocument>,
    set: &SelectionSet,
    max: u64,
) -> bool {
    let mut count = ValueCount { facts, document, max, pairs: 0, known: HashMap::new() };
    count.count_selection_set(set, SchemaElement::Root).is_some_and(|values| values <= max)
}

/// The schema element that a selection set is applied to. By reference, so that the address is its
/// identity.
#[derive(Clone, Copy)]
enum SchemaElement<'a> {
    Root,
    Schema,
    Named(&'a ExtendedType),
    /// A list or non-null type.
    Wrapped(&'a Type),
    Field(&'a FieldDefinition),
    Input(&'a InputValueDefinition),
    Directive(&'a DirectiveDefinition),
    EnumValue,
}

impl SchemaElement<'_> {
    fn address(self) -> usize {
        match self {
            Self::Root => 0,
            Self::Schema => 1,
            Self::EnumValue => 2,
            Self::Named(it) => std::ptr::from_ref(it).addr(),
            Self::Wrapped(it) => std::ptr::from_ref(it).addr(),
            Self::Field(it) => std::ptr::from_ref(it).addr(),
            Self::Input(it) => std::ptr::from_ref(it).addr(),
            Self::Directive(it) => std::ptr::from_ref(it).addr(),
        }
    }
}

struct ValueCount<'a> {
    facts: &'a SchemaFacts,
    document: &'a ExecutableDocument,
    max: u64,
    /// Number of pairs visited so far. Each produces at least one value.
    pairs: u64,
    /// Counts by the addresses of selection set and element; both outlive this map.
    known: HashMap<(usize, usize), u64>,
}

impl<'a> ValueCount<'a> {
    /// Returns the number of values of a selection set, or `None` if there are too many.
    fn count_selection_set(&mut self, set: &'a SelectionSet, on: SchemaElement<'a>) -> Option<u64> {
        let key = (std::ptr::from_ref(set).addr(), on.address());
        if let Some(&known) = self.known.get(&key) {
            return Some(known);
        }
        self.pairs += 1;
        if self.pairs > self.max {
            return None;
        }
        let mut sum = 0_u64;
        for selection in &set.selections {
            sum = sum.saturating_add(match selection {
                Selection::Field(field) => self.count_field(field, on)?,
                Selection::InlineFragment(fragment) => {
                    self.count_selection_set(&fragment.selection_set, on)?
                }
                Selection::FragmentSpread(spread) => {
                    match self.document.fragments.get(&spread.fragment_name) {
                        Some(fragment) => self.count_selection_set(&fragment.selection_set, on)?,
                        None => 0,
                    }
                }
            });
        }
        if sum > self.max {
            return None;
        }
        self.known.insert(key, sum);
        Some(sum)
    }

    fn count_elements(
        &mut self,
        set: &'a SelectionSet,
        on: impl Iterator<Item = SchemaElement<'a>>,
    ) -> Option<u64> {
        on.map(|on| self.count_selection_set(set, on))
            .try_fold(1_u64, |sum, it| Some(sum.saturating_add(it? + 1)))
    }

    fn count_field(&mut self, field: &'a Field, on: SchemaElement<'a>) -> Option<u64> {
        let set = &field.selection_set;
        let schema = &**self.facts.schema;
        match (on, field.name.as_str()) {
            (SchemaElement::Root, "__schema") => {
                self.count_selection_set(set, SchemaElement::Schema)
            }
            (SchemaElement::Root, "__type") => {
                match field.specified_argument_by_name("name").map(|it| &**it) {
                    Some(Value::String(name)) => self.count_named(set, [name.as_str()].into_iter()),
                    _ => {
                        // Any type is possible.
                        let mut each = schema
                            .types
                            .values()
                            .map(|ty| self.count_selection_set(set, SchemaElement::Named(ty)));
                        each.try_fold(1, |most: u64, it| Some(most.max(it?)))
                    }
                }
            }
            // Other fields of the root are executed by the plan.
            (SchemaElement::Root, _) => Some(0),
            (SchemaElement::Schema, "types") => {
                self.count_elements(set, schema.types.values().map(SchemaElement::Named))
            }
            (SchemaElement::Schema, "directives") => {
                let directives = schema.directive_definitions.values();
                self.count_elements(set, directives.map(|it| SchemaElement::Directive(it)))
            }
            (SchemaElement::Schema, name @ ("queryType" | "mutationType" | "subscriptionType")) => {
                let definition = &schema.schema_definition;
                let root = match name {
                    "queryType" => &definition.query,
                    "mutationType" => &definition.mutation,
                    _ => &definition.subscription,
                };
                self.count_named(set, root.iter().map(|it| it.name.as_str()))
            }
            (SchemaElement::Named(ty), "fields") => {
                match ty {
                    ExtendedType::Object(it) => self
                        .count_elements(set, it.fields.values().map(|it| SchemaElement::Field(it))),
                    ExtendedType::Interface(it) => self
                        .count_elements(set, it.fields.values().map(|it| SchemaElement::Field(it))),
                    _ => Some(1),
                }
            }
            (SchemaElement::Named(ExtendedType::InputObject(it)), "inputFields") => {
                self.count_elements(set, it.fields.values().map(|it| SchemaElement::Input(it)))
            }
            (SchemaElement::Named(ExtendedType::Enum(it)), "enumValues") => {
                self.count_elements(set, it.values.values().map(|_| SchemaElement::EnumValue))
            }
            (SchemaElement::Named(ty), "interfaces") => match ty {
                ExtendedType::Object(it) => self
                    .count_named(set, it.implements_interfaces.iter().map(|it| it.name.as_str())),
                ExtendedType::Interface(it) => self
                    .count_named(set, it.implements_interfaces.iter().map(|it| it.name.as_str())),
                _ => Some(1),
            },
            (SchemaElement::Named(ExtendedType::Union(it)), "possibleTypes") => {
                self.count_named(set, it.members.iter().map(|it| it.name.as_str()))
            }
            (SchemaElement::Named(ExtendedType::Interface(it)), "possibleTypes") => {
                match self.facts.implementers.get(&it.name) {
                    Some(them) => self
                        .count_named(set, them.objects.iter().map(apollo_compiler::Name::as_str)),
                    None => Some(1),
                }
            }
            (SchemaElement::Wrapped(ty), "ofType") => match ty {
                Type::List(item) => self.count_type(set, item),
                // The same type without its exclamation mark: one more value for the named type or
                // list.
                Type::NonNullList(item) => Some(self.count_type(set, item)?.saturating_mul(2)),
                Type::NonNullNamed(name) | Type::Named(name) => {
                    self.count_named(set, [name.as_str()].into_iter())
                }
            },
            (SchemaElement::Field(it), "type") => self.count_type(set, &it.ty),
            (SchemaElement::Field(it), "args") => {
                self.count_elements(set, it.arguments.iter().map(|it| SchemaElement::Input(it)))
            }
            (SchemaElement::Directive(it), "args") => {
                self.count_elements(set, it.arguments.iter().map(|it| SchemaElement::Input(it)))
            }
            (SchemaElement::Input(it), "type") => self.count_type(set, &it.ty),
            _ => Some(1),
        }
    }

    fn count_type(&mut self, set: &'a SelectionSet, ty: &'a Type) -> Option<u64> {
        match ty {
            Type::Named(name) => self.count_named(set, [name.as_str()].into_iter()),
            wrapped => Some(
                self.count_selection_set(set, SchemaElement::Wrapped(wrapped))?.saturating_add(1),
            ),
        }
    }

    fn count_named(
        &mut self,
        set: &'a SelectionSet,
        names: impl Iterator<Item = &'a str>,
    ) -> Option<u64> {
        let types = &self.facts.schema.types;
        self.count_elements(set, names.filter_map(|name| types.get(name)).map(SchemaElement::Named))
    }
}
