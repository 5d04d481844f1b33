//! A compiled cost: a sum of products that is evaluated for the variables of one request.

use std::collections::HashMap;

use plan::{Condition, Variables};
use smallvec::SmallVec;

use crate::argument_weight::ArgumentWeight;
use crate::input_weights::InputWeights;
use crate::list_length::{Length, ListLength};

/// A cost in thousandths: a constant, or the result of a step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Operand {
    Constant(u64),
    Step(u32),
}

impl Operand {
    pub(crate) const ZERO: Self = Self::Constant(0);
}

/// One step, which reads the results of steps before it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Step {
    Sum {
        constant: u64,
        steps: Box<[u32]>,
    },
    /// A cost for each element of a list.
    Times {
        length: u32,
        each: Operand,
    },
    /// A cost for each of a fixed number of elements.
    Repeat {
        count: u64,
        each: u32,
    },
    /// The largest of several costs.
    Largest {
        constant: u64,
        steps: Box<[u32]>,
    },
    /// A cost that counts if any of the conditions holds.
    When {
        any_of: Box<[Condition]>,
        cost: Operand,
    },
    /// A cost with that of arguments, which may be negative; the sum is not.
    WithArguments {
        cost: Operand,
        constant: i64,
        arguments: Box<[u32]>,
    },
}

/// The steps of the costs of one operation.
#[derive(Debug, Default)]
pub(crate) struct Program {
    steps: Vec<Step>,
    lengths: Vec<ListLength>,
    arguments: Vec<ArgumentWeight>,
}

/// A program that is being compiled. Equal steps become one.
#[derive(Default)]
pub(crate) struct ProgramBuilder {
    program: Program,
    steps: HashMap<Step, u32>,
    lengths: HashMap<ListLength, u32>,
    arguments: HashMap<ArgumentWeight, u32>,
}

/// The length of a list in a program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ProgramLength {
    Constant(u64),
    Variable(u32),
}

impl ProgramBuilder {
    pub(crate) fn finish(mut self) -> Program {
        self.program.steps.shrink_to_fit();
        self.program
    }

    fn step(&mut self, step: Step) -> Operand {
        if let Some(&known) = self.steps.get(&step) {
            return Operand::Step(known);
        }
        let index = self.program.steps.len() as u32;
        self.steps.insert(step.clone(), index);
        self.program.steps.push(step);
        Operand::Step(index)
    }

    pub(crate) fn length(&mut self, length: Length) -> ProgramLength {
        match length {
            Length::Constant(length) => ProgramLength::Constant(length),
            Length::Variable(length) => {
                let next = self.program.lengths.len() as u32;
                let index = *self.lengths.entry(length.clone()).or_insert(next);
                if index == next {
                    self.program.lengths.push(length);
                }
                ProgramLength::Variable(index)
            }
        }
    }

    pub(crate) fn argument(&mut self, argument: ArgumentWeight) -> u32 {
        let next = self.program.arguments.len() as u32;
        let index = *self.arguments.entry(argument).or_insert(next);
        if index == next {
            self.program.arguments.push(argument);
        }
        index
    }

    pub(crate) fn sum(&mut self, costs: impl IntoIterator<Item = Operand>) -> Operand {
        let (mut constant, mut steps) = (0_u64, Vec::new());
        for cost in costs {
            match cost {
                Operand::Constant(cost) => constant = constant.saturating_add(cost),
                Operand::Step(step) => steps.push(step),
            }
        }
        match (&steps[..], constant) {
            ([], constant) => Operand::Constant(constant),
            ([only], 0) => Operand::Step(*only),
            _ => self.step(Step::Sum { constant, steps: steps.into() }),
        }
    }

    pub(crate) fn largest(&mut self, costs: impl IntoIterator<Item = Operand>) -> Operand {
        let (mut constant, mut steps) = (0_u64, Vec::new());
        for cost in costs {
            match cost {
                Operand::Constant(cost) => constant = constant.max(cost),
                Operand::Step(step) => steps.push(step),
            }
        }
        steps.sort_unstable();
        steps.dedup();
        match (&steps[..], constant) {
            ([], constant) => Operand::Constant(constant),
            ([only], 0) => Operand::Step(*only),
            _ => self.step(Step::Largest { constant, steps: steps.into() }),
        }
    }

    pub(crate) fn times(&mut self, length: ProgramLength, each: Operand) -> Operand {
        match (length, each) {
            (_, Operand::Constant(0)) | (ProgramLength::Constant(0), _) => Operand::ZERO,
            (ProgramLength::Constant(1), each) => each,
            (ProgramLength::Constant(count), Operand::Constant(each)) => {
                Operand::Constant(each.saturating_mul(count))
            }
            (ProgramLength::Constant(count), Operand::Step(each)) => {
                self.step(Step::Repeat { count, each })
            }
            (ProgramLength::Variable(length), each) => self.step(Step::Times { length, each }),
        }
    }

    pub(crate) fn when(&mut self, any_of: &[Condition], cost: Operand) -> Operand {
        if any_of.is_empty() || cost == Operand::ZERO {
            return cost;
        }
        self.step(Step::When { any_of: any_of.into(), cost })
    }

    pub(crate) fn with_arguments(
        &mut self,
        cost: Operand,
        constant: i64,
        arguments: &[u32],
    ) -> Operand {
        match (arguments, cost) {
            ([], cost) if constant == 0 => cost,
            ([], Operand::Constant(cost)) => {
                Operand::Constant(cost.saturating_add_signed(constant))
            }
            _ => self.step(Step::WithArguments { cost, constant, arguments: arguments.into() }),
        }
    }
}

/// The values of a program's steps for one request.
pub(crate) struct Evaluated {
    steps: SmallVec<[u64; 32]>,
}

impl Evaluated {
    pub(crate) fn value(&self, operand: Operand) -> u64 {
        read(&self.steps, operand)
    }
}

fn read(steps: &[u64], operand: Operand) -> u64 {
    match operand {
        Operand::Constant(cost) => cost,
        // A step reads steps before it only.
        Operand::Step(step) => steps[step as usize],
    }
}

impl Program {
    /// Evaluates all steps.
    // Hot path: once for each request where costs are configured; `cargo bench -p cost` measures it.
    pub(crate) fn evaluate(&self, inputs: &InputWeights, variables: &Variables) -> Evaluated {
        let lengths: SmallVec<[u64; 16]> =
            self.lengths.iter().map(|it| it.evaluate(variables).length).collect();
        let arguments = self.evaluate_arguments(inputs, variables);
        let mut steps: SmallVec<[u64; 32]> = SmallVec::with_capacity(self.steps.len());
        for step in &self.steps {
            let cost = match step {
                Step::Sum { constant, steps: terms } => {
                    let terms = terms.iter().map(|&term| steps[term as usize]);
                    terms.fold(*constant, u64::saturating_add)
                }
                Step::Times { length, each } => {
                    lengths[*length as usize].saturating_mul(read(&steps, *each))
                }
                Step::Repeat { count, each } => steps[*each as usize].saturating_mul(*count),
                Step::Largest { constant, steps: costs } => {
                    costs.iter().map(|&cost| steps[cost as usize]).fold(*constant, u64::max)
                }
                Step::When { any_of, cost } => {
                    match any_of.iter().any(|condition| condition.holds(variables)) {
                        true => read(&steps, *cost),
                        false => 0,
                    }
                }
                Step::WithArguments { cost, constant, arguments: given } => {
                    let given = given.iter().map(|&argument| arguments[argument as usize]);
                    let given = given.fold(*constant, i64::saturating_add);
                    read(&steps, *cost).saturating_add_signed(given)
                }
            };
            steps.push(cost);
        }
        Evaluated { steps }
    }

    /// Returns the costs of the arguments, by their index.
    pub(crate) fn evaluate_arguments(
        &self,
        inputs: &InputWeights,
        variables: &Variables,
    ) -> SmallVec<[i64; 8]> {
        self.arguments.iter().map(|it| it.evaluate(inputs, variables)).collect()
    }

    /// Returns the field with several slicing arguments of which only one is allowed, if there is one.
    pub(crate) fn find_conflict(&self, variables: &Variables) -> Option<&str> {
        let conflicts = self.lengths.iter().filter(|it| it.only_one().is_some());
        let mut conflicts = conflicts.filter(|it| it.evaluate(variables).is_conflict);
        conflicts.next().and_then(ListLength::only_one)
    }

    /// The number of steps, for the estimate of memory.
    pub(crate) fn len(&self) -> usize {
        self.steps.len() + self.lengths.len() + self.arguments.len()
    }
}
