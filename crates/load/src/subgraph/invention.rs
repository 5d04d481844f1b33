//! Data that is made up from a schema and a seed: for any object the same, whenever and in whichever subgraph it is
//! asked for.
//!
//! An entity is known by a number, which all its keys carry (`"17"`, `"upc-17"`, `user17@example.com`), so that each key
//! leads to the same entity. What an object holds follows from its identity and the field's name alone; nothing is
//! stored. What leaves look like is in `leaf`.

mod guess;
mod leaf;
mod words;

use serde_json::{Map, Value};

use self::leaf::Leaf;
use super::model::{FieldIndex, KeyFields, Model, ObjectType, TypeId};
use crate::random::{mix, mix_text, unit};

/// Items of a list that a client asked for with an argument such as `first`.
const ASKED_ITEMS_MAX: u64 = 100_000;

/// Arguments that say how many items a list is to have.
const LIMIT_ARGUMENTS: [&str; 9] =
    ["first", "last", "limit", "take", "count", "size", "pageSize", "perPage", "top"];

/// Arguments that say how many items come before the first one.
const OFFSET_ARGUMENTS: [&str; 3] = ["offset", "skip", "start"];

/// How data is made up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Invention {
    /// Another seed, other data.
    pub seed: u64,
    /// How many entities of each type refer to each other.
    pub entities: u64,
    /// The fewest and the most items of a list.
    pub list: (u64, u64),
    /// The share of nullable fields that are null.
    pub nulls: f64,
}

impl Default for Invention {
    fn default() -> Self {
        Self { seed: 1, entities: 1000, list: (1, 5), nulls: 0.0 }
    }
}

/// Which object it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    seed: u64,
    number: u64,
}

/// How to make up every field of a schema.
pub(super) struct Inventor {
    settings: Invention,
    /// By type, by field.
    fields: Vec<Box<[Made]>>,
    /// By type; for the seeds of its entities.
    names: Vec<u64>,
}

/// How a field is made up.
pub(super) struct Made {
    /// The field's name, mixed into the seed of what it holds.
    salt: u64,
    pub(super) kind: MadeKind,
    /// Part of a key: never null.
    key: bool,
    /// Of a root type: its lists begin with the first entities.
    root: bool,
}

/// What a field holds.
pub(super) enum MadeKind {
    Leaf(Leaf),
    /// One of these types.
    Object(Box<[TypeId]>),
}

/// What a field's arguments ask for.
#[derive(Default)]
pub(super) struct Wishes {
    limit: Option<u64>,
    offset: u64,
    /// Keys of the entities that are asked for, one or a list of them.
    keys: Vec<(Box<str>, Value)>,
    /// All other arguments.
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
                            true => MadeKind::Object(model.possible_types(&field.named).into()),
                            false => {
                                MadeKind::Leaf(guess::leaf_of(&model.schema, object, field, key))
                            }
                        };
                        Made { salt: mix_text(0, field.name.as_bytes()), kind, key, root }
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

    pub(super) fn field(&self, type_id: TypeId, index: FieldIndex) -> &Made {
        &self.fields[type_id.index()][usize::from(index)]
    }

    /// A root type's object.
    pub(super) fn root(&self, type_id: TypeId) -> Identity {
        Identity { seed: self.names[type_id.index()], number: 1 }
    }

    /// The entity with this number.
    fn entity(&self, type_id: TypeId, number: u64) -> Identity {
        Identity { seed: mix(self.names[type_id.index()], number), number }
    }

    /// The entity that a representation, or the arguments of a root field, mean.
    pub(super) fn by_key(
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

    /// The object at a place of a field, in a list or alone.
    pub(super) fn object(
        &self,
        model: &Model,
        made: &Made,
        type_id: TypeId,
        seed: u64,
        place: u64,
    ) -> Identity {
        if model.object(type_id).keys.is_empty() {
            return Identity { seed, number: 1 + seed % self.settings.entities };
        }
        let number = if made.root { place + 1 } else { 1 + seed % self.settings.entities };
        self.entity(type_id, number)
    }

    /// The seed of what a field holds.
    pub(super) fn seed(identity: Identity, made: &Made, wishes: &Wishes) -> u64 {
        let seed = mix(identity.seed, made.salt);
        if wishes.other == 0 { seed } else { mix(seed, wishes.other) }
    }

    /// Whether a nullable value is null.
    pub(super) fn is_null(&self, made: &Made, seed: u64) -> bool {
        self.settings.nulls > 0.0 && !made.key && unit(mix(seed, 1)) < self.settings.nulls
    }

    /// How many items a list has, and the place of the first.
    pub(super) fn list(&self, seed: u64, wishes: &Wishes) -> (u64, u64) {
        let (fewest, most) = self.settings.list;
        let length = fewest + mix(seed, 2) % (most.saturating_sub(fewest) + 1);
        (wishes.limit.map_or(length, |limit| limit.min(ASKED_ITEMS_MAX)), wishes.offset)
    }
}

impl Wishes {
    /// What the arguments of a field of these types ask for.
    pub(super) fn read(model: &Model, made: &Made, arguments: Map<String, Value>) -> Self {
        let mut wishes = Self::default();
        let types: &[TypeId] = match &made.kind {
            MadeKind::Object(types) => types,
            MadeKind::Leaf(_) => &[],
        };
        for (name, value) in arguments {
            if value.is_null() {
                continue;
            }
            let count = value.as_u64();
            if let Some(count) = count.filter(|_| LIMIT_ARGUMENTS.contains(&&*name)) {
                wishes.limit = Some(count);
            } else if let Some(count) = count.filter(|_| OFFSET_ARGUMENTS.contains(&&*name)) {
                wishes.offset = count;
            } else if let Some(key) =
                types.iter().find_map(|id| key_member(model.object(*id), &name, &value))
            {
                wishes.keys.push((key, value));
            } else {
                wishes.other =
                    mix_text(mix_text(wishes.other, name.as_bytes()), value.to_string().as_bytes());
            }
        }
        wishes
    }

    /// How many entities are asked for by their keys: nothing for a field that is not a list of them.
    pub(super) fn key_count(&self) -> Option<u64> {
        self.keys.iter().find_map(|(_, value)| value.as_array()).map(|keys| keys.len() as u64)
    }

    /// The key of the entity that is asked for, alone or at this place of a list.
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

/// The key's member that an argument stands for: `id`, `ids` or `userId` for the key `id` of `User`.
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

/// The number that a key carries: its last digits, or one that follows from the whole text.
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
    fn a_key_leads_to_its_number_whatever_it_looks_like() {
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
