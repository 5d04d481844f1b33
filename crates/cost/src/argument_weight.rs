//! The cost of an argument with a value that only the request has.

use std::cell::RefCell;

use astjson::Document;
use bytes::Bytes;
use plan::{Value, VariableId, Variables};

use crate::input_weights::{InputWeights, WeighedInput};

/// A variable in a weighed position.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ArgumentWeight {
    variable: VariableId,
    input: WeighedInput,
}

thread_local! {
    /// A document that keeps its memory between requests of this thread.
    static DOCUMENT: RefCell<Document> = RefCell::new(Document::new());
}

impl ArgumentWeight {
    /// Returns the cost of the variable's value; 0 without one.
    pub(crate) fn evaluate(&self, inputs: &InputWeights, variables: &Variables) -> i64 {
        let Some(text) = variables.get(self.variable).filter(|text| *text != "null") else {
            return 0;
        };
        if self.input.is_constant() {
            return self.input.declared();
        }
        DOCUMENT.with_borrow_mut(|document| {
            // Coerced values are JSON; text that is not would cost nothing.
            let value = document.parse(Bytes::copy_from_slice(text.as_bytes()));
            let cost = value.map_or(0, |value| inputs.weigh(document, value, self.input));
            document.reset();
            cost
        })
    }
}

/// The cost of one argument: a constant, and variables.
#[derive(Default)]
pub(crate) struct SplitWeight {
    pub(crate) constant: i64,
    pub(crate) variables: Vec<ArgumentWeight>,
}

impl SplitWeight {
    /// Adds the cost of `value`.
    pub(crate) fn add(&mut self, inputs: &InputWeights, input: WeighedInput, value: &Value) {
        if input.is_free() || *value == Value::Null {
            return;
        }
        if let Value::Variable(variable) = value {
            self.variables.push(ArgumentWeight { variable: *variable, input });
            return;
        }
        self.constant = self.constant.saturating_add(input.declared());
        self.add_values(inputs, input, value);
    }

    // Recursion is bounded by the depth that the parser of operations allows.
    fn add_values(&mut self, inputs: &InputWeights, input: WeighedInput, value: &Value) {
        match value {
            Value::Null => {}
            Value::List(elements) => {
                elements.iter().for_each(|element| self.add_values(inputs, input, element));
            }
            Value::Variable(variable) => {
                let input = input.without_declared();
                self.variables.push(ArgumentWeight { variable: *variable, input });
            }
            Value::Object(members) => {
                self.constant = self.constant.saturating_add(inputs.own_weight(input));
                for (name, member) in members {
                    if let Some(input) = inputs.member(input, name) {
                        self.add(inputs, input, member);
                    }
                }
            }
            _ => self.constant = self.constant.saturating_add(inputs.own_weight(input)),
        }
    }
}
