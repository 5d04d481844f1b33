//! Filters of subscriptions: `@openfed__subscriptionFilter` is compiled when a graph is loaded ([`condition`]),
//! rendered with the arguments of each subscription into a [`Filter`], and looked up by value for each event
//! ([`index`]).

pub(crate) mod condition;
pub(crate) mod index;

use std::sync::Arc;

use astjson::{Document, Kind, NodeId};
use events::Event;

use crate::expression::{Expression, Truth};
use crate::payload_mapping::ValueOrigin;

/// The maximum nesting of an event that filters read. Deeper events are invalid for subscribers too.
const DEPTH_MAX: u32 = 64;

/// The filter that decides which events a subscription gets.
#[derive(Clone, PartialEq, Debug)]
pub struct Filter {
    condition: Expression<FieldCondition>,
    /// True if the field has a key outside the payload: an event may then have no payload, and consists of the key
    /// only.
    is_keyed: bool,
}

/// A condition on one field, with the values of one subscription: the field has one of them.
#[derive(Clone, PartialEq, Debug)]
struct FieldCondition {
    path: Arc<FieldPath>,
    keys: Box<[FilterValue]>,
}

/// A field of the event, and how its values are compared.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FieldPath {
    /// The names from the root of the payload to the field.
    names: Box<[Box<str>]>,
    /// The origin of the value, if it is outside the payload.
    origin: Option<Arc<ValueOrigin>>,
    comparison: Comparison,
}

/// The comparison of values, which the type of the field defines.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Comparison {
    /// `ID`, `String`, enums, and custom scalars: compared as text. A number equals its digits.
    Text,
    /// `Int` and `Float`: `1` and `1.0` are equal.
    Number,
    /// `Boolean`.
    Boolean,
}

/// A value in canonical form: equal values have equal keys.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum FilterValue {
    Null,
    Boolean(bool),
    Integer(i64),
    /// The bits of a number that is not an integer.
    Fraction(u64),
    Text(Box<str>),
}

impl Comparison {
    /// Returns the key of a value with this JSON text, without quotes. `None` if the type has no such value.
    fn key(self, text: &str) -> Option<FilterValue> {
        match self {
            Self::Text => Some(FilterValue::Text(text.into())),
            Self::Boolean => text.parse().ok().map(FilterValue::Boolean),
            Self::Number => {
                if let Ok(integer) = text.parse() {
                    return Some(FilterValue::Integer(integer));
                }
                let number: f64 = text.parse().ok().filter(|number: &f64| number.is_finite())?;
                // Up to 2^53 every integer has a representation of its own.
                let is_integer = number.fract() == 0.0 && number.abs() <= (1_u64 << 53) as f64;
                Some(match is_integer {
                    true => FilterValue::Integer(number as i64),
                    false => FilterValue::Fraction(number.to_bits()),
                })
            }
        }
    }
}

/// An event that is parsed for filters.
pub struct FilteredEvent {
    event: Arc<Event>,
    document: Document,
    root: NodeId,
    /// True if it has no payload, or the payload was dropped.
    is_empty: bool,
}

impl FilteredEvent {
    /// Parses an event. `None` if it is neither a JSON object nor empty. Such an event passes no filter.
    pub fn read(event: &Arc<Event>) -> Option<Self> {
        let mut document = Document::with_depth_limit(DEPTH_MAX);
        let is_empty = event.payload.is_empty();
        let root = match is_empty {
            // The values outside the payload may be all of the event.
            true => document.new_object(),
            false => document.parse(event.payload.clone()).ok()?,
        };
        let event = Arc::clone(event);
        (document.kind(root) == Kind::Object).then_some(Self { event, document, root, is_empty })
    }

    /// Returns the value at `path`. `None` if there is none, or if it cannot be compared.
    fn key(&self, path: &FieldPath) -> Option<FilterValue> {
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
            Kind::Null => Some(FilterValue::Null),
            Kind::String => path.comparison.key(&self.document.as_str(node)?),
            Kind::Number | Kind::Bool => path.comparison.key(self.document.raw(node)),
            Kind::Array | Kind::Object => None,
        }
    }
}

impl Filter {
    /// True if subscribers with this filter get the event.
    pub fn passes(&self, event: &FilteredEvent) -> bool {
        (self.is_keyed || !event.is_empty) && self.meets_condition(event)
    }

    fn meets_condition(&self, event: &FilteredEvent) -> bool {
        let has_one_of = |FieldCondition { path, keys }: &FieldCondition| {
            event.key(path).is_some_and(|key| keys.contains(&key)).into()
        };
        self.condition.evaluate(&has_one_of) == Truth::True
    }

    /// True if the filter is empty. Such subscribers also receive malformed events, as errors.
    pub(crate) fn passes_everything(&self) -> bool {
        matches!(&self.condition, Expression::And(all) if all.is_empty())
    }

    /// Returns values of which every passing event has at least one. `None` if events may pass without any of them.
    fn needs(&self) -> Option<Vec<(&Arc<FieldPath>, &FilterValue)>> {
        required_values(&self.condition)
    }
}

/// Returns values of which every event that meets the condition has at least one. `None` if there are none.
fn required_values(
    condition: &Expression<FieldCondition>,
) -> Option<Vec<(&Arc<FieldPath>, &FilterValue)>> {
    match condition {
        Expression::Leaf(FieldCondition { path, keys }) => {
            Some(keys.iter().map(|key| (path, key)).collect())
        }
        // One condition is enough: the one with the fewest values.
        Expression::And(all) => all.iter().filter_map(required_values).min_by_key(Vec::len),
        Expression::Or(any) => {
            let needs: Option<Vec<_>> = any.iter().map(required_values).collect();
            needs.map(|it| it.concat())
        }
        Expression::Not(_) => None,
    }
}

impl Filter {
    /// Returns a filter that passes events with one of these values in `field`. For tests of other crates.
    #[doc(hidden)]
    pub fn one_of(field: &str, values: &[u64]) -> Self {
        let names = Box::new([field.into()]);
        let path = FieldPath { names, origin: None, comparison: Comparison::Text };
        let keys = values.iter().map(|value| FilterValue::Text(value.to_string().into()));
        let condition = FieldCondition { path: Arc::new(path), keys: keys.collect() };
        Self { condition: Expression::Leaf(condition), is_keyed: false }
    }
}

#[cfg(test)]
impl Filter {
    pub(crate) fn and(self, other: Self) -> Self {
        Self::plain(Expression::And(Box::new([self.condition, other.condition])))
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self::plain(Expression::Or(Box::new([self.condition, other.condition])))
    }

    pub(crate) fn negated(self) -> Self {
        Self::plain(Expression::Not(Box::new(self.condition)))
    }

    fn plain(condition: Expression<FieldCondition>) -> Self {
        Self { condition, is_keyed: false }
    }
}
