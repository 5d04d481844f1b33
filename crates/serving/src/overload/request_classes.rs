//! The class of a request, and the client that has it in its share, by the expressions of the configuration.

use std::borrow::Cow;
use std::sync::Arc;

use admission::Class;
use config::Config;
use config::diagnostic::Diagnostic;
use execute::{ClaimPath, Claims};
use expressions::{ClaimFacts, Expected, Program, RequestFacts, Scope};

use super::arriving_request::ArrivingRequest;
use crate::expression_stats::ExpressionStats;
use crate::request_facts::{NeededFacts, compile, request_facts};

/// The expressions of `admission`, compiled.
#[derive(Debug)]
pub(super) struct RequestClasses {
    rules: Vec<ClassRule>,
    fair_by: Option<Program>,
    needed: NeededFacts,
    stats: Arc<ExpressionStats>,
}

#[derive(Debug)]
struct ClassRule {
    /// The path of the condition in the configuration.
    setting: Box<str>,
    condition: Program,
    class: Class,
}

impl RequestClasses {
    /// Compiles the expressions of a configuration.
    ///
    /// # Errors
    /// The configuration was not checked, and an expression is not valid.
    pub(super) fn new(
        config: &Config,
        stats: &Arc<ExpressionStats>,
    ) -> Result<Self, Box<Diagnostic>> {
        let mut rules = Vec::new();
        for (index, rule) in config.admission.priority.iter().enumerate() {
            let setting = format!("admission.priority[{index}].when");
            let condition = compile(&setting, &rule.when, Scope::REQUEST, Expected::Condition)?;
            let class = class_of(rule.class);
            rules.push(ClassRule { setting: setting.into(), condition, class });
        }
        let fair_by = config.admission.fair_by.as_ref();
        let fair_by = fair_by.map(|it| compile(FAIR_BY, it, Scope::REQUEST, Expected::Text));
        let fair_by = fair_by.transpose()?;
        let programs = rules.iter().map(|it| &it.condition).chain(&fair_by);
        let needed = NeededFacts::of(programs, &config.client_info);
        Ok(Self { rules, fair_by, needed, stats: Arc::clone(stats) })
    }

    /// Returns the claims that the expressions read.
    pub(super) fn claims(&self) -> &[ClaimPath] {
        &self.needed.claims
    }

    /// Returns the class of a request: that of the first condition that is true. One that cannot be evaluated is not.
    pub(super) fn class(&self, request: &ArrivingRequest<'_>) -> Class {
        if self.rules.is_empty() {
            return Class::Normal;
        }
        self.with_facts(request, |facts| {
            let rule = self.rules.iter().find(|rule| {
                rule.condition.is_true(facts).unwrap_or_else(|error| {
                    self.stats.count_admission_failure(&rule.setting, &error);
                    false
                })
            });
            rule.map_or(Class::Normal, |it| it.class)
        })
    }

    /// Returns the key of the client by `admission.fair_by`; `None` if it counts by its identity or address: without
    /// the expression, or if that is null or cannot be evaluated.
    pub(super) fn client(&self, request: &ArrivingRequest<'_>) -> Option<String> {
        let fair_by = self.fair_by.as_ref()?;
        self.with_facts(request, |facts| match fair_by.evaluate(facts) {
            Ok(value) => value.text().map(Cow::into_owned),
            Err(error) => {
                self.stats.count_admission_failure(FAIR_BY, &error);
                None
            }
        })
    }

    fn with_facts<T>(
        &self,
        request: &ArrivingRequest<'_>,
        read: impl FnOnce(&RequestFacts<'_>) -> T,
    ) -> T {
        let claims = Claims::select(request.identity.claims(), &self.needed.claims);
        let claims = ClaimFacts::Selected(&claims);
        let info = self.needed.client_info.as_ref();
        read(&request_facts(request.source, request.headers, claims, info))
    }
}

/// The path of the expression in the configuration.
const FAIR_BY: &str = "admission.fair_by";

/// Returns a class of the control.
fn class_of(class: config::RequestClass) -> Class {
    match class {
        config::RequestClass::Critical => Class::Critical,
        config::RequestClass::Normal => Class::Normal,
        config::RequestClass::Sheddable => Class::Sheddable,
    }
}
