//! Made-up data that depends on the schema and a seed only: an object has the same data in every response and in every
//! subgraph.
//!
//! An entity is identified by a number, which all its keys contain (`"17"`, `"upc-17"`, `user17@example.com`), so that
//! each key leads to the same entity. The data of an object depends on its identity and the field's name only; nothing
//! is stored. `leaf` formats the values of leaves.

mod guess;
mod identity;
mod leaf;
mod words;

use serde_json::{Map, Value};

pub(super) use self::identity::Identity;

use self::leaf::Leaf;
use super::model::{FieldIndex, KeyFields, Model, ObjectType, TypeId};
use crate::random::{mix, mix_text, unit};

/// The maximum number of items of a list whose length an argument such as `first` requests.
const REQUESTED_ITEMS_MAX: u64 = 100_000;

/// The arguments that limit the number of items of a list.
const LIMIT_ARGUMENTS: [&str; 9] =
    ["first", "last", "limit", "take", "count", "size", "pageSize", "perPage", "top"];

/// The arguments that skip items at the beginning of a list.
const OFFSET_ARGUMENTS: [&str; 3] = ["offset", "skip", "start"];

/// The settings of made-up data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Invention {
    /// The seed of the data.
    pub seed: u64,
    /// The number of entities of each type that refer to each other.
    pub entities: u64,
    /// The minimum and maximum number of items of a list.
    pub list: (u64, u64),
    /// The share of nullable fields that are null.
    pub nulls: f64,
}

impl Default for Invention {
    fn default() -> Self {
        Self { seed: 1, entities: 1000, list: (1, 5), nulls: 0.0 }
    }
}

/// The rules to make up every field of a schema.
pub(super) struct Inventor {
    settings: Invention,
    /// By type, by field.
    fields: Vec<Box<[FieldRule]>>,
    /// By type: the seed of its entities.
    names: Vec<u64>,
}

/// The rule to make up one field.
pub(super) struct FieldRule {
    /// A hash of the field's name, mixed into the seed of its values.
    salt: u64,
    pub(super) kind: FieldRuleKind,
    /// True if the field is part of a key, so that it is never null.
    key: bool,
    /// True for fields of a root type, whose lists begin with the first entities.
    root: bool,
}

/// The kind of value of a field.
pub(super) enum FieldRuleKind {
    Leaf(Leaf),
    /// An object of one of these types.
    Object(Box<[TypeId]>),
}

/// The effect of a field's arguments.
#[derive(Default)]
pub(super) struct RequestedItems {
    limit: Option<u64>,
    offset: u64,
    /// The requested keys: of one entity, or of a list of them.
    keys: Vec<(Box<str>, Value)>,
    /// A hash of all other arguments.
    other: u64,
}

impl Inventor {
    pub(super) fn new(model: &Model, settings: Invention) -> Self {
        let definition = &model.schema.schema_definition;
        let roots: Vec<TypeId> = [&definition.query, &definition.mutation]
            .into_iter()
            .flatten()
            .filter_map(|root| model.type_id(root))
            .collect();
        let fields = model
            .objects
            .iter()
            .map(|object| {
                let root = model.type_id(&object.name).is_some_and(|id| roots.contains(&id));
                object
                    .fields
                    .iter()
                    .map(|field| {
                        let key = object.keys.iter().any(|key| key.has_member(&field.name));
                        let kind = match field.composite {
                            true => {
                                FieldRuleKind::Object(model.possible_types(&field.named).into())
                            }
                            false => FieldRuleKind::Leaf(guess::leaf_of(
                                &model.schema,
                                object,
                                field,
                                key,
                            )),
                        };
                        FieldRule { salt: mix_text(0, field.name.as_bytes()), kind, key, root }
                    })
                    .collect()
            })
            .collect();
        let names = model
            .objects
            .iter()
            .map(|object| mix_text(settings.seed, object.name.as_bytes()))
            .collect();
        Self { settings, fields, names }
    }

    pub(super) fn field(&self, type_id: TypeId, index: FieldIndex) -> &FieldRule {
        &self.fields[type_id.index()][usize::from(index)]
    }

    /// Returns the identity of a root type's object.
    pub(super) fn root(&self, type_id: TypeId) -> Identity {
        Identity { seed: self.names[type_id.index()], number: 1 }
    }

    /// Returns the identity of the root object of a subscription's event, so that its values differ by the number of
    /// the event.
    pub(super) fn event(&self, type_id: TypeId, number: u64) -> Identity {
        self.entity(type_id, number)
    }

    /// Returns the identity of the entity with this number.
    fn entity(&self, type_id: TypeId, number: u64) -> Identity {
        Identity { seed: mix(self.names[type_id.index()], number), number }
    }

    /// Returns the identity of the entity that a representation, or the arguments of a root field, refer to.
    pub(super) fn entity_by_key(
        &self,
        model: &Model,
        type_id: TypeId,
        members: &Map<String, Value>,
    ) -> Identity {
        let keys = &model.object(type_id).keys;
        let complete = keys.iter().find(|key| key.text_of(members).is_some());
        let leaf = complete.and_then(|key| key.first_leaf(members));
        let number = match leaf {
            Some(Value::String(text)) => number_in(text),
            Some(other) => number_in(&other.to_string()),
            None => 1,
        };
        self.entity(type_id, number)
    }

    /// Returns the identity of the object at a position of a field, in a list or alone.
    pub(super) fn object(
        &self,
        model: &Model,
        rule: &FieldRule,
        type_id: TypeId,
        seed: u64,
        place: u64,
    ) -> Identity {
        if model.object(type_id).keys.is_empty() {
            return Identity { seed, number: 1 + seed % self.settings.entities };
        }
        let number = if rule.root { place + 1 } else { 1 + seed % self.settings.entities };
        self.entity(type_id, number)
    }

    /// Returns the seed of the value of a field.
    pub(super) fn seed(identity: Identity, rule: &FieldRule, requested: &RequestedItems) -> u64 {
        let seed = mix(identity.seed, rule.salt);
        if requested.other == 0 { seed } else { mix(seed, requested.other) }
    }

    /// True if a nullable value is null.
    pub(super) fn is_null(&self, rule: &FieldRule, seed: u64) -> bool {
        self.settings.nulls > 0.0 && !rule.key && unit(mix(seed, 1)) < self.settings.nulls
    }

    /// Returns the length of a list, and the position of its first item.
    pub(super) fn list(&self, seed: u64, requested: &RequestedItems) -> (u64, u64) {
        let (fewest, most) = self.settings.list;
        let length = fewest + mix(seed, 2) % (most.saturating_sub(fewest) + 1);
        (requested.limit.map_or(length, |limit| limit.min(REQUESTED_ITEMS_MAX)), requested.offset)
    }
}

impl RequestedItems {
    /// Reads the arguments of a field of these types.
    pub(super) fn read(model: &Model, rule: &FieldRule, arguments: Map<String, Value>) -> Self {
        let mut requested = Self::default();
        let types: &[TypeId] = match &rule.kind {
            FieldRuleKind::Object(types) => types,
            FieldRuleKind::Leaf(_) => &[],
        };
        for (name, value) in arguments {
            if value.is_null() {
                continue;
            }
            let count = value.as_u64();
            if let Some(count) = count.filter(|_| LIMIT_ARGUMENTS.contains(&&*name)) {
                requested.limit = Some(count);
            } else if let Some(count) = count.filter(|_| OFFSET_ARGUMENTS.contains(&&*name)) {
                requested.offset = count;
            } else if let Some(key) =
                types.iter().find_map(|id| key_member(model.object(*id), &name, &value))
            {
                requested.keys.push((key, value));
            } else {
                requested.other = mix_text(
                    mix_text(requested.other, name.as_bytes()),
                    value.to_string().as_bytes(),
                );
            }
        }
        requested
    }

    /// Returns the number of entities requested by their keys; `None` unless the keys are a list.
    pub(super) fn key_count(&self) -> Option<u64> {
        self.keys.iter().find_map(|(_, value)| value.as_array()).map(|keys| keys.len() as u64)
    }

    /// Returns the key of the requested entity, alone or at this position of a list.
    pub(super) fn key(&self, place: u64) -> Option<Map<String, Value>> {
        if self.keys.is_empty() {
            return None;
        }
        let at = |value: &Value| match value {
            Value::Array(values) => values.get(usize::try_from(place).ok()?).cloned(),
            one => Some(one.clone()),
        };
        self.keys.iter().map(|(name, value)| Some((name.to_string(), at(value)?))).collect()
    }
}

/// Returns the member of a key that an argument refers to: `id`, `ids` or `userId` for the key `id` of `User`.
fn key_member(object: &ObjectType, argument: &str, value: &Value) -> Option<Box<str>> {
    if value.is_object() {
        return None;
    }
    let argument = argument.to_ascii_lowercase();
    let argument = match value {
        Value::Array(_) => argument.strip_suffix('s')?,
        _ => &argument,
    };
    let argument = argument.strip_prefix(&object.name.to_ascii_lowercase()).unwrap_or(argument);
    let members = object.keys.iter().flat_map(KeyFields::members);
    members.filter(|member| member.eq_ignore_ascii_case(argument)).map(Box::from).next()
}

/// Returns the number in a key: its last digits, or a hash of the whole text.
fn number_in(text: &str) -> u64 {
    let end = text.bytes().rposition(|byte| byte.is_ascii_digit()).map_or(0, |last| last + 1);
    let digits = text[..end].bytes().rev().take_while(u8::is_ascii_digit).count();
    text[end - digits..end]
        .parse()
        .unwrap_or_else(|_| u64::from(mix_text(0, text.as_bytes()) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_all_formats_lead_to_their_number() {
        for (text, expected) in [
            ("17", 17),
            ("upc-17", 17),
            ("user17@example.com", 17),
            ("00000000-0000-4000-8000-000000000017", 17),
            ("0", 0),
        ] {
            assert_eq!(number_in(text), expected, "{text}");
        }
        assert_eq!(number_in("abc"), number_in("abc"));
        assert_ne!(number_in("abc"), number_in("abd"));
        assert_ne!(number_in(""), number_in("99999999999999999999999"));
    }
}
