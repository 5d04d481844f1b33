//! Coerced variable values of one request, as JSON text. They are copied unchanged into subgraph requests and
//! identities, and are not parsed again.

/// The identity of a variable: an index into [`crate::Operation::variables`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VariableId(pub u16);

/// The values of variables, by [`VariableId`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Variables {
    /// Compact JSON text of each value after coercion and defaults, object members in the order of the input type;
    /// `None` if neither a value nor a default was given.
    pub values: Vec<Option<Box<str>>>,
}

impl Variables {
    /// Returns the JSON text of a value.
    pub fn get(&self, id: VariableId) -> Option<&str> {
        self.values.get(usize::from(id.0)).and_then(|value| value.as_deref())
    }

    /// True if the value is the boolean `true`.
    pub fn is_true(&self, id: VariableId) -> bool {
        self.get(id) == Some("true")
    }
}
