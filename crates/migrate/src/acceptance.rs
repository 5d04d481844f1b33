//! The last step: the result must pass the checks of the configuration. What they refuse is removed, with a finding.
//! The strictest form takes the place of a restriction, so that the result never admits more than its source.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::Path;

use config::Overrides;
use config::diagnostic::{Diagnostic, Severity};
use serde_json::Value as Json;

use super::finding::{Finding, Outcome};
use super::restriction;
use super::target::{Place, Source, Target};

/// The code of findings about parts that a build lacks. Another build has them.
const NOT_BUILT: &str = "not-built";

/// The list of which elements count as a whole only: half an issuer would accept other tokens than its source.
const ISSUERS: &str = "authentication.jwt.issuers";

/// Removes from the target what the checks of the configuration refuse. `lost_issuer` is an issuer of tokens that has
/// no counterpart: without any issuer, tokens would reach subgraphs unverified.
///
/// # Errors
/// A restriction cannot be kept in any form.
pub(crate) fn remove_refused(
    target: &mut Target,
    findings: &mut Vec<Finding>,
    mut lost_issuer: Option<Source>,
) -> Result<(), Vec<Diagnostic>> {
    let schema = config::config_schema();
    let sampler = |keys: &[String]| sample_of(&schema, keys);
    let mut reported: HashSet<Source> = HashSet::new();
    let mut closed: HashSet<Source> = HashSet::new();
    let mut needs_tokens = false;
    // Each round removes at least one part, and a restriction comes back at most twice, so that the loop ends.
    while target.sections() > 0 {
        let rendered = target.render(&[], Some(&sampler));
        let errors = errors_in(&rendered.text);
        if errors.is_empty() {
            break;
        }
        let mut refused: Vec<(Place, String)> = Vec::new();
        for error in &errors {
            let line = error.span.as_ref().map(|span| span.line);
            if let Some(place) = line.and_then(|line| rendered.place_of(line)) {
                refused.push((whole_issuer(target, place), reason(error)));
            }
        }
        if refused.is_empty() {
            // A message without a place would be a defect of the checks: the last section is removed, and the loop
            // continues.
            let message = errors.first().map(reason).unwrap_or_default();
            refused.push((vec![target.sections() - 1], message));
        }
        // From the end, so that the indices of the others stay valid; a part below a removed one is gone.
        refused.sort_by(|a, b| b.0.cmp(&a.0));
        refused.dedup_by(|a, b| a.0 == b.0);
        let outermost: Vec<_> = refused
            .iter()
            .filter(|(place, _)| {
                let is_below = |other: &Place| other != place && place.starts_with(other);
                !refused.iter().any(|(other, _)| is_below(other))
            })
            .cloned()
            .collect();
        // The restrictions of this round are closed after all removals, which the indices are for.
        let mut restrictions = Vec::new();
        for (place, reason) in outermost {
            let path = target.path_of(&place);
            let source = target.source_of(&place).cloned();
            let values = target.values_below(&place);
            let is_issuer = |path: &str| path.starts_with(ISSUERS);
            lost_issuer =
                values.iter().find(|it| is_issuer(&it.0)).map(|it| it.2.clone()).or(lost_issuer);
            restrictions.extend(
                values.into_iter().filter(|(path, text, _)| restriction::restricts(path, text)),
            );
            if let Some(source) = source
                && reported.insert(source.clone())
            {
                findings.push(not_converted(
                    &source,
                    format!("`{path}` cannot have this value: {reason}"),
                ));
            }
            target.remove(&place);
        }
        for (path, text, source) in restrictions {
            if restriction::is_rule(&path) {
                return Err(vec![unkept(&source)]);
            }
            needs_tokens |= path == restriction::REQUIRED;
            let effect = restriction::close(target, &path, Some(&text), &source);
            let earlier = findings
                .iter_mut()
                .rfind(|it| it.outcome == Outcome::NotConverted && is_about(it, &source));
            match earlier {
                Some(finding) => finding.note.push_str(&format!("; {effect}")),
                None => findings.push(not_converted(&source, effect)),
            }
            closed.insert(source);
        }
    }
    // Otherwise the missing issuers have been dealt with already.
    if let Some(source) = lost_issuer.filter(|_| !needs_tokens)
        && !target.has(&ISSUERS.split('.').collect::<Vec<_>>())
    {
        restriction::refuse_operations(target, &source, "tokens cannot be verified yet");
    }
    // A key of which nothing is left is not converted, whatever was reported before.
    findings.retain(|it| {
        let is_gone = closed.iter().any(|source| is_about(it, source))
            || reported.iter().any(|source| is_about(it, source) && !target.has_value_from(source));
        !is_gone || it.outcome == Outcome::NotConverted
    });
    Ok(())
}

/// Returns the place of the issuer that a place is in, or else the place itself.
fn whole_issuer(target: &Target, place: &Place) -> Place {
    // `authentication`, `jwt`, `issuers`, and the number of the issuer.
    let length = ISSUERS.split('.').count();
    match place.get(..length).is_some_and(|list| target.path_of(list) == ISSUERS) {
        true => place.iter().copied().take(length + 1).collect(),
        false => place.clone(),
    }
}

/// True if a finding is about a key.
fn is_about(finding: &Finding, source: &Source) -> bool {
    source.line == finding.line && *source.key == *finding.key
}

fn not_converted(source: &Source, note: String) -> Finding {
    Finding {
        outcome: Outcome::NotConverted,
        line: source.line,
        key: source.key.to_string(),
        to: String::new(),
        note,
    }
}

/// Describes a restriction that cannot be kept.
fn unkept(source: &Source) -> Diagnostic {
    let line = source.line.map_or_else(String::new, |line| format!(" in line {line}"));
    let message = format!("`{}`{line} is a restriction that cannot be converted", source.key);
    let help =
        "remove the key from a copy of the file, convert the copy, and write a counterpart by hand";
    Diagnostic::error("restriction", message).help(help)
}

/// Returns the errors in a configuration. Every variable counts as set.
pub(crate) fn errors_in(text: &str) -> Vec<Diagnostic> {
    let env = |_: &str| Some(OsString::from("value"));
    match config::parse(text, "starling.yaml", Path::new(""), &Overrides::default(), &env) {
        Ok(_) => Vec::new(),
        Err(diagnostics) => diagnostics
            .into_iter()
            .filter(|it| it.severity == Severity::Error && it.code != NOT_BUILT)
            .collect(),
    }
}

fn reason(error: &Diagnostic) -> String {
    let mut reason = error.message.clone();
    // Labels may repeat a part of a value; the help and the message never do.
    if let Some(help) = &error.help {
        reason.push_str("; ");
        reason.push_str(help);
    }
    reason
}

/// Returns a valid value of a key, in place of a variable while the configuration is checked.
fn sample_of(schema: &Json, keys: &[String]) -> String {
    let found = keys.iter().try_fold(schema, |schema, key| property(schema, key));
    let sample = found.and_then(example).or_else(|| found.and_then(default_of));
    sample.unwrap_or_else(|| "\"sample\"".to_owned())
}

fn example(schema: &Json) -> Option<String> {
    if let Some(first) = schema["examples"].get(0) {
        let first = match first {
            Json::Array(items) => items.first()?,
            other => other,
        };
        if !first.is_object() {
            return Some(without_references(first));
        }
    }
    if let Some(word) = schema["enum"].get(0) {
        return Some(word.to_string());
    }
    if schema["type"] == "boolean" {
        return Some("true".to_owned());
    }
    let branches = ["anyOf", "oneOf"].into_iter().filter_map(|name| schema[name].as_array());
    let mut branches = branches.flatten();
    branches
        .find_map(|branch| branch.get("const").map(ToString::to_string).or_else(|| example(branch)))
        .or_else(|| schema.get("items").and_then(example))
}

fn default_of(schema: &Json) -> Option<String> {
    let default = schema.get("default")?;
    (!default.is_null() && !default.is_object() && !default.is_array()).then(|| default.to_string())
}

/// Prints an example. Those of secrets are references: a text of the usual length takes their place.
fn without_references(example: &Json) -> String {
    match example.as_str() {
        Some(text) if text.contains("${") => "\"0123456789abcdef0123456789abcdef\"".to_owned(),
        _ => example.to_string(),
    }
}

/// Returns the schema of a member: of the keys of a mapping, or of the mappings in a list.
fn property<'a>(schema: &'a Json, key: &str) -> Option<&'a Json> {
    if let Some(found) = schema["properties"].get(key) {
        return Some(found);
    }
    let further = schema.get("additionalProperties").filter(|further| further.is_object());
    let branches = ["anyOf", "oneOf"].into_iter().filter_map(|name| schema[name].as_array());
    let mut branches = branches.flatten();
    further
        .or_else(|| branches.find_map(|branch| property(branch, key)))
        .or_else(|| schema.get("items").and_then(|items| property(items, key)))
}

#[cfg(test)]
mod tests {
    use super::super::target::Value;
    use super::*;

    fn set(target: &mut Target, path: &str, value: Value, line: usize) {
        let source = Source { line: Some(line), key: format!("there.{path}").into() };
        let path: Vec<_> = path.split('.').map(str::to_owned).collect();
        assert!(target.set(&path, value, &source, None));
    }

    #[test]
    fn what_the_checks_refuse_is_removed_with_its_reason() {
        let mut target = Target::default();
        set(&mut target, "limits.depth", Value::number(501), 3);
        set(&mut target, "limits.aliases", Value::number(30), 4);
        set(&mut target, "traffic.all.nonsense", Value::number(1), 5);
        set(&mut target, "admin.listen", Value::text("127.0.0.1:4000"), 6);
        let mut findings = Vec::new();
        remove_refused(&mut target, &mut findings, None).unwrap();
        assert_eq!(target.render(&[], None).text, "limits:\n  aliases: 30\n");
        let lines: Vec<_> = findings.iter().map(|it| it.line).collect();
        assert_eq!(lines.len(), 3, "{findings:?}");
        assert!(findings.iter().all(|it| it.outcome == Outcome::NotConverted));
        assert!(findings.iter().any(|it| it.note.contains("`limits.depth` must be")));
    }

    #[test]
    fn variables_stand_for_valid_values_of_every_key() {
        let keys = [
            "listen",
            "path",
            "limits.depth",
            "limits.body",
            "limits.time",
            "introspection",
            "log.level",
            "ide.enabled",
            "supergraph.file",
            "tracing.otlp.endpoint",
            "tracing.sample.ratio",
            "subgraphs.reviews.url",
            "traffic.all.timeout",
            "traffic.all.protocol",
            "admin.listen",
        ];
        for key in keys {
            let mut target = Target::default();
            set(&mut target, key, Value::text("${VARIABLE}"), 1);
            let mut findings = Vec::new();
            remove_refused(&mut target, &mut findings, None).unwrap();
            assert_eq!(findings, [], "{key}");
        }
    }

    /// Returns the target without what the checks refuse, and without comments.
    fn accepted(mut target: Target) -> (String, Vec<Finding>) {
        let mut findings = Vec::new();
        remove_refused(&mut target, &mut findings, None).unwrap();
        let text = target.render(&[], None).text;
        assert!(errors_in(&text).is_empty(), "{text}");
        let lines = text.lines().filter(|it| !it.is_empty() && !it.trim_start().starts_with('#'));
        (lines.map(|it| format!("{it}\n")).collect(), findings)
    }

    #[test]
    fn restrictions_that_the_checks_refuse_take_their_strictest_form() {
        let all_refused =
            |message| format!("block:\n  rules:\n    - when: true\n      message: \"{message}\"\n");
        let documents = all_refused("persisted documents are not set up yet");
        let tokens = all_refused("tokens cannot be verified yet");
        let cases = [
            ("introspection.when", Value::text("client.name ="), "introspection: false\n"),
            ("block.mutations", Value::text("nobody"), "block:\n  mutations: true\n"),
            ("authentication.jwt.required", Value::Bool(true), &*tokens),
            ("authentication.jwt.required", Value::text("${REQUIRED}"), &*tokens),
            ("persisted_documents.mode", Value::text("require_id"), &*documents),
            ("persisted_documents.mode", Value::text("log_unknown"), ""),
        ];
        for (path, value, expected) in cases {
            let mut target = Target::default();
            set(&mut target, path, value, 3);
            let (text, findings) = accepted(target);
            assert_eq!(text, expected, "{path}: {findings:?}");
            assert!(findings.iter().all(|it| it.outcome == Outcome::NotConverted), "{findings:?}");
            let is_strict = findings.iter().any(|it| it.note.contains("until then"));
            assert_eq!(is_strict, !expected.is_empty(), "{findings:?}");
        }
    }

    #[test]
    fn an_issuer_is_kept_or_removed_as_a_whole() {
        let issuer = |name: &str, algorithm: &str| {
            let keys = Value::keyed("url", Value::text("https://a.example.com/keys"));
            Value::map([
                ("issuer", Some(Value::text(name))),
                ("algorithms", Some(Value::texts([algorithm]))),
                ("jwks", Some(keys)),
            ])
        };
        let path = ["authentication", "jwt", "issuers"].map(str::to_owned);
        let source = Source { line: Some(2), key: "there".into() };
        let mut target = Target::default();
        target.push(&path, issuer("a", "NONE"), &source, None);
        target.push(&path, issuer("b", "RS256"), &source, None);
        let (text, findings) = accepted(target);
        assert!(!text.contains("issuer: a") && text.contains("issuer: b"), "{text}");
        assert!(!text.contains("block"), "{text}");
        assert_eq!(findings.len(), 1, "{findings:?}");

        let mut target = Target::default();
        target.push(&path, issuer("a", "NONE"), &source, None);
        let (text, _) = accepted(target);
        assert!(text.contains("tokens cannot be verified yet"), "{text}");
    }
}
