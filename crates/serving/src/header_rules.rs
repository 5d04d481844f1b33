//! Applies header rules to the headers of one message. The modules [`forwarding`](crate::forwarding) and
//! [`response_forwarding`](crate::response_forwarding) decide which rules apply to which message.

use std::sync::atomic::Ordering;

use config::{HeaderRule, Merge, Propagation};
use expressions::{Program, RequestFacts};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::expression_stats::ExpressionStats;

/// A header that rules have taken or set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SelectedHeader {
    pub(crate) name: HeaderName,
    pub(crate) value: HeaderValue,
    pub(crate) merge: Merge,
}

/// Applies rules in order to the headers of one message; each rule may replace or remove headers that earlier ones
/// took. Headers for which `stays` is true are never taken, and those for which `by_name_only` is true are not taken by
/// a pattern.
pub(crate) fn select_headers(
    rules: &[HeaderRule],
    message: &HeaderMap,
    stays: impl Fn(&HeaderName) -> bool,
    by_name_only: impl Fn(&HeaderName) -> bool,
) -> Vec<SelectedHeader> {
    let mut taken: Vec<SelectedHeader> = Vec::new();
    let may_pass = |name: &HeaderName| !stays(name);
    for rule in rules {
        match rule {
            HeaderRule::Propagate(Propagation {
                named: Some(named),
                rename,
                default,
                merge,
                ..
            }) => {
                let name = rename.as_ref().unwrap_or(named);
                let mut values: Vec<_> = match may_pass(named) {
                    true => message.get_all(named).iter().cloned().collect(),
                    false => Vec::new(),
                };
                if values.is_empty() {
                    values.extend(default.clone());
                }
                if !values.is_empty() && !stays(name) {
                    replace_header(&mut taken, name, values, *merge);
                }
            }
            HeaderRule::Propagate(Propagation { matching: Some(pattern), merge, .. }) => {
                for name in message.keys() {
                    if pattern.matches(name) && may_pass(name) && !by_name_only(name) {
                        let values = message.get_all(name).iter().cloned().collect();
                        replace_header(&mut taken, name, values, *merge);
                    }
                }
            }
            // Unreachable: the configuration always has one of the two.
            HeaderRule::Propagate(_) => {}
            HeaderRule::Insert(insertion) => {
                let value = vec![insertion.value.clone()];
                replace_header(&mut taken, &insertion.name, value, Merge::Last);
            }
            // `forwarded` and `ResponseForwarding` apply these.
            HeaderRule::Claim(_) | HeaderRule::Set(_) => {}
            HeaderRule::Remove(selection) => taken.retain(|it| !selection.selects(&it.name)),
        }
    }
    taken
}

pub(crate) fn replace_header(
    taken: &mut Vec<SelectedHeader>,
    name: &HeaderName,
    values: Vec<HeaderValue>,
    merge: Merge,
) {
    taken.retain(|it| it.name != name);
    taken.extend(values.into_iter().map(|value| SelectedHeader {
        name: name.clone(),
        value,
        merge,
    }));
}

/// Evaluates the expression of a header. The value is marked as sensitive, because it may contain a claim.
pub(crate) fn computed_value(
    program: &Program,
    facts: &RequestFacts<'_>,
    setting: &str,
    stats: &ExpressionStats,
) -> Option<HeaderValue> {
    let value = match program.evaluate(facts) {
        Ok(value) => value,
        Err(error) => {
            stats.header_failures.fetch_add(1, Ordering::Relaxed);
            stats.log_failure(setting, &error);
            return None;
        }
    };
    let text = value.text()?;
    let Ok(mut value) = HeaderValue::from_bytes(text.as_bytes()) else {
        stats.header_failures.fetch_add(1, Ordering::Relaxed);
        return None;
    };
    value.set_sensitive(true);
    Some(value)
}

/// Rules and messages for the tests of this module's users.
#[cfg(test)]
pub(crate) mod testing {
    use config::{ComputedHeader, Expression, HeaderInsertion, HeaderPattern, HeaderSelection};

    use super::*;

    pub(crate) fn name(text: &'static str) -> HeaderName {
        HeaderName::from_static(text)
    }

    pub(crate) fn message(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (header, value) in headers {
            map.append(name(header), HeaderValue::from_static(value));
        }
        map
    }

    pub(crate) fn matching(pattern: &str) -> Propagation {
        let matching = Some(HeaderPattern::new(pattern).expect("a valid pattern"));
        Propagation { matching, ..Propagation::default() }
    }

    pub(crate) fn named(header: &'static str) -> Propagation {
        Propagation { named: Some(name(header)), ..Propagation::default() }
    }

    pub(crate) fn everything() -> HeaderRule {
        HeaderRule::Propagate(matching(".*"))
    }

    pub(crate) fn insert(header: &'static str, value: &'static str) -> HeaderRule {
        let value = HeaderValue::from_static(value);
        HeaderRule::Insert(HeaderInsertion { name: name(header), value })
    }

    pub(crate) fn remove(header: &'static str) -> HeaderRule {
        HeaderRule::Remove(HeaderSelection::Named(name(header)))
    }

    pub(crate) fn set(header: &'static str, expression: &str) -> HeaderRule {
        HeaderRule::Set(ComputedHeader {
            name: name(header),
            expression: Expression::new(expression),
        })
    }
}
