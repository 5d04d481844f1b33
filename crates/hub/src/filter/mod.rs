//! Which events concern which group: `@openfed__subscriptionFilter`, compiled when a graph is loaded
//! ([`condition`]), rendered with the arguments of each subscription into a [`Filter`], and looked up by value for each
//! event ([`index`]).

pub(crate) mod condition;
pub(crate) mod index;

use std::sync::Arc;

use astjson::{Document, Kind, NodeId};
use events::Event;

use crate::binding::payload::Origin;

/// Nesting of an event that filters look into. Deeper ones are no events either.
const DEPTH_MAX: u32 = 64;

/// Which events a subscription gets.
#[derive(Clone, PartialEq, Debug)]
pub struct Filter {
    condition: Condition,
    /// The field has a key beside the payload: an event without a payload is fine, and has nothing but that.
    is_keyed: bool,
}

/// A condition with the values of one subscription.
#[derive(Clone, PartialEq, Debug)]
enum Condition {
    /// The field has one of these values.
    In(Arc<FieldPath>, Box<[Key]>),
    And(Box<[Condition]>),
    Or(Box<[Condition]>),
    Not(Box<Condition>),
}

/// A field of the event, and how its values are compared.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FieldPath {
    /// From the payload's root down.
    names: Box<[Box<str>]>,
    /// Beside the payload, where its value comes from there.
    origin: Option<Arc<Origin>>,
    comparison: Comparison,
}

/// How values are compared: as the type of the field says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Comparison {
    /// `ID`, `String`, enums, and scalars that nobody knows: the text. A number is as good as its digits.
    Text,
    /// `Int` and `Float`: `1` and `1.0` are equal.
    Number,
    /// `Boolean`.
    Boolean,
}

/// A value in the form in which equal ones are equal.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Key {
    Null,
    Boolean(bool),
    Integer(i64),
    /// The bits of a number that is no integer.
    Fraction(u64),
    Text(Box<str>),
}

impl Comparison {
    /// The key of a value that is written like this in JSON, without its quotes. `None`: no value of the type is.
    fn key(self, text: &str) -> Option<Key> {
        match self {
            Self::Text => Some(Key::Text(text.into())),
            Self::Boolean => text.parse().ok().map(Key::Boolean),
            Self::Number => {
                if let Ok(integer) = text.parse() {
                    return Some(Key::Integer(integer));
                }
                let number: f64 = text.parse().ok().filter(|number: &f64| number.is_finite())?;
                // Up to here every integer is a number of its own.
                let is_integer = number.fract() == 0.0 && number.abs() <= (1_u64 << 53) as f64;
                Some(match is_integer {
                    true => Key::Integer(number as i64),
                    false => Key::Fraction(number.to_bits()),
                })
            }
        }
    }
}

/// An event that filters look into.
pub(crate) struct FilteredEvent {
    event: Arc<Event>,
    document: Document,
    root: NodeId,
    /// It has no payload, or none that was kept.
    is_empty: bool,
}

impl FilteredEvent {
    /// `None`: it is neither a JSON object nor empty. Such an event passes no filter.
    pub(crate) fn read(event: &Arc<Event>) -> Option<Self> {
        let mut document = Document::with_depth_limit(DEPTH_MAX);
        let is_empty = event.payload.is_empty();
        let root = match is_empty {
            // What stands beside it may be all that there is to say.
            true => document.new_object(),
            false => document.parse(event.payload.clone()).ok()?,
        };
        let event = Arc::clone(event);
        (document.kind(root) == Kind::Object).then_some(Self { event, document, root, is_empty })
    }

    /// The value at `path`. `None`: there is none, or none that can be compared.
    fn key(&self, path: &FieldPath) -> Option<Key> {
        if let Some(origin) = &path.origin {
            return path.comparison.key(origin.value(&self.event)?);
        }
        let mut node = self.root;
        for name in &path.names {
            if self.document.kind(node) != Kind::Object {
                return None;
            }
            node = self.document.get(node, name)?;
        }
        match self.document.kind(node) {
            Kind::Null => Some(Key::Null),
            Kind::String => path.comparison.key(&self.document.as_str(node)?),
            Kind::Number | Kind::Bool => path.comparison.key(self.document.raw(node)),
            Kind::Array | Kind::Object => None,
        }
    }
}

impl Filter {
    /// Does the event concern who has this filter?
    pub(crate) fn passes(&self, event: &FilteredEvent) -> bool {
        (self.is_keyed || !event.is_empty) && self.condition.holds(event)
    }

    /// Is it as good as none? Then also what is no event at all concerns who has it.
    pub(crate) fn passes_everything(&self) -> bool {
        matches!(&self.condition, Condition::And(all) if all.is_empty())
    }

    /// Values of which an event that passes has at least one. `None`: events may pass for other reasons.
    fn needs(&self) -> Option<Vec<(&Arc<FieldPath>, &Key)>> {
        self.condition.needs()
    }
}

impl Condition {
    fn holds(&self, event: &FilteredEvent) -> bool {
        match self {
            Self::In(path, keys) => event.key(path).is_some_and(|key| keys.contains(&key)),
            Self::And(all) => all.iter().all(|it| it.holds(event)),
            Self::Or(any) => any.iter().any(|it| it.holds(event)),
            Self::Not(it) => !it.holds(event),
        }
    }

    fn needs(&self) -> Option<Vec<(&Arc<FieldPath>, &Key)>> {
        match self {
            Self::In(path, keys) => Some(keys.iter().map(|key| (path, key)).collect()),
            // One of them is enough: the one that fewest events have.
            Self::And(all) => all.iter().filter_map(Self::needs).min_by_key(Vec::len),
            Self::Or(any) => {
                let needs: Option<Vec<_>> = any.iter().map(Self::needs).collect();
                needs.map(|it| it.concat())
            }
            Self::Not(_) => None,
        }
    }
}

#[cfg(test)]
impl Filter {
    /// The field has one of these values.
    pub(crate) fn one_of(field: &str, values: &[u64]) -> Self {
        let names = Box::new([field.into()]);
        let path = FieldPath { names, origin: None, comparison: Comparison::Text };
        let keys = values.iter().map(|value| Key::Text(value.to_string().into()));
        Self::plain(Condition::In(Arc::new(path), keys.collect()))
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self::plain(Condition::And(Box::new([self.condition, other.condition])))
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self::plain(Condition::Or(Box::new([self.condition, other.condition])))
    }

    pub(crate) fn negated(self) -> Self {
        Self::plain(Condition::Not(Box::new(self.condition)))
    }

    fn plain(condition: Condition) -> Self {
        Self { condition, is_keyed: false }
    }
}
