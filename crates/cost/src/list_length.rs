//! The length of a list that depends on the values of variables.

use std::cell::RefCell;

use astjson::Document;
use bytes::Bytes;
use graph::{ConstValue, Field, ListSize};
use plan::{Value, VariableId, Variables};

/// The length of a list by its slicing arguments.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ListLength {
    /// The slicing arguments with values of variables.
    arguments: Box<[SlicingVariable]>,
    /// The largest value of the other slicing arguments, if any has one.
    constant: Option<u64>,
    /// The number of other slicing arguments that the operation gives.
    given: usize,
    /// The length without a slicing argument.
    default: u64,
    /// The coordinate of the field, if an operation may give only one slicing argument.
    only_one: Option<Box<str>>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct SlicingVariable {
    variable: VariableId,
    /// The path to the number inside of the variable's value.
    path: Box<[Box<str>]>,
    /// The default of the argument, if the variable has no value.
    default: Option<u64>,
}

/// A length that is known when an operation is compiled, or one that is not.
pub(crate) enum Length {
    Constant(u64),
    Variable(ListLength),
}

/// The length of one list in one request.
pub(crate) struct EvaluatedLength {
    pub(crate) length: u64,
    /// True if several slicing arguments are given and only one is allowed.
    pub(crate) is_conflict: bool,
}

impl Length {
    /// Returns the length of the list of `field` with these arguments. `default` is the length of a list without a
    /// directive.
    pub(crate) fn of(
        size: &ListSize,
        field: &Field,
        parent: &str,
        arguments: &[(Box<str>, Value)],
        default: u64,
    ) -> Self {
        let mut variables = Vec::new();
        let (mut constant, mut given) = (None, 0);
        for path in &size.slicing_arguments {
            let Some((name, members)) = path.split_first() else { continue };
            let declared = field.arguments.iter().find(|it| it.name == *name);
            let declared = declared.and_then(|it| ConstValue::parse(it.default.as_deref()?));
            let declared = declared.and_then(|it| default_number(&it, members));
            let value = arguments.iter().find(|(known, _)| known == name).map(|(_, value)| value);
            match value.map(|value| follow(value, members)) {
                Some(Followed::Variable(variable, rest)) => variables.push(SlicingVariable {
                    variable,
                    path: rest.into(),
                    default: declared,
                }),
                Some(Followed::Number(number)) => {
                    constant = constant.max(Some(number));
                    given += 1;
                }
                // An explicit null is no limit.
                Some(Followed::Nothing) => {}
                None => constant = constant.max(declared),
            }
        }
        let default = size.assumed_size.unwrap_or(default);
        let may_conflict = size.takes_one_argument && variables.len() + given > 1;
        if variables.is_empty() && !may_conflict {
            return Self::Constant(constant.unwrap_or(default));
        }
        let only_one = may_conflict.then(|| format!("{parent}.{}", field.name).into());
        Self::Variable(ListLength {
            arguments: variables.into(),
            constant,
            given,
            default,
            only_one,
        })
    }
}

impl ListLength {
    /// Returns the length for these values of variables: the largest of the slicing arguments.
    pub(crate) fn evaluate(&self, variables: &Variables) -> EvaluatedLength {
        let (mut largest, mut given) = (self.constant, self.given);
        for argument in &self.arguments {
            match argument.read(variables) {
                SlicingValue::Number(number) => {
                    largest = largest.max(Some(number));
                    given += 1;
                }
                SlicingValue::Null => {}
                SlicingValue::Missing => largest = largest.max(argument.default),
            }
        }
        EvaluatedLength {
            length: largest.unwrap_or(self.default),
            is_conflict: self.only_one.is_some() && given > 1,
        }
    }

    /// The coordinate of the field, if an operation may give only one slicing argument.
    pub(crate) fn only_one(&self) -> Option<&str> {
        self.only_one.as_deref()
    }
}

/// The value of a slicing argument in one request.
enum SlicingValue {
    Number(u64),
    Null,
    Missing,
}

thread_local! {
    /// A document that keeps its memory between requests of this thread.
    static DOCUMENT: RefCell<Document> = RefCell::new(Document::new());
}

impl SlicingVariable {
    fn read(&self, variables: &Variables) -> SlicingValue {
        let Some(text) = variables.get(self.variable) else { return SlicingValue::Missing };
        if self.path.is_empty() {
            return parse_number(text).map_or(SlicingValue::Null, SlicingValue::Number);
        }
        DOCUMENT.with_borrow_mut(|document| {
            let value = document.parse(Bytes::copy_from_slice(text.as_bytes()));
            let value = value.ok().and_then(|value| {
                let mut path = self.path.iter();
                path.try_fold(value, |object, name| document.get(object, name))
            });
            let number = value.and_then(|value| parse_number(document.raw(value)));
            document.reset();
            number.map_or(SlicingValue::Null, SlicingValue::Number)
        })
    }
}

/// Reads an integer. A negative one asks for nothing. `None` if it is null.
fn parse_number(text: &str) -> Option<u64> {
    let number: i64 = text.parse().ok()?;
    Some(number.max(0) as u64)
}

/// The end of a path in a value.
enum Followed<'p> {
    Number(u64),
    /// A variable, and the part of the path inside of its value.
    Variable(VariableId, &'p [Box<str>]),
    Nothing,
}

fn follow<'p>(value: &Value, path: &'p [Box<str>]) -> Followed<'p> {
    match (value, path) {
        (Value::Variable(variable), rest) => Followed::Variable(*variable, rest),
        (Value::Int(text), []) => parse_number(text).map_or(Followed::Nothing, Followed::Number),
        (Value::Object(members), [name, rest @ ..]) => {
            match members.iter().find(|(known, _)| known == name) {
                Some((_, member)) => follow(member, rest),
                None => Followed::Nothing,
            }
        }
        _ => Followed::Nothing,
    }
}

fn default_number(value: &ConstValue, path: &[Box<str>]) -> Option<u64> {
    match (value, path) {
        (ConstValue::Int(text), []) => parse_number(text),
        (ConstValue::Object(members), [name, rest @ ..]) => {
            let (_, member) = members.iter().find(|(known, _)| known == name)?;
            default_number(member, rest)
        }
        _ => None,
    }
}
