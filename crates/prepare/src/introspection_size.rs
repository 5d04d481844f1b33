//! How large the answer to an introspection becomes, before anybody computes it.
//!
//! `types { fields { type { fields { type { name } } } } }` under a hundred aliases asks a schema of a
//! thousand types for tens of millions of values. Here they are counted, each pair of selection set and
//! schema element once.

use std::collections::HashMap;

use apollo_compiler::Schema;
use apollo_compiler::ast::{
    DirectiveDefinition, FieldDefinition, InputValueDefinition, Type, Value,
};
use apollo_compiler::executable::{ExecutableDocument, Field, Selection, SelectionSet};
use apollo_compiler::schema::ExtendedType;
use apollo_compiler::validation::Valid;

use crate::introspection::SchemaFacts;

/// Values that one answer may have for each element of the schema (type, field, argument, enum value,
/// directive). The query of the usual tools takes up to 40.
const VALUES_PER_ELEMENT: u64 = 200;

/// And at any rate this many: a tiny schema may be asked anything.
const VALUES_MIN: u64 = 100_000;

/// The number of values that an answer may have.
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

/// Does the answer to `set`, the root of an operation of `document`, have at most `max` values? Conditions
/// count as met, and repeated fields each time.
pub(crate) fn fits(
    facts: &SchemaFacts,
    document: &Valid<ExecutableDocument>,
    set: &SelectionSet,
    max: u64,
) -> bool {
    let mut count = Count { facts, document, max, pairs: 0, known: HashMap::new() };
    count.of(set, On::Root).is_some_and(|values| values <= max)
}

/// What a selection set is applied to. By reference, so that the address is its identity.
#[derive(Clone, Copy)]
enum On<'a> {
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

impl On<'_> {
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

struct Count<'a> {
    facts: &'a SchemaFacts,
    document: &'a ExecutableDocument,
    max: u64,
    /// Looked at so far. Each stands for one value at least.
    pairs: u64,
    /// By the addresses of selection set and element; both live longer than this.
    known: HashMap<(usize, usize), u64>,
}

impl<'a> Count<'a> {
    /// `None`: too many.
    fn of(&mut self, set: &'a SelectionSet, on: On<'a>) -> Option<u64> {
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
                Selection::Field(field) => self.field(field, on)?,
                Selection::InlineFragment(fragment) => self.of(&fragment.selection_set, on)?,
                Selection::FragmentSpread(spread) => {
                    match self.document.fragments.get(&spread.fragment_name) {
                        Some(fragment) => self.of(&fragment.selection_set, on)?,
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

    fn all(&mut self, set: &'a SelectionSet, on: impl Iterator<Item = On<'a>>) -> Option<u64> {
        on.map(|on| self.of(set, on)).try_fold(1_u64, |sum, it| Some(sum.saturating_add(it? + 1)))
    }

    fn field(&mut self, field: &'a Field, on: On<'a>) -> Option<u64> {
        let set = &field.selection_set;
        let schema = &**self.facts.schema;
        match (on, field.name.as_str()) {
            (On::Root, "__schema") => self.of(set, On::Schema),
            (On::Root, "__type") => {
                match field.specified_argument_by_name("name").map(|it| &**it) {
                    Some(Value::String(name)) => self.named(set, [name.as_str()].into_iter()),
                    _ => {
                        // Any type could be meant.
                        let mut each = schema.types.values().map(|ty| self.of(set, On::Named(ty)));
                        each.try_fold(1, |most: u64, it| Some(most.max(it?)))
                    }
                }
            }
            // The rest of the operation is none of our business.
            (On::Root, _) => Some(0),
            (On::Schema, "types") => self.all(set, schema.types.values().map(On::Named)),
            (On::Schema, "directives") => {
                let directives = schema.directive_definitions.values();
                self.all(set, directives.map(|it| On::Directive(it)))
            }
            (On::Schema, name @ ("queryType" | "mutationType" | "subscriptionType")) => {
                let definition = &schema.schema_definition;
                let root = match name {
                    "queryType" => &definition.query,
                    "mutationType" => &definition.mutation,
                    _ => &definition.subscription,
                };
                self.named(set, root.iter().map(|it| it.name.as_str()))
            }
            (On::Named(ty), "fields") => match ty {
                ExtendedType::Object(it) => {
                    self.all(set, it.fields.values().map(|it| On::Field(it)))
                }
                ExtendedType::Interface(it) => {
                    self.all(set, it.fields.values().map(|it| On::Field(it)))
                }
                _ => Some(1),
            },
            (On::Named(ExtendedType::InputObject(it)), "inputFields") => {
                self.all(set, it.fields.values().map(|it| On::Input(it)))
            }
            (On::Named(ExtendedType::Enum(it)), "enumValues") => {
                self.all(set, it.values.values().map(|_| On::EnumValue))
            }
            (On::Named(ty), "interfaces") => match ty {
                ExtendedType::Object(it) => {
                    self.named(set, it.implements_interfaces.iter().map(|it| it.name.as_str()))
                }
                ExtendedType::Interface(it) => {
                    self.named(set, it.implements_interfaces.iter().map(|it| it.name.as_str()))
                }
                _ => Some(1),
            },
            (On::Named(ExtendedType::Union(it)), "possibleTypes") => {
                self.named(set, it.members.iter().map(|it| it.name.as_str()))
            }
            (On::Named(ExtendedType::Interface(it)), "possibleTypes") => {
                match self.facts.implementers.get(&it.name) {
                    Some(them) => {
                        self.named(set, them.objects.iter().map(apollo_compiler::Name::as_str))
                    }
                    None => Some(1),
                }
            }
            (On::Wrapped(ty), "ofType") => match ty {
                Type::List(item) => self.ty(set, item),
                // The same without its exclamation mark: one more value for the named type or list.
                Type::NonNullList(item) => Some(self.ty(set, item)?.saturating_mul(2)),
                Type::NonNullNamed(name) | Type::Named(name) => {
                    self.named(set, [name.as_str()].into_iter())
                }
            },
            (On::Field(it), "type") => self.ty(set, &it.ty),
            (On::Field(it), "args") => self.all(set, it.arguments.iter().map(|it| On::Input(it))),
            (On::Directive(it), "args") => {
                self.all(set, it.arguments.iter().map(|it| On::Input(it)))
            }
            (On::Input(it), "type") => self.ty(set, &it.ty),
            _ => Some(1),
        }
    }

    fn ty(&mut self, set: &'a SelectionSet, ty: &'a Type) -> Option<u64> {
        match ty {
            Type::Named(name) => self.named(set, [name.as_str()].into_iter()),
            wrapped => Some(self.of(set, On::Wrapped(wrapped))?.saturating_add(1)),
        }
    }

    fn named(
        &mut self,
        set: &'a SelectionSet,
        names: impl Iterator<Item = &'a str>,
    ) -> Option<u64> {
        let types = &self.facts.schema.types;
        self.all(set, names.filter_map(|name| types.get(name)).map(On::Named))
    }
}
