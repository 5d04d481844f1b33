//! The evaluation of a program: the interpreter of `cel` asks for slots by name, and gets facts.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use cel::common::types::{CelBool, CelDouble, CelInt, CelNull, CelOptional, CelString};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use cel::{Context, ExecutionError};
use execute::{ClaimValues, Claims};
use http::{HeaderMap, HeaderName};

use crate::checker::{PATTERN, STEP};
use crate::claim_value::{self, BoxedValue};
use crate::fact::{Access, Fact, Slot};
use crate::facts::{ClaimFacts, RequestFacts};
use crate::functions::{TOO_LONG, environment};
use crate::program::Program;
use crate::value::{EvaluationError, STEPS_MAX, Value};

impl Program {
    /// Evaluates the program.
    ///
    /// # Errors
    /// There is no value: a fact is absent, a type does not fit, or a limit is reached.
    // hot path: two header expressions of 3 µs at most for each request; `benches/evaluation.rs`
    pub fn evaluate(&self, facts: &RequestFacts<'_>) -> Result<Value, EvaluationError> {
        evaluate(self, facts)
    }

    /// Evaluates a condition.
    ///
    /// # Errors
    /// Those of [`Program::evaluate`], and [`EvaluationError::WrongType`] for any value but true and false.
    pub fn is_true(&self, facts: &RequestFacts<'_>) -> Result<bool, EvaluationError> {
        match self.evaluate(facts)? {
            Value::Bool(value) => Ok(value),
            _ => Err(EvaluationError::WrongType),
        }
    }
}

fn evaluate(program: &Program, facts: &RequestFacts<'_>) -> Result<Value, EvaluationError> {
    let resolver = Resolver::new(program, facts);
    // The interpreter is foreign code. It has no known panic for checked programs, and one would only cost its own
    // evaluation.
    let evaluated = catch_unwind(AssertUnwindSafe(|| {
        let mut context = Context::with_env(Arc::clone(environment()));
        context.set_variable_resolver(&resolver);
        let result = cel::Value::resolve_val(program.tree(), &context);
        result.map_or_else(|error| Err(resolver.reason(&error)), |value| convert(value.as_ref()))
    }));
    evaluated.unwrap_or(Err(EvaluationError::Failed))
}

/// Converts the result of the interpreter.
fn convert(value: &dyn Val) -> Result<Value, EvaluationError> {
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        return Ok(Value::Text(text.inner().into()));
    }
    if let Some(value) = value.downcast_ref::<CelBool>() {
        return Ok(Value::Bool(*value.inner()));
    }
    if let Some(number) = value.downcast_ref::<CelInt>() {
        return Ok(Value::Integer(*number.inner()));
    }
    if let Some(number) = value.downcast_ref::<CelDouble>() {
        return Ok(Value::Float(*number.inner()));
    }
    if value.downcast_ref::<CelNull>().is_some() {
        return Ok(Value::Null);
    }
    match value.downcast_ref::<CelOptional<'_>>() {
        Some(optional) => optional.option().map_or(Ok(Value::Null), convert),
        None => Err(EvaluationError::WrongType),
    }
}

/// Gives facts to the interpreter.
struct Resolver<'a> {
    program: &'a Program,
    facts: &'a RequestFacts<'a>,
    /// The claims that the program reads, if they come from a whole token.
    selected: OnceLock<ClaimValues>,
    /// The converted claims, by slot. A loop may read them many times.
    converted: Box<[OnceLock<Option<BoxedValue>>]>,
    steps: AtomicU32,
    is_too_large: AtomicBool,
}

impl<'a> Resolver<'a> {
    fn new(program: &'a Program, facts: &'a RequestFacts<'a>) -> Self {
        let slots = if program.references().claims.is_empty() { 0 } else { program.slots().len() };
        Self {
            program,
            facts,
            selected: OnceLock::new(),
            converted: (0..slots).map(|_| OnceLock::new()).collect(),
            steps: AtomicU32::new(0),
            is_too_large: AtomicBool::new(false),
        }
    }

    /// Returns the reason for an error of the interpreter. The error itself may contain values.
    fn reason(&self, error: &ExecutionError) -> EvaluationError {
        if self.steps.load(Ordering::Relaxed) > STEPS_MAX {
            return EvaluationError::TooManySteps;
        }
        if self.is_too_large.load(Ordering::Relaxed) {
            return EvaluationError::TooLarge;
        }
        match error {
            ExecutionError::UndeclaredReference(name) => match self.slot(name) {
                Some((_, slot)) => EvaluationError::Absent { fact: slot.fact.to_string().into() },
                None => EvaluationError::Failed,
            },
            ExecutionError::NoSuchKey(_) | ExecutionError::IndexOutOfBounds(_) => {
                EvaluationError::NoElement
            }
            ExecutionError::DivisionByZero(_)
            | ExecutionError::RemainderByZero(_)
            | ExecutionError::Overflow(..) => EvaluationError::OutOfRange,
            ExecutionError::FunctionError { message, .. } if message == TOO_LONG => {
                EvaluationError::TooLarge
            }
            ExecutionError::FunctionError { function, .. }
                if ["int", "double"].contains(&function.as_str()) =>
            {
                EvaluationError::NotANumber
            }
            _ => EvaluationError::WrongType,
        }
    }

    fn slot(&self, name: &str) -> Option<(usize, &'a Slot)> {
        let index = name.strip_prefix('@')?.parse::<usize>().ok()?;
        self.program.slots().get(index).map(|slot| (index, slot))
    }

    /// Returns the value of a fact; `None` if it is absent.
    fn value<'b>(&'b self, index: usize, fact: &Fact) -> Option<CowVal<'b, 'b>> {
        let facts = self.facts;
        let text = |text: &'b str| Some(CowVal::owned(CelString::from(text)));
        let number = |number: i64| Some(CowVal::owned(CelInt::from(number)));
        match fact {
            Fact::Method => text(facts.method),
            Fact::Path => text(facts.path),
            Fact::ClientAddress => {
                let address = facts.client_address?;
                Some(CowVal::owned(CelString::from(address.to_string())))
            }
            Fact::IsTls => Some(CowVal::owned(CelBool::from(facts.is_tls))),
            Fact::ClientName => text(facts.client.name),
            Fact::ClientVersion => text(facts.client.version),
            Fact::OperationName => text(facts.operation?.name),
            Fact::OperationKind => text(facts.operation?.kind),
            Fact::OperationId => text(facts.operation?.id),
            Fact::OperationDepth => number(facts.operation?.depth?.into()),
            Fact::OperationCost => number(facts.operation?.cost?.try_into().unwrap_or(i64::MAX)),
            Fact::SubgraphName => text(facts.subgraph?),
            Fact::Status => number(facts.outcome?.status?.into()),
            Fact::Errors => number(facts.outcome?.errors.try_into().unwrap_or(i64::MAX)),
            Fact::ResponseBytes => number(facts.outcome?.bytes?.try_into().unwrap_or(i64::MAX)),
            Fact::Milliseconds => {
                number(facts.outcome?.milliseconds.try_into().unwrap_or(i64::MAX))
            }
            Fact::Header(name) => header(facts.headers?, name),
            Fact::ResponseHeader(name) => header(facts.response?.headers, name),
            Fact::Claim(_) => {
                let converted = self.converted.get(index)?.get_or_init(|| {
                    let converted = claim_value::convert(self.claim(fact)?);
                    if converted.is_none() {
                        self.is_too_large.store(true, Ordering::Relaxed);
                    }
                    converted
                });
                converted.as_deref().map(|value| CowVal::Borrowed(value as &dyn Val))
            }
        }
    }

    /// True if a fact is present.
    fn is_present(&self, fact: &Fact) -> bool {
        match fact {
            Fact::Header(name) => self.facts.headers.is_some_and(|it| it.contains_key(name)),
            Fact::ResponseHeader(name) => {
                self.facts.response.is_some_and(|it| it.headers.contains_key(name))
            }
            Fact::Claim(_) => self.claim(fact).is_some(),
            other => self.value(0, other).is_some(),
        }
    }

    /// Returns the JSON text of a claim.
    fn claim(&self, fact: &Fact) -> Option<&str> {
        let Fact::Claim(path) = fact else { return None };
        match self.facts.claims {
            ClaimFacts::Anonymous => None,
            ClaimFacts::Selected(values) => values.json(path),
            ClaimFacts::Token(claims) => {
                let paths = &self.program.references().claims;
                self.selected.get_or_init(|| Claims::select(Some(claims), paths)).json(path)
            }
        }
    }
}

impl VariableResolver for Resolver<'_> {
    fn resolve<'b>(&'b self, name: &str) -> Option<CowVal<'b, 'b>> {
        if !name.starts_with('@') {
            return None;
        }
        if let Some((index, slot)) = self.slot(name) {
            return match slot.access {
                Access::Value => self.value(index, &slot.fact),
                Access::Presence => Some(CowVal::owned(CelBool::from(self.is_present(&slot.fact)))),
                Access::Optional => {
                    let value = self.value(index, &slot.fact);
                    let optional = value.map_or_else(CelOptional::none, |value| {
                        CelOptional::of(value.into_owned())
                    });
                    Some(CowVal::owned(optional))
                }
            };
        }
        if name == STEP {
            let steps = self.steps.fetch_add(1, Ordering::Relaxed);
            // An absent variable ends the loop with an error.
            return (steps < STEPS_MAX).then(|| CowVal::owned(CelBool::from(true)));
        }
        let pattern = name.strip_prefix(PATTERN)?.parse::<usize>().ok()?;
        self.program.patterns().get(pattern).map(|pattern| CowVal::Borrowed(pattern as &dyn Val))
    }
}

/// Returns the value of a header; the values of a repeated one are joined by commas (RFC 9110, section 5.3). Bytes that
/// are not text are replaced, so that a client cannot make a header look absent.
fn header<'b>(headers: &'b HeaderMap, name: &HeaderName) -> Option<CowVal<'b, 'b>> {
    let mut values = headers.get_all(name).iter().map(|it| String::from_utf8_lossy(it.as_bytes()));
    let first = values.next()?;
    let joined = values.fold(first, |mut joined, value| {
        let text = joined.to_mut();
        text.push_str(", ");
        text.push_str(&value);
        joined
    });
    Some(CowVal::owned(match joined {
        Cow::Borrowed(text) => CelString::from(text),
        Cow::Owned(text) => CelString::from(text),
    }))
}
