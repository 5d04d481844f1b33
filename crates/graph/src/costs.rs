//! The weights and list sizes of the cost specification (`@cost`, `@listSize`), as a table beside the model: most
//! graphs have none. [`crate::sdl`] reads it.

use std::collections::HashMap;

use crate::{FieldId, TypeId};

/// The weights and list sizes of a supergraph. Elements without a directive are absent.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Costs {
    /// The weights of object, interface, scalar, enum and input types.
    pub types: HashMap<TypeId, Weight>,
    /// The costs of fields.
    pub fields: HashMap<FieldId, FieldCosts>,
    /// The weights of members of input types.
    pub input_fields: HashMap<TypeId, Vec<(Box<str>, Weight)>>,
    /// Slicing arguments and sized fields without effect, because the supergraph does not have them: composition drops
    /// arguments that not every subgraph has. At most [`IGNORED_MAX`] messages.
    pub ignored: Vec<String>,
}

/// The maximum number of messages in [`Costs::ignored`].
pub const IGNORED_MAX: usize = 20;

/// The costs of one field.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FieldCosts {
    /// The weight of each value of the field. It replaces the weight of the value's type.
    pub weight: Option<Weight>,
    /// The weights of arguments.
    pub arguments: Vec<(Box<str>, Weight)>,
    /// The length of the field's list.
    pub list_size: Option<ListSize>,
}

/// The length of a list, from `@listSize`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListSize {
    /// The length if no slicing argument is given.
    pub assumed_size: Option<u64>,
    /// The paths to the arguments that limit the length: the name of an argument, then members of input objects.
    pub slicing_arguments: Vec<Vec<Box<str>>>,
    /// The paths from the field's value to the lists that have this length.
    pub sized_fields: Vec<Vec<Box<str>>>,
    /// True if an operation may give only one of the slicing arguments.
    pub takes_one_argument: bool,
}

/// A weight, in thousandths: a directive may have fractions, and sums have to be exact.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Weight(pub i64);

impl Weight {
    /// The weight 1.
    pub const ONE: Self = Self(WEIGHT_PARTS);

    /// The maximum of a weight, and the minimum with a minus sign: far above all useful weights, far below the overflow
    /// of sums.
    pub const MAX: f64 = 1e9;

    /// Reads a number. `None` if it is not finite, or beyond [`Self::MAX`].
    pub fn parse(text: &str) -> Option<Self> {
        let number: f64 = text.trim().parse().ok()?;
        // Comparisons with NaN are false.
        (number.abs() <= Self::MAX).then(|| Self((number * WEIGHT_PARTS as f64).round() as i64))
    }
}

/// The number of parts of the weight 1.
pub const WEIGHT_PARTS: i64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_a_finite_number_of_moderate_size() {
        let read = |text| Weight::parse(text).map(|it| it.0);
        assert_eq!(read("5"), Some(5_000));
        assert_eq!(read(" -1.5 "), Some(-1_500));
        assert_eq!(read("0.0004"), Some(0));
        assert_eq!(read("1e9"), Some(1_000_000_000_000));
        for text in ["", "five", "NaN", "inf", "1e10", "-1e10", "1,5"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
