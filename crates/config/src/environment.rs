//! Expansion of `${NAME}` and `${NAME:-default}` in values. `${env.NAME}` is the same as `${NAME}`: other tools of the
//! field write it so.
//!
//! Variables are expanded after the text is parsed, so that a value cannot change the structure of the file. Keys are
//! not expanded. No message contains the value of a variable. This step follows `yaml` and precedes `check`.

use std::ffi::OsString;
use std::ops::Range;

use super::findings::Findings;
use super::source_tree::{Content, Scalar, SourceNode};

/// The maximum length of an expanded value. Certificates and tokens are far shorter.
const EXPANDED_BYTES_MAX: usize = 1 << 20;

/// The source of variables: the process, or a table in a test.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Expands every value of a tree. A value that cannot be expanded becomes `Broken`.
pub(super) fn expand(
    node: &mut SourceNode,
    text: &str,
    env: Environment<'_>,
    findings: &mut Findings,
) {
    match &mut node.content {
        Content::Scalar(scalar) => {
            if scalar.text.contains("${") {
                match expand_scalar(scalar, env) {
                    Ok(expanded) => *scalar = expanded,
                    Err(problem) => {
                        report(&problem, &node.range, text, findings);
                        node.content = Content::Broken;
                    }
                }
            }
        }
        Content::Sequence(items) => {
            for item in items {
                expand(item, text, env, findings);
            }
        }
        Content::Mapping(entries) => {
            for entry in entries {
                expand(&mut entry.value, text, env, findings);
            }
        }
        Content::Broken => {}
    }
}

/// The reason why a reference cannot be expanded; `reference` is its text in the file.
#[derive(Debug, PartialEq, Eq)]
struct ExpansionError {
    kind: ExpansionErrorKind,
    reference: String,
}

#[derive(Debug, PartialEq, Eq)]
enum ExpansionErrorKind {
    Unset(String),
    NotUnicode(String),
    TooLong(String),
    BadName,
    Nested,
    Unclosed,
}

fn expand_scalar(scalar: &Scalar, env: Environment<'_>) -> Result<Scalar, ExpansionError> {
    let mut expanded = String::with_capacity(scalar.text.len());
    let mut has_variable = false;
    let mut rest = scalar.text.as_str();
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            // `$${` is a literal `${`.
            expanded.push_str(&rest[..at]);
            expanded.push('{');
            rest = &rest[at + 2..];
            continue;
        }
        expanded.push_str(&rest[..at]);
        let Some(end) = rest[at..].find('}') else {
            return Err(ExpansionError {
                kind: ExpansionErrorKind::Unclosed,
                reference: rest[at..].into(),
            });
        };
        let reference = &rest[at..=at + end];
        rest = &rest[at + end + 1..];
        let problem = |kind| ExpansionError { kind, reference: reference.into() };
        let inner = &reference[2..reference.len() - 1];
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        let name = name.strip_prefix("env.").unwrap_or(name);
        if default.is_some_and(|default| default.contains("${")) {
            return Err(problem(ExpansionErrorKind::Nested));
        }
        if !is_name(name) {
            return Err(problem(ExpansionErrorKind::BadName));
        }
        let value = match env(name).map(OsString::into_string) {
            Some(Err(_)) => return Err(problem(ExpansionErrorKind::NotUnicode(name.into()))),
            Some(Ok(value)) => Some(value),
            None => None,
        };
        // As in shells, `:-` also replaces an empty value.
        match (value, default) {
            (Some(value), default) if !value.is_empty() || default.is_none() => {
                has_variable = true;
                expanded.push_str(&value);
            }
            (_, Some(default)) => expanded.push_str(default),
            _ => return Err(problem(ExpansionErrorKind::Unset(name.into()))),
        }
        if expanded.len() > EXPANDED_BYTES_MAX {
            return Err(problem(ExpansionErrorKind::TooLong(name.into())));
        }
    }
    expanded.push_str(rest);
    Ok(Scalar { text: expanded, has_variable, ..scalar.clone() })
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn report(problem: &ExpansionError, range: &Range<usize>, text: &str, findings: &mut Findings) {
    let at = place_of(&problem.reference, range, text);
    let (message, label, help) = match &problem.kind {
        ExpansionErrorKind::Unset(name) => (
            format!("the environment variable `{name}` is not set"),
            "needed here",
            format!(
                "set `{name}` where this program is started, or give a default: `${{{name}:-…}}`"
            ),
        ),
        ExpansionErrorKind::NotUnicode(name) => (
            format!("the environment variable `{name}` is not valid UTF-8"),
            "needed here",
            format!("set `{name}` to a text"),
        ),
        ExpansionErrorKind::TooLong(name) => (
            format!("the environment variable `{name}` is longer than 1 MiB"),
            "used here",
            "shorten it".to_owned(),
        ),
        ExpansionErrorKind::BadName => (
            "this is not the name of an environment variable".to_owned(),
            "letters, digits and `_` only",
            "write `${NAME}` or `${NAME:-default}`; for a literal `${` write `$${`".to_owned(),
        ),
        ExpansionErrorKind::Nested => (
            "a default cannot contain another variable".to_owned(),
            "`${` inside `${…}`",
            "write a plain text after `:-`".to_owned(),
        ),
        ExpansionErrorKind::Unclosed => (
            "a reference to an environment variable is not closed".to_owned(),
            "the `}` is missing",
            "write `${NAME}`; for a literal `${` write `$${`".to_owned(),
        ),
    };
    findings.error("environment-variable", message).at(at, label).help(help);
}

/// Returns the place of the reference inside the value, or the whole value if it is escaped or folded.
fn place_of(reference: &str, range: &Range<usize>, text: &str) -> Range<usize> {
    match text.get(range.clone()).and_then(|value| value.find(reference)) {
        Some(at) => range.start + at..range.start + at + reference.len(),
        None => range.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand_text(text: &str) -> Result<(String, bool), ExpansionErrorKind> {
        let scalar = Scalar { text: text.into(), is_plain: true, has_variable: false };
        let env = |name: &str| match name {
            "HOST" => Some("example.com".into()),
            "EMPTY" => Some("".into()),
            "LOOP" => Some("${HOST}".into()),
            "LONG" => Some("x".repeat(EXPANDED_BYTES_MAX + 1).into()),
            #[cfg(unix)]
            "BYTES" => {
                use std::os::unix::ffi::OsStringExt;
                Some(OsString::from_vec(vec![0xff]))
            }
            _ => None,
        };
        expand_scalar(&scalar, &env)
            .map(|scalar| (scalar.text, scalar.has_variable))
            .map_err(|problem| problem.kind)
    }

    #[test]
    fn references_are_replaced_by_values_and_defaults() {
        for (text, expanded, has_variable) in [
            ("http://${HOST}/", "http://example.com/", true),
            ("${HOST}${HOST}", "example.comexample.com", true),
            ("${NONE:-local}", "local", false),
            ("${NONE:-}", "", false),
            ("${EMPTY:-local}", "local", false),
            ("${EMPTY}", "", true),
            ("${NONE:-a:-b}", "a:-b", false),
            ("$${HOST}", "${HOST}", false),
            ("$HOST costs 5$", "$HOST costs 5$", false),
            ("${env.HOST}${env.NONE:-/}", "example.com/", true),
            ("${LOOP}", "${HOST}", true),
        ] {
            assert_eq!(expand_text(text), Ok((expanded.into(), has_variable)), "{text}");
        }
    }

    #[test]
    fn an_error_names_the_reference_that_cannot_be_expanded() {
        for (text, problem) in [
            ("${NONE}", ExpansionErrorKind::Unset("NONE".into())),
            ("a ${HOST", ExpansionErrorKind::Unclosed),
            ("${}", ExpansionErrorKind::BadName),
            ("${1A}", ExpansionErrorKind::BadName),
            ("${HOST-x}", ExpansionErrorKind::BadName),
            ("${file.HOST}", ExpansionErrorKind::BadName),
            ("${env.env.HOST}", ExpansionErrorKind::BadName),
            ("${ HOST }", ExpansionErrorKind::BadName),
            ("${A:-${B}}", ExpansionErrorKind::Nested),
            ("${LONG}", ExpansionErrorKind::TooLong("LONG".into())),
            #[cfg(unix)]
            ("${BYTES}", ExpansionErrorKind::NotUnicode("BYTES".into())),
        ] {
            assert_eq!(expand_text(text), Err(problem), "{text}");
        }
    }
}
