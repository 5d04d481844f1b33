//! The interpreter of Rego: the crate `regorus`, with the bounds that this process needs.
//!
//! Rules can read nothing but their input and data: the features of the interpreter that reach the network or the
//! environment are not built.

use std::fmt;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use regorus::utils::limits::ExecutionTimerConfig;
use regorus::{Engine, LimitError, Value};

use crate::rego_defect::{EvaluationDefect, RegoDefect};
use crate::settings::{RegoFile, RegoSettings};

/// The number of steps between two looks at the clock. A step takes some 100 ns, a look 25 ns.
const STEPS_PER_CHECK: NonZeroU32 = NonZeroU32::MIN.saturating_add(15);

/// Compiled rules.
pub(crate) struct Evaluator {
    /// The rules and their data. Each evaluation has a copy, which shares both.
    engine: Engine,
    query: Box<str>,
    timeout: Duration,
}

/// Prints no data.
impl fmt::Debug for Evaluator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Evaluator").field("query", &self.query).finish_non_exhaustive()
    }
}

impl Evaluator {
    /// Compiles the rules.
    ///
    /// # Errors
    /// The first mistake.
    pub(crate) fn new(settings: &RegoSettings) -> Result<Self, RegoDefect> {
        let mut engine = Engine::new();
        // As Open Policy Agent does: a function that fails has no value.
        engine.set_strict_builtin_errors(false);
        for RegoFile { name, text } in &settings.modules {
            let added = engine.add_policy(name.to_string(), text.to_string());
            added.map_err(|error| RegoDefect::of(&error, Some(name)))?;
        }
        for RegoFile { name, text } in &settings.data {
            let value = Value::from_json_str(text);
            let added = value.and_then(|value| engine.add_data(value));
            added.map_err(|error| RegoDefect::of(&error, Some(name)))?;
        }
        engine.set_execution_timer_config(ExecutionTimerConfig {
            limit: settings.timeout,
            check_interval: STEPS_PER_CHECK,
        });
        // This also orders the statements of all rules, once for all evaluations.
        let compiled = engine.compile_with_entrypoint(&(&*settings.query).into());
        compiled.map_err(|error| match RegoDefect::of(&error, None) {
            RegoDefect { message, file: None, .. } => {
                let message =
                    format!("`query`: no rule has the path `{}` ({message})", settings.query);
                RegoDefect { message, file: None, place: None }
            }
            defect => defect,
        })?;
        Ok(Self { engine, query: settings.query.clone(), timeout: settings.timeout })
    }

    /// Evaluates the rule for this input, and returns a decision for each of `policies`.
    pub(crate) fn evaluate(
        &self,
        input: &[u8],
        policies: &[&str],
    ) -> Result<Box<[bool]>, EvaluationDefect> {
        let text = std::str::from_utf8(input).map_err(|_| EvaluationDefect::Input)?;
        let input = Value::from_json_str(text).map_err(|_| EvaluationDefect::Input)?;
        let evaluate = || {
            let mut engine = self.engine.clone();
            engine.set_input(input);
            engine.eval_rule(self.query.to_string())
        };
        // A defect of the interpreter must not end the connection of the client. The copy of the engine is dropped, and
        // the parts that copies share do not change.
        let value =
            catch_unwind(AssertUnwindSafe(evaluate)).map_err(|_| EvaluationDefect::Panic)?;
        match value {
            Ok(value) => read_value(&value, policies),
            Err(error) if error.is::<LimitError>() => Err(EvaluationDefect::Timeout(self.timeout)),
            // The text of the error may contain values of the input.
            Err(error) => Err(match Excerpt::of(&error.to_string()) {
                Some(Excerpt { file, line, column, .. }) => {
                    EvaluationDefect::Failed { file: file.into(), line, column }
                }
                None => EvaluationDefect::FailedSomewhere,
            }),
        }
    }
}

/// Reads the value of a rule. A policy that it does not name is denied.
fn read_value(value: &Value, policies: &[&str]) -> Result<Box<[bool]>, EvaluationDefect> {
    let mut allowed = vec![false; policies.len()];
    let mut decide = |name: &Value, is_allowed: bool| {
        let name = name.as_string().map_err(|_| EvaluationDefect::Result)?;
        for (policy, decision) in policies.iter().zip(&mut allowed) {
            *decision |= is_allowed && **policy == **name;
        }
        Ok(())
    };
    match value {
        Value::Set(names) => names.iter().try_for_each(|name| decide(name, true))?,
        Value::Array(names) => names.iter().try_for_each(|name| decide(name, true))?,
        Value::Object(decisions) => decisions.iter().try_for_each(|(name, is_allowed)| {
            decide(name, *is_allowed.as_bool().map_err(|_| EvaluationDefect::Result)?)
        })?,
        Value::Undefined => return Err(EvaluationDefect::Undefined),
        _ => return Err(EvaluationDefect::Result),
    }
    Ok(allowed.into())
}

/// An error of the interpreter that shows the place of the mistake: `--> FILE:LINE:COLUMN`, the line with a mark below
/// it, and `error: MESSAGE`.
struct Excerpt<'a> {
    file: &'a str,
    line: u32,
    column: u32,
    message: &'a str,
}

impl<'a> Excerpt<'a> {
    /// Returns the first place that an error shows.
    fn of(text: &'a str) -> Option<Self> {
        let (_, rest) = text.split_once("--> ")?;
        let (place, rest) = rest.split_once('\n')?;
        let mut parts = place.rsplitn(3, ':');
        let (column, line, file) = (parts.next()?, parts.next()?, parts.next()?);
        let (_, message) = rest.split_once("\nerror: ")?;
        let message = message.lines().next()?;
        Some(Self { file, line: line.parse().ok()?, column: column.parse().ok()?, message })
    }
}

impl RegoDefect {
    /// Creates the defect of an error, which is in `file` if the error does not say where it is.
    fn of(error: &impl fmt::Display, file: Option<&str>) -> Self {
        let text = error.to_string();
        match Excerpt::of(&text) {
            Some(excerpt) => Self {
                message: excerpt.message.trim().to_owned(),
                file: Some(excerpt.file.into()),
                place: Some((excerpt.line, excerpt.column)),
            },
            None => Self {
                message: text.trim().replace('\n', " "),
                file: file.map(Into::into),
                place: None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::InputSettings;

    fn evaluator(rules: &str, timeout: Duration) -> Result<Evaluator, RegoDefect> {
        Evaluator::new(&RegoSettings {
            modules: vec![RegoFile { name: "rules.rego".into(), text: rules.into() }],
            data: vec![RegoFile {
                name: "data.json".into(),
                text: r#"{"departments":{"ann":"hr"}}"#.into(),
            }],
            query: "data.starling.allow".into(),
            input: InputSettings::default(),
            timeout,
        })
    }

    fn evaluate(rules: &str, input: &str) -> Result<Vec<bool>, EvaluationDefect> {
        let evaluator = evaluator(rules, Duration::from_secs(10)).expect("valid rules");
        evaluator.evaluate(input.as_bytes(), &["a", "b"]).map(Vec::from)
    }

    #[test]
    fn a_set_a_list_or_an_object_decides_and_what_it_does_not_name_is_denied() {
        let input = r#"{"policies":["a","b"],"claims":{"sub":"ann"}}"#;
        for (rules, expected) in [
            ("allow contains \"a\" if data.departments[input.claims.sub] == \"hr\"", [true, false]),
            ("allow contains p if { some p in input.policies; p == \"b\" }", [false, true]),
            ("allow contains \"a\" if input.claims.sub == \"bob\"", [false, false]),
            ("allow := [\"b\", \"other\", \"a\"]", [true, true]),
            ("allow[p] := p == \"a\" if some p in input.policies", [true, false]),
            ("allow := {}", [false, false]),
        ] {
            let rules = format!("package starling\n{rules}\n");
            assert_eq!(evaluate(&rules, input), Ok(expected.to_vec()), "{rules}");
        }
    }

    #[test]
    fn anything_else_decides_nothing_and_says_why_without_values() {
        for (rules, expected) in [
            ("allow := true", EvaluationDefect::Result),
            ("allow := {\"a\": 1}", EvaluationDefect::Result),
            ("allow := [true]", EvaluationDefect::Result),
            ("allow := [\"a\"] if input.none", EvaluationDefect::Undefined),
        ] {
            let rules = format!("package starling\n{rules}\n");
            assert_eq!(evaluate(&rules, "{\"secret\":\"hunter2\"}"), Err(expected), "{rules}");
        }
        let conflict = "package starling\nallow := input.x\nallow := input.secret\n";
        let failed = evaluate(conflict, r#"{"x":["a"],"secret":["hunter2"]}"#);
        let text = failed.expect_err("two values").to_string();
        assert!(text.starts_with("the evaluation failed at line "), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
        assert_eq!(evaluate("package starling\nallow := []", "{"), Err(EvaluationDefect::Input));
    }

    #[test]
    fn an_evaluation_ends_at_its_time_limit() {
        let rules = "package starling\n\
            n := numbers.range(1, 1000)\n\
            allow contains p if { some a in n; some b in n; some c in n; a + b + c < 0; p := \"a\" }\n";
        let timeout = Duration::from_millis(20);
        let evaluator = evaluator(rules, timeout).expect("valid rules");
        let started = std::time::Instant::now();
        let defect = evaluator.evaluate(b"{}", &["a"]).expect_err("a billion steps");
        assert_eq!(defect, EvaluationDefect::Timeout(timeout));
        // The evaluation takes minutes without a limit.
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }

    #[test]
    fn a_mistake_has_file_line_and_column() {
        let defect = |rules: &str| evaluator(rules, Duration::from_secs(1)).expect_err("a mistake");
        let broken = defect("package starling\nallow contains p if {\n  some p in\n}\n");
        assert_eq!(broken.file.as_deref(), Some("rules.rego"));
        assert!(broken.place.is_some_and(|(line, _)| (3..=4).contains(&line)), "{broken:?}");
        assert!(!broken.message.contains('\n') && !broken.message.is_empty(), "{broken:?}");
        let unknown = defect("package starling\nallow contains p if p == nothing\n");
        assert_eq!(unknown.place.map(|it| it.0), Some(2), "{unknown:?}");
        let missing = defect("package other\nallow := []\n");
        assert_eq!((missing.file.as_deref(), missing.place), (None, None), "{missing:?}");
        assert!(missing.message.contains("data.starling.allow"), "{missing:?}");
    }

    #[test]
    fn rules_reach_neither_the_network_nor_the_environment() {
        for call in [
            "http.send({\"method\": \"get\", \"url\": \"http://127.0.0.1:1\"})",
            "opa.runtime().env",
        ] {
            let rules = format!("package starling\nallow := x if x := {call}\n");
            let refused = match evaluator(&rules, Duration::from_secs(1)) {
                Err(_) => true,
                Ok(evaluator) => evaluator.evaluate(b"{}", &["a"]).is_err(),
            };
            assert!(refused, "{call}");
        }
    }
}
