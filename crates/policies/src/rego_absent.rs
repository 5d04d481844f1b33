//! The place of the interpreter of Rego in a build without it.

use crate::rego_defect::{EvaluationDefect, RegoDefect};
use crate::settings::RegoSettings;

/// An evaluator that no build without the feature `rego` can have.
#[derive(Debug)]
pub(crate) enum Evaluator {}

impl Evaluator {
    /// Refuses every rule.
    ///
    /// # Errors
    /// Always.
    pub(crate) fn new(_: &RegoSettings) -> Result<Self, RegoDefect> {
        let message = "this build of the router cannot evaluate Rego: it lacks the feature `rego`";
        Err(RegoDefect { message: message.to_owned(), file: None, place: None })
    }

    pub(crate) fn evaluate(&self, _: &[u8], _: &[&str]) -> Result<Box<[bool]>, EvaluationDefect> {
        match *self {}
    }
}
